"""One file of a log: the lines that rules know, and which of them training went on after."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from schedmate.jobs import Origin
from schedmate.logparse.failure.leads import beginning, leads
from schedmate.logparse.failure.rules import EXCEPTION, GLUED, STRENGTH, Rule, RuleSet, best
from schedmate.logparse.failure.severity import Severity, is_faint, is_harmless, severity
from schedmate.logparse.failure.signs import Sign, horizon, last_sign, signs
from schedmate.logparse.reading import Attempt, Block, Line, LogFile, blocks
from schedmate.logparse.reading.blocks import FOLLOWS
from schedmate.logparse.reading.escapes import uncoloured

LEADS = 40
"""Most lines above that belong to a report."""
AROUND = (LEADS, 200)
"""Lines before and after a hit that are read closely."""
MAX_LINES = 20_000
"""Most lines of one file that are read closely."""
MAX_HITS = 10_000
"""Most lines of one file that a rule may know which are looked at from either end."""
TAIL = 1 << 21
"""How far from the end that is, where a file has more of them [bytes]."""
MAX_BACKGROUND = 200
"""Most failures that training went on after which are looked at."""

NEAR_STEP = 1 << 16
"""So far above a failure the last step before it is looked for [bytes]."""
BEHIND = 2
"""So many steps the ranks of a job may be apart."""

_INDENTED = re.compile(r"\s|\+|\|")
_THREAD = re.compile(r"Exception (?:ignored in|in thread (?!MainThread))")
THREADS = 8
"""So far above a traceback it may be announced where threads write at the same time [blocks]."""
_ON_A_BAR = re.compile(GLUED)
_TRACE = re.compile(r"\bTRACE\b")
_OF_PYTEST = re.compile(r"^E {2,}")
# An exception as `repr` writes it.
_REPRESENTED = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)\((?:['\"].*)?\)$")


@dataclass(frozen=True)
class Event:
    """What one rule found. `time` [s since epoch] is the line's, or that of the last line with one.

    `lines` are those of the whole traceback; `number` is the first of them, `text` and `known_at`
    are the line that the rule knows. `bare` marks an exception's name without a traceback. `origin`
    says whether the node itself wrote it. A `faint` one loses to any louder failure that follows:
    its line calls itself a warning or less (`level`), or is of a kind that seldom ended a job.
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

    @property
    def weight(self) -> int:
        """How much the rule says; 0 for the mere name of an exception."""
        return STRENGTH[self.rule.strength] if self.rule is not None else 0


@dataclass
class FileScan:
    """What was found in one file: `events` after the last progress, `background` before it.

    `finished`: it says that the job came to its proper end. `step` is the last sign of progress
    after the horizon.
    """

    file: LogFile
    attempt: Attempt
    horizon: int
    finished: bool = False
    step: Sign | None = None
    events: list[Event] = field(default_factory=list)
    background: list[Event] = field(default_factory=list)


def scan(file: LogFile, attempt: Attempt, rules: RuleSet) -> FileScan:
    """All events of one attempt of a file."""
    turn, finished = horizon(file, attempt.offset, attempt.end)
    step = last_sign("progress", file, turn, attempt.end)
    result = FileScan(file, attempt, turn, finished, step)
    before = [line for line, _ in islice(hits(file, attempt.offset, turn, rules), MAX_BACKGROUND)]
    found = hits(file, file.align(turn), attempt.end, rules)
    after = [line for line, at in islice(found, MAX_HITS) if at >= turn]
    if len(after) >= MAX_HITS:  # what is in between could not be read closely anyway
        tail = max(file.line_offset(after[-1] + 1), file.align(attempt.end - TAIL))
        after += deque((line for line, _ in hits(file, tail, attempt.end, rules)), MAX_HITS)
    turn_line = file.line_number(turn)
    # A progress bar and the error message that follows may share one line.
    known = [one for one in read_closely(file, after, attempt, rules) if one.known_at >= turn_line]
    step_line = file.line_number(step.offset) if step is not None else 0
    steps_on = all(event.known_at != step_line for event in known)  # no `STEP 9.0 CANCELLED`
    for event in known:
        passed = event.known_at < step_line and (
            _passing(event) or (steps_on and _ran_again(event, file, step))
        )
        (result.background if passed else result.events).append(event)
    if before:
        earlier = read_closely(file, before, attempt, rules)
        result.background[:0] = [event for event in earlier if event.known_at < turn_line]
    return result


def _passing(event: Event) -> bool:
    """Whether one further step shows that it was no failure: a mere message, not a traceback."""
    cause = event.rule is not None and event.rule.role == "cause"
    return cause and not event.traceback and event.weight < STRENGTH["strong"]


