"""The nouns every part of schedmate shares.

Units are in each numeric field's description. Names are the field's and the SchedMate paper's
(Figure 6 for the metadata). This module imports nothing from the rest of the package.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

Source = Literal[
    "command",  # a token of the launch command
    "script",  # a token of a shell or batch script the command runs
    "environment",  # an environment variable set by the command or a script
    "launch",  # the launch configuration given to schedmate (--gpus, --nodes, ...)
    "config",  # a configuration file
    "default",  # the default of an argument, a dataclass field or a structured config
    "code",  # a literal in the source code
    "library",  # the documented default of a third-party library, data shipped with schedmate
    "derived",  # computed from other fields (the evidence's note says from which)
    "model",  # a language model's answer, citation verified
]

TaskType = Literal[
    "NLP",
    "CV",
    "Audio",
    "Multimodal",
    "RL",
    "Recommendation",
    "Graph",
    "TimeSeries",
    "Tabular",
    "Science",
]

JobState = Literal[
    "PENDING",
    "RUNNING",
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "PREEMPTED",
    "NODE_FAIL",
    "BOOT_FAIL",
    "OUT_OF_MEMORY",
    "REQUEUED",
]

CENSORED_STATES: frozenset[str] = frozenset(
    {
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "PREEMPTED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "OUT_OF_MEMORY",
        "REQUEUED",
    }
)
"""Ended states whose duration is only a lower bound on the time the work needed."""


class Evidence(BaseModel):
    """Where one metadata value came from."""

    model_config = ConfigDict(extra="forbid")

    value: Any = None
    source: Source
    file: str | None = Field(None, description="POSIX path relative to the repository root")
    line: int | None = Field(None, ge=1, description="1-based line in `file`")
    confidence: float = Field(1.0, ge=0.0, le=1.0)
    text: str | None = Field(None, description="The token or expression the value was read from")
    note: str | None = Field(None, description="How the value was chosen, where that needs saying")

    def where(self) -> str:
        """A short human-readable origin: `configs/gpt.yaml:12`, `--lr on the command line`."""
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        if self.source == "command":
            return f"{self.text} on the command line" if self.text else "the command line"
        if self.source == "launch":
            return "the launch configuration"
        if self.source == "environment":
            return f"{self.text} in {place or 'the environment'}"
        if self.source == "default":
            return f"default at {place}"
        if self.source == "library":
            return f"{self.text or 'library'} default"
        if self.source == "model":
            return f"{place or self.text or 'unknown'} (model)"
        if self.source == "derived":
            return self.note or "derived"
        return place or self.source


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ModelConfig(_Section):
    """What is trained. Extra keys hold architecture sizes (d_model, n_layer, ...)."""

    model_name: str | None = None
    task_type: TaskType | None = None


class TrainingConfig(_Section):
    """How it is trained. Extra keys hold batch sizes, optimiser, precision, parallelism."""

    iters: int | float | None = Field(None, description="Length of training in `iter_type` units")
    iter_type: Literal["step", "epoch"] | None = None


class DatasetConfig(_Section):
    """What it is trained and validated on."""

    train: str | None = None
    valid: str | None = None


class WorkloadMetadata(BaseModel):
    """Semantic metadata of one training job (SchedMate paper, Figure 6).

    `None` means that the code does not say. `evidence` is keyed by dotted field name, for
    example `training_config.iters`.
    """

    model_config = ConfigDict(populate_by_name=True, protected_namespaces=())

    model: ModelConfig = Field(default_factory=ModelConfig, alias="model_config")
    training: TrainingConfig = Field(default_factory=TrainingConfig, alias="training_config")
    dataset: DatasetConfig = Field(default_factory=DatasetConfig, alias="dataset_config")
    evidence: dict[str, Evidence] = Field(default_factory=dict)

    MANDATORY: ClassVar[tuple[str, ...]] = (
        "model_config.model_name",
        "model_config.task_type",
        "training_config.iters",
        "training_config.iter_type",
        "dataset_config.train",
        "dataset_config.valid",
    )

    def sections(self) -> dict[str, dict[str, Any]]:
        """The three sections under their JSON names, without evidence."""
        dumped = self.model_dump(by_alias=True, exclude={"evidence"}, mode="json")
        return {name: dict(section) for name, section in dumped.items()}

    def get(self, field: str) -> Any:
        """The value of a dotted field name, or None."""
        section, _, key = field.partition(".")
        return self.sections().get(section, {}).get(key)

    def missing(self) -> list[str]:
        """Mandatory fields that are still None."""
        return [field for field in self.MANDATORY if self.get(field) is None]

    def fingerprint(self) -> str:
        """A stable 16-hex-digit hash over the normalised metadata.

        Equal for a resubmission that changed only its seed, paths, run name or port: those keys,
        at any depth, do not take part, nor does letter case or the difference between 1 and 1.0.
        """
        canonical = json.dumps(_normalise(self.sections()), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


_VOLATILE = re.compile(
    r"(^|_)(seed|path|paths|dir|dirs|directory|root|file|filename|folder|run_name|run_id|exp_name"
    r"|experiment_name|job_name|port|host|hostname|output|log|logger|wandb|tensorboard|tag|notes"
    r"|checkpoint|ckpt|resume|uuid|timestamp|rank)($|_)"
)


def _normalise(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            str(key).lower(): _normalise(item)
            for key, item in value.items()
            if item is not None and not _VOLATILE.search(str(key).lower())
        }
    if isinstance(value, list | tuple):
        return [_normalise(item) for item in value]
    if isinstance(value, str):
        return value.strip().lower()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


class LaunchConfig(BaseModel):
    """The resources a job asks for, as the scheduler knows them."""

    model_config = ConfigDict(extra="forbid")

    gpus: int | None = Field(None, ge=0, description="Total GPUs over all nodes")
    nodes: int | None = Field(None, ge=1, description="Number of nodes")
    gpu_type: str | None = None
    time_limit_s: float | None = Field(None, ge=0, description="Time limit [s]")


class JobSpec(BaseModel):
    """What is known of a job when it is submitted."""

    model_config = ConfigDict(extra="forbid")

    job_id: str | None = None
    name: str | None = None
    user: str | None = None
    repo: str | None = Field(None, description="Path of the job's source code on this machine")
    command: str | None = Field(None, description="The launch command, as typed in `repo`")
    launch: LaunchConfig = Field(default_factory=LaunchConfig)
    submit_time: float | None = Field(None, description="[s since epoch]")


class JobRecord(BaseModel):
    """One job of the history: what it was, and what became of it."""

    model_config = ConfigDict(extra="forbid")

    job_id: str
    name: str | None = None
    user: str | None = None
    command: str | None = None
    launch: LaunchConfig = Field(default_factory=LaunchConfig)
    metadata: WorkloadMetadata = Field(default_factory=WorkloadMetadata)
    state: JobState = "PENDING"
    submit_time: float | None = Field(None, description="[s since epoch]")
    start_time: float | None = Field(None, description="[s since epoch]")
    end_time: float | None = Field(None, description="[s since epoch]")
    duration_s: float | None = Field(None, ge=0, description="Run time [s]")
    gpu_util: float | None = Field(None, ge=0, le=100, description="Mean GPU utilisation [%]")
    sm_util: float | None = Field(None, ge=0, le=100, description="Mean SM activity [%]")
    gpu_mem_mb: float | None = Field(None, ge=0, description="Peak memory of one GPU [MB]")
    throughput: dict[str, float] = Field(
        default_factory=dict, description="Samples per second by configuration, e.g. `a100x8`"
    )

    @property
    def censored(self) -> bool:
        """Whether `duration_s` is only a lower bound (the run did not complete)."""
        return self.state in CENSORED_STATES

    @property
    def ended(self) -> bool:
        """Whether the job is over, completed or not."""
        return self.state not in ("PENDING", "RUNNING")


class ModelUse(BaseModel):
    """What a language model was asked about one job's metadata, and what came of it."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["hybrid", "agent"]
    model: str = Field(description="Name at the endpoint, or scripted:FILE")
    endpoint: str = Field(description="Address, or `scripted`")
    outcome: str = Field(
        description="`ok`; `not needed` when static analysis left nothing to ask; else the verdict "
        "on the call that failed (schedmate.errors.Verdict) or `failed`, and the static answer "
        "stands"
    )
    reason: str | None = Field(None, description="One sentence on a failure")
    asked: list[str] = Field(default_factory=list, description="Fields the model was asked for")
    filled: list[str] = Field(default_factory=list, description="Fields that its answer decided")
    dropped: list[str] = Field(
        default_factory=list, description="Findings whose citation did not hold, and why"
    )
    calls: int = Field(0, description="Requests answered, by the server or from the cache")
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = Field(0, description="Of the input, found in the server's prefix cache")
    seconds: float = Field(0.0, description="Wall time of the reading [s]")
    trajectory: str | None = Field(None, description="File that records the reading")


