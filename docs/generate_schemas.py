"""The JSON schemas of docs/schemas that come from the types their documents are made of."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, get_type_hints

from pydantic import TypeAdapter, create_model
from typing_extensions import TypedDict

from schedmate.cluster.ray.store import QueueDocument
from schedmate.cluster.record import Plan
from schedmate.cluster.recovery.configuration import Configuration
from schedmate.cluster.recovery.document import RecoverDocument
from schedmate.cluster.report import Failed, Pass
from schedmate.cluster.summary import AgentSummary
from schedmate.commands.doctor import Check
from schedmate.commands.jobs import JobRow
from schedmate.jobs import JobRecord
from schedmate.jobs.health import Health
from schedmate.llm.runtimes import Choice, Memory
from schedmate.llm.serving import Fit, ModelSize, Reading
from schedmate.llm.store import Call
from schedmate.logparse.failure.rules import Rule
from schedmate.logparse.progress.ratio import Slowdown
from schedmate.logparse.triage import json_schema as triage
from schedmate.logparse.triage.document import JobVerdict
from schedmate.logparse.watch.alarms import AlarmEvent
from schedmate.retrieval.similarity import Calibration
from schedmate.retrieval.table import HistoryStats
from schedmate.schedulers.parallelism.plan import Plan as ParallelPlan
from schedmate.schedulers.sim.starts import Group as StartGroup
from schedmate.settings import Settings
from schedmate.site.document import SiteReport
from schedmate.site.reliability import GoodputReport

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from public_benchmark import (
    ANSWER_SCHEMA,
    Answer,
    BenchJob,
    BenchLog,
    BenchScore,
)

FOLDER = Path(__file__).with_name("schemas")


class Doctor(TypedDict):
    """Output of `--json` of the commands `doctor`, also of `slurm` and `k8s`; `ok`: none failed."""

    ok: bool
    checks: list[Check]


class BackedUp(TypedDict):
    """A database in a backup: its file is NAME.db, `from` its place."""

    name: str
    bytes: int
    sha256: str


class Backup(TypedDict):
    """Output of `schedmate backup --json`, and `backup.json` of the directory that it makes."""

    made: float
    version: str
    parts: list[BackedUp]


class StoredJob(JobRecord):
    """A job of the history."""

    fingerprint: str


Stats = create_model(  # type: ignore[call-overload]
    "HistoryStats",
    **{name: (kind, ...) for name, kind in get_type_hints(HistoryStats).items()},
)


class History(TypedDict):
    """Output of `schedmate history list`, `show`, `finish`, `stats` and `copy` with `--json`."""

    jobs: NotRequired[list[JobRecord]]
    job: NotRequired[StoredJob]
    stats: NotRequired[Stats]
    copied: NotRequired[int]


class LiveJobs(TypedDict):
    """Output of `schedmate jobs --json`: running jobs first; `user` null: everybody's."""

    cluster: str
    user: str | None
    jobs: list[JobRow]


class StartDelays(TypedDict):
    """File of `schedmate traces delays`; `groups` ends with all starts, [s]."""

    source: str
    groups: list[StartGroup]


class HistoryImport(TypedDict):
    """Output of `schedmate history import --json`, with the first of the `problems`."""

    imported: int
    replaced: int
    without_run_time: int
    bad: int
    problems: list[str]
    analysed: int | None
    interrupted: bool
    synthetic: int


@dataclass(frozen=True, kw_only=True)
class StoredCall(Call):
    """A call as the ledger keeps it."""

    id: int


class Total(TypedDict):
    """Sums over the calls of one endpoint, model and purpose."""

    endpoint: str
    model: str
    purpose: str
    calls: int
    from_cache: int
    failed: int
    unsent: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    seconds: float
    cost: float


class Ledger(TypedDict):
    """Output of `schedmate llm ledger --json`; the newest calls first."""

    totals: list[Total]
    calls: list[StoredCall]


class ServeCommand(TypedDict):
    """Output of `schedmate llm serve-command --json`."""

    command: list[str]
    model: ModelSize
    gpu: str
    gpus: int
    context: int
    memory_bytes: Fit
    fits: bool
    notes: list[str]


class LlmUp(TypedDict):
    """Output of `schedmate llm up --json`; without a server `choice` and `commands` say how."""

    ok: bool
    settings: dict[str, str | int] | None
    written: bool
    memory: Memory
    choice: Choice | None
    commands: list[str]
    checks: list[Check]


class TraceSource(TypedDict):
    """Where a published trace is to be had."""

    repository: str
    folder: str
    licence: str


Study = TypedDict(
    "Study", {"what": str, "from": TraceSource, "recorded_in": str, "published_by": str}
)


