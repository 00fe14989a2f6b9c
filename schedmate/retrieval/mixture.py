"""The mixture of the experts: weights and calibration learned online from runs that ended.

- **Weights.** The pool is linear: its distribution function is the weighted mean of the experts'.
  Weights follow Bernstein online aggregation (Wintenberger, Optimal learning with Bernstein online
  aggregation, Machine Learning 2017) on linearised losses, which bounds the regret against the best
  fixed mixture, hence against the best expert, of the last few hundred runs: earlier ones fade. The
  loss is the CRPS of log seconds (twice the mean
  pinball loss). Experts that are silent are specialists that sleep (Freund et al., STOC 1997).
  Weights are learned for all jobs, for jobs of this context (the finest group that has runs, and
  how far apart these lie) and for this user, each shrunk to the one before it.
- **Calibration.** The level at which a quantile is read from the pool follows its own misses
  (adaptive conformal inference: Gibbs, Candes, NeurIPS 2021; decaying steps: Angelopoulos, Barber,
  Bates, ICML 2024), for all jobs and for the context together.
- **Runs cut short** speak through the experts that take them as lower bounds. Weights and
  calibration follow runs that completed: the part of a loss that a cut run determines punishes none
  but short predictions, and learning from it made mixtures worse (docs/estimation.md).

A run counts from its end. The state is a function of the ended runs in order of their ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from schedmate.retrieval.experts import LEVELS, Experts, Key, Opinions, Part, Parts, Submission

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CONTEXT_RUNS, USER_RUNS = 40.0, 40.0
"""Runs in a context, and of a user, from which on their own weights count for half."""
STEP, LEAST_STEP = 0.025, 0.0025
"""The calibration's step: the first, and where it stops to decay (as count ** -0.5)."""
_PACE = np.minimum(1.0, 10.0 * np.minimum(LEVELS, 1.0 - LEVELS))
"""Share of the step that each level takes: one miss of the outermost ones, which miss seldom, would
else send them to the end of the distribution for a hundred runs."""
MEMORY = 0.998
"""What a loss still counts for at the next one: weights follow what changes."""
PRIOR_WEIGHTS = {
    "groups, long": 2.0,
    "request": 2.0,
    "request, anybody's": 2.0,
    "last two": 0.5,
    "global": 0.5,
    "similar jobs": 4.0,
}
"""Weights of the experts before anything was learned; 1 for all others. Chosen, with the numbers
above, on the development traces of benchmarks/estimation.py; that of similar jobs, which no public
trace has, is an assumption."""
WITHIN = math.log(2.0)
"""The point estimate is the one most probably within this distance [log s] of the run time."""
NEARLY = 0.98
"""Share of the highest such probability at which another value is as good."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The distribution of a run time: calibrated `quantiles` [log s] at `LEVELS`, the time [log s]
    most probably within a factor of two, and the experts that spoke with their weights."""

    quantiles: Floats
    point: float
    names: tuple[str, ...]
    weights: Floats
    opinions: Opinions


class Weights(Part):
    """Bernstein online aggregation with sleeping experts."""

    __slots__ = ("count", "largest", "regret", "square")
    NUMBERS = ("regret", "square", "largest", "count")

    def __init__(self, experts: int = 0) -> None:
        self.regret = np.zeros(experts)
        self.square = np.zeros(experts)
        self.largest = 0.1
        self.count = 0

    def of(self, awake: NDArray[np.bool_], prior: Floats) -> Floats:
        """Shares of those that speak."""
        rate = self._rates()
        power = rate * self.regret
        weights = np.where(awake, prior * rate * np.exp(power - power[awake].max()), 0.0)
        shares: Floats = weights / weights.sum()
        return shares

    def learn(self, better: Floats, awake: NDArray[np.bool_]) -> None:
        """`better` is how much lower each loss was than the mixture's."""
        better = np.where(awake, better, 0.0)
        self.largest = max(self.largest, float(np.abs(better).max()))
        self.regret = MEMORY * self.regret + better - self._rates() * better * better
        self.square = MEMORY * self.square + better * better
        self.count += 1

    def _rates(self) -> Floats:
        learned = np.sqrt(math.log(len(self.regret)) / (self.square + 1e-2))
        return np.minimum(1.0 / self.largest, learned)


class Shifts(Part):
    """By how much the levels of quantiles are shifted, so that each covers what it says."""

    __slots__ = ("count", "shifts")
    NUMBERS = ("shifts", "count")

    def __init__(self) -> None:
        self.shifts = np.zeros(len(LEVELS))
        self.count = 0

    def learn(self, errors: Floats) -> None:
        """`errors` is the level of each quantile, less 1 where the run time was below it."""
        self.count += 1
        self.shifts += max(STEP * self.count**-0.5, LEAST_STEP) * _PACE * errors


