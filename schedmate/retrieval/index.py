"""Nearest vectors by inner product, on disk and in memory.

The index is derived data: a snapshot file named after the generation of vectors it holds and how
many of them, brought up to date from the table on every search. A lost, damaged or outdated
snapshot costs time, never an answer.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

EXACT_UP_TO = 200_000
"""Vectors that are compared one by one; past that an inverted file over 8-bit codes is faster.

Measured in benchmarks/results/history_scale.md."""
LISTS = 2048
PROBES = 24
SNAPSHOT_EVERY = 5_000
TRAINING = 100_000

Fetch = Callable[[int], "tuple[list[int], NDArray[float32]]"]
"""Ids and vectors of the table's rows above an id, in order; at most a batch of them."""


class VectorIndex:
    """Inner-product search over vectors whose ids are the table's ascending row ids."""

    def __init__(self, folder: Path, dim: int, generation: int, read_only: bool = False) -> None:
        self._folder = folder
        self._dim = dim
        self.generation = generation
        self._read_only = read_only
        self.last_id = 0
        self._saved_id = 0
        self._index: Any = None
        self._load()

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def _empty(self) -> Any:
        import faiss

        return faiss.IndexIDMap2(faiss.IndexFlatIP(self._dim))

    def _load(self) -> None:
        """The newest readable snapshot of this generation."""
        import faiss

        self._index = self._empty()
        for last_id, path in sorted(self._snapshots(), reverse=True):
            try:
                index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
                if index.d != self._dim:
                    raise RuntimeError(f"it holds vectors of length {index.d}")
            except RuntimeError as error:
                log.warning("%s: not a usable index, built anew (%s)", path, str(error)[-120:])
                continue
            self._index, self.last_id, self._saved_id = index, last_id, last_id
            self._probe()
            return

    def _snapshots(self) -> list[tuple[int, Path]]:
        found = []
        for path in self._folder.glob(f"index-{self.generation}-*.faiss"):
            match = re.fullmatch(r"index-\d+-(\d+)\.faiss", path.name)
            if match:
                found.append((int(match[1]), path))
        return found

    def _probe(self) -> None:
        import faiss

        inner = faiss.try_extract_index_ivf(self._index)
        if inner is not None:
            inner.nprobe = PROBES

    def update(self, fetch: Fetch) -> None:
        """Take in the table's rows that are newer than the index."""
        while True:
            ids, vectors = fetch(self.last_id)
            if not ids:
                break
            self._add(ids, vectors)
            self.last_id = ids[-1]
        if not self._read_only and self.last_id - self._saved_id >= SNAPSHOT_EVERY:
            self.save()

    def _add(self, ids: list[int], vectors: NDArray[float32]) -> None:
        import faiss
        import numpy as np

        if len(self) + len(ids) > EXACT_UP_TO and faiss.try_extract_index_ivf(self._index) is None:
            self._index = self._inverted(vectors)
        if self.last_id == self._saved_id and self._saved_id:
            # a memory-mapped index is read-only: take a copy before the first change
            self._index = faiss.clone_index(self._index)
            self._probe()
            self._saved_id = -1 if self._read_only else self._saved_id
        self._index.add_with_ids(vectors, np.asarray(ids, dtype=np.int64))

    def _inverted(self, more: NDArray[float32]) -> Any:
        """The same vectors in an inverted file, once there are too many to compare one by one."""
        import faiss
        import numpy as np

        flat: Any = faiss.downcast_index(self._index)
        held_ids = faiss.vector_to_array(flat.id_map)
        held = flat.index.reconstruct_n(0, flat.ntotal) if flat.ntotal else more[:0]
        sample = np.concatenate([held, more])
        if len(sample) > TRAINING:
            chosen = np.random.default_rng(0).choice(len(sample), TRAINING, replace=False)
            sample = sample[chosen]
        quantizer: Any = faiss.IndexFlatIP(self._dim)
        index = faiss.IndexIVFScalarQuantizer(
            quantizer, self._dim, LISTS, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        )
        index.own_fields = True
        quantizer.this.disown()
        index.train(sample)
        index.nprobe = PROBES
        if len(held):
            index.add_with_ids(held, held_ids)
        return index

    def search(self, vector: NDArray[float32], k: int) -> list[tuple[int, float]]:
        """Ids and similarities of the `k` nearest vectors, the nearest first."""
        if not len(self):
            return []
        scores, ids = self._index.search(vector.reshape(1, -1), min(k, len(self)))
        return [(int(i), float(s)) for i, s in zip(ids[0], scores[0], strict=True) if i >= 0]

    def save(self) -> None:
        """Write a snapshot: a new file, complete before it gets its name."""
        import faiss

        if self.last_id == self._saved_id or not len(self):
            return
        path = self._folder / f"index-{self.generation}-{self.last_id}.faiss"
        partial = path.with_suffix(f".{os.getpid()}.partial")
        faiss.write_index(self._index, str(partial))
        partial.chmod(0o600)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        self._saved_id = self.last_id
        self._index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
        self._probe()
        self._clear(keep=path)

    def _clear(self, keep: Path) -> None:
        for old in self._folder.glob("index-*"):
            if old != keep and not old.name.endswith(".partial"):
                old.unlink(missing_ok=True)
