"""Identifies the numbers of one kind of line by how they behave over the end of a log.

Labels are the prior, behaviour is the evidence. A time that rises with the counter is a clock, not
a step time; one that falls as fast as the remaining work predicts the end of the run. A number that
rises by the same amount from line to line is a counter, whatever its name; of two counters on a
line, the one that restarts whenever the other advances belongs to the inner loop. `pace` turns
clocks and counters into seconds a step, without stalls.

Functions take samples of one kind in the order of the log unless they say otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from schedmate.logparse.progress.line import Sample

FEWEST_LINES = 5
"""Minimum number of lines to identify a number by its behaviour."""
EVEN_SHARE = 0.8
"""Share of the differences between lines that must equal the usual one, or have its sign."""
EQUAL_WITHIN = 0.02
"""Relative tolerance for equal values."""
AGREE_WITHIN = 0.3
"""Relative difference up to which two ways to determine a step time agree."""
ETA_TICKS = 10
"""The remaining time must be this many times its own resolution."""
FEWEST_TIMES = 3
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
    if len(counted) < FEWEST_LINES:
        return
    for key in sorted({key for s in counted for key, _ in s.unread}):
        series = [(s, value) for s in counted for name, value in s.unread if name == key]
        if len(series) < max(FEWEST_LINES, EVEN_SHARE * len(counted)):
            continue
        ticks = [Tick(value, s.iteration or 0) for s, value in series]
        clocked = any(s.elapsed_s is not None or s.time is not None for s, _ in series)
        if not clocked and _rises_over_days(ticks):
            for sample, value in series:
                sample.elapsed_s = value
        elif all(s.eta_s is None for s, _ in series) and _rises_over_days(
            [t._replace(clock=-t.clock) for t in ticks]
        ):
            for sample, value in series:
                sample.eta_s = value


def clock_ticks(samples: list[Sample], clock: str) -> list[Tick]:
    """The field `clock` with the counter of each sample.

    A rounded counter, `49K`, is used only where it changes: there it is known to within the
    distance of two lines, and few readings far apart keep the error small.
    """
    ticks = [
        Tick(value, s.iteration, None if s.epoch is None else int(s.epoch))
        for s in samples
        if (value := getattr(s, clock)) is not None and s.iteration is not None
    ]
    if any(s.grain > 1 for s in samples):
        turns = [b for a, b in pairwise(ticks) if b.steps != a.steps]
        return turns[:: max(1, (len(turns) - 1) // 2)]
    return ticks


def rises_with_steps(ticks: Sequence[Tick]) -> bool:
    """Whether a time rises with the iterations as a clock does; it may restart with them."""
    pairs = [(a, b) for a, b in pairwise(ticks) if b.steps > a.steps]
    return len(pairs) >= FEWEST_TIMES and all(b.clock > a.clock for a, b in pairs)


def _rises_over_days(ticks: Sequence[Tick]) -> bool:
    """Whether a time rises as in `rises_with_steps`, if it may also restart at midnight."""
    pairs = [(a, b) for a, b in pairwise(ticks) if b.steps > a.steps]
    return len(pairs) >= FEWEST_TIMES and sum(b.clock > a.clock for a, b in pairs) >= 0.9 * len(
        pairs
    )


def elapsed_is_clock(samples: list[Sample]) -> bool:
    """Whether an elapsed time is a clock, not the time since the line before.

    A clock restarts with a run or an epoch and otherwise rises from line to line.
    """
    ticks = clock_ticks(samples, "elapsed_s")
    pairs = [(a, b) for a, b in pairwise(ticks) if b.steps > a.steps and a.epoch == b.epoch]
    return sum(b.clock >= a.clock for a, b in pairs) >= EVEN_SHARE * len(pairs)


def is_mean_since_start(counted: list[Sample]) -> bool:
    """Whether the stated step time is only the elapsed time divided by the steps."""
    means = [
        (s.step_time_s, s.elapsed_s / s.iteration)
        for s in counted
        if s.step_time_s and s.elapsed_s and s.iteration and not s.since_last
    ]
    return len(means) >= FEWEST_TIMES and all(
        abs(one / mean - 1) < EQUAL_WITHIN for one, mean in means
    )


def counter_rises(samples: list[Sample]) -> bool:
    """Whether a counter rises from line to line, except where it restarts with an epoch."""
    counts = [(s.epoch or 0, s.iteration or 0) for s in one_stream(samples)]
    up = [b > a for a, b in pairwise(counts)]
    return sum(up) >= EVEN_SHARE * len(up)


def repeats_its_quantities(counted: list[Sample]) -> bool:
    """Whether lines name their counter and state the same quantities; `Step 1: load` does not."""
    wordings = Counter(s.wording for s in counted if s.named)
    return bool(wordings) and 2 * wordings.most_common(1)[0][1] >= len(counted)


def without_epoch_starts(timed: list[Sample]) -> list[Sample]:
    """The samples without the first line of each epoch, which includes its start, if possible."""
    later = timed[:1] + [b for a, b in pairwise(timed) if a.epoch == b.epoch]
    return later if len(later) >= max(3, len(timed) // 3) else timed


def while_advancing(samples: list[Sample]) -> list[Sample]:
    """The samples without redraws of a bar that does not advance."""
    first = samples[:1]
    return first + [
        b
        for a, b in pairwise(samples)
        if (a.epoch, a.iteration) != (b.epoch, b.iteration) or None in (b.epoch, b.elapsed_s)
    ]


def is_of_single_step(counted: list[Sample], typical_s: float, every: int) -> bool:
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
    return epoch_s / 2 <= step_s * latest.total <= epoch_s * (1 + AGREE_WITHIN / 3)


def divide_among_steps(counted: list[Sample]) -> None:
    """Divide times that cover all iterations since the line before by their number."""
    older: Sample | None = None
    for sample in counted:
        if sample.since_last and sample.step_time_s is not None:
            steps = (sample.iteration or 0) - (older.iteration or 0) if older else 0
            sample.step_time_s = sample.step_time_s / steps if steps > 0 else None
            sample.since_last = False
        older = sample


def step_time_by_eta(counted: list[Sample]) -> Spread | None:
    """The step time by the log's own estimate of when the run or epoch will end."""
    left = [
        (s.eta_s, s.total - s.iteration)
        for s in counted
        if s.eta_s and s.total is not None and s.iteration is not None and not s.in_epoch
    ]
    if len(left) < FEWEST_TIMES or any(s.again for s in counted):
        return None
    finest = clock_resolution([eta for eta, _ in left])
    spread = typical(
        [eta / steps for eta, steps in left if steps > 0 and eta >= ETA_TICKS * finest]
    )
    if (
        spread is None
        or spread.n < FEWEST_TIMES
        or spread.p90 - spread.p10 > AGREE_WITHIN * spread.median
    ):
        return None
    shrinks = pace([Tick(-eta, -steps) for eta, steps in left])  # as fast as what is left to do
    return spread if shrinks is not None and times_agree(shrinks.median, spread.median) else None


