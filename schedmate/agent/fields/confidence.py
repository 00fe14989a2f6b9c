"""How sure an answer is: a fitted probability that it is right, and the cautious number made of
it.

The probability is that of a logistic model of named facts, which speak for an answer or against it,
among them what the line that states it stands in. `weights/` has the fitted tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

from schedmate.agent.fields import training
from schedmate.agent.fields.candidates import Candidate, Lines, is_known, only_letters, rules
from schedmate.agent.fields.task import README
from schedmate.agent.fields.training import COMPUTED
from schedmate.agent.interp.trace import Trace
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.units import ITERS, UNIT
from schedmate.agent.values import Origin
from schedmate.jobs.metadata import SURE

POOLED = "further"
"""The table of all fields that have none of their own."""
_LEAST, _MOST = 0.05, 0.99
"""Bounds of the prior as a probability."""
_WORD, _WORDS, _FILES = 200, 200, 20
"""Most characters of a word, words of a command and configuration files that are looked at."""
_PROSE = (".md", ".rst", ".txt")
_SAID = 0.4
"""Most confidence in what only prose says, a README's heading: no program reads it."""
_INDIRECT = "a low prior"
_SPEAKING_FOR = frozenset({"said again"})
_REASONS = 2
"""Most reasons that are named for one doubt."""
_DOUBTED = 0.5
"""What follows from an answer below this is no surer than that answer."""


def log_odds(prior: float) -> float:
    """Of a prior, 0 to 100, as a probability within bounds."""
    share = min(_MOST, max(_LEAST, prior / 100))
    return math.log(share / (1 - share))


@dataclass(frozen=True, slots=True)
class Weights:
    """One field's model: log-odds are `intercept` + `prior` * logit(prior) + those of its facts."""

    intercept: float
    prior: float
    facts: Mapping[str, float]

    def probability(self, prior: float, found: Mapping[str, float]) -> float:
        """The probability that an answer is right, by its prior, 0 to 100, and its facts."""
        odds = self.intercept + self.prior * log_odds(prior)
        odds += sum(self.facts.get(name, 0.0) * value for name, value in found.items())
        return 1 / (1 + math.exp(-odds))


@cache
def fitted_weights() -> dict[str, Weights]:
    """The fitted models of confidence.yaml, by field."""
    models = {}
    for name in (*FIELDS, *OWN_TABLES, POOLED):
        table: dict[str, Any] = rules(f"weights/{name.rpartition('.')[2]}")
        models[name] = Weights(table["intercept"], table["prior"], table["facts"])
    return models


