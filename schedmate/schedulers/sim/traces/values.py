"""Cells of a trace to values; a cell that is none raises `ValueError` with the reason."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from schedmate.plain import LONGEST_S
from schedmate.terminal import clean

MOST = 1e15
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
        raise ValueError(f"{what} is {shown(text)}, not a number") from None
    if not abs(value) <= MOST:
        raise ValueError(f"{what} is {shown(text)}, not a number of at most {MOST:g}")
    return value


def whole(text: str, what: str, *, negative: bool = False) -> int:
    """A whole number."""
    value = number(text, what)
    if value != int(value) or (value < 0 and not negative):
        raise ValueError(f"{what} is {shown(text)}, not a whole number of at least 0")
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
            raise ValueError(f"{what} is {shown(text)}, neither seconds nor a date") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not abs(value) <= LONGEST_S:
        raise ValueError(f"{what} is {shown(text)}, not a time of at most {LONGEST_S:g} s")
    return value


def shown(text: str) -> str:
    """A cell as a message quotes it."""
    return repr(clean(text, 40))


def gpus_of_tres(text: str) -> int:
    """GPUs in Slurm's AllocTRES: the untyped count, else the sum over types."""
    counts = _TRES.findall(text)
    untyped = re.search(r"(?:^|,)gres/gpu=(\d+)", text)
    return whole(untyped[1], "gpus") if untyped else sum(whole(one, "gpus") for one in counts)


def state_of(text: str) -> str:
    """How a job ended, in Slurm's terms; an empty cell counts as completed."""
    if not text:
        return "COMPLETED"
    words = text.lower()
    return _STATES.get(words) or _STATES.get(words.split()[0]) or "FAILED"


_HIGH = ("", "hp", "high", "ls", "guaranteed", "burstable")
_LOW = ("lp", "low", "spot", "be", "besteffort", "best-effort")


def class_of(text: str) -> bool:
    """Whether a service class is one of low priority, which may be evicted; an empty one is not.

    Kubernetes' `BestEffort` and openb's `BE` are; latency-sensitive (`LS`), `Guaranteed` and
    `Burstable` are not.
    """
    words = text.lower()
    if words not in _HIGH and words not in _LOW:
        raise ValueError(f"class is {shown(text)}, neither hp nor lp")
    return words in _LOW


def windows(text: str) -> tuple[tuple[float, float], ...]:
    """Windows as `79200-104400;165600-190800`: from and until, on the clock of the trace [s]."""
    found: list[tuple[float, float]] = []
    for part in text.split(";") if text else ():
        start, _, end = part.partition("-")
        one = (number(start.strip(), "standby"), number(end.strip(), "standby"))
        if not one[0] < one[1] or (found and one[0] < found[-1][1]):
            raise ValueError(f"standby is {shown(text)}, not windows START-END in their order")
        found.append(one)
    return tuple(found)
