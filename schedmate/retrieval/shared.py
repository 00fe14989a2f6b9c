"""`SharedHistory`: a history in PostgreSQL that is read from a copy on this machine.

The database is the truth. Every process reads a copy of it, an ordinary `JobHistory` in the user's
cache, that polls keep up to date: advice never waits for the database, and goes on without it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from schedmate.jobs import JobRecord, JobState
from schedmate.retrieval.database import DATABASE, Database, HistoryError
from schedmate.retrieval.disk import locked
from schedmate.retrieval.history import JobHistory, batches
from schedmate.retrieval.postgres import Change, Remote
from schedmate.retrieval.render import RENDERING_VERSION, render
from schedmate.retrieval.table import finished, unknown_job

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder

log = logging.getLogger(__name__)

POLL_S = 2.0
"""Time between two looks at what others have written [s]."""
_MADE_WITH = ("embedder", "dim", "rendering")


class SharedHistory(JobHistory):
    """As a `JobHistory`, of which the directory is a copy. Writing needs the database."""

    def __init__(
        self, url: str, database: Database, embedder: Embedder | None, remote: Remote
    ) -> None:
        super().__init__(database, embedder)
        self.url = url
        self._remote = remote
        self._using = threading.RLock()
        self._ended = threading.Event()
        self._told = False
        self.reached = False
        """Whether the database answered when it was last asked."""
        self._poller: threading.Thread | None = None

    @classmethod
    def connect(
        cls, url: str, embedder: Embedder | None = None, create: bool = True, poll: bool = True
    ) -> Self:
        """Open the history at an address; tables are made when `create` allows it.

        Where the database cannot be reached, an earlier copy is used, and a warning says so.
        `poll`: go on looking for what others write. Raises `HistoryError`.
        """
        folder = _folder(url)
        remote = Remote(url)
        wanted = None
        if create and embedder is not None:
            wanted = made_with(embedder)
        try:
            held = remote.prepare(wanted)
        except HistoryError as error:
            remote.close()
            if not (folder / DATABASE).exists():
                raise
            held = None
            log.warning("%s; going on with what was read before", error)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = Database(folder, read_only=False)
        try:
            if held is not None:
                _begin(database, held)
            one = cls(url, database, embedder, remote)
        except BaseException:
            database.close()
            remote.close()
            raise
        if held is not None:
            one.refresh()
        if poll:
            one._poller = threading.Thread(target=one._poll, name="schedmate-history", daemon=True)
            one._poller.start()
        return one

    def close(self) -> None:
        """Stop looking for news and release the files. May be repeated."""
        self._ended.set()
        if self._poller is not None:
            self._poller.join()
        self._remote.close()
        super().close()

    # -- reading what others wrote -----------------------------------------------

    def refresh(self, *, wait: bool = True) -> int:
        """Update the copy; returns the number of new jobs. Raises `HistoryError`.

        Processes of one machine share the copy, and one of them at a time does this; without
        `wait`, the others leave it to that one.
        """
        count = 0
        with self._using, locked(self.path / "poll.lock", wait=wait) as allowed:
            if not allowed:
                return 0
            held = self._remote.manifest()
            self.reached = True
            if self.manifest().get("source") != held["generation"]:
                self._begin_again(held)
            while changes := self._remote.changes(int(self.manifest()["change"])):
                self._take(changes)
                count += len(changes)
        if count:
            self._save_index()
        return count

    def _take(self, changes: Sequence[Change]) -> None:
        with self._db.reading():
            texts = self._vectors.in_use()
        sources = {one.text_id for one in changes if one.text_id is not None}
        found = self._remote.texts(sorted(sources))
        records = [self._parse(one.document) for one in changes]
        with self._db.writing():
            rendered = {id_: text for id_, (text, _) in found.items()}
            known = texts.ids(rendered.values())
            texts.add({text: vector for text, vector in found.values() if text not in known})
            ids = texts.ids(rendered.values())
            self._upsert(
                (record, ids[rendered[one.text_id]] if one.text_id in rendered else None)
                for record, one in zip(records, changes, strict=True)
            )
            self._vectors.remember({"change": str(changes[-1].number)})

    def _begin_again(self, held: Mapping[str, str]) -> None:
        with self._db.writing():
            for table in ("jobs", "texts", "manifest"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
            self._vectors.remember(_copied(held))

    def _poll(self) -> None:
        while not self._ended.wait(POLL_S):
            try:
                self.refresh(wait=False)
            except HistoryError as error:
                self.reached = False
                if not self._told:
                    log.warning("%s; going on with what was read before", error)
                self._told = True
            else:
                self._told = False

    # -- writing ------------------------------------------------------------

    def add_many(
        self, records: Iterable[JobRecord], on_progress: Callable[[int], None] | None = None
    ) -> int:
        """Store jobs in batches; on return the database has committed them."""
        total = 0
        for batch in batches(records):
            with self._using:
                self._send(batch)
            total += len(batch)
            if on_progress is not None:
                on_progress(total)
        if total:
            self._refresh_quietly()
        return total

    def _send(self, batch: Sequence[JobRecord]) -> None:
        rendered = [render(record.metadata) for record in batch]
        distinct = [text for text in dict.fromkeys(rendered) if text]
        vectors: dict[str, NDArray[float32]] = {}
        while True:
            with self._remote.writing() as connection:
                generation = self._checked()
                ids = self._remote.text_ids(connection, generation, distinct)
                new = [text for text in distinct if text not in ids]
                if all(text in vectors for text in new):
                    added = {text: vectors[text] for text in new}
                    self._remote.add_texts(connection, generation, added)
                    ids |= self._remote.text_ids(connection, generation, new)
                    jobs = list(zip(batch, map(ids.get, rendered), strict=True))
                    self._remote.upsert(connection, jobs)
                    return
            vectors |= self._vectors.embed([text for text in new if text not in vectors])

    def _checked(self) -> int:
        """The generation in use; raises `HistoryError` for one of another embedder."""
        held = self._remote.manifest()
        for key, wanted in made_with(self.embedder).items():
            if held.get(key) != wanted:
                raise HistoryError(
                    f"{self.url}: its vectors were made with {key} {held.get(key)}, not {wanted}; "
                    "run `schedmate history rebuild`"
                )
        return int(held["generation"])

    def finish(
        self,
        job_id: str,
        *,
        duration_s: float | None = None,
        end_time: float | None = None,
        state: JobState = "COMPLETED",
        **usage: Any,
    ) -> JobRecord:
        """See `JobTable.finish`."""
        with self._using, self._remote.writing() as connection:
            found = self._remote.document(connection, job_id)
            if found is None:
                raise unknown_job(job_id)
            changes = {"duration_s": duration_s, "end_time": end_time, **usage}
            record = finished(self._parse(found[0]), changes, state)
            self._remote.upsert(connection, [(record, found[1])])
        self._refresh_quietly()
        return record

    def rebuild(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Embed every job again with the current embedder; returns their number. Writers wait."""
        done, total = 0, len(self)
        with self._using, self._remote.writing() as connection:
            newest = self._remote.newest()
            generation = int(self._remote.manifest()["generation"]) + 1
            after = 0
            # what is written anew here has higher numbers than `newest`
            while changes := [one for one in self._remote.changes(after) if one.number <= newest]:
                records = [self._parse(one.document) for one in changes]
                rendered = [render(record.metadata) for record in records]
                distinct = [text for text in dict.fromkeys(rendered) if text]
                known = self._remote.text_ids(connection, generation, distinct)
                new = [text for text in distinct if text not in known]
                self._remote.add_texts(connection, generation, self._vectors.embed(new))
                ids = self._remote.text_ids(connection, generation, distinct)
                self._remote.upsert(
                    connection, list(zip(records, map(ids.get, rendered), strict=True))
                )
                after = changes[-1].number
                done += len(changes)
                if on_progress is not None:
                    on_progress(done, max(done, total))
            self._remote.switch(connection, generation, made_with(self.embedder))
        self.refresh()
        return done

    def _refresh_quietly(self) -> None:
        with suppress(HistoryError):  # it is stored, and the next look finds it
            self.refresh()


def made_with(embedder: Embedder) -> dict[str, str]:
    """The manifest's entry for this embedder."""
    values = (embedder.id, str(embedder.dim), str(RENDERING_VERSION))
    return dict(zip(_MADE_WITH, values, strict=True))


def _begin(database: Database, held: Mapping[str, str]) -> None:
    """Write the manifest of a new copy."""
    with database.writing():
        database.execute_many("INSERT OR IGNORE INTO manifest VALUES (?, ?)", _copied(held).items())


def _copied(held: Mapping[str, str]) -> dict[str, str]:
    made = {key: held[key] for key in _MADE_WITH}
    return {**made, "generation": "1", "change": "0", "source": held["generation"]}


def _folder(url: str) -> Path:
    """Where the copy of a database lies."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = home if home.is_absolute() else Path.home() / ".cache"
    return cache / "schedmate" / "history" / sha256(url.encode()).hexdigest()[:24]
