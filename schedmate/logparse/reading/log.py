"""Opens, reads and follows what a user calls a log: a file, standard input, or a directory of
ranks.

`open_log` gives a `Log`, whose `LogFile`s are read in place: chunks of whole lines forwards and
backwards, line numbers, lines by number. Lines end with a line feed and count from 1. A carriage
return does not end a line: a progress bar that redraws itself is one line with many refreshes.
`follow` reads a log that is being written, like `tail -F`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from schedmate.base.errors import InputError
from schedmate.base.reading import open_descriptor
from schedmate.base.terminal import clean, counted
from schedmate.logparse.numbers import bounded_time
from schedmate.logparse.reading.folder import Folder, LogError, is_of_tracker, too_many_files
from schedmate.logparse.reading.lines import (
    Layout,
    Line,
    Origin,
    origin_of_file,
    parse_line,
    sniff_layout,
)
from schedmate.logparse.reading.storage import BLOCK, LONG_LINE, TAIL, Storage, store, store_stream

HEAD = 1 << 16
"""Bytes kept at the beginning of a line longer than `LONG_LINE`."""
STRIDE = 1 << 15
"""Bytes between two places of a file up to which its line feeds are counted once."""
LAYOUT_SAMPLE = 1 << 16
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
    _ends: list[int] = field(default_factory=lambda: [0], repr=False)  # before each `STRIDE`

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
        tail = max(LAYOUT_SAMPLE, self.size - LAYOUT_SAMPLE)
        return sniff_layout(self.read(0, LAYOUT_SAMPLE) + b"\n" + self.read(tail, LAYOUT_SAMPLE))

    def chunks(
        self, start: int = 0, end: int | None = None, *, block: int = BLOCK
    ) -> Iterator[Chunk]:
        """Whole lines from byte `start` to before byte `end`, both the first byte of a line."""
        end = self.size if end is None else min(end, self.size)
        line = self.line_number(start)
        first, unfinished, unfinished_size = start, b"", 0
        position = start
        while position < end:
            data = self.read(position, min(block, end - position))
            if not data:  # the file has shrunk since it was opened
                break
            position += len(data)
            cut = data.rfind(b"\n") + 1
            if not cut:
                unfinished, unfinished_size = unfinished + data, unfinished_size + len(data)
                if len(unfinished) > LONG_LINE:
                    unfinished = unfinished[:HEAD] + unfinished[-TAIL:]
                continue
            chunk = Chunk(first, unfinished_size + cut, line, unfinished + data[:cut])
            yield chunk
            if position >= end and cut == len(data):
                return
            line += chunk.data.count(b"\n")
            first += chunk.size
            unfinished, unfinished_size = data[cut:], len(data) - cut
        if unfinished:
            yield Chunk(first, unfinished_size, line, unfinished)

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

    def matching_reversed(self, pattern: Any, *, block: int = 1 << 13) -> Iterator[Piece]:
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
        position, unfinished = self.size, b""
        while position > 0:
            start = max(0, position - block)
            data = (self.read(start, position - start) + unfinished).translate(_LINE_ENDS)
            first = data.find(b"\n") if start else -1
            if start and first < 0:
                unfinished = data[:TAIL]
            else:
                unfinished = data[:first][:TAIL] if start else b""
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
            line_feed = self.read(start, end - start).rfind(b"\n")
            if line_feed >= 0:
                return start + line_feed + 1
            end, step = start, min(2 * step, BLOCK)
        return 0

    def line_number(self, offset: int) -> int:
        """The 1-based number of the line that contains byte `offset`."""
        offset = min(offset, self.size)
        at = offset // STRIDE
        self._count_to(at)
        return self._ends[at] + self.read(at * STRIDE, offset - at * STRIDE).count(b"\n") + 1

    def line_count(self) -> int:
        """The number of lines, an unfinished last one included."""
        if not self.size:
            return 0
        return self.line_number(self.size) - (self.read(self.size - 1, 1) == b"\n")

    def line_offset(self, number: int) -> int:
        """The first byte of line `number`; the size of the file for a line beyond its end."""
        before = max(0, number - 1)
        while self._ends[-1] < before and (len(self._ends) - 1) * STRIDE < self.size:
            self._count_to(len(self._ends))
        at = max(0, bisect_left(self._ends, before) - 1)
        missing = before - self._ends[at]
        data = self.read(at * STRIDE, STRIDE)
        parts = data.split(b"\n", missing)
        if len(parts) <= missing:
            return self.size
        return at * STRIDE + len(data) - len(parts[-1])

    def lines(self, first: int = 1, last: int | None = None) -> Iterator[Line]:
        """Lines `first` to `last` (1-based, inclusive), parsed; without `last` to the end."""
        number = max(1, first)
        if last is not None and last < number:
            return
        end = None if last is None else self.line_offset(last + 1)
        for chunk in self.chunks(self.line_offset(number), end):
            for raw in chunk.data.removesuffix(b"\n").split(b"\n"):
                yield parse_line(raw, number, self.layout)
                number += 1

    def _count_to(self, stride: int) -> None:
        while len(self._ends) <= stride:
            data = self.read((len(self._ends) - 1) * STRIDE, STRIDE)
            self._ends.append(self._ends[-1] + data.count(b"\n"))


_LINE_ENDS = bytes.maketrans(b"\r\b", b"\n\n")


# What a user calls a log: a file, standard input, or a directory with a file per rank.


MAX_FILES = 20_000
"""Limit for the files of one directory that are read as one job's log."""
MAX_ERROR_FILE = 1 << 24
"""Size of the largest error.json that is read [bytes]."""
TEXT_SAMPLE = 1 << 13
"""Bytes from which a file is recognised as text."""
BINARY_SHARE = 0.1
"""Share of control characters from which a file is not text."""


