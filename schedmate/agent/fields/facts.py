"""Named facts about an answer: what speaks for it and what against it, as numbers from -1 to 1.

They are what the confidence of the answer is computed from; `benchmarks/fit_fields.py` computes the
same ones for the answers that the weights are fitted on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

MODEL, TASK = "model_config.model_name", "model_config.task_type"
ITERS, UNIT = "training_config.iters", "training_config.iter_type"
TRAIN, VALID = "dataset_config.train", "dataset_config.valid"
FIELDS = (MODEL, TASK, ITERS, UNIT, TRAIN, VALID)
"""The mandatory fields; those beside them are `FURTHER`."""
BATCH, RATE = "training_config.batch_size", "training_config.lr"
OPTIMIZER, GPUS = "training_config.optimizer", "training_config.num_gpus"
PER_DEVICE = "training_config.per_device_batch_size"
GLOBAL = "training_config.global_batch_size"
OWN_TABLES = (BATCH, RATE, OPTIMIZER)
"""Fields besides the mandatory ones that have a table of weights of their own."""
NAMES = (MODEL, TRAIN, VALID)

_WRITTEN = ("command", "script", "environment", "launch", "config")
_GIVEN = ("command", "script", "environment", "launch", "library")
"""Sources of what nothing in the rest of a program contradicts."""
_CLOSE = 20.0
"""A lead over the next candidate by so much of the prior counts as clear."""
_MANY = 6
"""So many other values under consideration count as many."""


class Weighed(Protocol):
    """A candidate: its value, where that stands, the rule that found it and its prior, 0 to 100."""

    @property
    def data(self) -> Any: ...
    @property
    def source(self) -> str: ...
    @property
    def place(self) -> tuple[str | None, int | None]: ...
    @property
    def rule(self) -> str: ...
    @property
    def score(self) -> float: ...


@dataclass(slots=True)
class Scene:
    """What one reading of a job saw, besides the candidates of a field.

    `words` are the words of the command and `files` those that were read as configuration;
    `known` says whether the vocabulary's `models` or `datasets` have a name, and `around` what
    an answer stands in (`surroundings.py`).
    """

    entry: str | None
    words: Sequence[str]
    calls: int
    own_classes: int
    optimizer: bool
    backward: bool
    complete: bool
    known: Callable[[str, str], bool]
    files: Sequence[str] = ()
    around: Callable[[Weighed], Mapping[str, float]] = lambda _: {}
    answers: Mapping[str, Weighed] = field(default_factory=dict)


def facts(
    name: str, chosen: Weighed, considered: Sequence[Weighed], scene: Scene
) -> dict[str, float]:
    """The facts about the answer `chosen` to the field `name`, of all that were `considered`."""
    found = _of_any(chosen, considered, scene)
    text = str(chosen.data)
    match name:
        case "model_config.model_name":
            found |= _of_model(text, scene)
        case "model_config.task_type":
            found |= _of_task(chosen, scene)
        case "training_config.iters" | "training_config.iter_type":
            found |= _of_length(scene)
        case "dataset_config.train" | "dataset_config.valid":
            found |= _of_dataset(text, scene)
            train = scene.answers.get(TRAIN)
            if name == VALID and train is not None:
                found["the training set"] = float(_letters(text) == _letters(str(train.data)))
                found["training set's prior"] = train.score / 100
        case _:
            found |= _of_further(name, chosen.data)
    found |= scene.around(chosen)
    return {fact: round(float(value), 3) for fact, value in found.items() if value}


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _of_any(chosen: Weighed, considered: Sequence[Weighed], scene: Scene) -> dict[str, float]:
    mine = _letters(str(chosen.data))
    others: dict[str, float] = {}
    for other in considered:
        text = _letters(str(other.data))
        if text != mine:
            others[text] = max(other.score, others.get(text, 0.0))
    lead = min(1.0, max(-1.0, (chosen.score - max(others.values())) / _CLOSE)) if others else 1.0
    again = any(
        _letters(str(other.data)) == mine
        and (other.rule != chosen.rule or other.place != chosen.place)
        for other in considered
    )
    missing = sum(1 for name in FIELDS if name not in scene.answers)
    named = [scene.answers[name].score for name in FIELDS if name in scene.answers]
    weakest = min(named, default=50.0)
    return {
        f"from: {chosen.source}": 1,
        f"rule: {chosen.rule}": 1,
        "lead": lead,
        "unopposed": not others,
        "others": min(1.0, len(others) / _MANY),
        "said again": again,
        "on the command line": len(mine) > 1
        and any(mine in _letters(word) for word in scene.words),
        "reading cut off": not scene.complete and chosen.source not in _GIVEN,
        "no call seen": scene.calls == 0,
        "no class of its own seen": scene.own_classes == 0,
        "no optimiser seen": not scene.optimizer,
        "no backward pass seen": not scene.backward,
        "no configuration file": not scene.files,
        "fields missing": missing / len(FIELDS),
        "weakest prior": weakest / 100,
    }


_PLAIN_NAME = re.compile(
    r"(base|my|simple|the|full|custom|main|basic)?_?(model|net|network|module|agent|backbone|"
    r"encoder|decoder|generator|sequential|classifier|policy|learner|transformer|autoencoder|task|"
    r"nn|mlp|cnn|rnn|lstm|gru|gan|vae|unet)s?\d?",
    re.IGNORECASE,
)
"""Names that could be of any model."""
_AROUND = re.compile(
    r"wrapper|trainer|engine|module$|system$|task$|learner|solver|runner|lightning|pipeline|"
    r"experiment|manager|with(loss|criterion)",
    re.IGNORECASE,
)
"""Names of what is around a model."""
_BESIDE = re.compile(
    r"buffer|memory|metric|loss|criterion|eval|score|dataset|loader|env$|logger|callback|sampler|"
    r"schedul|optim|utils?$|helper|config",
    re.IGNORECASE,
)
"""Names of what serves a model."""


def _of_model(text: str, scene: Scene) -> dict[str, float]:
    known = scene.known(text, "models")
    stem = (scene.entry or "").rsplit("/", 1)[-1].removesuffix(".py")
    return {
        "known model": known,
        "known model with a variant": known and bool(re.search(r"\d|[-_]", text)),
        "could be any model": bool(_PLAIN_NAME.fullmatch(text)),
        "around a model": bool(_AROUND.search(text)),
        "beside a model": bool(_BESIDE.search(text)),
        "known dataset": scene.known(text, "datasets"),
        "of the script's name": len(text) > 2 and _letters(text) in _letters(stem),
        "of a configuration's name": len(text) > 2
        and any(_letters(text) in _letters(file.rsplit("/", 1)[-1]) for file in scene.files),
        "an identifier of a hub": text.count("/") == 1,
        "a class's name": bool(re.search(r"[a-z][A-Z]|^[A-Z][a-z]", text)),
        "small letters": text == text.lower() and text.isalpha(),
        "three letters or fewer": len(text) <= 3,
        "a long name": len(text) > 30,
    }


_KIND_OF_DATA = re.compile(
    r"(my|custom|base|image|text|video|audio|graph|sequence|train|training|val|valid|test|raw|"
    r"processed|full|all|new|small|tokenized)*[-_]?"
    r"(data|dataset|datasets|corpus|files?|images?|texts?|samples?|folder|loader|split|set|input)?",
    re.IGNORECASE,
)
"""Names that only say what kind of thing is read."""


def _of_dataset(text: str, scene: Scene) -> dict[str, float]:
    model = scene.answers.get(MODEL)
    return {
        "known dataset": scene.known(text, "datasets"),
        "known model": scene.known(text, "models"),
        "could be any data": bool(_KIND_OF_DATA.fullmatch(text)),
        "a path": "/" in text,
        "a path of several parts": text.count("/") > 1 or text.startswith(("/", ".")),
        "of a split": bool(re.search(r"(^|[-_/.])(train|val|valid|test|dev)", text, re.IGNORECASE)),
        "a class's name": bool(re.search(r"[a-z][A-Z]", text)),
        "small letters": text == text.lower() and text.isalpha(),
        "three letters or fewer": len(text) <= 3,
        "a long name": len(text) > 30,
        "the model's name": model is not None and _letters(text) == _letters(str(model.data)),
    }


def _of_task(chosen: Weighed, scene: Scene) -> dict[str, float]:
    model, train = scene.answers.get(MODEL), scene.answers.get(TRAIN)
    return {
        f"task: {chosen.data}": 1,
        "known model": model is not None and scene.known(str(model.data), "models"),
        "known dataset": train is not None and scene.known(str(train.data), "datasets"),
        "model's prior": 0.0 if model is None else model.score / 100,
        "training set's prior": 0.0 if train is None else train.score / 100,
        "no model": model is None,
        "no training set": train is None,
    }


def _of_length(scene: Scene) -> dict[str, float]:
    count, unit = scene.answers.get(ITERS), scene.answers.get(UNIT)
    number = count.data if count is not None and isinstance(count.data, int | float) else 0
    steps = unit is not None and unit.data == "step"
    return {
        "in steps": steps,
        "one": number == 1,
        "a power of ten": number >= 10 and math.log10(number).is_integer(),
        "few steps": steps and number < 200,
        "very many steps": steps and number >= 1_000_000,
        "many epochs": not steps and number > 1000,
        "written for this run": count is not None and count.source in _WRITTEN,
    }


def _of_further(name: str, data: Any) -> dict[str, float]:
    number = data if isinstance(data, int | float) else 0
    return {
        f"field: {name.rpartition('.')[2]}": 1,
        "one": number == 1,
        "a power of two": isinstance(data, int) and data > 4 and data & (data - 1) == 0,
        "a large rate": name == RATE and number > 0.05,
        "a tiny rate": name == RATE and number < 1e-5,
        "small letters": isinstance(data, str) and data == data.lower(),
    }
