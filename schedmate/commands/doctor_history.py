"""What `schedmate doctor` finds of the history."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from schedmate.commands.checks import Check
from schedmate.durations import format_duration
from schedmate.terminal import counted

if TYPE_CHECKING:
    from schedmate.places import Place
    from schedmate.retrieval.embedders import Embedder
    from schedmate.retrieval.history import JobHistory


def examine_history(place: Place, embedder: Embedder | None) -> Generator[Check, None, None]:
    """Its records, index and rights, as findings."""
    from schedmate.retrieval.history import DATABASE, JobHistory

    if isinstance(place, str):
        yield from _shared(place, embedder)
        return
    if not (place / DATABASE).exists():
        fix = "schedmate history import FILE, or schedmate analyze --record"
        yield Check("history", "warning", f"there is none at {place} yet", fix)
        return
    with JobHistory.open(place, embedder, create=False, read_only=True) as history:
        mismatch = history.mismatch() if embedder else None
        stats = history.stats()
        if mismatch is not None:
            yield Check("history", "failed", mismatch, "schedmate history rebuild")
        else:
            different = counted(stats["workloads"], "different workload")
            fact = f"{place}: {counted(stats['jobs'], 'record')}, {different}"
            yield Check("history", "ok", fact)
        yield _index(history, stats["workloads"])
        yield _disk(history)
    if not os.access(place, os.W_OK):
        yield Check(
            "history rights",
            "warning",
            f"{place} can be read but not written",
            "ask its owner for write access, if you want to use --record",
        )
    elif place.stat().st_mode & stat.S_IWOTH:
        yield Check(
            "history rights",
            "warning",
            f"anybody can write to {place}, and so change estimates",
            f"chmod o-w {place}",
        )
    else:
        yield Check("history rights", "ok", f"{place} can be read and written")


def _shared(url: str, embedder: Embedder | None) -> Iterator[Check]:
    """A history in PostgreSQL: whether it answers, and how old the copy of it is."""
    from schedmate.places import shown
    from schedmate.retrieval.shared import SharedHistory

    with SharedHistory.connect(url, embedder, create=False, poll=False) as history:
        stats = history.stats()
        fact = (
            f"{shown(url)}: {counted(stats['jobs'], 'record')}, read from a copy at {history.path}"
        )
        mismatch = history.mismatch() if embedder else None
        if history.reached:
            yield Check("history", "ok", fact)
        else:
            fix = "see that the database runs and can be reached; advice goes on meanwhile"
            yield Check("history", "warning", f"{fact}; the database does not answer", fix)
        if mismatch is not None:
            yield Check("vectors", "failed", mismatch, "schedmate history rebuild")
        yield _index(history, stats["workloads"])


def _index(history: JobHistory, workloads: int) -> Check:
    """How old the saved index is; it is derived data that every search completes."""
    from schedmate.retrieval.index import EXACT_UP_TO

    saved = history.snapshot()
    if saved is not None:
        age = format_duration(max(0.0, time.time() - saved.stat().st_mtime))
        return Check("index", "ok", f"saved {age} ago; searches add what is newer")
    fact = f"not saved; a search builds it from {workloads:,} vectors"
    if workloads > EXACT_UP_TO:
        return Check("index", "warning", fact, "schedmate history rebuild --index")
    return Check("index", "ok", fact)


def _disk(history: JobHistory) -> Check:
    """Whether SQLite can work there as it does best."""
    if history.network is None:
        return Check("history disk", "ok", "local; one may write while others read")
    return Check(
        "history disk",
        "warning",
        f"{history.path} is on a network file system ({history.network}): SQLite keeps a rollback "
        "journal there, so readers and a writer wait for each other, and it relies on that file "
        "system's locks",
        "if one machine alone uses the history, move it to a local disk",
    )
