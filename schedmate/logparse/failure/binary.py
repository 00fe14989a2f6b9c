"""The paper's locator: a binary search for the first chunk of a log without training.

The Log Classifier classifies the lines of each chunk that is probed (SchedMate paper, section 3.3).
The search assumes that no training follows the failure. Chunks that show neither training nor a
failure are skipped, at most `EXTRA` of them, so a search takes at most ceil(log2(chunks)) + `EXTRA`
probes.
"""

from __future__ import annotations

from typing import Literal

from schedmate.logparse.classify import LineKinds
from schedmate.logparse.reading import Attempt, LogFile

CHUNK = 1 << 18
EXTRA = 4
MARGIN = 1
"""Chunks before the located one that are read with it."""


def probe(file: LogFile, attempt: Attempt, *, chunk: int = CHUNK) -> tuple[Attempt, int]:
    """The part of a file from the located chunk on, as an attempt, and the number of probes."""
    count = -(-(attempt.end - attempt.offset) // chunk)
    low, high, used, extra = 0, count - 1, 0, 0
    kinds = LineKinds()
    while low < high:
        middle = (low + high) // 2
        at, state = middle, look(file, attempt, kinds, middle, chunk)
        used += 1
        while state == "neither" and at < high and extra < EXTRA:
            at, extra, used = at + 1, extra + 1, used + 1
            state = look(file, attempt, kinds, at, chunk)
        if state == "training":
            low = at + 1
        else:
            high = middle
    first = max(0, min(low, count - 1) - MARGIN)
    offset = max(attempt.offset, file.align(attempt.offset + first * chunk, 16 * chunk))
    line = file.line_number(offset)
    return attempt._replace(first_line=line, offset=offset), used


def look(
    file: LogFile, attempt: Attempt, kinds: LineKinds, number: int, chunk: int
) -> Literal["training", "failed", "neither"]:
    """What a chunk shows last: continuing training, a failure, or neither."""
    start = attempt.offset + number * chunk
    found = kinds.of(file.read(start, min(chunk, attempt.end - start)))
    for kind in reversed(found):
        if kind == "error":
            return "failed"
        if kind == "progress":
            return "training"
    return "neither"
