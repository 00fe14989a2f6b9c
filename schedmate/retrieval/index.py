"""Nearest vectors by inner product (FAISS).

The index is derived data in two parts: a snapshot file with most of the vectors, memory-mapped and
never changed, and a short tail with those that came later, read from the table. A lost, damaged or
outdated snapshot costs time, never an answer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from schedmate.retrieval import snapshot

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

EXACT_UP_TO = 50_000
"""Vectors that are all compared; a larger snapshot is an inverted file over 8-bit codes, whose best
are compared again exactly. Measured in benchmarks/history_scale.py."""
TAIL = 5_000
"""Vectors newer than the snapshot that make a new one worth writing."""
PROBES = 32
"""Lists of the inverted file that a search looks into; recall is measured there as well."""
SAMPLE = 64
"""Vectors a list of the inverted file that its lists are learnt from."""


class VectorTable(Protocol):
    """Where the vectors come from: rows with ascending ids."""

    dim: int
    generation: int

    def snapshot(self) -> str | None:
        """The name of the snapshot that was made from these rows, if there is one."""
        ...

    def count(self) -> int:
        """Number of rows."""
        ...

    def newest(self) -> int:
        """The highest id, 0 when there is none."""
        ...

    def after(self, row_id: int) -> Iterator[tuple[NDArray[int64], NDArray[float32]]]:
        """Ids and vectors above an id, in batches, ascending."""
        ...

    def vectors(self, ids: Sequence[int]) -> dict[int, NDArray[float32]]:
        """The vectors with these ids, those that exist."""
        ...


class VectorIndex:
    """Search over one generation of vectors; ids are the table's row ids."""

    def __init__(self, folder: Path, table: VectorTable, *, anew: bool = False) -> None:
        """`anew`: leave the snapshot alone and read every vector from the table."""
        self.generation = table.generation
        self.saved_id = 0
        """The highest id in the snapshot."""
        self._folder = folder
        self._table = table
        self._base: Any = None
        self._tail = _flat(table.dim)
        name = None if anew else table.snapshot()
        found = snapshot.load(folder, name, table.dim) if name else None
        if found is not None:
            self._base, self.saved_id = found
            inverted = _inverted(self._base)
            if inverted is not None:
                inverted.nprobe = PROBES
        self._last_id = self.saved_id

    def __len__(self) -> int:
        return int(self._tail.ntotal) + (int(self._base.ntotal) if self._base is not None else 0)

    def update(self) -> None:
        """Take in the rows that the table has gained."""
        for ids, vectors in self._table.after(self._last_id):
            self._tail.add_with_ids(vectors, ids)
            self._last_id = int(ids[-1])

    def search(self, vector: NDArray[float32], k: int) -> list[tuple[int, float]]:
        """Ids and similarities of the `k` nearest vectors, the nearest first."""
        query = vector.reshape(1, -1)
        found = _search(self._tail, query, k)
        if self._base is not None:
            near = _search(self._base, query, k if self.exact else 2 * k + 32)
            if not self.exact:
                exact = self._table.vectors([row_id for row_id, _ in near])
                near = [(row_id, float(row @ vector)) for row_id, row in exact.items()]
            found += near
        return sorted(found, key=lambda item: (-item[1], item[0]))[:k]

    @property
    def exact(self) -> bool:
        """Whether a search compares every vector."""
        return self._base is None or _inverted(self._base) is None

    def build(self) -> tuple[Any, int]:
        """All of the table's vectors in one index, for a new snapshot, and the highest id."""
        count = self._table.count()
        last_id = 0
        name = self._table.snapshot()
        if count <= EXACT_UP_TO:
            index = _flat(self._table.dim)
        elif name and not self.exact and _inverted(self._base).nlist >= lists(count) // 2:
            index = snapshot.writable(self._folder, name)
            last_id = self.saved_id
        else:
            index = self._trained(count)
        for ids, vectors in self._table.after(last_id):
            index.add_with_ids(vectors, ids)
            last_id = int(ids[-1])
        return index, last_id

    def _trained(self, count: int) -> Any:
        """An empty inverted file whose lists are learnt from an even sample of the table."""
        import faiss
        import numpy as np

        log.info("building the search index over %d vectors", count)
        every = max(1, count // (SAMPLE * lists(count)))
        # copies: a slice would keep all of its batch in memory
        sample = np.concatenate([vectors[::every].copy() for _, vectors in self._table.after(0)])
        dim = self._table.dim
        quantizer: Any = faiss.IndexFlatIP(dim)
        index: Any = faiss.IndexIVFScalarQuantizer(
            quantizer,
            dim,
            lists(count),
            faiss.ScalarQuantizer.QT_8bit,
            faiss.METRIC_INNER_PRODUCT,
        )
        index.own_fields = True
        quantizer.this.disown()
        index.cp.niter = 10
        index.cp.min_points_per_centroid = 1
        index.train(sample)
        return index


def lists(count: int) -> int:
    """Lists of an inverted file: about the root of the number of vectors, a power of two."""
    return 1 << round(math.sqrt(count)).bit_length()


def _flat(dim: int) -> Any:
    import faiss

    index: Any = faiss.IndexIDMap(faiss.IndexFlatIP(dim))
    return index


def _inverted(index: Any) -> Any:
    import faiss

    return faiss.try_extract_index_ivf(index)


def _search(index: Any, query: NDArray[float32], k: int) -> list[tuple[int, float]]:
    import faiss

    k = min(k, int(index.ntotal))
    if k < 1:
        return []
    # One thread: a pool that waits for a busy core costs one query far more than it saves.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        scores, ids = index.search(query, k)
    finally:
        faiss.omp_set_num_threads(threads)
    return [(int(i), float(s)) for i, s in zip(ids[0], scores[0], strict=True) if i >= 0]
