"""Reads inputs in object storage (extra `objects`): `s3://`, `gs://` and `az://`, by fsspec."""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn

from schedmate.base.errors import InputError, LimitError, UsageError, require

CLIENTS = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}
"""The package that reads each scheme."""

BLOCK = 8 << 20
"""Bytes that one request asks for."""
READ_S = 600.0
"""Wall time in which one object must have been read [s]."""
CONNECT_S, ANSWER_S, TRIES = 10, 60, 3
"""Time limits of one request to S3 [s], and how often it is sent."""

MOST_FILES = 20_000
"""Files of a directory that is copied."""
LARGEST_FILE, MOST_BYTES = 8 << 20, 512 << 20
"""A larger file of it is left out, as weights and data are; all of them together are no larger."""
MOST_TEXT = 1 << 30
"""Bytes of an input that is copied whole, as a list of jobs or a trace."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as it was listed. `size` [bytes]; `stamp` is another one when it was written anew,
    None where the storage does not say."""

    url: str
    size: int
    stamp: str | None


def is_object(text: str | Path) -> bool:
    """Whether a name is one of object storage."""
    scheme, colon, _ = str(text).partition(":/")
    return bool(colon) and scheme in CLIENTS


def url_of(path: str | Path) -> str:
    """The URL in a path that took two of its slashes for one."""
    scheme, _, rest = str(path).partition(":/")
    return f"{scheme}://{rest.lstrip('/')}"


def require_objects(url: str) -> None:
    """Raise `MissingExtraError` when the client of a URL's storage is not installed."""
    scheme, _, rest = url.partition("://")
    if not rest.strip("/"):
        raise UsageError(f"{url} names no bucket; write {scheme}://BUCKET/PATH.")
    if "::" in url:
        raise UsageError(f"{url} chains file systems; give the URL of the object itself.")
    require(f"{scheme}://", "objects", "fsspec", CLIENTS[scheme])


def objects_below(url: str) -> list[Entry] | None:
    """The objects below a prefix, in the order of their names; None when it is an object itself.

    Raises `InputError` when nothing is there or it cannot be read.
    """
    system, path = _system(url)
    try:
        if system.info(path)["type"] == "file":
            return None
        found = system.find(path, detail=True)
    except Exception as error:  # noqa: BLE001 - each client has exceptions of its own
        _refuse(url, error)
    return _entries(url, found)


def matching_objects(url: str) -> list[Entry]:
    """The objects that match a glob, in the order of their names. Raises `InputError`."""
    system, path = _system(url)
    try:
        found = system.glob(path, detail=True)
    except Exception as error:  # noqa: BLE001 - as in `find`
        _refuse(url, error)
    return _entries(url, found)


def _entries(url: str, listing: dict[str, dict[str, Any]]) -> list[Entry]:
    scheme = url.partition("://")[0]
    return [
        Entry(f"{scheme}://{name}", int(info.get("size") or 0), _stamp(info))
        for name, info in sorted(listing.items())
        if info["type"] == "file" and not name.endswith("/")
    ]


def _stamp(info: dict[str, Any]) -> str | None:
    for name in ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime"):
        if info.get(name) is not None:
            return f"{name}={info[name]}"
    return None


@contextmanager
def open_object(url: str, wall_s: float | None = None) -> Iterator[IO[bytes]]:
    """The bytes of an object, read as they are asked for.

    Raises `InputError` when it cannot be read, and `LimitError` in the main thread of a process
    when the block has not ended after `wall_s` [s] (default: `READ_S`); in others the time limits
    of single requests hold.
    """
    system, path = _system(url)
    with _within(READ_S if wall_s is None else wall_s, url):
        try:
            stream = system.open(path, "rb", block_size=BLOCK, cache_type="readahead")
        except LimitError:
            raise
        except Exception as error:  # noqa: BLE001 - as in `find`
            _refuse(url, error)
        with stream:
            yield io.BufferedReader(_Reading(stream, url), 1 << 16)


