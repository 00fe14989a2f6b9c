"""One row of a trace to one job; a row or a cell that is none raises `ValueError` with the
reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from schedmate.base.data import LONGEST_S
from schedmate.base.terminal import clean
from schedmate.schedulers.model import Constraints, Profile, Terms
from schedmate.schedulers.sim.workload import Phase

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata


LARGEST_NUMBER = 1e15
"""The largest number that a cell may say: whole numbers up to it are exact."""

_TRES = re.compile(r"(?:^|,)gres/gpu(?::[\w.+-]+)?=(\d+)")
_STATES = {
    "pass": "COMPLETED",
    "completed": "COMPLETED",
    "succeeded": "COMPLETED",
    "terminated": "COMPLETED",
    "killed": "CANCELLED",
    "cancelled": "CANCELLED",
    "canceled": "CANCELLED",
    "timeout": "TIMEOUT",
    "node_fail": "NODE_FAIL",
    "node failure": "NODE_FAIL",
    "out_of_memory": "OUT_OF_MEMORY",
    "preempted": "PREEMPTED",
    "running": "RUNNING",
    "pending": "PENDING",
    "waiting": "PENDING",
    "configuring": "PENDING",
}


def number(text: str, what: str, default: float | None = None) -> float:
    """A finite number; `default` for an empty cell."""
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{what} is {shown_cell(text)}, not a number") from None
    if not abs(value) <= LARGEST_NUMBER:
        raise ValueError(
            f"{what} is {shown_cell(text)}, not a number of at most {LARGEST_NUMBER:g}"
        )
    return value


def whole_number(text: str, what: str, *, negative: bool = False) -> int:
    """A cell as a whole number; `what` names it in the `ValueError` for any other text."""
    value = number(text, what)
    if value != int(value) or (value < 0 and not negative):
        raise ValueError(f"{what} is {shown_cell(text)}, not a whole number of at least 0")
    return int(value)


def seconds(text: str, what: str, unit: float = 1.0) -> float:
    """Seconds from a number of `unit` seconds, or from a date and time (UTC without a time
    zone)."""
    if not text:
        raise ValueError(f"{what} is missing")
    try:
        value = float(text) * unit
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{what} is {shown_cell(text)}, neither seconds nor a date") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not abs(value) <= LONGEST_S:
        raise ValueError(f"{what} is {shown_cell(text)}, not a time of at most {LONGEST_S:g} s")
    return value


def shown_cell(text: str) -> str:
    """A cell as a message quotes it."""
    return repr(clean(text, 40))


def gpus_of_tres(text: str) -> int:
    """GPUs in Slurm's AllocTRES: the untyped count, else the sum over types."""
    counts = _TRES.findall(text)
    untyped = re.search(r"(?:^|,)gres/gpu=(\d+)", text)
    return (
        whole_number(untyped[1], "gpus")
        if untyped
        else sum(whole_number(one, "gpus") for one in counts)
    )


def state_of(text: str) -> str:
    """How a job ended, in Slurm's terms; an empty cell counts as completed."""
    if not text:
        return "COMPLETED"
    words = text.lower()
    return _STATES.get(words) or _STATES.get(words.split()[0]) or "FAILED"


_HIGH_CLASSES = ("", "hp", "high", "ls", "guaranteed", "burstable")
_LOW_CLASSES = ("lp", "low", "spot", "be", "besteffort", "best-effort")


def is_low_priority(text: str) -> bool:
    """Whether a service class is one of low priority, which may be evicted; an empty one is not.

    Kubernetes' `BestEffort` and openb's `BE` are; latency-sensitive (`LS`), `Guaranteed` and
    `Burstable` are not.
    """
    words = text.lower()
    if words not in _HIGH_CLASSES and words not in _LOW_CLASSES:
        raise ValueError(f"class is {shown_cell(text)}, neither hp nor lp")
    return words in _LOW_CLASSES


def time_windows(text: str) -> tuple[tuple[float, float], ...]:
    """Windows as `79200-104400;165600-190800`: from and until, on the clock of the trace [s]."""
    windows: list[tuple[float, float]] = []
    for part in text.split(";") if text else ():
        start, _, end = part.partition("-")
        window = (number(start.strip(), "standby"), number(end.strip(), "standby"))
        if not window[0] < window[1] or (windows and window[0] < windows[-1][1]):
            raise ValueError(f"standby is {shown_cell(text)}, not windows START-END in their order")
        windows.append(window)
    return tuple(windows)