ErrorType = Literal["infrastructure", "framework", "script", "none", "unknown"]
"""Whose fault a failure is (taxonomy of Acme, NSDI 2024); `none` is no failure at all."""

FaultyComponent = Literal["gpu", "nvlink", "network", "node", "storage"]


class EvidenceLine(BaseModel):
    """One line of a log that a diagnosis rests on."""

    model_config = ConfigDict(extra="forbid")

    file: str
    line: int = Field(ge=1, description="1-based; counts line feeds only")
    text: str
    note: str | None = Field(None, description="Why it is quoted")


class Checkpoint(BaseModel):
    """The last checkpoint that a log reports before the failure."""

    model_config = ConfigDict(extra="forbid")

    path: str | None = None
    step: int | None = Field(None, ge=0, description="Iteration it was written at")
    file: str
    line: int = Field(ge=1)


class Recovery(BaseModel):
    """What to do about a failure, chosen by a table from its type and component, in words."""

    model_config = ConfigDict(extra="forbid")

    id: str
    summary: str
    diagnose: str | None = Field(None, description="The diagnostic to run before anything else")
    isolate: str | None = Field(None, description="What to take out of service")
    restart: Literal["no", "same", "from checkpoint", "elsewhere", "elsewhere from checkpoint"]
    notify: Literal["user", "operator", "nobody"]


