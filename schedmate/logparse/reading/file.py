"""One log file: chunks of whole lines forwards and backwards, line numbers, lines by number.

Lines end with a line feed and count from 1. A carriage return does not end a line: a progress bar
that redraws itself is one line with many refreshes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.logparse.reading.lines import Line, parse_line, sniff
from schedmate.logparse.reading.prefixes import Layout
from schedmate.logparse.reading.storage import BLOCK, LONG_LINE, TAIL, Storage

HEAD = 1 << 16
"""Bytes kept at the beginning of a line longer than `LONG_LINE`."""
SAMPLE = 1 << 16
"""Bytes at either end of the file from which its layout is recognised."""


class Chunk(NamedTuple):
    """Whole lines of a file, the last one possibly without its line feed.

    `offset` and `size` [bytes] are their position; `len(data)` is less than `size` if a very long
    line was shortened. `first_line` is the 1-based number of the first line.
    """

    offset: int
    size: int
    first_line: int
    data: bytes

    def offset_of(self, index: int) -> int:
        """The byte of the file that `data[index]` is."""
        return self.offset + index + (self.size - len(self.data) if index >= HEAD else 0)


class Piece(NamedTuple):
    """The text between two line ends or redraws; `offset` [bytes] is where it starts."""

    offset: int
    data: bytes


@dataclass
class LogFile:
    """A log that is read in place, in bounded memory whatever its size.

    `rank` and `node` are those in the file's name, or None. A file may be closed at any time and is
    opened again by the next read. Every read raises `LogError` if the file has become unreadable.
    """

    name: str
    storage: Storage
    path: Path | None = None
    rank: int | None = None
    node: str | None = None
    _ends: list[int] = field(default_factory=lambda: [0], repr=False)  # before each block

    @property
    def size(self) -> int:
        """Size [bytes] when the log was opened; what is appended later is not read."""
        return self.storage.size

    def close(self) -> None:
        """Close the file descriptor."""
        self.storage.close()

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`, never past `self.size`."""
        return self.storage.read(offset, max(0, min(size, self.size - offset)))

    @cached_property
    def layout(self) -> Layout:
        """The prefixes by which lines state their rank, recognised at both ends of the file."""
        tail = max(SAMPLE, self.size - SAMPLE)
        return sniff(self.read(0, SAMPLE) + b"\n" + self.read(tail, SAMPLE))

    def chunks(
        self, start: int = 0, end: int | None = None, *, block: int = BLOCK
    ) -> Iterator[Chunk]:
        """Whole lines from byte `start` to before byte `end`, both the first byte of a line."""
        end = self.size if end is None else min(end, self.size)
        line = self.line_number(start)
        first, held, held_size = start, b"", 0
        position = start
        while position < end:
            data = self.read(position, min(block, end - position))
            if not data:  # the file has shrunk since it was opened
                break
            position += len(data)
            cut = data.rfind(b"\n") + 1
            if not cut:
                held, held_size = held + data, held_size + len(data)
                if len(held) > LONG_LINE:
                    held = held[:HEAD] + held[-TAIL:]
                continue
            chunk = Chunk(first, held_size + cut, line, held + data[:cut])
            yield chunk
            line += chunk.data.count(b"\n")
            first += chunk.size
            held, held_size = data[cut:], len(data) - cut
        if held:
            yield Chunk(first, held_size, line, held)

    def pieces_reversed(self, *, block: int = 1 << 16) -> Iterator[Piece]:
        """Non-empty pieces from the end of the file to its beginning.

        A piece ends with a line or where a progress bar redraws itself (carriage return or
        backspaces), so that the latest refresh comes first.
        """
        for start, data in self._reversed(block):
            offset = start + len(data)
            for part in reversed(data.split(b"\n")):
                offset -= len(part)
                if part:
                    yield Piece(offset, part)
                offset -= 1

    def matching_reversed(self, pattern: Any, *, block: int = 1 << 16) -> Iterator[Piece]:
        """The pieces that an RE2 pattern matches, in the order of `pieces_reversed`.

        Regions without a match are skipped at half a gigabyte a second.
        """
        for start, data in self._reversed(block):
            upto = len(data)
            for hit in reversed([match.start() for match in pattern.finditer(data)]):
                if hit < upto:
                    upto = data.rfind(b"\n", 0, hit) + 1
                    end = data.find(b"\n", hit)
                    yield Piece(start + upto, data[upto : end if end >= 0 else None])

    def _reversed(self, block: int) -> Iterator[tuple[int, bytes]]:
        """Offset and content of whole pieces, ends of all kinds made line feeds, from the end."""
        position, held = self.size, b""
        while position > 0:
            start = max(0, position - block)
            data = (self.read(start, position - start) + held).translate(_ENDS)
            first = data.find(b"\n") if start else -1
            if start and first < 0:
                held = data[:TAIL]
            else:
                held = data[:first][:TAIL] if start else b""
                yield start + first + 1, data[first + 1 :]
            position, block = start, min(2 * block, BLOCK)

    def align(self, offset: int, within: int | None = None) -> int:
        """The first byte of the line that contains byte `offset`.

        `offset` itself if that is more than about `within` [bytes] away: in a log without line
        feeds every search for one would read everything before.
        """
        end = min(offset, self.size)
        step = 1 << 12
        while end > 0:
            if within is not None and offset - end > within:
                return offset
            start = max(0, end - step)
            found = self.read(start, end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end, step = start, min(2 * step, BLOCK)
        return 0

    def line_number(self, offset: int) -> int:
        """The 1-based number of the line that contains byte `offset`."""
        offset = min(offset, self.size)
        self._count_to(offset // BLOCK)
        base = offset // BLOCK * BLOCK
        return self._ends[offset // BLOCK] + self.read(base, offset - base).count(b"\n") + 1

    def line_count(self) -> int:
        """The number of lines, an unfinished last one included."""
        if not self.size:
            return 0
        return self.line_number(self.size) - (self.read(self.size - 1, 1) == b"\n")

    def line_offset(self, number: int) -> int:
        """The first byte of line `number`; the size of the file for a line beyond its end."""
        before = max(0, number - 1)
        while self._ends[-1] < before and (len(self._ends) - 1) * BLOCK < self.size:
            self._count_to(len(self._ends))
        at = max(0, bisect_left(self._ends, before) - 1)
        missing = before - self._ends[at]
        data = self.read(at * BLOCK, BLOCK)
        parts = data.split(b"\n", missing)
        if len(parts) <= missing:
            return self.size
        return at * BLOCK + len(data) - len(parts[-1])

    def lines(self, first: int = 1, last: int | None = None) -> Iterator[Line]:
        """Lines `first` to `last` (1-based, inclusive), parsed; without `last` to the end."""
        number = max(1, first)
        block = BLOCK if last is None else 1 << 17
        for chunk in self.chunks(self.line_offset(number), block=block):
            for raw in chunk.data.removesuffix(b"\n").split(b"\n"):
                if last is not None and number > last:
                    return
                yield parse_line(raw, number, self.layout)
                number += 1

    def _count_to(self, block: int) -> None:
        while len(self._ends) <= block:
            data = self.read((len(self._ends) - 1) * BLOCK, BLOCK)
            self._ends.append(self._ends[-1] + data.count(b"\n"))


_ENDS = bytes.maketrans(b"\r\b", b"\n\n")
