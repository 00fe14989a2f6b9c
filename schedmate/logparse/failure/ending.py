"""How a log ends in which nothing failed: with a sign that the job was through, or without one."""

from __future__ import annotations

from collections.abc import Sequence

from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.signs import last_sign
from schedmate.logparse.reading import Line

LAST = 60
"""So many of the last lines may say by their wording that the job was through."""


def came_to_an_end(scans: Sequence[FileScan]) -> bool:
    """Whether any file says that the job finished, or counts to the end of what it counts."""
    return any(_finished(one) for one in scans)


def _finished(one: FileScan) -> bool:
    file, attempt = one.file, one.attempt
    if one.finished:
        return True
    start = file.line_offset(max(attempt.first_line, attempt.last_line - LAST))
    if last_sign("success", file, start, attempt.end) is not None:
        return True
    done, _, total = (one.step.groups.get("at", "") if one.step is not None else "").partition("/")
    return bool(total) and done.strip() == total.strip()


def last_line(one: FileScan) -> Line | None:
    """The last line of a file that is not blank."""
    file, attempt = one.file, one.attempt
    lines = file.lines(max(attempt.first_line, attempt.last_line - LAST), attempt.last_line)
    return next((line for line in reversed(list(lines)) if line.text.strip()), None)
