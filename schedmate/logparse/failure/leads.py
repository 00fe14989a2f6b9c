"""Lines above the one that states the failure, if they belong to the same report."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schedmate.logparse.failure.rules import EXCEPTION, Rule, RuleSet
from schedmate.logparse.failure.severity import is_mild
from schedmate.logparse.failure.wording import about, speaks_of_trouble
from schedmate.logparse.reading import Block, Line, LogFile

# A line that goes on with the message of the exception above it.
_GOES_ON = re.compile(r"[,;)]")
# What stands above the line that says what failed and belongs to it: also the frames of a traceback
# that lacks its first line, and the upper part of a message of several lines.
_LEADS = re.compile(
    r'.*_RemoteTraceback:\s*$|"""$|usage: | *File "[^"]+", line \d+|    |terminate called'
    r"|  what\(\)"
    r"|[╭│╰]|(?:ray\.exceptions\.)?RayTaskError\(\w+\): |Error in call to target '"
    r'|\s*"message": \{$|.*\berror_handler: ?\{$'
    r"|Last error: ?$|nccl\w+Error: |.*\bNCCL error\b|Problem at: \S+ \d+ "
)
# An exception whose message begins in the next line.
_ALONE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): *$")
QUOTED, SHORTEST = 120, 24
"""Most and fewest characters of a message by which it is recognised in a line above."""
MESSAGE = 3
"""Limit for the lines of a message above the one that a rule matches."""
REPORT = 3
"""Limit for the lines of other wording that begin the same report."""


def leads(above: Sequence[Block], line: Line) -> list[Line]:
    """The lines directly above that belong to the same report."""
    found: list[Line] = []
    for up in range(2, 1 + min(len(above), MESSAGE)):  # its name stands alone above the message
        if _ALONE.match(above[-up].first.text) and above[-up].first.stream == line.stream:
            return [block.first for block in list(above)[-up:]]
    for block in reversed(above):
        first = block.first
        if len(block.lines) > 1 or first.stream != line.stream:
            break
        raised = not found and _GOES_ON.match(line.text) and EXCEPTION.match(first.text)
        if not (raised or _LEADS.match(first.text)):
            break
        found.insert(0, first)
    while found and found[0].text.startswith("    "):
        found.pop(0)
    return found


def said_before(file: LogFile, first: int, number: int, text: str) -> Line | None:
    """The first line from `first` up to `number` that reports what an exception says later.

    Libraries often log an error before they raise it. Lines of a low severity do not count.
    """
    match = EXCEPTION.match(text.strip())
    message = (match["message"] or "" if match is not None else "").strip()[:QUOTED]
    if len(message) < SHORTEST:
        return None
    for line in file.lines(first, number - 1):
        if message in line.text and not is_mild(line.text):
            return line
    return None


def beginning(above: Sequence[Block], line: Line, rule: Rule | None, rules: RuleSet) -> list[Line]:
    """The lines just above that report the same trouble and match no rule."""
    found: list[Line] = []
    if rule is None or rule.role not in ("cause", "symptom"):
        return found
    for block in list(above)[: -1 - REPORT : -1]:
        first = block.first
        if len(block.lines) > 1 or first.stream != line.stream or is_mild(first.text):
            break
        if not speaks_of_trouble(first.text) or rules.line(first.text) is not None:
            break
        subsystem = about(first.text)
        if subsystem is not None and subsystem.component != rule.component:
            break
        found.insert(0, first)
    return found
