"""The distribution of a new job's run time, given the run times of past jobs like it.

`predict` is a Dirichlet-process posterior predictive with censoring (Susarla and Van Ryzin,
1976): the weighted Kaplan-Meier estimate of the past runs, mixed with a prior around its
median. How wide that prior is, is itself estimated: from how far such runs are expected to lie
apart, and from how far these do. With one past run the interval is the expected one; runs that
agree narrow it, runs that do not widen it, and with many it is nearly their own, whatever their
shape. Everything happens on logarithms, so the unit does not matter.

`adjust` corrects a past run time for a new job that trains longer, or on other GPUs. The
exponents are medians over the public step-time traces of the Sia artifact (7 models, 6 machine
types); `benchmarks/advisor.py` measures them again.

`Spread` is how much runs of the same work vary. A distance is the absolute logarithm of the
ratio of two run times, here the one that `SPREAD_LEVEL` of all pairs stay within. It is learned
from the history's own resubmissions, and, the fewer there are, from clusters where it was
measured (spread.yaml).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from schedmate.base.data import load
from schedmate.jobs import JobRecord, LaunchConfig, WorkloadMetadata

_PRIOR_POINTS = 41

LEVELS = tuple((at + 0.5) / 25 for at in range(25))
"""Levels of the quantiles of a run time; numbers 2, 12 and 22 are p10, p50 and p90. Each quantile
stands for one 25th of the probability."""


@dataclass(frozen=True, slots=True)
class Run:
    """One past run: its (adjusted) time [s], its relative weight, whether it was cut short, and
    how far it is expected to lie from the new one: the mean absolute log error of a guess."""

    duration_s: float
    weight: float
    censored: bool = False
    spread: float = 1.0


@dataclass(frozen=True, slots=True)
class Prior:
    """The prior: a Laplace distribution of log run time around the runs' median.

    `runs` is how many past runs that belief weighs as much as, plus `share` of the runs' own
    weight: what happened will not cover all that may. `spreads` is how many distances between runs
    the expected one weighs as much as. The median has a belief of its own, of a fixed spread and
    weight: one that narrows would give runs that were cut short more say, and errs more.
    """

    runs: float
    spreads: float
    share: float = 0.0
    median_spread: float = 1.2
    median_runs: float = 3.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Quantiles of the run time [s], ascending, at `LEVELS`; `bounded` when the median rests on
    censored runs alone.

    `expected` is the mean absolute log error of one past run as a guess, as believed before these;
    `own` [0 to 1] how much of the spread that was used comes from how far these lie apart.
    """

    quantiles_s: tuple[float, ...]
    bounded: bool
    expected: float
    own: float

    @property
    def p10_s(self) -> float:
        return self.quantiles_s[2]

    @property
    def p50_s(self) -> float:
        return self.quantiles_s[12]

    @property
    def p90_s(self) -> float:
        return self.quantiles_s[22]


def predict(runs: Sequence[Run], prior: Prior, shared: float = 0.0) -> Prediction | None:
    """The predictive quantiles, or None when no run completed: then there is only a bound.

    `shared` [log of a factor] is what all runs may be wrong by together, eight of ten times at
    most: it widens the interval however many runs agree. Durations, weights and spreads must be
    positive. The order of `runs` and a common factor of all weights do not matter; a common factor
    of all durations multiplies the result.
    """
    if all(run.censored for run in runs):
        return None
    heaviest = max(run.weight for run in runs)
    points = [(math.log(run.duration_s), run.weight / heaviest, run.censored) for run in runs]
    total = sum(weight for _, weight, _ in points)
    kaplan_meier, lost = _redistribute(points)
    centre = _quantile(kaplan_meier, 0.5)
    expected = sum(run.weight / heaviest * run.spread for run in runs) / total
    # A run cut short before the median says nothing of the spread, one after it at least so much.
    away = [(weight, abs(at - centre)) for at, weight, cut in points if not cut or at > centre]
    distances = max(sum(weight for weight, _ in away) - 1.0, 0.0)
    seen = sum(weight * distance for weight, distance in away)
    believed = prior.spreads * expected
    spread = (believed + seen) / (prior.spreads + distances)
    mass = _mixed_with_prior(points, centre, spread, prior.runs + prior.share * total)
    wide = _mixed_with_prior(points, centre, prior.median_spread, prior.median_runs)
    median = _quantile(wide, 0.5)
    return Prediction(
        tuple(_seconds(median, _quantile(mass, level) - median, shared, level) for level in LEVELS),
        bounded=lost >= 0.5,
        expected=expected,
        own=seen / (believed + seen),
    )


