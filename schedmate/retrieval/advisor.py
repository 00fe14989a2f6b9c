"""The Scheduling Advisor: estimates run time and utilisation of a new job from past jobs like
it.

It searches the history, chooses the past runs that count, says how far the job lies outside of
them and what the width of the interval comes from. `run_time.py` makes the distribution.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol, Self

from schedmate.base.inputs import format_duration
from schedmate.base.terminal import counted
from schedmate.jobs import (
    Estimate,
    Extrapolation,
    IntervalBasis,
    JobRecord,
    LaunchConfig,
    Neighbour,
    WorkloadMetadata,
)
from schedmate.retrieval.run_time import (
    MEASURED_WORTH,
    Adjustment,
    Prediction,
    Prior,
    Run,
    Spread,
    adjust,
    predict,
)
from schedmate.retrieval.similarity import with_doubt

if TYPE_CHECKING:
    from schedmate.retrieval.embedders import Embedder
    from schedmate.retrieval.history import Match, Matches


@dataclass(frozen=True, slots=True)
class Candidate:
    """A past run with its similarity to the new job, and what corrects its run time [s].

    `workload` is equal for the same training at another length.
    """

    record: JobRecord
    duration_s: float
    similarity: float
    exact: bool
    adjustment: Adjustment
    workload: str

    @classmethod
    def of(
        cls,
        record: JobRecord,
        similarity: float,
        exact: bool,
        adjustment: Adjustment,
        workload: str,
    ) -> Self:
        """A candidate of a record, which must state its run time; similarities above 1 become 1."""
        assert record.duration_s is not None
        return cls(record, record.duration_s, min(similarity, 1.0), exact, adjustment, workload)


# SchedMate paper, section 3.1: embed the metadata, take the top-k past jobs above a similarity
# threshold, average. `method="mean"` is that; the default, `weighted`, is what measured better
# (benchmarks/advisor.py, docs/advisor.md).


Method = Literal["weighted", "mean"]

RUNS = 32
"""Limit for the completed past runs of one estimate: the latest ones."""

CUT_SHORT = 16
"""Limit for those that were cut short. A limit of their own: each says that the job lasts at least
so long, and however many there are, they replace none that completed."""

SEARCHED = 48
"""Past runs requested from the index; more than k, so that equal vectors do not hide others."""

HALF_LIFE = 6.0
"""A run counts half as much as one this many runs later. Runs, not days: workloads change when
people work on them, and the best half-life in days differs from trace to trace."""

PRIOR = Prior(runs=4.0, spreads=3.0, share=0.5)
"""Chosen on the first halves of the real traces of benchmarks/intervals.py."""

TAIL = 1.32
"""The distance that eight of ten runs stay within, over their mean distance; chosen with PRIOR."""

UNKNOWN_LENGTH = 0.25
"""Weight of a run whose training length cannot be compared, against one where it can."""

OTHER_GPU = 0.5
"""Weight of a run on another GPU type; there is no measured speed ratio to correct with."""


NEAR = 0.1
"""A job so far below the threshold is a near miss, and the answer says how to accept it."""


class PastJobs(Protocol):
    """The interface of a history that the advisor uses; `JobHistory` implements it."""

    @property
    def embedder(self) -> Embedder:
        """The embedder of the history's vectors."""
        ...

    def by_fingerprint(
        self, fingerprint: str, *, before: float | None = None
    ) -> Sequence[JobRecord]:
        """Runs with this fingerprint, the latest ended first (`JobTable.by_fingerprint`)."""
        ...

    def search(
        self, metadata: WorkloadMetadata, k: int, threshold: float, *, before: float | None = None
    ) -> Matches:
        """The most similar runs above a threshold, at most `k` that completed
        (`JobHistory.search`)."""
        ...

    def spread(self) -> Spread:
        """How much run times vary in this history (`JobTable.spread`)."""
        ...


