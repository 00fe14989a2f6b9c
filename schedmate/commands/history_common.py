"""What the commands of `schedmate history` share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.terminal import clean, say

if TYPE_CHECKING:
    from schedmate.retrieval.history import JobHistory

HistoryOption = Annotated[
    Path | None, typer.Option("--history", metavar="DIR", help="Directory of the job history.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def opened(
    directory: Path | None,
    *,
    create: bool = False,
    read_only: bool = False,
    embed: bool = False,
) -> Iterator[JobHistory]:
    """The history of the settings; reading it only, nobody who writes is waited for.

    The embedder is loaded only with `embed`, since it may be slow, or a server that is down.
    """
    from schedmate.mate import embedder_of
    from schedmate.retrieval.history import JobHistory
    from schedmate.settings import load_settings

    settings = load_settings(history=directory)
    embedder = embedder_of(settings) if embed else None
    with JobHistory.open(settings.history, embedder, create=create, read_only=read_only) as store:
        yield store


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """A bar on standard error when that is a terminal; else nothing."""
    if not sys.stderr.isatty():
        yield lambda _done, _text: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from schedmate.terminal import console

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=text)


def tell(message: str) -> None:
    say(clean(message))
