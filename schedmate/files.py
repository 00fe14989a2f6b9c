"""Writing output files so that nobody ever sees half of one."""

from __future__ import annotations

import fcntl
import gzip
import os
import re
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from schedmate.errors import InputError

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
            _hold(descriptor)
            if mode is not None:
                os.fchmod(descriptor, mode)
            yield temporary
            os.fsync(descriptor)
            temporary.replace(path)
        finally:
            os.close(descriptor)
    finally:
        temporary.unlink(missing_ok=True)


def _hold(descriptor: int) -> bool:
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
                if old and _hold(descriptor):
                    Path(name).unlink()
            finally:
                os.close(descriptor)
