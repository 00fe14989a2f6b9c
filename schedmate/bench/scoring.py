"""Answers beside labels: counts by field, and how sure their shares are.

Jobs of one repository share code and are right or wrong together, so intervals are clustered by
repository: Wilson's interval for the effective sample size, which is the number of answers over
the design effect (Dean and Pagano, J. Survey Stat. Methodol. 3, 2015), the variance of the
share between repositories over that of as many independent answers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NotRequired

from typing_extensions import TypedDict

from schedmate.bench.documents import Label, LogLabel
from schedmate.bench.verdicts import FieldRow, by_field, verdict

SCORE = "schedmate.bench-score/v1"
Z = 1.96


class ScoreRow(FieldRow):
    """A field's counts, with the 95 % interval of the accuracy, clustered by repository."""

    low: float | None
    high: float | None


class Case(TypedDict):
    """One answer and its verdict; `expected` are the accepted forms."""

    id: str
    field: str
    verdict: str
    got: Any
    expected: Any


class BenchScore(TypedDict):
    """Output of `schedmate bench score --json`.

    `jobs` (or logs) and `repositories` are those counted, `unanswered` the labelled jobs that the
    file has no line for: they count as answered with null, unless `answered_only`. `fields` are the
    six mandatory fields of jobs or the four of logs, `further` those that some jobs have labels
    for. With `--cases`, `cases` are the answers that are not right.
    """

    labels: str
    answers: str
    answered_only: bool
    jobs: int
    repositories: int
    unanswered: int
    fields: list[ScoreRow]
    further: list[ScoreRow]
    cases: NotRequired[list[Case]]


def judge(
    labels: Iterable[Label | LogLabel], answers: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, Case]]:
    """The repository of each labelled field of each job or log, and the verdict on its answer."""
    judged = []
    for label in labels:
        given = answers.get(label.id, {})
        for field, accepted in (label.expected | label.also).items():
            got = given.get(field)
            outcome = verdict(got, accepted)
            case = Case(id=label.id, field=field, verdict=outcome, got=got, expected=accepted)
            judged.append((label.repo, case))
    return judged


def table(judged: Iterable[tuple[str, Case]], fields: Iterable[str]) -> list[ScoreRow]:
    """A row for each of the fields that has labels, and one for all of them, if any has."""
    wanted = list(fields)
    verdicts: dict[str, list[tuple[str, str]]] = {name: [] for name in wanted}
    for repo, case in judged:
        if case["field"] in verdicts:
            verdicts[case["field"]].append((repo, case["verdict"]))
    verdicts = {name: found for name, found in verdicts.items() if found}
    if not verdicts:
        return []
    rows = by_field({name: Counter(v for _, v in found) for name, found in verdicts.items()})
    verdicts["all"] = [one for found in verdicts.values() for one in found]
    scored = []
    for row in rows:
        low, high = interval((repo, v == "right") for repo, v in verdicts[row["field"]])
        scored.append(ScoreRow(**row, low=low, high=high))
    return scored


def interval(outcomes: Iterable[tuple[str, bool]]) -> tuple[float | None, float | None]:
    """The 95 % interval of a share from (cluster, success) pairs; (None, None) of nothing."""
    clusters: dict[str, list[bool]] = defaultdict(list)
    for cluster, success in outcomes:
        clusters[cluster].append(success)
    total = sum(map(len, clusters.values()))
    if not total:
        return None, None
    share = sum(map(sum, clusters.values())) / total
    if 0 < share < 1:
        between = sum((sum(each) - share * len(each)) ** 2 for each in clusters.values())
        effective = total / max(1.0, between / (share * (1 - share) * total))
    else:  # no variance to see: as if each repository were one answer
        effective = len(clusters)
    middle = (share + Z * Z / (2 * effective)) / (1 + Z * Z / effective)
    spread = math.sqrt(share * (1 - share) / effective + (Z / effective / 2) ** 2)
    half = Z / (1 + Z * Z / effective) * spread
    return round(max(0.0, middle - half), 3), round(min(1.0, middle + half), 3)


def score(
    labels: Mapping[str, Label | LogLabel],
    answers: Mapping[str, Mapping[str, Any]],
    *,
    names: tuple[str, str],
    answered_only: bool = False,
    cases: bool = False,
) -> BenchScore:
    """Score answers against labels; `names` are what the two files are called."""
    counted = [one for one in labels.values() if one.id in answers or not answered_only]
    judged = judge(counted, answers)
    first = next(iter(labels.values()))
    made = BenchScore(
        labels=names[0],
        answers=names[1],
        answered_only=answered_only,
        jobs=len(counted),
        repositories=len({one.repo for one in counted}),
        unanswered=len(labels) - len(answers),
        fields=table(judged, first.fields),
        further=table(judged, first.further),
    )
    if cases:
        made["cases"] = [case for _, case in judged if case["verdict"] != "right"]
    return made
