"""Text for a terminal: what comes from a repository, a log or a file cannot control it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from schedmate.terminal.layout import coloured, width_of, wrapped

# Escape sequences (CSI, OSC and other strings, two-character ones), then what is left of the
# C0 and C1 controls, then the invisible characters that reorder or hide text (Unicode TR 36).
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+"
)


EVERY_S = 60.0
"""How often long work says how far it is where no terminal shows a bar [s]."""


def strip_escapes(text: str) -> str:
    """The text without terminal escape sequences."""
    return _SEQUENCE.sub("", text)


def clean(text: object, limit: int | None = 2000) -> str:
    """One line of printable text without control sequences, cut off after `limit` characters."""
    line = _CONTROL.sub(" ", strip_escapes(str(text)))
    line = " ".join(line.split())
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def counted(number: float, thing: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,.12g} {thing}{'s' * (number != 1)}"


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int, str], None]]:
    """A bar on standard error while a terminal is there to show it; else a line every minute.

    Gives a function that is told how much is done and a few words beside it. Without `total` the
    bar only shows that something happens.
    """
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
    )
    console = Console(
        file=sys.stderr,
        markup=False,
        emoji=False,
        highlight=False,
        color_system="auto" if coloured(sys.stderr) else None,
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=clean(text))


def _lines(what: str, total: int | None) -> Callable[[int, str], None]:
    """Says how far the work is when it takes long, for whoever reads a log of it."""
    began = said = monotonic()

    def advance(done: int, text: str) -> None:
        nonlocal said
        now = monotonic()
        if now - said < EVERY_S:
            return
        said = now
        share = f"{min(1.0, done / total):.0%}" if total else f"{done:,} done"
        words = f", {text}" if text else ""
        say(f"{what}: {share}{words}, for {(now - began) / 60:.0f} min")

    return advance


def say(message: str) -> None:
    """One line to standard error, where talk belongs, cleaned; data goes to standard output.

    Talk that nobody reads any more ends no work.
    """
    try:
        for line in wrapped(clean(message), width_of(sys.stderr), hang=2):
            print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@contextmanager
def outlasting(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Gives a function that writes a line at once, and goes on without its reader.

    For work that also stores something: when the reader leaves, as `head` does, or the disk is
    full, what follows is dropped, and the `OSError` is raised when the block has ended well.
    """
    failure: OSError | None = None

    def write(line: str) -> None:
        nonlocal failure
        if failure is None:
            try:
                stream.write(line + "\n")
                stream.flush()
            except OSError as error:
                failure = error

    yield write
    if failure is not None:
        raise failure
