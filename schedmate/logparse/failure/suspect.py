"""A log that ends in trouble of which no rule knows a word: the first line that says so."""

from __future__ import annotations

from schedmate.logparse.failure.rules import RuleSet
from schedmate.logparse.failure.scan import Event, FileScan, event_at
from schedmate.logparse.failure.signs import last_sign, signs

LAST = 15
"""So many lines at the end of a log are looked at."""


def suspect(scans: list[FileScan], rules: RuleSet) -> Event | None:
    """The first line with the level or wording of an error among the last of any file.

    Lines before the last progress, or of a log that came to its proper end, do not count; nor do
    those that a rule knows, such as noise.
    """
    found = [event for one in scans if (event := _of_file(one, rules)) is not None]
    return min(found, key=lambda event: (event.time is None, event.time or 0.0), default=None)


def _of_file(one: FileScan, rules: RuleSet) -> Event | None:
    file, attempt = one.file, one.attempt
    first = max(attempt.first_line, attempt.last_line - LAST)
    start = file.line_offset(first)
    step = last_sign("progress", file, start, attempt.end)
    after = file.line_number(step.offset) if step is not None else 0
    for line in file.lines(max(first, after + 1), attempt.last_line):
        raw = line.text.encode("utf-8", "replace")
        if signs("trouble").sign(raw) is None or rules.line(line.text) is not None:
            continue
        if last_sign("finished", file, attempt.offset, attempt.end) is not None:
            return None
        return event_at(None, file, (line,), line)
    return None
