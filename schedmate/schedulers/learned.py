"""What a scheduler learns from the past: run times (QSSF, Lucid) and submissions to come (Lucid,
3.5).

`Learned` and `QuasiShortest` estimate run times, `LearnedLoad` the submissions of the next minutes;
`Ga2m` is the additive model behind both of Lucid's predictors.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from schedmate.base.errors import UsageError
from schedmate.base.inputs import moment_of
from schedmate.schedulers.estimators import BIN_S, DAY_S, Estimator, Load, UserMean
from schedmate.schedulers.model import Forecast, Job
from schedmate.schedulers.policy import require_schedulers_extra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Run times learned from the jobs that have ended: QSSF's model and Lucid's.
#
# Both predict the logarithm of the run time from what is known at submission, and are refitted
# from time to time on past jobs only (Lucid's Update Engine, section 3.6.2).


RUN_TIME_FEATURES = (
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

LOGARITHMIC_FEATURES = ("user_mean", "user_last", "name_mean", "like_names_mean")
"""The features above that are log(1 + seconds)."""

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
        require_schedulers_extra(*MODELS[model])
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
        name = mask_numbers(job.name)
        _add(self._names, (job.user, name, job.gpus), target, 1)
        _add(self._like, (job.user, self._groups.group(name), job.gpus), target, 1)

    @property
    def ended(self) -> int:
        """Jobs to learn from so far."""
        return len(self._rows)

    def describe(self, job: Job) -> list[float]:
        """`FEATURES` of a job as known now; NaN where unknown."""
        moment = moment_of(job.submit_time)
        name = mask_numbers(job.name)
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
            for column in range(len(RUN_TIME_FEATURES))
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

        names = [RUN_TIME_FEATURES[column] for column in self.columns]
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


# What QSSF believes of run times: a rolling estimate and boosted trees (Helios, SC'21, 4.2).
#
# The published artifact has its predictions but neither the model nor the weights, so those are
# ours.


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
        mean_s = self._like.get(self._key(job))
        if mean_s is None:
            return self._otherwise.estimate(job)
        return Forecast(mean_s, method=self.name)

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        self._otherwise.observe(job, run_time_s, completed)
        if not job.name:
            return
        self._seen[mask_numbers(job.name)] += 1
        self._ended += 1
        if self._ended % self.regroup == 0:
            # What was learned of a group stays with its name, if a group still has it.
            self._groups.fit(self._seen)
        key = self._key(job)
        before = self._like.get(key, run_time_s)
        self._like[key] = self.fading * run_time_s + (1 - self.fading) * before

    def _key(self, job: Job) -> tuple[str, str]:
        return (job.user, self._groups.group(mask_numbers(job.name)))


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


# Similar job names: Levenshtein similarity, grouped by affinity propagation.
#
# Lucid buckets the sparse names of jobs this way (section 3.5.3). Digits are masked first, since
# most names of one campaign differ only in a number. Affinity propagation compares all pairs, so
# it gets the most frequent names only; any other name joins the nearest exemplar that is similar
# enough.


_LIKE = 0.7
"""Least normalised similarity of a name to the exemplar of a group that it joins."""


def mask_numbers(name: str) -> str:
    """The name with every number as one `#`."""
    return re.sub(r"\d+", "#", name.strip().lower())


class NameGroups:
    """Groups of similar names, each represented by its exemplar.

    Args:
        most: most distinct names for affinity propagation, whose time and memory grow with the
            square.
    """

    def __init__(self, most: int = 500) -> None:
        self.most = most
        self.exemplars: list[str] = []
        self._known: dict[str, str] = {}

    def fit(self, names: Counter[str]) -> None:
        """Group these masked names, by how often each occurred."""
        frequent = [name for name, _ in names.most_common(self.most) if name]
        self._known = {}
        self.exemplars = _exemplars(frequent)

    def group(self, name: str) -> str:
        """The exemplar of a masked name's group; the name itself when it is like none."""
        group = self._known.get(name)
        if group is None:
            group = self._known[name] = self._nearest(name)
        return group

    def _nearest(self, name: str) -> str:
        if not self.exemplars or not name:
            return name
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import extractOne

        best = extractOne(
            name, self.exemplars, scorer=Levenshtein.normalized_similarity, score_cutoff=_LIKE
        )
        return name if best is None else str(best[0])


