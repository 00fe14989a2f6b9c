"""Run times that a policy assumes, for all jobs at once or as they are learned.

The same numbers as the estimators give job by job (`schedulers/estimators.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf, nan
from typing import overload

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.estimators import ABSURD_S, Estimator, Table, TimeLimit, UserMean
from schedmate.schedulers.sim.requests import Requests
from schedmate.schedulers.sim.static_loop import Ran
from schedmate.schedulers.sim.workload import Workload

Floats = NDArray[np.float64]


class RunTimes:
    """The estimate of each job at its submission."""

    def __init__(self, estimator: Estimator | None, workload: Workload, requests: Requests) -> None:
        self._requests = requests
        self._bad = 0
        self.means: Means | None = None
        """The object that learns from jobs that end; None: all run times are known in advance."""
        said: Sequence[float | None] = ()
        if isinstance(estimator, UserMean):
            self.means = Means(workload, requests)
        elif isinstance(estimator, Table):
            said = estimator.durations
        elif isinstance(estimator, TimeLimit):
            said = requests.column("time_limit_s")
        self._known = np.full(len(requests), nan)
        if len(said):
            known = np.array([one is not None for one in said])
            self._known = np.array(said, np.float64)
            least = 0.0 if estimator is not None and estimator.oracle else np.nextafter(0.0, 1.0)
            most = np.inf if estimator is not None and estimator.oracle else ABSURD_S
            useless = ~((self._known >= least) & (self._known <= most))
            self._known[useless] = nan
            self._bad = int((known & useless).sum())

    def ranked_by(self) -> Floats:
        """The duration that a rank uses for each job, if known in advance [s]."""
        limits = self._requests.values("time_limit_s")
        other = np.inf if limits is None else np.array([np.inf if x is None else x for x in limits])
        return np.where(np.isnan(self._known), other, self._known)

    def estimates(self, ran: Ran) -> Sequence[float]:
        """The estimate of each job in this run; infinity without one [s]."""
        if self.means is None:
            return array("d", np.where(np.isnan(self._known), inf, self._known).tobytes())
        return self.means.estimates if self.means.used else Later(self.means, ran)

    def bad(self, ran: Ran) -> int:
        """The number of unusable estimates."""
        if self.means is None:
            return self._bad
        if not self.means.used and not self.means.can_be_bad():
            return 0
        if not self.means.used:
            self.means.replay(ran)
        return self.means.bad


class Means:
    """`UserMean`, by the numbers of users and sizes."""

    def __init__(self, workload: Workload, requests: Requests) -> None:
        self._submit_s, self._run_s = requests.submit_s, workload.duration_s
        gpus = requests.gpus.tolist()
        users = requests.values("user")
        # Of all jobs, of those of a size, and of those of a user of a size.
        keys: dict[tuple[str, int], int] = {("", 0): 0}
        self._size = [keys.setdefault(("", one), len(keys)) for one in gpus]
        self._own = self._size
        if users is not None:
            pairs = zip(users, gpus, strict=True)
            self._own = [keys.setdefault(pair, len(keys)) for pair in pairs]
        self._sums, self._counts = [0.0] * len(keys), [0] * len(keys)
        limits = requests.column("time_limit_s")
        self.otherwise = [np.inf if one is None else one for one in limits]
        """Run time that a rank uses for a job without an estimate [s]."""
        self.estimates = array("d", [inf]) * len(gpus)
        """Estimate of each job; infinity: none [s]."""
        self.bad = 0
        self.used = False

    def submitted(self, job: int) -> None:
        """Estimate a submitted job."""
        for key in (self._own[job], self._size[job], 0):
            if self._counts[key]:
                mean = self._sums[key] / self._counts[key]
                if 0 < mean <= ABSURD_S:
                    self.estimates[job] = mean
                else:
                    self.bad += 1
                return

    def learn(self, job: int) -> None:
        """Learn from a job that has ended."""
        run_s, own, size = self._run_s[job], self._own[job], self._size[job]
        for key in (0, size) if own == size else (0, size, own):
            self._sums[key] += run_s
            self._counts[key] += 1

    def can_be_bad(self) -> bool:
        """Whether a mean of these run times could be no time that a job can take."""
        times = np.array(self._run_s)
        return not (times.min() > 0 and times.max() < ABSURD_S / 2)

    def replay(self, ran: Ran) -> None:
        """Fill in the estimates of jobs for which the run needed none."""
        self.used = True
        started, ended, order = ran.started, ran.ended, ran.order
        gone = 0
        for job, now in enumerate(self._submit_s.tolist()):
            while gone < len(order):
                first = order[gone]
                # One that took no time started after all that came at its instant.
                if ended[first] > now or started[first] == now:
                    break
                self.learn(first)
                gone += 1
            self.submitted(job)


class Later(Sequence[float]):
    """The estimate of each job, computed on first use."""

    def __init__(self, means: Means, ran: Ran) -> None:
        self._means = means
        self._ran = ran

    @cached_property
    def _estimates(self) -> Sequence[float]:
        if not self._means.used:
            self._means.replay(self._ran)
        return self._means.estimates

    def __len__(self) -> int:
        return len(self._ran.ended)

    def __iter__(self) -> Iterator[float]:
        return iter(self._estimates)

    @overload
    def __getitem__(self, at: int) -> float: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[float]: ...
    def __getitem__(self, at: int | slice) -> float | Sequence[float]:
        return self._estimates[at]
