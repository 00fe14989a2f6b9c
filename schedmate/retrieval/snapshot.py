"""Index snapshots on disk: whole or not there, and known to be undamaged before they are used.

The name says what a snapshot holds, `index-GENERATION-LASTID-TOKEN.faiss`; the token is random. The
history's manifest names the one snapshot that was made from its table, so that one left by another
state of the table, as after an older database was restored, is never used. After FAISS's own bytes
come eight of a mark and four of a checksum over all that precedes.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from schedmate.retrieval.disk import network_filesystem

log = logging.getLogger(__name__)

LOCK = "index.lock"
"""One process at a time writes a snapshot."""
MARK = b"SCHMIDX1"
TRAILER = len(MARK) + 4
_NAME = re.compile(r"index-(\d+)-(\d+)-[0-9a-f]+\.faiss")


def load(folder: Path, name: str, dim: int) -> tuple[Any, int] | None:
    """The index of this name and the last id that it holds; None, with a warning, when it is lost
    or damaged."""
    import faiss

    path = folder / name
    # Another machine may delete a file that is mapped here, and a read of it then ends the process.
    flags = 0 if network_filesystem(folder) else faiss.IO_FLAG_MMAP_IFC
    try:
        _verify(path)
        index: Any = faiss.read_index(str(path), flags)
        if index.d != dim:
            raise ValueError(f"its vectors have {index.d} numbers, not {dim}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RuntimeError) as error:
        log.warning("%s: not a usable index (%s), so vectors are read from the table", path, error)
        with suppress(OSError):  # so that the next addition makes a new one
            path.unlink()
        return None
    return index, _last_id(name)


def held(folder: Path, name: str | None) -> int:
    """The last id that a snapshot says it holds, 0 when it is not there."""
    return _last_id(name) if name and (folder / name).exists() else 0


def writable(folder: Path, name: str) -> Any:
    """A copy in memory, to add to."""
    import faiss

    return faiss.read_index(str(folder / name))


def write(folder: Path, generation: int, last_id: int, index: Any) -> str:
    """Write a new snapshot and return its name, for the manifest; call it under `LOCK`."""
    import faiss

    name = f"index-{generation}-{last_id}-{secrets.token_hex(8)}.faiss"
    partial = (folder / name).with_suffix(".partial")
    partial.touch(mode=0o600)
    faiss.write_index(index, str(partial))
    with partial.open("r+b") as file:
        checksum = _checksum(file, file.seek(0, os.SEEK_END))
        file.write(MARK + checksum)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / name)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return name


def tidy(folder: Path, name: str) -> None:
    """Delete all snapshots but this one, and what a killed process left half written; call it
    under `LOCK`."""
    for old in folder.glob("index-*"):
        if old.name != name:
            old.unlink(missing_ok=True)


def _last_id(name: str) -> int:
    match = _NAME.fullmatch(name)
    return int(match[2]) if match else 0


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
