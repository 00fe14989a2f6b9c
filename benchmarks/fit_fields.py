"""Fits how sure extraction is of its answers, and measures it on folds by repository.

    python benchmarks/fit_fields.py collect --repos DIR --answers DIR
    python benchmarks/fit_fields.py fit --answers DIR

What extraction says today about the development jobs is right far too often to learn doubt from:
every one of their repositories was looked at while it was written. So `collect` runs, for each job,
a version of the code from before anybody had looked at that repository (`labels/first_sight.yaml`),
and `fit` learns from those answers. The labels are today's: some accept forms that were added after
the first reading, which flatters every row alike.

A field's weights are those of a regularised logistic model over the facts of `fields/facts.py`,
drawn towards the ones of all fields together, and these towards the prior that was set by hand.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from _fields import Answer, read
from _record import record

from schedmate.agent.fields.confidence import Weights, cautious
from schedmate.agent.fields.facts import FIELDS

HERE = Path(__file__).parent
WEIGHTS = HERE.parent / "schedmate/agent/fields/weights"
LABELS = HERE / "labels"
SEED, FOLDS = 20261122, 10
COMMON, OWN = 10.0, 10.0
"""How strongly weights are drawn to the prior by hand, and a field's to those of all fields."""
RARE = 4
"""Facts of fewer answers get no weight."""
FEW_WRONG = 0.05
"""Share of the wrong answers that may count as sure."""
LIKELY, SURE = 0.7, 0.75
"""Confidence is the probability up to the one; the other is where few wrong answers lie above."""
Models = dict[str, Weights]


def first_sight() -> dict[str, dict[str, Any]]:
    """Labelled jobs, by id, with `base`, the code that had not seen them, and their `fields`."""
    bases = yaml.safe_load((LABELS / "first_sight.yaml").read_text())
    log = _git("log", "--reverse", "--format=%h", "--abbrev=8", "--", "labels/dev.jsonl").split()
    added: dict[tuple[str, str], str] = {}
    for commit in log:
        for line in _git("show", f"{commit}:./labels/dev.jsonl").splitlines():
            job = json.loads(line)
            for name in job["expected"]:
                added.setdefault((job["id"], name), commit)
    found = {}
    for line in (LABELS / "dev.jsonl").read_text().splitlines():
        job = json.loads(line)
        commits = {added[job["id"], name] for name in job["expected"]}
        if len(commits) == 1 and (base := bases.get(commits.pop())):
            found[job["id"]] = job | {"base": base, "fields": list(job["expected"])}
    return found


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True)
    return done.stdout


def collect(repos: Path, answers: Path) -> None:
    """Run each version on the jobs it had not seen, whose repositories are at hand."""
    jobs = [
        job for job in first_sight().values() if (repos / job["repo"].replace("/", "+")).is_dir()
    ]
    answers.mkdir(parents=True, exist_ok=True)
    for base in sorted({job["base"] for job in jobs}):
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(
                ["git", "archive", base, "schedmate"],
                cwd=HERE.parent,
                stdout=subprocess.PIPE,
                check=True,
            )
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            listed = Path(folder, "jobs.jsonl")
            listed.write_text("".join(json.dumps(j) + "\n" for j in jobs if j["base"] == base))
            where = [folder, str(listed), str(repos), str(answers / f"{base}.jsonl")]
            subprocess.run([sys.executable, "-P", str(HERE / "_answers.py"), *where], check=True)
            print(base, "done")


# -- fitting ---------------------------------------------------------------


def _logit(prior: float) -> float:
    share = min(0.99, max(0.05, prior / 100))
    return float(np.log(share / (1 - share)))


def _matrix(rows: Sequence[tuple[float, dict[str, float]]], names: list[str]) -> np.ndarray:
    """A row an answer: 1, the prior's log-odds, and the facts."""
    columns = {name: place for place, name in enumerate(names, 2)}
    out = np.zeros((len(rows), len(names) + 2))
    for line, (prior, found) in zip(out, rows, strict=True):
        line[0], line[1] = 1.0, _logit(prior)
        for name, value in found.items():
            if name in columns:
                line[columns[name]] = value
    return out


