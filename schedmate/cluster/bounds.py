"""The administrator's limits for schedmate on a cluster, `bounds.yaml`, and the order of the
queue within them.

Without the file the agent only observes: it estimates, follows logs, diagnoses failures and learns.
Every section is documented in docs/slurm.md; examples/slurm/bounds.yaml has all of them.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from schedmate.base.data import load
from schedmate.base.errors import SettingsError, reason_of
from schedmate.base.files import is_remote
from schedmate.base.inputs import fault_sentence, parse_duration
from schedmate.base.reading import MOST_SETTINGS, open_binary, parse_document
from schedmate.cluster import cluster_kind, cluster_names
from schedmate.cluster.actions import Action, Order
from schedmate.cluster.adapter import Finding, LiveJob, RefusedError
from schedmate.jobs import Estimate, JobRecord
from schedmate.settings import site_dir


def _seconds(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=1e8)]
"""A time [s]; as text also `90m`, `7d`."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OrderBounds(_Section):
    """Whether and how far the order of pending jobs is changed."""

    allowed: bool = False
    lowest: int = Field(-3000, ge=-(10**9), le=0, description="Least value that a job gets")
    highest: int = Field(3000, ge=0, le=10**9, description="Greatest value that a job gets")
    levels: int = Field(13, ge=2, le=101, description="How many different values there are")
    shortest: Seconds = Field(300.0, description="Estimates up to this get the highest [s]")
    longest: Seconds = Field(7 * 86_400.0, description="Estimates from this on get the lowest [s]")
    ageing: Seconds = Field(
        3 * 86_400.0, description="After waiting this long every job has the highest value [s]"
    )
    every: Seconds = Field(30.0, description="How often values are changed at most [s]")
    queues: tuple[str, ...] = Field((), description="Partitions that are ordered; empty: all")

    @model_validator(mode="after")
    def _spread(self) -> Self:
        if self.shortest >= self.longest:
            raise ValueError("'shortest' must be less than 'longest'")
        if self.lowest == self.highest:
            raise ValueError("'lowest' must be less than 'highest'")
        return self


class AnnotateBounds(_Section):
    """Whether and where an estimate is written as a note on each pending job."""

    where: Literal["off", "comment", "admin_comment", "annotation"] = "off"
    most: int = Field(20, ge=1, le=1000, description="Lines written in one pass at most")


class AdviseBounds(_Section):
    """Time limits for reading code."""

    seconds: Seconds = Field(5.0, description="Time spent on new jobs in one pass [s]")
    each: Seconds = Field(10.0, description="CPU time spent on one job at most [s]")


class LearnBounds(_Section):
    """Whether ended jobs go into the history."""

    allowed: bool = True
    every: Seconds = Field(30.0, description="How often accounting is asked [s]")
    seconds: Seconds = Field(5.0, description="Time spent on learning in one pass [s]")
    overlap: Seconds = Field(
        600.0, description="How far back it is asked again, since rows are completed late [s]"
    )
    spool: Path | None = Field(
        None, description="Where an epilog drops a file for each run that ends: ask at once"
    )


class FollowBounds(_Section):
    """Whether logs of running jobs are read."""

    allowed: bool = True
    every: Seconds = Field(60.0, description="How often each log is read [s]")
    seconds: Seconds = Field(5.0, description="Time spent on logs in one pass [s]")
    silence: Seconds = Field(
        120.0, description="Shortest silence of a log by which its job counts as stalled [s]"
    )


class DiagnoseBounds(_Section):
    """Whether logs of failed jobs are read."""

    allowed: bool = True
    each: Seconds = Field(60.0, description="Time spent on one job's logs at most [s]")
    seconds: Seconds = Field(
        20.0, description="Time after which no further log is begun in one pass [s]"
    )


