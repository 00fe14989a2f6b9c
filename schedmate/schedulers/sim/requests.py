"""The requests of jobs in columns: 14 million of them fit into memory, unlike objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.model import Job


@cache
def further() -> dict[str, Any]:
    """Requests besides GPUs, each with its default."""
    known = {
        one.name: one.default_factory() if one.default_factory is not MISSING else one.default
        for one in fields(Job)
    }
    names = list(known)
    asked = names[: names.index("forecast")]  # the later fields are observations
    return {name: known[name] for name in asked if name not in _OWN}


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
        known = self._ids.tolist()
        return [f"line{line}" for line in known] if self._ids.dtype.kind == "i" else known

    def values(self, name: str) -> Sequence[Any] | None:
        """A field of `further` for every job; None if no job requests it."""
        return self._more.get(name)

    def column(self, name: str) -> Sequence[Any]:
        """A field of `further` for every job, with its default."""
        found = self.values(name)
        return [further()[name]] * len(self) if found is None else found

    def only(self, known: Collection[str]) -> bool:
        """Whether jobs request nothing but these of `further`."""
        return all(name in known or self.values(name) is None for name in further())

    def select(self, kept: Sequence[int]) -> Requests:
        """The requests of the jobs at these positions."""
        more = {name: [values[at] for at in kept] for name, values in self._more.items()}
        return Requests(self._ids[kept], self.submit_s[kept], self.gpus[kept], more)

    def jobs(self) -> list[Job]:
        """A new object for each job."""
        said = [self._more.get(name, repeat(default)) for name, default in further().items()]
        count = range(len(self))
        times, gpus = self.submit_s.tolist(), self.gpus.tolist()
        return list(map(Job, self.names(), count, times, gpus, *said))


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
            usual = values.count(further()[name]) == len(values)
            self._seen[name] = None if usual else values
        return self._seen[name]

    def select(self, kept: Sequence[int]) -> Requests:
        """See `Requests.select`."""
        more = {name: values for name in further() if (values := self.values(name)) is not None}
        ids = np.array(self.names(), np.dtypes.StringDType())
        return Requests(ids, self.submit_s, self.gpus, more).select(kept)


class Jobs(Sequence[Job]):
    """The jobs of a trace, created from its columns on first access."""

    __slots__ = ("_jobs", "_requests")

    def __init__(self, requests: Requests) -> None:
        self._requests: Requests | None = requests
        self._jobs: list[Job] = []

    @property
    def requests(self) -> Requests:
        """Their present requests, as jobs can be changed once they exist."""
        return RequestsOf(self._jobs) if self._requests is None else self._requests

    def to_jobs(self) -> list[Job]:
        """All of them; from here on they are kept, and the columns are not."""
        if self._requests is not None:
            self._jobs, self._requests = self._requests.jobs(), None
        return self._jobs

    def select(self, kept: Sequence[int]) -> Jobs:
        """New jobs like those at these positions, which are in order."""
        return Jobs(self.requests.select(kept))

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
