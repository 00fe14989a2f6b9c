"""What the history tests share: a small embedder, jobs to store, sizes at which much happens."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schedmate.jobs import JobRecord, JobState, WorkloadMetadata
from schedmate.retrieval import database, history, index, table
from schedmate.retrieval.embedders import unit_vectors


class SmallEmbedder:
    """Unit vectors drawn by a text's checksum; with `kinds`, so few that many texts tie."""

    threshold = 0.9

    def __init__(self, name: str = "small", dim: int = 8, kinds: int | None = None) -> None:
        self.id = name
        self.dim = dim
        self._kinds = kinds
        self.calls = 0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        self.calls += 1
        seeds = [zlib.crc32(f"{self.id} {text}".encode()) for text in texts]
        if self._kinds:
            seeds = [seed % self._kinds for seed in seeds]
        rows = [np.random.default_rng(seed).standard_normal(self.dim) for seed in seeds]
        return unit_vectors(np.reshape(rows, (len(texts), self.dim)))


def job(number: int, model: str | None = None, state: JobState = "COMPLETED") -> JobRecord:
    """A job whose outcome follows from its number; a model of its own unless one is given."""
    ended = state not in ("PENDING", "RUNNING")
    return JobRecord(
        job_id=f"{number:06}",
        user=f"user{number % 3}",
        metadata=described(model or f"net{number}"),
        state=state,
        submit_time=1000.0 + number,
        start_time=1001.0 + number,
        end_time=2000.0 + number if ended else None,
        duration_s=999.0 if ended else None,
    )


def described(model: str, iters: int = 90) -> WorkloadMetadata:
    """Metadata that is rendered as the model's name and little else."""
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": model},
            "training_config": {"iters": iters, "iter_type": "epoch"},
        }
    )


def often_saved(tail: int = 7, exact_up_to: int = 150) -> None:
    """Make this process write snapshots often, and inverted files early, so that every kind of
    file is being written most of the time."""
    index.TAIL = index.TAIL = tail
    index.EXACT_UP_TO = exact_up_to
    history.BATCH = table.PAGE = 10


def on_network(folder: Path) -> None:
    """Make this process take a directory for one on NFS."""
    database.MOUNTS = mounts(folder)


def mounts(folder: Path, kind: str = "nfs4") -> Path:
    """A table of mounts, written beside a directory, that has it on this type of file system."""
    written = folder.parent / f"mounts-{kind}"
    written.write_text(
        "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        f"40 22 0:45 / {folder} rw,relatime shared:9 - {kind} server:/export rw,vers=4.2\n"
    )
    return written