class Mixture:
    """Experts of one history, their weights and the calibration.

    The experts of `Submission.extra` must be the same, in the same order, for all jobs; their
    quantiles are NaN where they have nothing to say.
    """

    def __init__(self, parts: Parts | None = None) -> None:
        self._parts: Parts = {} if parts is None else parts
        self.experts = Experts(self._parts)

    def predict(self, job: Submission) -> Forecast | None:
        """The run time of a job by what had ended at its submission; None before the first run."""
        said = self.experts.opinions(job)
        if not said.awake.any():
            return None
        weights, pool = self._pooled(job, said)
        quantiles = self._read(pool, said)
        return Forecast(quantiles, pool.point(), said.names, weights, said)

    def learn(
        self, job: Submission, ended: float, log_s: float, cut: bool = False, job_id: str = ""
    ) -> None:
        """Take in a run that has ended; runs must come in order of their ends."""
        said = self.experts.opinions(job)
        if said.awake.any() and not cut:
            weights, pool = self._pooled(job, said)
            self._learn_weights(job, said, weights, pool.losses(log_s))
            self._learn_shifts(pool, said, log_s)
        self.experts.learn(job, said, ended, log_s, cut, job_id)

    def _contexts(self, job: Submission, said: Opinions) -> list[tuple[tuple[object, ...], float]]:
        several = min(said.runs, 3)
        contexts: list[tuple[tuple[object, ...], float]] = [
            (("all",), 0.0),
            (("context", said.finest, said.apart, several), CONTEXT_RUNS),
        ]
        if job.user is not None:
            contexts.append((("user", job.user), USER_RUNS))
        return contexts

    def _pooled(self, job: Submission, said: Opinions) -> tuple[Floats, _Pool]:
        prior = np.array([PRIOR_WEIGHTS.get(name, 1.0) for name in said.names])
        weights = np.zeros(len(said.names))
        for context, few in self._contexts(job, said):
            learned: Weights | None = self._parts.get(("weights", *context))
            if learned is None:
                own = np.where(said.awake, prior, 0.0)
                weights = own / own.sum() if not few else weights
            else:
                share = learned.count / (learned.count + few)
                weights = share * learned.of(said.awake, prior) + (1 - share) * weights
        return weights, _Pool(said, weights)

    def _learn_weights(
        self,
        job: Submission,
        said: Opinions,
        weights: Floats,
        losses: Floats,
    ) -> None:
        better = float(np.dot(weights, losses)) - losses
        for context, _ in self._contexts(job, said):
            key = ("weights", *context)
            learned: Weights | None = self._parts.get(key)
            if learned is None:
                learned = self._parts[key] = Weights(len(said.names))
            learned.learn(better, said.awake)

    def _read(self, pool: _Pool, said: Opinions) -> Floats:
        learned: list[Shifts | None] = [self._parts.get(key) for key in _shift_keys(said)]
        levels = LEVELS + sum(one.shifts for one in learned if one is not None)
        return np.maximum.accumulate(pool.quantiles(levels))

    def _learn_shifts(self, pool: _Pool, said: Opinions, log_s: float) -> None:
        quantiles = self._read(pool, said)
        # ties: a run time that equals a quantile is inside of the interval
        below = np.where(LEVELS < 0.5, log_s < quantiles - 1e-9, log_s <= quantiles + 1e-9)
        errors = LEVELS - below
        for key in _shift_keys(said):
            shifts: Shifts | None = self._parts.get(key)
            if shifts is None:
                shifts = self._parts[key] = Shifts()
            shifts.learn(errors)


def _shift_keys(said: Opinions) -> tuple[Key, Key]:
    return ("shifts", "all"), ("shifts", said.finest, said.apart)


class _Pool:
    """The linear pool of the experts that speak: their quantiles in order, with masses."""

    __slots__ = ("awake", "masses", "places", "reached", "rows", "shape", "values")

    def __init__(self, said: Opinions, weights: Floats) -> None:
        self.awake = np.flatnonzero(said.awake)
        rows = said.quantiles[self.awake]
        self.shape = said.quantiles.shape
        self.rows = rows
        flat = rows.ravel()
        masses = np.repeat(weights[self.awake] / len(LEVELS), len(LEVELS))
        self.places = np.argsort(flat, kind="stable")
        self.values = flat[self.places]
        self.masses = masses[self.places]
        self.reached = np.cumsum(self.masses)

    def quantiles(self, levels: Floats) -> Floats:
        """Of the pool at any levels; beyond 0 and 1 they go on with the slope of the last tenth."""
        at = self.reached - self.masses / 2
        inside = np.interp(np.clip(levels, 0.0, 1.0), at, self.values)
        beyond = levels - np.clip(levels, 0.002, 0.998)
        return inside + 10.0 * beyond

    def point(self) -> float:
        """The value with the most probability within `WITHIN` of it; of equals, their median."""
        before = np.concatenate([[0.0], self.reached])
        ends = np.searchsorted(self.values, self.values + WITHIN, side="right")
        starts = np.searchsorted(self.values, self.values - WITHIN, side="left")
        near = before[ends] - before[starts]
        best = np.flatnonzero(near >= NEARLY * near.max())
        reached = np.cumsum(self.masses[best])
        return float(self.values[best[np.searchsorted(reached, reached[-1] / 2)]])

    def losses(self, log_s: float) -> Floats:
        """Gradient of the pool's CRPS by the weight of each expert; 0 for those that are silent."""
        whole = np.zeros(self.shape[0])
        sums = np.cumsum(self.masses * self.values)
        apart = self.values * (2 * self.reached - 1) - 2 * sums + sums[-1]
        distances = np.empty(len(apart))
        distances[self.places] = apart
        inner = distances.reshape(self.rows.shape).mean(axis=1)
        whole[self.awake] = np.abs(self.rows - log_s).mean(axis=1) - inner
        return whole
