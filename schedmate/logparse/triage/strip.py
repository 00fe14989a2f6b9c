"""A log at a glance: what each stretch of it holds, and where the failure is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from schedmate.jobs import Diagnosis
from schedmate.logparse.classify import LineKinds
from schedmate.logparse.reading import Log

CELLS = 120
SAMPLE = 1 << 16
"""Bytes of a stretch that are looked at; of a longer one its beginning."""


@dataclass(frozen=True)
class Cell:
    """One stretch: its category (of `schedmate.logparse.classify`) and its first line, 1-based."""

    kind: str
    line: int


@dataclass(frozen=True)
class Strip:
    """The stretches of one file, about equal in bytes; `located` is that of the failure."""

    file: str
    cells: tuple[Cell, ...]
    located: int | None


def strip(log: Log, found: Diagnosis) -> Strip | None:
    """The file that the diagnosis is about, in at most `CELLS` stretches; None if it is empty."""
    files = [file for file in log.files if file.name == found.file] or log.files
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
    if found.line is not None and files[0].name == found.file:
        at = file.line_offset(found.line)
        located = max(i for i, start in enumerate(starts) if start <= at)
    file.close()
    return Strip(file.name, tuple(cells), located)


def categories(lines: Iterable[str]) -> list[str]:
    """The category of each line (of `schedmate.logparse.classify`), by rule alone."""
    kinds = LineKinds()
    return [kinds.of(line.encode(errors="replace") + b"\n")[0] for line in lines]


def _kind(kinds: LineKinds, data: bytes) -> str:
    """What a stretch holds: `error` where any line says one, else what most of its lines are."""
    counts = Counter(kinds.of(data))
    if counts["error"]:
        return "error"
    del counts["other"]
    return counts.most_common(1)[0][0] if counts else "other"
