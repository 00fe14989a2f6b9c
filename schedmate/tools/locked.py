"""Opening what lies below one directory, and nothing else, whatever is swapped meanwhile.

A path is walked component by component, each opened relative to the directory before it and never
through a link (openat(2) with O_NOFOLLOW), so no check can be outrun by a rename: what is opened
is what was checked. Threats: docs/THREAT_MODEL.md.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from schedmate.base.errors import InputError
from schedmate.base.terminal import quoted_name

MAX_COMPONENTS = 64
_COMMON = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = _COMMON | os.O_DIRECTORY

_KINDS = (
    (stat.S_ISLNK, "link"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


class RefusedError(Exception):
    """Something is not shown; the message is the sentence for whoever asked."""


def kind_of(mode: int) -> str:
    """`file`, `directory`, `link`, `pipe`, `socket`, `device` or `special file` of an st_mode."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "special file")


def components(path: str) -> tuple[str, ...]:
    """The components of a relative path, `.` and doubled slashes dropped; () is the root itself.

    Raises `RefusedError` for a path that is absolute, holds `..` or NUL, or is absurdly long.
    """
    if "\0" in path:
        raise RefusedError("a path cannot hold a NUL character")
    if len(path) > 4096:
        raise RefusedError("the path is too long")
    try:
        os.fsencode(path)
    except UnicodeError:
        raise RefusedError(f"no such file: {quoted_name(path)}") from None
    if path.startswith(("/", "~")):
        raise RefusedError(f"{quoted_name(path)} is outside: give a path relative to the root")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise RefusedError(f"{quoted_name(path)} is outside: `..` is not allowed in a path")
    if len(parts) > MAX_COMPONENTS:
        raise RefusedError(f"{quoted_name(path)} is deeper than {MAX_COMPONENTS} directories")
    return parts


def shown(parts: Sequence[str]) -> str:
    """A path as one printable word; the root is `.`."""
    return quoted_name("/".join(parts)) if parts else "."


class LockedRoot:
    """A directory below which files and directories can be opened for reading.

    The directory is resolved once, here; if its path comes to mean another directory later,
    everything is refused. Raises `InputError` when it is not a directory that can be read.
    """

    def __init__(self, root: Path) -> None:
        try:
            self.path = root.resolve(strict=True)
            handle = os.open(self.path, _DIRECTORY)
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a directory"
            raise InputError(f"cannot read {root}: {reason}; give a directory.") from None
        try:
            self._identity = _identity(os.fstat(handle))
        finally:
            os.close(handle)

    @contextmanager
    def directory(self, parts: Sequence[str]) -> Iterator[int]:
        """A file descriptor of the directory at these components, closed at the end.

        Raises `RefusedError` when there is none, or a component is a link or no directory.
        """
        handle = self._root()
        try:
            for index, name in enumerate(parts):
                below = _open(name, handle, parts[: index + 1], "directory")
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def file(self, parts: Sequence[str]) -> Iterator[tuple[int, os.stat_result]]:
        """A file descriptor of the regular file at these components and its status.

        Raises `RefusedError` as `directory` does, and for everything but a regular file; a pipe,
        a device or a socket is not even opened.
        """
        with self.directory(parts[:-1]) as parent:
            handle = _open(parts[-1], parent, parts, "file")
        try:
            yield handle, os.fstat(handle)
        finally:
            os.close(handle)

    def _root(self) -> int:
        try:
            handle = os.open(self.path, _DIRECTORY)
        except OSError as error:
            raise RefusedError(f"the root cannot be read: {error.strerror}") from None
        if _identity(os.fstat(handle)) != self._identity:
            os.close(handle)
            raise RefusedError("the root is no longer the directory that it was")
        return handle


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _open(name: str, parent: int, parts: Sequence[str], wanted: str) -> int:
    try:
        # Opening a device can have effects, so its kind is looked at first; the kind that counts
        # is that of what was opened.
        _check(os.stat(name, dir_fd=parent, follow_symlinks=False), parts, wanted)
        handle = os.open(name, _DIRECTORY if wanted == "directory" else _COMMON, dir_fd=parent)
    except FileNotFoundError:
        raise RefusedError(f"no such {wanted}: {shown(parts)}") from None
    except OSError as error:
        raise RefusedError(f"cannot read {shown(parts)}: {error.strerror}") from None
    try:
        _check(os.fstat(handle), parts, wanted)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check(status: os.stat_result, parts: Sequence[str], wanted: str) -> None:
    kind = kind_of(status.st_mode)
    if kind == wanted:
        return
    if kind == "link":
        raise RefusedError(f"{shown(parts)} is a link, and links are not followed")
    hint = {"directory": "; list it with file_tree", "file": "; read it with file_read"}
    raise RefusedError(f"{shown(parts)} is a {kind}, not a {wanted}{hint.get(kind, '')}")


def read(handle: int, limit: int) -> bytes:
    """At most `limit` bytes of an open file. Raises `RefusedError` when reading fails."""
    chunks: list[bytes] = []
    while limit > 0:
        try:
            chunk = os.read(handle, min(limit, 1 << 20))
        except OSError as error:
            raise RefusedError(f"reading failed: {error.strerror}") from None
        if not chunk:
            break
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)
