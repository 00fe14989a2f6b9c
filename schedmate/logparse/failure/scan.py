"""Scans one file of a log for events: lines and tracebacks that match a rule.

An `Event` has its rule, its severity, its rank and node, and the lines of its report, which may
begin above the line that states the failure. Events that training continued after are put aside.
Whose an exception is, `side.py` reads off its frames.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from schedmate.jobs import Origin
from schedmate.logparse.failure.rules import (
    EXCEPTION,
    GLUED,
    STRENGTH,
    UNKNOWN_EXCEPTION,
    Rule,
    RuleSet,
    Severity,
    deciding_rule,
    failed_subsystem,
    is_faint,
    is_harmless,
    is_mild,
    severity,
    speaks_of_trouble,
)
from schedmate.logparse.failure.side import (
    FRAME,
    defined_by_program,
    passes_on,
    raised_by_program,
    rewords,
    side_of,
)
from schedmate.logparse.reading import Attempt, Block, Line, LogFile
from schedmate.logparse.reading.blocks import DIRECT_CAUSE, blocks
from schedmate.logparse.reading.lines import uncoloured
from schedmate.logparse.signs import Sign, horizon, last_sign, signs

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
    calls: list[Line] = []
    if whole:
        rule, line = _rule_for_traceback(block, rules)
    else:
        line = block.first
        rule = rules.line(line.text) if line.text else None
        if rule is None and (glued := _ON_A_BAR.search(line.text)) is not None:
            rule = rules.line(glued[0][1:].strip())
        if rule is None:
            calls = _calls_above(above, line)
            rule, bare = _rule_for_bare_name(line, [one.text for one in calls], rules), True
        if rule is None or _contradicts_rule(rule, line):
            return None
    if rule is not None and rule.role == "benign":
        return None
    upper = max(leading_lines(above, line), calls, key=len)
    if not whole and not upper:
        upper = beginning_lines(above, line, rule, rules)
    lines = (*upper, *block.lines)
    event = event_at(rule, file, lines, line, traceback=whole)
    level = None if whole else severity(line.text)
    return replace(event, bare=bare, level=level, faint=_is_faint_cause(rule, line.text, level))


def _contradicts_rule(rule: Rule, line: Line) -> bool:
    """Whether the level of a line contradicts its rule, so that nothing failed."""
    if rule.strength == "exact" or not is_harmless(line.text):
        return False
    if rule.role == "symptom":
        return _TRACE.search(line.text[:80]) is not None
    return rule.role == "cause" and STRENGTH[rule.strength] < STRENGTH["strong"]


def _is_faint_cause(rule: Rule | None, text: str, level: Severity | None) -> bool:
    if rule is None or rule.role != "cause" or rule.strength == "exact":
        return False
    if level is not None and level < Severity.ERROR:
        return True
    return rule.type != "infrastructure" and is_faint(text)


def _rule_for_traceback(block: Block, rules: RuleSet) -> tuple[Rule | None, Line]:
    """The most specific rule for the exceptions of a traceback; of equal ones the last.

    Of an exception that only says again what another one said, that other one: Python's direct
    cause, or what was caught where it is raised.
    """
    best: Rule | None = None
    at = block.inner[-1]
    raised = True  # whether the next exception's name is that of a traceback
    caught: int | None = None  # where the traceback ends in whose handling the next one was raised
    caused = False
    texts = [line.text for line in block.inner]
    for number, line in enumerate(block.inner):
        text = line.text
        if not text.strip():
            continue
        if "the above exception" in text.lower():
            caused, caught = DIRECT_CAUSE in text, number
        if _INDENTED.match(text) or "Traceback (most recent call" in text:
            raised = True
            continue
        match = EXCEPTION.match(text.strip())
        if caught is not None and match is not None and raised:
            caused = caused or passes_on(text) or rewords(texts[:caught], texts[caught:number])
        named = rules.exception(match["name"]) if match is not None and raised else None
        raised = match is None and raised
        rule = deciding_rule(
            candidate for candidate in (rules.line(text), named) if candidate is not None
        )
        if rule is None or rule.role == "benign":
            continue
        if (
            best is None
            or _weight_of(rule) > _weight_of(best)
            or (_weight_of(rule) == _weight_of(best) and not caused)
        ):
            best, at = rule, line
    if best is None and block.exception is not None:
        best, at = _rule_for_own_class(block, rules) or (None, at)
    if best is not None:
        match = EXCEPTION.match(at.text.strip())
        message = (match["message"] or "") if match is not None else ""
        before = texts[: block.inner.index(at)]
        best = rules.quoted(best, message) or side_of(best, before, at.text)
    return best, at


def _rule_for_own_class(block: Block, rules: RuleSet) -> tuple[Rule, Line] | None:
    """The rule for, and the line of, an exception that the program defines or raises.

    Its name need not end in `Error`. An exception of a library has to, so that only names of
    exceptions count.
    """
    for line in reversed(block.inner):
        match = EXCEPTION.match(line.text)
        if match is not None and match["name"] == block.exception:
            texts = [above.text for above in block.inner[: block.inner.index(line)]]
            if defined_by_program(line.text) or raised_by_program(texts):
                return rules.by_id[UNKNOWN_EXCEPTION], line
            break
    return None


def _weight_of(rule: Rule) -> tuple[int, int]:
    return ("hint", "exit", "symptom", "cause", "stop").index(rule.role), STRENGTH[rule.strength]


def _rule_for_bare_name(line: Line, calls: Sequence[str], rules: RuleSet) -> Rule | None:
    """The rule for the name of an exception at the beginning of a line outside a traceback, or
    below the `calls` of one whose heading is missing."""
    text = _OF_PYTEST.sub("", line.text)
    match = EXCEPTION.match(text) or _REPRESENTED.match(text)
    if match is None or not re.search(r"(?:Error|Exception|Interrupt)$", match["name"]):
        return None
    rule = rules.exception(match["name"])
    if rule is None:
        return None
    message = match.groupdict().get("message") or ""
    return rules.quoted(rule, message) or side_of(rule, calls, text)


def _calls_above(above: Sequence[Block], line: Line) -> list[Line]:
    """The lines right above an exception that are frames of a traceback without its heading."""
    lines: list[Line] = []
    frames = 0
    for block in reversed(above):
        first = block.first
        if len(block.lines) > 1 or first.stream != line.stream or len(lines) - frames > 2:
            break
        lines.append(first)
        if FRAME.match(first.text.lstrip()):
            frames = len(lines)
    return lines[:frames][::-1]


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


# One file of a log: lines that match rules, and those of them that training continued after.


LINES_ABOVE = 40
"""Limit for the lines above that belong to a report."""
LINES_AROUND = (LINES_ABOVE, 200)
"""Lines before and after a hit that are parsed closely."""
MAX_LINES = 20_000
"""Limit for the lines of one file that are parsed closely."""
MAX_HITS = 10_000
"""Limit for the hits of one file that are examined from either end."""
TAIL = 1 << 21
"""Size of that end in files with more hits [bytes]."""
MAX_BACKGROUND = 200
"""Limit for the examined failures that training continued after."""

NEAR_STEP = 1 << 16
"""Range above a failure in which the last step before it is searched [bytes]."""
STEPS_BEHIND = 2
"""Steps by which the ranks of a job may differ."""

_THREAD = re.compile(r"Exception (?:ignored in|in thread (?!MainThread))")
BLOCKS_ABOVE = 8
"""Blocks above a traceback that may announce it where threads write concurrently."""


@dataclass
class FileScan:
    """The events of one file: `events` after the last progress, `background` before it.

    `finished` is where the file states that the job completed; `step` is the last sign of progress
    after the horizon.
    """

    file: LogFile
    attempt: Attempt
    horizon: int
    finished: Sign | None = None
    step: Sign | None = None
    events: list[Event] = field(default_factory=list)
    background: list[Event] = field(default_factory=list)


def scan(file: LogFile, attempt: Attempt, rules: RuleSet) -> FileScan:
    """All events of one attempt of a file, those that training outlived as `background`."""
    turn, finished = horizon(file, attempt.offset, attempt.end)
    step = last_sign("progress", file, turn, attempt.end)
    result = FileScan(file, attempt, turn, finished, step)
    before = [line for line, _ in islice(hits(file, attempt.offset, turn, rules), MAX_BACKGROUND)]
    later_hits = hits(file, file.align(turn), attempt.end, rules)
    after = [line for line, at in islice(later_hits, MAX_HITS) if at >= turn]
    if len(after) >= MAX_HITS:  # what is in between could not be read closely anyway
        tail = max(file.line_offset(after[-1] + 1), file.align(attempt.end - TAIL))
        after += deque((line for line, _ in hits(file, tail, attempt.end, rules)), MAX_HITS)
    turn_line = file.line_number(turn)
    # A progress bar and the error message that follows may share one line.
    events = [one for one in read_closely(file, after, attempt, rules) if one.known_at >= turn_line]
    step_line = file.line_number(step.offset) if step is not None else 0
    steps_on = all(event.known_at != step_line for event in events)  # no `STEP 9.0 CANCELLED`
    for event in events:
        passed = event.known_at < step_line and (
            _is_passing(event) or (steps_on and _ran_again(event, file, step))
        )
        (result.background if passed else result.events).append(event)
    if before:
        earlier = read_closely(file, before, attempt, rules)
        result.background[:0] = [event for event in earlier if event.known_at < turn_line]
    return result


def _is_passing(event: Event) -> bool:
    """Whether one more step shows that it was no failure: a message, not a traceback."""
    cause = event.rule is not None and event.rule.role == "cause"
    return cause and not event.traceback and event.weight < STRENGTH["strong"]


def _ran_again(event: Event, file: LogFile, step: Sign | None) -> bool:
    """Whether the last step after a failure counts less than before it: the job restarted.

    Other ranks, which continue for a moment, count on from where they were.
    """
    if step is None:
        return False
    end = file.line_offset(event.number)
    before = last_sign("progress", file, file.align(max(0, end - NEAR_STEP)), end)
    one, other = _step_count(before), _step_count(step)
    return one is not None and other is not None and other < one - STEPS_BEHIND


def _step_count(sign: Sign | None) -> int | None:
    """The count of a step, or None if it is a loss or a step within an epoch."""
    at = sign.groups.get("at", "") if sign is not None else ""
    match = re.fullmatch(r"(\d{1,12})(?:\s?/\s?\d+)?", at)
    return int(match[1]) if match is not None else None


def hits(file: LogFile, start: int, end: int, rules: RuleSet) -> Iterator[tuple[int, int]]:
    """Line number and byte of each line between two bytes of a file that a rule may match."""
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


def windows_around(numbers: list[int], attempt: Attempt) -> Iterator[tuple[int, int]]:
    """Ranges of lines around hits: the first ones, then, beyond `MAX_LINES`, the last."""
    merged: list[list[int]] = []
    for number in numbers:
        first = max(attempt.first_line, number - LINES_AROUND[0])
        last = min(attempt.last_line, number + LINES_AROUND[1])
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
    for first, last in windows_around(numbers, attempt):
        time: float | None = None
        above: deque[Block] = deque(maxlen=LINES_ABOVE)
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
    """Whether the next traceback is a thread's: more were announced just above than were seen."""
    near = list(above)[-BLOCKS_ABOVE:]
    announced = sum(_THREAD.search(block.first.text) is not None for block in near)
    return announced > sum(block.kind == "traceback" for block in near)


