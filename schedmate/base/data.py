"""Plain data: the YAML tables beside the code that uses them, and values that JSON, UTF-8 and
SQL take.

`load` reads a table. Reading YAML takes ten times as long as reading JSON, so what a file says is
kept as JSON in the user's cache, with the digest of the text it was read from: never code or
pickles, and only in a folder that nobody else can write to. The cache may be deleted at any time.

`plain` makes values fit for others. Python holds what they cannot: whole numbers of any length
(which it refuses to print beyond 4,300 digits), infinities, NaN, and halves of surrogate pairs,
which stand for bytes of file names that are not UTF-8.
"""

from __future__ import annotations

import json
import math
import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent.parent


def load(name: str) -> Any:
    """The content of a YAML file that comes with schedmate, named relative to the package."""
    path = PACKAGE / name
    text = path.read_bytes()
    digest = sha256(text).hexdigest()
    cached_at = _cache_folder() / f"{sha256(os.fsencode(path)).hexdigest()[:24]}.json"
    cached = _read_cached(cached_at)
    if isinstance(cached, dict) and cached.get("of") == digest:
        return cached["says"]
    content = parse_yaml(text.decode("utf-8"))
    _write_cached(cached_at, {"of": digest, "says": content})
    return content


def parse_yaml(text: str) -> Any:
    """The plain values that YAML text says; raises `yaml.YAMLError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, the fast one if built


def _cache_folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "schedmate" / "data"


def _read_cached(path: Path) -> Any:
    """What is kept at a path; None where nothing is, or somebody else could have written it."""
    try:
        if not _only_ours_to_write(path.parent.stat()):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            return json.load(stream) if _only_ours_to_write(os.fstat(descriptor)) else None
    except (OSError, ValueError, RecursionError):
        return None


def _only_ours_to_write(found: os.stat_result) -> bool:
    mine = found.st_uid == os.geteuid()
    return mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write_cached(path: Path, document: dict[str, Any]) -> None:
    """Keep a document that JSON can say, if there is a place for it."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        if json.loads(text) != document:  # a key that is not text, for example
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(
            temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            temporary.replace(path)
        except OSError:  # a full disk, or a process that may write no files
            temporary.unlink(missing_ok=True)
    except (OSError, TypeError, ValueError):
        return


# Values as any reader of JSON, UTF-8 or SQL takes them, whatever they were read from.
#
# Python holds what others cannot: whole numbers of any length (which it refuses to print beyond
# 4,300 digits), infinities, NaN, and halves of surrogate pairs, which stand for bytes of file
# names that are not UTF-8.


LARGEST = 2**63 - 1
"""The largest whole number that a database or another language's JSON reader holds."""

MOST_GPUS = 10**9
"""GPUs or nodes of one job at most: beyond every cluster, and small enough to count with."""

LONGEST_S = 3e11
"""Some nine thousand years: no run time, time limit or date is beyond [s]."""

_DEEPEST = 60
_LONGEST = 400


def encodable(text: str) -> str:
    r"""The text with every lone surrogate written as an escape, `\udcff`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain(value: Any, depth: int = _DEEPEST) -> Any:
    """The value with encodable text, finite numbers, and whole numbers of at most 64 bits.

    Larger whole numbers become floating-point numbers, and what those cannot hold either, like
    infinity and NaN, becomes None; so does what is nested deeper than `depth`.
    """
    if isinstance(value, str):
        return encodable(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -LARGEST <= value <= LARGEST else plain(_as_float(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        if depth == 0:
            return None
        return {_plain_key(key): plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth - 1) for item in value] if depth else None
    return value


def dumps(document: Any, indent: int | None = None) -> str:
    """A document as JSON that everybody can read: every value as `plain` makes it."""
    return json.dumps(plain(document), indent=indent, allow_nan=False)


def whole_number(text: str) -> int | float:
    """The number that digits spell; a floating-point one where no database holds it.

    For `parse_int` of JSON decoders: Python refuses to read more than 4,300 digits as an `int`.
    """
    return float(text) if len(text) > _LONGEST else int(text)


def clipped(value: Any) -> Any:
    """A parameter of an SQL statement: encodable, and the nearest number of 64 bits."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, int):
        return max(-LARGEST, min(LARGEST, value))
    return value


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _plain_key(key: Any) -> Any:
    return encodable(key) if isinstance(key, str) else plain(key)
