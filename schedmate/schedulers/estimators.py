"""Estimates of jobs for policies: a `Forecast`, or None, and the policy falls back."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import ClassVar

from schedmate.schedulers.model import Forecast, Job, Profile

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
    """One duration for each job, by its position in the trace; NaN or None abstains."""

    name = "table"

    def __init__(
        self,
        durations: Sequence[float | None],
        profiles: Sequence[Profile | None] | None = None,
        *,
        method: str = "table",
        oracle: bool = False,
    ) -> None:
        self.durations = durations
        self.profiles = profiles
        self.method = method
        self.oracle = oracle

    def estimate(self, job: Job) -> Forecast | None:
        duration = self.durations[job.index]
        if duration is None:
            return None
        profile = self.profiles[job.index] if self.profiles is not None else None
        if profile is None:
            return _new(Forecast, (duration, None, None, self.method))
        return _new(Forecast, (duration, profile.gpu_util, profile.memory_mb, self.method))


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
            found = self._sums.get(key)
            if found is not None:
                return Forecast(found[0] / found[1], None, None, "user-mean")
        return None

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        sums = self._sums
        for key in (("", 0), ("", job.gpus), (job.user, job.gpus)):
            found = sums.get(key)
            if found is None:
                sums[key] = [run_time_s, 1]
            else:
                found[0] += run_time_s
                found[1] += 1
            if not job.user and key[1]:
                break
