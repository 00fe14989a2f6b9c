"""The Throughput Predict Model: jobs submitted in the next ten minutes, and the GPUs that they
request (Lucid, section 3.5.2)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from schedmate.schedulers.learned.packages import require
from schedmate.schedulers.load import BIN_S, DAY_S, Load

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HOUR, _DAY, _WEEK = 6, 144, 1008
"""In bins."""

FEATURES = (
    "hour",
    "weekday",
    "minute",
    "last",
    "before_last",
    "mean_1h",
    "median_1h",
    "mean_3h",
    "mean_day",
    "mean_week",
    "fading_sum",  # of all bins so far, each counting 0.8 of the one after it
    "yesterday",
    "week_ago",
)


def features(counts: NDArray[np.float64], first_bin: int) -> NDArray[np.float64]:
    """Features known before each bin of a series, and before the one after its end.

    Args:
        counts: jobs in each bin, shape (n,); the first bin is number `first_bin` since the epoch.

    Returns shape (n + 1, `FEATURES`): row i uses `counts[:i]` only.
    """
    import numpy as np

    number = len(counts) + 1
    bins = first_bin + np.arange(number)
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    position = np.arange(number)

    def mean(width: int) -> NDArray[np.float64]:
        low = np.maximum(position - width, 0)
        answer: NDArray[np.float64] = (sums - sums[low]) / np.maximum(position - low, 1)
        return answer

    def back(width: int) -> NDArray[np.float64]:
        kept = counts[: max(number - width, 0)]
        return np.concatenate([np.zeros(number - len(kept)), kept])

    fading = np.zeros(number)
    for index in range(1, number):
        fading[index] = 0.8 * fading[index - 1] + counts[index - 1]
    padded = np.concatenate([np.zeros(_HOUR), counts])
    median = np.median(np.lib.stride_tricks.sliding_window_view(padded, _HOUR), axis=1)
    return np.column_stack(
        [
            bins // 6 % 24,
            (bins // _DAY + 3) % 7,  # the epoch was a Thursday
            bins % 6 * 10,
            back(1),
            back(2),
            mean(_HOUR),
            median,
            mean(3 * _HOUR),
            mean(_DAY),
            mean(_WEEK),
            fading,
            back(_DAY),
            back(_WEEK),
        ]
    ).astype(float)


class LearnedLoad(Load):
    """GA2Ms of the submissions so far, fitted again every `update_s`; before that, the season.

    Args:
        update_s: time between fits [s] (Lucid's Update Engine, section 3.6.2).
        least_s: history needed before the first fit [s].
        rounds: most boosting rounds.

    Raises `UsageError` when the package that the model needs is not installed.
    """

    name: ClassVar[str] = "ga2m"

    def __init__(
        self, update_s: float = 7 * DAY_S, least_s: float = 14 * DAY_S, rounds: int = 500
    ) -> None:
        require("interpret")
        self.update_s = update_s
        self.least_s = least_s
        self.rounds = rounds
        self._jobs, self._gpus = _Series(self), _Series(self)

    @property
    def fits(self) -> int:
        """How often the forecast of jobs was fitted."""
        return self._jobs.fits

    @property
    def model(self) -> Any:
        """The fitted model of jobs, a `Ga2m`; None before the first fit."""
        return self._jobs.model

    def expected(self, submitted: Sequence[float], now: float) -> float:
        """Forecast number of jobs in the next ten minutes; computed once for each bin."""
        if not submitted or now - submitted[0] < self.least_s:
            return super().expected(submitted, now)
        return self._jobs.expected(submitted, None, now)

    def expected_gpus(
        self, submitted: Sequence[float], requested: Sequence[int], now: float
    ) -> float:
        """Forecast number of GPUs that they request together; computed once for each bin."""
        if not submitted or now - submitted[0] < self.least_s:
            return super().expected_gpus(submitted, requested, now)
        return self._gpus.expected(submitted, requested, now)


class _Series:
    """One of the two series, jobs or their GPUs, and its model."""

    def __init__(self, load: LearnedLoad) -> None:
        self.load = load
        self.fits = 0
        self.model: Any = None
        self._fitted_at = -math.inf
        self._bin = -1
        self._answer = 0.0

    def expected(
        self, submitted: Sequence[float], requested: Sequence[int] | None, now: float
    ) -> float:
        here = int(now // BIN_S)
        if here != self._bin:
            first = int(submitted[0] // BIN_S)
            rows, counts = self._past(submitted, requested, first, here)
            if now - self._fitted_at >= self.load.update_s:
                self._fit(rows, counts, now)
            self._bin = here
            self._answer = max(0.0, float(self.model.predict(rows[-1:])[0]))
        return self._answer

    def _past(
        self, submitted: Sequence[float], requested: Sequence[int] | None, first: int, here: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Features and counts of the bins that are over, up to three weeks when not fitting."""
        import numpy as np

        if self.model is not None and here * BIN_S - self._fitted_at < self.load.update_s:
            first = max(first, here - 3 * _WEEK)
        edges = np.arange(first, here + 1) * BIN_S
        skipped = bisect_left(submitted, edges[0])
        places = np.searchsorted(np.asarray(submitted[skipped:]), edges)
        if requested is not None:
            places = np.asarray(requested[skipped:])[places]
        counts = np.diff(places).astype(float)
        return features(counts, first), counts

    def _fit(self, rows: NDArray[np.float64], counts: NDArray[np.float64], now: float) -> None:
        from schedmate.schedulers.learned.ga2m import Ga2m

        self._fitted_at = now
        self.fits += 1
        # The first week has no week ago.
        known = slice(_WEEK, len(counts))
        self.model = Ga2m(FEATURES, rounds=self.load.rounds, objective="poisson_deviance").fit(
            rows[known], counts[known].tolist()
        )
