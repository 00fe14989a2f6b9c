"""A history in memory for simulations, with the answers of `JobHistory`.

A simulated month queries and adds a job a hundred thousand times, but few renderings are distinct:
each is embedded once, and compared by one product of a matrix with a vector.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from schedmate.jobs import JobRecord, WorkloadMetadata
from schedmate.retrieval.history import Match, Matches
from schedmate.retrieval.render import render
from schedmate.retrieval.spread import LATEST, UNLEARNED, Learned, Spread, learn
from schedmate.retrieval.table import RECENT

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder


class MemoryHistory:
    """Ended jobs; those added later count as ended later."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._texts: dict[str, int] = {}  # of all jobs ever asked for -> row
        self._rows: NDArray[float32] | None = None
        self._of_text: list[list[tuple[JobRecord, str]]] = []
        self._of_print: dict[str, list[JobRecord]] = {}
        self._known: dict[int, tuple[WorkloadMetadata, int, str]] = {}
        self._latest: list[tuple[float, str, JobRecord, str]] = []  # in order of submission
        self._spread = UNLEARNED
        self._size = 0

    def prepare(self, jobs: Iterable[WorkloadMetadata]) -> None:
        """Embed the texts of these jobs in one batch, without adding the jobs."""
        import numpy as np

        new = [
            text
            for text in dict.fromkeys(render(one) for one in jobs)
            if text and text not in self._texts
        ]
        if not new:
            return
        rows = np.asarray(self.embedder.embed(new), dtype=np.float32)
        self._rows = rows if self._rows is None else np.concatenate([self._rows, rows])
        for text in new:
            self._texts[text] = len(self._texts)
            self._of_text.append([])

    def add(self, record: JobRecord) -> None:
        """Store a job that has ended."""
        self._size += 1
        row, fingerprint = self._place(record.metadata)
        self._of_print.setdefault(fingerprint, []).append(record)
        if record.ended and record.submit_time is not None:
            place = (record.submit_time, record.job_id, record, fingerprint)
            insort(self._latest, place, key=lambda item: item[:2])
            del self._latest[:-LATEST]
        if row >= 0:
            self._of_text[row].append((record, fingerprint))

    def by_fingerprint(self, fingerprint: str) -> list[JobRecord]:
        """Jobs with this fingerprint, the latest ended first, the last few hundred."""
        return self._of_print.get(fingerprint, [])[-RECENT:][::-1]

    def spread(self) -> Spread:
        """See `JobTable.spread`."""
        if not self._spread.fits(self._size):
            completed = [
                (fingerprint, record.duration_s)
                for _, _, record, fingerprint in self._latest
                if record.state == "COMPLETED" and record.duration_s
            ]
            self._spread = Learned(self._size, learn(completed))
        return self._spread.spread

    def search(
        self, metadata: WorkloadMetadata, k: int, threshold: float, ended_only: bool = True
    ) -> Matches:
        """See `JobHistory.search`."""
        row, fingerprint = self._place(metadata)
        if row < 0 or k < 1:
            return []
        assert self._rows is not None
        import numpy as np

        similarity = self._rows @ self._rows[row]
        near = np.flatnonzero(similarity >= threshold)
        matches: Matches = []
        for text in near[np.argsort(-similarity[near], kind="stable")].tolist():
            alike = min(1.0, float(similarity[text]))
            for record, other in reversed(self._of_text[text][len(matches) - k :]):
                matches.append(Match(record, alike, other == fingerprint))
            if len(matches) >= k:
                break
        return matches

    def _place(self, metadata: WorkloadMetadata) -> tuple[int, str]:
        """Row of its rendering, -1 without one, and its fingerprint."""
        # Many jobs of a trace share one object, which is kept so that no other takes its id.
        known = self._known.get(id(metadata))
        if known is None:
            self.prepare([metadata])
            text = render(metadata)
            row = self._texts[text] if text else -1
            known = self._known[id(metadata)] = (metadata, row, metadata.fingerprint())
        return known[1], known[2]
