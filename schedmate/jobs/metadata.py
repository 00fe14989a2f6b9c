"""What a job is and what it trains or runs, where each value came from, and which texts and
numbers every store takes.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from schedmate.base.data import LARGEST, LONGEST_S, MOST_GPUS, encodable, plain


def _countable(value: Any) -> Any:
    # pydantic cannot even say what is wrong with a number that Python refuses to print
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("Input should be a number of at most 64 bits")
    return value


Gpus = Annotated[int, Field(ge=0, le=MOST_GPUS), BeforeValidator(_countable)]
"""A number of GPUs."""

Nodes = Annotated[int, Field(ge=1, le=MOST_GPUS), BeforeValidator(_countable)]
"""A number of nodes."""

Seconds = Annotated[float, Field(ge=0, le=LONGEST_S)]
"""A length of time [s]."""

Moment = Annotated[float, Field(ge=-LONGEST_S, le=LONGEST_S)]
"""A point in time [s since epoch]."""

Text = Annotated[str, AfterValidator(encodable)]
"""Text in which lone surrogates have become escapes."""

LONGEST_NAME = 1_000
"""Characters of a name: of a job, a user, a model, a data set. What is longer is cut, since names
are compared, embedded and shown again and again."""


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


Name = Annotated[Text, AfterValidator(_cut)]
"""A name of at most `LONGEST_NAME` characters."""


# What a job is, and where each value came from.


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


JobKind = Literal[
    "training",
    "fine-tuning",  # a training that begins with trained weights
    "RL post-training",  # reinforcement learning of a trained language model
    "evaluation",
    "batch inference",
    "serving",  # goes on until it is stopped
    "data processing",
    "sweep",  # many trials of one program
    "compile or test",  # builds, exports, tests and benchmarks
    "unknown",
]


ENDLESS: frozenset[JobKind] = frozenset({"serving"})
"""Kinds of jobs that do not end by themselves."""


def family(kind: JobKind) -> JobKind:
    """Kinds that are described by the same fields, and compared with each other, as one of them.

    The trainings are one family, and so are jobs of which the kind is not known: records from
    before kinds were told are trainings.
    """
    return "training" if kind in ("fine-tuning", "RL post-training", "unknown") else kind


STORED = "stored"
"""The validation context of what a model was written as before: it is plain already."""


SURE = 0.75
"""The confidence from which on an answer is sure. Confidences are fitted so that one wrong answer
in twenty lies above it (benchmarks/fit_fields.py); what lies below is marked as unsure."""


class RunnerUp(BaseModel):
    """The likeliest other value of a field."""

    model_config = ConfigDict(extra="forbid")

    value: Annotated[Any, BeforeValidator(plain)]
    where: Text = Field(description="Where it came from, as `Evidence.where` says it")


class Evidence(BaseModel):
    """Where one metadata value came from, and why it may be wrong."""

    model_config = ConfigDict(extra="forbid")

    value: Annotated[Any, BeforeValidator(plain)] = None
    source: Source
    file: Text | None = Field(
        default=None, description="POSIX path relative to the repository root"
    )
    line: int | None = Field(default=None, ge=1, description="1-based line in `file`")
    confidence: float = Field(default=1.0, ge=0.0, le=1.0)
    text: Text | None = Field(
        default=None, description="The token or expression the value was read from"
    )
    note: Text | None = Field(
        default=None, description="How the value was chosen, where that needs saying"
    )
    formula: Text | None = Field(
        default=None,
        description="How the value was computed, where what is cited does not state it",
    )
    doubt: Text | None = Field(default=None, description="Why the value is unsure, where it is")
    runner_up: RunnerUp | None = Field(
        default=None, description="What the value could be instead, where it is unsure"
    )

    @property
    def unsure(self) -> bool:
        """Whether the confidence is below the cut from which on answers are nearly all right."""
        return self.confidence < SURE

    def lower(self, most: float, why: str, instead: RunnerUp | None = None) -> None:
        """Be no surer than `most`, for the reason `why`; `instead` is what speaks against it."""
        if self.confidence > most:
            self.confidence = most
            self.doubt = why
            self.runner_up = instead or self.runner_up

    def where(self) -> str:
        """A short human-readable origin: `configs/gpt.yaml:12`, `--lr on the command line`.

        What was computed is followed by how: `train.py:9 (steps = 10 * 5000)`.
        """
        return f"{self._place()} ({self.formula})" if self.formula else self._place()

    def _place(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        if self.source == "command":
            return f"{self.text} on the command line" if self.text else "the command line"
        if self.source == "launch":
            return f"{self.text} of the launch" if self.text else "the launch configuration"
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

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any, info: ValidationInfo) -> Any:
        """Replace values that JSON cannot hold: infinity, very long numbers."""
        if info.context == STORED:
            return given
        values = plain(given)
        if not isinstance(values, dict):
            return values
        return {key: _cut(one) if isinstance(one, str) else one for key, one in values.items()}


class ModelConfig(_Section):
    """What is trained. Extra keys hold architecture sizes (d_model, n_layer, ...)."""

    model_name: str | None = None
    task_type: TaskType | None = None


class TrainingConfig(_Section):
    """How it is trained. Extra keys hold batch sizes, optimiser, precision, parallelism."""

    iters: int | float | None = Field(
        default=None, description="Length of training in `iter_type` units"
    )
    iter_type: Literal["step", "epoch"] | None = None


class DatasetConfig(_Section):
    """What it is trained and validated on."""

    train: str | None = None
    valid: str | None = None


class JobConfig(_Section):
    """What the kind of a job needs to be described, besides its model; empty for a plain training.

    All keys are extra ones, and those that the code does not say are left out. Evaluation: `tasks`,
    `items`, `batch_size`, `shots`. Batch inference: `data`, `items`, `tokens_out` (of one item),
    `batch_size`. Serving: `replicas`, `max_length` [tokens]. Data processing: `data`, `items`,
    `workers`. Sweep: `data`, `trials`, `parallel_trials`, `trial_iters` in units of
    `trial_iter_type`. RL post-training: `prompts` and `samples_per_prompt` of one step, beside the
    fields of trainings. All that use GPUs but train nothing: `num_gpus`, `num_nodes`,
    `tensor_parallel`, `pipeline_parallel`, `data_parallel`.
    """


LENGTH = frozenset({"training_config.iters", "training_config.iter_type"})
"""The two fields that are a length together."""


class WorkloadMetadata(BaseModel):
    """Semantic metadata of one job (SchedMate paper, Figure 6).

    `None` means that the code does not say. `evidence` is keyed by dotted field name, for
    example `training_config.iters`. `training_config` and `dataset_config` are of trainings alone;
    `job_config` has the fields of the other kinds.
    """

    model_config = ConfigDict(populate_by_name=True, protected_namespaces=())

    job_kind: JobKind = "unknown"
    model: ModelConfig = Field(default_factory=ModelConfig, alias="model_config")
    training: TrainingConfig = Field(default_factory=TrainingConfig, alias="training_config")
    dataset: DatasetConfig = Field(default_factory=DatasetConfig, alias="dataset_config")
    job: JobConfig = Field(default_factory=JobConfig, alias="job_config")
    evidence: dict[str, Evidence] = Field(default_factory=dict)

    MANDATORY: ClassVar[tuple[str, ...]] = (
        "model_config.model_name",
        "model_config.task_type",
        "training_config.iters",
        "training_config.iter_type",
        "dataset_config.train",
        "dataset_config.valid",
    )
    """Fields that a training must have."""
    MANDATORY_OF: ClassVar[dict[JobKind, tuple[str, ...]]] = {
        "training": MANDATORY,
        "evaluation": ("model_config.model_name", "job_config.tasks"),
        "batch inference": ("model_config.model_name",),
        "serving": ("model_config.model_name",),
        "data processing": (),
        "sweep": ("job_config.trials",),
        "compile or test": (),
    }
    """The fields that a job must have, by the family of its kind."""

    @property
    def family(self) -> JobKind:
        """The kind that stands for all that this job can be compared with."""
        return family(self.job_kind)

    @property
    def endless(self) -> bool:
        """Whether the job goes on until it is stopped, so that it has no run time of its own."""
        return self.job_kind in ENDLESS

    @property
    def data_name(self) -> str | None:
        """What it runs on: the training set, the tasks of an evaluation, the data of others."""
        if self.family == "training":
            return self.dataset.train
        data = (self.job.model_extra or {}).get(self.data_field.partition(".")[2])
        return data if isinstance(data, str) else None

    @property
    def data_field(self) -> str:
        """The dotted name of the field that `data_name` is the value of."""
        if self.family == "training":
            return "dataset_config.train"
        own = self.job.model_extra or {}
        return "job_config.tasks" if own.get("tasks") else "job_config.data"

    def sections(self) -> dict[str, dict[str, Any]]:
        """The sections under their JSON names, without evidence; `job_config` where it has keys."""
        dumped = self.model_dump(by_alias=True, exclude={"evidence", "job_kind"}, mode="json")
        if not dumped["job_config"]:
            del dumped["job_config"]
        return {name: dict(section) for name, section in dumped.items()}

    def get(self, field: str) -> Any:
        """The value of a dotted field name, or of `job_kind`, or None."""
        if field == "job_kind":
            return self.job_kind
        section, _, key = field.partition(".")
        return self.sections().get(section, {}).get(key)

    def unsure(self) -> list[str]:
        """Fields whose value is unsure (`Evidence.unsure`), by their dotted names."""
        return [
            field
            for field, proof in self.evidence.items()
            if proof.unsure and proof.value is not None
        ]

    def without_unsure(self, least: float) -> tuple[WorkloadMetadata, list[str]]:
        """The metadata without values of a confidence below `least`, and their fields.

        The length and its unit go together. The job's kind stays, as it says which fields there
        are.
        """
        low = {field for field, proof in self.evidence.items() if proof.confidence < least}
        low.discard("job_kind")
        if low & LENGTH:
            low |= LENGTH & self.evidence.keys()
        if not low:
            return self, []
        sections = self.sections()
        for field in low:
            section, _, key = field.partition(".")
            sections[section].pop(key, None)
        kept = {field: proof for field, proof in self.evidence.items() if field not in low}
        document = {"job_kind": self.job_kind, **sections, "evidence": kept}
        left_out = [field for field in self.evidence if field in low]
        return WorkloadMetadata.model_validate(document), left_out

    def missing(self) -> list[str]:
        """Mandatory fields of this kind of job that are still None."""
        return [field for field in self.MANDATORY_OF[self.family] if self.get(field) is None]

    def fingerprint(self) -> str:
        """A stable 16-hex-digit hash over the normalised metadata.

        Equal for a resubmission that changed only its seed, paths, run name or port: those keys,
        at any depth, do not take part, nor does letter case or the difference between 1 and 1.0.
        """
        parts: dict[str, Any] = dict(self.sections())
        if self.family != "training":
            parts["job_kind"] = self.job_kind
        canonical = json.dumps(_normalise(parts), sort_keys=True, ensure_ascii=True)
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


class ModelUse(BaseModel):
    """Questions to a language model about one job's metadata, and their results."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["hybrid", "agent", "opening"]
    model: str = Field(description="Name at the endpoint, or scripted:FILE")
    endpoint: str = Field(description="Address, or `scripted`")
    outcome: str = Field(
        description="`ok`; `not needed` when static analysis left nothing to ask; else the verdict "
        "on the call that failed (schedmate.base.errors.Verdict) or `failed`, and the static "
        "answer stands"
    )
    reason: str | None = Field(default=None, description="One sentence on a failure")
    asked: list[str] = Field(default_factory=list, description="Fields the model was asked for")
    reasons: dict[str, str] = Field(
        default_factory=dict, description="Why each field was asked for"
    )
    filled: list[str] = Field(default_factory=list, description="Fields that its answer decided")
    dropped: list[str] = Field(
        default_factory=list, description="Findings whose citation did not hold, and why"
    )
    conflicts: list[str] = Field(
        default_factory=list,
        description="Where static analysis and the model contradict each other, with both lines",
    )
    absent: list[str] = Field(
        default_factory=list, description="Fields that a line shows to have no value"
    )
    calls: int = Field(
        default=0, description="Requests that reached a server, or were answered from the cache"
    )
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = Field(
        default=0, description="Of the input, found in the server's prefix cache"
    )
    seconds: float = Field(default=0.0, description="Wall time of the reading [s]")
    trajectory: str | None = Field(default=None, description="File that records the reading")
