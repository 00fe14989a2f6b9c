"""Lengths that were set for a launch and that its training cannot run for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from schedmate.agent.fields.candidates import Candidate, matching, rules
from schedmate.agent.fields.leaves import Setting, named
from schedmate.agent.fields.length.counts import ENDLESS
from schedmate.agent.fields.length.settings import is_of_another
from schedmate.agent.interp.trace import LoopEvent, Trace
from schedmate.agent.units import LONGEST
from schedmate.agent.values import Origin

_OFF = (-1, 0)
"""Numbers by which programs turn a limit off."""
_WORD = re.compile(r"[^\W\d_]+")
_OFF_WORDS = frozenset({"none", "null", "nil", "auto", "default", "max", "all", "off", "full"})
_SURELY_A_COUNT = re.compile(
    r"epochs?$|^(max|num|n|total|train|training)\w*(steps|iters|iterations)$"
)
"""Names whose values are numbers: `steps` alone may list what is to be done."""


class Unusable(NamedTuple):
    """Where a length was set that none can be, and the sentence that says so.

    `ends` says that the training ends before its first step.
    """

    origin: Origin
    sentence: str
    ends: bool = False


def unusable_lengths(settings: list[Setting], trace: Trace) -> list[Unusable]:
    """The lengths of this launch that are no number of epochs or steps that a training can run."""
    names = rules("names")
    found: dict[Origin, Unusable] = {}
    for unit, most in (("epochs", ENDLESS), ("steps", LONGEST)):
        for _, setting in named(settings, names[unit]):
            origin = setting.value.origin
            if origin is None or not setting.explicit or is_of_another(setting):
                continue
            sentence = _why(setting, unit, most, _spelt(setting, origin))
            ended = _ended_by(origin, trace) if sentence is None else None
            if ended is not None:
                sentence = (
                    f"{_spelt(setting, origin)}, at which the training loop "
                    f"({ended.site.file}:{ended.site.line}) ends before its first step"
                )
            if sentence is not None:
                one = Unusable(_place(origin), sentence, ended is not None)
                found.setdefault(one.origin, one)
    return list(found.values())


def comes_from(length: Candidate, unusable: list[Unusable]) -> bool:
    """Whether a length is one of the unusable ones."""
    return length.origin is not None and _place(length.origin) in {one.origin for one in unusable}


def _spelt(setting: Setting, origin: Origin) -> str:
    """`--epochs is 'abc' (run.sh:3)`."""
    data = setting.value.data
    written = f"{data:g}" if isinstance(data, float) else str(data)
    where = f" ({origin.file}:{origin.line})" if origin.file else ""
    return f"{origin.text or setting.path[-1]} is '{written}'{where}"


def _why(setting: Setting, unit: str, most: float, spelt: str) -> str | None:
    """The sentence about a value that is no length, None of one that may be."""
    data = setting.value.data
    number = data
    if isinstance(data, str):
        try:
            number = float(data)
        except ValueError:
            word = _WORD.fullmatch(data.strip()) is not None and data.lower() not in _OFF_WORDS
            if not word or not _SURELY_A_COUNT.search(setting.key):
                return None
            return f"{spelt}; how many {unit} that stands for is not known, so no length is given"
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if math.isfinite(number) and number < most and (number >= 0 or number in _OFF):
        return None
    return f"{spelt}, for which no training can run; give the number of {unit} that it is to run"


def _ended_by(origin: Origin, trace: Trace) -> LoopEvent | None:
    """The training loop that this length ends before its first step, if nothing else trains."""
    if any(event.certain and matching(event, "length") for event in trace.calls):
        return None
    loops = [loop for loop in trace.loops if loop.has_backward and loop.required]
    for loop in loops:
        end = loop.bound.origin
        if end is None or not loop.certain or (loop.bound.number or 0) > 0 or not loop.bound.known:
            continue
        if _place(end) == _place(origin) and not any(_trains_besides(loops, loop)):
            return loop
    return None


def _trains_besides(loops: list[LoopEvent], ended: LoopEvent) -> Iterator[bool]:
    """Of each other loop whether it may train, be it not around the one that ends."""
    for loop in loops:
        number = loop.bound.number
        yield loop.depth >= ended.depth and (number is None or number > 0)


def _place(origin: Origin) -> Origin:
    return origin._replace(computed=None)
