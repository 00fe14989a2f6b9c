"""Estimates that policies go by: run times, the time that jobs have left, and submissions to
come.

An estimator answers with a `Forecast`, or None, and the policy falls back.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from math import inf
from typing import ClassVar

from schedmate.schedulers.model import NEVER, Forecast, Job, Profile

ABSURD_S = 365 * 86_400.0
"""An estimate above this is an error, not a duration [s]."""

_new = tuple.__new__  # what a NamedTuple does in twice the time


class Estimator:
    """Base of every estimator: override `estimate`, and `observe` in one that learns."""

    name: ClassVar[str] = "none"
    oracle: bool = False
    """Whether it uses knowledge that no scheduler can have; results based on it are labelled."""

    def estimate(self, job: Job) -> Forecast | None:
        """The job's predicted run time and use; None without an estimate."""
        return None

    def latency_s(self, job: Job) -> float:
        """Time until the estimate for this job is ready; no policy sees the job before [s].

        The estimate is based on the jobs that had ended at submission, however late it is.
        """
        return 0.0

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        """Learn from a job that has ended after running for this time.

        A job that is not `completed` failed or was stopped: its time is a lower bound.
        """


class Table(Estimator):
    """One duration for each job, by its position in the trace; NaN or None abstains.

    `quantiles`: its distribution, as in `Forecast`.
    """

    name = "table"

    def __init__(
        self,
        durations: Sequence[float | None],
        profiles: Sequence[Profile | None] | None = None,
        *,
        method: str = "table",
        oracle: bool = False,
        quantiles: Sequence[tuple[float, ...] | None] | None = None,
    ) -> None:
        self.durations = durations
        self.profiles = profiles
        self.quantiles = quantiles
        self.method = method
        self.oracle = oracle

    def estimate(self, job: Job) -> Forecast | None:
        duration = self.durations[job.index]
        if duration is None:
            return None
        profile = self.profiles[job.index] if self.profiles is not None else None
        spread = self.quantiles[job.index] if self.quantiles is not None else None
        if profile is None:
            return _new(Forecast, (duration, None, None, self.method, spread))
        return _new(Forecast, (duration, profile.gpu_util, profile.memory_mb, self.method, spread))


def noisy(durations: Sequence[float], sigma: float, seed: int) -> list[float]:
    """Each duration times a log-normal factor with median 1: a predictor of known quality."""
    random_ = random.Random(seed)  # noqa: S311 - an experiment, not a secret
    largest = 500.0  # bounds of a logarithm: anything beyond is absurd
    return [
        duration * math.exp(max(-largest, min(random_.gauss(0.0, sigma), largest)))
        for duration in durations
    ]


class TimeLimit(Estimator):
    """The user's own time limit, as every batch system has it."""

    name = "limit"

    def estimate(self, job: Job) -> Forecast | None:
        if job.time_limit_s is None:
            return None
        return Forecast(job.time_limit_s, method="limit")


class UserMean(Estimator):
    """The mean of the user's finished jobs with the same number of GPUs, else of all such jobs.

    It is the fall-back of Lucid's estimator alone (section 3.4): what a site has without a model.
    """

    name = "user-mean"

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], list[float]] = {}

    def estimate(self, job: Job) -> Forecast | None:
        for key in ((job.user, job.gpus), ("", job.gpus), ("", 0)):
            total = self._sums.get(key)
            if total is not None:
                return Forecast(total[0] / total[1], None, None, "user-mean")
        return None

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        sums = self._sums
        for key in (("", 0), ("", job.gpus), (job.user, job.gpus)):
            total = sums.get(key)
            if total is None:
                sums[key] = [run_time_s, 1]
            else:
                total[0] += run_time_s
                total[1] += 1
            if not job.user and key[1]:
                break


# Total and remaining run times of jobs, by their logs and estimates.


def predicted_s(job: Job) -> float:
    """The estimated duration, or the user's time limit, or infinity: such jobs go last."""
    if job.forecast is not None:
        return job.forecast.duration_s
    return NEVER if job.time_limit_s is None else job.time_limit_s


def total_s(job: Job, attained_s: float) -> float:
    """The estimated duration, doubled until it exceeds the time that the job has run [s].

    With heavy-tailed run times, a job that has run for long is expected to run for long.
    """
    total = max(predicted_s(job), 1.0)
    while total <= attained_s * (1 + 1e-9):
        total *= 2
    return total


def remaining_s(job: Job, now: float) -> float:
    """Expected remaining time of a job, also of one that failed or was stopped [s].

    From its log if that states it (`Job.left`), else from its estimate and its time so far.
    """
    if job.left is not None:
        ran_s = now - max(job.left.at, job.started) if job.allocation else 0.0
        return max(job.left.seconds - ran_s, 0.0)
    attained_s = job.attained_s(now)
    return total_s(job, attained_s) - attained_s


# How many jobs are to come: what Lucid's dynamic strategy and time-aware scaling look at.


BIN_S = 600.0
"""Throughput is counted in bins of ten minutes, as in Lucid's throughput model [s]."""

HOUR_S, DAY_S = 3600.0, 86_400.0
_HOURS = 8


class Load:
    """Base of every forecast of submissions: the season, with no model.

    The last hour, and the same hour of the seven days before: trend and season (Lucid, 3.5.2).
    """

    name: ClassVar[str] = "season"
    _hours: _Hours | None = None

    def expected(self, submitted: Sequence[float], now: float) -> float:
        """Jobs to be submitted in the next ten minutes.

        `submitted` are the times of all submissions up to `now`, ascending [s].
        """
        return self._season(submitted, None, now)

    def expected_gpus(
        self, submitted: Sequence[float], requested: Sequence[int], now: float
    ) -> float:
        """Forecast number of GPUs that the jobs of the next ten minutes will request together.

        `requested`: running totals of the GPUs requested by `submitted`, beginning with 0.
        """
        return self._season(submitted, requested, now)

    def _season(
        self, submitted: Sequence[float], requested: Sequence[int] | None, now: float
    ) -> float:
        hours = self._hours
        if hours is None or hours.times is not submitted or now < hours.now:
            hours = self._hours = _Hours(submitted)
        last, total, hours_seen = hours.counts(now, requested)
        mean = total / hours_seen
        return (max(mean, last)) * BIN_S / HOUR_S


class _Hours:
    """The last hour, and the same hour of the seven days before, as indices of a growing list."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = times
        self.now = -inf
        self._low, self._high = [0] * _HOURS, [0] * _HOURS

    def counts(self, now: float, requested: Sequence[int] | None) -> tuple[int, int, int]:
        """Submissions, or their GPUs: in the last hour, in all of these hours that have been since
        the first submission, and how many hours that is."""
        times, lows, highs = self.times, self._low, self._high
        self.now = now
        count = len(times)
        first = times[0] if count else inf
        last = total = day = 0
        begin, end = now - HOUR_S, now
        while True:
            # The clock advances in small steps, so the places are near.
            low, high = lows[day], highs[day]
            if low < count and times[low] < begin:
                low += 1
                while low < count and times[low] < begin:
                    low += 1
                lows[day] = low
            if high < count and times[high] < end:
                high += 1
                while high < count and times[high] < end:
                    high += 1
                highs[day] = high
            submitted = high - low if requested is None else requested[high] - requested[low]
            total += submitted
            if not day:
                last = submitted
            day += 1
            begin = now - day * DAY_S
            if day == _HOURS or begin < first:
                return last, total, day
            end = begin + HOUR_S
