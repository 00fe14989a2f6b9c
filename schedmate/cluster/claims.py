"""One process at a time: a lock that ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schedmate.base.errors import ActionError


class ClaimedError(ActionError):
    """Another process is at it."""


@contextmanager
def claim(folder: Path, name: str) -> Iterator[int]:
    """Hold `name` in a folder; raise `ClaimedError` at once if another process or thread holds it.

    Yields the descriptor of the lock: a process that inherits it also holds the name until it ends,
    even if its parent is killed. For processes of one machine: the folder must not be on a network
    file system without locks.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / re.sub(r"[^A-Za-z0-9.-]", "_", name)
    try:
        descriptor = _locked(path)
    except OSError as error:  # a link or a directory of that name, a folder that is read-only
        raise ClaimedError(f"{path} cannot be locked ({error.strerror}); remove it.") from None
    if descriptor is None:
        raise ClaimedError(f"another process is at {name}; wait for it to end, then look again.")
    try:
        yield descriptor
    finally:
        path.unlink(
            missing_ok=True
        )  # removed while it is held, so that no process holds a deleted file
        os.close(descriptor)


def _locked(path: Path) -> int | None:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # the one before may have removed it between our opening and locking it
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)