# Lines above the one that states the failure, if they belong to the same report.


# A line that goes on with the message of the exception above it.
_GOES_ON = re.compile(r"[,;)]")
# What stands above the line that says what failed and belongs to it: also the frames of a traceback
# that lacks its first line, and the upper part of a message of several lines.
_LEADING = re.compile(
    r'.*_RemoteTraceback:\s*$|"""$|usage: | *File "[^"]+", line \d+|    |terminate called'
    r"|  what\(\)"
    r"|[╭│╰]|(?:ray\.exceptions\.)?RayTaskError\(\w+\): |Error in call to target '"
    r'|\s*"message": \{$|.*\berror_handler: ?\{$'
    r"|Last error: ?$|nccl\w+Error: |.*\bNCCL error\b|Problem at: \S+ \d+ "
)
# An exception whose message begins in the next line.
_NAME_ALONE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): *$")
QUOTED_CHARACTERS, FEWEST_CHARACTERS = 120, 24
"""Most and fewest characters of a message by which it is recognised in a line above."""
MESSAGE_LINES = 3
"""Limit for the lines of a message above the one that a rule matches."""
REPORT_LINES = 3
"""Limit for the lines of other wording that begin the same report."""


def leading_lines(above: Sequence[Block], line: Line) -> list[Line]:
    """The lines directly above that belong to the same report."""
    leading: list[Line] = []
    for up in range(
        2, 1 + min(len(above), MESSAGE_LINES)
    ):  # its name stands alone above the message
        if _NAME_ALONE.match(above[-up].first.text) and above[-up].first.stream == line.stream:
            return [block.first for block in list(above)[-up:]]
    for block in reversed(above):
        first = block.first
        if len(block.lines) > 1 or first.stream != line.stream:
            break
        raised = not leading and _GOES_ON.match(line.text) and EXCEPTION.match(first.text)
        if not (raised or _LEADING.match(first.text)):
            break
        leading.insert(0, first)
    while leading and leading[0].text.startswith("    "):
        leading.pop(0)
    return leading


def first_line_saying(file: LogFile, first: int, number: int, text: str) -> Line | None:
    """The first line from `first` up to `number` that reports what an exception says later.

    Libraries often log an error before they raise it. Lines of a low severity do not count.
    """
    match = EXCEPTION.match(text.strip())
    message = (match["message"] or "" if match is not None else "").strip()[:QUOTED_CHARACTERS]
    if len(message) < FEWEST_CHARACTERS:
        return None
    for line in file.lines(first, number - 1):
        if message in line.text and not is_mild(line.text):
            return line
    return None


def beginning_lines(
    above: Sequence[Block], line: Line, rule: Rule | None, rules: RuleSet
) -> list[Line]:
    """The lines just above that report the same trouble and match no rule."""
    beginning: list[Line] = []
    if rule is None or rule.role not in ("cause", "symptom"):
        return beginning
    for block in list(above)[: -1 - REPORT_LINES : -1]:
        first = block.first
        if len(block.lines) > 1 or first.stream != line.stream or is_mild(first.text):
            break
        if not speaks_of_trouble(first.text) or rules.line(first.text) is not None:
            break
        subsystem = failed_subsystem(first.text)
        if subsystem is not None and subsystem.component != rule.component:
            break
        beginning.insert(0, first)
    return beginning
