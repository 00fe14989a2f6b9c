"""Fits how sure extraction is of its answers, and measures it on folds by repository.

    python benchmarks/fit_fields.py collect --repos DIR --answers DIR
    python benchmarks/fit_fields.py fit --answers DIR
    python benchmarks/fit_fields.py picture

What extraction says today about the development jobs is right far too often to learn doubt from:
every one of their repositories was looked at while it was written. So `collect` runs, for each job,
a version of the code from before anybody had looked at that repository (`labels/first_sight.yaml`),
and `fit` learns from those answers. The labels are today's: some accept forms that were added after
the first reading, which flatters every row alike.

A field's weights are those of a regularised logistic model over the facts of
`fields/confidence.py` (`_fitting.py`). Which candidate is the answer is tried with pairwise models
besides, and recorded. `picture` draws how often each confidence was right, as `fit` recorded it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from _fields import RANKED, Answer, read
from _figure import save
from _fitting import FOLDS, SEED, Models, choices, fit, folds, out_of_fold, rows_of
from _record import RESULTS, record, recorded
from _tried import TRIED

from schedmate.agent.fields.confidence import (
    BLOCK_ENDS,
    FIELDS,
    OWN_TABLES,
    POOLED,
    SURROUNDING_FACTS,
    cautious_confidence,
)
from schedmate.jobs.metadata import SURE
from schedmate.report.charts import Axis, Series

HERE = Path(__file__).parent
WEIGHTS = HERE.parent / "schedmate/agent/fields/weights"
LABELS = HERE / "labels"
FEW_WRONG = 0.05
"""Share of the wrong answers that may count as sure."""
LIKELY = 0.7
"""Confidence is the probability up to here, and `SURE` where few wrong answers lie above."""
FEW = 10
"""A tenth of fewer answers is not drawn."""


def first_sight() -> dict[str, dict[str, Any]]:
    """Labelled jobs, by id, with `base`, the code that had not seen them, and their `fields`."""
    bases = yaml.safe_load((LABELS / "first_sight.yaml").read_text())
    log = _git("log", "--reverse", "--format=%h", "--abbrev=8", "--", "labels/dev.jsonl").split()
    added: dict[tuple[str, str], str] = {}
    for commit in log:
        for line in _git("show", f"{commit}:./labels/dev.jsonl").splitlines():
            job = json.loads(line)
            for name in {**job["expected"], **job.get("also", {})}:
                added.setdefault((job["id"], name), commit)
    found = {}
    for line in (LABELS / "dev.jsonl").read_text().splitlines():
        job = json.loads(line)
        labels = job["expected"] | job.get("also", {})
        commits = {added[job["id"], name] for name in labels}
        if len(commits) == 1 and (base := bases.get(commits.pop())):
            found[job["id"]] = job | {"base": base, "labels": labels}
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


# -- the scale ---------------------------------------------------------------


def scale(shares: np.ndarray, right: np.ndarray) -> list[list[float]]:
    """Points of the map from probability to confidence: sure where few wrong answers lie."""
    wrong = np.sort(shares[~right])[::-1]
    allowed = int(FEW_WRONG * len(wrong))
    cut = float(wrong[allowed]) if allowed < len(wrong) else SURE
    cut = round(min(0.995, max(SURE, cut + 0.0005)), 3)
    return [[0.0, 0.0], [LIKELY, LIKELY], [cut, SURE], [1.0, 1.0]]


def scaled(answers: Sequence[Answer], shares: np.ndarray) -> np.ndarray:
    """Confidences whose scale was set without the fold that it is used on."""
    of = folds(answers)
    right = np.array([a.right for a in answers])
    out = np.zeros(len(answers))
    for fold in range(FOLDS):
        points = [(x, y) for x, y in scale(shares[of != fold], right[of != fold])]
        for place in np.flatnonzero(of == fold):
            out[place] = cautious_confidence(float(shares[place]), points)
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
    clipped = _clipped(shares)
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
        "0.75 and more": int(sure.sum()),
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


def picture() -> None:
    """Draw the recorded share of right answers by confidence, tenth by tenth."""
    rows = recorded("extraction_confidence")["rows"]
    curves = [Series("as sure as right", 7, np.array([0.0, 1.0]), np.array([0.0, 1.0]))]
    for style, kind in enumerate(("confidence", "probability")):
        drawn = [row for row in rows if row[f"{kind}: answers"] >= FEW]
        x = np.array([row["from"] + 0.05 for row in drawn])
        y = np.array([row[f"{kind}: share"] for row in drawn])
        count = sum(row[f"{kind}: answers"] for row in drawn)
        name = f"{kind}: {count} answers, tenths with at least {FEW}"
        curves.append(Series(name, style, x, y))
    ticks = (0.0, 0.25, 0.5, SURE, 1.0)
    axes = (
        Axis("how sure, on folds by repository", 0.0, 1.0, ticks, "share"),
        Axis("share that is right", 0.0, 1.0, ticks, "share"),
    )
    save(RESULTS / "extraction_confidence.svg", "How often a confidence is right", curves, axes)


def _ranked(answers: Sequence[Answer]) -> dict[str, Any]:
    """How many are right where pairwise models choose among the candidates."""
    asked = [answer for answer in answers if answer.field in RANKED and answer.others]
    some = [a.right or any(right for *_, right in a.others) for a in asked]
    right = [answer.right for answer in asked]
    fitted = choices(asked, _used)
    return {
        "answers": len(asked),
        "right candidate at hand": sum(some),
        "right by the prior": sum(right),
        "right by the fit": sum(fitted),
        "mended by the fit": sum(f and not r for f, r in zip(fitted, right, strict=True)),
        "lost by the fit": sum(r and not f for f, r in zip(fitted, right, strict=True)),
        "by the fit without surroundings": sum(choices(asked, lambda f: f not in ALL)),
        "by the fit without the prior": sum(choices(asked, _used, prior=False)),
    }


SURROUNDINGS = (BLOCK_ENDS, *SURROUNDING_FACTS)
ALL = frozenset({*SURROUNDINGS, *TRIED})


def _used(fact: str) -> bool:
    """Whether a fact is one that extraction computes, and not only tried here."""
    return fact not in TRIED


def _ablations(answers: Sequence[Answer], right: np.ndarray) -> list[dict[str, Any]]:
    """The log loss on folds with fewer facts, and with those that were tried."""

    def row(name: str, keep: Callable[[str], bool]) -> dict[str, Any]:
        shares = out_of_fold(answers, keep)
        loss = np.where(right, np.log(_clipped(shares)), np.log(1 - _clipped(shares)))
        main = np.array([answer.field in FIELDS for answer in answers])
        return {
            "facts": name,
            "answers with it": sum(name.removeprefix("and: ").removeprefix("without: ") in a.facts
                                   for a in answers) or "",
            "log loss": round(float(-loss.mean()), 4),
            "mandatory fields": round(float(-loss[main].mean()), 4),
            "further fields": round(float(-loss[~main].mean()), 4),
        }  # fmt: skip

    kept: dict[str, Callable[[str], bool]] = {
        "all that are used": _used,
        "the prior alone": lambda fact: False,
        "without the rules": lambda f: _used(f) and not f.startswith("rule: "),
        "without the places": lambda f: _used(f) and not f.startswith("from: "),
        "without all surroundings": lambda f: f not in ALL,
    }
    kept |= {f"without: {one}": lambda f, one=one: _used(f) and f != one for one in SURROUNDINGS}
    kept |= {f"and: {one}": lambda f, one=one: _used(f) or f == one for one in TRIED}
    return [row(name, keep) for name, keep in kept.items()]


def _clipped(shares: np.ndarray) -> np.ndarray:
    return np.clip(shares, 0.01, 0.99)


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


_OF_ONE = "# Log-odds that an answer is right. Fitted by benchmarks/fit_fields.py.\n"
_OF_MANY = """\
# Log-odds that an answer is right, for every field that has no table of its own: one model of the
# answers to all fields beside the mandatory ones, as too few of each are labelled. `labelled` says
# how many answers there were to which. Fitted by benchmarks/fit_fields.py.
"""


def write(models: Models, points: list[list[float]], answers: Sequence[Answer]) -> None:
    """The fitted tables, each with how it did on folds."""
    shares = out_of_fold(answers, _used)
    for field, model in models.items():
        one = field != POOLED
        of = [place for place, answer in enumerate(answers)
              if answer.field == field or (not one and answer.field not in FIELDS)]  # fmt: skip
        right = np.array([answers[place].right for place in of])
        wrong = Counter(answers[place].field for place in of if not answers[place].right)
        table: dict[str, Any] = {
            "folds": {
                "answers": len(of),
                "right": int(right.sum()),
                "mean probability": round(float(shares[of].mean()), 3),
                "calibration error": round(_error(shares[of], right), 3),
            }
        }
        if not one:
            counts = Counter(answers[place].field for place in of)
            table["labelled"] = {
                name.rpartition(".")[2]: f"{count}, {wrong[name]} wrong"
                for name, count in sorted(counts.items())
            }
        table |= {"intercept": model.intercept, "prior": model.prior, "facts": dict(model.facts)}
        text = yaml.safe_dump(table, sort_keys=False, allow_unicode=True)
        head = _OF_ONE if one else _OF_MANY
        (WEIGHTS / f"{field.rpartition('.')[2]}.yaml").write_text(head + text)
    head = "# Probability to confidence, linear between the points. By benchmarks/fit_fields.py.\n"
    (WEIGHTS / "scale.yaml").write_text(head + yaml.safe_dump({"points": points}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("collect", "fit", "picture"))
    parser.add_argument("--repos", type=Path, help="folder of checkouts named OWNER+NAME")
    parser.add_argument("--answers", type=Path, help="folder of what collect wrote")
    options = parser.parse_args()
    if options.what == "picture":
        picture()
        return
    if options.answers is None:
        parser.error("name the folder of the answers with --answers")
    if options.what == "collect":
        collect(options.repos, options.answers)
        return
    every = read(options.answers, first_sight())
    answers = [answer for answer in every if answer.data is not None]
    right = np.array([answer.right for answer in answers])
    shares = out_of_fold(answers, _used)
    hand = np.array([answer.hand for answer in answers])
    sure = scaled(answers, shares)
    models = fit(rows_of(answers), _used)
    if own := {name for name in models if name not in (*FIELDS, POOLED)} ^ {*OWN_TABLES}:
        parser.error(
            f"confidence.py's OWN_TABLES and the answers differ about {', '.join(sorted(own))}"
        )
    write(models, scale(shares, right), answers)
    kinds = {"by hand": hand, "probability": shares, "confidence": sure}
    main = np.array([answer.field in FIELDS for answer in answers])
    groups = {"": np.full(len(main), True), " (mandatory)": main, " (further)": ~main}
    record(
        "extraction_confidence",
        _curve(kinds, right),
        labels="dev.jsonl, each job read by code from before its repository was looked at",
        jobs=len({answer.job for answer in every}),
        repositories=len({answer.repo for answer in every}),
        fields=f"{len(every)}, {sum(answer.right for answer in every)} of them right",
        folds=f"{FOLDS} by repository, seed {SEED}",
        **{
            name + group: _words(_measures(values[of], right[of]))
            for name, values in kinds.items()
            for group, of in groups.items()
        },
        ranking=_words(_ranked(answers)),
    )
    of = "as in extraction_confidence"
    record("extraction_rules", _by_rule(answers, shares), answers=of)
    picture()
    about = "log loss on folds of the same answers, so the choice of facts is seen by it"
    record("extraction_facts", _ablations(answers, right), answers=of, what=about)


def _words(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


if __name__ == "__main__":
    main()
