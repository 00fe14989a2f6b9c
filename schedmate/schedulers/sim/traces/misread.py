"""Extraction errors of a workload's code, with measured frequencies.

The same code is read the same way each time, so a misread workload is misread for all of its jobs:
its resubmissions still resemble each other, and it may resemble others that it should not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schedmate.data import load
from schedmate.jobs import WorkloadMetadata

_SECTIONS = {
    "model_name": "model_config",
    "task_type": "model_config",
    "iters": "training_config",
    "iter_type": "training_config",
    "train": "dataset_config",
    "valid": "dataset_config",
}


class Misreading:
    """Introduces errors into metadata in patterns that were measured (`misread.yaml`).

    Args:
        models: model, task and training set of each type.
        rng: random number generator.
    """

    def __init__(self, models: Sequence[tuple[str, str, str]], rng: np.random.Generator) -> None:
        document = load("schedulers/sim/traces/misread.yaml")
        self._patterns = [dict(one) for one in document["patterns"]]
        jobs = np.array([one.pop("jobs") for one in self._patterns], dtype=float)
        self._shares = jobs / jobs.sum()
        self._factors: list[float] = document["iters"]
        self._another: float = document["another"]
        self._models = models
        self._rng = rng

    def __call__(self, metadata: WorkloadMetadata, workload: int) -> WorkloadMetadata:
        """The metadata with one pattern of errors; `workload` makes random words distinct."""
        pattern = self._patterns[int(self._rng.choice(len(self._patterns), p=self._shares))]
        return self._with(metadata, pattern, workload)

    def _with(
        self, metadata: WorkloadMetadata, pattern: Mapping[str, str], workload: int
    ) -> WorkloadMetadata:
        read: dict[str, dict[str, Any]] = {
            name: dict(values) for name, values in metadata.sections().items()
        }
        another = self._models[int(self._rng.integers(len(self._models)))]
        known = self._rng.random() < self._another
        for field, outcome in pattern.items():
            section = read[_SECTIONS[field]]
            if outcome == "missing":
                section[field] = None
            elif field == "iters":
                factor = self._factors[int(self._rng.integers(len(self._factors)))]
                section[field] = max(1, round(section[field] * factor))
            elif field == "iter_type":
                section[field] = "step" if section[field] == "epoch" else "epoch"
            elif known:
                names = dict(zip(("model_name", "task_type", "train"), another, strict=True))
                section[field] = names.get(field, names["train"])
            elif field == "task_type":
                section[field] = another[1]  # a closed list, without random words
            else:
                section[field] = f"{field}_{workload}"
        return WorkloadMetadata.model_validate(read)
