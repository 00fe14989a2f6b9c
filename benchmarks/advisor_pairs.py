"""Similarities of pairs of workloads, and the threshold that separates like from unlike."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from schedmate.jobs import WorkloadMetadata
from schedmate.retrieval.embedders import Embedder
from schedmate.retrieval.render import render

KINDS = ("other training", "other model", "other dataset", "unrelated")
"""What differs in a pair; only the first may count as similar."""


def similarity_rows(embedder: Embedder, half: str, seed: int = 3) -> list[dict[str, Any]]:
    """Quantiles of cosine similarity by kind of pair, and what the threshold lets through.

    The names are dealt into two halves, so a threshold chosen on one is checked on names that
    it has not seen.
    """
    pairs = _pairs(half, random.Random(seed))
    scores = {kind: _cosines(embedder, pairs[kind]) for kind in KINDS}
    best = _best_threshold(scores)
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
            "best_threshold": best,
            "accepted_at_best_pct": round(100 * float((values >= best).mean()), 1),
        }
        for kind, values in scores.items()
    ]


def _best_threshold(scores: dict[str, Any]) -> float:
    """Where the share of right decisions is greatest, the kinds weighing the same.

    `other training` should pass; `other model` and `other dataset` should not.
    """
    levels = np.arange(0.5, 1.0, 0.005)
    wrong = [scores["other model"], scores["other dataset"]]
    right = [
        (scores["other training"] >= level).mean()
        + np.mean([(values < level).mean() for values in wrong])
        for level in levels
    ]
    best = np.flatnonzero(np.isclose(right, max(right), atol=1e-9))
    return round(float(levels[best].mean()), 3)


def _pairs(
    half: str, draw: random.Random
) -> dict[str, list[tuple[WorkloadMetadata, WorkloadMetadata]]]:
    text = Path(__file__).with_name("workloads.yaml").read_text(encoding="utf-8")
    groups = yaml.safe_load(text)
    keep = slice(0, None, 2) if half == "first" else slice(1, None, 2)
    names = {
        task: (group["models"][keep], group["datasets"][keep]) for task, group in groups.items()
    }
    found: dict[str, list[tuple[WorkloadMetadata, WorkloadMetadata]]] = {kind: [] for kind in KINDS}
    for task, (models, datasets) in names.items():
        for model, data in itertools.product(models, datasets):
            one = _workload(task, model, data, draw)
            for _ in range(3):
                found["other training"].append((one, _workload(task, model, data, draw)))
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


def _cosines(
    embedder: Embedder, pairs: list[tuple[WorkloadMetadata, WorkloadMetadata]], most: int = 3000
) -> Any:
    texts = [(render(one), render(other)) for one, other in pairs[:: max(1, len(pairs) // most)]]
    distinct = sorted({text for pair in texts for text in pair})
    vectors = dict(zip(distinct, np.asarray(embedder.embed(distinct)), strict=True))
    return np.array([float(vectors[one] @ vectors[other]) for one, other in texts])
