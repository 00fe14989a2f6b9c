"""The record of a simulation: the GPUs of every job over time, its outcome, and rare events."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.model import NEVER, Allocation
from schedmate.schedulers.sim.world import Again, Failure


class Eviction(NamedTuple):
    """A job was taken off its GPUs."""

    job: int
    """Position in the workload."""
    asked: float
    """When it was asked to stop [s]."""
    left: float
    """When its GPUs were free [s]."""
    grace_s: float
    """Time that it had to stop [s]."""
    done: float
    """Work done up to then, in the unit of the physics."""
    kept: float
    """The part of it from which it resumes."""
    saves: bool
    """Whether it saved a checkpoint on the request to stop."""


class Hold(NamedTuple):
    """A job held GPUs on which it was being started, and did not run yet."""

    job: int
    start: float
    end: float
    allocation: Allocation
    moved: bool
    """Whether it moved there; else the move was cancelled."""


class Loan(NamedTuple):
    """A job lent its GPUs."""

    job: int
    start: float
    called: float
    """When it reclaimed them [s]."""
    back: float
    """When the last borrower had left them and it used them again, or its own end [s]."""
    allocation: Allocation
    done: float
    """Work that it had done at `start`."""


class Outage(NamedTuple):
    """A node was not to be used."""

    node: int
    closed: float
    """Time from which nothing new could start there [s]."""
    down: float
    """Time from which nothing ran there [s]."""
    up: float
    """When it was back; infinity: not while the simulation ran [s]."""


class Dropped(NamedTuple):
    """When a job was dropped [s], and the policy's reason."""

    time: float
    why: str


@dataclass(slots=True)
class Ledger:
    """Rare events of a run: evictions, loans, moves, outages, drops; empty if there were none."""

    evictions: dict[int, Eviction] = field(default_factory=dict)
    """By position of the segment that ended so."""
    holds: list[Hold] = field(default_factory=list)
    handovers: dict[tuple[int, float], float] = field(default_factory=dict)
    """Pause of a job that moved to GPUs on which it had been started, by position in the workload
    and time [s]."""
    loans: list[Loan] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    dropped: dict[int, Dropped] = field(default_factory=dict)
    """By position in the workload."""
    refused: dict[str, int] = field(default_factory=dict)
    """Number of refusals by reason."""
    horizon: float = NEVER
    """When the simulation was stopped at its horizon; infinity: it ran to its end [s]."""


EMPTY_LEDGER = Ledger()
"""The ledger of a run in which none of this could happen."""


# The record of a simulation: the GPUs of every job over time, and its outcome.


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

    def append(self, segment: Segment) -> None:
        """Add one at the end."""
        self.jobs.append(segment.job)
        self.starts.append(segment.start)
        self.ends.append(segment.end)
        self.allocations.append(segment.allocation)
        self.works.append(segment.work)
        self.kinds.append(KINDS.index(segment.kind))

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
    ledger: Ledger = EMPTY_LEDGER
    """Rare events; shared and read-only for a run that had none."""
    assumed_s: Sequence[float] = ()
    """The last run time that the policy assumed for each job; infinity: none [s]."""
    counts: Mapping[str, Sequence[int]] = {}
    """`preemptions`, `evictions` and `failures` of each job; empty if there were none."""


# The GPUs of each job in columns: one row for each GPU or run of GPUs of each segment.


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class HeldGpus(NamedTuple):
    """The columns of segments."""

    jobs: Ints
    starts: Floats
    ends: Floats
    works: Floats
    code: Ints
    """Which of `allocations` each has; the same one can be there more than once."""
    allocations: list[Allocation]

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> HeldGpus:
        """Of what a simulation recorded."""
        if isinstance(segments, Segments):
            columns = (segments.jobs, segments.starts, segments.ends, segments.works)
            allocations: Sequence[Allocation] = segments.allocations
        else:
            columns = tuple([one[at] for one in segments] for at in (0, 1, 2, 4))  # type: ignore[assignment]
            allocations = [one.allocation for one in segments]
        jobs, starts, ends, works = columns
        # The same places come again and again as the same objects.
        number = {place: code for code, place in enumerate(dict.fromkeys(map(id, allocations)))}
        by_identity = dict(zip(map(id, allocations), allocations, strict=True))
        return cls(
            np.array(jobs, np.int64),
            np.array(starts, np.float64),
            np.array(ends, np.float64),
            np.array(works, np.float64),
            np.fromiter(map(number.__getitem__, map(id, allocations)), np.int64, len(allocations)),
            [by_identity[place] for place in number],
        )

    def each(self, measure: Callable[[Allocation], float]) -> NDArray[Any]:
        """Something of the allocation of each segment."""
        return np.array([measure(one) for one in self.allocations])[self.code]


class HeldPieces:
    """Parts of allocations, as tuples of whole numbers: GPUs, runs of GPUs or nodes."""

    def __init__(
        self, holdings: HeldGpus, parts: Callable[[Allocation], Iterator[tuple[int, ...]]]
    ) -> None:
        rows = [
            (code, *one)
            for code, allocation in enumerate(holdings.allocations)
            for one in parts(allocation)
        ]
        self._code, *self.columns = (
            np.array(rows, np.int64).T if rows else np.zeros((2, 0), np.int64)
        )
        self._held = holdings

    def rows(self, chosen: NDArray[np.bool_] | None = None) -> tuple[Ints, list[Ints]]:
        """A row for each part (of those `chosen`) that a segment has: its position, the part."""
        code, columns = self._code, list(self.columns)
        if chosen is not None:
            code, columns = code[chosen], [column[chosen] for column in columns]
        many = np.bincount(code, minlength=len(self._held.allocations))
        first = np.cumsum(many) - many
        each = many[self._held.code]
        segment = np.repeat(np.arange(len(each)), each)
        within = np.arange(len(segment)) - np.repeat(np.cumsum(each) - each, each)
        at = first[self._held.code[segment]] + within
        return segment, [column[at] for column in columns]

    def count(self) -> int:
        """The number of rows."""
        many = np.bincount(self._code, minlength=len(self._held.allocations))
        return int(many[self._held.code].sum())
