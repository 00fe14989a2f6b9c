"""User-written fields of jobs from `squeue -O`, between random delimiters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from schedmate.schedulers.live.slurm.reading.shapes import ShapeError
from schedmate.terminal import clean

FIELDS = {
    "JobID": 20, "ArrayJobID": 20, "UserName": 64, "NumNodes": 20, "tres-alloc": 400,
    "TimeLimit": 40, "SubmitTime": 24, "Name": 512, "WorkDir": 4096, "Command": 4096,
    "STDOUT": 4096, "Comment": 512,
}  # fmt: skip
"""Fields and their widths [characters]; longer text is cut off."""


class Details(NamedTuple):
    """One job as its owner described it."""

    job: str
    array: str
    user: str
    nodes: str
    tres: str
    time_limit: str
    submitted: str
    name: str
    workdir: str
    command: str
    """The script and its arguments, without the quotes they had; empty for `--wrap`."""
    stdout: str
    """The pattern of its log path; see `logpath`."""
    comment: str


def details_format(between: str) -> str:
    """For `squeue -O`."""
    return ",".join(f"{name}:{width}{between}" for name, width in FIELDS.items())


def parse_details(printed: str, between: str) -> list[Details]:
    """The records that `squeue -h -O` printed with `details_format(between)`."""
    cells = printed.split(between)
    rest = cells.pop()
    if rest.strip() or len(cells) % len(FIELDS):
        raise ShapeError(f"squeue printed records that are not whole: {clean(rest, 60)!r}.")
    return [_details(cells[at : at + len(FIELDS)]) for at in range(0, len(cells), len(FIELDS))]


def _details(cells: Iterable[str]) -> Details:
    first, *others = cells
    # padded with spaces to the width of the field
    words = [first.removeprefix("\n").rstrip(" "), *(cell.rstrip(" ") for cell in others)]
    found = Details(*("" if word == "(null)" else word for word in words))
    if not found.job.isdigit():
        raise ShapeError(f"squeue printed {clean(first, 60)!r}, which is not a job.")
    return found
