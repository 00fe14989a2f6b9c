"""The step time, from the samples of one kind of line.

A stated time is checked against the series of that kind (`series.py`): timestamps, elapsed time,
the log's own estimate of the remaining time, the length of an epoch. Together they determine the
unit, and whether a time is that of one step or of all since the line before. Without such evidence
there is no answer. The time of an epoch is not used, as it includes evaluation.
"""

from __future__ import annotations

import math

from schedmate.logparse.progress import disputes
from schedmate.logparse.progress.facts import Facts
from schedmate.logparse.progress.pace import Spread, Tick, pace, resolution, typical
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.series import (
    AGREE,
    agree,
    by_what_is_left,
    counts_on,
    every,
    fills_epoch,
    is_mean_since_start,
    is_of_one,
    one_stream,
    rises,
    runs_on,
    says_the_same,
    share_out,
    steady,
    ticks,
    while_moving,
)
from schedmate.logparse.progress.speeds import Found, by_samples, by_tokens

SAMPLES = 0.002
"""A nameless counter faster than this by timestamps counts samples, not steps [s]."""
FASTEST = 0.02
"""A bar without name and metrics that is faster than this per count is not training [s]."""
BRIEF = 120.0
"""Nor is one that takes less time in all, if nothing else in the log mentions training [s]."""
AGAIN = 10
"""A bar that restarts this often may take a quarter of that: epochs do."""
COARSE = 0.05
"""Stated times with a coarser relative resolution than this are less exact than timestamps."""
CLOSE = 0.05
"""Relative difference above which an even clock is preferred to times of single steps."""
COUNTED = 3
"""Lines without signs of training that are needed to count something."""
UNITLESS = 60.0
"""A larger time without unit is taken as seconds only if something confirms it."""
FIRM = 8
"""Even clock readings that are needed to note that they contradict the stated time."""


def step_time(
    group: list[Sample],
    facts: Facts,
    batch: int | None,
    *,
    training: bool = True,
    epoch_s: float | None = None,
) -> Found | None:
    """The step time by samples of one kind, the newest first, with its source and notes.

    `batch` is the global batch size if it is known from elsewhere, `training` whether other lines
    of the log mention training, `epoch_s` [s] the time of an epoch. None if the samples do not
    determine it.
    """
    ordered = group[::-1]
    counted = one_stream([s for s in ordered if s.iteration is not None])
    share_out(counted)
    clock = pace(ticks(counted, "time"))
    if clock is not None and clock.median < SAMPLES and all(s.placed for s in counted):
        clock = None
    stated = _stated(ordered, counted, clock or _witness(counted), epoch_s)
    if stated is not None and group[0].reader != "tqdm" and is_mean_since_start(counted):
        recent = pace(ticks(counted, "elapsed_s"))
        if recent is not None and not agree(recent.median, stated[0].median):
            stated = recent, "elapsed", ["the time stated is the mean since the start"]
    if stated is not None:
        return stated if _is_training(group, stated[0].median, facts, training) else None
    if runs_on(counted) and (found := pace(ticks(counted, "elapsed_s"))):
        return found, "elapsed", []
    if sampled := by_samples(ordered, counted, facts, batch):
        return _checked(sampled, clock, worked_out=True)
    known = training or facts.speaks or group[0].reader not in ("general", "tqdm")
    if clock is not None and (
        any(s.training for s in counted) or (known and says_the_same(counted))
    ):
        many = clock.median < SAMPLES and not any(s.named for s in counted)
        return None if many else (clock, "timestamps", [])
    if read := by_tokens(ordered, counted, facts):
        return read
    if left := by_what_is_left(counted):
        return left, "eta", []
    return None


def _witness(counted: list[Sample]) -> Spread | None:
    """Another source for the speed of steps on the lines: elapsed or remaining time."""
    if not counted or counted[-1].reader == "tqdm":  # its own rate is as good
        return None
    passed = pace(ticks(counted, "elapsed_s")) if runs_on(counted) else None
    return passed or by_what_is_left(counted)


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
    if step_s < FASTEST or (latest.reader == "tqdm" and latest.total is None):
        return False
    takes = step_s * (latest.total or latest.iteration or 0)
    return training or takes >= (BRIEF if latest.again < AGAIN else BRIEF / 4)


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
    return len(counted) >= COUNTED and says_the_same(counted) and counts_on(counted)


