"""What a language model is shown of a failed job: first failures and last activity of its ranks.

A few lines of each rank (the last step, the last collective or phase, the first events), the lines
around the located one and the end of the log, each once and named `FILE:LINE`, so that an answer
can cite it. The size is bounded for any log. Lines that address their reader or state a verdict are
withheld: they prove nothing, and a model may obey them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from schedmate.jobs import Diagnosis
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.locate import in_order
from schedmate.logparse.failure.meanwhile import activity
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.steering import steers
from schedmate.logparse.failure.wording import is_collective
from schedmate.logparse.reading import Line, LogFile
from schedmate.logparse.signs import last_sign, signs

RANKS = 16
"""Limit for the ranks shown."""
EVENTS = 3
"""Failures shown of each rank: its first ones."""
EVENT_LINES = 6
"""Limit for the lines of one failure: its first and last ones."""
REACH = 400
"""Lines searched above a rank's first failure for what the rank was doing."""
SILENT = 2
"""Last lines shown of a rank that reports nothing."""
ENDS = 12
"""Lines shown of the end of the log."""
LINE_CHARACTERS = 400
NAME_CHARACTERS = 120
CHARACTERS = 32_000
"""Limit for the text of all lines; activity of ranks comes before surrounding lines."""
WITHHELD = "[a line that addresses its reader is not shown]"


@dataclass
class Digest:
    """`text` is what a model is shown; `lines` are the lines that it may cite, by their names."""

    text: str = ""
    lines: dict[str, tuple[FileScan, Line]] = field(default_factory=dict)
    withheld: int = 0


def digest(found: Diagnosis, scans: Sequence[FileScan], window: int) -> Digest:
    """A bounded account of a failure that rules located; `window` is in lines."""
    writer = _Writer(scans)
    files = [f"file {n}: {_file_name(one)}" for n, one in enumerate(scans, 1)][:RANKS]
    writer.heading("\n".join(files))
    ranks = list(_ranks(found, scans))
    for rank in ranks[:RANKS]:
        writer.rank(rank)
    if len(ranks) > RANKS:
        writer.heading(f"\n{len(ranks) - RANKS} further ranks are not shown.")
    at = next((one for one in scans if one.file.name == found.file), scans[0])
    last = at.attempt.last_line
    if found.line is not None:
        writer.heading(f"\naround the located line, {writer.name(at, found.line)}:")
        writer.around(at, found.line, window)
        writer.heading("\nend of the log:")
        writer.show(at, at.file.lines(max(at.attempt.first_line, last - ENDS + 1), last))
    else:
        writer.heading("\nthe last lines of the log:")
        writer.around(at, max(at.attempt.first_line, last - window // 2 + 1), window)
    return writer.result()


def _ranks(found: Diagnosis, scans: Sequence[FileScan]) -> Iterator[int | None]:
    """Ranks in the order of interest: missing ones, those that report failures, silent ones."""
    events = in_order([event for one in scans for event in one.events])
    silent = [one.file.rank for one in scans]
    ranks: Iterable[int | None] = [*found.missing_ranks, *(one.rank for one in events), *silent]
    return iter(dict.fromkeys(ranks))


class _Writer:
    def __init__(self, scans: Sequence[FileScan]) -> None:
        self.scans = scans
        self.parts: list[str] = []
        self.left = CHARACTERS
        self.digest = Digest()
        self.seen: set[tuple[int, int]] = set()

    def result(self) -> Digest:
        self.digest.text = "\n".join(self.parts).strip()
        return self.digest

    def heading(self, text: str) -> None:
        self.parts.append(text)

    def name(self, one: FileScan, number: int) -> str:
        return f"{self.scans.index(one) + 1}:{number}"

    def show(self, one: FileScan, lines: Iterable[Line], label: str = "") -> None:
        """Add lines that were not shown yet, up to the limit."""
        for line in lines:
            key = self.scans.index(one), line.number
            text = line.text[:LINE_CHARACTERS]
            if key in self.seen or not text.strip() or self.left < len(text):
                continue
            self.seen.add(key)
            if steers(line.text):
                self.digest.withheld += 1
                text = WITHHELD
            else:
                self.digest.lines[self.name(one, line.number)] = one, line
            self.left -= len(text) + 8
            self.parts.append(f"{label}{self.name(one, line.number)}| {text}")

    def rank(self, rank: int | None) -> None:
        """What one rank was doing, and its first failures."""
        self.heading("\nlines that name no rank:" if rank is None else f"\nrank {rank}:")
        for one in self.scans:
            own = [event for event in one.events if event.rank == rank]
            if not own and (one.file.rank != rank or rank is None):
                continue
            for label, line in _doing(one, rank, own[0].number if own else None):
                self.show(one, [line], f"{label}: ")
            for event in own[:EVENTS]:
                self.show(one, _shortened(event))
            if len(own) > EVENTS:
                self.heading(f"({len(own) - EVENTS} further failures)")

    def around(self, one: FileScan, number: int, window: int) -> None:
        """The lines around one, from the middle outwards as far as there is room."""
        first = max(one.attempt.first_line, number - window // 2)
        lines = list(one.file.lines(first, number + max(0, window // 2 - 1)))
        room = self.left - ENDS * 100
        nearest = sorted(lines, key=lambda line: (abs(line.number - number), line.number))
        kept = set()
        for line in nearest:
            room -= min(len(line.text), LINE_CHARACTERS) + 8
            if room < 0:
                break
            kept.add(line.number)
        self.show(one, (line for line in lines if line.number in kept))


def _doing(one: FileScan, rank: int | None, before: int | None) -> Iterator[tuple[str, Line]]:
    """The last step, and the last collective or phase, of a rank before a line of its file."""
    attempt = one.attempt
    last = attempt.last_line if before is None else before - 1
    first = max(attempt.first_line, last - REACH)
    lines = [line for line in one.file.lines(first, last) if _of(line, one.file, rank)]
    step = next((line for line in reversed(lines) if _is_step(line)), None)
    if step is None:
        end = one.file.line_offset(first)
        sign = last_sign("progress", one.file, attempt.offset, end) if first > 1 else None
        number = one.file.line_number(sign.offset + 1) if sign is not None else None
        step = next(one.file.lines(number, number), None) if number is not None else None
    if step is not None:
        yield "last step", step
    work = [line for line in lines if is_collective(line.text) or activity(line.text) is not None]
    if work:
        yield "last collective or phase", work[-1]
    if before is None:
        for line in lines[-SILENT:]:
            yield "last line", line


def _of(line: Line, file: LogFile, rank: int | None) -> bool:
    """Whether a line belongs to a rank, which lines of a shared file without a rank may."""
    return (line.rank if line.rank is not None else file.rank) in (rank, None)


def _is_step(line: Line) -> bool:
    return signs("progress").sign(line.text.encode("utf-8", "replace")) is not None


def _shortened(event: Event) -> list[Line]:
    lines = [line for line in event.lines if line.text.strip()]
    if len(lines) <= EVENT_LINES:
        return lines
    known = [line for line in lines if line.number == event.known_at]
    half = EVENT_LINES // 2
    ends = [*lines[: half - 1], *lines[-half:]]
    return sorted({line.number: line for line in [*ends, *known]}.values(), key=lambda one: one[0])


def _file_name(one: FileScan) -> str:
    return WITHHELD if steers(one.file.name) else one.file.name[-NAME_CHARACTERS:]
