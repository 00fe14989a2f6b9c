"""Similarities of pairs of workloads, and the threshold that separates like from unlike."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from schedmate.jobs import WorkloadMetadata
from schedmate.retrieval.embedders import Embedder
from schedmate.retrieval.similarity import render

Pair = tuple[WorkloadMetadata, WorkloadMetadata]

KINDS = ("other training", "other spelling", "other model", "other dataset", "unrelated")
"""What differs in a pair; only the first two may count as similar."""


def similarity_rows(embedder: Embedder, half: str, seed: int = 3) -> list[dict[str, Any]]:
    """Quantiles of cosine similarity by kind of pair, and what the threshold lets through.

    The names are dealt into two halves: the strict threshold is always chosen on the first, so
    the second checks it on names that it has not seen.
    """
    scores = _scores(embedder, half, seed)
    strict = _strict_threshold(_scores(embedder, "first", seed))
    return [
        {
            "pair": kind,
            "pairs": len(values),
            **{
                f"p{level}": round(float(np.quantile(values, level / 100)), 3)
                for level in (1, 10, 50, 90, 99)
            },
            "threshold": embedder.threshold,
            "accepted_pct": round(100 * float((values >= embedder.threshold).mean()), 1),
            "strict_threshold": strict,
            "accepted_at_strict_pct": round(100 * float((values >= strict).mean()), 1),
        }
        for kind, values in scores.items()
    ]


def _scores(embedder: Embedder, half: str, seed: int) -> dict[str, Any]:
    pairs = _pairs(half, random.Random(seed))
    return {kind: _cosines(embedder, pairs[kind]) for kind in KINDS}


def _strict_threshold(scores: dict[str, Any]) -> float:
    """The least threshold that lets through 1 % of either kind of conflicting pair.

    A wrong model's run time is worse than none: the scheduler has a fallback. So what counts is
    how little gets through that conflicts, and then how much passes that should.
    """
    conflicts = (scores["other model"], scores["other dataset"])
    return math.ceil(max(float(np.quantile(values, 0.99)) for values in conflicts) * 1000) / 1000


def _pairs(
    half: str, draw: random.Random
) -> dict[str, list[tuple[WorkloadMetadata, WorkloadMetadata]]]:
    text = Path(__file__).with_name("workloads.yaml").read_text(encoding="utf-8")
    groups = yaml.safe_load(text)
    spellings = groups.pop("spellings")
    keep = slice(0, None, 2) if half == "first" else slice(1, None, 2)
    names = {
        task: (group["models"][keep], group["datasets"][keep]) for task, group in groups.items()
    }
    found: dict[str, list[Pair]] = {kind: [] for kind in KINDS}
    for task, (models, datasets) in names.items():
        for model, data in itertools.product(models, datasets):
            one = _workload(task, model, data, draw)
            found["other training"].append((one, _workload(task, model, data, draw)))
            for respelt in (
                (spellings.get(model, model), data),
                (model, spellings.get(data, data)),
            ):
                if respelt != (model, data):
                    found["other spelling"].append((one, _workload(task, *respelt, draw)))
            found["other model"].extend(
                (one, _workload(task, other, data, draw)) for other in models if other > model
            )
            found["other dataset"].extend(
                (one, _workload(task, model, other, draw)) for other in datasets if other > data
            )
            far, (far_models, far_data) = draw.choice(
                [item for item in names.items() if item[0] != task]
            )
            found["unrelated"].append(
                (one, _workload(far, draw.choice(far_models), draw.choice(far_data), draw))
            )
    return found


def _workload(task: str, model: str, data: str, draw: random.Random) -> WorkloadMetadata:
    iters, unit = draw.choice([(3, "epoch"), (90, "epoch"), (300, "epoch"), (20_000, "step")])
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": model, "task_type": task},
            "training_config": {
                "iters": iters,
                "iter_type": unit,
                "batch_size": draw.choice([8, 32, 128, 1024]),
                "lr": draw.choice([1e-5, 3e-4, 0.1]),
                "optimizer": draw.choice(["adamw", "sgd"]),
                "precision": draw.choice(["fp32", "bf16"]),
            },
            "dataset_config": {"train": data, "valid": draw.choice([data, None])},
        }
    )


def _cosines(embedder: Embedder, pairs: list[Pair], most: int = 3000) -> Any:
    texts = [(render(one), render(other)) for one, other in pairs[:: max(1, len(pairs) // most)]]
    distinct = sorted({text for pair in texts for text in pair})
    vectors = dict(zip(distinct, np.asarray(embedder.embed(distinct)), strict=True))
    return np.array([float(vectors[one] @ vectors[other]) for one, other in texts])
