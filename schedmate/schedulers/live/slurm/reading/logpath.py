"""The output file of a job: the pattern of `sbatch -o`, filled in (sbatch(1))."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

_SYMBOL = re.compile(r"%(?:%|(\d{0,9})([AabJjNnstux]))")
_WIDEST = 10
"""Slurm pads a number to ten digits at most."""


class Run(NamedTuple):
    """The fields of a job that its log pattern can use; `task` is its index in an array."""

    job: str
    name: str
    user: str
    node: str
    array: str | None = None
    task: int | None = None


def log_path(pattern: str, workdir: str, run: Run) -> PurePosixPath:
    """The absolute path of a batch job's log.

    An empty pattern is Slurm's default, `slurm-%j.out`, for arrays `slurm-%A_%a.out`. A symbol that
    Slurm does not know stays unchanged; a backslash anywhere turns all of them off.
    """
    if not pattern:
        pattern = "slurm-%j.out" if run.task is None else "slurm-%A_%a.out"
    if "\\" in pattern:
        filled = pattern.replace("\\", "")
    else:
        filled = _SYMBOL.sub(lambda match: _value(match, run), pattern)
    return PurePosixPath(workdir or "/") / filled


def _value(match: re.Match[str], run: Run) -> str:
    symbol = match[2]
    if symbol is None:  # %%
        return "%"
    words = {
        "A": run.array or run.job,
        "a": str(4294967294 if run.task is None else run.task),
        "b": "" if run.task is None else str(run.task % 10),
        "J": run.job,
        "j": run.job,
        "N": run.node.partition(".")[0],
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": run.user,
        "x": run.name,
    }
    value = words[symbol]
    return value.zfill(min(int(match[1] or 0), _WIDEST)) if value.isdigit() else value
