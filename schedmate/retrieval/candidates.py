"""Past runs that an estimate may be based on, and the neighbours that it names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from schedmate.jobs import JobRecord, Neighbour, WorkloadMetadata
from schedmate.retrieval.adjust import Adjustment
from schedmate.retrieval.predictive import Run
from schedmate.terminal import counted


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
        """The record, which must say how long its job ran."""
        assert record.duration_s is not None
        return cls(record, record.duration_s, min(similarity, 1.0), exact, adjustment, workload)


def workload(metadata: WorkloadMetadata) -> str:
    """A fingerprint that is equal for the same training at another length."""
    return _workload_of(metadata.model_dump_json(by_alias=True, exclude={"evidence"}))


@lru_cache(maxsize=1 << 14)
def _workload_of(document: str) -> str:
    # Past jobs are looked at again and again, and a fingerprint takes ten times as long as this.
    metadata = WorkloadMetadata.model_validate_json(document)
    training = metadata.training.model_copy(update={"iters": None})
    return metadata.model_copy(update={"training": training}).fingerprint()


def any_completed(candidates: Sequence[Candidate]) -> bool:
    """Whether the run time of any of them is more than a lower bound."""
    return any(not item.record.censored for item in candidates)


def usable(record: JobRecord, now: float | None) -> bool:
    """Whether a record states a run time that ended before `now`."""
    ran = record.ended and record.duration_s is not None and record.duration_s > 0
    return ran and (now is None or record.end_time is None or record.end_time <= now)


def ended(record: JobRecord) -> float:
    """When it ended, if known; a run without any time counts as older than all others."""
    for moment in (record.end_time, record.start_time, record.submit_time):
        if moment is not None:
            return moment
    return -math.inf


def latest_first(item: Candidate) -> tuple[float, str]:
    """Sort key."""
    return (-ended(item.record), item.record.job_id)


def neighbours_of(candidates: list[Candidate], runs: list[Run], now: float) -> list[Neighbour]:
    """The runs as named by an estimate, at the time `now` [s since epoch], by weight."""
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
            summary=_summary(item.record),
        )
        for item, run in zip(candidates, runs, strict=True)
    ]
    return sorted(neighbours, key=lambda item: (-item.weight, item.job_id))


def _summary(record: JobRecord) -> str:
    training = record.metadata.training
    gpus = record.launch.gpus
    parts = [
        record.metadata.model.model_name,
        record.metadata.dataset.train,
        counted(training.iters, training.iter_type or "iteration") if training.iters else None,
        counted(gpus, "GPU") if gpus else None,
    ]
    return ", ".join(part for part in parts if part)
