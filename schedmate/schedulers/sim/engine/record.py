"""The record of a simulation: the GPUs of every job over time, and its outcome."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, overload

from schedmate.schedulers.model import Allocation
from schedmate.schedulers.sim.engine.ledger import NOTHING, Ledger
from schedmate.schedulers.sim.world.faults import Again, Failure

COUNTED = ("preemptions", "evictions", "failures")
"""Counters of each job."""
KINDS = ("run", "packed", "profile", "loan")


class Segment(NamedTuple):
    """A job held GPUs from `start` to `end` and did `work` of its total."""

    job: int
    """Position in the workload."""
    start: float
    end: float
    allocation: Allocation
    work: float
    """In the unit of the physics, by default [s]. Work done while profiling is lost, unless the job
    ends then."""
    kind: str
    """`run`, `packed` (joined another job), `profile` or `loan` (on borrowed GPUs)."""


class Segments(Sequence[Segment]):
    """Segments in the order of their ends, in columns: some fifty bytes each."""

    __slots__ = ("allocations", "ends", "jobs", "kinds", "starts", "works")

    def __init__(self) -> None:
        self.jobs = array("q")
        self.starts = array("d")
        self.ends = array("d")
        self.works = array("d")
        self.allocations: list[Allocation] = []
        self.kinds = bytearray()
        """Positions in `KINDS`."""

    def append(self, one: Segment) -> None:
        """Add one at the end."""
        self.jobs.append(one.job)
        self.starts.append(one.start)
        self.ends.append(one.end)
        self.allocations.append(one.allocation)
        self.works.append(one.work)
        self.kinds.append(KINDS.index(one.kind))

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Segment]:
        kinds = (KINDS[kind] for kind in self.kinds)
        columns = (self.jobs, self.starts, self.ends, self.allocations, self.works, kinds)
        return map(Segment._make, zip(*columns, strict=True))

    @overload
    def __getitem__(self, at: int) -> Segment: ...
    @overload
    def __getitem__(self, at: slice) -> list[Segment]: ...
    def __getitem__(self, at: int | slice) -> Segment | list[Segment]:
        if isinstance(at, slice):
            return [self[position] for position in range(*at.indices(len(self)))]
        return Segment(
            self.jobs[at],
            self.starts[at],
            self.ends[at],
            self.allocations[at],
            self.works[at],
            KINDS[self.kinds[at]],
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Segments):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


class Outcome(NamedTuple):
    """The record of a run; lists are by position in the workload."""

    first_start: Sequence[float]
    """Infinity: never [s]."""
    end: Sequence[float]
    """Infinity: it had not ended when the simulation did, or was dropped [s]."""
    held_s: Sequence[float]
    """Time for which the job held GPUs, in profiling too [s]."""
    segments: Segments
    events: int
    decisions: dict[str, int]
    """How many of each kind were carried out."""
    failures: dict[int, tuple[Failure, Again | None]]
    """By position of the segment that ended with it: a failure of a job, by itself or with its
    node, and how it resumed; None: it did not."""
    work: Sequence[float]
    """What each job needs, in the unit of the physics."""
    bad_estimates: int
    """Estimates that were no positive number, and taken as an abstention."""
    ledger: Ledger = NOTHING
    """Rare events; shared and read-only for a run that had none."""
    assumed_s: Sequence[float] = ()
    """The last run time that the policy assumed for each job; infinity: none [s]."""
    counts: Mapping[str, Sequence[int]] = {}
    """`preemptions`, `evictions` and `failures` of each job; empty if there were none."""
