"""A line or traceback matched by a rule: the rule, its severity, its rank and node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedmate.jobs import Origin
from schedmate.logparse.failure.frames import defined_by_program, raised_by_program
from schedmate.logparse.failure.leads import beginning, leads
from schedmate.logparse.failure.rules import (
    EXCEPTION,
    GLUED,
    STRENGTH,
    UNKNOWN_EXCEPTION,
    Rule,
    RuleSet,
    best,
)
from schedmate.logparse.failure.severity import Severity, is_faint, is_harmless, severity
from schedmate.logparse.reading import Block, Line, LogFile
from schedmate.logparse.reading.blocks import FOLLOWS
from schedmate.logparse.signs import signs

_INDENTED = re.compile(r"\s|\+|\|")
_ON_A_BAR = re.compile(GLUED)
_TRACE = re.compile(r"\bTRACE\b")
_OF_PYTEST = re.compile(r"^E {2,}")
# An exception as `repr` writes it.
_REPRESENTED = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)\((?:['\"].*)?\)$")


@dataclass(frozen=True)
class Event:
    """A match of one rule. `time` [s since epoch] is that of its line, or of the last with one.

    `lines` are all lines of the traceback; `number` is that of the first, `text` and `known_at` are
    those of the line that the rule matches. `bare` marks the name of an exception without a
    traceback. `origin` is whether the node itself wrote the line. A `faint` event gives way to any
    more severe failure after it: its line has a level of warning or less (`level`), or is of a kind
    that rarely ended a job.
    """

    rule: Rule | None
    file: LogFile
    number: int
    text: str
    known_at: int
    lines: tuple[Line, ...]
    rank: int | None
    node: str | None
    time: float | None
    traceback: bool = False
    bare: bool = False
    origin: Origin = "job_log"
    level: Severity | None = None
    faint: bool = False
    given_as: str | None = None
    """The node for whose log the caller gave the file, if the line names another node."""

    @property
    def weight(self) -> int:
        """The strength of the rule; 0 for the mere name of an exception."""
        return STRENGTH[self.rule.strength] if self.rule is not None else 0


def event_of(block: Block, above: Sequence[Block], file: LogFile, rules: RuleSet) -> Event | None:
    """The event of a line or traceback, or None; `above` are the blocks before it."""
    whole = block.kind == "traceback"
    bare = False
    if whole:
        rule, line = _of_traceback(block, rules)
    else:
        line = block.first
        rule = rules.line(line.text) if line.text else None
        if rule is None and (glued := _ON_A_BAR.search(line.text)) is not None:
            rule = rules.line(glued[0][1:].strip())
        if rule is None:
            rule, bare = _bare(line, rules), True
        if rule is None or _mild(rule, line):
            return None
    if rule is not None and rule.role == "benign":
        return None
    upper = leads(above, line)
    if not whole and not upper:
        upper = beginning(above, line, rule, rules)
    lines = (*upper, *block.lines)
    event = event_at(rule, file, lines, line, traceback=whole)
    level = None if whole else severity(line.text)
    return replace(event, bare=bare, level=level, faint=_faint(rule, line.text, level))


def _mild(rule: Rule, line: Line) -> bool:
    """Whether the level of a line contradicts its rule, so that nothing failed."""
    if rule.strength == "exact" or not is_harmless(line.text):
        return False
    if rule.role == "symptom":
        return _TRACE.search(line.text[:80]) is not None
    return rule.role == "cause" and STRENGTH[rule.strength] < STRENGTH["strong"]


def _faint(rule: Rule | None, text: str, level: Severity | None) -> bool:
    if rule is None or rule.role != "cause" or rule.strength == "exact":
        return False
    if level is not None and level < Severity.ERROR:
        return True
    return rule.type != "infrastructure" and is_faint(text)


def _of_traceback(block: Block, rules: RuleSet) -> tuple[Rule | None, Line]:
    """The most specific rule for the exceptions of a traceback; of equal ones the last.

    Of an exception raised from another one, Python's direct cause, that other one.
    """
    found: Rule | None = None
    at = block.inner[-1]
    raised = True  # whether the next exception's name is that of a traceback
    caused = False
    for line in block.inner:
        text = line.text
        if not text.strip():
            continue
        if "the above exception" in text.lower():
            caused = FOLLOWS in text
        if _INDENTED.match(text) or "Traceback (most recent call" in text:
            raised = True
            continue
        match = EXCEPTION.match(text.strip())
        named = rules.exception(match["name"]) if match is not None and raised else None
        raised = match is None and raised
        rule = best(one for one in (rules.line(text), named) if one is not None)
        if rule is None or rule.role == "benign":
            continue
        if (
            found is None
            or _says(rule) > _says(found)
            or (_says(rule) == _says(found) and not caused)
        ):
            found, at = rule, line
    if found is None and block.exception is not None:
        found, at = _own_class(block, rules) or (None, at)
    if found is not None:
        match = EXCEPTION.match(at.text.strip())
        message = (match["message"] or "") if match is not None else ""
        quoted = rules.quoted(found, message)
        if quoted is None and found.why_own is not None:
            found = found.own() if _is_programs(block, at) else found
        found = quoted or found
    return found, at


def _own_class(block: Block, rules: RuleSet) -> tuple[Rule, Line] | None:
    """The rule for, and the line of, an exception that the program defines or raises.

    Its name need not end in `Error`. An exception of a library has to, so that only names of
    exceptions count.
    """
    for line in reversed(block.inner):
        match = EXCEPTION.match(line.text)
        if match is not None and match["name"] == block.exception:
            if _is_programs(block, line):
                return rules.by_id[UNKNOWN_EXCEPTION].own(), line
            break
    return None


def _is_programs(block: Block, at: Line) -> bool:
    """Whether the exception that a line of a traceback names is the program's own."""
    texts = [line.text for line in block.inner[: block.inner.index(at)]]
    return defined_by_program(at.text) or raised_by_program(texts)


def _says(rule: Rule) -> tuple[int, int]:
    return ("hint", "exit", "symptom", "cause", "stop").index(rule.role), STRENGTH[rule.strength]


def _bare(line: Line, rules: RuleSet) -> Rule | None:
    """The rule for the name of an exception at the beginning of a line outside a traceback."""
    text = _OF_PYTEST.sub("", line.text)
    match = EXCEPTION.match(text) or _REPRESENTED.match(text)
    if match is None or not re.search(r"(?:Error|Exception|Interrupt)$", match["name"]):
        return None
    rule = rules.exception(match["name"])
    if rule is None:
        return None
    message = match.groupdict().get("message") or ""
    return rules.quoted(rule, message) or (rule.own() if defined_by_program(text) else rule)


def event_at(
    rule: Rule | None,
    file: LogFile,
    lines: tuple[Line, ...],
    line: Line,
    *,
    traceback: bool = False,
) -> Event:
    """The event of `line`, with the rank, node and time stated by it or its file."""
    rank, node = line.rank if line.rank is not None else file.rank, line.node or file.node
    raw = line.text.encode("utf-8", "replace")
    if rank is None and (sign := signs("rank").sign(raw)) is not None:
        rank = int(sign.groups["rank"])
    if (sign := signs("node").sign(raw)) is not None:
        node = sign.groups["node"]
    first = lines[0]
    return Event(
        rule, file, first.number, line.text, line.number, lines, rank, node, first.time, traceback
    )
