"""One kind of line as series over the end of a log: numbers are identified by how they behave.

Labels are the prior, behaviour is the evidence; `counters.py` does the same for counters. A time
that rises with the counter is a clock, not a step time; one that falls as fast as the remaining
work predicts the end of the run.

All functions take samples of one kind in the order of the log unless they say otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from schedmate.logparse.progress.pace import Spread, Tick, interval, pace, resolution, typical
from schedmate.logparse.progress.sample import Sample

FEWEST = 5
"""Minimum number of lines to identify a number by its behaviour."""
EVEN = 0.8
"""Share of the differences between lines that must equal the usual one, or have its sign."""
SAME = 0.02
"""Relative tolerance for equal values."""
AGREE = 0.3
"""Relative difference up to which two ways to determine a step time agree."""
TICKS = 10
"""The remaining time must be this many times its own resolution."""
FEW = 3
"""Minimum number of readings of the remaining time, or of the mean since the start."""


def one_stream(samples: list[Sample]) -> list[Sample]:
    """The samples of the rank or process that wrote most of them."""
    streams: dict[str, list[Sample]] = {}
    for sample in samples:
        streams.setdefault(sample.stream, []).append(sample)
    return max(streams.values(), key=len, default=[])


def find_times(samples: list[Sample]) -> None:
    """Set `elapsed_s` or `eta_s` from times with unknown names, if neither has been read.

    A time that rises with the counter is the elapsed time; one that falls as fast as it states
    itself is the remaining time.
    """
    counted = one_stream([s for s in samples if s.iteration is not None])
    if len(counted) < FEWEST:
        return
    for key in sorted({key for s in counted for key, _ in s.unread}):
        series = [(s, value) for s in counted for name, value in s.unread if name == key]
        if len(series) < max(FEWEST, EVEN * len(counted)):
            continue
        found = [Tick(value, s.iteration or 0) for s, value in series]
        clocked = any(s.elapsed_s is not None or s.time is not None for s, _ in series)
        if not clocked and _goes_on(found):
            for sample, value in series:
                sample.elapsed_s = value
        elif all(s.eta_s is None for s, _ in series) and _goes_on(
            [t._replace(clock=-t.clock) for t in found]
        ):
            for sample, value in series:
                sample.eta_s = value


def ticks(samples: list[Sample], clock: str) -> list[Tick]:
    """The field `clock` with the counter of each sample.

    A rounded counter, `49K`, is used only where it changes: there it is known to within the
    distance of two lines, and few readings far apart keep the error small.
    """
    found = [
        Tick(value, s.iteration, None if s.epoch is None else int(s.epoch))
        for s in samples
        if (value := getattr(s, clock)) is not None and s.iteration is not None
    ]
    if any(s.grain > 1 for s in samples):
        turns = [b for a, b in pairwise(found) if b.steps != a.steps]
        return turns[:: max(1, (len(turns) - 1) // 2)]
    return found


def rises(ticks: Sequence[Tick]) -> bool:
    """Whether a time rises with the iterations as a clock does; it may restart with them."""
    pairs = [(a, b) for a, b in pairwise(ticks) if b.steps > a.steps]
    return len(pairs) >= FEW and all(b.clock > a.clock for a, b in pairs)


def _goes_on(ticks: Sequence[Tick]) -> bool:
    """The same for the time of day, which restarts at midnight."""
    pairs = [(a, b) for a, b in pairwise(ticks) if b.steps > a.steps]
    return len(pairs) >= FEW and sum(b.clock > a.clock for a, b in pairs) >= 0.9 * len(pairs)


def runs_on(samples: list[Sample]) -> bool:
    """Whether an elapsed time is a clock, not the time since the line before.

    A clock restarts with a run or an epoch and otherwise rises from line to line.
    """
    found = ticks(samples, "elapsed_s")
    pairs = [(a, b) for a, b in pairwise(found) if b.steps > a.steps and a.epoch == b.epoch]
    return sum(b.clock >= a.clock for a, b in pairs) >= EVEN * len(pairs)


def is_mean_since_start(counted: list[Sample]) -> bool:
    """Whether the stated step time is only the elapsed time divided by the steps."""
    means = [
        (s.step_time_s, s.elapsed_s / s.iteration)
        for s in counted
        if s.step_time_s and s.elapsed_s and s.iteration and not s.since_last
    ]
    return len(means) >= FEW and all(abs(one / mean - 1) < SAME for one, mean in means)


def counts_on(samples: list[Sample]) -> bool:
    """Whether a counter rises from line to line, except where it restarts with an epoch."""
    counts = [(s.epoch or 0, s.iteration or 0) for s in one_stream(samples)]
    up = [b > a for a, b in pairwise(counts)]
    return sum(up) >= EVEN * len(up)


def says_the_same(counted: list[Sample]) -> bool:
    """Whether lines name their counter and state the same quantities; `Step 1: load` does not."""
    wordings = Counter(s.wording for s in counted if s.named)
    return bool(wordings) and 2 * wordings.most_common(1)[0][1] >= len(counted)


def steady(timed: list[Sample]) -> list[Sample]:
    """The samples without the first line of each epoch, which includes its start, if possible."""
    later = timed[:1] + [b for a, b in pairwise(timed) if a.epoch == b.epoch]
    return later if len(later) >= max(3, len(timed) // 3) else timed


def while_moving(samples: list[Sample]) -> list[Sample]:
    """The samples without redraws of a bar that does not advance."""
    first = samples[:1]
    return first + [
        b
        for a, b in pairwise(samples)
        if (a.epoch, a.iteration) != (b.epoch, b.iteration) or None in (b.epoch, b.elapsed_s)
    ]


def is_of_one(counted: list[Sample], typical_s: float, every: int) -> bool:
    """Whether the first line of an epoch, which has one step behind it, states the time of others.

    The very first one pays for starting up; a time of all steps since the line before would be
    smaller by as much as the steps are fewer.
    """
    starts = [
        b.step_time_s
        for a, b in pairwise(counted)
        if b.iteration in (0, 1) and (a.iteration or 0) > every and b.step_time_s is not None
    ]
    near = [s for s in starts if typical_s / 2 <= s <= typical_s * 2]
    return len(near) >= 2 and 2 * len(near) >= len(starts)


def fills_epoch(latest: Sample, step_s: float, epoch_s: float | None) -> bool:
    """Whether all steps of an epoch, of this time each, make up most of it."""
    if epoch_s is None or not latest.in_epoch or latest.total is None:
        return False
    return epoch_s / 2 <= step_s * latest.total <= epoch_s * (1 + AGREE / 3)


def share_out(counted: list[Sample]) -> None:
    """Divide times that cover all iterations since the line before by their number."""
    older: Sample | None = None
    for sample in counted:
        if sample.since_last and sample.step_time_s is not None:
            steps = (sample.iteration or 0) - (older.iteration or 0) if older else 0
            sample.step_time_s = sample.step_time_s / steps if steps > 0 else None
            sample.since_last = False
        older = sample


def by_what_is_left(counted: list[Sample]) -> Spread | None:
    """The step time by the log's own estimate of when the run or epoch will end."""
    left = [
        (s.eta_s, s.total - s.iteration)
        for s in counted
        if s.eta_s and s.total is not None and s.iteration is not None and not s.in_epoch
    ]
    if len(left) < FEW or any(s.again for s in counted):
        return None
    finest = resolution([eta for eta, _ in left])
    found = typical([eta / steps for eta, steps in left if steps > 0 and eta >= TICKS * finest])
    if found is None or found.n < FEW or found.p90 - found.p10 > AGREE * found.median:
        return None
    shrinks = pace([Tick(-eta, -steps) for eta, steps in left])  # as fast as what is left to do
    return found if shrinks is not None and agree(shrinks.median, found.median) else None


def agree(one: float, other: float, within: float = AGREE) -> bool:
    """Whether two step times are equal, except for work between steps."""
    return abs(math.log(one / other)) <= math.log(1 + within)


def every(counted: list[Sample]) -> int:
    """The number of iterations between neighbouring lines."""
    if counted and counted[-1].grain > 1:
        passed = (counted[-1].iteration or 0) - (counted[0].iteration or 0)
        return max(1, round(passed / max(1, len(counted) - 1)))
    return interval([Tick(0.0, s.iteration or 0) for s in counted])
