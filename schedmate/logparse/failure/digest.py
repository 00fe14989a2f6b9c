"""Digests a failed job for a language model: first failures and last activity of its ranks.

A few lines of each rank (the last step, the last collective or phase, the first events), the lines
around the located one and the end of the log, each once and named `FILE:LINE`, so that an answer
can cite it. The size is bounded for any log. Lines that address their reader or state a verdict
(`steering.yaml`) are withheld: they prove nothing, and a model may obey them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from schedmate.base.data import load
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure.locate import activity_named_in, in_order
from schedmate.logparse.failure.rules import is_collective
from schedmate.logparse.failure.scan import Event, FileScan
from schedmate.logparse.reading import Line, LogFile
from schedmate.logparse.signs import last_sign, signs

RANKS_SHOWN = 16
"""Limit for the ranks shown."""
EVENTS_SHOWN = 3
"""Failures shown of each rank: its first ones."""
EVENT_LINES = 6
"""Limit for the lines of one failure: its first and last ones."""
LINES_ABOVE = 400
"""Lines searched above a rank's first failure for what the rank was doing."""
SILENT_LINES = 2
"""Last lines shown of a rank that reports nothing."""
END_LINES = 12
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


def digest(diagnosis: Diagnosis, scans: Sequence[FileScan], window: int) -> Digest:
    """A bounded account of a failure that rules located; `window` is in lines."""
    writer = _Writer(scans)
    files = [f"file {n}: {_file_name(scan)}" for n, scan in enumerate(scans, 1)][:RANKS_SHOWN]
    writer.heading("\n".join(files))
    ranks = list(_ranks(diagnosis, scans))
    for rank in ranks[:RANKS_SHOWN]:
        writer.rank(rank)
    if len(ranks) > RANKS_SHOWN:
        writer.heading(f"\n{len(ranks) - RANKS_SHOWN} further ranks are not shown.")
    at = next((scan for scan in scans if scan.file.name == diagnosis.file), scans[0])
    last = at.attempt.last_line
    if diagnosis.line is not None:
        writer.heading(f"\naround the located line, {writer.name(at, diagnosis.line)}:")
        writer.around(at, diagnosis.line, window)
        writer.heading("\nend of the log:")
        writer.show(at, at.file.lines(max(at.attempt.first_line, last - END_LINES + 1), last))
    else:
        writer.heading("\nthe last lines of the log:")
        writer.around(at, max(at.attempt.first_line, last - window // 2 + 1), window)
    return writer.result()


def _ranks(diagnosis: Diagnosis, scans: Sequence[FileScan]) -> Iterator[int | None]:
    """Ranks in the order of interest: missing ones, those that report failures, silent ones."""
    events = in_order([event for scan in scans for event in scan.events])
    silent = [scan.file.rank for scan in scans]
    ranks: Iterable[int | None] = [
        *diagnosis.missing_ranks,
        *(event.rank for event in events),
        *silent,
    ]
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

    def name(self, scan: FileScan, number: int) -> str:
        return f"{self.scans.index(scan) + 1}:{number}"

    def show(self, scan: FileScan, lines: Iterable[Line], label: str = "") -> None:
        """Add lines that were not shown yet, up to the limit."""
        for line in lines:
            key = self.scans.index(scan), line.number
            text = line.text[:LINE_CHARACTERS]
            if key in self.seen or not text.strip() or self.left < len(text):
                continue
            self.seen.add(key)
            if steers(line.text):
                self.digest.withheld += 1
                text = WITHHELD
            else:
                self.digest.lines[self.name(scan, line.number)] = scan, line
            self.left -= len(text) + 8
            self.parts.append(f"{label}{self.name(scan, line.number)}| {text}")

    def rank(self, rank: int | None) -> None:
        """Add the last activity of one rank and its first failures."""
        self.heading("\nlines that name no rank:" if rank is None else f"\nrank {rank}:")
        for scan in self.scans:
            own = [event for event in scan.events if event.rank == rank]
            if not own and (scan.file.rank != rank or rank is None):
                continue
            for label, line in _last_activity(scan, rank, own[0].number if own else None):
                self.show(scan, [line], f"{label}: ")
            for event in own[:EVENTS_SHOWN]:
                self.show(scan, _shortened_report(event))
            if len(own) > EVENTS_SHOWN:
                self.heading(f"({len(own) - EVENTS_SHOWN} further failures)")

    def around(self, scan: FileScan, number: int, window: int) -> None:
        """The lines around one, from the middle outwards as far as there is room."""
        first = max(scan.attempt.first_line, number - window // 2)
        lines = list(scan.file.lines(first, number + max(0, window // 2 - 1)))
        room = self.left - END_LINES * 100
        nearest = sorted(lines, key=lambda line: (abs(line.number - number), line.number))
        fitting = set()
        for line in nearest:
            room -= min(len(line.text), LINE_CHARACTERS) + 8
            if room < 0:
                break
            fitting.add(line.number)
        self.show(scan, (line for line in lines if line.number in fitting))


def _last_activity(
    scan: FileScan, rank: int | None, before: int | None
) -> Iterator[tuple[str, Line]]:
    """The last step, and the last collective or phase, of a rank before a line of its file."""
    attempt = scan.attempt
    last = attempt.last_line if before is None else before - 1
    first = max(attempt.first_line, last - LINES_ABOVE)
    lines = [line for line in scan.file.lines(first, last) if _belongs_to(line, scan.file, rank)]
    step = next((line for line in reversed(lines) if _is_step(line)), None)
    if step is None:
        end = scan.file.line_offset(first)
        sign = last_sign("progress", scan.file, attempt.offset, end) if first > 1 else None
        number = scan.file.line_number(sign.offset + 1) if sign is not None else None
        step = next(scan.file.lines(number, number), None) if number is not None else None
    if step is not None:
        yield "last step", step
    work = [
        line
        for line in lines
        if is_collective(line.text) or activity_named_in(line.text) is not None
    ]
    if work:
        yield "last collective or phase", work[-1]
    if before is None:
        for line in lines[-SILENT_LINES:]:
            yield "last line", line


def _belongs_to(line: Line, file: LogFile, rank: int | None) -> bool:
    """Whether a line belongs to a rank, which lines of a shared file without a rank may."""
    return (line.rank if line.rank is not None else file.rank) in (rank, None)


def _is_step(line: Line) -> bool:
    return signs("progress").sign(line.text.encode("utf-8", "replace")) is not None


def _shortened_report(event: Event) -> list[Line]:
    lines = [line for line in event.lines if line.text.strip()]
    if len(lines) <= EVENT_LINES:
        return lines
    matched = [line for line in lines if line.number == event.known_at]
    half = EVENT_LINES // 2
    ends = [*lines[: half - 1], *lines[-half:]]
    return sorted(
        {line.number: line for line in [*ends, *matched]}.values(), key=lambda line: line.number
    )


def _file_name(scan: FileScan) -> str:
    return WITHHELD if steers(scan.file.name) else scan.file.name[-NAME_CHARACTERS:]


# Lines of a log that address their reader or state a verdict (`steering.yaml`).


_UNSEEN = re.compile(r"[^\w\s!-~]+")


def steers(text: str) -> bool:
    """Whether a line gives orders or a verdict instead of reporting an event."""
    if _steering_pattern().search(text) is not None:
        return True
    return not text.isascii() and _steering_pattern().search(skeleton(text)) is not None


def skeleton(text: str) -> str:
    """A text as a reader sees it, with letters that look like ASCII ones replaced by those.

    Letters of other widths and styles are normalised (NFKC), accents and invisible characters are
    removed, and letters of other scripts become the Latin ones that they resemble
    (`lookalikes.yaml`).
    """
    # letters are mapped before marks are taken off them, since that may change what they look like
    plain = unicodedata.normalize("NFKC", text).translate(_lookalikes())
    return _UNSEEN.sub("", unicodedata.normalize("NFKD", plain)).translate(_lookalikes())


@cache
def _lookalikes() -> dict[int, str]:
    table: dict[int, str] = {}
    for latin, others in load("logparse/failure/lookalikes.yaml")["letters"].items():
        table |= dict.fromkeys(map(ord, others), latin)
    return table


@cache
def _steering_pattern() -> Any:
    import re2

    entries = load("logparse/failure/steering.yaml")["patterns"]
    return re2.compile("|".join(f"(?:{entry['pattern']})" for entry in entries))