# One row of a trace to one job; a row that is none raises `ValueError` with the reason.


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
        *("class", "tenant", "checkpoint", "saves", "pods", "standby", "phases"),
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
    """Fields of which the file needs at least one (empty: `reads`); without any, every row has the
    same value."""

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
    gpus = whole_number(cell("gpus"), "gpus")
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

    fields = dict(zip(_TRAINING, cells, strict=True))
    if not any(fields[field] for field in _SAYS):
        return None
    kind, task = fields["iter_type"].lower() or None, fields["task"] or None
    if kind not in (None, "step", "epoch"):
        raise ValueError(f"iter_type is {kind!r}, neither step nor epoch")
    if task not in (None, *get_args(TaskType)):
        raise ValueError(f"task is {task!r}, none of {', '.join(get_args(TaskType))}")
    training: dict[str, Any] = {
        "iters": whole_number(fields["iters"], "iterations") if fields["iters"] else None,
        "iter_type": kind,
        "batch_size": whole_number(fields["batch_size"], "batch size")
        if fields["batch_size"]
        else None,
        "lr": number(fields["lr"], "lr") if fields["lr"] else None,
        "optimizer": fields["optimizer"] or None,
        "precision": {"": None, "0": "fp32", "false": "fp32"}.get(fields["amp"].lower(), "amp"),
    }
    stated = {key: value for key, value in training.items() if value is not None}
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": fields["model"] or None, "task_type": task},
            "training_config": {**stated, "num_gpus": gpus},
            "dataset_config": {"train": fields["train"] or None, "valid": fields["valid"] or None},
        }
    )


def _terms(cell: Cell, fields: Fields) -> Terms | None:
    unit = fields.units.get("checkpoint", 1.0)
    cells = (cell("class"), cell("tenant"), cell("checkpoint"), cell("saves"))
    return _agreed(*cells, unit) if any(cells) else None


@lru_cache(maxsize=1 << 16)
def _agreed(kind: str, tenant: str, checkpoint: str, saves: str, unit: float) -> Terms | None:
    every = number(checkpoint, "checkpoint") * unit if checkpoint else None
    if every is not None and every <= 0:
        raise ValueError(f"a checkpoint every {every:g} s is not an interval")
    low = is_low_priority(kind)
    terms = Terms(low, checkpoint_s=every, saves=saves.lower() in ("1", "true"), tenant=tenant)
    return None if terms == Terms() else terms


def _pods(cell: Cell, fields: Fields) -> Constraints | None:
    pods = whole_number(cell("pods"), "pods") if cell("pods") else 0
    if pods <= 1:
        return None
    if (gpus := _gpus(cell, fields)) % pods:
        raise ValueError(f"its {gpus:g} GPUs cannot be divided among {pods} equal pods")
    return _gang(pods)


@lru_cache(maxsize=1 << 12)
def _gang(pods: int) -> Constraints:
    return Constraints(pods=pods)


def _phases(cell: Cell, fields: Fields) -> tuple[Phase, ...]:
    """Phases as `300x6;60x2`: seconds of work and GPUs."""
    phases = []
    for part in cell("phases").split(";") if cell("phases") else ():
        work, _, gpus = part.partition("x")
        phase = Phase(number(work.strip(), "phases"), whole_number(gpus.strip(), "GPUs of phases"))
        if phase.work_s <= 0 or not 1 <= phase.gpus <= _gpus(cell, fields):
            raise ValueError(
                f"phases is {shown_cell(cell('phases'))}, not SECONDSxGPUS of at most its GPUs"
            )
        phases.append(phase)
    return tuple(phases)


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
        ("priority",),
        lambda cell, _: whole_number(cell("priority") or "0", "priority", negative=True),
    ),
    "time_limit_s": Part(("time_limit_minutes", "time_limit"), _time_limit),
    "profile": Part(
        ("gpu_util", "memory_util", "memory_mb", "amp"), _profile, frozenset({"gpu_util"})
    ),
    "metadata": Part((*_TRAINING, *_COUNTS), _metadata, _SAYS),
    "synthetic": _text("synthetic"),
    "terms": Part(("class", "tenant", "checkpoint", "saves"), _terms),
    "constraints": Part(("pods", *_COUNTS), _pods, frozenset({"pods"})),
    "standby": Part(("standby",), lambda cell, _: time_windows(cell("standby"))),
    "phases": Part(("phases", *_COUNTS), _phases, frozenset({"phases"})),
}
"""The other fields of a row, in the order in which its cells are checked."""
