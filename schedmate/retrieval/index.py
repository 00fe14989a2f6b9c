"""The vectors of a history: the embedder they belong to, and the FAISS index that searches them.

The index is derived data in two parts: a snapshot file with most of the vectors, memory-mapped
and never changed, and a short tail with those that came later, read from the table. A lost,
damaged or outdated snapshot costs time, never an answer.

A snapshot is whole or not there, and known to be undamaged before it is used. Its name says
what it holds, `index-GENERATION-LASTID-TOKEN.faiss`; the token is random. The history's
manifest names the one snapshot that was made from its table, so that one left by another state
of the table, as after an older database was restored, is never used. After FAISS's own bytes
come eight of a mark and four of a checksum over all that precedes.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from schedmate.retrieval.database import Database, HistoryError, locked, network_filesystem
from schedmate.retrieval.embedders import EmbedderError
from schedmate.retrieval.similarity import RENDERING_VERSION
from schedmate.retrieval.table import Texts

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder


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
        self._tail = _flat_index(table.dim)
        name = None if anew else table.snapshot()
        loaded = load_snapshot(folder, name, table.dim) if name else None
        if loaded is not None:
            self._base, self.saved_id = loaded
            inverted = _inverted_file(self._base)
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
        neighbours = _search_index(self._tail, query, k)
        if self._base is not None:
            near = _search_index(self._base, query, k if self.exact else 2 * k + 32)
            if not self.exact:
                exact = self._table.vectors([row_id for row_id, _ in near])
                near = [(row_id, float(row @ vector)) for row_id, row in exact.items()]
            neighbours += near
        return sorted(neighbours, key=lambda item: (-item[1], item[0]))[:k]

    @property
    def exact(self) -> bool:
        """Whether a search compares every vector."""
        return self._base is None or _inverted_file(self._base) is None

    def build(self) -> tuple[Any, int]:
        """All of the table's vectors in one index, for a new snapshot, and the highest id."""
        count = self._table.count()
        last_id = 0
        name = self._table.snapshot()
        if count <= EXACT_UP_TO:
            index = _flat_index(self._table.dim)
        elif name and not self.exact and _inverted_file(self._base).nlist >= list_count(count) // 2:
            index = writable_index(self._folder, name)
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
        every = max(1, count // (SAMPLE * list_count(count)))
        # copies: a slice would keep all of its batch in memory
        sample = np.concatenate([vectors[::every].copy() for _, vectors in self._table.after(0)])
        dim = self._table.dim
        quantizer: Any = faiss.IndexFlatIP(dim)
        index: Any = faiss.IndexIVFScalarQuantizer(
            quantizer,
            dim,
            list_count(count),
            faiss.ScalarQuantizer.QT_8bit,
            faiss.METRIC_INNER_PRODUCT,
        )
        index.own_fields = True
        quantizer.this.disown()
        index.cp.niter = 10
        index.cp.min_points_per_centroid = 1
        index.train(sample)
        return index


def list_count(count: int) -> int:
    """Lists of an inverted file: about the root of the number of vectors, a power of two."""
    return 1 << round(math.sqrt(count)).bit_length()


def _flat_index(dim: int) -> Any:
    import faiss

    index: Any = faiss.IndexIDMap(faiss.IndexFlatIP(dim))
    return index


def _inverted_file(index: Any) -> Any:
    import faiss

    return faiss.try_extract_index_ivf(index)


def _search_index(index: Any, query: NDArray[float32], k: int) -> list[tuple[int, float]]:
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


# Index snapshots on disk: whole or not there, and known to be undamaged before they are used.
#
# The name says what a snapshot holds, `index-GENERATION-LASTID-TOKEN.faiss`; the token is random.
# The history's manifest names the one snapshot that was made from its table, so that one left by
# another state of the table, as after an older database was restored, is never used. After FAISS's
# own bytes come eight of a mark and four of a checksum over all that precedes.


SNAPSHOT_LOCK = "index.lock"
"""One process at a time writes a snapshot."""
SNAPSHOT_MARK = b"SCHMIDX1"
SNAPSHOT_TRAILER = len(SNAPSHOT_MARK) + 4
_SNAPSHOT_NAME = re.compile(r"index-(\d+)-(\d+)-[0-9a-f]+\.faiss")


def load_snapshot(folder: Path, name: str, dim: int) -> tuple[Any, int] | None:
    """The index of this name and the last id that it holds; None, with a warning, when it is lost
    or damaged."""
    import faiss

    path = folder / name
    # Another machine may delete a file that is mapped here, and a read of it then ends the process.
    flags = 0 if network_filesystem(folder) else faiss.IO_FLAG_MMAP_IFC
    try:
        _verify_snapshot(path)
        index: Any = faiss.read_index(str(path), flags)
        if index.d != dim:
            raise ValueError(f"its vectors have {index.d} numbers, not {dim}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RuntimeError) as error:
        log.warning("%s: not a usable index (%s), so vectors are read from the table", path, error)
        with suppress(OSError):  # so that the next addition makes a new one
            path.unlink()
        return None
    return index, _last_id(name)


def snapshot_last_id(folder: Path, name: str | None) -> int:
    """The last id that a snapshot says it holds, 0 when it is not there."""
    return _last_id(name) if name and (folder / name).exists() else 0


def writable_index(folder: Path, name: str) -> Any:
    """A copy in memory, to add to."""
    import faiss

    return faiss.read_index(str(folder / name))


def write_snapshot(folder: Path, generation: int, last_id: int, index: Any) -> str:
    """Write a new snapshot and return its name, for the manifest; call it under `LOCK`."""
    import faiss

    name = f"index-{generation}-{last_id}-{secrets.token_hex(8)}.faiss"
    partial = (folder / name).with_suffix(".partial")
    partial.touch(mode=0o600)
    faiss.write_index(index, str(partial))
    with partial.open("r+b") as file:
        checksum = _checksum(file, file.seek(0, os.SEEK_END))
        file.write(SNAPSHOT_MARK + checksum)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / name)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return name


def delete_other_snapshots(folder: Path, name: str) -> None:
    """Delete all snapshots but this one, and what a killed process left half written; call it
    under `LOCK`."""
    for old in folder.glob("index-*"):
        if old.name != name:
            old.unlink(missing_ok=True)


def _last_id(name: str) -> int:
    match = _SNAPSHOT_NAME.fullmatch(name)
    return int(match[2]) if match else 0


def _verify_snapshot(path: Path) -> None:
    """Raise ValueError unless the file is as it was written."""
    with path.open("rb") as file:
        body = file.seek(0, os.SEEK_END) - SNAPSHOT_TRAILER
        if body < 0:
            raise ValueError("it is cut short")
        file.seek(body)
        trailer = file.read(SNAPSHOT_TRAILER)
        if not trailer.startswith(SNAPSHOT_MARK) or trailer[len(SNAPSHOT_MARK) :] != _checksum(
            file, body
        ):
            raise ValueError("it is damaged or cut short")


def _checksum(file: Any, size: int) -> bytes:
    """CRC-32 of the first `size` bytes."""
    file.seek(0)
    value = 0
    while size > 0:
        block = file.read(min(size, 1 << 20))
        if not block:
            break
        value = zlib.crc32(block, value)
        size -= len(block)
    return value.to_bytes(4, "big")


# The vectors of a history, the embedder they belong to, and the index over them.


class Vectors:
    """The vectors of one embedder in one history.

    Vectors of different embedders or renderings do not mix. The manifest says which ones the
    history holds and numbers their generation; a rebuild fills the next generation beside the one
    in use, then switches over. Without an embedder, what needs one is refused.
    """

    def __init__(self, database: Database, embedder: Embedder | None) -> None:
        self._db = database
        self._embedder = embedder
        self._index: VectorIndex | None = None

    def prepare(self) -> None:
        """Write the manifest of a new history, if the embedder to name in it is known."""
        if self._embedder is not None and "generation" not in self.manifest():
            values = {"generation": "1", **self._wanted()}
            with self._db.writing():
                self._db.execute_many(
                    "INSERT OR IGNORE INTO manifest VALUES (?, ?)", values.items()
                )

    def manifest(self) -> dict[str, str]:
        """Embedder id, dimension, rendering version, the generation of vectors in use and the
        snapshot of the index that belongs to it."""
        return dict(self._db.query("SELECT key, value FROM manifest"))

    @property
    def embedder(self) -> Embedder:
        """The embedder; raises `HistoryError` if none was given."""
        if self._embedder is None:
            raise HistoryError(
                f"{self._db.folder}: opened without an embedder, which searching and adding need"
            )
        return self._embedder

    def _wanted(self) -> dict[str, str]:
        return {
            "embedder": self.embedder.id,
            "dim": str(self.embedder.dim),
            "rendering": str(RENDERING_VERSION),
        }

    def mismatch(self) -> str | None:
        """Why the stored vectors do not fit the embedder; None when they do."""
        manifest = self.manifest()
        for key, wanted in self._wanted().items():
            if manifest.get(key) != wanted:
                return (
                    f"{self._db.folder}: its vectors were made with {key} {manifest.get(key)}, not "
                    f"{wanted}; run `schedmate history rebuild`"
                )
        return None

    def texts(self) -> Texts:
        """The renderings in use; raises `HistoryError` when they are of another embedder."""
        problem = self.mismatch()
        if problem is not None:
            raise HistoryError(problem)
        return self.in_use()

    def in_use(self) -> Texts:
        """The renderings in use, of whatever embedder."""
        manifest = self.manifest()
        return Texts(self._db, int(manifest["generation"]), int(manifest["dim"]))

    def embed(self, texts: Sequence[str]) -> dict[str, NDArray[float32]]:
        """Unit vectors by text; raises `EmbedderError` for what cannot be stored."""
        import numpy as np

        if not texts:
            return {}
        vectors = np.asarray(self.embedder.embed(texts), dtype=np.float32)
        if vectors.shape != (len(texts), self.embedder.dim) or not np.isfinite(vectors).all():
            raise EmbedderError(
                f"the embedder {self.embedder.id} returned vectors of shape {vectors.shape}, "
                f"or not finite, where ({len(texts)}, {self.embedder.dim}) was due"
            )
        return dict(zip(texts, vectors, strict=True))

    # -- the index ----------------------------------------------------------

    def nearest(self) -> VectorIndex:
        """The index, with every committed vector in it; part of a `reading` block."""
        texts = self.texts()
        if self._index is None or self._index.generation != texts.generation:
            self._index = VectorIndex(self._db.folder, texts)
            if texts.newest() - self._index.saved_id > EXACT_UP_TO < texts.count():
                log.warning(
                    "%s: its index is lost or belongs to another state of the database, so every "
                    "vector is read; `schedmate history rebuild --index` rebuilds it",
                    self._db.folder,
                )
        self._index.update()
        return self._index

    def save(self, *, anew: bool = False) -> None:
        """Write a snapshot of the index if the last one is outdated, or always with `anew`."""
        if not (anew or self._due()):
            return
        folder = self._db.folder
        with locked(folder / SNAPSHOT_LOCK, wait=anew) as allowed:
            if not allowed or not (anew or self._due()):  # another process is at it, or was
                return
            with self._db.reading():
                texts = self.in_use()
                built, last_id = VectorIndex(folder, texts, anew=anew).build()
            name = write_snapshot(folder, texts.generation, last_id, built)
            with self._db.writing():
                if self.in_use().generation == texts.generation:  # no rebuild has ended meanwhile
                    self.remember({"index": name})
            delete_other_snapshots(folder, self.in_use().snapshot() or "")
        self._index = None

    def _due(self) -> bool:
        with self._db.reading():
            texts = self.in_use()
            return texts.newest() - snapshot_last_id(self._db.folder, texts.snapshot()) >= TAIL

    # -- rebuilding ---------------------------------------------------------

    def next_generation(self) -> Texts:
        """Where to put new vectors; those of a rebuild that was stopped are kept, if they fit."""
        wanted = json.dumps(self._wanted(), sort_keys=True)
        with self._db.writing():
            manifest = self.manifest()
            number, _, pending = manifest.get("pending", "0 ").partition(" ")
            generation = int(number)
            if pending != wanted:
                self._db.execute("DELETE FROM texts WHERE generation = ?", (generation,))
                generation = max(generation, int(manifest["generation"])) + 1
                self.remember({"pending": f"{generation} {wanted}"})
        return Texts(self._db, generation, self.embedder.dim)

    def switch(self, texts: Texts) -> None:
        """Use a generation that now has every job's text; part of a `writing` block."""
        self._db.execute("DELETE FROM texts WHERE generation != ?", (texts.generation,))
        self._db.execute("DELETE FROM manifest WHERE key IN ('pending', 'index')")
        self.remember({**self._wanted(), "generation": str(texts.generation)})

    def renumber(self, least: int = 0) -> None:
        """Give the vectors in use a new generation above `least`, and delete those of no job: every
        process then reads the index anew. Part of a `writing` block."""
        manifest = self.manifest()
        pending = manifest.get("pending", "0 ").partition(" ")[0]
        generation = max(least, int(pending), int(manifest["generation"])) + 1
        self._db.execute(
            "DELETE FROM texts WHERE generation != ? OR NOT EXISTS "
            "(SELECT 1 FROM jobs WHERE text_id = texts.id)",
            (int(manifest["generation"]),),
        )
        self._db.execute("UPDATE texts SET generation = ?", (generation,))
        self._db.execute("DELETE FROM manifest WHERE key IN ('pending', 'index')")
        self.remember({"generation": str(generation)})

    def remember(self, values: Mapping[str, str]) -> None:
        """Set values of the manifest; part of a `writing` block."""
        self._db.execute_many("INSERT OR REPLACE INTO manifest VALUES (?, ?)", values.items())
