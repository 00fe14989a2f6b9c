"""Slurm's spellings of times, sizes, states and resources, as plain numbers and names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any

from schedmate import durations
from schedmate.data import load
from schedmate.errors import UsageError
from schedmate.jobs import JobState

_SIZE = re.compile(r"([0-9.]+)\s*([KMGTP]?)(?:i?B)?[nc]?", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@cache
def table(name: str) -> dict[str, Any]:
    """A data file of this package."""
    loaded: dict[str, Any] = load(f"retrieval/importers/{name}.yaml")
    return loaded


@cache
def _missing() -> frozenset[str]:
    return frozenset(table("slurm")["missing"])


def is_missing(text: str | None) -> bool:
    """Whether a cell holds one of Slurm's words for "no value"."""
    return text is None or text.strip().lower() in _missing()


def parse_number(text: str) -> float:
    """A number; raises `ValueError` for anything else."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def parse_time(text: str | None) -> float | None:
    """A point in time [s since epoch], or None for "no value".

    Takes ISO 8601 (without a zone: this machine's zone, as sacct prints it) and plain seconds
    since the epoch (`SLURM_TIME_FORMAT=%s`). Raises `ValueError` for anything else.
    """
    if text is None or is_missing(text):
        return None
    text = text.strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if math.isfinite(seconds):
        return seconds
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time: give 2024-01-31T12:00:00 or seconds since the epoch"
        ) from None


def parse_duration(text: str | None) -> float | None:
    """A length of time [s]: Slurm's `1-02:03:04`, `2h` or plain seconds; None for "no value".

    Raises `ValueError` for anything else.
    """
    if text is None or is_missing(text):
        return None
    try:
        return durations.parse_duration(text)
    except UsageError as error:
        raise ValueError(str(error)) from None


def parse_size(text: str | None) -> float | None:
    """A size [bytes] with an optional binary suffix K, M, G, T or P, or None for "no value"."""
    if text is None or is_missing(text):
        return None
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size: give a number with K, M, G, T or P")
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2].upper() or " ")


@cache
def parse_state(text: str) -> JobState:
    """The state a job is in, under the name a `JobRecord` uses.

    Takes `CANCELLED by 1000`, the truncated `OUT_OF_ME+` and the two-letter codes. Raises
    `ValueError` for a state Slurm does not have.
    """
    states: dict[str, JobState] = table("slurm")["states"]
    word = (text.split() or [""])[0].upper()
    word = table("slurm")["codes"].get(word, word)
    if word in states:
        return states[word]
    if word.endswith("+"):
        found = {states[name] for name in states if name.startswith(word[:-1])}
        if len(found) == 1 and len(word) > 1:
            return found.pop()
    raise ValueError(f"{text!r} is no Slurm job state")


def parse_tres(text: str | None) -> dict[str, str]:
    """`cpu=64,gres/gpu:a100=8,mem=500G` as a dictionary."""
    if text is None or is_missing(text):
        return {}
    pairs = (item.partition("=") for item in text.split(","))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if value}


def gpus_of(tres: dict[str, str]) -> tuple[int | None, str | None]:
    """Number and type of the GPUs among trackable resources; the type only when all agree."""
    typed = {
        name.removeprefix("gres/gpu:"): _count(count)
        for name, count in tres.items()
        if name.startswith("gres/gpu:")
    }
    total = tres.get("gres/gpu")
    count = _count(total) if total is not None else (sum(typed.values()) if typed else None)
    return count, next(iter(typed)) if len(typed) == 1 else None


def _count(text: str) -> int:
    number = parse_number(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number of GPUs")
    return int(number)


def count_hosts(nodelist: str | None) -> int | None:
    """How many nodes `gpu[01-04,07],login2` names, or None when it names none."""
    if nodelist is None or is_missing(nodelist) or nodelist.strip().lower() == "none assigned":
        return None
    return sum(_count_host(name) for name in _split_hosts(nodelist.strip()))


def _split_hosts(nodelist: str) -> Iterable[str]:
    # Commas inside brackets separate ranges, not hosts.
    return filter(None, re.split(r",(?![^\[]{0,1000}\])", nodelist))


def _count_host(name: str) -> int:
    count = 1
    for ranges in re.findall(r"\[([^\[\]]*+)\]", name):
        count *= sum(
            int(match[2] or match[1]) - int(match[1]) + 1
            for match in map(_RANGE.fullmatch, ranges.split(","))
            if match
        )
    return count
