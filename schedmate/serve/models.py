"""What goes over the wire: requests, responses and refusals, from which the OpenAPI document is
generated.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schedmate.base.errors import InputError, LimitError, SchedmateError, UsageError
from schedmate.jobs import (
    Diagnosis,
    Estimate,
    JobRecord,
    JobSpec,
    JobState,
    Progress,
    Remaining,
    WorkloadMetadata,
)
from schedmate.jobs.metadata import Moment, Seconds, Text
from schedmate.retrieval.database import HistoryError

LONGEST_ID = 512
LONGEST_PATH = 4096
MOST_LOGS = 64
MOST_JOBS = 1_000

JobId = Annotated[Text, Field(min_length=1, max_length=LONGEST_ID)]
PathText = Annotated[str, Field(min_length=1, max_length=LONGEST_PATH)]
Deadline = Annotated[
    float | None,
    Field(gt=0, le=600, description="Answer within this time [s]; the server may allow less"),
]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Problem(BaseModel):
    """Why a request was not answered: one sentence, with what to do next."""

    error: str


class AdviseRequest(_Message):
    """A job before it runs.

    With `metadata`, nothing is read and the answer takes a millisecond. Without it, the repository
    `job.repo` is read in a confined process; that takes longer, and the path must be below one of
    the allowed roots.
    """

    job: JobSpec
    metadata: WorkloadMetadata | None = None
    record: bool = Field(
        False, description="Store the job in the history as pending; it needs `job.job_id`"
    )
    deadline_s: Deadline = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.record and not self.job.job_id:
            raise ValueError("to be recorded, a job needs `job.job_id`")
        return self


class Advice(BaseModel):
    """Estimated run time of a job.

    If `estimate.abstained`, there is no similar job: schedule it as without schedmate.
    """

    duration_s: float | None = Field(description="The point estimate again [s], or null")
    summary: str = Field(description="The estimate in one line, for a job's comment")
    job_id: str | None
    source: Literal["metadata", "static"] = Field(
        description="Whether the request said what the job trains, or its code did"
    )
    recorded: bool
    history_size: int = Field(ge=0, description="Jobs in the history that was asked")
    metadata: WorkloadMetadata | None = Field(
        description="What the code says; null where the request said it"
    )
    warnings: list[str]
    estimate: Estimate


class TrackRequest(_Message):
    """The log of a running job, below one of the allowed roots."""

    job: JobSpec
    log: PathText = Field(description="A file, or a directory with a file per rank")
    since: int = Field(0, ge=0, le=2**63 - 1, description="Leave out what came before [bytes]")
    batch_size: int | None = Field(None, ge=1, le=10**9, description="Global batch size [samples]")
    elapsed_s: float | None = Field(
        None,
        ge=0,
        le=1e9,
        description="How long the job has run [s]: then its estimate and the log together say how "
        "long it still takes, if the history has a job of this id",
    )
    follow: bool = Field(
        False, description="Read the log again and again for the dashboard, until the job ends"
    )
    deadline_s: Deadline = None


class Tracked(BaseModel):
    """How a running job is going."""

    job_id: str | None
    progress: Progress
    remaining: Remaining | None = Field(
        None, description="How long it still takes; null without `elapsed_s`"
    )


class ProgressRequest(_Message):
    """What a training program says of itself, as `examples/callbacks.py` does; no log is read."""

    job: JobSpec
    iteration: int = Field(ge=0, le=2**53, description="Iterations done, over all epochs")
    total_iterations: int | None = Field(None, ge=1, le=2**53)
    step_time_s: float | None = Field(None, gt=0, le=1e9, description="Time of one iteration [s]")
    loss: float | None = None
    epoch: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _named(self) -> Self:
        if not self.job.job_id:
            raise ValueError("to be shown, a job needs `job.job_id`")
        return self


class DiagnoseRequest(_Message):
    """The logs of a failed job, below allowed roots; `job.node_names` are its nodes."""

    job: JobSpec
    logs: list[PathText] = Field(min_length=1, max_length=MOST_LOGS)
    node_logs: list[PathText] = Field(default_factory=list, max_length=MOST_LOGS)
    deadline_s: Deadline = None


class Diagnosed(BaseModel):
    """What failed first in a job, its type and a plan."""

    job_id: str | None
    diagnosis: Diagnosis


class StoreRequest(_Message):
    """Jobs to store; one of the same id is replaced."""

    jobs: list[JobRecord] = Field(min_length=1, max_length=MOST_JOBS)


class Stored(BaseModel):
    """The number of jobs stored durably."""

    stored: int


class FinishRequest(_Message):
    """How a stored job ended."""

    job_id: JobId
    state: JobState = "COMPLETED"
    duration_s: Seconds | None = None
    end_time: Moment | None = None
    gpu_util: float | None = Field(None, ge=0, le=100, description="[%]")
    sm_util: float | None = Field(None, ge=0, le=100, description="[%]")
    gpu_mem_mb: float | None = Field(None, ge=0, description="[MB]")


class History(BaseModel):
    """Stored jobs, the latest submitted first."""

    size: int = Field(ge=0, description="Jobs in the history")
    jobs: list[JobRecord]


class Health(BaseModel):
    """Whether the service lives, or can answer."""

    status: Literal["ok", "unavailable"]
    detail: str | None = Field(None, description="Why it cannot answer")


class PlanState(BaseModel):
    """A plan for the cluster and how far it has come."""

    id: str
    state: str
    since: float = Field(description="When it came into this state [s since epoch]")
    by: str
    note: str
    plan: dict[str, Any] = Field(description="What would be done, and why")


class PlanList(BaseModel):
    """Plans, the newest first."""

    plans: list[PlanState]


class Decision(_Message):
    """A person's decision on a plan, and its reason."""

    by: Annotated[Text, Field(min_length=1, max_length=100)]
    note: Annotated[Text, Field(max_length=500)] = ""


# The errors with which a request is refused.


class BusyError(SchedmateError):
    """As much as the service takes on is going on already."""


class OutsideError(InputError):
    """A path that may not be read."""


class ForbiddenError(SchedmateError):
    """It takes a right that was not shown."""


class AbsentError(InputError):
    """No object of that name exists."""


class ConflictError(InputError):
    """The stored state does not allow it."""


_STATUS_OF_ERRORS: tuple[tuple[type[Exception], int], ...] = (
    (BusyError, 503),
    (OutsideError, 403),
    (ForbiddenError, 403),
    (AbsentError, 404),
    (ConflictError, 409),
    (LimitError, 504),
    (TimeoutError, 504),
    (HistoryError, 503),
    (InputError, 422),
    (UsageError, 422),
)


def status_of(error: Exception) -> int:
    """The HTTP status for a kind of failure."""
    return next((status for kind, status in _STATUS_OF_ERRORS if isinstance(error, kind)), 500)
