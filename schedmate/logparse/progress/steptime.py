"""Determines the step time, from the samples of one kind of line.

A stated time is checked against the series of that kind (`series.py`): timestamps, elapsed time,
the log's own estimate of the remaining time, the length of an epoch. Together they determine the
unit, and whether a time is that of one step or of all since the line before. A throughput gives a
step time by the number of samples or tokens in a step. Without such evidence there is no answer.
The time of an epoch is not used, as it includes evaluation. If a log contradicts its own
timestamps, a note says which time is used, and why.
"""

from __future__ import annotations

import math
from typing import Any

from schedmate.logparse.progress.collect import Facts
from schedmate.logparse.progress.line import Sample
from schedmate.logparse.progress.series import (
    AGREE_WITHIN,
    EQUAL_WITHIN,
    Spread,
    Tick,
    clock_resolution,
    clock_ticks,
    counter_rises,
    divide_among_steps,
    elapsed_is_clock,
    fills_epoch,
    is_mean_since_start,
    is_of_single_step,
    one_stream,
    pace,
    repeats_its_quantities,
    rises_with_steps,
    step_time_by_eta,
    steps_between_lines,
    times_agree,
    typical,
    while_advancing,
    without_epoch_starts,
)

FASTEST_NAMELESS = 0.002
"""A nameless counter faster than this by timestamps counts samples, not steps [s]."""
FASTEST_BAR = 0.02
"""A bar without name and metrics that is faster than this per count is not training [s]."""
BRIEF_BAR = 120.0
"""Nor is one that takes less time in all, if nothing else in the log mentions training [s]."""
OFTEN_RESTARTED = 10
"""A bar that restarts this often may take a quarter of that: epochs do."""
COARSE_RESOLUTION = 0.05
"""Stated times with a coarser relative resolution than this are less exact than timestamps."""
CLOSE_TO_CLOCK = 0.05
"""Relative difference above which an even clock is preferred to times of single steps."""
FEWEST_COUNTED = 3
"""Lines without signs of training that are needed to count something."""
LARGEST_UNITLESS = 60.0
"""A larger time without unit is taken as seconds only if something confirms it."""
FIRM_READINGS = 8
"""Even clock readings that are needed to note that they contradict the stated time."""


def step_time(
    group: list[Sample],
    facts: Facts,
    batch: int | None,
    *,
    training: bool = True,
    epoch_s: float | None = None,
) -> StepTime | None:
    """The step time by samples of one kind, the newest first, with its source and notes.

    `batch` is the global batch size if it is known from elsewhere, `training` whether other lines
    of the log mention training, `epoch_s` [s] the time of an epoch. None if the samples do not
    determine it.
    """
    ordered = group[::-1]
    counted = one_stream([s for s in ordered if s.iteration is not None])
    divide_among_steps(counted)
    clock = pace(clock_ticks(counted, "time"))
    if clock is not None and clock.median < FASTEST_NAMELESS and all(s.placed for s in counted):
        clock = None
    stated = _stated_time(ordered, counted, clock or _witness(counted), epoch_s)
    if stated is not None and group[0].reader != "tqdm" and is_mean_since_start(counted):
        recent = pace(clock_ticks(counted, "elapsed_s"))
        if recent is not None and not times_agree(recent.median, stated[0].median):
            stated = recent, "elapsed", ["the time stated is the mean since the start"]
    if stated is not None:
        return stated if _is_training(group, stated[0].median, facts, training) else None
    if elapsed_is_clock(counted) and (by_elapsed := pace(clock_ticks(counted, "elapsed_s"))):
        return by_elapsed, "elapsed", []
    if sampled := step_time_by_samples(ordered, counted, facts, batch):
        return _checked_by_clock(sampled, clock, worked_out=True)
    is_training_log = training or facts.speaks or group[0].reader not in ("general", "tqdm")
    if clock is not None and (
        any(s.training for s in counted) or (is_training_log and repeats_its_quantities(counted))
    ):
        many = clock.median < FASTEST_NAMELESS and not any(s.named for s in counted)
        return None if many else (clock, "timestamps", [])
    if read := step_time_by_tokens(ordered, counted, facts):
        return read
    if left := step_time_by_eta(counted):
        return left, "eta", []
    return None


def _witness(counted: list[Sample]) -> Spread | None:
    """Another source for the speed of steps on the lines: elapsed or remaining time."""
    if not counted or counted[-1].reader == "tqdm":  # its own rate is as good
        return None
    passed = pace(clock_ticks(counted, "elapsed_s")) if elapsed_is_clock(counted) else None
    return passed or step_time_by_eta(counted)


