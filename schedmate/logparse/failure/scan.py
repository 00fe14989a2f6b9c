"""One file of a log: lines that match rules, and those of them that training continued after."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from schedmate.logparse.failure.events import Event, event_of
from schedmate.logparse.failure.rules import STRENGTH, RuleSet
from schedmate.logparse.reading import Attempt, Block, LogFile, blocks
from schedmate.logparse.reading.escapes import uncoloured
from schedmate.logparse.signs import Sign, horizon, last_sign

LEADS = 40
"""Limit for the lines above that belong to a report."""
AROUND = (LEADS, 200)
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
BEHIND = 2
"""Steps by which the ranks of a job may differ."""

_THREAD = re.compile(r"Exception (?:ignored in|in thread (?!MainThread))")
THREADS = 8
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
    one, other = _count(before), _count(step)
    return one is not None and other is not None and other < one - BEHIND


def _count(sign: Sign | None) -> int | None:
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


def windows(numbers: list[int], attempt: Attempt) -> Iterator[tuple[int, int]]:
    """Ranges of lines around hits: the first ones, then, beyond `MAX_LINES`, the last."""
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
    """Whether the next traceback is a thread's: more were announced just above than were seen."""
    near = list(above)[-THREADS:]
    announced = sum(_THREAD.search(block.first.text) is not None for block in near)
    return announced > sum(block.kind == "traceback" for block in near)
