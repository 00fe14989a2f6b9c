"""Durations learnt from the jobs that have ended: QSSF's model and Lucid's.

Both predict the logarithm of the run time from what is known at submission, and are fitted anew
now and then on nothing but the past (Lucid's Update Engine, section 3.6.2).
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from schedmate.errors import UsageError
from schedmate.schedulers.estimators import Estimator, UserMean
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
    "name_mean",  # the user's ended jobs of a like name and as many GPUs
    "jobs_of_user",
    "gpu_util",
    "memory_util",
    "memory_mb",
)

_UNKNOWN = -1.0

MODELS = ("boosting", "ga2m")


class Learned(Estimator):
    """A model of log run time, fitted again every `update_s` of the trace's time.

    Args:
        model: `boosting` (QSSF: gradient-boosted trees) or `ga2m` (Lucid: an additive model with
            pairwise interactions, whose every term can be looked at).
        update_s: time between fits [s]; a week is Lucid's choice (section 4.5).
        rounds: most boosting rounds of a GA2M.
        least: ended jobs before the first fit; until then the user's mean answers.

    Raises `UsageError` when the package that the model needs is not installed.
    """

    def __init__(
        self, model: str, update_s: float = 7 * 86_400.0, least: int = 500, rounds: int = 2000
    ) -> None:
        _require(model)
        self.rounds = rounds
        self.model = model
        self.update_s = update_s
        self.least = least
        self.fits = 0
        self._fallback = UserMean()
        self._fitted: Any = None
        self._columns: list[int] = []
        self._threads: Any = None
        self._fitted_at = -math.inf
        self._features: dict[int, list[float]] = {}
        self._rows: list[list[float]] = []
        self._targets: list[float] = []
        self._users: dict[str, tuple[float, int, float]] = {}  # sum of logs, count, last
        self._names: dict[tuple[str, str, int], tuple[float, int]] = {}

    def estimate(self, job: Job) -> Forecast | None:
        features = self._features[job.index] = self._describe(job)
        due = job.submit_time - self._fitted_at >= self.update_s
        if due and len(self._rows) >= self.least:
            self._fit(job.submit_time)
        if self._fitted is None:
            return self._fallback.estimate(job)
        # One row at a time, threads cost a thousand times what they save.
        with self._threads.limit(limits=1):
            (value,) = self._fitted.predict(_matrix([features])[:, self._columns])
        return Forecast(math.expm1(min(max(float(value), 0.0), 20.0)), method=self.model)

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        self._fallback.observe(job, run_time_s, completed)
        target = math.log1p(run_time_s)
        self._rows.append(self._features.pop(job.index))
        self._targets.append(target)
        total, count, _ = self._users.get(job.user, (0.0, 0, 0.0))
        self._users[job.user] = (total + target, count + 1, target)
        key = (job.user, _bucket(job.name), job.gpus)
        name_total, name_count = self._names.get(key, (0.0, 0))
        self._names[key] = (name_total + target, name_count + 1)

    def explain(self) -> dict[str, float]:
        """How much each term of a fitted GA2M weighs, the mean of its absolute score."""
        if self.model != "ga2m" or self._fitted is None:
            return {}
        return dict(
            zip(self._fitted.term_names_, map(float, self._fitted.term_importances()), strict=True)
        )

    def _describe(self, job: Job) -> list[float]:
        moment = datetime.fromtimestamp(job.submit_time, UTC)
        user, name = math.nan, math.nan
        total, count, last = self._users.get(job.user, (0.0, 0, math.nan))
        if count:
            user = total / count
        name_total, name_count = self._names.get((job.user, _bucket(job.name), job.gpus), (0.0, 0))
        if name_count:
            name = name_total / name_count
        use = job.profile
        profile = [math.nan] * 3 if use is None else [use.gpu_util, use.memory_util, use.memory_mb]
        return [job.gpus, moment.hour, moment.weekday(), user, last, name, count, *profile]

    def _fit(self, now: float) -> None:
        self._fitted_at = now
        self.fits += 1
        rows = _matrix(self._rows)
        # What the trace does not say, or says the same of all, teaches nothing.
        self._columns = [
            column for column in range(len(FEATURES)) if _varies(rows[:, column].tolist())
        ]
        if self.model == "boosting":
            from sklearn.ensemble import HistGradientBoostingRegressor

            model = HistGradientBoostingRegressor(random_state=0)
        else:
            from interpret.glassbox import ExplainableBoostingRegressor

            model = ExplainableBoostingRegressor(
                feature_names=[FEATURES[column] for column in self._columns],
                outer_bags=2,
                interactions=5,
                max_rounds=self.rounds,
                n_jobs=1,
                random_state=0,
                # More GPUs, no shorter: a constraint by pool adjacent violators (section 3.6.1).
                monotone_constraints=[int(FEATURES[c] == "gpus") for c in self._columns],
            )
        from threadpoolctl import ThreadpoolController

        self._threads = ThreadpoolController()
        with self._threads.limit(limits=1):
            model.fit(rows[:, self._columns], self._targets)
        self._fitted = model


def _bucket(name: str) -> str:
    """Names that differ only in numbers are alike."""
    return re.sub(r"\d+", "#", name)


def _varies(values: list[float]) -> bool:
    return len(set(values)) > 1


def _matrix(rows: list[list[float]]) -> NDArray[np.float64]:
    import numpy as np

    # A number that no feature has stands for unknown: the plots of a GA2M show it, unlike NaN.
    matrix: NDArray[np.float64] = np.array(rows, dtype=float)
    return np.where(np.isnan(matrix), _UNKNOWN, matrix)


def _require(model: str) -> None:
    if model not in MODELS:
        raise UsageError(f"no model {model!r}; there are {', '.join(MODELS)}.")
    package = "sklearn" if model == "boosting" else "interpret"
    if find_spec(package) is None:
        raise UsageError(
            f"the {model} estimator needs more packages: pip install 'schedmate[schedulers]'."
        )
