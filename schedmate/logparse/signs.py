"""Signs of progress, checkpoints and proper ends in a log (`signs.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from schedmate.base.data import load
from schedmate.logparse.reading import Attempt, Line, LogFile, attempts
from schedmate.logparse.reading.lines import uncoloured

STEPS = 3
"""Number of further steps that show that an earlier failure did not stop the job."""
WINDOW = 1 << 10
LARGEST = 1 << 22
DENIALS = {"finished": "denied", "success": "denied", "checkpoint": "unsaved"}
"""The part of `denied.yaml` that negates the words of a kind in their own line."""
CLOSELY = 2000
"""Bytes of a line that are searched for such a negation."""
NEARLY_ENDED = 0.95
"""A run below this share of its iterations has not ended by words alone if further ones follow."""
_WHOLE = re.compile(rb"\b(\d{1,9}) ?(?:/|of|out of) ?\1\b")


class Sign(NamedTuple):
    """A match at byte `offset` of the file, with the named groups of its pattern."""

    offset: int
    groups: dict[str, str]


@dataclass(frozen=True)
class Signs:
    """The patterns of one kind: all together for whole files, one by one for a match.

    A line that `unless` matches is not a sign. `proofs` are the patterns that are not `worded`.
    """

    together: Any
    single: tuple[Any, ...]
    unless: Any = None
    proofs: tuple[Any, ...] = ()

    def on(self, line: bytes) -> bool:
        """Whether a whole line contains a sign."""
        return self.together.search(line) is not None and not self.denies(line)

    def denies(self, line: bytes) -> bool:
        """Whether a line cannot contain a sign of this kind, whatever its words."""
        return self.unless is not None and self.unless.search(line[:CLOSELY]) is not None

    def sign(self, text: bytes, offset: int = 0) -> Sign | None:
        """The match of the first pattern that matches a line."""
        for pattern in self.single:
            match = pattern.search(text)
            if match is not None:
                groups = match.groupdict(b"")  # RE2 names them in bytes as well
                named = {
                    name.decode(): value.decode("utf-8", "replace")
                    for name, value in groups.items()
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
                sign = self.sign(data[max(0, first - 1) : last + 64], max(0, first - 1))
                if sign is not None:
                    yield sign._replace(offset=begin + origin(sign.offset))
            end, size = begin, min(2 * size, LARGEST)


def _line(data: bytes, first: int, last: int) -> bytes:
    """The line of a match, or the surroundings of the match in a very long line."""
    match = data[first:last]  # may begin with blank lines
    at = last - len(match.lstrip(b"\r\n"))
    start = data.rfind(b"\n", max(0, at - CLOSELY), at) + 1 or max(0, at - CLOSELY)
    end = data.find(b"\n", at, at + CLOSELY)
    return data[start : end if end >= 0 else at + CLOSELY]


@cache
def signs(kind: str) -> Signs:
    """The compiled patterns of the part `kind` of `signs.yaml`."""
    import re2

    entries = load("logparse/signs.yaml")[kind]
    patterns = [entry["pattern"] for entry in entries]
    bare = "|".join("(?:" + re.sub(r"\(\?P<\w+>", "(?:", pattern) + ")" for pattern in patterns)
    single = tuple(re2.compile(("(?m)" + pattern).encode()) for pattern in patterns)
    return Signs(
        re2.compile(("(?m)" + bare).encode()),
        single,
        _denial(DENIALS[kind]) if kind in DENIALS else None,
        tuple(
            pattern
            for pattern, entry in zip(single, entries, strict=True)
            if not entry.get("worded")
        ),
    )


@cache
def _denial(part: str) -> Any:
    """One pattern that matches whatever any pattern in a part of `denied.yaml` matches."""
    import re2

    entries = load("logparse/denied.yaml")[part]
    return re2.compile("|".join(f"(?:{entry['pattern']})" for entry in entries).encode())


def horizon(file: LogFile, start: int, end: int, kind: str = "finished") -> tuple[int, Sign | None]:
    """The byte from which on there are fewer than `STEPS` further training steps.

    Failures before it did not stop the job, nor did those before its proper end, which is the last
    sign of `kind`. It is `start` if there is neither. The second value is that sign.
    """
    sign = last_sign(kind, file, start, end)
    over = sign.offset if sign is not None else start
    steps: set[str] = set()
    for step in signs("progress").backwards(file, over, end):
        steps.add(step.groups.get("at", ""))
        if len(steps) >= STEPS:
            return step.offset, sign
    return over, sign


def run_end(file: LogFile, *, short: bool = False) -> tuple[Line, bool] | None:
    """The line near the end of a log that shows that its run is over, and whether it finished.

    None without such a line, or if the run continues after it: see `goes_on`.
    """
    start = file.align(max(0, file.size - LARGEST))
    for kind in ("finished", "over"):
        turn, sign = horizon(file, start, file.size, kind)
        if sign is None or turn > sign.offset:
            continue
        if not goes_on(file, sign, file.size, kind, short=short and kind == "finished"):
            return line_of(file, sign), kind == "finished"
        start = max(start, sign.offset)  # what stood above was of a part as well
    return None


def goes_on(file: LogFile, sign: Sign, end: int, kind: str = "finished", *, short: bool) -> bool:
    """Whether the sign of an end is about a part of a run, by its line and the lines after it.

    The next part may start there. If the run is `short` of its total and the sign is only worded,
    any count below its total shows the same.
    """
    data, _ = uncoloured(file.read(sign.offset, min(end - sign.offset, LARGEST)))
    data = data.lstrip(b"\r\n")
    before, _ = uncoloured(file.read(max(0, sign.offset - CLOSELY), min(sign.offset, CLOSELY)))
    before = before[max(before.rfind(b"\n"), before.rfind(b"\r")) + 1 :]
    own, _, after = data.partition(b"\n")
    if before and file.read(sign.offset, 1) in (b"\r", b"\n"):
        before = b""
    line = before + own[:CLOSELY]
    worded = not any(proof.search(line) for proof in signs(kind).proofs)
    if worded and part_ends(line):
        return True
    if signs("starts").together.search(after) is not None:
        return True
    return worded and short and is_short(after)


def part_ends(line: bytes) -> bool:
    """Whether a line that words an end names a part of a run."""
    return _denial("part").search(_WHOLE.sub(b"", line[:CLOSELY])) is not None


def is_short(text: bytes, share: float = 1.0) -> bool:
    """Whether a count in a text is below this share of its total."""
    counts = (match for pattern in signs("counts").single for match in pattern.finditer(text))
    return any(int(match[1]) < share * int(match[2]) for match in counts)


def line_of(file: LogFile, sign: Sign) -> Line:
    """The line of a sign, whose match may begin with the line feed before the line."""
    number = file.line_number(sign.offset)
    first, *more = file.lines(number, number + 1)
    begins = file.read(sign.offset, 1) in (b"\n", b"\r")
    return more[0] if more and (begins or not first.text.strip()) else first


RUNS_WITHIN = 1 << 26
"""Size of the largest log whose runs are told apart to follow the last one [bytes]."""


def last_run(file: LogFile) -> Attempt:
    """The last run in a log that shows progress, or all of the log."""
    if file.size <= RUNS_WITHIN:
        for run in reversed(attempts(file)):
            if last_sign("progress", file, run.offset, run.end) is not None:
                return run._replace(last_line=file.line_count(), end=file.size)
    return Attempt(1, file.line_count(), 0, file.size, "")


def last_sign(kind: str, file: LogFile, start: int, end: int) -> Sign | None:
    """The last sign of a kind between two bytes of a file."""
    return next(signs(kind).backwards(file, start, end), None)