def _seconds(median: float, away: float, shared: float, level: float) -> float:
    """The quantile [s] that lies `away` [log s] from the median, if on its own side of it, widened
    by the doubt that all runs share, which is `shared` at p10 and p90 and grows as a Laplace
    distribution does."""
    side = math.copysign(1.0, level - 0.5) if abs(level - 0.5) > 1e-9 else 0.0
    doubt = shared * abs(_laplace(level) / _laplace(0.1))
    return math.exp(median + side * math.hypot(max(side * away, 0.0), doubt))


def _mixed_with_prior(
    points: list[tuple[float, float, bool]], centre: float, spread: float, runs: float
) -> list[tuple[float, float]]:
    """The runs and a Laplace distribution that weighs as much as `runs` of them."""
    base = [(centre + spread * at, runs / _PRIOR_POINTS, False) for at in _LAPLACE]
    return _redistribute(points + base)[0]


def _redistribute(
    points: list[tuple[float, float, bool]],
) -> tuple[list[tuple[float, float]], float]:
    """Efron's redistribution to the right: each censored point's mass moves to what lies beyond.

    Returns (log time, share) in order, shares adding up to 1, and the share that no completed
    run lies beyond, which stays on the last censored point.
    """
    # At equal times a completed run comes first: the censored one lasted at least as long.
    ordered = sorted(points, key=lambda point: (point[0], point[2]))
    total = sum(weight for _, weight, _ in ordered)
    remaining, shifted = total, 0.0
    mass: list[tuple[float, float]] = []
    factor = 1.0  # what one unit of original weight at or beyond this point is worth now
    for log_time, weight, censored in ordered:
        remaining -= weight
        if not censored:
            mass.append((log_time, factor * weight / total))
        elif remaining > total * 1e-12:
            factor *= (remaining + weight) / remaining
        else:
            shifted = factor * weight / total
            mass.append((log_time, shifted))
    return mass, shifted


def _quantile(mass: list[tuple[float, float]], level: float) -> float:
    """The least point at which the shares add up to `level`."""
    total = 0.0
    for point, share in mass:
        total += share
        if total >= level - 1e-9:
            return point
    return mass[-1][0]


def _laplace(level: float) -> float:
    """The quantile of the standard Laplace distribution."""
    return math.log(2 * level) if level < 0.5 else -math.log(2 * (1 - level))


_LAPLACE = [_laplace((index + 0.5) / _PRIOR_POINTS) for index in range(_PRIOR_POINTS)]


# Corrections of a past run time for a new job that trains longer, or on other GPUs.
#
# The exponents are medians over the public step-time traces of the Sia artifact (7 models, 6
# machine types); `benchmarks/advisor.py` measures them again.


WEAK_SCALING = 0.83
"""Samples per second grow as GPUs ** this when each GPU keeps its batch (10th to 90th percentile
0.45 to 1.0 over 25,255 pairs): an epoch then takes GPUs ** -0.83 of its time."""
WEAK_DOUBT = 0.28
"""Half of that range: how far off the exponent is in eight of ten cases, at most."""

STRONG_SCALING = 0.25
"""The same when the global batch stays and each GPU's share of it shrinks (-0.3 to 0.6 over 583
pairs)."""
STRONG_DOUBT = 0.45
"""Half of that range."""

LENGTH_DOUBT = 0.25
"""How far off the exponent 1 of the training length is: an assumption. Part of a run is the same
whatever its length; of image generation that part is so large that 0.7 was measured
(interval_spread in benchmarks/results/interval.json), and training is mostly its steps."""