class RecordBounds(_Section):
    """When the agent moves old entries of its record into an archive beside it."""

    above_mb: float = Field(64.0, gt=0, le=1e6, description="Size below which it does not [MB]")
    keep: Seconds = Field(
        90 * 86_400.0, description="What is younger stays, and what recovery still needs [s]"
    )


class SlurmBounds(_Section):
    """How Slurm's commands are run."""

    through: tuple[str, ...] = Field(
        (), description="Put before each command, for example [sudo, -n, -u, schedmate]"
    )
    drain: tuple[str, ...] = Field(
        (), description="The command that may drain and resume nodes; empty: none is drained"
    )


class ImageCode(_Section):
    """Where the code in an image is on the machine that schedmate runs on."""

    image: str = Field(min_length=1, description="Name of an image; `*` and `?` as in a shell")
    path: Path
    at: Path | None = Field(
        None, description="Where the code is inside the image, for commands that say so"
    )


class CodeBounds(_Section):
    """Where the code of jobs on Kubernetes is read."""

    roots: tuple[Path, ...] = Field(
        (), description="What jobs may name directories below; `{namespace}` is the job's"
    )
    images: tuple[ImageCode, ...] = Field((), description="For jobs that name none")


class KubernetesBounds(_Section):
    """Which objects are watched on Kubernetes, and the request rate."""

    cluster: str = Field("kubernetes", min_length=1, max_length=100)
    namespaces: tuple[str, ...] = Field((), description="Empty: all of them")
    kinds: tuple[str, ...] = Field(
        default_factory=lambda: tuple(_kinds()), description="By default all of them"
    )
    code: CodeBounds = CodeBounds()
    qps: float = Field(20.0, gt=0, le=1000, description="Requests a second at most")
    memory_mb: int = Field(
        512, ge=16, le=65536, description="Memory for copies of watched objects at most [MiB]"
    )
    isolate: bool = Field(False, description="Whether nodes are tainted and pods evicted")
    lease: str = Field(
        "schedmate-agent", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="Name of the Lease that the working agent holds",
    )  # fmt: skip
    lease_namespace: str | None = Field(None, description="By default that of the agent's pod")

    @field_validator("kinds")
    @classmethod
    def _known_kinds(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [kind for kind in kinds if kind not in _kinds()]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of {', '.join(_kinds())}")
        return kinds


def _kinds() -> list[str]:
    """The kinds of jobs on Kubernetes, which a table has."""
    return list(load("cluster/kubernetes/kinds.yaml"))


class Bounds(_Section):
    """All sections of `bounds.yaml`."""

    poll: Seconds = Field(10.0, description="Time between two passes [s]")
    kill_switch: Path = Field(
        default_factory=lambda: site_dir() / "stop",
        description="While this file exists nothing is changed",
    )
    history: str | None = Field(
        None,
        min_length=1,
        description="The history that the agent, `import` and `doctor` use: a directory, or "
        "postgresql://...; without it, that of the settings",
    )
    state: Path | None = Field(
        None, description="Directory of the agent's memory and its record of actions"
    )
    advise: AdviseBounds = AdviseBounds()
    order: OrderBounds = OrderBounds()
    annotate: AnnotateBounds = AnnotateBounds()
    learn: LearnBounds = LearnBounds()
    follow: FollowBounds = FollowBounds()
    diagnose: DiagnoseBounds = DiagnoseBounds()
    recovery: Path | None = Field(
        None, description="recovery.yaml; without one failures are diagnosed and nothing planned"
    )
    record: RecordBounds = RecordBounds()
    slurm: SlurmBounds = SlurmBounds()
    kubernetes: KubernetesBounds = KubernetesBounds()
    _sections: dict[str, BaseModel] = PrivateAttr(default_factory=dict)

    def section_of(self, kind: str) -> Any:
        """The section of a kind of cluster: its `ClusterKind.section`, from the file or by
        default."""
        model = cluster_kind(kind).section()
        if model is None:
            raise ValueError(f"clusters of the kind {kind} have no section")
        return self._sections.get(kind) or model()

    def add_sections(self, sections: Mapping[str, BaseModel]) -> None:
        """Keep the sections of kinds of clusters that are no field."""
        self._sections.update(sections)


def load_bounds(path: Path | None) -> Bounds:
    """The bounds of a file; without one, the agent only observes.

    Raises `SettingsError` for a file that cannot be read, has unknown settings, or is writable by
    others than its owner.
    """
    if path is None:
        return Bounds()
    import yaml

    try:
        with open_binary(path, most=MOST_SETTINGS) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read().decode("utf-8")
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"cannot read {path}: {reason_of(error)}; name the file with --bounds, or leave it out "
            "to allow nothing."
        ) from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SettingsError(
            f"{path} permits actions on the cluster, and is writable by others than its owner; "
            f"run: chmod go-w {path}"
        )
    try:
        document = parse_document(text, path)
    except yaml.YAMLError as error:
        raise SettingsError(
            f"{path} is not YAML: {reason_of(error)}; `schedmate slurm doctor` checks it once it "
            "is corrected."
        ) from None
    document = {} if document is None else document
    sections: dict[str, BaseModel] = {}
    try:
        for kind, model in _further_sections(document).items():
            sections[kind] = model.model_validate(document.pop(kind))
        bounds = Bounds.model_validate(document)
    except ValidationError as error:
        raise SettingsError(f"{path}: {fault_sentence(error, _known_keys(), place='it')}") from None
    # a relative path in a file means relative to that file
    beside: dict[str, object] = {
        name: path.parent / place
        for name, place in (("recovery", bounds.recovery), ("state", bounds.state))
        if place is not None
    }
    if bounds.history is not None and not is_remote(bounds.history):
        beside["history"] = str(path.parent / bounds.history)
    bounds = bounds.model_copy(update=beside)
    bounds.add_sections(sections)
    return bounds


