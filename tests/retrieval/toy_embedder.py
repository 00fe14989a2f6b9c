"""What the history tests share: an embedder that needs no files, and jobs to store."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schedmate.jobs import JobRecord, JobState


class ToyEmbedder:
    """Counts of hashed letter pairs, so that names alike in spelling are alike in vector."""

    id = "toy-1"
    dim = 128
    threshold = 0.8

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for i in range(len(text) - 1):
                row[zlib.crc32(text[i : i + 2].encode()) % self.dim] += 1
            row[len(text) % self.dim] += 0.5
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)


class OtherEmbedder(ToyEmbedder):
    """The same with another id and another dimension."""

    id = "toy-2"
    dim = 64


def job(
    job_id: str,
    model: str | None = "resnet50",
    dataset: str | None = "imagenet",
    *,
    iters: int = 90,
    state: JobState = "COMPLETED",
    end: float | None = 1000.0,
    user: str | None = None,
) -> JobRecord:
    """A past job with metadata."""
    return JobRecord.model_validate(
        {
            "job_id": job_id,
            "user": user,
            "metadata": {
                "model_config": {"model_name": model},
                "dataset_config": {"train": dataset},
                "training_config": {"iters": iters, "iter_type": "epoch"},
            },
            "state": state,
            "submit_time": None if end is None else end - 100.0,
            "end_time": None if state in ("PENDING", "RUNNING") else end,
            "duration_s": None if state in ("PENDING", "RUNNING") else 60.0,
        }
    )
