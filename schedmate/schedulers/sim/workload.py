"""The jobs of a simulation: their requests in columns, and what only it knows of them.

The ground truth is the run time and GPU use of each job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import UsageError
from schedmate.schedulers.model import Allocation, Job, Profile, gpus_in

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata
    from schedmate.schedulers.sim.elastic import Tables


@cache
def request_defaults() -> dict[str, Any]:
    """Requests besides GPUs, each with its default."""
    defaults = {
        field_.name: field_.default_factory()
        if field_.default_factory is not MISSING
        else field_.default
        for field_ in fields(Job)
    }
    names = list(defaults)
    asked = names[: names.index("forecast")]  # the later fields are observations
    return {name: defaults[name] for name in asked if name not in _OWN}


_OWN = ("id", "index", "submit_time", "gpus")


class Requests:
    """Columns by position in order of submission."""

    def __init__(
        self,
        ids: NDArray[Any],
        submit_s: NDArray[np.float64],
        gpus: NDArray[np.int64],
        more: Mapping[str, Sequence[Any]],
    ) -> None:
        self.submit_s = submit_s
        """[s]"""
        self.gpus = gpus
        self._ids = ids
        self._more = more

    def __len__(self) -> int:
        return len(self.submit_s)

    def names(self) -> list[str]:
        """Names of the jobs, or their lines if the trace has no names."""
        ids = self._ids.tolist()
        return [f"line{line}" for line in ids] if self._ids.dtype.kind == "i" else ids

    def values(self, name: str) -> Sequence[Any] | None:
        """A field of `further` for every job; None if no job requests it."""
        return self._more.get(name)

    def column(self, name: str) -> Sequence[Any]:
        """A field of `further` for every job, with its default."""
        values = self.values(name)
        return [request_defaults()[name]] * len(self) if values is None else values

    def only(self, names: Collection[str]) -> bool:
        """Whether jobs request nothing but these of `further`."""
        return all(name in names or self.values(name) is None for name in request_defaults())

    def select(self, positions: Sequence[int]) -> Requests:
        """The requests of the jobs at these positions."""
        more = {name: [values[at] for at in positions] for name, values in self._more.items()}
        return Requests(self._ids[positions], self.submit_s[positions], self.gpus[positions], more)

    def jobs(self) -> list[Job]:
        """A new object for each job."""
        columns = [
            self._more.get(name, repeat(default)) for name, default in request_defaults().items()
        ]
        count = range(len(self))
        times, gpus = self.submit_s.tolist(), self.gpus.tolist()
        return list(map(Job, self.names(), count, times, gpus, *columns))


class RequestsOf(Requests):
    """The requests of existing job objects, read on demand."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        count = len(jobs)
        self._jobs = jobs
        self._seen: dict[str, Sequence[Any] | None] = {}
        self.submit_s = np.fromiter(map(attrgetter("submit_time"), jobs), np.float64, count)
        self.gpus = np.fromiter(map(attrgetter("gpus"), jobs), np.int64, count)

    def names(self) -> list[str]:
        """See `Requests.names`."""
        return [job.id for job in self._jobs]

    def values(self, name: str) -> Sequence[Any] | None:
        """See `Requests.values`."""
        if name not in self._seen:
            values = list(map(attrgetter(name), self._jobs))
            usual = values.count(request_defaults()[name]) == len(values)
            self._seen[name] = None if usual else values
        return self._seen[name]

    def select(self, positions: Sequence[int]) -> Requests:
        """See `Requests.select`."""
        more = {
            name: values for name in request_defaults() if (values := self.values(name)) is not None
        }
        ids = np.array(self.names(), np.dtypes.StringDType())
        return Requests(ids, self.submit_s, self.gpus, more).select(positions)


class Jobs(Sequence[Job]):
    """The jobs of a trace, created from its columns on first access."""

    __slots__ = ("_jobs", "_requests")

    def __init__(self, requests: Requests) -> None:
        self._requests: Requests | None = requests
        self._jobs: list[Job] = []

    @property
    def requests(self) -> Requests:
        """The present requests of the jobs, which can be changed once they exist as objects."""
        return RequestsOf(self._jobs) if self._requests is None else self._requests

    def to_jobs(self) -> list[Job]:
        """All of them; from here on they are kept, and the columns are not."""
        if self._requests is not None:
            self._jobs, self._requests = self._requests.jobs(), None
        return self._jobs

    def select(self, positions: Sequence[int]) -> Jobs:
        """New jobs like those at these positions, which are in order."""
        return Jobs(self.requests.select(positions))

    def __len__(self) -> int:
        return len(self._jobs) if self._requests is None else len(self._requests)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.to_jobs())

    @overload
    def __getitem__(self, at: int) -> Job: ...
    @overload
    def __getitem__(self, at: slice) -> list[Job]: ...
    def __getitem__(self, at: int | slice) -> Job | list[Job]:
        return self.to_jobs()[at]


# The ground truth of a simulation: run time and GPU use of each job.


T = TypeVar("T")


class Phase(NamedTuple):
    """A part of a job's work that needs only some of its GPUs, as rollout or update in RL."""

    work_s: float
    """Its length in every round of the phases [s]."""
    gpus: int
    """The first, third, ... phase uses the job's first GPUs, by node and number, the others its
    last."""


class Turn(NamedTuple):
    """The phase that a job is in."""

    idle: Allocation
    """The GPUs that it does not use."""
    until: float
    """Work at which the phase ends [s]."""


def turn_at(phases: Sequence[Phase], done: float, allocation: Allocation) -> Turn:
    """The phase of a job that repeats these in turn, after this much work [s]."""
    hair = 1e-9 * max(1.0, done)
    round_s = sum(phase.work_s for phase in phases)
    until = (done + hair) // round_s * round_s
    number = 0
    for number, phase in enumerate(phases):  # noqa: B007 - the last one, up to rounding
        until += phase.work_s
        if until > done + hair:
            break
    spare = gpus_in(allocation) - phases[number].gpus
    idle: dict[int, int] = {}
    for node, mask in allocation if number % 2 else reversed(allocation):
        while spare > 0 and (left := mask & ~idle.get(node, 0)):
            gpu = left & -left if number % 2 else 1 << left.bit_length() - 1
            idle[node] = idle.get(node, 0) | gpu
            spare -= 1
    return Turn(tuple(sorted(idle.items())), until)


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
    phases: dict[int, tuple[Phase, ...]] = field(default_factory=dict)
    """By position: phases that jobs repeat until their work is done."""
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
        chosen = sorted(set(positions))

        def part(values: Sequence[T]) -> list[T]:
            return [values[position] for position in chosen] if values else []

        cut = copy(self)
        for name in _PARALLEL:
            setattr(cut, name, part(getattr(self, name)))
        place = {old: new for new, old in enumerate(chosen)}
        for name in ("standby", "phases", "initial"):
            theirs = getattr(self, name).items()
            setattr(cut, name, {place[old]: one for old, one in theirs if old in place})
        if isinstance(self.jobs, Jobs):
            cut.jobs = self.jobs.select(chosen)
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