def _is_training(group: list[Sample], step_s: float, facts: Facts, training: bool) -> bool:
    """Whether a loop is training; one without name and metrics must show it.

    Such bars count files or samples far more often than training steps. A training bar is slow and
    has a total, and its log mentions training.
    """
    latest = group[0]
    if any(s.training for s in group):
        return True
    doubtful = latest.reader == "tqdm" or (latest.reader == "general" and not latest.unit)
    if doubtful and not (training or facts.speaks):
        return False  # files, samples, `step 3: 12` in any text
    if any(s.named for s in group):
        return True
    if step_s < FASTEST_BAR or (latest.reader == "tqdm" and latest.total is None):
        return False
    takes = step_s * (latest.total or latest.iteration or 0)
    return training or takes >= (BRIEF_BAR if latest.again < OFTEN_RESTARTED else BRIEF_BAR / 4)


def is_of_training(group: list[Sample], facts: Facts, *, training: bool) -> bool:
    """Whether lines without a step time count steps of training.

    Files, samples and the steps of a manual are counted too. Lines without signs of training count
    steps if they repeat the same quantities, in a log that mentions training.
    """
    if any(s.training for s in group) or group[0].reader not in ("general", "tqdm"):
        return True
    returns = any(s.returns for s in group)
    if not (training or returns or facts.speaks) or not any(s.named or s.epoch for s in group):
        return False
    if group[0].reader == "tqdm":
        return True
    counted = [s for s in group[::-1] if s.iteration is not None]
    return (
        len(counted) >= FEWEST_COUNTED
        and repeats_its_quantities(counted)
        and counter_rises(counted)
    )


def _stated_time(
    ordered: list[Sample], counted: list[Sample], clock: Spread | None, epoch_s: float | None
) -> StepTime | None:
    moving = while_advancing(ordered) if ordered[0].reader == "tqdm" else ordered
    timed = without_epoch_starts(
        [s for s in moving if s.step_time_s is not None and not s.since_last]
    )
    spread = typical([s.step_time_s for s in timed if s.step_time_s is not None])
    if spread is None:
        return None
    series = [Tick(s.step_time_s, s.iteration) for s in counted if s.step_time_s]  # type: ignore[arg-type]
    if timed[-1].bare:
        if rises_with_steps(series):
            total = pace(series)
            return (
                None if total is None else (total, "elapsed", ["`time` rises: it is the elapsed"])
            )
        if timed[-1].iteration is None:
            return None
    if timed[-1].unit and (not timed[-1].bare or timed[-1].reader != "general"):
        return _checked_by_clock((spread, "stated", []), clock, rated=timed[-1].rated)
    steps = steps_between_lines(counted)
    coarse = (
        clock_resolution([s.step_time_s or 0.0 for s in timed]) > COARSE_RESOLUTION * spread.median
    )
    alone = (
        timed[-1].beside_data
        or is_of_single_step(counted, spread.median, steps)
        or fills_epoch(timed[-1], spread.median, epoch_s)
    )
    decided = _decide_unit(spread, clock, steps, timed[-1], coarse=coarse, alone=alone)
    return decided and _checked_by_clock(decided, clock)


def _checked_by_clock(
    stated: StepTime, clock: Spread | None, *, rated: bool = False, worked_out: bool = False
) -> StepTime:
    """The stated time, or the one by the clock if steps cannot take as long as stated.

    If they take longer by the clock, there is work between them, which a note reports. A stated
    rate counts steps a second, which the clock shows as well: if the two always differ, it is the
    rate of something else, or the batch size by which it was converted is wrong.
    """
    if clock is None or not _is_firm(clock) or stated[1] not in ("stated", "samples"):
        return stated
    if times_agree(stated[0].median, clock.median):
        return stated
    if worked_out:
        return clock, "timestamps", [CLOCK_OVER_THROUGHPUT.format(stated[2][0], stated[0].median)]
    if rated:
        return clock, "timestamps", [CLOCK_OVER_RATE.format(1 / stated[0].median)]
    if stated[0].median > clock.median:
        return clock, "timestamps", [CLOCK_OVER_TOO_LONG.format(stated[0].median)]
    stated[2].append(STATED_OVER_CLOCK.format(clock.median))
    return stated


def _is_firm(clock: Spread) -> bool:
    """Whether a clock was read often enough and advances evenly."""
    even = clock.p90 - clock.p10 <= AGREE_WITHIN * clock.median
    return even and clock.n >= FIRM_READINGS and not clock.across


