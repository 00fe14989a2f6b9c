"""The nouns every part of schedmate shares.

Units are in each numeric field's description. Names are the field's and the SchedMate paper's
(Figure 6 for the metadata). Of the rest of schedmate this package imports `plain.py` alone, and
each of its modules on first use: what a model of pydantic's checks is compiled when its module is
imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedmate.jobs.diagnosis import (
        Checkpoint,
        Diagnosis,
        ErrorType,
        EvidenceLine,
        FaultyComponent,
        Incident,
        Isolation,
        Origin,
        PlanStep,
        Reading,
        Recovery,
        RunOutcome,
    )
    from schedmate.jobs.metadata import (
        DatasetConfig,
        Evidence,
        ModelConfig,
        ModelUse,
        Source,
        TaskType,
        TrainingConfig,
        WorkloadMetadata,
    )
    from schedmate.jobs.progress import Progress, Remaining
    from schedmate.jobs.record import (
        CENSORED_STATES,
        FAILURE_AGES_S,
        FAILURE_STATES,
        Estimate,
        ExpertShare,
        Extrapolation,
        IntervalBasis,
        JobRecord,
        JobSpec,
        JobState,
        LaunchConfig,
        Neighbour,
    )


_HOMES = {
    "CENSORED_STATES": "schedmate.jobs.record",
    "FAILURE_AGES_S": "schedmate.jobs.record",
    "FAILURE_STATES": "schedmate.jobs.record",
    "Checkpoint": "schedmate.jobs.diagnosis",
    "DatasetConfig": "schedmate.jobs.metadata",
    "Diagnosis": "schedmate.jobs.diagnosis",
    "ErrorType": "schedmate.jobs.diagnosis",
    "Estimate": "schedmate.jobs.record",
    "Evidence": "schedmate.jobs.metadata",
    "EvidenceLine": "schedmate.jobs.diagnosis",
    "ExpertShare": "schedmate.jobs.record",
    "Extrapolation": "schedmate.jobs.record",
    "FaultyComponent": "schedmate.jobs.diagnosis",
    "Incident": "schedmate.jobs.diagnosis",
    "IntervalBasis": "schedmate.jobs.record",
    "Isolation": "schedmate.jobs.diagnosis",
    "JobRecord": "schedmate.jobs.record",
    "JobSpec": "schedmate.jobs.record",
    "JobState": "schedmate.jobs.record",
    "LaunchConfig": "schedmate.jobs.record",
    "ModelConfig": "schedmate.jobs.metadata",
    "ModelUse": "schedmate.jobs.metadata",
    "Neighbour": "schedmate.jobs.record",
    "Origin": "schedmate.jobs.diagnosis",
    "PlanStep": "schedmate.jobs.diagnosis",
    "Progress": "schedmate.jobs.progress",
    "Remaining": "schedmate.jobs.progress",
    "Reading": "schedmate.jobs.diagnosis",
    "Recovery": "schedmate.jobs.diagnosis",
    "RunOutcome": "schedmate.jobs.diagnosis",
    "Source": "schedmate.jobs.metadata",
    "TaskType": "schedmate.jobs.metadata",
    "TrainingConfig": "schedmate.jobs.metadata",
    "WorkloadMetadata": "schedmate.jobs.metadata",
}

__all__ = [
    "CENSORED_STATES",
    "FAILURE_AGES_S",
    "FAILURE_STATES",
    "Checkpoint",
    "DatasetConfig",
    "Diagnosis",
    "ErrorType",
    "Estimate",
    "Evidence",
    "EvidenceLine",
    "ExpertShare",
    "Extrapolation",
    "FaultyComponent",
    "Incident",
    "IntervalBasis",
    "Isolation",
    "JobRecord",
    "JobSpec",
    "JobState",
    "LaunchConfig",
    "ModelConfig",
    "ModelUse",
    "Neighbour",
    "Origin",
    "PlanStep",
    "Progress",
    "Reading",
    "Recovery",
    "Remaining",
    "RunOutcome",
    "Source",
    "TaskType",
    "TrainingConfig",
    "WorkloadMetadata",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
