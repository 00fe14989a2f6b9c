"""Files and places: outputs that appear whole, paths that others named, and where a history is.

`open_output` and `replaced` write so that nobody ever sees half a file, `parquet_rows` writes
Parquet (extra `parquet`) a group of rows at a time. Paths from untrusted sources may be too long,
forbidden or invalid; `pathlib` raises for some of them, so here a path that cannot be examined
counts as missing. A `Place` is a directory or a database's address.
"""

from __future__ import annotations

import fcntl
import fnmatch
import gzip
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO
from urllib.parse import urlsplit

from schedmate.base.data import encodable
from schedmate.base.errors import InputError, require

ABANDONED_S = 60.0
"""Age at which a temporary file that nobody holds was left by a process that was killed [s]."""


def without_shared_folders(names: Iterable[str]) -> dict[str, str]:
    """Each name of a file, and what tells it from the others: the folders of all are left out."""
    parts = {name: Path(name).parts for name in names}
    shared = 0
    for level in zip(*(path[:-1] for path in parts.values()), strict=False):
        if len(set(level)) > 1:
            break
        shared += 1
    return {name: str(Path(*path[shared:])) for name, path in parts.items()}


def write_output(path: Path | None, text: str) -> None:
    """Write a text as `open_output` does."""
    with open_output(path) as stream:
        stream.write(text)


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A stream whose content appears at `path` whole or not at all; None or `-`: standard output.

    What is written to a name that ends in `.gz` is packed.

    Devices and pipes are written to directly, any other file as by `replaced`. Raises `InputError`
    when the place cannot be written.
    """
    if path is None or str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    target = path.resolve()
    with ExitStack() as stack:
        try:
            if not target.exists() or target.is_file():
                target = stack.enter_context(replaced(target))
            # a name in a report may hold bytes that are no text
            opened = gzip.open if path.suffix == ".gz" else open
            stream = stack.enter_context(
                opened(target, "wt", encoding="utf-8", errors="backslashreplace")
            )
        except OSError as error:
            raise InputError(
                f"cannot write {path}: {error.strerror}; choose another place with -o."
            ) from None
        yield stream


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """An empty file beside `path` to write to, which takes its place when the block ends well.

    It has the permissions of the old one. What a killed process left of an earlier attempt is
    removed.
    """
    _remove_abandoned(path)
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.schedmate")
    try:
        # named before it is made, and removed by its name: Ctrl-C may come at any moment
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            _lock(descriptor)
            if mode is not None:
                os.fchmod(descriptor, mode)
            yield temporary
            os.fsync(descriptor)
            temporary.replace(path)
        finally:
            os.close(descriptor)
    finally:
        temporary.unlink(missing_ok=True)


def _lock(descriptor: int) -> bool:
    """Lock a file until it is closed, or its process has died; False when another one has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # also where a file system has no locks
        return False
    return True


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote to `path`."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.schedmate")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for name in [entry.path for entry in entries if ours.fullmatch(entry.name)]:
            descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # one that was made this moment may not be locked yet
                old = time.time() - os.fstat(descriptor).st_mtime > ABANDONED_S
                if old and _lock(descriptor):
                    Path(name).unlink()
            finally:
                os.close(descriptor)


# Rows to a Parquet file (extra `parquet`), as many as there are, a group of them in memory.


ROW_GROUP = 10_000
"""Rows written together."""

ColumnKind = Literal["string", "int64", "float64", "bool", "strings"]


