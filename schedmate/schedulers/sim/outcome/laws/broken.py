"""The error raised when a law is broken, and the tolerance for rounding."""

from __future__ import annotations

from schedmate.errors import SchedmateError


class LawBrokenError(SchedmateError):
    """A simulation broke a law of conservation: a bug in the simulator, never in its input."""


def same(one: float, other: float) -> bool:
    """Whether two times or amounts of work are the same but for rounding."""
    return abs(one - other) <= 1e-6 * max(1.0, abs(one))