def _further_sections(document: Any) -> dict[str, type[BaseModel]]:
    """The models of sections that are of kinds of clusters, and no field of `Bounds`."""
    if not isinstance(document, dict):
        return {}
    names = (document.keys() - Bounds.model_fields.keys()) & {*cluster_names()}
    models = {name: cluster_kind(name).section() for name in names}
    return {name: model for name, model in models.items() if model is not None}


def _known_keys() -> set[str]:
    parts: list[type[BaseModel]] = [Bounds, *_Section.__subclasses__()]
    return {name for part in parts for name in part.model_fields}


# From estimates to places in the queue, within the administrator's bounds.
#
# Shorter jobs first (shortest job first by estimated run time), as a value between `lowest` and
# `highest` on a logarithmic scale of duration. There are only a few levels, so that one command
# sets many jobs and small changes move no job. A waiting job rises, whatever its estimate, until
# it has the highest value after `ageing`: from then on only the scheduler's own order counts, so
# that a stream of short jobs cannot starve it. Users whose jobs run much longer than estimated
# gain less and less by short estimates, but are never placed lower than without an estimate.


TRUST_TOO_LONG = 1.5
"""A run that took this many times the 90th percentile of its estimate counts against the user."""

TRUST_FALL = 0.8
"""What trust is multiplied with then."""

TRUST_RISE = 0.1
"""Which share of lost trust comes back with every job that ends within its estimate."""


