"""How a log ends in which nothing failed: with a sign that the job was through, or without one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schedmate.logparse.failure.filters import overcome
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.signs import last_sign, signs
from schedmate.logparse.reading import Line, LogError
from schedmate.logparse.templates import mask

LAST = 60
"""So many of the last lines may say by their wording that the job was through."""
# A count at its end: without one the Metric Tracker, which takes a while, need not be asked.
_WHOLE = re.compile(r"\b(\d+) ?(?:/|of) ?\1\b|\b100(?:\.0+)? ?%|(?i:percent\w{0,20})\W{1,4}100\b")
_EPOCH = re.compile(r"(?i:\bepochs?)\W{0,3}(\d+) ?(?:/|of) ?(\d+)")


def came_to_an_end(scans: Sequence[FileScan]) -> bool:
    """Whether any file says that the job finished, or counts to the end of what it counts."""
    return any(_finished(one) for one in scans)


def _finished(one: FileScan) -> bool:
    if one.finished:
        return True
    tail = _tail(one)
    return _says_so(one, tail) or _counted(one, tail)


def _tail(one: FileScan) -> list[Line]:
    """The last lines of an attempt, `LAST` and one at most."""
    attempt = one.attempt
    first = max(attempt.first_line, attempt.last_line - LAST)
    return list(one.file.lines(first, attempt.last_line))


def _says_so(one: FileScan, tail: list[Line]) -> bool:
    """Whether one of the last lines words a success, unlike any that training went on after."""
    file, attempt = one.file, one.attempt
    start = file.line_offset(tail[0].number) if tail else attempt.offset
    step = last_sign("progress", file, start, attempt.end) or one.step
    after = file.line_number(step.offset) if step is not None else 0
    said = [mask(line.text) for line in tail if line.number >= after and _succeeded(line.text)]
    if not said:
        return False
    usual = overcome(file, attempt.first_line, after, _succeeded) if after else set()
    return any(text not in usual for text in said)


def _succeeded(text: str) -> bool:
    return signs("success").on(text.encode("utf-8", "replace"))


def _counted(one: FileScan, tail: list[Line]) -> bool:
    """Whether what the log counts has reached the end that it states."""
    from schedmate.logparse.progress.collect import collect
    from schedmate.logparse.progress.tracker import conclude

    file = one.file
    if not any(_WHOLE.search(line.text) for line in tail):
        return False
    epochs = [match for line in tail for match in _EPOCH.finditer(line.text)]
    if epochs and int(epochs[-1][1]) < int(epochs[-1][2]):
        return False
    try:
        went = conclude(file, collect(file, since=file.line_offset(tail[0].number)), None)
    except LogError:
        return False
    done, total = went.iteration, went.total_iterations
    if total is None:
        done, total = int(went.epoch or 0), went.total_epochs
    elif went.total_epochs is not None and (went.epoch or 0) < went.total_epochs - 1:
        return False
    return total is not None and done is not None and done >= total


def last_line(one: FileScan) -> Line | None:
    """The last line of a file that is not blank."""
    return next((line for line in reversed(_tail(one)) if line.text.strip()), None)
