"""How sure an answer is: a fitted probability that it is right, and the cautious number made of it.

Each mandatory field, and each other one of which enough answers are known, has a logistic model
over the facts about its answer, and the rest have one together: their weights are in `weights/`.
`benchmarks/fit_fields.py` fits them on answers that extraction gave about repositories it had not
been worked on with. `scale.yaml` maps the probability to the confidence: answers count as sure,
0.75 and more, from the probability on above which few of the wrong ones were found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from schedmate.agent.fields import optimizers
from schedmate.agent.fields.batches import COMPUTED
from schedmate.agent.fields.candidates import Candidate, rules
from schedmate.agent.fields.facts import (
    BATCH,
    FIELDS,
    GLOBAL,
    MODEL,
    OWN_TABLES,
    PER_DEVICE,
    TASK,
    TRAIN,
    Scene,
    Weighed,
    facts,
)
from schedmate.agent.fields.proofs import Lines
from schedmate.agent.fields.surroundings import Surroundings
from schedmate.agent.fields.words import is_known
from schedmate.agent.interp.trace import Trace
from schedmate.agent.launch.plan import LaunchPlan

POOLED = "further"
"""The table of all fields that have none of their own."""
_LEAST, _MOST = 0.05, 0.99
"""Bounds of the prior as a probability."""
_WORD, _WORDS, _FILES = 200, 200, 20
"""Most characters of a word, words of a command and configuration files that are looked at."""
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
def fitted() -> dict[str, Weights]:
    """The fitted models, by field."""
    found = {}
    for field in (*FIELDS, *OWN_TABLES, POOLED):
        table: dict[str, Any] = rules(f"weights/{field.rpartition('.')[2]}")
        found[field] = Weights(table["intercept"], table["prior"], table["facts"])
    return found


@cache
def _points() -> Sequence[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in rules("weights/scale")["points"]]


def cautious(probability: float, points: Sequence[tuple[float, float]] | None = None) -> float:
    """The confidence that a probability is reported as: linear between the points of the scale."""
    before, *rest = _points() if points is None else points
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
    by_field = fitted() if models is None else models
    sure: dict[str, float] = {}
    for name, answer in answers.items():
        found = facts(name, answer, considered.get(name, ()), scene)
        model = by_field.get(name) or by_field[POOLED]
        sure[name] = cautious(model.probability(answer.score, found), points)
    for name in (PER_DEVICE, GLOBAL):
        if name in answers and answers[name].rule == COMPUTED and BATCH in sure:
            sure[name] = min(sure[name], sure[BATCH])
    source = {"model": MODEL, "dataset": TRAIN}.get(answers[TASK].rule) if TASK in answers else None
    if source in sure and sure[source] < _DOUBTED:
        sure[TASK] = min(sure[TASK], sure[source])
    return sure


def scene(trace: Trace, plan: LaunchPlan, lines: Lines) -> Scene:
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
        optimizer=any(optimizers.makes_optimizer(event) for event in trace.calls),
        backward=any(loop.has_backward for loop in trace.loops),
        complete=trace.complete,
        known=is_known,
        around=around,
        files=sorted({group.name for group in trace.settings if group.kind == "config"})[:_FILES],
    )


def judge(answers: Mapping[str, Candidate], scene: Scene) -> dict[str, Candidate]:
    """The answers, by field, each with how sure it is."""
    scene.answers = answers
    considered = {name: answer.considered for name, answer in answers.items()}
    sure = confidences(answers, considered, scene)
    for name, answer in answers.items():
        if answer.doubted:
            sure[name] = min(sure[name], answer.score / 100)
    return {name: replace(answers[name], sure=round(sure[name], 3)) for name in answers}