class SchedulingAdvisor:
    """Estimates from one history.

    `threshold` is the minimum cosine similarity of a neighbour (None: the embedder's own). `k` is
    the number of neighbours in the mean. The weighted method uses resubmissions; without a
    completed one, the same workload at another length; without that, the runs of the k most similar
    workloads.
    """

    def __init__(
        self,
        history: PastJobs,
        *,
        threshold: float | None = None,
        k: int = 3,
        method: Method = "weighted",
    ) -> None:
        if k < 1:
            raise ValueError("k must be at least 1")
        self._history = history
        self._threshold = history.embedder.threshold if threshold is None else threshold
        self._k = k
        self._method: Method = method

    def estimate(
        self,
        metadata: WorkloadMetadata,
        launch: LaunchConfig,
        now: float | None = None,
        *,
        explain: bool = True,
    ) -> Estimate:
        """Estimate a job with this metadata and launch configuration from the history.

        `now` [s since epoch] is the submission time: runs that ended later are ignored. Without it,
        the present is used and every run of the history counts. The point estimate is the median
        (`mean`: the mean). The estimate abstains, with the reason, if no run is similar, none of
        the similar ones completed, or the job does not end by itself. Without `explain`, the reason
        that nothing is similar is left out: `nothing_similar` states it, which takes a search.
        """
        if metadata.endless:
            return Estimate.without_end(metadata.job_kind)
        if metadata.model.model_name is None and metadata.data_name is None:
            return self._abstain("neither a model nor a dataset is known, so nothing to compare")
        candidates = self._candidates(metadata, launch, now)
        if not candidates:
            return self._abstain(self.nothing_similar(metadata, now) if explain else None)
        weights = self._weights(candidates, metadata)
        spread = self._history.spread()
        same = workload_fingerprint(metadata)
        shared = _shared_doubts([item.adjustment for item in candidates], weights)
        runs = [
            Run(
                item.duration_s * item.adjustment.factor,
                weight,
                item.record.censored,
                spread.between(
                    item.workload == same, item.adjustment, item.adjustment.doubt_beside(shared)
                )
                / TAIL,
            )
            for item, weight in zip(candidates, weights, strict=True)
        ]
        neighbours = neighbours_of(candidates, runs, time.time() if now is None else now)
        extrapolated = extrapolations(metadata, launch, candidates)
        if far := too_far(extrapolated):
            return self._abstain(f"too far from every similar job: {far.text}", neighbours)
        prediction = predict(runs, PRIOR, shared.doubt)
        if prediction is None:
            longest = max(run.duration_s for run in runs)
            return self._abstain(
                f"none of the {len(runs)} similar runs completed; the longest stopped at "
                f"{longest:.0f} s",
                neighbours,
            )
        completed = [run.duration_s for run in runs if not run.censored]
        return Estimate(
            duration_s=prediction.p50_s
            if self._method == "weighted"
            else statistics.fmean(completed),
            duration_p10_s=prediction.p10_s,
            duration_p50_s=prediction.p50_s,
            duration_p90_s=prediction.p90_s,
            quantiles_s=list(prediction.quantiles_s),
            gpu_util=self._usage([item.record.gpu_util for item in candidates], weights),
            sm_util=self._usage([item.record.sm_util for item in candidates], weights),
            gpu_mem_mb=self._usage([item.record.gpu_mem_mb for item in candidates], weights),
            interval_basis=interval_basis(
                candidates, runs, same, prediction, spread, TAIL, shared.doubt
            ),
            extrapolated=extrapolated,
            neighbours=neighbours,
            method=self._method,
            abstained=False,
            reason="most similar runs stopped early, so this is a lower bound"
            if prediction.bounded
            else None,
        )

    def _usage(self, values: list[float | None], weights: list[float]) -> float | None:
        """The median of the resource usage of runs that state it; also of interrupted runs."""
        stated = [
            (value, weight)
            for value, weight in zip(values, weights, strict=True)
            if value is not None
        ]
        return _mean_value(stated) if self._method == "mean" else _weighted_median(stated)

    def _abstain(self, reason: str | None, neighbours: Sequence[Neighbour] = ()) -> Estimate:
        return Estimate(method=self._method, reason=reason, neighbours=list(neighbours))

    def nothing_similar(self, metadata: WorkloadMetadata, now: float | None) -> str:
        """Why no run of the history is similar, with the closest one; arguments of `estimate`."""
        closest = self._history.search(metadata, k=1, threshold=-1.0, before=now)
        if not closest:
            return (
                "no run that has ended says what it trained; `schedmate history import --analyze` "
                "reads that from their code"
            )
        return f"no similar job: {_near_miss(closest[0], self._threshold)}"

    def _candidates(
        self, metadata: WorkloadMetadata, launch: LaunchConfig, now: float | None
    ) -> list[Candidate]:
        """The past runs that the estimate is made of: at most `RUNS` that completed (`mean`: at
        most k), and `CUT_SHORT` that did not."""
        if self._method == "mean":
            candidates = self._similar(metadata, launch, now)
            # The paper does not tell cut-short runs apart; averaging one in would only mislead,
            # so they are left out unless there is nothing else, which abstains.
            completed = [item for item in candidates if not item.record.censored]
            return (completed or candidates)[: self._k]
        same = workload_fingerprint(metadata)
        exact = [
            Candidate.of(record, 1.0, True, adjust(metadata, launch, record), same)
            for record in self._history.by_fingerprint(metadata.fingerprint(), before=now)
        ]
        chosen = sorted(exact, key=latest_first)
        if any_completed(chosen):
            return _within_limits(chosen)
        candidates = [item for item in self._similar(metadata, launch, now) if not item.exact]
        chosen += [item for item in candidates if item.workload == same]
        if not any_completed(chosen):
            chosen += self._of_nearest(item for item in candidates if item.workload != same)
        return _within_limits(chosen)

    def _of_nearest(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The runs of the k most similar workloads of which one completed, and those cut short
        that are as similar, workload by workload."""
        runs = list(candidates)
        completed: dict[str, list[Candidate]] = {}
        for item in runs:
            if not item.record.censored:
                completed.setdefault(item.workload, []).append(item)
        # Most similar first: the order in which the groups were begun.
        nearest = dict(list(completed.items())[: self._k])
        least = min((group[0].similarity for group in nearest.values()), default=-math.inf)
        beside: dict[str, list[Candidate]] = {workload: [] for workload in nearest}
        for item in runs:
            if item.record.censored and (item.similarity >= least or item.workload in nearest):
                beside.setdefault(item.workload, []).append(item)
        return [
            item for workload, cut in beside.items() for item in [*nearest.get(workload, []), *cut]
        ]

    def _similar(
        self, metadata: WorkloadMetadata, launch: LaunchConfig, now: float | None
    ) -> list[Candidate]:
        """Runs above the threshold, most similar first, the latest first among equals."""
        matches = self._history.search(
            metadata, k=max(SEARCHED, self._k), threshold=self._threshold, before=now
        )
        candidates = [
            Candidate.of(
                match.record,
                match.similarity,
                match.exact,
                Adjustment() if self._method == "mean" else adjust(metadata, launch, match.record),
                workload_fingerprint(match.record.metadata),
            )
            for match in matches
        ]
        candidates.sort(
            key=lambda item: (
                -self._closeness(item, metadata),
                -item.similarity,
                *latest_first(item),
            )
        )
        return candidates

    def _weights(self, candidates: list[Candidate], metadata: WorkloadMetadata) -> list[float]:
        """Relative weights, all above zero: higher for recent, similar and less corrected runs."""
        if self._method == "mean":
            return [1.0] * len(candidates)
        ends = sorted({end_moment(item.record) for item in candidates}, reverse=True)
        rank = {end: place for place, end in enumerate(ends)}
        return [
            self._closeness(item, metadata)
            * 0.5 ** (rank[end_moment(item.record)] / HALF_LIFE)
            / (1.0 + abs(math.log(item.adjustment.factor))) ** 2
            * (UNKNOWN_LENGTH if item.adjustment.unknown_length else 1.0)
            * (OTHER_GPU if item.adjustment.other_gpu else 1.0)
            for item in candidates
        ]

    def _closeness(self, item: Candidate, metadata: WorkloadMetadata) -> float:
        """1 for a resubmission, falling to a floor at the threshold; unsure names count less."""
        close = 1.0
        if not item.exact and self._threshold < 1.0:
            share = (item.similarity - self._threshold) / (1.0 - self._threshold)
            close = min(share, 1.0)
        return max(with_doubt(close, metadata, item.record.metadata), 0.05)


def _shared_doubts(adjustments: Sequence[Adjustment], weights: Sequence[float]) -> Adjustment:
    """What the corrections have in common: their mean doubts, which cancel on opposite sides."""
    total = sum(weights)
    pairs = list(zip(adjustments, weights, strict=True))
    return Adjustment(
        length_doubt=sum(adjustment.length_doubt * weight for adjustment, weight in pairs) / total,
        gpus_doubt=sum(adjustment.gpus_doubt * weight for adjustment, weight in pairs) / total,
    )


def _mean_value(runs: Sequence[tuple[float, float]]) -> float | None:
    return statistics.fmean(value for value, _ in runs) if runs else None


def _weighted_median(runs: Sequence[tuple[float, float]]) -> float | None:
    half = sum(weight for _, weight in runs) / 2
    for value, weight in sorted(runs):
        half -= weight
        if half <= 0:
            return value
    return None


# Past runs as candidates of an estimate, and as the neighbours that it lists.


def workload_fingerprint(metadata: WorkloadMetadata) -> str:
    """A fingerprint that is equal for the same training at another length."""
    return _cached_fingerprint(metadata.model_dump_json(by_alias=True, exclude={"evidence"}))


@lru_cache(maxsize=1 << 14)
def _cached_fingerprint(document: str) -> str:
    # Past jobs are looked at again and again, and a fingerprint takes ten times as long as this.
    metadata = WorkloadMetadata.model_validate_json(document)
    training = metadata.training.model_copy(update={"iters": None})
    return metadata.model_copy(update={"training": training}).fingerprint()


def any_completed(candidates: Sequence[Candidate]) -> bool:
    """Whether one of the candidates completed, so that its run time is not only a lower bound."""
    return any(not item.record.censored for item in candidates)


def _within_limits(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first of them, those that completed and those cut short each up to their own limit."""
    left = {False: RUNS, True: CUT_SHORT}
    chosen = []
    for item in candidates:
        left[item.record.censored] -= 1
        if left[item.record.censored] >= 0:
            chosen.append(item)
    return chosen


def end_moment(record: JobRecord) -> float:
    """The end of a run [s since epoch], else its start or submission; -inf without any time."""
    for moment in (record.end_time, record.start_time, record.submit_time):
        if moment is not None:
            return moment
    return -math.inf


def latest_first(item: Candidate) -> tuple[float, str]:
    """Sort key: the run that ended last comes first, equals in order of their job ids."""
    return (-end_moment(item.record), item.record.job_id)


def neighbours_of(candidates: list[Candidate], runs: list[Run], now: float) -> list[Neighbour]:
    """The runs as an estimate lists them, largest weight first; weights add up to 1.

    `candidates` and `runs` belong together item by item; ages are taken at `now` [s since epoch].
    """
    total = sum(run.weight for run in runs)
    neighbours = [
        Neighbour(
            job_id=item.record.job_id,
            similarity=item.similarity,
            exact=item.exact,
            weight=run.weight / total,
            duration_s=item.duration_s,
            adjusted_duration_s=run.duration_s,
            censored=run.censored,
            state=item.record.state,
            age_s=max(0.0, now - item.record.end_time) if item.record.end_time else None,
            summary=_neighbour_summary(item.record),
        )
        for item, run in zip(candidates, runs, strict=True)
    ]
    return sorted(neighbours, key=lambda item: (-item.weight, item.job_id))


def _near_miss(closest: Match, threshold: float) -> str:
    """The closest job, its run time, and the threshold that would accept it if little is missing.

    The similarity has as many digits as tell it from the threshold.
    """
    record, similarity = closest.record, closest.similarity
    digits = next((n for n in range(2, 6) if round(similarity, n) < round(threshold, n)), 6)
    of = ", ".join(
        part
        for part in (
            _neighbour_summary(record),
            None if record.duration_s is None else f"ran {format_duration(record.duration_s)}",
        )
        if part
    )
    text = (
        f"the closest, {record.job_id}{f' ({of})' if of else ''}, has similarity "
        f"{similarity:.{digits}f}, below {threshold:.{max(2, digits)}f}"
    )
    if similarity >= threshold - NEAR:
        accepted = math.floor(similarity * 10**digits) / 10**digits
        text += f"; `--threshold {accepted:.{digits}f}` accepts it"
    return text


def _neighbour_summary(record: JobRecord) -> str:
    training = record.metadata.training
    gpus = record.launch.gpus
    parts = [
        record.metadata.model.model_name,
        record.metadata.data_name,
        counted(training.iters, training.iter_type or "iteration") if training.iters else None,
        counted(gpus, "GPU") if gpus else None,
    ]
    return ", ".join(part for part in parts if part)


# How far a job lies outside of what the past runs behind its estimate did.
#
# A run time is corrected for length and GPUs by exponents (`run_time.py`), whose doubt widens the
# interval with the distance. Here it is said how far that is, and where there is no answer any
# more.


MENTIONED_FACTOR = 1.5
"""Least factor beyond the nearest run that is worth a sentence."""

FARTHEST_FACTORS = {"GPUs": 64.0, "epochs": 1000.0, "steps": 1000.0}
"""Largest factor beyond the nearest run at which there is still an estimate. No exponent was ever
measured between numbers of GPUs further apart (one model of the Sia artifact, 2 to 128 GPUs); of a
run a thousand times as long, what the short one mostly did, start, says nothing."""


def extrapolations(
    metadata: WorkloadMetadata, launch: LaunchConfig, candidates: Sequence[Candidate]
) -> list[Extrapolation]:
    """The quantities (GPUs, length) in which the job lies outside of the completed candidates."""
    completed = [item.record for item in candidates if not item.record.censored]
    sides = [_extrapolation("GPUs", launch.gpus, [record.launch.gpus for record in completed])]
    unit = metadata.training.iter_type
    if unit is not None:
        lengths = [
            record.metadata.training.iters
            for record in completed
            if record.metadata.training.iter_type == unit
        ]
        sides.append(_extrapolation(f"{unit}s", metadata.training.iters, lengths))
    return [side for side in sides if side is not None]


def too_far(outside: Sequence[Extrapolation]) -> Extrapolation | None:
    """The first extrapolation beyond `FARTHEST_FACTORS`, which rules out an estimate; or None."""
    return next((side for side in outside if side.factor > FARTHEST_FACTORS[side.quantity]), None)


def _extrapolation(
    quantity: str, asked: float | None, seen: Sequence[float | None]
) -> Extrapolation | None:
    past = [number for number in seen if number is not None and number > 0]
    if not past or asked is None or asked <= 0:
        return None
    least, most = min(past), max(past)
    factor = max(asked / most, least / asked)
    if factor < MENTIONED_FACTOR:
        return None
    unit = quantity.removesuffix("s")
    span = counted(most, unit) if least == most else f"{least:,.12g} to {counted(most, unit)}"
    verb = "ran on" if quantity == "GPUs" else "ran for"
    times = f"{factor:,.0f}" if factor >= 100 else f"{factor:.3g}"
    far = f"1/{times} as many" if asked < least else f"{times} times as many"
    return Extrapolation.model_validate(
        {
            "quantity": quantity,
            "asked": asked,
            "least": least,
            "most": most,
            "factor": factor,
            "text": f"neighbours {verb} {span}, this job asks for {asked:,.12g}: {far}",
        }
    )


# A sentence on the sources of an interval's width.


Recurrence = Literal["same job", "same job, other length", "similar jobs"]

_RUNS_IN_WORDS: dict[Recurrence, tuple[str, str]] = {
    "same job": ("of the same job", "runs of one job"),
    "same job, other length": ("of the same job with another length", "runs of one job"),
    "similar jobs": ("of similar jobs", "runs of similar jobs"),
}
"""The runs at hand, and such runs in general."""

MENTIONED_DOUBT = 0.05
"""Doubt about a correction [log of a factor] from which on it is mentioned."""


def interval_basis(
    candidates: Sequence[Candidate],
    runs: Sequence[Run],
    same: str,
    prediction: Prediction,
    spread: Spread,
    tail: float,
    shared: float,
) -> IntervalBasis:
    """Of an estimate from these past runs, in the same order, for a job of the workload `same`.

    `tail` times a mean absolute error is the distance that eight of ten stay within, and `shared`
    [log of a factor] that of what all runs have in common. At least one run completed.
    """
    completed = [at for at, run in enumerate(runs) if not run.censored]
    times = [runs[at].duration_s for at in completed]
    recurrence: Recurrence = "similar jobs"
    if any(candidates[at].exact for at in completed):
        recurrence = "same job"
    elif any(candidates[at].workload == same for at in completed):
        recurrence = "same job, other length"
    basis = IntervalBasis(
        recurrence=recurrence,
        runs=len(completed),
        cut_short=len(runs) - len(completed),
        runs_factor=max(times) / min(times),
        expected_factor=math.exp(math.hypot(prediction.expected * tail, shared)),
        learned_from=spread.jobs,
        from_runs=prediction.own,
        text="",
    )
    doubted = any(candidates[at].adjustment.doubt > MENTIONED_DOUBT for at in completed)
    return basis.model_copy(update={"text": _basis_sentence(basis, doubted)})


def _basis_sentence(basis: IntervalBasis, doubted: bool) -> str:
    these, such = _RUNS_IN_WORDS[basis.recurrence]
    runs = f"{counted(basis.runs, 'run')} {these}"
    if basis.from_runs >= 0.5:
        text = (
            f"how much {runs} vary (the longest took {basis.runs_factor:,.1f} times as long as "
            "the shortest)"
        )
    else:
        where = "on other clusters"
        if basis.learned_from >= MEASURED_WORTH:
            where = f"in this history, measured on {counted(basis.learned_from, 'repeated job')}"
        elif basis.learned_from:
            where = "in this history and on other clusters"
        corrected = ", rescaled in the same way" if doubted else ""
        text = (
            f"how much {such} vary {where} (80 % within a factor of "
            f"{basis.expected_factor:,.1f}{corrected}); "
        )
        if basis.runs == 1:
            text += f"{runs} available"
        else:
            text += f"{runs} available, within a factor of {basis.runs_factor:,.2f}"
    cut = f"; {basis.cut_short} more cut short" if basis.cut_short else ""
    return f"covers 80 % of such jobs; its width reflects {text}{cut}"
