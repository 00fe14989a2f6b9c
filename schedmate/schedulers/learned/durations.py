"""Run times learned from the jobs that have ended: QSSF's model and Lucid's.

Both predict the logarithm of the run time from what is known at submission, and are refitted from
time to time on past jobs only (Lucid's Update Engine, section 3.6.2).
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from schedmate.errors import UsageError
from schedmate.schedulers.estimators import Estimator, UserMean
from schedmate.schedulers.learned.names import NameGroups, masked
from schedmate.schedulers.learned.packages import require
from schedmate.schedulers.model import Forecast, Job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEATURES = (
    "gpus",
    "hour",
    "weekday",
    "user_mean",  # of log run time: the user's ended jobs
    "user_last",
    "name_mean",  # by the same name except for digits, and number of GPUs
    "like_names_mean",  # the user's ended jobs of names like this one (`names.NameGroups`)
    "jobs_of_user",  # up to `_OLD`: what only ever grows is soon out of the range learnt from
    "gpu_util",
    "memory_util",
    "memory_mb",
)

LOGARITHMS = ("user_mean", "user_last", "name_mean", "like_names_mean")
"""Those of them that are log(1 + seconds)."""

UNKNOWN = -1.0

_OLD = 50

MODELS = {"boosting": ("sklearn",), "ga2m": ("interpret", "rapidfuzz", "sklearn")}
"""Kinds of model, and the packages that each needs."""

Key = tuple[str, str, int]
"""User, name and GPUs."""


class Learned(Estimator):
    """A model of log run time, refitted every `update_s` of the trace's time.

    Args:
        model: `boosting` (QSSF: gradient-boosted trees) or `ga2m` (Lucid: an additive model with
            pairwise interactions, each of whose terms can be inspected).
        update_s: time between fits [s]; a week is Lucid's choice (section 4.5).
        rounds: most boosting rounds of a GA2M; on the first two thirds of Philly, 500 took a
            quarter of the time of 2,000 and had a lower error on the later jobs.
        least: ended jobs before the first fit; until then the user's mean is used.

    Raises `UsageError` if the package of the model is not installed.
    """

    name: ClassVar[str] = "learned"

    def __init__(
        self, model: str, update_s: float = 7 * 86_400.0, least: int = 500, rounds: int = 500
    ) -> None:
        if model not in MODELS:
            raise UsageError(f"no model {model!r}; there are {', '.join(MODELS)}.")
        require(*MODELS[model])
        self.rounds = rounds
        self.model = model
        self.update_s = update_s
        self.least = least
        self.fits = 0
        self.fitted: Any = None
        """The model itself, a `Ga2m` or scikit-learn's; None before the first fit."""
        self.columns: list[int] = []
        """Which of `FEATURES` it uses."""
        self._fallback = UserMean()
        self._threads: Any = None
        self._fitted_at = -math.inf
        self._features: dict[int, list[float]] = {}
        self._rows: list[list[float]] = []
        self._targets: list[float] = []
        self._users: dict[str, tuple[float, int, float]] = {}  # sum of logs, count, last
        self._names: dict[Key, tuple[float, int]] = {}
        self._groups = NameGroups()
        self._like: dict[Key, tuple[float, int]] = {}

    def estimate(self, job: Job) -> Forecast | None:
        row = self._features[job.index] = self.describe(job)
        due = job.submit_time - self._fitted_at >= self.update_s
        if due and len(self._rows) >= self.least:
            self.fit(job.submit_time)
        if self.fitted is None:
            return self._fallback.estimate(job)
        return Forecast(self.seconds(row), method=self.model)

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        self._fallback.observe(job, run_time_s, completed)
        target = math.log1p(run_time_s)
        self._rows.append(self._features.pop(job.index))
        self._targets.append(target)
        total, count, _ = self._users.get(job.user, (0.0, 0, 0.0))
        self._users[job.user] = (total + target, count + 1, target)
        name = masked(job.name)
        _add(self._names, (job.user, name, job.gpus), target, 1)
        _add(self._like, (job.user, self._groups.group(name), job.gpus), target, 1)

    @property
    def ended(self) -> int:
        """Jobs to learn from so far."""
        return len(self._rows)

    def describe(self, job: Job) -> list[float]:
        """`FEATURES` of a job as known now; NaN where unknown."""
        moment = datetime.fromtimestamp(job.submit_time, UTC)
        name = masked(job.name)
        _, count, last = self._users.get(job.user, (0.0, 0, math.nan))
        use = job.profile
        profile = [math.nan] * 3 if use is None else [use.gpu_util, use.memory_util, use.memory_mb]
        return [
            job.gpus,
            moment.hour,
            moment.weekday(),
            _mean(self._users.get(job.user)),
            last,
            _mean(self._names.get((job.user, name, job.gpus))),
            _mean(self._like.get((job.user, self._groups.group(name), job.gpus))),
            min(count, _OLD),
            *profile,
        ]

    def matrix(self, rows: list[list[float]]) -> NDArray[np.float64]:
        """Rows of `FEATURES` as the fitted model takes them (n x columns)."""
        import numpy as np

        # A number that no feature has stands for unknown: plots of a GA2M show it, unlike NaN.
        every: NDArray[np.float64] = np.array(rows, dtype=float)
        return np.where(np.isnan(every), UNKNOWN, every)[:, self.columns]

    def seconds(self, row: list[float]) -> float:
        """The fitted model's answer for a job of these `FEATURES` [s]."""
        # For one row at a time, threads cost a thousand times more than they save.
        with self._threads.limit(limits=1):
            (value,) = self.fitted.predict(self.matrix([row]))
        return math.expm1(min(max(float(value), 0.0), 20.0))

    def fit(self, now: float) -> None:
        """Fit the model to the jobs that have ended by `now` [s], with a feature that varies."""
        self._fitted_at = now
        self.fits += 1
        # A feature that the trace lacks, or that is constant, teaches nothing.
        self.columns = [
            column
            for column in range(len(FEATURES))
            if len({UNKNOWN if math.isnan(row[column]) else row[column] for row in self._rows}) > 1
        ]
        from threadpoolctl import ThreadpoolController

        self._threads = ThreadpoolController()
        with self._threads.limit(limits=1):
            self.fitted = self._new().fit(self.matrix(self._rows), self._targets)
        if self.model == "ga2m":
            self._regroup()

    def _new(self) -> Any:
        if self.model == "boosting":
            from sklearn.ensemble import HistGradientBoostingRegressor

            return HistGradientBoostingRegressor(random_state=0)
        from schedmate.schedulers.learned.ga2m import Ga2m

        names = [FEATURES[column] for column in self.columns]
        # More GPUs, no shorter (section 3.6.1).
        return Ga2m(names, increasing=["gpus"], rounds=self.rounds)

    def _regroup(self) -> None:
        """Group the names again, and aggregate what was learned by name for the new groups."""
        seen = Counter({name: 0 for _, name, _ in self._names})
        for (_, name, _), (_, count) in self._names.items():
            seen[name] += count
        self._groups.fit(seen)
        self._like = {}
        for (user, name, gpus), (total, count) in self._names.items():
            _add(self._like, (user, self._groups.group(name), gpus), total, count)


def _add(sums: dict[Key, tuple[float, int]], key: Key, total: float, count: int) -> None:
    before, number = sums.get(key, (0.0, 0))
    sums[key] = (before + total, number + count)


def _mean(sums: tuple[float, int] | tuple[float, int, float] | None) -> float:
    return math.nan if sums is None else sums[0] / sums[1]
