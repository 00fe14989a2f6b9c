"""The vectors of a history, the embedder they belong to, and the index over them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from schedmate.retrieval import snapshot
from schedmate.retrieval.database import Database, HistoryError
from schedmate.retrieval.disk import locked
from schedmate.retrieval.embedders import EmbedderError
from schedmate.retrieval.index import EXACT_UP_TO, TAIL, VectorIndex
from schedmate.retrieval.render import RENDERING_VERSION
from schedmate.retrieval.texts import Texts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder

log = logging.getLogger(__name__)


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
        held = self.manifest()
        for key, wanted in self._wanted().items():
            if held.get(key) != wanted:
                return (
                    f"{self._db.folder}: its vectors were made with {key} {held.get(key)}, not "
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
        held = self.manifest()
        return Texts(self._db, int(held["generation"]), int(held["dim"]))

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
        with locked(folder / snapshot.LOCK, wait=anew) as allowed:
            if not allowed or not (anew or self._due()):  # another process is at it, or was
                return
            with self._db.reading():
                texts = self.in_use()
                built, last_id = VectorIndex(folder, texts, anew=anew).build()
            name = snapshot.write(folder, texts.generation, last_id, built)
            with self._db.writing():
                if self.in_use().generation == texts.generation:  # no rebuild has ended meanwhile
                    self.remember({"index": name})
            snapshot.tidy(folder, self.in_use().snapshot() or "")
        self._index = None

    def _due(self) -> bool:
        with self._db.reading():
            texts = self.in_use()
            return texts.newest() - snapshot.held(self._db.folder, texts.snapshot()) >= TAIL

    # -- rebuilding ---------------------------------------------------------

    def next_generation(self) -> Texts:
        """Where to put new vectors; those of a rebuild that was stopped are kept, if they fit."""
        wanted = json.dumps(self._wanted(), sort_keys=True)
        with self._db.writing():
            held = self.manifest()
            number, _, pending = held.get("pending", "0 ").partition(" ")
            generation = int(number)
            if pending != wanted:
                self._db.execute("DELETE FROM texts WHERE generation = ?", (generation,))
                generation = max(generation, int(held["generation"])) + 1
                self.remember({"pending": f"{generation} {wanted}"})
        return Texts(self._db, generation, self.embedder.dim)

    def switch(self, texts: Texts) -> None:
        """Use a generation that now has every job's text; part of a `writing` block."""
        self._db.execute("DELETE FROM texts WHERE generation != ?", (texts.generation,))
        self._db.execute("DELETE FROM manifest WHERE key IN ('pending', 'index')")
        self.remember({**self._wanted(), "generation": str(texts.generation)})

    def remember(self, values: Mapping[str, str]) -> None:
        """Set values of the manifest; part of a `writing` block."""
        self._db.execute_many("INSERT OR REPLACE INTO manifest VALUES (?, ?)", values.items())
