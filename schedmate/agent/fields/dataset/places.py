"""What settings say of the validation data: a place given, left open, an empty list, never."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import text_of
from schedmate.agent.fields.dataset.paths import is_path
from schedmate.agent.fields.leaves import Setting
from schedmate.agent.values import Origin

_PLACE = re.compile(r"(val|valid|validation|eval)(data(set)?(dir|path|root|folder|file)?)")
"""Settings for the validation data's place, and how what follows is named for training."""
_SWITCH = re.compile(r"(do|run|use|with)?(eval|evaluate|evaluation|val|validate|validation)")
_VALID_WORD = re.compile(r"validation|valid|val|eval|dev|predict")
_INTERVAL = re.compile(
    r"(val|valid|validation|eval|evaluation)(interval|freq|frequency|every|period)"
)
_LIST = re.compile(r"(val|valid|validation|eval|evaluation|dev)(data|(data)?sets?|files?|paths?)")


def left_out(settings: list[Setting]) -> bool:
    """Whether the place of the validation data was left open beside that of the training data."""
    places = {s.key: s.value.data for s in settings if s.kind != "globals"}
    pairs = [
        (places[f"train{end[2]}"], data)
        for key, data in places.items()
        if (end := _PLACE.fullmatch(key)) and f"train{end[2]}" in places
    ]
    return bool(pairs) and all(train is not None and data is None for train, data in pairs)


def nothing_given(settings: list[Setting]) -> bool:
    """Whether the list of what to evaluate on is there and empty: `eval_datasets = []`."""
    lists = [s.value.data for s in settings if s.kind != "globals" and _LIST.fullmatch(s.key)]
    return bool(lists) and all(value == [] for value in lists)


def never(settings: list[Setting]) -> bool:
    """Whether the interval between evaluations is zero: `eval_interval = 0`."""
    held = [s for s in settings if s.kind != "globals" and _INTERVAL.fullmatch(s.key)]
    # a library's own zero, in a section of its configuration, means at the end
    return bool(held) and all(s.value.data == 0 and len(s.path) == 1 for s in held)


def given(settings: list[Setting]) -> Origin | None:
    """The setting for a file to validate on beside that to train on: `--train x --dev y`.

    None where a switch for evaluation is off.
    """
    if any(s.value.data is False and _SWITCH.fullmatch(s.key) for s in settings):
        return None
    files = {
        setting.key: setting.value.origin
        for setting in settings
        if setting.kind != "globals" and isinstance(setting.value.data, str | list)
        if is_path(text_of(setting.value) or "")
    }
    for key, origin in files.items():
        word = _VALID_WORD.match(key)
        if word and f"train{key[word.end() :]}" in files:
            return origin
    return None