def _exemplars(names: list[str]) -> list[str]:
    if len(names) < 3:
        return names
    import warnings

    import numpy as np
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist
    from sklearn.cluster import AffinityPropagation
    from sklearn.exceptions import ConvergenceWarning

    similarity = cdist(names, names, scorer=Levenshtein.normalized_similarity, dtype=np.float64)
    pairs = similarity[~np.eye(len(names), dtype=bool)]
    if pairs.min() == pairs.max():
        return names if pairs[0] < _LIKE else names[:1]
    # The preference is a name's similarity to being its own exemplar: at the threshold, a name
    # is grouped with those that reach it, and else stays alone.
    model = AffinityPropagation(
        affinity="precomputed", preference=_LIKE, max_iter=1000, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(similarity)
    chosen = model.cluster_centers_indices_
    return [names[int(index)] for index in chosen] if len(chosen) else names


# The additive model with pairwise interactions (GA2M) behind both of Lucid's predictors.
#
# Fitted by interpret-core's explainable boosting machine. Every prediction is the sum of an
# intercept and of terms over one or two features, so a term can be drawn (Lucid, figure 7) and
# corrected: features that must not decrease the answer are made monotone by pool adjacent
# violators (section 3.6.1).


@dataclass(frozen=True)
class Term:
    """One term of a fitted model, to be drawn."""

    features: tuple[str, ...]
    """One feature, or two that interact."""
    importance: float
    """Mean absolute score over the rows that it was fitted on."""
    cuts: tuple[list[float], ...]
    """Of each feature, the values between neighbouring bins, ascending."""
    scores: list[Any]
    """What each bin adds to the answer; for two features a list of lists, the first one's bins
    outside."""

    @property
    def name(self) -> str:
        return " & ".join(self.features)


class Ga2m:
    """A GA2M over named features.

    Args:
        features: a name for each column.
        increasing: features in which predictions must not decrease; they take no part in
            interactions, so that this holds for the whole model.
        rounds: most boosting rounds.
        objective: `rmse`, or `poisson_deviance` for counts.
    """

    def __init__(
        self,
        features: Sequence[str],
        *,
        increasing: Sequence[str] = (),
        rounds: int = 500,
        objective: str = "rmse",
    ) -> None:
        from interpret.glassbox import ExplainableBoostingRegressor

        self.features = list(features)
        self._increasing = [name for name in features if name in increasing]
        self._model: Any = ExplainableBoostingRegressor(
            feature_names=self.features,
            feature_types=["continuous"] * len(self.features),
            # Two bags fit a trace in seconds, at the error of the default fourteen.
            outer_bags=2,
            interactions=5,
            exclude=[
                (kept, other)
                for kept in self._increasing
                for other in self.features
                if other != kept
            ],
            max_rounds=rounds,
            objective=objective,
            n_jobs=1,
            random_state=0,
        )

    def fit(self, rows: NDArray[np.float64], targets: Sequence[float]) -> Ga2m:
        """Fit to `rows` (n x features) and `targets` (n)."""
        self._model.fit(rows, targets)
        for name in self._increasing:
            term = self._model.term_names_.index(name)
            if len(self._model.term_scores_[term]) > 3:  # two bins besides missing and unseen
                self._model.monotonize(term, increasing=True)
        return self

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The answer for each row (n)."""
        answer: NDArray[np.float64] = self._model.predict(rows)
        return answer

    @property
    def intercept(self) -> float:
        """The constant term."""
        return float(self._model.intercept_)

    def terms(self) -> list[Term]:
        """Every term, the most important first: the global explanation."""
        model = self._model
        terms = []
        for columns, scores, importance in zip(
            model.term_features_, model.term_scores_, model.term_importances(), strict=True
        ):
            cuts = tuple(
                # An interaction may use coarser bins than its features.
                [float(cut) for cut in model.bins_[c][min(len(columns), len(model.bins_[c])) - 1]]
                for c in columns
            )
            # The outermost bins are for missing and unseen values, which these rows never have.
            inner = scores[(slice(1, -1),) * len(columns)]
            names = tuple(self.features[column] for column in columns)
            terms.append(Term(names, float(importance), cuts, inner.tolist()))
        return sorted(terms, key=lambda term: -term.importance)

    def contributions(self, row: Sequence[float]) -> dict[str, float]:
        """The contribution of each term to one row, largest first: the local explanation.

        With `intercept` they add up to the answer (of its logarithm for counts).
        """
        model = self._model
        scores = model.eval_terms([list(row)])[0]
        named = {
            " & ".join(self.features[column] for column in columns): float(score)
            for columns, score in zip(model.term_features_, scores, strict=True)
        }
        ordered = dict(sorted(named.items(), key=lambda pair: -abs(pair[1])))
        return {"intercept": self.intercept, **ordered}


# The Throughput Predict Model: jobs submitted in the next ten minutes, and the GPUs that they
# request (Lucid, section 3.5.2).


_HOUR, _DAY, _WEEK = 6, 144, 1008
"""In bins."""

LOAD_FEATURES = (
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


def load_features(counts: NDArray[np.float64], first_bin: int) -> NDArray[np.float64]:
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
        require_schedulers_extra("interpret")
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
        return load_features(counts, first), counts

    def _fit(self, rows: NDArray[np.float64], counts: NDArray[np.float64], now: float) -> None:

        self._fitted_at = now
        self.fits += 1
        # The first week has no week ago.
        rows_known = slice(_WEEK, len(counts))
        self.model = Ga2m(LOAD_FEATURES, rounds=self.load.rounds, objective="poisson_deviance").fit(
            rows[rows_known], counts[rows_known].tolist()
        )