@contextmanager
def parquet_rows(
    path: Path | None, columns: Mapping[str, ColumnKind]
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Gives a function that takes a row: the values of `columns` by name, others are ignored.

    The file appears whole when the block ends well, or not at all; None: nothing is written.
    Raises `MissingExtraError` without pyarrow and `InputError` for a place that cannot be written.
    """
    if path is None:
        yield lambda _row: None
        return
    require("--parquet", "parquet", "pyarrow")
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    kinds = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "strings": pa.list_(pa.string()),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    rows: list[dict[str, Any]] = []

    def take(row: Mapping[str, Any]) -> None:
        rows.append({name: _column_value(row.get(name), kind) for name, kind in columns.items()})
        if len(rows) == ROW_GROUP:
            flush()

    def flush() -> None:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        rows.clear()

    try:
        # a file, as Arrow takes names in UTF-8 only
        with (
            replaced(path) as temporary,
            temporary.open("wb") as stream,
            ParquetWriter(stream, schema) as writer,
        ):
            yield take
            flush()
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; choose another place."
        ) from None


def _column_value(value: Any, kind: ColumnKind) -> Any:
    """The value as its column takes it; what does not fit is null."""
    if value is None:
        return None
    if kind == "string":
        return encodable(str(value))
    if kind == "strings":
        return [encodable(str(one)) for one in value]
    if kind == "bool":
        return bool(value)
    try:
        return float(value) if kind == "float64" else _column_integer(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _column_integer(value: Any) -> int | None:
    number = int(value)
    return number if -(1 << 63) <= number < 1 << 63 else None


# Files at paths from untrusted sources, which may be too long, forbidden or invalid.
#
# `pathlib` raises for some of these and, depending on Python's version, returns False for others.
# Here a path that cannot be examined counts as missing.


MAX_DEPTH = 60
"""Parts of a path at most whose folders are looked at one by one."""


def is_file(path: Path) -> bool:
    """Whether a regular file, or a link to one, exists and can be examined."""
    return os.path.isfile(path)  # noqa: PTH113 - this is the door


def is_dir(path: Path) -> bool:
    """Whether a directory, or a link to one, exists and can be examined."""
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: Path) -> bool:
    """Whether anything exists that can be examined; a dangling link does not count."""
    return os.path.exists(path)  # noqa: PTH110


def with_home(path: Path) -> Path:
    """The path with `~` and `~user` replaced; raises `ValueError` for an unknown user."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(
            f"{path} is in the home of a user whom this machine does not know; give the whole path"
        ) from None


def resolved(path: Path) -> Path:
    """The absolute path without links; as given where links are circular or it is not a path."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return Path(os.path.abspath(os.fspath(path).replace("\0", "\ufffd")))  # noqa: PTH100


def _is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - it raises nothing


class RealPaths:
    """Paths without links, resolved once for each folder while nothing changes."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """An absolute path without links."""
        real = self._known.get(path)
        if real is None:
            folder, slash, name = path.rpartition("/")
            plain = name not in ("", ".", "..") and "\0" not in path
            if folder and plain and path.count("/") < MAX_DEPTH and not _is_link(path):
                real = f"{self(folder)}{slash}{name}"
            else:
                real = str(resolved(Path(path)))
            self._known[path] = real
        return real


def children(folder: Path) -> list[Path]:
    """The entries of a folder, sorted; none if it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except (OSError, ValueError):
        return []


def walk(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk`, at most `MAX_DEPTH` levels deep: up to Python 3.11 it recurses for each level."""
    top = os.fspath(root).rstrip("/").count("/")
    for folder, folders, names in os.walk(root):
        if folder.count("/") - top >= MAX_DEPTH:
            folders.clear()
        yield folder, folders, names


def paths_called(root: Path, pattern: str) -> Iterator[Path]:
    """The files and folders below `root` whose name matches `pattern`, as by `walk`."""
    for folder, folders, names in walk(root):
        yield from (Path(folder, name) for name in fnmatch.filter([*folders, *names], pattern))


def matching_paths(folder: Path, pattern: str, most: int) -> list[Path]:
    """The first `most` paths below a folder that match a glob pattern; none without a pattern."""

    def readable_matches() -> Iterator[Path]:
        try:
            yield from folder.glob(pattern)
        except (OSError, ValueError, NotImplementedError, IndexError, RecursionError):
            return

    return list(islice(readable_matches(), most))


# The location of a history: a directory, or the address of a database.


DATABASE_SCHEMES = ("postgresql://", "postgres://")

Place = Path | str
"""A directory, or a URL of PostgreSQL's without a password."""


def place_of(value: Any) -> Any:
    """The location that a setting or option names; raises ValueError for a URL with a password."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text.startswith(DATABASE_SCHEMES):
        return Path(value)
    if urlsplit(text).password or "password=" in text:
        raise ValueError(
            "a password does not belong into the address, where others see it: put it into "
            "~/.pgpass, or into PGPASSWORD"
        )
    return text


def without_password(url: str) -> str:
    """An address that is safe to show: `https://me:***@host/v1`."""
    scheme, separator, rest = url.rpartition("://")
    place = rest.partition("/")[0]
    name, _, secret = place.partition(":")
    if "@" in place or ("@" in rest and not secret.isdecimal()):  # a password may hold a slash
        login, _, host = (place if "@" in place else rest).rpartition("@")
        name, colon, _ = login.partition(":")
        path = rest[len(place) :] if "@" in place else ""
        return f"{scheme}{separator}{name}{colon and ':***'}@{host}{path}"
    return url


def is_remote(place: Place) -> bool:
    """Whether it is the address of a database."""
    return isinstance(place, str) and place.startswith(DATABASE_SCHEMES)


def without_query(url: str) -> str:
    """An address as messages show it."""
    return url.partition("?")[0]
