"""The queue from the text output of `squeue`, which costs a tenth of its JSON.

The format has nothing that a user writes (names, comments, directories), so that no job can pretend
to be another: such fields are read once for each job, from accounting.
"""

from __future__ import annotations

from typing import NamedTuple

from schedmate.schedulers.live.slurm.reading.hostlist import expand
from schedmate.schedulers.live.slurm.reading.shapes import ShapeError
from schedmate.terminal import clean

FORMAT = "%A|%F|%K|%T|%Q|%V|%S|%u|%P|%N|%r"
"""For `squeue -o`: id, array, task, state, priority, submitted, started, user, partition, nodes,
reason. Times are seconds since the epoch with SLURM_TIME_FORMAT=%s."""

_NONE = frozenset({"", "N/A", "Unknown", "None", "(null)"})


class Queued(NamedTuple):
    """One record of the queue: a job, a task of an array, or all that is pending of an array."""

    job: str
    array: str
    """The id of the array; for a single job its own."""
    task: int | None
    """Its index in the array; None for a single job and for the pending part of an array."""
    state: str
    priority: int
    submitted: float | None
    started: float | None
    user: str
    partitions: tuple[str, ...]
    nodes: tuple[str, ...]
    reason: str

    @property
    def held(self) -> bool:
        """Whether it is held."""
        return self.reason.startswith("JobHeld") or "held state" in self.reason


def parse_queue(text: str) -> list[Queued]:
    """The records of `squeue -h -o FORMAT`; raises `ShapeError` for any other text."""
    return [_record(line) for line in text.splitlines() if line.strip()]


def _record(line: str) -> Queued:
    cells = line.split("|", 10)
    if len(cells) != 11 or not cells[0].isdigit() or not cells[1].isdigit():
        raise ShapeError(f"squeue printed {clean(line, 80)!r}, which is not a job.")
    try:
        return Queued(
            job=cells[0],
            array=cells[1],
            task=int(cells[2]) if cells[2].isdigit() else None,
            state=cells[3],
            priority=int(cells[4]),
            submitted=_when(cells[5]),
            # the controller's guess while the job is pending
            started=None if cells[3] == "PENDING" else _when(cells[6]),
            user=cells[7],
            partitions=tuple(cells[8].split(",")),
            nodes=expand(cells[9]),
            reason=cells[10].strip(),
        )
    except ValueError:
        raise ShapeError(f"squeue printed {clean(line, 80)!r}, which is not a job.") from None


def _when(cell: str) -> float | None:
    return None if cell in _NONE else float(cell)


def parse_factors(text: str) -> dict[str, int]:
    """SiteFactor by job from `sprio -h -o "%i %S"`; an array's pending tasks are one line."""
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = line.split()
        job = cells[0].partition("_")[0]
        try:
            if len(cells) != 2 or not job.isdigit():
                raise ValueError
            found[job] = int(cells[1])
        except ValueError:
            raise ShapeError(f"sprio printed {clean(line, 80)!r}, which is not a factor.") from None
    return found