def _ran_again(event: Event, file: LogFile, step: Sign | None) -> bool:
    """Whether the last step, after a failure, counts less than before it: the job began again.

    Other ranks, which go on for a moment, count from where they were.
    """
    if step is None:
        return False
    end = file.line_offset(event.number)
    before = last_sign("progress", file, file.align(max(0, end - NEAR_STEP)), end)
    one, other = _count(before), _count(step)
    return one is not None and other is not None and other < one - BEHIND


def _count(sign: Sign | None) -> int | None:
    """The count of a step; None where it is a loss, or of steps within epochs."""
    at = sign.groups.get("at", "") if sign is not None else ""
    match = re.fullmatch(r"(\d{1,12})(?:\s?/\s?\d+)?", at)
    return int(match[1]) if match is not None else None


def hits(file: LogFile, start: int, end: int, rules: RuleSet) -> Iterator[tuple[int, int]]:
    """Number and byte of each line between two bytes of a file that a rule may know."""
    for chunk in file.chunks(start, end):
        data, origin = uncoloured(chunk.data)
        line, counted, stop = chunk.first_line, 0, -1
        for match in rules.prefilter.finditer(data):
            at = match.start()
            if at < stop:
                continue
            line += data.count(b"\n", counted, at)
            counted = at
            stop = data.find(b"\n", at)
            stop = stop if stop >= 0 else len(data)
            yield line, chunk.offset_of(origin(at))


def windows(numbers: list[int], attempt: Attempt) -> Iterator[tuple[int, int]]:
    """The stretches of lines around hits: the first ones, then, past `MAX_LINES`, the last."""
    merged: list[list[int]] = []
    for number in numbers:
        first = max(attempt.first_line, number - AROUND[0])
        last = min(attempt.last_line, number + AROUND[1])
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = last
        else:
            merged.append([first, last])
    left = MAX_LINES
    for first, last in merged:
        if last - first >= left:
            yield first, first + left
            ends = merged[-1][1]
            yield max(first + left + 1, ends - MAX_LINES // 4), ends
            return
        left -= last - first + 1
        yield first, last


def read_closely(
    file: LogFile, numbers: list[int], attempt: Attempt, rules: RuleSet
) -> list[Event]:
    """The events in the lines around hits, in the order of the file."""
    events: list[Event] = []
    of_threads: set[str] = set()  # last words of threads that ended alone
    for first, last in windows(numbers, attempt):
        time: float | None = None
        above: deque[Block] = deque(maxlen=LEADS)
        for block in blocks(file.lines(first, last)):
            time = block.first.time or time
            event = None
            if block.kind == "traceback" and _of_thread(above):
                of_threads.add(block.lines[-1].text.strip())
            else:
                event = event_of(block, above, file, rules)
            if event is not None and not (event.bare and event.text.strip() in of_threads):
                events.append(event if event.time is not None else replace(event, time=time))
            above.append(block)
    events.sort(key=lambda event: event.number)
    return events


def _of_thread(above: Sequence[Block]) -> bool:
    """Whether the next traceback is of a thread: more were announced just above than were seen."""
    near = list(above)[-THREADS:]
    announced = sum(_THREAD.search(block.first.text) is not None for block in near)
    return announced > sum(block.kind == "traceback" for block in near)


def event_of(block: Block, above: Sequence[Block], file: LogFile, rules: RuleSet) -> Event | None:
    """The event that a line or traceback is, if any; `above` is what stands before it."""
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
    """Whether a line's level says against its rule that nothing failed."""
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
    """The rule that says most about the exceptions of a traceback; of equal ones the last.

    Of one that was raised from another, which Python calls its direct cause, that other.
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
    if found is not None:
        match = EXCEPTION.match(at.text.strip())
        message = (match["message"] or "") if match is not None else ""
        found = rules.quoted(found, message) or found
    return found, at


def _says(rule: Rule) -> tuple[int, int]:
    return ("hint", "exit", "symptom", "cause", "stop").index(rule.role), STRENGTH[rule.strength]


def _bare(line: Line, rules: RuleSet) -> Rule | None:
    """The rule for an exception's name at the beginning of a line outside any traceback."""
    text = _OF_PYTEST.sub("", line.text)
    match = EXCEPTION.match(text) or _REPRESENTED.match(text)
    if match is None or not re.search(r"(?:Error|Exception|Interrupt)$", match["name"]):
        return None
    rule = rules.exception(match["name"])
    if rule is None:
        return None
    message = match.groupdict().get("message") or ""
    return rules.quoted(rule, message) or rule


def event_at(
    rule: Rule | None,
    file: LogFile,
    lines: tuple[Line, ...],
    line: Line,
    *,
    traceback: bool = False,
) -> Event:
    """What `line` says, with the rank, node and time that it or its file tells."""
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
