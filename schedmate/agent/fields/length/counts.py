"""A number that code or settings give, as a candidate for the length of training."""

from __future__ import annotations

import re
from typing import Any, TypeGuard

from schedmate.agent.fields.candidates import Candidate, is_number, source_bonus
from schedmate.agent.values import NumberValue, Value

_ENDLESS = 10**8
"""So many epochs or steps mean that something else ends the training."""
_STEPS = 10_000
"""A duration without a unit from here on is in steps: nobody trains for so many epochs."""
CLIP = 1000
"""Fewer frames than this are a clip's, not a training's."""
FEW = 50
"""Fewer steps than this are no training beside others that were set, or inside another loop."""
LIMIT = "a limit of steps that was set for this launch"
"""The note of such a setting."""
LEAVES = "leaves at"
"""Begins the note of a loop that is left at a count."""


def whole(number: Any) -> Any:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def positive(value: Value | None) -> TypeGuard[NumberValue]:
    return is_number(value) and value.data > 0


def timed(value: Value) -> tuple[int, str] | None:
    """A time string of Composer: `10ep` epochs, `1000ba` batches, `5000sp` samples.

    A large number without a unit is one of batches; `tok` and `sp` are what is consumed.
    """
    text = value.data if isinstance(value.data, str) else ""
    if type(value.data) is int and value.data >= _STEPS:
        return value.data, "ba"
    found = re.fullmatch(r"(\d+)\s*(ep|ba|sp|tok)", text)
    return (int(found[1]), found[2]) if found else None


def counted(value: Value, score: float, note: str | None = None) -> Candidate:
    if is_number(value) and value.data >= _ENDLESS:
        score -= 40
    return Candidate(whole(value.data), value.origin, score + source_bonus(value.origin) / 10, note)
