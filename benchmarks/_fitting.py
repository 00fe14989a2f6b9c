"""Logistic models of answers and of choices between candidates, for `fit_fields.py`.

A field's weights are drawn towards the ones of its group of fields together, and these towards the
prior that was set by hand.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from _fields import Answer

from schedmate.agent.fields.confidence import FIELDS, POOLED, Weights, log_odds

SEED, FOLDS = 20261122, 10
COMMON, OWN = 10.0, 10.0
"""How strongly weights are drawn to the prior by hand, and a field's to those of its group."""
RARE = 4
"""Facts of fewer answers get no weight."""
ENOUGH = 120
"""A field beside the mandatory ones with fewer answers has the pooled table of these fields."""
Models = dict[str, Weights]
Row = tuple[str, float, dict[str, float], bool]
"""Field, prior, facts and whether it is right."""
Keep = Callable[[str], bool]


def every_fact(_: str) -> bool:
    """Keep all facts."""
    return True


def _matrix(rows: Sequence[tuple[float, dict[str, float]]], names: list[str]) -> np.ndarray:
    """A row an answer: 1, the prior's log-odds, and the facts."""
    columns = {name: place for place, name in enumerate(names, 2)}
    out = np.zeros((len(rows), len(names) + 2))
    for line, (prior, found) in zip(out, rows, strict=True):
        line[0], line[1] = 1.0, log_odds(prior)
        for name, value in found.items():
            if name in columns:
                line[columns[name]] = value
    return out


