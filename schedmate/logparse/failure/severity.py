"""The severity that a line states for itself, in the formats of many loggers (`severity.yaml`)."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache

from schedmate.data import load


class Severity(IntEnum):
    """The levels of all loggers on one scale."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    FATAL = 3


NEAR = 80
"""A level stands near the beginning of a line [characters] ..."""
FIELDS = 2000
"""... but as a field of a record anywhere."""

_WORDS = {
    **dict.fromkeys(("t", "d", "i", "trace", "verbose", "debu", "debug", "info", "notice"), 0),
    **dict.fromkeys(("10", "20", "30"), 0),
    **dict.fromkeys(("w", "warn", "warning", "40"), 1),
    **dict.fromkeys(("e", "erro", "error", "err", "severe", "50"), 2),
    **dict.fromkeys(("f", "fata", "fatal", "pani", "panic", "crit", "critical", "60"), 3),
    **dict.fromkeys(("alert", "emerg", "emergency"), 3),
}
# NCCL knows no error: a warning is what it says before it fails.
_NCCL = re.compile(r"\bNCCL WARN\b")
# As an administrator's choice of facility: those of the kernel are as grave as they can be.
_KERNEL_PRIORITIES = range(8)


def severity(text: str) -> Severity | None:
    """The severity that a line states for itself, or None."""
    return _level(text)[0]


def is_harmless(text: str) -> bool:
    """Whether a line states, as a person would read it, that nothing failed.

    `W` does not: TensorFlow uses it for errors that end a job.
    """
    level, letter = _level(text)
    return level is not None and level < (Severity.WARNING if letter else Severity.ERROR)


def _level(text: str) -> tuple[Severity | None, bool]:
    """The level, and whether it is written as one letter."""
    if _NCCL.search(text[:NEAR]):
        return Severity.ERROR, False
    for form, priority in _forms():
        match = form.search(text[: FIELDS if text.startswith("{") else NEAR])
        if match is None or match["level"] is None:
            continue
        if priority:
            return _of_syslog(int(match["level"])), False
        word = match["level"].lower().rstrip("0123456789") or match["level"]
        return Severity(_WORDS[word]), len(word) == 1
    return None, False


def _of_syslog(priority: int) -> Severity | None:
    """RFC 5424: the facility times eight and the severity, 0 the gravest."""
    if priority in _KERNEL_PRIORITIES:
        return None
    grave = priority % 8
    if grave < 3:
        return Severity.FATAL
    return Severity.ERROR if grave == 3 else Severity(grave == 4)


def is_mild(text: str) -> bool:
    """Whether a line states a severity below error."""
    level = severity(text)
    return level is not None and level < Severity.ERROR


def is_grave(text: str) -> bool:
    """Whether a line states a severity of error or above."""
    level = severity(text)
    return level is not None and level >= Severity.ERROR


def by_letter(text: str) -> bool:
    """Whether a line's level is one letter, as libraries in native code write it."""
    return _level(text)[1]


def is_faint(text: str) -> bool:
    """Whether a line is of a kind that rarely ended a job, whatever its level."""
    return _faint().search(text[:FIELDS]) is not None


@cache
def _forms() -> list[tuple[re.Pattern[str], bool]]:
    entries = load("logparse/failure/severity.yaml")["forms"]
    return [(re.compile(one["pattern"]), one["pattern"].startswith("^<(?P")) for one in entries]


@cache
def _faint() -> re.Pattern[str]:
    entries = load("logparse/failure/severity.yaml")["faint"]
    return re.compile("|".join(f"(?:{one['pattern']})" for one in entries))
