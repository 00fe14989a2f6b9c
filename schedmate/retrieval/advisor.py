"""The Scheduling Advisor: run time and utilisation of a new job from past jobs like it.

SchedMate paper, section 3.1: embed the metadata, take the top-k past jobs above a similarity
threshold, average. `method="mean"` is that; the default, `weighted`, is what measured better
(benchmarks/advisor.py, docs/advisor.md).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from schedmate.jobs import Estimate, JobRecord, LaunchConfig, Neighbour, WorkloadMetadata
from schedmate.retrieval.adjust import Adjustment, adjust
from schedmate.retrieval.basis import basis
from schedmate.retrieval.candidates import (
    Candidate,
    any_completed,
    ended,
    latest_first,
    neighbours_of,
    usable,
    workload,
)
from schedmate.retrieval.extrapolation import extrapolations, too_far
from schedmate.retrieval.predictive import Prior, Run, predict
from schedmate.retrieval.spread import Spread

if TYPE_CHECKING:
    from schedmate.retrieval.embedders import Embedder
    from schedmate.retrieval.history import Matches

Method = Literal["weighted", "mean"]

RUNS = 32
"""Limit for the past runs of one estimate: the latest ones."""

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


class PastJobs(Protocol):
    """The interface of a history that the advisor uses; `JobHistory` implements it."""

    @property
    def embedder(self) -> Embedder:
        """The embedder of the history's vectors."""
        ...

    def by_fingerprint(self, fingerprint: str) -> Sequence[JobRecord]:
        """See `JobTable.by_fingerprint`."""
        ...

    def search(
        self, metadata: WorkloadMetadata, k: int, threshold: float, ended_only: bool = True
    ) -> Matches:
        """See `JobHistory.search`."""
        ...

    def spread(self) -> Spread:
        """See `JobTable.spread`."""
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
        self, metadata: WorkloadMetadata, launch: LaunchConfig, now: float | None = None
    ) -> Estimate:
        """Estimate a job with this metadata and launch configuration from the history.

        `now` [s since epoch] is the submission time: runs that ended later are ignored. Without it,
        the present is used and every run of the history counts. The point estimate is the median
        (`mean`: the mean). The estimate abstains, with the reason, if no run is similar or none of
        the similar ones completed.
        """
        if metadata.model.model_name is None and metadata.dataset.train is None:
            return self._abstain("neither a model nor a dataset is known, so nothing to compare")
        candidates = self._candidates(metadata, launch, now)
        if not candidates:
            return self._abstain(self._nothing_similar(metadata))
        weights = self._weights(candidates)
        spread = self._history.spread()
        same = workload(metadata)
        shared = _shared([item.adjustment for item in candidates], weights)
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
            gpu_util=self._usage([item.record.gpu_util for item in candidates], weights),
            sm_util=self._usage([item.record.sm_util for item in candidates], weights),
            gpu_mem_mb=self._usage([item.record.gpu_mem_mb for item in candidates], weights),
            interval_basis=basis(candidates, runs, same, prediction, spread, TAIL, shared.doubt),
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
        known = [
            (value, weight)
            for value, weight in zip(values, weights, strict=True)
            if value is not None
        ]
        return _mean(known) if self._method == "mean" else _weighted_median(known)

    def _abstain(self, reason: str, neighbours: Sequence[Neighbour] = ()) -> Estimate:
        return Estimate(method=self._method, reason=reason, neighbours=list(neighbours))

    def _nothing_similar(self, metadata: WorkloadMetadata) -> str:
        closest = self._history.search(metadata, k=1, threshold=-1.0, ended_only=True)
        if not closest:
            return (
                "no run that has ended says what it trained; `schedmate history import --analyze` "
                "reads that from their code"
            )
        similarity = closest[0].similarity
        if similarity >= self._threshold:
            return "no similar job says how long it ran"
        return (
            f"no similar job: the closest has similarity {similarity:.2f}, "
            f"below {self._threshold:.2f}"
        )

    def _candidates(
        self, metadata: WorkloadMetadata, launch: LaunchConfig, now: float | None
    ) -> list[Candidate]:
        """The runs to estimate from."""
        if self._method == "mean":
            candidates = self._similar(metadata, launch, now)
            # The paper does not tell cut-short runs apart; averaging one in would only mislead,
            # so they are left out unless there is nothing else, which abstains.
            completed = [item for item in candidates if not item.record.censored]
            return (completed or candidates)[: self._k]
        same = workload(metadata)
        exact = [
            Candidate.of(record, 1.0, True, adjust(metadata, launch, record), same)
            for record in self._history.by_fingerprint(metadata.fingerprint())
            if usable(record, now)
        ]
        found = sorted(exact, key=latest_first)[:RUNS]
        if any_completed(found):
            return found
        candidates = self._similar(metadata, launch, now)
        groups: dict[str, list[Candidate]] = {}
        for item in candidates:
            if not item.exact:
                groups.setdefault(item.workload, []).append(item)
        found += groups.pop(same, [])
        if not any_completed(found):
            # Most similar first: the order in which the groups were begun.
            found += [item for runs in list(groups.values())[: self._k] for item in runs]
        return found[:RUNS]

    def _similar(
        self, metadata: WorkloadMetadata, launch: LaunchConfig, now: float | None
    ) -> list[Candidate]:
        """Runs above the threshold, most similar first, the latest first among equals."""
        matches = self._history.search(
            metadata, k=max(SEARCHED, self._k), threshold=self._threshold, ended_only=True
        )
        candidates = [
            Candidate.of(
                match.record,
                match.similarity,
                match.exact,
                Adjustment() if self._method == "mean" else adjust(metadata, launch, match.record),
                workload(match.record.metadata),
            )
            for match in matches
            if usable(match.record, now)
        ]
        candidates.sort(key=lambda item: (-item.similarity, *latest_first(item)))
        return candidates

    def _weights(self, candidates: list[Candidate]) -> list[float]:
        """Relative weights, all above zero: higher for recent, similar and less corrected runs."""
        if self._method == "mean":
            return [1.0] * len(candidates)
        ends = sorted({ended(item.record) for item in candidates}, reverse=True)
        rank = {end: place for place, end in enumerate(ends)}
        return [
            self._closeness(item)
            * 0.5 ** (rank[ended(item.record)] / HALF_LIFE)
            / (1.0 + abs(math.log(item.adjustment.factor))) ** 2
            * (UNKNOWN_LENGTH if item.adjustment.unknown_length else 1.0)
            * (OTHER_GPU if item.adjustment.other_gpu else 1.0)
            for item in candidates
        ]

    def _closeness(self, item: Candidate) -> float:
        """1 for a resubmission, falling to a floor at the threshold."""
        if item.exact or self._threshold >= 1.0:
            return 1.0
        share = (item.similarity - self._threshold) / (1.0 - self._threshold)
        return max(min(share, 1.0), 0.05)


def _shared(adjustments: Sequence[Adjustment], weights: Sequence[float]) -> Adjustment:
    """What the corrections have in common: their mean doubts, which cancel on opposite sides."""
    total = sum(weights)
    pairs = list(zip(adjustments, weights, strict=True))
    return Adjustment(
        length_doubt=sum(one.length_doubt * weight for one, weight in pairs) / total,
        gpus_doubt=sum(one.gpus_doubt * weight for one, weight in pairs) / total,
    )


def _mean(runs: Sequence[tuple[float, float]]) -> float | None:
    return statistics.fmean(value for value, _ in runs) if runs else None


def _weighted_median(runs: Sequence[tuple[float, float]]) -> float | None:
    half = sum(weight for _, weight in runs) / 2
    for value, weight in sorted(runs):
        half -= weight
        if half <= 0:
            return value
    return None
