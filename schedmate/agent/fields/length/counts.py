"""A number that code or settings give, as a candidate for the length of training."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeGuard

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, is_number, source_bonus
from schedmate.agent.units import Unit
from schedmate.agent.values import NumberValue, Origin, Value

ENDLESS = 10**8
"""So many epochs or steps mean that something else ends the training."""
_STEPS = 10_000
"""A duration without a unit from here on is in steps: nobody trains for so many epochs."""
CLIP = 1000
"""Fewer frames than this are a clip's, not a training's."""
FEW = 50
"""Fewer steps than this are no training beside others that were set, or inside another loop."""


class End(NamedTuple):
    """What ends a training at a length: a limit that was set, a loop's bound, a count in a loop."""

    kind: Literal["limit", "loop", "leaves"]
    bound: str = ""
    """The bound as the program writes it."""

    def note(self) -> str:
        """The same for people."""
        match self.kind:
            case "limit":
                return "a limit of steps that was set for this launch"
            case "loop":
                return f"loop over {self.bound}"
            case "leaves":
                return f"leaves at {self.bound}"


@dataclass(slots=True)
class Length(Candidate):
    """A length: what it counts, None for what it is listed under, and how it ends the training."""

    unit: Unit | None = None
    end: End | None = None


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


def counted(value: Value, score: float, end: End | None = None, unit: Unit | None = None) -> Length:
    """The candidate that a number is, doubted where it stands for no end at all."""
    if is_number(value) and value.data >= ENDLESS:
        score += prior.length["endless"]
    score += source_bonus(value.origin) * prior.length["source"]
    return length_of(whole(value.data), value.origin, score, end, unit)


def length_of(
    number: float,
    origin: Origin | None,
    score: float,
    end: End | None = None,
    unit: Unit | None = None,
) -> Length:
    """A candidate whose note says what ends the training."""
    return Length(number, origin, score, end and end.note(), unit=unit, end=end)
