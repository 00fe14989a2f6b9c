"""Files at paths from untrusted sources, which may be too long, forbidden or invalid.

`pathlib` raises for some of these and, depending on Python's version, returns False for others.
Here a path that cannot be examined counts as missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

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


def matching(folder: Path, pattern: str, most: int) -> list[Path]:
    """The first `most` paths below a folder that match a glob pattern; none without a pattern."""

    def found() -> Iterator[Path]:
        try:
            yield from folder.glob(pattern)
        except (OSError, ValueError, NotImplementedError, IndexError, RecursionError):
            return

    return list(islice(found(), most))
