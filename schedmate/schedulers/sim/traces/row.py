"""One row of a trace to one job; a row that is none raises `ValueError` with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any, get_args

from schedmate.jobs import TaskType, WorkloadMetadata
from schedmate.schedulers.model import Profile
from schedmate.schedulers.sim.traces.values import (
    gpus_of_tres,
    number,
    seconds,
    state_of,
    whole,
)

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
        *_TRAINING,
    )
)
"""What formats.yaml and --map can name."""

_SAYS = frozenset({"model", "train", "iters"})
"""Any of these makes metadata."""

TIMES = frozenset({"submit", "start", "end", "duration", "time_limit"})

_CALLED = {"submit": "submission"}
_UNFINISHED = ("RUNNING", "PENDING")
_UNKNOWN = ("", "Unknown", "None", "N/A")


@dataclass(slots=True)
class Entry:
    """What a row says of a job."""

    id: str
    submit: float
    """[s]"""
    duration: float
    """[s]"""
    gpus: float
    """Below 1: a part of one."""
    cpus: float
    memory_mb: float
    vc: str
    user: str
    name: str
    state: str
    gpu_type: str
    priority: int
    time_limit_s: float | None
    profile: Profile | None
    metadata: WorkloadMetadata | None
    synthetic: str


def entry_of(cell: Cell, units: Mapping[str, float], has: frozenset[str]) -> Entry | None:
    """The job of a row; None for one without GPUs, that never ran, or has not ended.

    `units` are the seconds in a unit of each time field; `has` the fields that the trace has.
    """
    gpus = _gpus(cell, has)
    if gpus < 0:
        raise ValueError(f"it asks for {gpus:g} GPUs")
    # A step of a Slurm job (17.batch, 17.0) is a part of a job that has a row of its own.
    if gpus == 0 or ("gpus_tres" in has and "." in cell("id")):
        return None
    state = state_of(cell("state"))
    times = {
        field: seconds(cell(field), _CALLED.get(field, field), units.get(field, 1.0))
        for field in ("submit", "start", "end", "duration")
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
    return Entry(
        cell("id"),
        times["submit"],
        duration,
        gpus,
        _cpus(cell, has),
        number(cell("host_memory_mb"), "memory", 0.0),
        intern(cell("vc")),
        intern(cell("user")),
        intern(cell("name")),
        state,
        intern(cell("gpu_type").split("|")[0]),
        whole(cell("priority") or "0", "priority", negative=True),
        _time_limit(cell, units),
        _profile(cell) if "gpu_util" in has else None,
        _metadata(tuple(map(cell, _TRAINING)), max(1, round(gpus))) if has & _SAYS else None,
        intern(cell("synthetic")),
    )


def _gpus(cell: Cell, has: frozenset[str]) -> float:
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
        raise ValueError(f"{share * 1000:g} thousandths of {gpus} GPUs is no request")
    return gpus * share


def _cpus(cell: Cell, has: frozenset[str]) -> float:
    if "cpus_milli" in has:
        return number(cell("cpus_milli"), "cpu_milli", 0.0) / 1000.0
    if "cpus_percent" in has:
        part = number(cell("cpus_percent"), "cpus", 0.0) / 100
        return part * number(cell("instances"), "instances", 1.0)
    return number(cell("cpus"), "cpus", 0.0)


def _time_limit(cell: Cell, units: Mapping[str, float]) -> float | None:
    minutes = cell("time_limit_minutes")
    if minutes:
        # Slurm says UNLIMITED or Partition_Limit where there is none of the job's own.
        return number(minutes, "time limit") * 60 or None if minutes[0].isdigit() else None
    return number(cell("time_limit"), "time limit", 0.0) * units.get("time_limit", 1.0) or None


def _profile(cell: Cell) -> Profile | None:
    if not cell("gpu_util"):
        return None
    return Profile(
        number(cell("gpu_util"), "gpu_util"),
        number(cell("memory_util"), "memory_util", 0.0),
        number(cell("memory_mb"), "memory_mb", 0.0),
        cell("amp").lower() in ("1", "true"),
    )


@lru_cache(maxsize=1 << 16)
def _metadata(cells: tuple[str, ...], gpus: int) -> WorkloadMetadata | None:
    """What the trace says of the training, null where it does not; None: it says nothing."""
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
