"""Index snapshots on disk: whole or not there, and known to be undamaged before they are used.

The name says what a snapshot holds, `index-GENERATION-LASTID.faiss`. After FAISS's own bytes come
eight of a mark and four of a checksum over all that precedes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

MARK = b"SCHMIDX1"
TRAILER = len(MARK) + 4
_NAME = re.compile(r"index-(\d+)-(\d+)\.faiss")


def load(folder: Path, generation: int, dim: int) -> tuple[Any, int] | None:
    """The newest usable index of this generation, memory-mapped, and the last id that it holds."""
    import faiss

    for last_id, path in sorted(_all(folder, generation), reverse=True):
        try:
            _verify(path)
            index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
            if index.d != dim:
                raise ValueError(f"its vectors have {index.d} numbers, not {dim}")
        except FileNotFoundError:
            continue  # another process has just written a newer one
        except (OSError, ValueError, RuntimeError) as error:
            log.warning(
                "%s: not a usable index (%s), so vectors are read from the table", path, error
            )
            with suppress(OSError):  # so that the next addition makes a new one
                path.unlink()
            continue
        return index, last_id
    return None


def newest(folder: Path, generation: int) -> int:
    """The last id that a snapshot of this generation says it holds, 0 when there is none."""
    return max((last_id for last_id, _ in _all(folder, generation)), default=0)


def writable(folder: Path, generation: int, last_id: int) -> Any:
    """A copy in memory, to add to."""
    import faiss

    return faiss.read_index(str(_path(folder, generation, last_id)))


def write(folder: Path, generation: int, last_id: int, index: Any) -> None:
    """Put a new snapshot in place of all others; call it under `writer`."""
    import faiss

    path = _path(folder, generation, last_id)
    partial = path.with_suffix(".partial")
    partial.touch(mode=0o600)
    faiss.write_index(index, str(partial))
    with partial.open("r+b") as file:
        checksum = _checksum(file, file.seek(0, os.SEEK_END))
        file.write(MARK + checksum)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    for old in folder.glob("index-*"):  # also what a killed process left half written
        if old != path:
            old.unlink(missing_ok=True)


@contextmanager
def writer(folder: Path) -> Iterator[bool]:
    """Whether this process may write a snapshot now: one at a time does, nobody waits."""
    file = os.open(folder / "index.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)


def _path(folder: Path, generation: int, last_id: int) -> Path:
    return folder / f"index-{generation}-{last_id}.faiss"


def _all(folder: Path, generation: int) -> Iterator[tuple[int, Path]]:
    for path in folder.glob(f"index-{generation}-*.faiss"):
        match = _NAME.fullmatch(path.name)
        if match:
            yield int(match[2]), path


def _verify(path: Path) -> None:
    """Raise ValueError unless the file is as it was written."""
    with path.open("rb") as file:
        body = file.seek(0, os.SEEK_END) - TRAILER
        if body < 0:
            raise ValueError("it is cut short")
        file.seek(body)
        trailer = file.read(TRAILER)
        if not trailer.startswith(MARK) or trailer[len(MARK) :] != _checksum(file, body):
            raise ValueError("it is damaged or cut short")


def _checksum(file: Any, size: int) -> bytes:
    """CRC-32 of the first `size` bytes."""
    file.seek(0)
    value = 0
    while size > 0:
        block = file.read(min(size, 1 << 20))
        if not block:
            break
        value = zlib.crc32(block, value)
        size -= len(block)
    return value.to_bytes(4, "big")
