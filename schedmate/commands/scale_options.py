"""Options of commands that do much independent work: where, and what is remembered of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.errors import InputError, UsageError

if TYPE_CHECKING:
    from schedmate.scale.journal import Journal

RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help=(
            "Run on a Ray cluster (auto, HOST:PORT, ray://HOST:PORT or local) whose nodes "
            "see the inputs under the same paths. Needs schedmate[ray]."
        ),
    ),
]
JournalOption = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help=(
            "Record progress in this file, so that an interrupted command can be resumed "
            "by running it again."
        ),
    ),
]
ParquetOption = Annotated[
    Path | None,
    typer.Option(
        "--parquet",
        metavar="FILE",
        help="Also write the results as Parquet. Needs schedmate[parquet].",
    ),
]


@dataclass(frozen=True)
class Where:
    """Where work is done: in so many processes of this machine, or on a Ray cluster."""

    processes: int | None
    ray: str | None
    journal_file: Path | None = None
    option: str = "--processes"

    @property
    def at_once(self) -> int:
        """Processes of this machine; without a number, one a core."""
        return self.processes or len(os.sched_getaffinity(0))

    def check(self, *outputs: Path | None) -> None:
        """Raise `UsageError` for options that exclude each other, or when Ray is not installed.

        And `InputError` for an output in a directory that does not exist.
        """
        if self.ray is not None:
            if self.processes is not None:
                raise UsageError(
                    f"{self.option} is for this machine and --ray for a cluster; give one of them."
                )
            from schedmate.ray_tasks import require_ray

            require_ray()
        for path in outputs:
            if path is not None and not path.absolute().parent.is_dir():
                raise InputError(f"cannot write {path}: there is no such directory; make it first.")

    @contextmanager
    def journal(self, what: str) -> Iterator[Journal | None]:
        """The journal that was asked for; `what` is as of `Journal`."""
        if self.journal_file is None:
            yield None
            return
        from schedmate.scale.journal import Journal

        with Journal(self.journal_file, what) as journal:
            yield journal
