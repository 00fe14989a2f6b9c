"""The numbers and times that a log spells, bounded where they are read.

A log may hold any digits. What no job has (a count above 1e15, a number of hundreds of digits, a
date in the year 9792) is no number here, so that nothing that counts with one has to expect it.
"""

from __future__ import annotations

import math
import re

from schedmate.base.data import LONGEST_S

LARGEST = 1e15
"""Larger counts, rates and times are not those of a job."""
LONGEST_NUMBER = 60
"""Characters of a number: a double needs 24, and some print 40 decimals."""
LATEST_S = 7_258_118_400.0
"""The year 2200, since the epoch [s]: no log is from later."""
EARLIEST_S = -86_400.0
"""The latest time zone's 1970, whose first day stands for no date [s]."""

_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PARTS = re.compile(r"(?<![\d.])([\d.]++)(ms|[dhms])")


def read_number(text: str) -> float:
    """The number that a text spells, with commas and in quotes as it may be.

    NaN and infinity only where they are spelled out; a loss that diverges may be above `LARGEST`.
    Raises `ValueError` for what is no number, or none that a job has.
    """
    plain = text.replace(",", "").strip("'\"")
    if len(plain) > LONGEST_NUMBER:
        raise ValueError("more digits than any number of a job has")
    value = float(plain)
    if not math.isfinite(value) and not plain[-1:].isalpha():
        raise ValueError("larger than any number of a job")
    return value


def read_count(text: str | bytes) -> int | None:
    """The whole number that digits spell; None for one that no job has."""
    digits = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    digits = digits.replace(",", "")
    if len(digits) > LONGEST_NUMBER or not digits.isdecimal():
        return None
    count = int(digits)
    return count if count <= LARGEST else None


def read_clock(text: str) -> float:
    """Seconds of `1:02:03`, `1 day, 2:03:04`, `2h 3m 4s` or `1s234ms`, at most `LONGEST_S`.

    Raises `ValueError` for what is none of these.
    """
    if ":" in text:
        days, _, clock = text.rpartition(" ")
        total = 0.0
        for part in clock.split(":"):
            total = total * 60 + _part(part)
        total += 86_400 * _part(days.split()[0]) if days.split() else 0.0
    else:
        total = sum((_part(value) * _UNITS[unit] for value, unit in _PARTS.findall(text)), 0.0)
    return min(total, LONGEST_S)


def _part(text: str) -> float:
    """A part of a clock, at most `LONGEST_S`."""
    return min(float(text), LONGEST_S)


def bounded_time(seconds: float | None) -> float | None:
    """A time since the epoch [s] that a log may be from; None for any other."""
    return seconds if seconds is not None and EARLIEST_S <= seconds <= LATEST_S else None
