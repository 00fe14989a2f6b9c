"""The ground truth of a simulation: run time and GPU use of each job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from schedmate.errors import UsageError
from schedmate.schedulers.model import Allocation, Job, Profile
from schedmate.schedulers.sim.requests import Jobs, Requests, RequestsOf

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata
    from schedmate.schedulers.sim.elastic.tables import Tables

T = TypeVar("T")

_PARALLEL = (*("duration_s", "profiles", "states", "vcs", "configs", "metadata", "categories"),)
"""The lists with one entry for each job, or none at all."""


@dataclass
class Workload:
    """Jobs in order of submission, with the truth about each at the same position."""

    name: str
    jobs: Sequence[Job]
    """A list, or `Jobs` of a trace, which are created on access."""
    duration_s: list[float]
    """Run time alone on the requested GPUs [s]."""
    profiles: list[Profile | None]
    """What profiling would show; None: the trace does not say."""
    states: list[str] = field(default_factory=list)
    """How each ended, in Slurm's terms; empty: all completed."""
    vcs: list[str] = field(default_factory=list)
    """Virtual cluster of each; it counts on a cluster that has any."""
    configs: list[str] = field(default_factory=list)
    """Model, dataset, batch size and precision, as the key of a colocation table."""
    metadata: list[WorkloadMetadata | None] = field(default_factory=list)
    """Metadata of each job's code, for the Scheduling Advisor; empty: none."""
    categories: list[str] = field(default_factory=list)
    """Of elastic jobs: adaptive, scale-gpus or rigid."""
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    """Further numbers of the trace, such as predictions."""
    tables: Tables | None = None
    """Measured step times, if the trace has amounts of work instead of durations."""
    made_up: tuple[str, ...] = ()
    """The synthetic parts, each in a few words; empty: none are known."""
    recorded: bool = False
    """Whether the trace states that a cluster recorded it."""
    standby: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """By position: windows in which jobs lend their GPUs, from and until [s]; their run time
    continues meanwhile."""
    initial: dict[int, Allocation] = field(default_factory=dict)
    """By position: allocations of jobs that run already at submission, without a decision."""
    notes: list[str] = field(default_factory=list)
    """Remarks of the importer about the trace: skipped rows, guesses."""

    @property
    def synthetic(self) -> bool:
        """Whether any part of it is synthetic; such results never count as real."""
        return bool(self.made_up)

    @property
    def origin(self) -> str:
        """`synthetic` if any part is, `recorded`, or `unstated`."""
        return "synthetic" if self.made_up else "recorded" if self.recorded else "unstated"

    def labelled(self, origin: str) -> Workload:
        """The same workload with the label `recorded` or `synthetic: WHAT`.

        Raises `UsageError` for another label, and for `recorded` if the trace states that it is
        synthetic.
        """
        kind, _, what = (part.strip() for part in origin.partition(":"))
        if kind == "synthetic" and what:
            return replace(self, made_up=tuple(dict.fromkeys((*self.made_up, what))))
        if kind != "recorded" or what:
            raise UsageError(
                f"--origin {origin!r}: write recorded, or what is synthetic, as "
                "'synthetic: durations scaled by 3'."
            )
        if self.made_up:
            raise UsageError(
                f"--origin recorded: {self.name} states that it is synthetic "
                f"({'; '.join(self.made_up)}); leave the option out."
            )
        return replace(self, recorded=True)

    def __len__(self) -> int:
        return len(self.jobs)

    def metadata_of(self, job: Job) -> WorkloadMetadata | None:
        """The metadata of a job, or None if unknown."""
        return self.metadata[job.index] if self.metadata else None

    def known_metadata(self) -> Iterable[WorkloadMetadata]:
        """The metadata of all jobs that have any."""
        return (one for one in self.metadata if one is not None)

    @property
    def requests(self) -> Requests:
        """The jobs' requests, in columns."""
        return self.jobs.requests if isinstance(self.jobs, Jobs) else RequestsOf(self.jobs)

    def select(self, positions: Iterable[int]) -> Workload:
        """The workload of these jobs alone, by position, in order of submission."""
        kept = sorted(set(positions))

        def part(values: Sequence[T]) -> list[T]:
            return [values[position] for position in kept] if values else []

        cut = copy(self)
        for name in _PARALLEL:
            setattr(cut, name, part(getattr(self, name)))
        place = {old: new for new, old in enumerate(kept)}
        cut.standby = {place[old]: one for old, one in self.standby.items() if old in place}
        cut.initial = {place[old]: one for old, one in self.initial.items() if old in place}
        if isinstance(self.jobs, Jobs):
            cut.jobs = self.jobs.select(kept)
        else:
            cut.jobs = [replace(job, index=index) for index, job in enumerate(part(self.jobs))]
        cut.columns = {name: part(values) for name, values in self.columns.items()}
        return cut

    @classmethod
    def of(
        cls,
        rows: list[tuple[float, float, int]],
        *,
        profiles: list[Profile | None] | None = None,
    ) -> Workload:
        """A workload of (submit time [s], duration [s], GPUs), in any order."""
        order = sorted(range(len(rows)), key=lambda row: rows[row][0])
        jobs = [Job(str(row), i, rows[row][0], rows[row][2]) for i, row in enumerate(order)]
        return cls(
            "jobs",
            jobs,
            [rows[row][1] for row in order],
            [None if profiles is None else profiles[row] for row in order],
        )
