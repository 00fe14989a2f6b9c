"""The nouns every part of schedmate shares.

Units are in each numeric field's description. Names are the field's and the SchedMate paper's
(Figure 6 for the metadata). This package imports nothing from the rest of schedmate.
"""

from schedmate.jobs.diagnosis import (
    Checkpoint,
    Diagnosis,
    ErrorType,
    EvidenceLine,
    FaultyComponent,
    Recovery,
)
from schedmate.jobs.estimate import Estimate, Neighbour
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
from schedmate.jobs.progress import Progress
from schedmate.jobs.record import CENSORED_STATES, JobRecord, JobSpec, JobState, LaunchConfig

__all__ = [
    "CENSORED_STATES",
    "Checkpoint",
    "DatasetConfig",
    "Diagnosis",
    "ErrorType",
    "Estimate",
    "Evidence",
    "EvidenceLine",
    "FaultyComponent",
    "JobRecord",
    "JobSpec",
    "JobState",
    "LaunchConfig",
    "ModelConfig",
    "ModelUse",
    "Neighbour",
    "Progress",
    "Recovery",
    "Source",
    "TaskType",
    "TrainingConfig",
    "WorkloadMetadata",
]
