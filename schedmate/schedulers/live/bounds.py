"""The administrator's limits for schedmate on a cluster: `bounds.yaml`.

Without the file the agent only observes: it estimates, follows logs, diagnoses failures and learns.
Every section is documented in docs/slurm.md; examples/slurm/bounds.yaml has all of them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from schedmate.data import parse
from schedmate.durations import parse_duration
from schedmate.errors import SettingsError, reason_of
from schedmate.validation import sentence


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


class DiagnoseBounds(_Section):
    """Whether logs of failed jobs are read."""

    allowed: bool = True
    each: Seconds = Field(60.0, description="Time spent on one job's logs at most [s]")


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
    kinds: tuple[Literal["job", "pytorchjob", "rayjob", "workload", "volcano", "kai"], ...] = (
        "job",
        "pytorchjob",
        "rayjob",
        "workload",
        "volcano",
        "kai",
    )
    code: CodeBounds = CodeBounds()
    qps: float = Field(20.0, gt=0, le=1000, description="Requests a second at most")
    isolate: bool = Field(False, description="Whether nodes are tainted and pods evicted")
    lease: str = Field(
        "schedmate-agent", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="Name of the Lease that the working agent holds",
    )  # fmt: skip
    lease_namespace: str | None = Field(None, description="By default that of the agent's pod")


class Bounds(_Section):
    """All sections of `bounds.yaml`."""

    poll: Seconds = Field(10.0, description="Time between two passes [s]")
    kill_switch: Path = Field(
        Path("/etc/schedmate/stop"), description="While this file exists nothing is changed"
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
    slurm: SlurmBounds = SlurmBounds()
    kubernetes: KubernetesBounds = KubernetesBounds()


def load_bounds(path: Path | None) -> Bounds:
    """The bounds of a file; without one, the agent only observes.

    Raises `SettingsError` for a file that cannot be read, has unknown settings, or is writable by
    others than its owner.
    """
    if path is None:
        return Bounds()
    import yaml

    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read(1 << 20).decode("utf-8")
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
        found = parse(text)
    except yaml.YAMLError as error:
        raise SettingsError(
            f"{path} is not YAML: {reason_of(error)}; `schedmate slurm doctor` checks it once it "
            "is corrected."
        ) from None
    try:
        bounds = Bounds.model_validate({} if found is None else found)
    except ValidationError as error:
        raise SettingsError(f"{path}: {sentence(error, _keys(), place='it')}") from None
    if bounds.recovery is not None:
        return bounds.model_copy(update={"recovery": path.parent / bounds.recovery})
    return bounds


def _keys() -> set[str]:
    parts: list[type[BaseModel]] = [Bounds, *_Section.__subclasses__()]
    return {name for part in parts for name in part.model_fields}
