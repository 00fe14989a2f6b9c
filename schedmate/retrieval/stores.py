"""The history that a setting names: a directory, or a database of several schedulers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from schedmate.places import Place, is_remote
from schedmate.retrieval.history import JobHistory

if TYPE_CHECKING:
    from schedmate.retrieval.embedders import Embedder


def open_history(
    place: Place,
    embedder: Embedder | None = None,
    *,
    create: bool = True,
    read_only: bool = False,
    poll: bool = False,
) -> JobHistory:
    """See `JobHistory.open` and `SharedHistory.connect`, of which `poll` is."""
    if is_remote(place):
        from schedmate.retrieval.shared import SharedHistory

        return SharedHistory.connect(
            os.fspath(place), embedder, create=create and not read_only, poll=poll
        )
    assert not isinstance(place, str)
    return JobHistory.open(place, embedder, create=create, read_only=read_only)
