"""What lies at a path that somebody else named, which may be too long, forbidden or no path at all.

`pathlib` raises for some of these and, depending on Python's version, says "no" to others. Here
what cannot be looked at is not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MAX_DEPTH = 60
"""Parts of a path at most whose folders are looked at one by one."""


def is_file(path: Path) -> bool:
    """Whether a regular file, or a link to one, is there and can be looked at."""
    return os.path.isfile(path)  # noqa: PTH113 - this is the door


def is_dir(path: Path) -> bool:
    """Whether a directory, or a link to one, is there and can be looked at."""
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: Path) -> bool:
    """Whether anything is there that can be looked at; a link to nothing is nothing."""
    return os.path.exists(path)  # noqa: PTH110


def resolved(path: Path) -> Path:
    """The absolute path without links; as given where links are circular or it is not a path."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return Path(os.path.abspath(os.fspath(path).replace("\0", "\ufffd")))  # noqa: PTH100


def _is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - it raises nothing


class RealPaths:
    """Paths without links, worked out once for each folder, for as long as nothing is changed."""

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
    """What lies in a folder, sorted; nothing when it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except (OSError, ValueError):
        return []


def matching(folder: Path, pattern: str, most: int) -> list[Path]:
    """The first `most` paths below a folder that a glob pattern finds; none without a pattern."""

    def found() -> Iterator[Path]:
        try:
            yield from folder.glob(pattern)
        except (OSError, ValueError, NotImplementedError, IndexError, RecursionError):
            return

    return list(islice(found(), most))
