"""Lengths that were set for a launch and that no training can have."""

from __future__ import annotations

import math
import re

from schedmate.agent.fields.candidates import Candidate, Setting, named, rules
from schedmate.agent.fields.length.counts import ENDLESS
from schedmate.agent.fields.length.settings import is_of_another
from schedmate.agent.values import Origin

MOST_STEPS = 10**12
"""More steps than any training takes; a thousand million of an environment are common."""
_OFF = (-1, 0)
"""Numbers by which programs turn a limit off."""
_WORD = re.compile(r"[^\W\d_]+")
_OFF_WORDS = frozenset({"none", "null", "nil", "auto", "default", "max", "all", "off", "full"})
_SURELY_A_COUNT = re.compile(
    r"epochs?$|^(max|num|n|total|train|training)\w*(steps|iters|iterations)$"
)
"""Names whose values are numbers: `steps` alone may list what is to be done."""


def impossible_lengths(settings: list[Setting]) -> list[Setting]:
    """The settings of this launch that name a length and have a value that none can be."""
    names = rules("names")
    wrong: dict[Origin, Setting] = {}
    for aliases, most in ((names["epochs"], ENDLESS), (names["steps"], MOST_STEPS)):
        for _, setting in named(settings, aliases):
            origin = setting.value.origin
            if origin is None or not setting.explicit or is_of_another(setting):
                continue
            if _is_impossible(setting, most):
                wrong.setdefault(_place(origin), setting)
    return list(wrong.values())


def comes_from(length: Candidate, settings: list[Setting]) -> bool:
    """Whether a length is the value of one of the settings."""
    places = {_place(setting.value.origin) for setting in settings if setting.value.origin}
    return length.origin is not None and _place(length.origin) in places


def describe(setting: Setting) -> str:
    """The sentence that says which value is none."""
    origin = setting.value.origin
    name = (origin and origin.text) or setting.path[-1]
    data = setting.value.data
    written = f"{data:g}" if isinstance(data, float) else str(data)
    where = f" ({origin.file}:{origin.line})" if origin is not None and origin.file else ""
    return (
        f"{name} is {written}{where}, which no training's length can be; "
        "set the number of epochs or steps that the job is to run"
    )


def _is_impossible(setting: Setting, most: int) -> bool:
    data = setting.value.data
    if isinstance(data, str):
        return _is_no_count(data.strip(), setting.key, most)
    if isinstance(data, bool) or not isinstance(data, int | float):
        return False
    return not math.isfinite(data) or data >= most or (data < 0 and data not in _OFF)


def _is_no_count(text: str, key: str, most: int) -> bool:
    try:
        number = float(text)
    except ValueError:
        word = _WORD.fullmatch(text) is not None and text.lower() not in _OFF_WORDS
        return word and _SURELY_A_COUNT.search(key) is not None
    return not math.isfinite(number) or number >= most or (number < 0 and number not in _OFF)


def _place(origin: Origin) -> Origin:
    return origin._replace(computed=None)
