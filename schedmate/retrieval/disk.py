"""The file system that a history lies on, and a lock that works on all of them."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
"""What is mounted where, see proc_pid_mountinfo(5); where it is missing, all counts as local."""

NETWORK = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs"),
        *("virtiofs", "wekafs"),
    )
)
"""Types of file system that several machines can share. `fuse.*` counts as well."""
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.portal"})


def network_filesystem(folder: Path) -> str | None:
    """The type of the file system of a directory when several machines can share it, else None."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        place = folder.resolve()
    except OSError:
        return None
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        # the last one mounted on a place hides the others
        if place.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split()[0]
    shared = kind in NETWORK or (kind.partition(".")[0] == "fuse" and kind not in LOCAL_FUSE)
    return kind if shared else None


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock file `path`, one process at a time; gives False when another does, unless
    `wait`. The end of the process releases it."""
    # opened for writing: a network file system locks no other file, and no directory
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
