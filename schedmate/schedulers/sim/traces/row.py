"""One row of a trace to one job; a row that is none raises `ValueError` with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from schedmate.schedulers.model import Profile
from schedmate.schedulers.sim.traces.values import (
    class_of,
    gpus_of_tres,
    number,
    seconds,
    state_of,
    whole,
    windows,
)
from schedmate.schedulers.terms import Constraints, Terms

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata

Cell = Callable[[str], str]
"""The text of a field in the present row; empty where the trace has no such column."""

_TRAINING = (
    *("model", "task", "train", "valid", "batch_size", "iters", "iter_type", "optimizer", "lr"),
    "amp",
)
FIELDS = frozenset(
    (
        *("id", "submit", "start", "end", "duration", "vc", "user", "name", "state", "gpu_type"),
        *("gpus", "gpus_tres", "gpus_part", "gpus_percent", "instances", "share", "share_milli"),
        *("cpus", "cpus_milli", "cpus_percent", "host_memory_mb", "priority"),
        *("time_limit", "time_limit_minutes", "gpu_util", "memory_util", "memory_mb", "synthetic"),
        *("class", "tenant", "checkpoint", "saves", "pods", "standby"),
        *_TRAINING,
    )
)
"""What formats.yaml and --map can name."""

_SAYS = frozenset({"model", "train", "iters"})
"""Any of these makes metadata."""

TIMES = frozenset({"submit", "start", "end", "duration", "time_limit", "checkpoint"})

MOMENTS = ("submit", "start", "end", "duration")
"""Fields with the times of a job."""
CALLED = {"submit": "submission"}
_UNFINISHED = ("RUNNING", "PENDING")
_UNKNOWN = ("", "Unknown", "None", "N/A")


class Fields(NamedTuple):
    """The fields of a file, by column."""

    units: Mapping[str, float]
    """Seconds in a unit of each time field."""
    has: frozenset[str]
    """The fields that it has."""


class Part(NamedTuple):
    """A property of a job that follows from a few cells of its row."""

    reads: tuple[str, ...]
    """The fields that it reads."""
    make: Callable[[Cell, Fields], Any]
    """Raises `ValueError` for cells that make no sense."""
    unless: frozenset[str] = frozenset()
    """Without any of these, if not of those that it reads, it is the same for every row."""

    @property
    def needs(self) -> frozenset[str]:
        """Fields of which the file needs one; else the result is the same for every row."""
        return self.unless or frozenset(self.reads)


@dataclass(slots=True)
class Entry:
    """The job of a row."""

    submit: float
    """[s]"""
    duration: float
    """[s]"""
    gpus: float
    """Below 1: a part of one."""
    state: str
    more: dict[str, Any]
    """By the names of `PARTS`."""


def entry_of(cell: Cell, fields: Fields) -> Entry | None:
    """The job of a row; None for one without GPUs, that never ran, or has not ended."""
    has, units = fields.has, fields.units
    gpus = GPUS.make(cell, fields)
    if gpus < 0:
        raise ValueError(f"it asks for {gpus:g} GPUs")
    # A step of a Slurm job (17.batch, 17.0) is part of a job that has a row of its own.
    if gpus == 0 or ("gpus_tres" in has and "." in cell("id")):
        return None
    state = STATE.make(cell, fields)
    times = {
        field: seconds(cell(field), CALLED.get(field, field), units.get(field, 1.0))
        for field in MOMENTS
        if field in has and (field == "submit" or cell(field) not in _UNKNOWN)
    }
    if "end" in has and "end" not in times and state in _UNFINISHED:
        return None
    if "start" in has and "start" not in times:
        return None
    if "duration" in times:
        duration = times["duration"]
    else:
        if "end" not in times:
            raise ValueError("it has neither a duration nor an end")
        duration = times["end"] - times.get("start", times["submit"])
    if duration < 0:
        raise ValueError(f"the duration is negative ({duration:g} s)")
    more = {name: part.make(cell, fields) for name, part in PARTS.items()}
    return Entry(times["submit"], duration, gpus, state, more)


def _gpus(cell: Cell, fields: Fields) -> float:
    has = fields.has
    if "gpus_tres" in has:
        return gpus_of_tres(cell("gpus_tres"))
    if "gpus_part" in has:
        return number(cell("gpus_part"), "gpus", 0.0)
    if "gpus_percent" in has:
        part = number(cell("gpus_percent"), "gpus", 0.0) / 100
        return part * number(cell("instances"), "instances", 1.0)
    gpus = whole(cell("gpus"), "gpus")
    if gpus == 0:
        return 0
    share = number(cell("share_milli"), "gpu_milli", 1000.0) / 1000.0
    share = number(cell("share"), "share", share)
    if not 0 < share <= 1 or (share < 1 and gpus > 1):
        raise ValueError(f"{share * 1000:g} thousandths of {gpus} GPUs is not a request")
    return gpus * share


def _cpus(cell: Cell, fields: Fields) -> float:
    has = fields.has
    if "cpus_milli" in has:
        return number(cell("cpus_milli"), "cpu_milli", 0.0) / 1000.0
    if "cpus_percent" in has:
        part = number(cell("cpus_percent"), "cpus", 0.0) / 100
        return part * number(cell("instances"), "instances", 1.0)
    return number(cell("cpus"), "cpus", 0.0)


def _time_limit(cell: Cell, fields: Fields) -> float | None:
    minutes = cell("time_limit_minutes")
    if minutes:
        # Slurm prints UNLIMITED or Partition_Limit if the job has no limit of its own.
        return number(minutes, "time limit") * 60 or None if minutes[0].isdigit() else None
    return (
        number(cell("time_limit"), "time limit", 0.0) * fields.units.get("time_limit", 1.0) or None
    )


def _profile(cell: Cell, fields: Fields) -> Profile | None:
    if not cell("gpu_util"):
        return None
    return Profile(
        number(cell("gpu_util"), "gpu_util"),
        number(cell("memory_util"), "memory_util", 0.0),
        number(cell("memory_mb"), "memory_mb", 0.0),
        cell("amp").lower() in ("1", "true"),
    )


def _metadata(cell: Cell, fields: Fields) -> WorkloadMetadata | None:
    if fields.has.isdisjoint(_SAYS):
        return None
    return _training(tuple(map(cell, _TRAINING)), max(1, round(_gpus(cell, fields))))


@lru_cache(maxsize=1 << 16)
def _training(cells: tuple[str, ...], gpus: int) -> WorkloadMetadata | None:
    """The training metadata of the trace, null for missing fields; None if there is none."""
    from schedmate.jobs import TaskType, WorkloadMetadata

    said = dict(zip(_TRAINING, cells, strict=True))
    if not any(said[field] for field in _SAYS):
        return None
    kind, task = said["iter_type"].lower() or None, said["task"] or None
    if kind not in (None, "step", "epoch"):
        raise ValueError(f"iter_type is {kind!r}, neither step nor epoch")
    if task not in (None, *get_args(TaskType)):
        raise ValueError(f"task is {task!r}, none of {', '.join(get_args(TaskType))}")
    training: dict[str, Any] = {
        "iters": whole(said["iters"], "iterations") if said["iters"] else None,
        "iter_type": kind,
        "batch_size": whole(said["batch_size"], "batch size") if said["batch_size"] else None,
        "lr": number(said["lr"], "lr") if said["lr"] else None,
        "optimizer": said["optimizer"] or None,
        "precision": {"": None, "0": "fp32", "false": "fp32"}.get(said["amp"].lower(), "amp"),
    }
    given = {key: value for key, value in training.items() if value is not None}
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": said["model"] or None, "task_type": task},
            "training_config": {**given, "num_gpus": gpus},
            "dataset_config": {"train": said["train"] or None, "valid": said["valid"] or None},
        }
    )


def _terms(cell: Cell, fields: Fields) -> Terms | None:
    unit = fields.units.get("checkpoint", 1.0)
    said = (cell("class"), cell("tenant"), cell("checkpoint"), cell("saves"))
    return _agreed(*said, unit) if any(said) else None


@lru_cache(maxsize=1 << 16)
def _agreed(kind: str, tenant: str, checkpoint: str, saves: str, unit: float) -> Terms | None:
    every = number(checkpoint, "checkpoint") * unit if checkpoint else None
    if every is not None and every <= 0:
        raise ValueError(f"a checkpoint every {every:g} s is not an interval")
    low = class_of(kind)
    found = Terms(low, checkpoint_s=every, saves=saves.lower() in ("1", "true"), tenant=tenant)
    return None if found == Terms() else found


def _pods(cell: Cell, fields: Fields) -> Constraints | None:
    pods = whole(cell("pods"), "pods") if cell("pods") else 0
    if pods <= 1:
        return None
    if (gpus := _gpus(cell, fields)) % pods:
        raise ValueError(f"its {gpus:g} GPUs cannot be divided among {pods} equal pods")
    return _gang(pods)


@lru_cache(maxsize=1 << 12)
def _gang(pods: int) -> Constraints:
    return Constraints(pods=pods)


def _text(field: str) -> Part:
    return Part((field,), lambda cell, _: intern(cell(field)))


_COUNTS = ("gpus", "gpus_tres", "gpus_part", "gpus_percent", "instances", "share", "share_milli")
GPUS = Part(_COUNTS, _gpus)
STATE = Part(("state",), lambda cell, _: state_of(cell("state")))
PARTS: Mapping[str, Part] = {
    "cpus": Part(("cpus", "cpus_milli", "cpus_percent", "instances"), _cpus),
    "memory_mb": Part(
        ("host_memory_mb",), lambda cell, _: number(cell("host_memory_mb"), "memory", 0.0)
    ),
    "vc": _text("vc"),
    "user": _text("user"),
    "name": _text("name"),
    "gpu_type": Part(("gpu_type",), lambda cell, _: intern(cell("gpu_type").split("|")[0])),
    "priority": Part(
        ("priority",), lambda cell, _: whole(cell("priority") or "0", "priority", negative=True)
    ),
    "time_limit_s": Part(("time_limit_minutes", "time_limit"), _time_limit),
    "profile": Part(
        ("gpu_util", "memory_util", "memory_mb", "amp"), _profile, frozenset({"gpu_util"})
    ),
    "metadata": Part((*_TRAINING, *_COUNTS), _metadata, _SAYS),
    "synthetic": _text("synthetic"),
    "terms": Part(("class", "tenant", "checkpoint", "saves"), _terms),
    "constraints": Part(("pods", *_COUNTS), _pods, frozenset({"pods"})),
    "standby": Part(("standby",), lambda cell, _: windows(cell("standby"))),
}
"""The other fields of a row, in the order in which its cells are checked."""
