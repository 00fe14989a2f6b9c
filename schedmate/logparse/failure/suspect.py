"""The first line of the trouble, matched by no rule, in which a log ends, and its subject."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schedmate.logparse.failure.events import Event, event_at
from schedmate.logparse.failure.filters import overcome
from schedmate.logparse.failure.rules import RuleSet
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.severity import is_grave, is_mild
from schedmate.logparse.failure.wording import about, speaks_of_trouble
from schedmate.logparse.reading import Line
from schedmate.logparse.signs import last_sign, signs
from schedmate.logparse.templates import mask

LAST = 15
"""Number of last lines in which such trouble has to be."""
REACH = 200
"""Lines above them that may belong to it."""
GAP = 15
"""Limit for other lines between two that report the same trouble."""
PLAIN = 4
"""Number of last lines that may report a failure without a level, in a log without training."""
LONGEST = 500
"""Longer lines are prose, configurations or data [characters]."""
NEAR = 3
"""Limit for the lines between the first line of a report and the one that names the subsystem."""

# The frame of a stack, which no log ends in.
_FRAME = re.compile(
    r"\s|#?\d+:? |\[?(?:0x)?[0-9a-f]{8,}|@ |File \"|at \w|={3,}|-{3,}|\*{3}|[^\s(]++\(.*\[0x"
)
# An exception, which has a report of its own.
_RAISED = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception): ")
_FENCE = re.compile(r"(?<!-)-{40,}+\s*+$")
_SENTENCE = re.compile(r"\. |: |\.$")
_SUCCESS = re.compile(r"\bsuccess(?:ful|fully)?\b", re.IGNORECASE)


def suspect(scans: list[FileScan], rules: RuleSet, *, mild: bool = False) -> Event | None:
    """The first line of the trouble in which any of the files ends.

    Its rule is the subsystem that it names, or None. With `mild`, lines of a level below error
    count if they concern infrastructure. Lines before the last progress do not count, nor do those
    of a log whose job completed, those that match a rule (such as noise) and, if there are others,
    those like one that training continued after.
    """
    found = [event for one in scans if (event := _of_file(one, rules, mild)) is not None]
    return min(
        found,
        key=lambda event: (event.rule is None, event.time is None, event.time or 0.0),
        default=None,
    )


def _of_file(one: FileScan, rules: RuleSet, mild: bool) -> Event | None:
    file, attempt = one.file, one.attempt
    if one.finished:
        return None
    first = max(attempt.first_line, attempt.last_line - REACH)
    start = file.line_offset(first)
    step = last_sign("progress", file, start, attempt.end)
    after = file.line_number(step.offset) if step is not None else 0
    lines = list(file.lines(max(first, after + 1), attempt.last_line))
    report = _fenced(lines)
    trouble = _burst(lines, rules, mild)
    if report and (is_mild(report[0].text) or not speaks_of_trouble(_joined(report))):
        trouble = [line for line in trouble if line.number < report[0].number]
        report = []
    if not trouble:
        return None
    if any(_SUCCESS.search(line.text) for line in lines if line.number > trouble[-1].number):
        return None
    if after:
        usual = overcome(file, attempt.first_line, after, speaks_of_trouble)
        trouble = [line for line in trouble if mask(line.text) not in usual] or trouble
    for line in trouble:
        rule = about(line.text) if rules.line(line.text) is None else None
        loud = _loud(line) or (is_grave(line.text) if after else _plain(line, attempt.last_line))
        if rule is not None and (rule.type == "infrastructure" or loud):
            near = [
                up
                for up in trouble
                if up is line
                or (0 <= line.number - up.number <= NEAR and not _RAISED.match(up.text))
            ]
            if line in report:
                near = report[: report.index(line) + 1]
            return event_at(rule, file, tuple(near), line)
    ends = [one for one in trouble if _loud(one) and one.number >= attempt.last_line - LAST]
    if ends or after:
        return event_at(None, file, (ends[0],), ends[0]) if ends else None
    # without any training, what the very last lines say is the result
    if report:
        if any(rules.line(line.text) is not None for line in report):
            return None  # a rule has judged it
        return event_at(about(_SENTENCE.split(_joined(report))[0]), file, (report[0],), report[0])
    ends = [one for one in trouble if _plain(one, attempt.last_line)]
    return event_at(None, file, (ends[0],), ends[0]) if ends else None


def _fenced(lines: Sequence[Line]) -> list[Line]:
    """The lines between two rows of dashes at the end of a log, if it ends so.

    Open MPI writes such reports: sentences over several lines that only together state what
    happened.
    """
    fences = [n for n, line in enumerate(lines) if _FENCE.match(line.text)]
    if len(fences) < 2 or any(_says(line) for line in lines[fences[-1] :]):
        return []
    return [line for line in lines[fences[-2] : fences[-1]] if _says(line)]


def _joined(report: Sequence[Line]) -> str:
    return " ".join(line.text.strip() for line in report)


def _plain(line: Line, last: int) -> bool:
    """Whether one of the very last lines states outright that something failed."""
    if line.number <= last - PLAIN or len(line.text) > LONGEST:
        return False
    return signs("failed").sign(line.text.encode("utf-8", "replace")) is not None


def _loud(line: Line) -> bool:
    return signs("trouble").sign(line.text.encode("utf-8", "replace")) is not None


def _says(line: Line) -> bool:
    return bool(line.text.strip()) and _FRAME.match(line.text) is None


def _burst(lines: Sequence[Line], rules: RuleSet, mild: bool) -> list[Line]:
    """The last lines that report trouble, with few others in between.

    Read from the end, since most logs do not end in trouble.
    """
    found: list[Line] = []
    quiet = 0
    for line in reversed(lines):
        if found and found[-1].number - line.number > GAP:
            break
        if _speaks(line, rules, mild):
            found.append(line)
        elif not found:
            quiet += _says(line)
            if quiet > LAST:
                break
    return found[::-1]


def _speaks(line: Line, rules: RuleSet, mild: bool) -> bool:
    if not speaks_of_trouble(line.text):
        return False
    if is_mild(line.text):
        named = about(line.text) if mild else None
        if named is None or named.type != "infrastructure":
            return False
    rule = rules.line(line.text)
    return rule is None or rule.role not in ("benign", "hint")
