"""What QSSF believes of run times: a rolling estimate and boosted trees (Helios, SC'21, 4.2).

The published artifact has its predictions but neither the model nor the weights, so those are ours.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from schedmate.errors import UsageError
from schedmate.schedulers.estimators import Estimator, UserMean
from schedmate.schedulers.learned.durations import Learned
from schedmate.schedulers.learned.names import NameGroups, masked
from schedmate.schedulers.model import Forecast, Job


class Rolling(Estimator):
    """The mean of the user's jobs of a similar name, with more weight on later ones.

    A user without such a job gets the mean of their jobs with the same number of GPUs; a new user,
    that of all users.

    Args:
        fading: weight of the last such job; all earlier ones share the rest.
        regroup: ended jobs after which names are grouped again.
    """

    name: ClassVar[str] = "rolling"

    def __init__(self, fading: float = 0.5, regroup: int = 2000) -> None:
        self.fading = fading
        self.regroup = regroup
        self._otherwise = UserMean()
        self._groups = NameGroups()
        self._seen: Counter[str] = Counter()
        self._ended = 0
        self._like: dict[tuple[str, str], float] = {}

    def estimate(self, job: Job) -> Forecast | None:
        found = self._like.get(self._key(job))
        if found is None:
            return self._otherwise.estimate(job)
        return Forecast(found, method=self.name)

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        self._otherwise.observe(job, run_time_s, completed)
        if not job.name:
            return
        self._seen[masked(job.name)] += 1
        self._ended += 1
        if self._ended % self.regroup == 0:
            # What was learned of a group stays with its name, if a group still has it.
            self._groups.fit(self._seen)
        key = self._key(job)
        before = self._like.get(key, run_time_s)
        self._like[key] = self.fading * run_time_s + (1 - self.fading) * before

    def _key(self, job: Job) -> tuple[str, str]:
        return (job.user, self._groups.group(masked(job.name)))


class QuasiShortest(Estimator):
    """`weight` of the rolling estimate and the rest of gradient-boosted trees.

    Args:
        weight: of the rolling estimate; 0: trees alone.
        update_s: time between fits of the trees [s].
        least: ended jobs before their first fit.

    Raises `UsageError` for a weight that is none, and when scikit-learn is not installed.
    """

    name: ClassVar[str] = "qssf"

    def __init__(
        self, weight: float = 0.5, update_s: float = 7 * 86_400.0, least: int = 500
    ) -> None:
        if not 0 <= weight <= 1:
            raise UsageError(f"weight={weight} is not between 0 and 1.")
        self.weight = weight
        self.rolling = Rolling()
        self.trees = Learned("boosting", update_s, least)

    def estimate(self, job: Job) -> Forecast | None:
        rolling, trees = self.rolling.estimate(job), self.trees.estimate(job)
        if rolling is None or trees is None:
            return trees if rolling is None else rolling
        mixed = self.weight * rolling.duration_s + (1 - self.weight) * trees.duration_s
        return Forecast(mixed, method=self.name)

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        self.rolling.observe(job, run_time_s, completed)
        self.trees.observe(job, run_time_s, completed)