MEASURED_GPUS = 16.0
"""The exponents were measured between numbers of GPUs up to this factor apart, for every model of
the traces; beyond it their doubt counts twice."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The factor a past run time is multiplied by, and what could not be corrected for.

    `length_doubt` and `gpus_doubt` [log of a factor]: eight of ten true factors are within
    exp(their absolute values) of it. Positive where the new job trains longer or on more GPUs: an
    exponent that is wrong makes the times of runs on both sides of the new job wrong in opposite
    directions, and those of runs on one side all in the same one.
    """

    factor: float = 1.0
    length_doubt: float = 0.0
    gpus_doubt: float = 0.0
    unknown_length: bool = False
    other_gpu: bool = False

    @property
    def doubt(self) -> float:
        """Eight of ten true factors are within exp(doubt) of `factor`."""
        return abs(self.length_doubt) + abs(self.gpus_doubt)

    def doubt_beside(self, shared: Adjustment) -> float:
        """The doubt [log of a factor] that remains without what all corrections share."""
        length = abs(self.length_doubt - shared.length_doubt)
        return length + abs(self.gpus_doubt - shared.gpus_doubt)


def adjust(metadata: WorkloadMetadata, launch: LaunchConfig, past: JobRecord) -> Adjustment:
    """How `past` compares with the new job described by `metadata` and `launch`."""
    length = _length_ratio(metadata, past.metadata)
    gpus, exponent, doubt = _gpu_ratio(metadata, launch, past)
    return Adjustment(
        factor=(length or 1.0) * float(gpus**exponent),
        length_doubt=LENGTH_DOUBT * math.log(length or 1.0),
        gpus_doubt=doubt * _gpu_distance(gpus),
        unknown_length=length is None,
        other_gpu=_types_differ(launch.gpu_type, past.launch.gpu_type),
    )


def _gpu_distance(gpus: float) -> float:
    """From old to new GPUs [log of their ratio], what lies beyond the measured range twice."""
    distance = -math.log(gpus)
    beyond = max(0.0, abs(distance) - math.log(MEASURED_GPUS))
    return distance + math.copysign(beyond, distance)


def _length_ratio(new: WorkloadMetadata, old: WorkloadMetadata) -> float | None:
    """New over old training length, or None when only one is known or the units differ.

    Epochs of different datasets are compared as they are: their lengths in samples are not known.
    """
    if (
        new.training.iters == old.training.iters
        and new.training.iter_type == old.training.iter_type
    ):
        return 1.0
    if new.training.iter_type is None or new.training.iter_type != old.training.iter_type:
        return None
    length, past_length = new.training.iters, old.training.iters
    if not length or not past_length or min(length, past_length) < 0:
        return None
    return length / past_length


def _gpu_ratio(
    new: WorkloadMetadata, launch: LaunchConfig, past: JobRecord
) -> tuple[float, float, float]:
    """Old over new GPUs, the exponent where the work does not grow with them, and its doubt."""
    if not launch.gpus or not past.launch.gpus or launch.gpus == past.launch.gpus:
        return 1.0, 0.0, 0.0
    ratio: float = past.launch.gpus / launch.gpus
    if _fixed_by_accumulation(new, launch, past):
        return ratio, WEAK_SCALING, WEAK_DOUBT
    batches = (_extra(new, "global_batch_size"), _extra(past.metadata, "global_batch_size"))
    if batches[0] is not None and batches[0] == batches[1]:
        return ratio, STRONG_SCALING, STRONG_DOUBT
    if new.training.iter_type == past.metadata.training.iter_type == "epoch":
        return ratio, WEAK_SCALING, WEAK_DOUBT
    # A step on more GPUs does more work in the same time: nothing to correct. How much of the
    # time the GPUs' talk to each other adds is what the exponent of weak scaling is doubted by.
    return ratio, 0.0, WEAK_DOUBT


def _fixed_by_accumulation(new: WorkloadMetadata, launch: LaunchConfig, past: JobRecord) -> bool:
    """Whether fewer GPUs do the same work a step, by accumulating more batches of the same size.

    That is how programs divide their gradient accumulation by the number of processes: a GPU's
    batch stays, as in weak scaling, and a step on half the GPUs takes nearly twice as long.
    """
    mine, theirs = _accumulation(new), _accumulation(past.metadata)
    if mine is None or theirs is None or mine == theirs:
        return False
    if _extra(new, "batch_size") != _extra(past.metadata, "batch_size"):
        return False
    return mine * (launch.gpus or 0) == theirs * (past.launch.gpus or 0)


