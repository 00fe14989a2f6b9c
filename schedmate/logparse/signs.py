"""Progress, checkpoints and proper ends: what a log says besides failures (`signs.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from schedmate.data import load
from schedmate.logparse.reading import Line, LogFile
from schedmate.logparse.reading.escapes import uncoloured

STEPS = 3
"""So many further steps show that what went before them was no failure."""
WINDOW = 1 << 16
LARGEST = 1 << 22
DENIALS = {"finished": "denied", "success": "denied", "checkpoint": "unsaved"}
"""The part of `denied.yaml` with what denies a kind's words in their own line."""
CLOSELY = 2000
"""So much of a line is looked at for that [bytes]."""


class Sign(NamedTuple):
    """A match: byte `offset` in the file, the groups that the pattern names."""

    offset: int
    groups: dict[str, str]


@dataclass(frozen=True)
class Signs:
    """The patterns of one kind: all together for whole files, one by one for a match.

    A line that `unless` fits is no sign.
    """

    together: Any
    single: tuple[Any, ...]
    unless: Any = None

    def on(self, line: bytes) -> bool:
        """Whether a whole line holds a sign."""
        return self.together.search(line) is not None and not self.denies(line)

    def denies(self, line: bytes) -> bool:
        """Whether a line, whatever its words, states no sign of this kind."""
        return self.unless is not None and self.unless.search(line[:CLOSELY]) is not None

    def sign(self, text: bytes, offset: int = 0) -> Sign | None:
        """The first pattern that fits a line."""
        for pattern in self.single:
            match = pattern.search(text)
            if match is not None:
                groups = match.groupdict(b"")  # RE2 names them in bytes as well
                named = {
                    name.decode(): held.decode("utf-8", "replace") for name, held in groups.items()
                }
                return Sign(offset + match.start(), named)
        return None

    def backwards(self, file: LogFile, start: int, end: int) -> Iterator[Sign]:
        """All signs between two bytes of a file, the last one first."""
        size = WINDOW
        while end > start:
            # one long line of redraws may be cut anywhere
            begin = max(start, file.align(max(start, end - size), LARGEST))
            data, origin = uncoloured(file.read(begin, end - begin))
            spans = [match.span() for match in self.together.finditer(data)]
            for first, last in reversed(spans):
                if self.unless is not None and self.denies(_line(data, first, last)):
                    continue
                found = self.sign(data[max(0, first - 1) : last + 64], max(0, first - 1))
                if found is not None:
                    yield found._replace(offset=begin + origin(found.offset))
            end, size = begin, min(2 * size, LARGEST)


def _line(data: bytes, first: int, last: int) -> bytes:
    """The line that a match stands on, or what is near it of one that is very long."""
    match = data[first:last]  # may begin with blank lines
    at = last - len(match.lstrip(b"\r\n"))
    start = data.rfind(b"\n", max(0, at - CLOSELY), at) + 1 or max(0, at - CLOSELY)
    end = data.find(b"\n", at, at + CLOSELY)
    return data[start : end if end >= 0 else at + CLOSELY]


@cache
def signs(kind: str) -> Signs:
    """The signs of one part of `signs.yaml`."""
    import re2

    patterns = [entry["pattern"] for entry in load("logparse/signs.yaml")[kind]]
    bare = "|".join("(?:" + re.sub(r"\(\?P<\w+>", "(?:", one) + ")" for one in patterns)
    unless = None
    if kind in DENIALS:
        denied = load("logparse/denied.yaml")[DENIALS[kind]]
        unless = re2.compile("|".join(f"(?:{entry['pattern']})" for entry in denied).encode())
    return Signs(
        re2.compile(("(?m)" + bare).encode()),
        tuple(re2.compile(("(?m)" + one).encode()) for one in patterns),
        unless,
    )


def horizon(file: LogFile, start: int, end: int, kind: str = "finished") -> tuple[int, Sign | None]:
    """The byte from which on fewer than `STEPS` further steps of training are seen.

    Failures before it did not stop the job, nor did those before its proper end, the last sign of
    `kind`. `start` where there is neither. The second value is that sign.
    """
    sign = last_sign(kind, file, start, end)
    over = sign.offset if sign is not None else start
    steps: set[str] = set()
    for step in signs("progress").backwards(file, over, end):
        steps.add(step.groups.get("at", ""))
        if len(steps) >= STEPS:
            return step.offset, sign
    return over, sign


def run_end(file: LogFile) -> tuple[Line, bool] | None:
    """The line near the end of a log that shows that its run is over, and whether it finished.

    None where there is no such line, or where `STEPS` steps of training follow it.
    """
    start = file.align(max(0, file.size - LARGEST))
    for kind in ("finished", "over"):
        turn, sign = horizon(file, start, file.size, kind)
        if sign is not None and turn <= sign.offset:
            return line_of(file, sign), kind == "finished"
    return None


def line_of(file: LogFile, sign: Sign) -> Line:
    """The line of a sign, whose match may begin with the line feed before it."""
    number = file.line_number(sign.offset)
    first, *more = file.lines(number, number + 1)
    begins = file.read(sign.offset, 1) in (b"\n", b"\r")
    return more[0] if more and (begins or not first.text.strip()) else first


def last_sign(kind: str, file: LogFile, start: int, end: int) -> Sign | None:
    """The last sign of a kind between two bytes of a file."""
    return next(signs(kind).backwards(file, start, end), None)