class Diagnosis(BaseModel):
    """What broke first in a job, whose fault it is and what to do (SchedMate paper, section 3.3).

    `line` is the first line of what failed first, in `file`. `error_type` is `unknown` when the
    job failed and nothing says of what, `none` when it did not fail: it completed, or was
    cancelled, preempted or out of time, which `error_name` then says.
    """

    model_config = ConfigDict(extra="forbid")

    error_type: ErrorType
    error_name: str | None = None
    faulty_component: FaultyComponent | None = None
    file: str | None = None
    line: int | None = Field(None, ge=1, description="1-based; counts line feeds only")
    rank: int | None = None
    node: str | None = None
    time: float | None = Field(None, description="When it failed, as logged [s since epoch]")
    evidence: list[EvidenceLine] = Field(default_factory=list)
    ruled_out: list[EvidenceLine] = Field(default_factory=list)
    recoverable: bool | None = None
    checkpoint: Checkpoint | None = None
    plan: Recovery | None = None
    rule: str | None = Field(None, description="The rule that decided")
    source: Literal["rules", "embedding", "model"] = "rules"
    reason: str = ""
    reference: str | None = Field(None, description="Where the meaning of the line was settled")
    attempt: int = Field(1, ge=1, description="The attempt of the job that was diagnosed")
    attempts: int = Field(1, ge=1, description="Attempts found in the log")
    locator: Literal["scan", "binary"] = "scan"
    probes: int | None = Field(None, ge=0, description="Chunks that the binary search looked at")
    warnings: list[str] = Field(default_factory=list)