class _Reading(io.RawIOBase):
    """An object's bytes; what its client raises becomes `InputError`."""

    def __init__(self, stream: IO[bytes], url: str) -> None:
        super().__init__()
        self._stream = stream
        self._url = url

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        try:
            data = self._stream.read(len(buffer))
        except (LimitError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - as in `find`
            _refuse(self._url, error)
        buffer[: len(data)] = data
        return len(data)


def copy_object(url: str, target: Path, most: int = MOST_TEXT) -> None:
    """Copy an object to a file. Raises `InputError`, also for one of more than `most` bytes."""
    size = 0
    with open_object(url) as stream, target.open("wb") as out:
        while block := stream.read(1 << 20):
            size += len(block)
            if size > most:
                raise InputError(
                    f"{url} has more than {most >> 20:,} MiB; copy it to this machine yourself."
                )
            out.write(block)


@contextmanager
def local_copy(path: Path) -> Iterator[Path]:
    """The path itself, or a copy of the object that it names, of the same name."""
    if not is_object(path):
        yield path
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="schedmate-") as folder:
        copied = Path(folder) / PurePosixPath(url_of(path)).name
        copy_object(url_of(path), copied)
        yield copied


def copy_tree(url: str, folder: Path) -> list[str]:
    """Copy the small files below a prefix into a folder; gives sentences on what was left out.

    Raises `InputError` when there is no directory, or it is too large.
    """
    entries = objects_below(url)
    if not entries:
        raise InputError(f"{url} is not a directory of a job's code; give the prefix of its files.")
    small = [one for one in entries if one.size <= LARGEST_FILE]
    if len(small) > MOST_FILES or sum(one.size for one in small) > MOST_BYTES:
        raise InputError(
            f"{url} holds more than {MOST_FILES:,} files or {MOST_BYTES >> 20:,} MiB, which no "
            "repository should; give the prefix of one job's code."
        )
    base = url.rstrip("/") + "/"
    for one in small:
        parts = PurePosixPath("/" + one.url.removeprefix(base)).parts[1:]
        if ".." in parts or "\0" in one.url or not one.url.startswith(base):
            continue
        target = folder.joinpath(*parts)  # `//home/x`, too, is `home/x` below the folder
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_object(one.url, target, LARGEST_FILE)
        except OSError:  # a key that is another one's folder, or too long a name
            continue
    left = len(entries) - len(small)
    limit = f"more than {LARGEST_FILE >> 20} MiB"
    return [f"files of {url} with {limit} were not read: {left:,}."] if left else []


@cache
def _system_of(scheme: str) -> Any:
    import fsspec

    options: dict[str, Any] = {}
    if scheme == "s3":
        options["config_kwargs"] = {
            "connect_timeout": CONNECT_S,
            "read_timeout": ANSWER_S,
            "retries": {"max_attempts": TRIES},
        }
    # a listing that is kept would hide what was written since
    return fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True, **options)


def _system(url: str) -> tuple[Any, str]:
    require_objects(url)
    scheme, _, path = url.partition("://")
    try:
        return _system_of(scheme), path.rstrip("/")
    except Exception as error:  # noqa: BLE001 - as in `find`
        _refuse(url, error)


def _refuse(url: str, error: Exception) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        raise InputError(f"there is no {url}; check its name.") from None
    lines = str(error).splitlines()
    reason = lines[0] if lines else type(error).__name__
    raise InputError(
        f"cannot read {url}: {reason}; check its name, and this machine's credentials and "
        "endpoint of that storage."
    ) from None


@contextmanager
def _within(wall_s: float, what: str) -> Iterator[None]:
    """Raise `LimitError` when the block takes longer, where a signal can end its waiting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: object) -> NoReturn:
        raise LimitError(f"{what} was not read within {wall_s:g} s; reading it was ended.")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, wall_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