class StudyNumbers(TypedDict):
    """Of one policy on one trace: times [h], or GPUs left unallocated as a cluster fills [%]."""

    avg_jct_h: NotRequired[float]
    makespan_h: NotRequired[float]
    unallocated_90: NotRequired[float]
    unallocated_95: NotRequired[float]
    unallocated_100: NotRequired[float]
    unallocated_130: NotRequired[float]


class StudyRow(TypedDict):
    """A policy on a trace; `published` by the authors, `recorded` by us, `here` in this run."""

    study: str
    trace: str
    policy: str
    published: StudyNumbers | None
    recorded: StudyNumbers
    here: StudyNumbers | None


class Reproduce(TypedDict):
    """Output of `schedmate reproduce --json`; without --data nothing was run here."""

    studies: dict[str, Study]
    rows: list[StudyRow]


class Capacity(TypedDict):
    """Output of `schedmate llm capacity --json`; jobs an hour are those that are read."""

    model: ModelSize
    gpu: str
    gpus: int
    jobs_read: int
    a_job: Reading
    cached_share: float | None
    readings_at_once: int
    jobs_an_hour_estimate: float
    jobs_an_hour_one_at_a_time: float | None


class Rules(TypedDict):
    """Output of `schedmate rules list --json`."""

    rules: list[Rule]


class Setting(TypedDict):
    """A value and where it comes from."""

    value: Any
    origin: str


class Config(TypedDict):
    """Output of `schedmate config show --json`; with `--origin` each setting says its origin."""

    settings: Settings | dict[str, Setting]


class WatchedJob(TypedDict):
    """A job as `schedmate watch` found it; `health` is null where its log cannot be read."""

    job: str
    log: str
    health: Health | None
    problem: str | None


class Watch(TypedDict):
    """Output of `schedmate watch --json`, the most urgent job first.

    `events` are the alarms that began or were over since the look before.
    """

    source: str
    jobs: list[WatchedJob]
    events: list[AlarmEvent]


class Error(TypedDict):
    """What `schedmate analyze --batch` gives for a line that could not be analysed."""

    index: int
    job_id: str | None
    error: str
    exit_code: int


class MemoryTerms(TypedDict):
    """Memory of one GPU of a stage [bytes]."""

    states: int
    activations: int
    temporary: int
    context: int


class ParallelPrediction(TypedDict):
    """Output of `schedmate parallel predict --json`; `parts` [s] add up to `iteration_s`, and 80 %
    of measured times are within `interval_s`."""

    id: NotRequired[str]
    iteration_s: float
    interval_s: list[float]
    max_memory_bytes: int
    samples_per_s: float
    parts: dict[str, float]
    memory: list[MemoryTerms]
    bottleneck_stage: int
    fits: bool
    why_not: NotRequired[str]
    source: str
    notes: list[str]


class FrontierPlan(TypedDict):
    """A plan of a grid's Pareto frontier; lists have an entry for each stage."""

    layers: list[int]
    gpus: list[int]
    tensor: list[int]
    data: int
    computation_bias: float
    communication_load_s: float


class ParallelGrid(TypedDict):
    """The proxy plan of one number of stages, and the frontier it was chosen from."""

    stages: int
    plan: ParallelPlan
    prediction: ParallelPrediction
    frontier: list[FrontierPlan]


class PrunedStage(TypedDict):
    """What the third pruning rule fixes for stages of so many layers."""

    layers: int
    gpus: int
    tensor: int


class ParallelPruning(TypedDict):
    """The rules that prune a search for the best plan (Arena, section 3.6)."""

    pipeline_degree: int
    largest_imbalance: float
    stages: list[PrunedStage]


class ParallelPlanning(TypedDict):
    """Output of `schedmate parallel plan --json`; `grids` are the fastest first."""

    model: str
    parameters: float
    gpus: int
    gpu_type: str
    notes: list[str]
    best: ParallelGrid
    pruning: ParallelPruning
    grids: list[ParallelGrid]


class ParallelDevice(TypedDict):
    """A GPU type: memory [bytes], bandwidths [bytes/s], peaks [FLOP/s] by precision."""

    name: str
    memory_bytes: float
    bandwidth: float
    peaks: dict[str, float]
    link: float
    source: str


class ParallelDevices(TypedDict):
    """Output of `schedmate parallel devices --json`."""

    devices: list[ParallelDevice]


class ParallelModel(TypedDict):
    """A known model; `layers` counts embedding and head."""

    name: str
    parameters: float
    hidden: int
    layers: int


class ParallelModels(TypedDict):
    """Output of `schedmate parallel models --json`."""

    models: list[ParallelModel]


class ParallelCollective(TypedDict):
    """A primitive among `ranks` devices: the line latency_s [s] + bytes / bandwidth [bytes/s].

    `error` is the mean relative error of the line, `interpolated` that of interpolation between
    measured volumes where the one in question is left out; `bandwidth` is null where time does not
    grow with the volume.
    """

    gpu: str
    precision: str
    primitive: str
    ranks: int
    points: int
    latency_s: float
    bandwidth: float | None
    error: float
    interpolated: float


