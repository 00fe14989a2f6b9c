"""What the commands of `schedmate history` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedmate.retrieval.history import JobHistory


@contextmanager
def opened(
    place: str | None,
    *,
    create: bool = False,
    read_only: bool = False,
    embed: bool = False,
) -> Iterator[JobHistory]:
    """The history of the settings; reading it only, nobody who writes is waited for.

    The embedder is loaded only with `embed`, since it may be slow, or a server that is down.
    """
    from schedmate.advice import embedder_of
    from schedmate.retrieval.stores import open_history
    from schedmate.settings import load_settings

    settings = load_settings(history=place)
    embedder = embedder_of(settings) if embed else None
    with open_history(settings.history, embedder, create=create, read_only=read_only) as store:
        yield store