def _decide_unit(
    spread: Spread, clock: Spread | None, steps: int, latest: Sample, *, coarse: bool, alone: bool
) -> StepTime | None:
    """Whether a time without unit is of one step or of all since the line before, and its unit."""
    notes: list[str] = []
    factors = {1.0: ""}
    if steps > 1:
        factors[1 / steps] = f"the time stated is that of {steps} iterations"
    if not latest.unit:
        factors[0.001] = "times without unit are milliseconds, as the timestamps show"
        if steps > 1:
            factors[0.001 / steps] = f"the time stated is that of {steps} iterations in ms"
    if clock is not None:
        fits = {abs(math.log(spread.median * factor / clock.median)): factor for factor in factors}
        best = min(fits)
        if best > math.log(1 + AGREE_WITHIN):
            # evaluation and checkpoints between the lines may explain a longer clock time
            if spread.median > clock.median:
                return clock, "timestamps", [CLOCK_OVER_UNITLESS.format(spread.median)]
            factor = 1.0
        else:
            factor = fits[best]
            if coarse:
                return clock, "timestamps", [CLOCK_OVER_COARSE.format(spread.median * factor)]
            if (
                factor == 1.0
                and steps > 1
                and _is_firm(clock)
                and not times_agree(spread.median, clock.median, CLOSE_TO_CLOCK)
            ):
                return clock, "timestamps", [CLOCK_OVER_LATEST_STEP.format(spread.median)]
    elif not latest.unit and spread.median > LARGEST_UNITLESS:
        return None
    elif (
        latest.bare
        and latest.reader == "general"
        and steps > 1
        and not alone
        and not _eta_fits(latest, spread)
    ):
        return None  # of one iteration, or of all since the last line: nothing tells
    else:
        factor = 1.0
        if not latest.unit:
            notes.append("a time without unit is taken for seconds")
    if factors[factor]:
        notes.append(factors[factor])
    return spread.times(factor), "stated", notes


def _eta_fits(latest: Sample, spread: Spread) -> bool:
    """Whether the log's own estimate of the remaining time is based on this step time."""
    if not latest.eta_s or latest.total is None or latest.iteration is None or latest.in_epoch:
        return False
    left = (latest.total - latest.iteration) * spread.median
    return left > 0 and times_agree(left, latest.eta_s)


# Step times derived from throughput: samples or tokens a second, and their number in a step.


StepTime = tuple[Spread, Any, list[str]]
"""A step time, its source, and notes on how it was chosen."""


def step_time_by_tokens(
    ordered: list[Sample], counted: list[Sample], facts: Facts
) -> StepTime | None:
    speeds = typical([s.tokens_per_s for s in ordered if s.tokens_per_s])
    if speeds is None:
        return None
    size = _one_size([s.step_tokens for s in ordered]) or facts.tokens
    seen = pace([Tick(float(s.tokens), s.iteration) for s in counted if s.tokens])  # type: ignore[arg-type]
    if seen is not None and seen.p90 - seen.p10 <= EQUAL_WITHIN * seen.median:
        size = round(seen.median)
    if not size:
        return None
    times = Spread(size / speeds.median, size / speeds.p90, size / speeds.p10, speeds.n)
    return times, "samples", [f"{size:,} tokens a step"]


def _one_size(sizes: list[int | None]) -> int | None:
    """The size that nearly all lines state, or None."""
    distinct = {size for size in sizes[:-1] or sizes if size}
    return distinct.pop() if len(distinct) == 1 else None


def step_time_by_samples(
    ordered: list[Sample], counted: list[Sample], facts: Facts, batch: int | None
) -> StepTime | None:
    speeds = typical([s.samples_per_s for s in ordered if s.samples_per_s])
    if speeds is None:
        return None
    note = "batch size from the job's metadata"
    size = batch
    if (stated := next((s.batch for s in reversed(ordered) if s.batch), None)) is not None:
        size, note = stated, f"batch size {stated} from the same line"
    elif seen := pace([Tick(float(s.samples), s.iteration) for s in counted if s.samples]):  # type: ignore[arg-type]
        size, note = round(seen.median), f"batch size {round(seen.median)} from the samples seen"
    elif facts.batch is not None:
        size, note = facts.batch, f"batch size {facts.batch} from the beginning of the log"
    elif (line := _one_size([s.line_batch for s in ordered])) is not None:
        size, note = line, f"batch size {line} from the same line"
    elif facts.plain_batch is not None:
        size = facts.plain_batch
        note = f"batch size {size} from the beginning of the log, which speaks of no other device"
    if not size:
        return None
    times = Spread(size / speeds.median, size / speeds.p90, size / speeds.p10, speeds.n)
    return times, "samples", [note]


# Which time is used if a log contradicts its own timestamps, and why.


CLOCK_OVER_UNITLESS = (
    "the log states a time of {:.3g} that does not say its unit; the timestamps are believed, as "
    "lines come faster than that"
)
CLOCK_OVER_COARSE = (
    "the log states {:.3g} s a step with few digits; the timestamps, which say more, are believed"
)
CLOCK_OVER_LATEST_STEP = (
    "the log states {:.3g} s for the latest step only; the timestamps, which are even and cover "
    "all steps, are believed"
)
CLOCK_OVER_TOO_LONG = (
    "the log states {:.3g} s a step; the timestamps, which are even, leave no room for steps that "
    "long and are believed"
)
STATED_OVER_CLOCK = (
    "by the timestamps a step takes {:.3g} s; the time stated is believed, as it is that of a step "
    "alone and the timestamps also hold what is done between steps"
)
CLOCK_OVER_RATE = (
    "the rate stated is {:.3g} steps a second; the timestamps, which are even and cover all steps, "
    "show another one and are believed"
)
CLOCK_OVER_THROUGHPUT = (
    "{} would make a step take {:.3g} s; the timestamps, which are even and need no batch size, "
    "show another time and are believed"
)
