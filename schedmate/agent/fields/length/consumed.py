"""Lengths in samples or tokens: what a run is to go through, rather than how often it steps."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import rules, source_bonus
from schedmate.agent.fields.leaves import Setting, named
from schedmate.agent.fields.length.counts import End, Length, length_of, positive, timed, whole
from schedmate.agent.interp.trace import LoopEvent
from schedmate.agent.units import SAMPLE, TOKEN, Unit
from schedmate.agent.values import Value

LEAST = 1000
"""Fewer samples than this are a look at the data, and no training."""
_THOUSANDS = "kilosamples"

_COUNTED: tuple[tuple[Unit, re.Pattern[str]], ...] = (
    (TOKEN, re.compile(r"(^|[\W_])tokens?($|[\W_])", re.IGNORECASE)),
    (
        SAMPLE,
        re.compile(
            r"(^|[\W_])(k?(samples?|examples?|imgs?|images?|pictures?|sentences?)|nimg)($|[\W_])",
            re.IGNORECASE,
        ),
    ),
)
_OTHER = re.compile(
    r"per_|_per|batch|eval|valid|test|log|save|warm|gen|len\(|max_new|context|vocab|interval|freq|"
    r"every|seq|beam|diffusion",
    re.IGNORECASE,
)
"""Names of counts that something else than the training ends at."""


_TIMED: dict[str, Unit] = {"sp": SAMPLE, "tok": TOKEN}


def add_timed(
    value: Value, score: float, epochs: list[Length], steps: list[Length], consumed: list[Length]
) -> None:
    """Add a duration that is written with its unit, `10ep`, to those of its unit."""
    duration = timed(value)
    if duration is None:
        return
    number, written = duration
    if written in _TIMED:
        consumed.append(length_of(number, value.origin, score, unit=_TIMED[written]))
    else:
        (epochs if written == "ep" else steps).append(length_of(number, value.origin, score))


def unit_of(name: str) -> Unit | None:
    """What a name says it counts, None where that is neither samples nor tokens."""
    return next((unit for unit, words in _COUNTED if words.search(name)), None)


def from_settings(settings: list[Setting], consumed: list[Length]) -> None:
    """Settings that are named after the samples or tokens of the whole training."""
    names = rules("names")["consumed"]
    for kind, aliases in names.items():
        unit: Unit = TOKEN if kind == "tokens" else SAMPLE
        for rank, setting in named(settings, aliases):
            if not positive(setting.value) or _OTHER.search(".".join(setting.path[:-1])):
                continue
            value = setting.value.data * (1000 if kind == _THOUSANDS else 1)
            if value < LEAST:
                continue
            origin = setting.value.origin
            if kind == _THOUSANDS and origin is not None:
                origin = origin._replace(computed=f"{setting.value.data:,} thousand samples")
            score = (
                prior.length_setting["named"] + source_bonus(origin) + prior.length["rank"] * rank
            )
            consumed.append(length_of(whole(value), origin, score, unit=unit))


def from_loop(loop: LoopEvent, consumed: list[Length]) -> bool:
    """Whether a loop counts samples or tokens, which it then adds where it ends the training."""
    text = f"{loop.counter} {loop.bound_text}"
    unit = unit_of(loop.counter) or unit_of(loop.bound_text)
    if unit is None or loop.kind == "for" or loop.counter.startswith("len("):
        return False
    if not positive(loop.bound) or loop.bound.data < LEAST or _OTHER.search(text):
        return False
    if not loop.has_backward:
        return False
    score = prior.loop.sure("left", loop.certain)
    score += prior.loop["deeper while"] * max(0, loop.depth - 1)
    end = End("leaves", loop.bound_text)
    consumed.append(length_of(whole(loop.bound.data), loop.bound.origin, score, end, unit))
    return True


def name_of(value: Value, settings: list[Setting]) -> str:
    """What the program calls a number: the setting that holds it."""
    for setting in settings:
        same = setting.value.origin is not None and setting.value.origin == value.origin
        if setting.value is value or (same and setting.value.data == value.data):
            return setting.path[-1]
    return ""