def _stated(
    ordered: list[Sample], counted: list[Sample], clock: Spread | None, epoch_s: float | None
) -> Found | None:
    moving = while_moving(ordered) if ordered[0].reader == "tqdm" else ordered
    timed = steady([s for s in moving if s.step_time_s is not None and not s.since_last])
    found = typical([s.step_time_s for s in timed if s.step_time_s is not None])
    if found is None:
        return None
    series = [Tick(s.step_time_s, s.iteration) for s in counted if s.step_time_s]  # type: ignore[arg-type]
    if timed[-1].bare:
        if rises(series):
            total = pace(series)
            return (
                None if total is None else (total, "elapsed", ["`time` rises: it is the elapsed"])
            )
        if timed[-1].iteration is None:
            return None
    if timed[-1].unit and (not timed[-1].bare or timed[-1].reader != "general"):
        return _checked((found, "stated", []), clock, rated=timed[-1].rated)
    steps = every(counted)
    coarse = resolution([s.step_time_s or 0.0 for s in timed]) > COARSE * found.median
    alone = (
        timed[-1].beside_data
        or is_of_one(counted, found.median, steps)
        or fills_epoch(timed[-1], found.median, epoch_s)
    )
    decided = _decide(found, clock, steps, timed[-1], coarse=coarse, alone=alone)
    return decided and _checked(decided, clock)


def _checked(
    stated: Found, clock: Spread | None, *, rated: bool = False, worked_out: bool = False
) -> Found:
    """The stated time, or the one by the clock if steps cannot take as long as stated.

    If they take longer by the clock, there is work between them, which a note reports. A stated
    rate counts steps a second, which the clock shows as well: if the two always differ, it is the
    rate of something else, or the batch size by which it was converted is wrong.
    """
    if clock is None or not _is_firm(clock) or stated[1] not in ("stated", "samples"):
        return stated
    if agree(stated[0].median, clock.median):
        return stated
    if worked_out:
        return clock, "timestamps", [disputes.WORKED_OUT.format(stated[2][0], stated[0].median)]
    if rated:
        return clock, "timestamps", [disputes.RATE.format(1 / stated[0].median)]
    if stated[0].median > clock.median:
        return clock, "timestamps", [disputes.TOO_LONG.format(stated[0].median)]
    stated[2].append(disputes.SHORTER.format(clock.median))
    return stated


def _is_firm(clock: Spread) -> bool:
    """Whether a clock was read often enough and advances evenly."""
    even = clock.p90 - clock.p10 <= AGREE * clock.median
    return even and clock.n >= FIRM and not clock.across


def _decide(
    found: Spread, clock: Spread | None, steps: int, latest: Sample, *, coarse: bool, alone: bool
) -> Found | None:
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
        fits = {abs(math.log(found.median * factor / clock.median)): factor for factor in factors}
        best = min(fits)
        if best > math.log(1 + AGREE):
            # evaluation and checkpoints between the lines may explain a longer clock time
            if found.median > clock.median:
                return clock, "timestamps", [disputes.LONGER.format(found.median)]
            factor = 1.0
        else:
            factor = fits[best]
            if coarse:
                return clock, "timestamps", [disputes.COARSE.format(found.median * factor)]
            if (
                factor == 1.0
                and steps > 1
                and _is_firm(clock)
                and not agree(found.median, clock.median, CLOSE)
            ):
                return clock, "timestamps", [disputes.ALONE.format(found.median)]
    elif not latest.unit and found.median > UNITLESS:
        return None
    elif (
        latest.bare
        and latest.reader == "general"
        and steps > 1
        and not alone
        and not _eta_fits(latest, found)
    ):
        return None  # of one iteration, or of all since the last line: nothing tells
    else:
        factor = 1.0
        if not latest.unit:
            notes.append("a time without unit is taken for seconds")
    if factors[factor]:
        notes.append(factors[factor])
    return found.times(factor), "stated", notes


def _eta_fits(latest: Sample, found: Spread) -> bool:
    """Whether the log's own estimate of the remaining time is based on this step time."""
    if not latest.eta_s or latest.total is None or latest.iteration is None or latest.in_epoch:
        return False
    left = (latest.total - latest.iteration) * found.median
    return left > 0 and agree(left, latest.eta_s)