def _logistic(
    x: np.ndarray,
    y: np.ndarray,
    towards: np.ndarray,
    pull: np.ndarray,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """Weights of most posterior probability, by Newton's method; `counts` weighs the rows."""
    weights = towards.copy()
    each = np.ones(len(y)) if counts is None else counts
    for _ in range(100):
        share = 1 / (1 + np.exp(-np.clip(x @ weights, -50, 50)))
        slope = x.T @ (each * (y - share)) - pull * (weights - towards)
        bend = (x.T * (each * share * (1 - share))) @ x + np.diag(pull)
        step = np.linalg.solve(bend, slope)
        weights = weights + step
        if np.abs(step).max() < 1e-5:
            break
    return weights


def _pulls(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the weights of a group begin, and the pulls on a group's and on a field's."""
    start, pull, own = np.zeros(size), np.full(size, COMMON), np.full(size, OWN)
    start[1] = 1.0
    pull[0], own[0] = 0.01, OWN / 4
    return start, pull, own


def fit(rows: Sequence[Row], keep: Keep = every_fact) -> Models:
    """Models by field; those of the mandatory fields share nothing with the ones beside them."""
    mandatory = [row for row in rows if row[0] in FIELDS]
    models = _fit_group(mandatory, list(FIELDS), keep)[0]
    further = [row for row in rows if row[0] not in FIELDS]
    if further:
        counts = Counter(row[0] for row in further)
        own = [field for field, count in counts.items() if count >= ENOUGH]
        found, pooled = _fit_group(further, own, keep)
        models |= {**found, POOLED: pooled}
    return models


def _fit_group(rows: Sequence[Row], own: list[str], keep: Keep) -> tuple[Models, Weights]:
    """The models of the fields `own`, and the one of all the group's fields together."""
    counts = Counter(fact for _, _, found, _ in rows for fact in found)
    names = sorted(fact for fact, count in counts.items() if count >= RARE and keep(fact))
    x = _matrix([(prior, found) for _, prior, found, _ in rows], names)
    y = np.array([float(right) for *_, right in rows])
    start, pull, of_field = _pulls(len(names) + 2)
    common = _logistic(x, y, start, pull)
    models = {}
    for field in own:
        of = [place for place, row in enumerate(rows) if row[0] == field]
        found = _logistic(x[of], y[of], common, of_field) if of else common
        seen = {fact for place in of for fact in rows[place][2]}
        models[field] = _weights(found, names, seen)
    return models, _weights(common, names, set(names))


def _weights(found: np.ndarray, names: list[str], seen: set[str]) -> Weights:
    table = {n: round(float(w), 2) for n, w in zip(names, found[2:], strict=True) if n in seen}
    facts = {n: w for n, w in sorted(table.items()) if w}
    return Weights(round(float(found[0]), 2), round(float(found[1]), 2), facts)


def rows_of(answers: Sequence[Answer]) -> list[Row]:
    """What `fit` learns from."""
    return [(a.field, a.prior, a.facts, a.right) for a in answers]


def folds(answers: Sequence[Answer]) -> np.ndarray:
    """The fold of each answer: that of its repository."""
    repos = sorted({answer.repo for answer in answers})
    random.Random(SEED).shuffle(repos)
    place = {repo: number % FOLDS for number, repo in enumerate(repos)}
    return np.array([place[answer.repo] for answer in answers])


def out_of_fold(answers: Sequence[Answer], keep: Keep = every_fact) -> np.ndarray:
    """The probability of each answer by models that were fitted without its repository."""
    of = folds(answers)
    found = np.zeros(len(answers))
    for fold in range(FOLDS):
        models = fit(rows_of([a for a, f in zip(answers, of, strict=True) if f != fold]), keep)
        for place in np.flatnonzero(of == fold):
            answer = answers[place]
            model = models.get(answer.field) or models[POOLED]
            found[place] = model.probability(answer.prior, answer.facts)
    return found


# -- choices ---------------------------------------------------------------


def _options(answer: Answer) -> list[tuple[float, dict[str, float], bool]]:
    """The answer and the candidates beside it: prior, facts, whether right."""
    mine = (answer.prior, answer.facts, answer.right)
    return [mine, *((other.score, found, right) for other, found, right in answer.others)]


def _pairs(answers: Sequence[Answer], names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Differences of each right candidate and each wrong one of an answer; answers weigh alike."""
    lines, counts = [], []
    for answer in answers:
        options = _options(answer)
        x = _matrix([(prior, found) for prior, found, _ in options], names)
        good = [line for line, (*_, right) in zip(x, options, strict=True) if right]
        bad = [line for line, (*_, right) in zip(x, options, strict=True) if not right]
        lines += [one - other for one in good for other in bad]
        pairs = len(good) * len(bad)
        counts += [1 / pairs] * pairs if pairs else []
    return np.array(lines).reshape(len(lines), len(names) + 2), np.array(counts)


OF_PRIOR = frozenset({"lead", "weakest prior", "model's prior", "training set's prior"})
"""Facts that are made of the prior."""


def choices(answers: Sequence[Answer], keep: Keep, prior: bool = True) -> list[bool]:
    """Whether the candidate is right that pairwise models choose, fitted without its repository.

    Without `prior` they are not told of it.
    """
    of = folds(answers)
    chosen = [answer.right for answer in answers]
    for fold in range(FOLDS):
        learned = [a for a, f in zip(answers, of, strict=True) if f != fold]
        seen = Counter(fact for a in learned for _, found, _ in _options(a) for fact in found)
        names = sorted(fact for fact, count in seen.items() if count >= RARE and keep(fact))
        names = [name for name in names if prior or name not in OF_PRIOR]
        start, pull, of_field = _pulls(len(names) + 2)
        if not prior:
            start[1], pull[1], of_field[1] = 0.0, 1e9, 1e9
        x, counts = _pairs(learned, names)
        common = _logistic(x, np.ones(len(x)), start, pull, counts)
        for field in {answer.field for answer in answers}:
            x, counts = _pairs([a for a in learned if a.field == field], names)
            own = _logistic(x, np.ones(len(x)), common, of_field, counts) if len(x) else common
            for place in np.flatnonzero(of == fold):
                if answers[place].field == field:
                    options = _options(answers[place])
                    values = _matrix([(p, found) for p, found, _ in options], names) @ own
                    chosen[place] = options[int(np.argmax(values))][2]
    return chosen