def times_agree(one: float, other: float, within: float = AGREE_WITHIN) -> bool:
    """Whether two step times are equal, except for work between steps."""
    return abs(math.log(one / other)) <= math.log(1 + within)


def steps_between_lines(counted: list[Sample]) -> int:
    """The number of iterations between neighbouring lines."""
    if counted and counted[-1].grain > 1:
        passed = (counted[-1].iteration or 0) - (counted[0].iteration or 0)
        return max(1, round(passed / max(1, len(counted) - 1)))
    return usual_interval([Tick(0.0, s.iteration or 0) for s in counted])


# Which number on one kind of line is the step counter, and which one counts epochs.
#
# A number that rises by the same amount from line to line is a counter, whatever its name. Of two
# counters on a line, the one that restarts whenever the other advances belongs to the inner loop.


def find_counter(samples: list[Sample]) -> None:
    """Set `iteration` of samples whose counter has no name.

    The counter is the first of their nameless whole numbers that rises from line to line, nearly
    always by the same amount. Without one, the samples are unchanged.
    """
    if len(samples) < FEWEST_LINES or any(s.iteration is not None for s in samples):
        return
    for index in range(min(len(sample.nameless) for sample in samples)):
        counts = [sample.nameless[index] for sample in samples]
        outer = _outer_counter(samples, counts, index)
        steps = [
            b - a
            for (a, b), (before, after) in zip(pairwise(counts), pairwise(outer), strict=True)
            if before == after
        ]
        usual = sorted(steps)[len(steps) // 2] if len(steps) >= FEWEST_LINES - 2 else 0
        if usual > 0 and sum(step == usual for step in steps) >= EVEN_SHARE * len(steps):
            for sample, count, epoch in zip(samples, counts, outer, strict=True):
                sample.iteration = count
                if epoch is not None:
                    sample.epoch, sample.in_epoch = float(epoch), True
            return


def _outer_counter(samples: list[Sample], counts: list[int], index: int) -> Sequence[float | None]:
    """The epochs in which a counter restarts, by name or by a number before it; None without."""
    candidates: list[list[float | None]] = [[s.epoch for s in samples]]
    candidates += [[s.nameless[other] for s in samples] for other in range(index)]
    for outer in candidates:
        if any(epoch is None for epoch in outer):
            continue
        turns = [
            (after - before, b < a)  # type: ignore[operator]
            for (before, after), (a, b) in zip(pairwise(outer), pairwise(counts), strict=True)
            if after != before or b < a
        ]
        if turns and all(step == 1 and anew for step, anew in turns):
            return outer
    named = candidates[0]
    constant = named[0] is not None and len(set(named)) == 1
    return named if constant else [None] * len(samples)


def make_epoch_times(samples: list[Sample]) -> None:
    """Turn a time without a counter within the epoch into the time of an epoch."""
    for sample in samples:
        if sample.nameless and sample.epoch is not None and sample.iteration is None:
            if sample.bare and sample.reader == "general":
                sample.epoch_time_s = sample.step_time_s
            sample.step_time_s, sample.bare = None, False


def swap_totals(groups: dict[str, list[Sample]]) -> None:
    """Swap counter and total if the total is what counts: `(3/1490)`, `(3/1491)`.

    Groups are lines of one kind by their totals. Takes groups of the newest first and merges those
    it corrects into one.
    """
    kinds: dict[str, list[Sample]] = {}
    for name, group in groups.items():
        if group[0].reader == "general" and not group[0].named and group[0].total is not None:
            kinds.setdefault(name.rpartition(" of ")[0], []).extend(group)
    for kind, samples in kinds.items():
        samples.sort(key=lambda s: -s.offset)
        up = [(a.total or 0) > (b.total or 0) for a, b in pairwise(samples)]
        if len(samples) < FEWEST_LINES or sum(up) < EVEN_SHARE * len(up):
            continue
        for name in [n for n in groups if n.rpartition(" of ")[0] == kind]:
            del groups[name]
        for sample in samples:
            sample.group, sample.nameless = kind, (sample.iteration or 0, sample.total or 0)
            sample.iteration = sample.total = None
        groups[kind] = samples


def choose_inner_counter(samples: list[Sample]) -> None:
    """Decide between two counters on each line: which one is the inner loop's, if they are nested.

    `iteration: 7 step: 26/29` advances evenly in total, 7 x 29 + 26, if the outer counter is one of
    epochs; if it counts the same steps, the outer counter advances evenly by itself.
    """
    if len(samples) < FEWEST_LINES or any(s.outer is None or not s.total for s in samples):
        return
    inner = [s.iteration or 0 for s in samples]
    outer = [s.outer or 0 for s in samples]
    run = [a * (s.total or 0) + b for s, a, b in zip(samples, outer, inner, strict=True)]
    counts = max((inner, outer, run), key=_evenness)
    if counts is inner:
        return
    for sample, count in zip(samples, counts, strict=True):
        if counts is run and sample.epoch is None:
            sample.epoch = float(sample.outer or 0)
        sample.iteration, sample.total, sample.in_epoch = count, None, False


def _evenness(counts: list[int]) -> float:
    """The share of differences equal to the usual one, which must be positive."""
    steps = Counter(b - a for a, b in pairwise(counts))
    step, often = steps.most_common(1)[0]
    return often / len(counts) if step > 0 else 0.0


# From readings to one number: outliers removed, the median, and clocks turned into a pace.


STALL_FACTOR = 3.0
"""Factor above the median that makes a reading a stall (checkpoint, evaluation, first steps).

A reading below the median by this factor is not of a step.
"""
FEWEST_TICKS = 10
"""A difference of clock readings must be this many times their resolution to count."""
PLENTY_OF_TICKS = 40
"""Minimum as `FEWEST_TICKS` if there are many readings: a longer difference has less error."""
MOST_WEIGHT = 1000
"""Limit for the weight of one reading."""
ENOUGH_RATES = 4


class Spread(NamedTuple):
    """A median with the 10th and 90th percentile of `n` readings."""

    median: float
    p10: float
    p90: float
    n: int
    across: bool = False
    """Whether the readings span epochs, with possible work between them."""

    def times(self, factor: float) -> Spread:
        """The readings in another unit: multiplied by `factor`."""
        return self._replace(
            median=self.median * factor, p10=self.p10 * factor, p90=self.p90 * factor
        )


def typical(readings: Sequence[float]) -> Spread | None:
    """The median of the readings without outliers, or None without readings."""
    if not readings:
        return None
    middle = median(readings)
    usual = sorted(
        value for value in readings if middle / STALL_FACTOR <= value <= middle * STALL_FACTOR
    )
    last = len(usual) - 1
    return Spread(median(usual), usual[round(0.1 * last)], usual[round(0.9 * last)], len(usual))


def _typical_step(rates: Sequence[tuple[float, int]]) -> Spread | None:
    """The spread of the time per step [s], from readings (seconds per step, steps covered)."""
    least = min((steps for _, steps in rates), default=1)
    return typical([rate for rate, steps in rates for _ in range(min(MOST_WEIGHT, steps // least))])


class Tick(NamedTuple):
    """A clock [s] and a counter on one line, with the epoch if the line states it."""

    clock: float
    steps: int
    epoch: int | None = None


def pace(ticks: Sequence[Tick]) -> Spread | None:
    """Seconds per count between readings in the order of the log.

    A counter or a clock that falls starts a new run (a new epoch, a restart). If the clock's
    resolution is coarse relative to the differences, several are combined. An evaluation may lie
    between two epochs, so differences across epochs count only if there are no others.
    """
    inside = _pace_of_runs(ticks, across=False)
    if inside is not None:
        return inside
    spread = _pace_of_runs(ticks, across=True)
    return spread and spread._replace(across=len({tick.epoch for tick in ticks}) > 1)


def _pace_of_runs(ticks: Sequence[Tick], *, across: bool) -> Spread | None:
    finest = clock_resolution([tick.clock for tick in ticks])
    for least in (PLENTY_OF_TICKS * finest, FEWEST_TICKS * finest):
        runs = _rates(ticks, least, across=across)
        rates = [rate for run in runs for rate in run]
        if len(rates) >= ENOUGH_RATES:
            break
    else:
        # of a few, those of the run before may be of another speed altogether
        rates = next((run for run in reversed(runs) if run), [])
    spread = _typical_step(rates)
    return spread and spread._replace(n=min(spread.n, len(rates)))


def _rates(ticks: Sequence[Tick], least: float, *, across: bool) -> list[list[tuple[float, int]]]:
    """Seconds per count between readings at least this many seconds apart, and counts, by run."""
    runs: list[list[tuple[float, int]]] = [[]]
    start: Tick | None = None
    previous: Tick | None = None
    for tick in ticks:
        if (
            previous is None
            or tick.steps < previous.steps
            or tick.clock < previous.clock
            or (tick.epoch != previous.epoch and not across)
        ):
            start = previous = tick
            runs.append([])
            continue
        previous = tick
        assert start is not None
        if tick.steps == start.steps:
            start = tick  # started anew, or written by several
        passed, counted = tick.clock - start.clock, tick.steps - start.steps
        if counted > 0 and passed >= least:
            runs[-1].append((passed / counted, counted))
            start = tick
    return runs


def usual_interval(ticks: Sequence[Tick]) -> int:
    """The usual number of counts between neighbouring readings; at least 1."""
    intervals = [b.steps - a.steps for a, b in pairwise(ticks) if b.steps > a.steps]
    return max(1, round(median(intervals))) if intervals else 1


def clock_resolution(clocks: Sequence[float]) -> float:
    """The resolution of readings [s]: 60, 1, 0.1, 0.01 or 0.001 s."""
    even = len({b - a for a, b in pairwise(clocks)}) == 1  # one line a minute, and not rounded
    for unit in (1.0, 0.1, 0.01) if even else (60.0, 1.0, 0.1, 0.01):
        if all(abs(clock / unit - round(clock / unit)) < 1e-4 for clock in clocks):
            return unit
    return 0.001