def _logistic(x: np.ndarray, y: np.ndarray, towards: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """Weights of most posterior probability, by Newton's method."""
    weights = towards.copy()
    for _ in range(100):
        share = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (y - share) - pull * (weights - towards)
        bend = (x.T * (share * (1 - share))) @ x + np.diag(pull)
        step = np.linalg.solve(bend, slope)
        weights = weights + step
        if np.abs(step).max() < 1e-8:
            break
    return weights


def fit(
    rows: Sequence[tuple[str, float, dict[str, float], bool]],
    keep: Callable[[str], bool] = lambda fact: True,
) -> Models:
    """Models by field of rows of field, prior, facts and whether it is right."""
    counts = Counter(fact for _, _, found, _ in rows for fact in found)
    names = sorted(fact for fact, count in counts.items() if count >= RARE and keep(fact))
    x = _matrix([(prior, found) for _, prior, found, _ in rows], names)
    y = np.array([float(right) for *_, right in rows])
    start = np.zeros(len(names) + 2)
    start[1] = 1.0
    pull = np.full(len(start), COMMON)
    pull[0] = 0.01
    common = _logistic(x, y, start, pull)
    models = {}
    for field in FIELDS:
        of = [place for place, row in enumerate(rows) if row[0] == field]
        own = np.full(len(start), OWN)
        own[0] = OWN / 4
        found = _logistic(x[of], y[of], common, own) if of else common
        seen = {fact for place in of for fact in rows[place][2]}
        table = {n: round(float(w), 2) for n, w in zip(names, found[2:], strict=True) if n in seen}
        models[field] = Weights(
            round(float(found[0]), 2),
            round(float(found[1]), 2),
            {n: w for n, w in sorted(table.items()) if w},
        )
    return models


def folds(answers: Sequence[Answer]) -> list[int]:
    """The fold of each answer: that of its repository."""
    repos = sorted({answer.repo for answer in answers})
    random.Random(SEED).shuffle(repos)
    place = {repo: number % FOLDS for number, repo in enumerate(repos)}
    return [place[answer.repo] for answer in answers]


def _rows(answers: Sequence[Answer]) -> list[tuple[str, float, dict[str, float], bool]]:
    return [(a.field, a.prior, a.facts, a.right) for a in answers]


def out_of_fold(
    answers: Sequence[Answer], keep: Callable[[str], bool] = lambda fact: True
) -> np.ndarray:
    """The probability of each answer by models that were fitted without its repository."""
    of = folds(answers)
    found = np.zeros(len(answers))
    for fold in range(FOLDS):
        models = fit(_rows([a for a, f in zip(answers, of, strict=True) if f != fold]), keep)
        for place, answer in enumerate(answers):
            if of[place] == fold:
                found[place] = models[answer.field].probability(answer.prior, answer.facts)
    return found


def scale(shares: np.ndarray, right: np.ndarray) -> list[list[float]]:
    """Points of the map from probability to confidence: sure where few wrong answers lie."""
    wrong = np.sort(shares[~right])[::-1]
    allowed = int(FEW_WRONG * len(wrong))
    cut = float(wrong[allowed]) if allowed < len(wrong) else SURE
    cut = round(min(0.995, max(SURE, cut + 0.0005)), 3)
    return [[0.0, 0.0], [LIKELY, LIKELY], [cut, SURE], [1.0, 1.0]]


def scaled(answers: Sequence[Answer], shares: np.ndarray) -> np.ndarray:
    """Confidences whose scale was set without the fold that it is used on."""
    of = np.array(folds(answers))
    right = np.array([a.right for a in answers])
    out = np.zeros(len(answers))
    for fold in range(FOLDS):
        points = [(x, y) for x, y in scale(shares[of != fold], right[of != fold])]
        for place in np.flatnonzero(of == fold):
            out[place] = cautious(float(shares[place]), points)
    return out


# -- measuring -------------------------------------------------------------


def _error(shares: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error over tenths."""
    tenths = np.minimum((shares * 10).astype(int), 9)
    gaps = [
        abs(right[tenths == t].mean() - shares[tenths == t].mean()) * (tenths == t).sum()
        for t in range(10)
        if (tenths == t).any()
    ]
    return float(sum(gaps) / len(shares))


def _measures(shares: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    clipped = np.clip(shares, 0.01, 0.99)
    loss = -np.where(right, np.log(clipped), np.log(1 - clipped)).mean()
    above, sure = shares > 0.8, shares >= SURE
    good, bad = shares[right], shares[~right]
    order = (good[:, None] > bad).mean() + (good[:, None] == bad).mean() / 2
    return {
        "answers": len(right),
        "right": int(right.sum()),
        "calibration error": round(_error(shares, right), 3),
        "log loss": round(float(loss), 3),
        "right above wrong": round(float(order), 3),
        "above 0.8": int(above.sum()),
        "of them right": round(float(right[above].mean()), 3) if above.any() else "",
        "wrong": int((~right).sum()),
        "of them 0.75 and more": int((~right & sure).sum()),
    }


def _curve(kinds: dict[str, np.ndarray], right: np.ndarray) -> list[dict[str, Any]]:
    """How many answers of each tenth there are, and how many of them are right."""
    rows = []
    for tenth in range(10):
        row: dict[str, Any] = {"from": tenth / 10}
        for name, shares in kinds.items():
            of = np.minimum((shares * 10 + 1e-9).astype(int), 9) == tenth
            row[f"{name}: answers"] = int(of.sum())
            row[f"{name}: right"] = int(right[of].sum())
            row[f"{name}: share"] = round(float(right[of].mean()), 3) if of.any() else ""
        rows.append(row)
    return rows


def _ranked(answers: Sequence[Answer]) -> dict[str, Any]:
    """How many more or fewer are right where the fitted models choose among the candidates."""
    of = folds(answers)
    counts: Counter[str] = Counter(answers=sum(bool(a.others) for a in answers))
    for fold in range(FOLDS):
        rows = [
            (a.field, other.score, found, right)
            for a, f in zip(answers, of, strict=True)
            if f != fold
            for other, found, right in a.others
        ]
        models = fit(rows)
        for answer, f in zip(answers, of, strict=True):
            if f != fold or not answer.others:
                continue
            model = models[answer.field]
            shares = [model.probability(o.score, found) for o, found, _ in answer.others]
            best = int(np.argmax(shares))
            mine = model.probability(answer.prior, answer.facts)
            counts["hand"] += answer.right
            counts["possible"] += answer.right or any(right for *_, right in answer.others)
            counts["fitted"] += answer.others[best][2] if shares[best] > mine else answer.right
    return {
        "answers": counts["answers"],
        "right by the prior": counts["hand"],
        "right by the fit": counts["fitted"],
        "right candidate at hand": counts["possible"],
    }


def _ablations(answers: Sequence[Answer], right: np.ndarray) -> dict[str, float]:
    """The log loss on folds with fewer facts."""
    kept: dict[str, Callable[[str], bool]] = {
        "all facts": lambda fact: True,
        "without the rules": lambda fact: not fact.startswith("rule: "),
        "without the places": lambda fact: not fact.startswith("from: "),
        "rules and places alone": lambda fact: fact.startswith(("rule: ", "from: ")),
        "the prior alone": lambda fact: False,
    }
    return {
        name: _measures(out_of_fold(answers, keep), right)["log loss"]
        for name, keep in kept.items()
    }


def _by_rule(answers: Sequence[Answer], shares: np.ndarray) -> list[dict[str, Any]]:
    """How often what each rule finds is chosen and right, beside how sure that was."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, answer in enumerate(answers):
        groups.setdefault((answer.field, answer.rule), []).append(place)
    return [
        {
            "field": field.partition(".")[2],
            "rule": rule,
            "chosen": len(places),
            "right": sum(answers[p].right for p in places),
            "by hand": round(float(np.mean([answers[p].hand for p in places])), 2),
            "fitted": round(float(shares[places].mean()), 2),
        }
        for (field, rule), places in sorted(groups.items())
    ]


def write(models: Models, points: list[list[float]], answers: Sequence[Answer]) -> None:
    """The fitted tables, each with how it did on folds."""
    shares = out_of_fold(answers)
    WEIGHTS.mkdir(exist_ok=True)
    for field, model in models.items():
        of = [place for place, answer in enumerate(answers) if answer.field == field]
        right = np.array([answers[place].right for place in of])
        table = {
            "folds": {
                "answers": len(of),
                "right": int(right.sum()),
                "mean probability": round(float(shares[of].mean()), 3),
                "calibration error": round(_error(shares[of], right), 3),
            },
            "intercept": model.intercept,
            "prior": model.prior,
            "facts": dict(model.facts),
        }
        head = "# Log-odds that an answer is right. Fitted by benchmarks/fit_fields.py.\n"
        text = yaml.safe_dump(table, sort_keys=False, allow_unicode=True)
        (WEIGHTS / f"{field.partition('.')[2]}.yaml").write_text(head + text)
    head = "# Probability to confidence, linear between the points. By benchmarks/fit_fields.py.\n"
    (WEIGHTS / "scale.yaml").write_text(head + yaml.safe_dump({"points": points}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("collect", "fit"))
    parser.add_argument("--repos", type=Path, help="folder of checkouts named OWNER+NAME")
    parser.add_argument("--answers", type=Path, required=True, help="folder of what collect wrote")
    options = parser.parse_args()
    if options.what == "collect":
        collect(options.repos, options.answers)
        return
    every = read(options.answers, first_sight())
    answers = [answer for answer in every if answer.data is not None]
    right = np.array([answer.right for answer in answers])
    shares = out_of_fold(answers)
    hand = np.array([answer.hand for answer in answers])
    sure = scaled(answers, shares)
    write(fit(_rows(answers)), scale(shares, right), answers)
    kinds = {"by hand": hand, "probability": shares, "confidence": sure}
    record(
        "extraction_confidence",
        _curve(kinds, right),
        labels="dev.jsonl, each job read by code from before its repository was looked at",
        jobs=len({answer.job for answer in every}),
        repositories=len({answer.repo for answer in every}),
        fields=f"{len(every)}, {sum(answer.right for answer in every)} of them right",
        folds=f"{FOLDS} by repository, seed {SEED}",
        **{name: _words(_measures(values, right)) for name, values in kinds.items()},
        ranking=_words(_ranked(answers)),
        **{f"log loss, {name}": loss for name, loss in _ablations(answers, right).items()},
    )
    record("extraction_rules", _by_rule(answers, shares), answers="as in extraction_confidence")


def _words(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


if __name__ == "__main__":
    main()
