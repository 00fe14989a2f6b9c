"""The bytes of one log, wherever they come from, readable at any offset.

A plain file is read where it lies. Compressed logs and standard input are unpacked once, into
memory while small and into an unnamed temporary file beyond that, under a limit. Files are never
mapped into memory: one that shrinks while it is read would end the process.
"""

from __future__ import annotations

import os
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from schedmate.logparse.reading.folder import Folder, LogError, open_regular, unreadable

BLOCK = 1 << 22
"""Bytes read at a time (4 MiB)."""
IN_MEMORY = 1 << 25
"""Unpacked logs up to this size stay in memory (32 MiB)."""
MAX_UNPACKED = 1 << 33
"""Limit for the unpacked size of a compressed log or standard input (8 GiB)."""
MAX_RATIO = 400
"""An input that unpacks to more than this many times its size is refused past `IN_MEMORY`; a gzip
bomb reaches 1,000."""
USUAL_RATIO, MUCH = 100, 1 << 30
"""Real logs stay below this ratio; one above it is refused past this size [bytes]."""
LONG_LINE = 1 << 23
"""Of a line longer than this (8 MiB) only both ends are kept."""
TAIL = 1 << 20
"""Bytes kept at the end of such a line."""


class Storage(Protocol):
    """Bytes at offsets; `size` [bytes] is that at the time of opening."""

    size: int

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer at the end, or where the file has shrunk."""
        ...

    def close(self) -> None:
        """Give back what is open. May be repeated."""
        ...


class Memory:
    """A log held in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        """See `Storage.read`."""
        return self._data[offset : offset + size]

    def close(self) -> None:
        """See `Storage.close`."""


class OnDisk:
    """A regular file, opened when first read and again after `close`.

    One of at most `BLOCK` bytes is read once and held until `close`.
    """

    def __init__(self, path: Path, folder: Folder | None = None) -> None:
        self._path = path
        self._stream: IO[bytes] | None = None
        self._folder = folder
        self._data: bytes | None = None
        self.size = self._open().seek(0, os.SEEK_END)
        self.close()  # a job can have more rank files than a process may hold open

    def _open(self) -> IO[bytes]:
        if self._stream is None:
            self._stream = os.fdopen(_descriptor(self._path, self._folder), "rb", buffering=0)
        return self._stream

    def read(self, offset: int, size: int) -> bytes:
        """See `Storage.read`."""
        if self._data is None:
            try:
                if self.size > BLOCK:
                    return os.pread(self._open().fileno(), size, offset)
                self._data = os.pread(self._open().fileno(), self.size, 0)
            except OSError as error:
                raise unreadable(self._path, error) from None
        return self._data[offset : offset + size]

    def close(self) -> None:
        """See `Storage.close`."""
        self._data = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class Unpacked:
    """An unnamed temporary file, which exists until the last reference to it is gone."""

    def __init__(self, name: str, stream: IO[bytes]) -> None:
        self._name = name
        self._stream = stream
        self.size = stream.seek(0, os.SEEK_END)
        weakref.finalize(self, stream.close)

    def read(self, offset: int, size: int) -> bytes:
        """See `Storage.read`."""
        try:
            return os.pread(self._stream.fileno(), size, offset)
        except OSError as error:
            raise unreadable(Path(self._name), error) from None

    def close(self) -> None:
        """See `Storage.close`; what has no name could not be opened again."""


def store(path: Path, folder: Folder | None = None) -> tuple[Storage, str | None]:
    """The bytes of a plain or compressed log, and a warning if some could not be read.

    With `folder`, nothing outside of it is read. Raises `LogError`.
    """
    with os.fdopen(_descriptor(path, folder), "rb") as stream:
        try:
            unpack = _unpacker(stream.peek(8)[:8])
            if unpack is not None:
                size = os.fstat(stream.fileno()).st_size
                return _spool(unpack(_blocks(stream)), str(path), size)
        except OSError as error:
            raise unreadable(path, error) from None
    return OnDisk(path, folder=folder), None


def _descriptor(path: Path, folder: Folder | None) -> int:
    return open_regular(path) if folder is None else folder.open(path)


def store_stream(stream: IO[bytes], name: str) -> tuple[Storage, str | None]:
    """Everything that a pipe delivers, unpacked if it is compressed."""
    blocks = _blocks(stream)
    first = next(blocks, b"")

    def whole() -> Iterator[bytes]:
        yield first
        yield from blocks

    unpack = _unpacker(first[:8])
    return _spool(unpack(whole()) if unpack else whole(), name, None)


