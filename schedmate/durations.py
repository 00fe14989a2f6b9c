"""Durations as people write them, and as they like to read them."""

from __future__ import annotations

import re

from schedmate.errors import UsageError
from schedmate.plain import LONGEST_S
from schedmate.terminal import clean

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WITH_UNIT = re.compile(r"(?<![\d.])(\d++(?:\.\d++)?)\s*+([smhd])", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}))?")


def parse_duration(text: str) -> float:
    """Seconds of `90m`, `1d12h`, `36:00:00`, Slurm's `1-12:00:00` or a plain number of seconds.

    Raises `UsageError` for anything else.
    """
    seconds = _seconds(text.strip())
    if not 0 <= seconds <= LONGEST_S:
        raise UsageError(
            f"{clean(text, 60)!r} is not a duration; write it like 90m, 36h, 1d12h or 1-12:00:00."
        )
    return seconds


def _seconds(stripped: str) -> float:
    if clock := _CLOCK.fullmatch(stripped):
        days, first, second, third = (float(part) if part else 0.0 for part in clock.groups())
        if clock[1] or clock[4]:
            # D-HH:MM[:SS] and HH:MM:SS
            return days * 86_400.0 + first * 3600.0 + second * 60.0 + third
        return first * 60.0 + second
    parts = _WITH_UNIT.findall(stripped)
    if parts and not _WITH_UNIT.sub("", stripped).strip():
        return sum(float(number) * _UNITS[unit.lower()] for number, unit in parts)
    try:
        return float(stripped)
    except ValueError:
        return -1.0


def format_duration(seconds: float) -> str:
    """Two units a person reads at a glance: `45 s`, `11 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if not abs(seconds) <= LONGEST_S:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if whole or seconds <= 0 else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"
