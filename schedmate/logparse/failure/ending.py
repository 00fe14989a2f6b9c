"""Whether a log without a failure shows that its job finished, and on which line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from schedmate.logparse.failure.filters import overcome
from schedmate.logparse.failure.scan import NEAR_STEP, FileScan
from schedmate.logparse.progress.position import NEARLY
from schedmate.logparse.reading import Line, LogError, LogFile
from schedmate.logparse.signs import Sign, goes_on, is_short, last_sign, line_of, part_ends, signs
from schedmate.logparse.templates import mask

LAST = 60
"""Number of last lines whose wording may show that the job finished."""
# A count at its end: without one the Metric Tracker, which takes a while, need not be asked.
_WHOLE = re.compile(r"\b(\d+) ?(?:/|of) ?\1\b|\b100(?:\.0+)? ?%|(?i:percent\w{0,20})\W{1,4}100\b")
_EPOCH = re.compile(r"(?i:\bepochs?)\W{0,3}(\d+) ?(?:/|of) ?(\d+)")


class End(NamedTuple):
    """The line that shows that a job finished, and in which way it shows it."""

    file: LogFile
    line: Line
    why: str


def end_of(scans: Sequence[FileScan]) -> End | None:
    """The line of the first file that states the job's end or counts up to the total, if any."""
    return next((end for one in scans if (end := _end(one)) is not None), None)


def last_step(scans: Sequence[FileScan]) -> tuple[LogFile, Line] | None:
    """The last line of progress in the first file that has one."""
    for one in scans:
        if one.step is not None:
            return one.file, line_of(one.file, one.step)
    return None


def _end(one: FileScan) -> End | None:
    whole = one.finished is not None and not _of_part(one, one.finished)
    if one.finished is not None and whole:
        return End(one.file, line_of(one.file, one.finished), "says that the job finished")
    tail = _tail(one)
    line = _success(one, tail)
    if line is not None:
        return End(one.file, line, "reads like a successful end")
    line = _counted(one, tail)
    return None if line is None else End(one.file, line, "counts to the end of the run")


def _of_part(one: FileScan, sign: Sign) -> bool:
    """Whether a sign of the end is about a part of the run only."""
    start = one.file.align(max(one.attempt.offset, sign.offset - NEAR_STEP))
    step = last_sign("progress", one.file, start, sign.offset)
    short = step is not None and is_short(step.groups.get("at", "").encode(), NEARLY)
    return goes_on(one.file, sign, one.attempt.end, short=short)


def _tail(one: FileScan) -> list[Line]:
    """The last lines of an attempt, `LAST` and one at most."""
    attempt = one.attempt
    first = max(attempt.first_line, attempt.last_line - LAST)
    return list(one.file.lines(first, attempt.last_line))


def _success(one: FileScan, tail: list[Line]) -> Line | None:
    """The last line that states success, unless training continued after lines like it."""
    file, attempt = one.file, one.attempt
    start = file.line_offset(tail[0].number) if tail else attempt.offset
    step = last_sign("progress", file, start, attempt.end) or one.step
    after = file.line_number(step.offset) if step is not None else 0
    if one.finished is not None:  # that was of a part
        after = max(after, line_of(file, one.finished).number + 1)
    starts = signs("starts")  # what was said before the next part started is of one as well
    after = max([after, *(line.number for line in tail if starts.on(_bytes(line.text)))])
    said = [line for line in tail if line.number >= after and _succeeded(line.text)]
    if not said:
        return None
    usual = overcome(file, attempt.first_line, after, _succeeded) if after else set()
    return next((line for line in reversed(said) if mask(line.text) not in usual), None)


def _succeeded(text: str) -> bool:
    return signs("success").on(_bytes(text)) and not part_ends(_bytes(text))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _counted(one: FileScan, tail: list[Line]) -> Line | None:
    """The last line with a count, if that count has reached its stated total."""
    from schedmate.logparse.progress.collect import collect
    from schedmate.logparse.progress.tracker import conclude

    file = one.file
    whole = next((line for line in reversed(tail) if _WHOLE.search(line.text)), None)
    if whole is None:
        return None
    epochs = [match for line in tail for match in _EPOCH.finditer(line.text)]
    if epochs and int(epochs[-1][1]) < int(epochs[-1][2]):
        return None
    try:
        went = conclude(file, collect(file, since=file.line_offset(tail[0].number)), None)
    except LogError:
        return None
    done, total = went.iteration, went.total_iterations
    if total is None:
        done, total = int(went.epoch or 0), went.total_epochs
    elif went.total_epochs is not None and (went.epoch or 0) < went.total_epochs - 1:
        return None
    return whole if total is not None and done is not None and done >= total else None


def last_line(one: FileScan) -> Line | None:
    """The last line of a file that is not blank."""
    return next((line for line in reversed(_tail(one)) if line.text.strip()), None)
