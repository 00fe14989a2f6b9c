"""What a user calls a log: a file, standard input, or a directory with a file per rank."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from schedmate.logparse.reading.file import LogFile
from schedmate.logparse.reading.inside import Folder, LogError
from schedmate.logparse.reading.prefixes import Origin, origin_of_file
from schedmate.logparse.reading.storage import store, store_stream
from schedmate.logparse.reading.trackers import of_tracker
from schedmate.plain import LONGEST_S
from schedmate.terminal import clean, counted

MAX_FILES = 20_000
"""Limit for the files of one directory that are read as one job's log."""
MAX_ERROR_FILE = 1 << 24
"""Size of the largest error.json that is read [bytes]."""
SAMPLE = 1 << 13
"""Bytes from which a file is recognised as text."""
BINARY = 0.1
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
        found = folder.files()
        log = open_files(str(path), found.paths, folder)
        log.warnings += found.notes
        return log
    else:
        storage, warning = store(Path(path))
        file = LogFile(str(path), storage, Path(path))
    if reason := _why_none(file):
        file.close()
        raise _no_log(file.name, warning or reason)
    return Log(file.name, [file], warnings=[warning] if warning else [])


def _why_none(file: LogFile) -> str:
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
    sample = file.read(0, SAMPLE).replace(b"\0", b"")
    if not sample:
        # NULs only: perhaps the log begins after them
        sample = file.read(max(0, file.size - SAMPLE), SAMPLE).replace(b"\0", b"")
    if not sample:
        return False
    control = sum(map(sample.count, _CONTROL))
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 4:  # not just cut in the middle of a character
            control += sum(map(sample.count, _CONTROL_LATIN))
    return control <= BINARY * len(sample)


_CONTROL = [bytes([code]) for code in range(32) if code not in b"\t\n\r\f\b\x1b\x07"] + [b"\x7f"]
_CONTROL_LATIN = [bytes([code]) for code in range(0x80, 0xA0)]


def open_files(name: str, paths: Iterable[Path], folder: Folder) -> Log:
    """The log of one job whose files are in a directory; nothing outside of it is read.

    Raises `LogError` if none of them can be read as text.
    """
    root, paths = folder.root, list(paths)
    log = Log(name, [])
    found: list[tuple[Origin, LogFile]] = []
    skipped = 0
    for path in paths:
        if of_tracker(path):
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
        if reason := _why_none(file):
            skipped += bool(file.size)
            file.close()
            if name == str(path):
                raise _no_log(name, warning or reason)
            continue
        file.close()
        found.append((origin, file))
        log.warnings += [warning] if warning else []
        if len(found) > MAX_FILES:
            raise LogError(
                f"{root} holds more than {MAX_FILES:,} files; give the directory of one job."
            )
    found.sort(key=lambda pair: (pair[0].rank is None, pair[0].rank or 0, pair[1].name))
    log.files = [file for _, file in found]
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
        time = float(extra.get("timestamp"))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        time = None
    if time is not None and not abs(time) <= LONGEST_S:
        time = None
    trace = extra.get("py_callstack") or extra.get("traceback") or ""
    return ErrorFile(
        path, origin_of_file(path, folder.root).rank, clean(text), time, str(trace), folder
    )
