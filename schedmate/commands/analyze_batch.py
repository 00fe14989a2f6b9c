"""`schedmate analyze --batch`: many jobs from a file, answered as JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from schedmate.commands.scale_options import Where
from schedmate.errors import InputError
from schedmate.files import open_output
from schedmate.plain import dumps
from schedmate.terminal import counted, outlasting, progress

if TYPE_CHECKING:
    from schedmate.settings import Settings


def analyze_batch(
    batch: str,
    settings: Settings,
    output: Path | None,
    parquet: Path | None,
    where: Where,
    *,
    record: bool,
) -> tuple[int, int]:
    """Analyse the lines of `batch`; gives how many failed and how many abstained."""
    from schedmate.commands.batch import COLUMNS, Analyst, analyze_many
    from schedmate.mate import SchedMate
    from schedmate.scale.objects import local
    from schedmate.scale.rows import parquet_rows

    failed = abstained = 0
    with ExitStack() as stack:
        try:
            if batch == "-":
                # A buffer of its own that is not closed: a thread may be waiting in it.
                lines = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            else:
                path = stack.enter_context(local(Path(batch)))
                lines = stack.enter_context(path.open(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise InputError(
                f"cannot read {batch}: {error.strerror}; --batch takes a file of JSON lines or -."
            ) from None
        stream = stack.enter_context(open_output(output))
        write: Callable[[str], None] = partial(print, file=stream, flush=True)
        if record:  # every job is, also when nobody reads the answers any more
            write = stack.enter_context(outlasting(stream))
        add_row = stack.enter_context(parquet_rows(parquet, COLUMNS))
        mate = stack.enter_context(SchedMate(settings, at_once=where.at_once))
        what = f"analyze{' --record' if record else ''} with {_digest(settings)}"
        journal = stack.enter_context(where.journal(what))
        advance = stack.enter_context(progress("analysing"))
        results = analyze_many(
            lines,
            Analyst(settings, mate),
            at_once=where.at_once,
            ray=where.ray,
            journal=journal,
        )
        for done, result in enumerate(results, start=1):
            failed += result.failed
            abstained += result.abstained
            if record and result.record is not None:
                result.document["recorded_as"] = mate.store(result.record)
            add_row(result.row())
            write(dumps(result.document))
            advance(done, counted(done, "job"))
    return failed, abstained


def _digest(settings: Settings) -> str:
    """The settings and the version, as a journal names them."""
    from hashlib import sha256

    from schedmate import __version__

    text = settings.model_dump_json(exclude={"memory_mb", "deadline_s", "trajectories"})
    return f"schedmate {__version__}, settings {sha256(text.encode()).hexdigest()[:12]}"
