"""Runs of jobs from `sacct`, between random delimiters.

A user writes the name, submit line and directory of a job, with any characters, including line
feeds. The output of `sacct --parsable2` is then ambiguous; with a delimiter that is drawn for each
call (`delimiter()`) after every cell (`sacct -p`) it is not, and no job can pretend to be another.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from schedmate.schedulers.live.slurm.reading.shapes import ShapeError
from schedmate.terminal import clean

COLUMNS = (
    "JobID", "JobIDRaw", "State", "JobName", "User", "Partition", "Submit", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "ExitCode", "NNodes", "NodeList", "AllocTRES", "ReqTRES",
    "TRESUsageInAve", "TRESUsageInMax", "WorkDir", "SubmitLine",
)  # fmt: skip
"""Columns requested from every version."""

NEWER = ("Restarts", "FailedNode", "StdOut")
"""Columns requested from versions that have them: 24.11, 23.02, 24.05."""

SETTLED_S = 120.0
"""How long after an end its row may still change [s]."""

Row = dict[str, str]


def delimiter() -> str:
    """Text that occurs in a user's field only by a chance of one in 10^19."""
    return f"\x1f{secrets.token_hex(8)}\x1f"


def known_columns(printed: str) -> tuple[str, ...]:
    """The columns to request, by what `sacct -e` prints; an unknown one would fail the command."""
    has = {word.lower() for word in printed.split()}
    missing = [name for name in COLUMNS if name.lower() not in has]
    if missing:
        raise ShapeError(f"sacct does not know {', '.join(missing)}; is this Slurm 22.05 or later?")
    return (*COLUMNS, *(name for name in NEWER if name.lower() in has))


def parse_rows(printed: str, columns: Iterable[str], between: str) -> list[Row]:
    """The rows of `sacct -n -p --delimiter=BETWEEN -o COLUMNS`, keys in lower case."""
    keys = [name.lower() for name in columns]
    cells = printed.split(between)
    rest = cells.pop()
    if rest.strip() or len(cells) % len(keys):
        raise ShapeError(f"sacct printed rows that are not whole: {clean(rest, 60)!r}.")
    rows = []
    for at in range(0, len(cells), len(keys)):
        first, *others = cells[at : at + len(keys)]
        rows.append(dict(zip(keys, (first.removeprefix("\n"), *others), strict=True)))
    return rows


def with_steps(rows: Iterable[Row]) -> list[tuple[Row, list[Row]]]:
    """Each run of a job with its steps, without the pending part of an array."""
    found: list[tuple[Row, list[Row]]] = []
    for row in rows:
        raw = row["jobidraw"]
        if "." in raw:
            if found and found[-1][0]["jobidraw"] == raw.partition(".")[0]:
                found[-1][1].append(row)
        elif "[" not in row["jobid"]:
            found.append((row, []))
    return found


def complete(row: Row, now: float) -> bool:
    """Whether a row is complete; some seconds after an end it is not.

    `now` is in [s since epoch]. Values missing after `SETTLED_S` will never come: the database was
    down when the job began, for example.
    """
    if not row["end"].isdigit():
        return False
    return bool(row["submitline"] and row["workdir"]) or now - float(row["end"]) > SETTLED_S