class Progress(BaseModel):
    """How fast a job goes and when it will end, read from its log (SchedMate paper, section 3.2).

    What the log does not say is None, and `reason` says why where that is the step time.
    """

    model_config = ConfigDict(extra="forbid")

    step_time_s: float | None = Field(None, gt=0, description="Time of one iteration [s], a median")
    step_time_p10_s: float | None = Field(None, description="10th percentile of the readings [s]")
    step_time_p90_s: float | None = Field(None, description="90th percentile of the readings [s]")
    epoch_time_s: float | None = Field(None, gt=0, description="Time of one epoch [s]")
    loss: float | None = Field(None, description="Latest training loss; None where it is NaN")
    iteration: int | None = Field(
        None, ge=0, description="Latest iteration, over all epochs where their length is known"
    )
    total_iterations: int | None = Field(
        None, ge=0, description="Iterations of the whole run; of one epoch where `in_epoch`"
    )
    in_epoch: bool = Field(False, description="`iteration` begins anew with each epoch")
    epoch: float | None = Field(None, description="Latest epoch, as the log counts")
    total_epochs: int | None = None
    lr: float | None = Field(None, description="Latest learning rate")
    throughput: float | None = Field(None, description="In `throughput_unit`")
    throughput_unit: Literal["samples/s", "tokens/s", "iterations/s"] | None = None
    eta_s: float | None = Field(None, ge=0, description="Time until the run ends [s]")
    source: Literal[
        "stated",  # the log says how long a step takes, or how many there are in a second
        "elapsed",  # differences of the elapsed time that it prints
        "samples",  # samples per second and a known global batch size
        "timestamps",  # differences of the times its lines were written
        "summary",  # the run time and the number of steps of a run that has ended
        "model",  # an extraction pattern that a language model wrote
        "none",
    ] = "none"
    reader: str | None = Field(None, description="Pattern of the registry, or `general`")
    readings: int = Field(0, ge=0, description="Readings behind the step time, outliers left out")
    steps_seen: int = Field(0, ge=0, description="Iterations that the readings cover")
    log_bytes: int = Field(
        0, ge=0, description="Size of the log when it was read [bytes]: where later readings begin"
    )
    lines: list[int] = Field(
        default_factory=list, description="1-based numbers of the latest lines used, newest first"
    )
    updated: float | None = Field(
        None, description="When the latest of them was written, as the log says [s since epoch]"
    )
    notes: list[str] = Field(default_factory=list, description="Decisions on units and the like")
    reason: str | None = Field(None, description="Why there is no step time")

    @property
    def abstained(self) -> bool:
        """Whether the log does not say how long a step takes."""
        return self.step_time_s is None


class Neighbour(BaseModel):
    """One past job an estimate rests on."""

    job_id: str
    similarity: float = Field(description="Cosine similarity of the rendered metadata, at most 1")
    exact: bool = Field(False, description="Same fingerprint: a resubmission")
    weight: float = Field(description="Share of this job in the estimate; all shares add up to 1")
    duration_s: float = Field(description="Observed run time [s]")
    adjusted_duration_s: float = Field(
        description="Run time corrected for iteration and GPU count [s]"
    )
    censored: bool = False
    state: JobState = "COMPLETED"
    age_s: float | None = Field(None, description="Time since it ended [s]")
    summary: str = Field("", description="Model, dataset and length in a few words")


class Estimate(BaseModel):
    """How long a job will run and what it will use (SchedMate paper, section 3.1).

    When `abstained` is true every number is None and `reason` says why; a scheduler falls back.
    """

    duration_s: float | None = Field(None, description="Point estimate [s]")
    duration_p10_s: float | None = Field(None, description="10th percentile [s]")
    duration_p50_s: float | None = Field(None, description="Median [s]")
    duration_p90_s: float | None = Field(None, description="90th percentile [s]")
    gpu_util: float | None = Field(None, description="Mean GPU utilisation [%]")
    sm_util: float | None = Field(None, description="Mean SM activity [%]")
    gpu_mem_mb: float | None = Field(None, description="Peak memory of one GPU [MB]")
    neighbours: list[Neighbour] = Field(default_factory=list)
    method: str = "none"
    abstained: bool = True
    reason: str | None = None