@dataclass(frozen=True)
class ErrorFile:
    """The record that torchelastic's `@record` wrote when a worker's Python code failed.

    `time` [s since epoch]. `traceback` is the worker's, as text.
    """

    path: Path
    rank: int | None
    message: str
    time: float | None
    traceback: str
    folder: Folder | None = None
    """The directory outside of which it must not be read."""


@dataclass
class Log:
    """All files of one job, the lowest rank first."""

    name: str
    files: list[LogFile]
    error_files: list[ErrorFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.close()

    @property
    def size(self) -> int:
        """Size of all files together, unpacked [bytes]."""
        return sum(file.size for file in self.files)


def open_log(path: Path | str, *, follow_links: bool = False) -> Log:
    """The log at `path`: plain or compressed file, directory, or `-` for standard input.

    Links out of a directory are left out, with a warning, unless `follow_links`. Raises `LogError`
    if nothing can be read as text.
    """
    if not str(path):  # an unset variable in quotes, which as a path is the working directory
        raise LogError("the log's name is empty; give the file that the job's output goes to.")
    if str(path) == "-":
        storage, warning = store_stream(sys.stdin.buffer, "standard input")
        file = LogFile("standard input", storage)
    elif is_directory(Path(path)):
        folder = Folder(Path(path), follow_links)
        listing = folder.files(MAX_FILES)
        log = open_files(str(path), listing.paths, folder)
        log.warnings += listing.notes
        return log
    else:
        storage, warning = store(Path(path))
        file = LogFile(str(path), storage, Path(path))
    if reason := _why_unreadable(file):
        file.close()
        raise _no_log(file.name, warning or reason)
    return Log(file.name, [file], warnings=[warning] if warning else [])


def _why_unreadable(file: LogFile) -> str:
    return "it is empty" if not file.size else "" if is_text(file) else "it is not text"


def _no_log(name: str, reason: str) -> LogError:
    return LogError(
        f"{name} cannot be read as a log: {reason}; give the file that the job's output goes to."
    )


def is_directory(path: Path) -> bool:
    """Whether it is a directory; False also if the path to it is not accessible."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_text(file: LogFile) -> bool:
    """Whether the beginning of a file is text in UTF-8 or Latin-1.

    NULs are allowed: a log that was truncated while being written begins with them.
    """
    sample = file.read(0, TEXT_SAMPLE).replace(b"\0", b"")
    if not sample:
        # NULs only: perhaps the log begins after them
        sample = file.read(max(0, file.size - TEXT_SAMPLE), TEXT_SAMPLE).replace(b"\0", b"")
    if not sample:
        return False
    control = sum(map(sample.count, _CONTROL))
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 4:  # not just cut in the middle of a character
            control += sum(map(sample.count, _CONTROL_LATIN))
    return control <= BINARY_SHARE * len(sample)


_CONTROL = [bytes([code]) for code in range(32) if code not in b"\t\n\r\f\b\x1b\x07"] + [b"\x7f"]
_CONTROL_LATIN = [bytes([code]) for code in range(0x80, 0xA0)]


def open_files(name: str, paths: Iterable[Path], folder: Folder) -> Log:
    """The log of one job whose files are in a directory; nothing outside of it is read.

    Raises `LogError` if none of them can be read as text.
    """
    root, paths = folder.root, list(paths)
    log = Log(name, [])
    readable: list[tuple[Origin, LogFile]] = []
    skipped = 0
    for path in paths:
        if is_of_tracker(path):
            continue
        if path.name == "error.json" and (error := _read_error_file(path, folder)) is not None:
            log.error_files.append(error)
            continue
        try:
            storage, warning = store(path, folder)
        except LogError as error:
            log.warnings.append(str(error))
            continue
        origin = origin_of_file(path, root)
        file = LogFile(str(path), storage, path, origin.rank, origin.node)
        if reason := _why_unreadable(file):
            skipped += bool(file.size)
            file.close()
            if name == str(path):
                raise _no_log(name, warning or reason)
            continue
        file.close()
        readable.append((origin, file))
        log.warnings += [warning] if warning else []
        if len(readable) > MAX_FILES:
            raise too_many_files(root, MAX_FILES)
    readable.sort(key=lambda pair: (pair[0].rank is None, pair[0].rank or 0, pair[1].name))
    log.files = [file for _, file in readable]
    if skipped:
        was = "is not text and was" if skipped == 1 else "are not text and were"
        log.warnings.append(f"{counted(skipped, 'file')} of {root} {was} left out.")
    if not log.files and not log.error_files:
        if log.warnings and name == str(paths[0]):
            raise LogError(log.warnings[0])
        why = f" First: {log.warnings[0]}" if log.warnings else ""
        raise LogError(
            f"{name} holds no log; give a directory with the text files of one job.{why}"
        )
    return log


def _read_error_file(path: Path, folder: Folder) -> ErrorFile | None:
    """The content of an error.json in the form of torch.distributed.elastic, else None."""
    try:
        with os.fdopen(folder.open(path), "rb") as stream:
            data = stream.read(MAX_ERROR_FILE + 1)
        if len(data) > MAX_ERROR_FILE:
            return None
        content: Any = json.loads(data)
    except (LogError, OSError, ValueError, RecursionError):
        return None
    message = content.get("message") if isinstance(content, dict) else None
    extra: Any = message.get("extraInfo", {}) if isinstance(message, dict) else {}
    if message is None or not isinstance(extra, dict):
        return None
    text = message.get("message") if isinstance(message, dict) else message
    try:
        time = bounded_time(float(extra.get("timestamp")))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        time = None
    trace = extra.get("py_callstack") or extra.get("traceback") or ""
    return ErrorFile(
        path, origin_of_file(path, folder.root).rank, clean(text), time, str(trace), folder
    )


# Following a log that is being written, through rotation and truncation, like `tail -F`.


POLL_S = 0.5
"""Time between two checks of a file that has not grown [s]."""
MAX_UNFINISHED = 1 << 20
"""A longer unfinished line is returned unfinished [bytes]."""


def follow(
    path: Path,
    *,
    start: int = 0,
    poll_s: float = POLL_S,
    wait: Callable[[float], bool] | None = None,
) -> Iterator[bytes]:
    """Whole new lines of the file, several at a time, from byte `start` on, as they are written.

    Empty bytes mean that nothing was written for `poll_s` [s], so that a caller can show that it is
    alive. A truncated file is read from its new beginning; a renamed or deleted one is read to its
    end, then the one that takes its name. `wait(seconds)` sleeps and returns whether to continue
    (default: always). Raises `LogError` if the file does not exist at first.
    """
    wait_more = wait or _sleep
    unfinished = b""
    try:
        stream = _opened(path)
    except OSError as error:
        raise LogError(
            f"cannot follow {path}: {error.strerror}; give the file that the job writes to."
        ) from None
    try:
        stream.seek(start)
        while True:
            if os.fstat(stream.fileno()).st_size < stream.tell():
                stream.seek(0)
                unfinished = b""
            block = stream.read(BLOCK) or b""
            cut = block.rfind(b"\n") + 1
            if cut or len(unfinished) + len(block) > MAX_UNFINISHED:
                cut = cut or len(block)
                yield unfinished + block[:cut]
                unfinished = block[cut:]
                continue
            unfinished += block
            if block:
                continue
            fresh = _replacement(path, stream.fileno())
            if fresh is not None:
                if unfinished:
                    yield unfinished + b"\n"
                unfinished = b""
                stream.close()
                stream = fresh
                continue
            yield b""
            if not wait_more(poll_s):
                return
    finally:
        stream.close()


def _opened(path: Path) -> FileIO:
    return FileIO(open_descriptor(path), "rb")


def _replacement(path: Path, descriptor: int) -> FileIO | None:
    """The file that has replaced the one being read, opened; None if it is still the same."""
    try:
        now, then = path.stat(), os.fstat(descriptor)
        if (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino):
            return None
        return _opened(path)
    except (OSError, InputError):  # renamed and not yet made anew: look again
        return None


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True
