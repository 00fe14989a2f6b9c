"""Datasets that a configuration names by the component that makes them.

`dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset}`, `data: {class_path: X}`.
"""

from __future__ import annotations

import re

from schedmate.agent.configs.class_keys import class_keys
from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.fields.dataset.names import class_dataset, dataset_name
from schedmate.agent.fields.leaves import Setting
from schedmate.agent.fields.words import is_known

_SECTION = re.compile(r"(train(ing)?_?)?(data|dataset|datasets|data_?module)", re.IGNORECASE)
_BUILDERS = re.compile(r"_?(data_?set|data_?module|builder|factory|data)s?$")


def from_components(settings: list[Setting]) -> list[Candidate]:
    """The component of each section for the training data, as far as its name says which data."""
    found = []
    for setting in settings:
        text = setting.value.data
        if len(setting.path) < 2 or not isinstance(text, str):
            continue
        if setting.path[-1] not in class_keys("path"):
            continue
        sections = [part for part in setting.path[:-1] if part not in ("init_args", "params")]
        if not sections or not _SECTION.fullmatch(sections[-1]):
            continue
        last = text.rpartition(".")[2]
        camel = last[:1].isupper()
        name = class_dataset(last) if camel else dataset_name(_BUILDERS.sub("", last))
        own = name is not None and name.lower() == text.split(".")[0].lower()
        if name is not None and not own and (is_known(name, "datasets") or not camel):
            score = prior.section["known component" if is_known(name, "datasets") else "component"]
            found.append(Candidate(name, setting.value.origin, score))
    return found
