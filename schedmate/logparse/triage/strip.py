"""An overview of a log: the content of each section, and where the failure is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from schedmate.jobs import Diagnosis
from schedmate.logparse.classify import LineKinds
from schedmate.logparse.reading import Log

CELLS = 120
SAMPLE = 1 << 16
"""Bytes examined at the beginning of a section."""


@dataclass(frozen=True)
class Cell:
    """A section: its category (of `schedmate.logparse.classify`) and its first line, 1-based."""

    kind: str
    line: int


@dataclass(frozen=True)
class Strip:
    """The sections of one file, about equal in bytes; `located` is that of the failure."""

    file: str
    cells: tuple[Cell, ...]
    located: int | None


def strip(log: Log, diagnosis: Diagnosis) -> Strip | None:
    """The file of the diagnosis in at most `CELLS` sections; None if it is empty."""
    files = [file for file in log.files if file.name == diagnosis.file] or log.files
    if not files or not files[0].size:
        return None
    file, kinds = files[0], LineKinds()
    starts = sorted(
        {file.align(file.size * cell // CELLS, file.size // CELLS) for cell in range(CELLS)}
    )
    ends = [*starts[1:], file.size]
    cells = [
        Cell(_kind(kinds, file.read(start, min(SAMPLE, end - start))), file.line_number(start))
        for start, end in zip(starts, ends, strict=True)
    ]
    located = None
    if diagnosis.line is not None and files[0].name == diagnosis.file:
        at = file.line_offset(diagnosis.line)
        located = max(i for i, start in enumerate(starts) if start <= at)
    file.close()
    return Strip(file.name, tuple(cells), located)


def categories(lines: Iterable[str]) -> list[str]:
    """The category of each line (of `schedmate.logparse.classify`), by rule alone."""
    kinds = LineKinds()
    return [kinds.of(line.encode(errors="replace") + b"\n")[0] for line in lines]


def _kind(kinds: LineKinds, data: bytes) -> str:
    """The category of a section: `error` if any line is one, else that of most of its lines."""
    counts = Counter(kinds.of(data))
    if counts["error"]:
        return "error"
    del counts["other"]
    return counts.most_common(1)[0][0] if counts else "other"