def cautious_confidence(
    probability: float, points: Sequence[tuple[float, float]] | None = None
) -> float:
    """The confidence that a probability is reported as: linear between the points of the scale."""
    before, *rest = rules("weights/scale")["points"] if points is None else points
    for point in rest:
        if probability <= point[0]:
            share = (probability - before[0]) / (point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def confidences(
    answers: Mapping[str, Weighed],
    considered: Mapping[str, Sequence[Weighed]],
    scene: Scene,
    models: Mapping[str, Weights] | None = None,
    points: Sequence[tuple[float, float]] | None = None,
) -> dict[str, float]:
    """The confidence of each answer, by field; `scene.answers` are the same `answers`."""
    by_field = fitted_weights() if models is None else models
    sure: dict[str, float] = {}
    for name, answer in answers.items():
        found = facts_about(name, answer, considered.get(name, ()), scene)
        model = by_field.get(name) or by_field[POOLED]
        sure[name] = cautious_confidence(model.probability(answer.score, found), points)
        if sure[name] < SURE:
            scene.doubts[name] = doubt_of(model, answer.score, found)
    for name in (PER_DEVICE, GLOBAL):
        if name in answers and answers[name].rule == COMPUTED and BATCH in sure:
            sure[name] = min(sure[name], sure[BATCH])
            scene.doubts.setdefault(name, "it is computed from the batch size, which is unsure")
    source = {"model": MODEL, "dataset": TRAIN}.get(answers[TASK].rule) if TASK in answers else None
    if source in sure and sure[source] < _DOUBTED:
        sure[TASK] = min(sure[TASK], sure[source])
        scene.doubts[TASK] = f"it follows from the {answers[TASK].rule}, which is unsure"
    return sure


def doubt_of(model: Weights, score: float, found: Mapping[str, float]) -> str:
    """What speaks most against an answer of this prior and these facts, in words."""
    words: dict[str, str] = rules("doubts")
    against = {name: model.facts.get(name, 0.0) * value for name, value in found.items()}
    against[_INDIRECT] = model.prior * log_odds(score)
    for name in words.keys() & _SPEAKING_FOR:  # what would speak for it is not there
        against[name] = -model.facts.get(name, 0.0) * (1 - found.get(name, 0.0))
    worst = sorted((odds, name) for name, odds in against.items() if odds < 0 and name in words)
    return " and ".join(words[name] for _, name in worst[:_REASONS]) or words[""]


def scene_of(trace: Trace, plan: LaunchPlan, lines: Lines) -> Scene:
    """What a reading saw, besides candidates; `lines` are those of the repository."""
    near = Surroundings(trace, plan.entry)

    def around(answer: Weighed) -> Mapping[str, float]:
        file, line = answer.place
        origin = answer.origin if isinstance(answer, Candidate) else None
        found = near.of_value(origin, answer.data)
        if file is not None and line and file.endswith(".py"):
            found |= near.facts(file, line, lines.of(file))
        return found

    return Scene(
        entry=plan.entry,
        words=[str(value.data)[:_WORD] for value in plan.argv[:_WORDS]],
        calls=len(trace.calls),
        own_classes=sum(event.cls is not None for event in trace.calls),
        optimizer=any(training.makes_optimizer(event) for event in trace.calls),
        backward=any(loop.has_backward for loop in trace.loops),
        complete=trace.complete,
        known=is_known,
        around=around,
        files=sorted({group.name for group in trace.settings if group.kind == "config"})[:_FILES],
    )


def judge_answers(answers: Mapping[str, Candidate], scene: Scene) -> dict[str, Candidate]:
    """The answers, by field, each with how sure it is."""
    scene.answers = answers
    considered = {name: answer.considered for name, answer in answers.items()}
    sure = confidences(answers, considered, scene)
    doubts = scene.doubts

    def lower(name: str, most: float, why: str) -> None:
        if sure[name] > most:
            sure[name], doubts[name] = most, why

    for name, answer in answers.items():
        if answer.doubted:
            lower(name, answer.score / 100, answer.note or doubts.get(name) or "")
        prose = (answer.place[0] or "").lower().endswith(_PROSE) and answer.source != "config"
        if prose or answer.rule == README:
            lower(name, _SAID, "only prose says it, which no program reads")
    return {
        name: replace(answers[name], sure=round(sure[name], 3), doubt=doubts.get(name) or None)
        for name in answers
    }


# Named facts about an answer: what speaks for it and what against it, as numbers from -1 to 1.
#
# They are what the confidence of the answer is computed from; `benchmarks/fit_fields.py` computes
# the same ones for the answers that the weights are fitted on.


MODEL, TASK = "model_config.model_name", "model_config.task_type"
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
    an answer stands in. `doubts` gets the reasons why answers are unsure, by field.
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
    doubts: dict[str, str] = field(default_factory=dict)


def facts_about(
    name: str, chosen: Weighed, considered: Sequence[Weighed], scene: Scene
) -> dict[str, float]:
    """The facts about the answer `chosen` to the field `name`, of all that were `considered`."""
    facts = _of_any(chosen, considered, scene)
    text = str(chosen.data)
    match name:
        case "model_config.model_name":
            facts |= _of_model(text, scene)
        case "model_config.task_type":
            facts |= _of_task(chosen, scene)
        case "training_config.iters" | "training_config.iter_type":
            facts |= _of_length(scene)
        case "dataset_config.train" | "dataset_config.valid":
            facts |= _of_dataset(text, scene)
            train = scene.answers.get(TRAIN)
            if name == VALID and train is not None:
                facts["the training set"] = float(
                    only_letters(text) == only_letters(str(train.data))
                )
                facts["training set's prior"] = train.score / 100
        case _:
            facts |= _of_further(name, chosen.data)
    facts |= scene.around(chosen)
    return {fact: round(float(value), 3) for fact, value in facts.items() if value}


def _of_any(chosen: Weighed, considered: Sequence[Weighed], scene: Scene) -> dict[str, float]:
    mine = only_letters(str(chosen.data))
    others: dict[str, float] = {}
    for other in considered:
        text = only_letters(str(other.data))
        if text != mine:
            others[text] = max(other.score, others.get(text, 0.0))
    lead = min(1.0, max(-1.0, (chosen.score - max(others.values())) / _CLOSE)) if others else 1.0
    again = any(
        only_letters(str(other.data)) == mine
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
        and any(mine in only_letters(word) for word in scene.words),
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
    is_known_model = scene.known(text, "models")
    stem = (scene.entry or "").rsplit("/", 1)[-1].removesuffix(".py")
    return {
        "known model": is_known_model,
        "known model with a variant": is_known_model and bool(re.search(r"\d|[-_]", text)),
        "could be any model": bool(_PLAIN_NAME.fullmatch(text)),
        "around a model": bool(_AROUND.search(text)),
        "beside a model": bool(_BESIDE.search(text)),
        "of the script's name": len(text) > 2 and only_letters(text) in only_letters(stem),
        "of a configuration's name": len(text) > 2
        and any(
            only_letters(text) in only_letters(file.rsplit("/", 1)[-1]) for file in scene.files
        ),
        "an identifier of a hub": text.count("/") == 1,
        "a class's name": bool(re.search(r"[a-z][A-Z]|^[A-Z][a-z]", text)),
        **_of_name(text, scene),
    }


def _of_name(text: str, scene: Scene) -> dict[str, float]:
    return {
        "known dataset": scene.known(text, "datasets"),
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
        "known model": scene.known(text, "models"),
        "could be any data": bool(_KIND_OF_DATA.fullmatch(text)),
        "a path": "/" in text,
        "a path of several parts": text.count("/") > 1 or text.startswith(("/", ".")),
        "of a split": bool(re.search(r"(^|[-_/.])(train|val|valid|test|dev)", text, re.IGNORECASE)),
        "a class's name": bool(re.search(r"[a-z][A-Z]", text)),
        **_of_name(text, scene),
        "the model's name": model is not None
        and only_letters(text) == only_letters(str(model.data)),
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


# What a value has to do with the training loop, and what the line that states it stands in.
#
# A trace says where the training loops are and what they count up to, and which calls were made
# only under a condition that was not decided. The lines above one in a Python file say which
# function and which branches it is in.


_HEADER = re.compile(r"(async\s+)?(if|elif|else|for|while|def|class)\b(.*)")
_BRANCHES = ("if", "elif", "else")
_ENTRY = re.compile(r"_?(main|train|run|fit|launch|start|cli)\w*", re.IGNORECASE)
"""Functions that a program begins with."""
BLOCK_ENDS = "ends the training loop"
SURROUNDING_FACTS = (
    "in the training loop's function",
    "in the program's file",
    "in the entry function",
    "in a branch",
    "made under a condition alone",
)
"""What lines stand in; `benchmarks/fit_fields.py` tried more facts, which told no wrong answers."""


class Surroundings:
    """Where one run trains, to say what lines of its program have to do with it."""

    def __init__(self, trace: Any, entry: str | None) -> None:
        """Args: the trace of the run, and the program's file, relative to its repository."""
        self.entry = entry
        self.loops = {(one.site.file, one.function) for one in trace.loops if one.has_backward}
        self.ends = {
            _value_key(one.bound.origin, one.bound.data)
            for one in trace.loops
            if one.has_backward and one.certain and one.bound.origin is not None
        }
        self.certain: dict[tuple[str, int], bool] = {}
        for event in trace.calls:
            place = event.site.file, event.site.line
            self.certain[place] = event.certain or self.certain.get(place, False)

    def of_value(self, origin: Origin | None, data: Any) -> dict[str, float]:
        """Whether a value flows into the training loop, as what that counts up to."""
        return (
            {BLOCK_ENDS: 1.0}
            if origin is not None and _value_key(origin, data) in self.ends
            else {}
        )

    def facts(self, file: str, line: int, text: Sequence[str]) -> dict[str, float]:
        """The facts about a 1-based line of a Python file, whose lines are `text`."""
        headers = enclosing_blocks(text, line)
        function = next((_block_name(rest) for kind, rest in headers if kind == "def"), "")
        conditions = [rest for kind, rest in headers if kind in _BRANCHES]
        own = file == self.entry
        values = (
            (file, function) in self.loops,
            own,
            own and (not function or _ENTRY.fullmatch(function) is not None),
            any("__main__" not in condition for condition in conditions),
            not self.certain.get((file, line), True),
        )
        return {fact: 1.0 for fact, holds in zip(SURROUNDING_FACTS, values, strict=True) if holds}


def _value_key(origin: Origin, data: Any) -> tuple[object, ...]:
    """What a value is known by wherever it goes."""
    return origin.source, origin.file, origin.line, origin.text, str(data)


def enclosing_blocks(text: Sequence[str], line: int) -> list[tuple[str, str]]:
    """The headers of the blocks that a 1-based line stands in, innermost first: kind and rest."""
    if not 0 < line <= len(text):
        return []
    headers = []
    least = _indent(text[line - 1])
    for number in range(line - 2, -1, -1):
        if not least:
            break
        stripped = text[number].strip()
        indent = _indent(text[number])
        if not stripped or stripped[0] in "#)]}'\"" or indent >= least:
            continue
        least = indent
        header = _HEADER.match(stripped)
        if header is not None:
            headers.append((header[2], header[3]))
    return headers


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _block_name(rest: str) -> str:
    name = re.match(r"\s*(\w+)", rest)
    return name[1] if name is not None else ""
