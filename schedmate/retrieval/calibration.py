"""The cosine similarity from which two jobs are "the same work" with an embedder, measured.

`labelled.yaml` names workloads, other spellings and other names of the same work, and the most
similar workloads that are other work. The run time of a wrong workload is worse than none, since a
scheduler has a fallback; so the threshold is the lowest that accepts 1 % of those near misses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schedmate.data import load
from schedmate.jobs import WorkloadMetadata
from schedmate.retrieval.render import render

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder

Job = tuple[str, str, str]
"""Task, model and dataset."""

ALLOWED = 0.01
"""Accepted share of near misses of either kind, another model or another dataset."""


@dataclass(frozen=True, slots=True)
class Query:
    """A new job's name for its work, the past job that is the same work, and near misses."""

    kind: str
    asked: Job
    right: Job
    wrong: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A threshold, and the share of pairs [0 to 1] that it accepts.

    It is chosen on every second query of the labelled set; the shares are those of the others.
    """

    threshold: float
    same_spelt_otherwise: float
    same_named_otherwise: float
    other_model: float
    other_dataset: float


def labelled() -> list[Query]:
    """The labelled set."""
    return [
        Query(
            kind,
            (task, *asked),
            (task, *right),
            (
                *((task, model, right[1]) for model in models),
                *((task, right[0], data) for data in datasets),
            ),
        )
        for kind, task, asked, right, models, datasets in load("retrieval/labelled.yaml")
    ]


def calibrate(embedder: Embedder, threshold: float | None = None) -> Calibration:
    """The threshold that this embedder needs, or what a given one accepts.

    Embeds about a thousand short texts. Raises what the embedder raises.
    """
    # the right job of a variant is only the nearest one, not the same work
    queries = [query for query in labelled() if query.kind != "variant"]
    jobs = {job for query in queries for job in (query.asked, query.right, *query.wrong)}
    texts = {job: _text(job) for job in sorted(jobs)}
    distinct = sorted(set(texts.values()))
    by_text = dict(zip(distinct, embedder.embed(distinct), strict=True))
    vectors = {job: by_text[text] for job, text in texts.items()}
    if threshold is None:
        misses = _similarities(queries[::2], vectors)
        threshold = max(_letting_through(misses["model"]), _letting_through(misses["dataset"]))
    passed = {
        kind: sum(value >= threshold for value in values) / len(values)
        for kind, values in _similarities(queries[1::2], vectors).items()
    }
    return Calibration(
        threshold, passed["spelling"], passed["alias"], passed["model"], passed["dataset"]
    )


def _similarities(
    queries: Sequence[Query], vectors: dict[Job, NDArray[float32]]
) -> dict[str, list[float]]:
    """Cosine similarities by kind of pair."""
    found: dict[str, list[float]] = {"spelling": [], "alias": [], "model": [], "dataset": []}
    for query in queries:
        asked, right = vectors[query.asked], vectors[query.right]
        found[query.kind].append(float(asked @ right))
        for miss in query.wrong:
            differs = "model" if miss[1] != query.right[1] else "dataset"
            found[differs] += [float(asked @ vectors[miss]), float(right @ vectors[miss])]
    return found


def _letting_through(values: Sequence[float]) -> float:
    """The least threshold, in thousandths, at or above which at most `ALLOWED` of these lie."""
    over = sorted(values, reverse=True)[int(ALLOWED * len(values))]
    # rounding may put equal texts a little below 1, and they are always the same work
    return min((math.floor(1000 * over) + 1) / 1000, 0.999)


def _text(job: Job) -> str:
    task, model, data = job
    return render(
        WorkloadMetadata.model_validate(
            {
                "model_config": {"model_name": model, "task_type": task},
                "dataset_config": {"train": data, "valid": data},
            }
        )
    )