def order_value(
    bounds: OrderBounds, estimate: Estimate | None, *, trust: float, waited_s: float
) -> int:
    """The place of a pending job: one of the levels between `lowest` and `highest`.

    `trust` is from 0 to 1, `waited_s` the time since submission [s]. An estimate that is too
    uncertain still has a distribution, and the mean of its places counts. Without an estimate a job
    begins at 0, where the scheduler alone would have it.
    """
    low, high = bounds.lowest, bounds.highest
    start = 0.0
    times = [] if estimate is None else [estimate.duration_s or 0.0]
    if estimate is not None and estimate.abstained:
        times = estimate.quantiles_s or []
    if any(times):
        span = math.log(bounds.longest / bounds.shortest)
        lengths = [math.log(max(time_s, 1e-9) / bounds.shortest) / span for time_s in times]
        length = sum(min(1.0, max(0.0, one)) for one in lengths) / len(lengths)
        start = high - length * (high - low)
        if start > 0:
            start *= min(1.0, max(0.0, trust))
    aged = start + (high - start) * min(1.0, max(0.0, waited_s / bounds.ageing))
    step = (high - low) / (bounds.levels - 1)
    level = math.floor((aged - low) / step + 1e-9)
    return max(low, min(high, round(low + level * step)))


def moved_trust(trust: float, estimate: Estimate, run: JobRecord) -> float:
    """A user's trust after a run that had an estimate.

    A run that did not complete only shows that it takes at least as long as it ran.
    """
    p90, took = estimate.duration_p90_s, run.duration_s
    if estimate.abstained or p90 is None or took is None:
        return trust
    if took > TRUST_TOO_LONG * p90:
        return trust * TRUST_FALL
    if run.state == "COMPLETED":
        return trust + (1.0 - trust) * TRUST_RISE
    return trust


def order_to_set(
    wanted: Mapping[str, int],
    present: Mapping[str, int],
    ours: Mapping[str, tuple[int, int]],
) -> Order | None:
    """The action that sets the wanted values of pending jobs; None if all have theirs.

    `present` are the values of jobs, `ours` the last and previous ones that schedmate set: a job
    with any other value, except 0, was ordered by somebody else and is left alone.
    """
    values = {
        job: value
        for job, value in wanted.items()
        if job in present
        and present[job] != value
        and (present[job] == 0 or present[job] in ours.get(job, ()))
    }
    return Order(values=values, previous={job: present[job] for job in values}) if values else None


def left_to_set(action: Order, present: Mapping[str, int | None]) -> tuple[Finding, dict[str, int]]:
    """What is left of an order to carry out: the finding, and the values still to be set.

    `present` are the values of the jobs that are still pending. A job whose value is neither the
    wanted nor the previous one was ordered by somebody else and is left alone.
    """
    values = action.values
    left = {
        job: value
        for job, value in values.items()
        if job in present and present[job] != value and present[job] == action.previous.get(job)
    }
    foreign = [job for job in present if job not in left and present[job] != values[job]]
    if left:
        return Finding("ready", f"{len(left)} to be set"), left
    if foreign:
        return Finding(
            "changed", f"somebody else changed the order of job {', '.join(foreign[:5])}"
        ), {}
    return Finding("done", f"{len(present)} pending have their value"), {}


def is_ordered(bounds: OrderBounds, job: LiveJob) -> bool:
    """Whether a job is one of those that are ordered."""
    if job.state != "PENDING" or job.held:
        return False
    return not bounds.queues or bool(set(bounds.queues) & set(job.queues))


def check_band(bounds: OrderBounds, action: Action, *, undo: bool) -> None:
    """Raise `RefusedError` for an order that the bounds do not allow."""
    if not isinstance(action, Order):
        return
    if undo or not any(action.values.values()):  # back to what the scheduler alone would do
        return
    if not bounds.allowed:
        raise RefusedError("bounds", "the bounds allow no change of the order (order: allowed).")
    for job, value in action.values.items():
        if not bounds.lowest <= value <= bounds.highest:
            raise RefusedError("bounds", f"job {job} would get {value}, outside of the band.")


def kill_switch_is_on(place: Path, look: Callable[[Path], object] = os.lstat) -> bool:
    """Whether anything has this name, a dangling link too, or nobody can tell."""
    try:
        look(place)
    except FileNotFoundError:
        return False
    except OSError:  # no right to look, a file system that does not answer
        return True
    return True