def _unpacker(head: bytes) -> Callable[[Iterator[bytes]], Iterator[bytes]] | None:
    if head.startswith(b"\x1f\x8b"):
        return _gunzip
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _from_utf16
    return None


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    read = getattr(stream, "read1", stream.read)
    while block := read(1 << 16):
        yield block


class _CutShortError(Exception):
    """The compressed data ended early or is damaged; the data before is valid."""


def _gunzip(blocks: Iterator[bytes]) -> Iterator[bytes]:
    decoder = zlib.decompressobj(31)
    for block in blocks:
        data = block
        while data:
            try:
                piece = decoder.decompress(data, BLOCK)
            except zlib.error as error:
                raise _CutShortError(str(error)) from None
            if piece:
                yield piece
            data = decoder.unconsumed_tail
            if decoder.eof:  # members may follow one another; zero padding may follow the last
                data = decoder.unused_data.lstrip(b"\0")
                decoder = zlib.decompressobj(31)
                if data and not data.startswith(b"\x1f"):
                    raise _CutShortError("other data after its end")
                started = bool(data)
            else:
                started = True
    if started:
        raise _CutShortError("it ends early")


def _unzstd(blocks: Iterator[bytes]) -> Iterator[bytes]:
    import zstandard

    decoder = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(
        read_across_frames=True
    )
    try:
        for block in blocks:
            # A block of 64 KiB can hold a bomb of its own: feed it in small pieces.
            for start in range(0, len(block), 1024):
                yield decoder.decompress(block[start : start + 1024])
    except zstandard.ZstdError as error:
        raise _CutShortError(str(error)) from None


def _from_utf16(blocks: Iterator[bytes]) -> Iterator[bytes]:
    import codecs

    decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "replace")


def _limited(pieces: Iterator[bytes], name: str, packed: int | None) -> Iterator[bytes]:
    """The pieces, as long as they are plausible for `packed` bytes (None: unknown)."""
    limit, size = MAX_UNPACKED, 0
    if packed is not None:
        limit = min(limit, MAX_RATIO * packed, max(USUAL_RATIO * packed, MUCH))
        limit = max(limit, IN_MEMORY)
    for piece in pieces:
        size += len(piece)
        if size > limit:
            raise LogError(
                f"{name} unpacks to more than {limit >> 20} MiB, which no log should; "
                "unpack it yourself and give the plain file."
            )
        yield piece


def _shortened(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces without the middle of very long lines, so that endless zeros are not kept."""
    length, tail = (
        0,
        bytearray(),
    )  # of the line that is being read; its end so far, once it is too long
    try:
        for piece in pieces:
            first = piece.find(b"\n") + 1
            if length > LONG_LINE:
                tail += piece[:first] if first else piece
                if len(tail) > 16 * TAIL or first:
                    tail = tail[-TAIL:]
                if not first:
                    continue
                yield bytes(tail)
                tail = bytearray()
                yield piece[first:]
            else:
                yield piece
            length = len(piece) - piece.rfind(b"\n") - 1 if first else length + len(piece)
    except _CutShortError:
        yield bytes(tail[-TAIL:])
        raise
    yield bytes(tail[-TAIL:])


def _spool(pieces: Iterator[bytes], name: str, packed: int | None) -> tuple[Storage, str | None]:
    small_pieces: list[bytes] = []
    stream: IO[bytes] | None = None
    size, warning = 0, None
    try:
        for piece in _shortened(_limited(pieces, name, packed)):
            size += len(piece)
            if stream is None:
                small_pieces.append(piece)
                if size > IN_MEMORY:
                    stream = tempfile.TemporaryFile(prefix="schedmate-")  # noqa: SIM115 - storage
                    stream.writelines(small_pieces)
                    small_pieces.clear()
            else:
                stream.write(piece)
    except _CutShortError as error:
        warning = f"{name} is damaged ({error}); only what comes before that was read."
    except LogError:
        if stream is not None:
            stream.close()
        raise
    except OSError as error:
        if stream is not None:
            stream.close()
        raise LogError(f"cannot unpack {name}: {error.strerror or error}.") from None
    if stream is None:
        return Memory(b"".join(small_pieces)), warning
    stream.flush()
    return Unpacked(name, stream), warning