def _accumulation(metadata: WorkloadMetadata) -> float | None:
    value = _extra(metadata, "gradient_accumulation_steps")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and value > 0 else None


def _extra(metadata: WorkloadMetadata, name: str) -> Any:
    return (metadata.training.model_extra or {}).get(name)


def _types_differ(one: str | None, other: str | None) -> bool:
    return bool(one and other) and str(one).lower() != str(other).lower()


# The prior of how much runs of the same work vary.
#
# A distance is the absolute logarithm of the ratio of two run times; the one used throughout is
# that which `LEVEL` of all pairs stay within. It is learned from the history's own resubmissions,
# and, the fewer there are, from clusters where it was measured (spread.yaml).


SPREAD_LEVEL = 0.8
"""Share of pairs within the distance: that of an interval from p10 to p90."""

SPREAD_JOBS = 600
"""Ended jobs of the history that are looked at: those submitted last."""

MEASURED_WORTH = 10.0
"""Jobs with resubmissions that the measured clusters weigh as much as."""

RELEARN_GROWTH = 1.02
"""A history this much larger than when it was last looked at is looked at again."""

LEAST_SPREAD = 0.02
"""Least distance that a history can teach: runs in one burst are closer than later ones."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a run lies from the one before it of the same job.

    `distance` is what `LEVEL` of them stay within, `jobs` how many jobs of this history that ran
    several times had a say in it.
    """

    distance: float
    jobs: int = 0

    def between(self, same: bool, adjustment: Adjustment, doubt: float | None = None) -> float:
        """The distance of a past run from the new job; `same` when their workloads are.

        `doubt` stands in for that of the adjustment: without what all runs have in common.
        """
        table = measured_spreads()
        return math.hypot(
            self.distance * (1.0 if same else table["similar"] / table["exact on these"]),
            adjustment.doubt if doubt is None else doubt,
            table["gpu type"] if adjustment.other_gpu else 0.0,
            table["unknown length"] if adjustment.unknown_length else 0.0,
        )


@dataclass(frozen=True, slots=True)
class LearnedSpread:
    """Statistics learned from a history of `size` jobs."""

    size: int
    spread: Spread

    def fits(self, size: int) -> bool:
        """Whether a history that now has `size` jobs has not grown much since."""
        return self.size <= size < self.size * RELEARN_GROWTH


UNLEARNED_SPREAD = LearnedSpread(0, Spread(0.0))


@cache
def measured_spreads() -> dict[str, float]:
    """Distances by what differs: the means over the clusters where they were measured."""
    table: dict[str, dict[str, float]] = load("retrieval/spread.yaml")
    table["exact on these"] = {name: table["exact"][name] for name in table["similar"]}
    return {
        what: math.fsum(map(math.log, factors.values())) / len(factors)
        for what, factors in table.items()
    }


def learn_spread(runs: Iterable[tuple[str, float]]) -> Spread:
    """From completed runs in order of time: fingerprint and run time [s], above zero."""
    last: dict[str, float] = {}
    distances: dict[str, list[float]] = defaultdict(list)
    for fingerprint, duration_s in runs:
        here = math.log(duration_s)
        if fingerprint in last:
            distances[fingerprint].append(abs(here - last[fingerprint]))
        last[fingerprint] = here
    measured = measured_spreads()["exact"]
    own = grouped_quantile(distances.values(), SPREAD_LEVEL)
    if own is None:
        return Spread(measured)
    jobs = len(distances)
    logs = MEASURED_WORTH * math.log(measured) + jobs * math.log(max(own, LEAST_SPREAD))
    return Spread(math.exp(logs / (MEASURED_WORTH + jobs)), jobs)


def grouped_quantile(groups: Iterable[Sequence[float]], level: float) -> float | None:
    """The least value that `level` of all do not exceed, every group counting the same.

    None without a value.
    """
    values = sorted((value, 1 / len(group)) for group in groups for value in group)
    left = level * math.fsum(weight for _, weight in values)
    for value, weight in values:
        left -= weight
        if left <= 1e-9:
            return value
    return None