class ParallelCollectives(TypedDict):
    """Output of `schedmate parallel collectives --json`."""

    collectives: list[ParallelCollective]


class Checkpoint(TypedDict):
    """Output of `schedmate recover checkpoint --json`; without one only `found`, false."""

    found: bool
    path: NotRequired[str]
    layout: NotRequired[str]
    step: NotRequired[int | None]
    time: NotRequired[float]
    load: NotRequired[str]
    passed_over: NotRequired[list[str]]
    command: NotRequired[str]
    note: NotRequired[str]


class RecoveryFile(Configuration):
    """Output of `schedmate recover check --json`: a recovery.yaml with all defaults."""


class SlurmImport(TypedDict):
    """Output of `schedmate slurm import --json`; `analysed`: those whose code was read."""

    cluster: str
    imported: int
    analysed: int | None


class FailurePlan(TypedDict):
    """Output of `slurm plan --json` and `k8s plan --json`; nothing of the plan is kept or done."""

    cluster: str
    failure: Failed
    plan: Plan | None


PARTS: dict[str, Any] = {
    "alarm": AlarmEvent,
    "watch": Watch,
    "agent-pass": Pass,
    "agent-summary": AgentSummary,
    "backup": Backup,
    "bench-job": BenchJob,
    "bench-log": BenchLog,
    "bench-score": BenchScore,
    "capacity": Capacity,
    "ray-queue": QueueDocument,
    "checkpoint": Checkpoint,
    "config": Config,
    "doctor": Doctor,
    "error": Error,
    "goodput": GoodputReport,
    "history": History,
    "history-import": HistoryImport,
    "kubernetes-doctor": Doctor,
    "kubernetes-plan": FailurePlan,
    "ledger": Ledger,
    "llm-up": LlmUp,
    "parallel-collectives": ParallelCollectives,
    "parallel-devices": ParallelDevices,
    "parallel-models": ParallelModels,
    "jobs": LiveJobs,
    "parallel-planning": ParallelPlanning,
    "parallel-prediction": ParallelPrediction,
    "parallel-pruning": ParallelPruning,
    "recover": RecoverDocument,
    "recovery-file": RecoveryFile,
    "reproduce": Reproduce,
    "rules": Rules,
    "serve-command": ServeCommand,
    "site-report": SiteReport,
    "slurm-doctor": Doctor,
    "slurm-import": SlurmImport,
    "slurm-plan": FailurePlan,
    "start-delays": StartDelays,
}
"""Documents and what they are made of."""


def schemas() -> dict[str, dict[str, Any]]:
    """Each schema by the name of its document."""
    made = {name: document(name, TypeAdapter(kind)) for name, kind in PARTS.items()}
    made["bench-answer"] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Answer.model_json_schema(),
        "title": ANSWER_SCHEMA,
    }
    made["parallel-plan"] = plan_schema()
    made["calibration"] = document("calibration", TypeAdapter(Calibration), embedder="string")
    made["track-compare"] = document("track-compare", TypeAdapter(Slowdown), compare="array")
    made["triage-job"] = document("triage-job", TypeAdapter(JobVerdict))
    del made["triage-job"]["properties"]["group"]  # known when the batch is over
    made["triage"] = triage()
    return made


def plan_schema() -> dict[str, Any]:
    """The schema of plans as `schedmate parallel predict` reads them."""
    schema = ParallelPlan.model_json_schema()
    schema["description"] = (
        "A parallelism plan, as `schedmate parallel predict` and `export` read it; what else an "
        "object holds is ignored. `layers` counts embedding and head."
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "schedmate.parallel-plan/v1",
    }


def document(name: str, kind: TypeAdapter[Any], **more: str) -> dict[str, Any]:
    """The schema of a document that has the fields of a type, and `more` of these JSON types."""
    schema = kind.json_schema(mode="serialization")
    about = {key: schema.pop(key) for key in ("title", "description")}
    fields = {key: {"type": json_type} for key, json_type in more.items()}
    schema["properties"] = {
        "schema": {"const": f"schedmate.{name}/v1"},
        **fields,
        **schema["properties"],
    }
    schema["required"] = ["schema", *fields, *schema.get("required", ())]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"schedmate.{name}/v1",
        "description": f"{about['description']} New keys may be added; none of these will change "
        "its meaning.",
        **schema,
    }


def files() -> dict[Path, str]:
    """The text of each file of docs/schemas that comes from here."""
    return {
        FOLDER / f"{name}-v1.schema.json": json.dumps(schema, indent=1) + "\n"
        for name, schema in schemas().items()
    }
