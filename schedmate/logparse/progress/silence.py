"""How long a job may show no progress before it is likely to hang, by its log's own rhythm.

A training prints a line every so many steps, and pauses for evaluation and checkpoints. Its log is
compared with itself: `rhythm` finds how often lines about progress came, which pauses there were
and after how many steps they recur, and which silence is still to be expected. What is made of a
longer one: `watch/health.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from schedmate.jobs import Progress
from schedmate.logparse.progress.line import Sample, is_about_something_else
from schedmate.logparse.progress.series import one_stream
from schedmate.logparse.reading import LogFile

USUAL_TIMES = 20.0
"""A silence of this many usual gaps between lines is to be expected."""
STEADY_TIMES = 8.0
"""The same where enough gaps were measured to know how the log goes."""
STEADY_GAPS = 40
"""Measured gaps from which a log is known."""
LONGEST_TIMES = 3.0
"""So is one of this many times the longest gap, which has evaluations and checkpoints."""
PAUSE_TIMES = 5.0
"""How many times longer a silence may be after a line about an evaluation or a checkpoint."""
SURVIVED_TIMES = 2.0
"""A silence that the log came back from is to be expected again, this many times as long."""
BUFFER = 8192
"""Bytes that a program writes at once if its output is buffered."""
PAUSED_TIMES = 5.0
"""A gap of this many usual ones is a pause."""
FEWEST_PAUSES = 3
"""Pauses from which it can be told after how many steps they recur."""


class Rhythm(NamedTuple):
    """How often a log shows progress, and how long that may take now [s]."""

    usual_s: float
    limit_s: float


def set_rhythm(progress: Progress, used: list[Sample], file: LogFile) -> None:
    """Set `line_every_s` and `silence_limit_s` by the lines that were used, the newest first."""
    found = rhythm(progress, used, file)
    if found is not None:
        progress.line_every_s, progress.silence_limit_s = found


def rhythm(progress: Progress, used: list[Sample], file: LogFile) -> Rhythm | None:
    """The rhythm of the lines that were used, the newest first; None where it cannot be told."""
    lines = one_stream(used)[::-1]
    measured = _gaps_by_clock(lines, "time") or _gaps_by_clock(lines, "elapsed_s")
    gaps = measured or [(gap, None) for gap in _gaps_by_count(lines, progress)]
    usual = median(gap for gap, _ in gaps) if gaps else progress.step_time_s
    usual = usual or progress.epoch_time_s
    if usual is None or usual <= 0:
        return None
    longest = max((gap for gap, _ in measured), default=0.0)
    times = USUAL_TIMES
    if len(measured) >= STEADY_GAPS:
        times = STEADY_TIMES
        longest = longest_expected(measured, usual, lines[-1].iteration)
    limit = max(times * usual, LONGEST_TIMES * longest)
    written = abs(lines[-1].offset - lines[0].offset) if lines else 0
    last = next(iter(file.pieces_reversed()), None)
    if last is not None and file.read(file.size - 1, 1) not in (b"\n", b"\r") and written:
        # its last line is not whole: it is written in blocks
        limit = max(limit, LONGEST_TIMES * BUFFER * sum(gap for gap, _ in gaps) / written)
    if last is not None and is_about_something_else(last.data[:400].decode("utf-8", "replace")):
        limit *= PAUSE_TIMES
    return Rhythm(usual, limit)


Gap = tuple[float, int | None]
"""The time between two lines about progress [s], and the count on the first of them."""


def longest_expected(gaps: Sequence[Gap], usual: float, count: int | None) -> float:
    """The longest gap to be expected after a line with this count.

    Pauses that recur after a number of steps, as evaluations and checkpoints do, are expected there
    only; any others at any time.
    """
    pauses = [(gap, at) for gap, at in gaps if gap >= PAUSED_TIMES * usual]
    longest = max((gap for gap, _ in gaps), default=0.0)
    steps = [at for _, at in pauses if at is not None]
    if len(steps) < max(FEWEST_PAUSES, len(pauses)) or count is None:
        return longest
    counts = [at for _, at in gaps if at is not None]
    line = max(1, round(median([b - a for a, b in pairwise(counts) if b > a] or [1])))
    between = [b - a for a, b in pairwise(steps)]
    period = min((steps for steps in between if steps > 0), default=0)
    if period <= 2 * line or any(_off(each, period) > line for each in between):
        return longest
    if _off(count - steps[-1], period) <= line:
        return longest
    return max((gap for gap, at in gaps if gap < PAUSED_TIMES * usual), default=longest)


def _off(steps: int, period: int) -> int:
    """How far a number of steps is from a multiple of the period."""
    return min(steps % period, -steps % period)


def _gaps_by_clock(lines: list[Sample], clock: str) -> list[Gap]:
    """Times between lines by their timestamps or elapsed time, which starts again with an epoch."""
    times = [(value, s.iteration) for s in lines if (value := getattr(s, clock)) is not None]
    return [(b - a, at) for (a, at), (b, _) in pairwise(times) if b > a]


def _gaps_by_count(lines: list[Sample], progress: Progress) -> list[float]:
    """The same by the steps or epochs between lines."""
    counts: list[float] = [line.iteration for line in lines if line.iteration is not None]
    step_s = progress.step_time_s
    if step_s is None:
        counts = [line.epoch for line in lines if line.epoch is not None]
        step_s = progress.epoch_time_s
    if step_s is None:
        return []
    return [(later - earlier) * step_s for earlier, later in pairwise(counts) if later > earlier]
