"""What jobs ask for, in columns: 14 million of them fit where as many objects would not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.model import Job


@cache
def further() -> dict[str, Any]:
    """What a job can ask for besides GPUs, each with what it says when it does not."""
    known = {
        one.name: one.default_factory() if one.default_factory is not MISSING else one.default
        for one in fields(Job)
    }
    names = list(known)
    asked = names[: names.index("forecast")]  # from there on it is what became of it
    return {name: known[name] for name in asked if name not in _OWN}


_OWN = ("id", "index", "submit_time", "gpus")


@dataclass(frozen=True)
class Requests:
    """Columns by position in order of submission."""

    ids: NDArray[Any]
    """The names of the jobs, or the lines of those that have none."""
    submit_s: NDArray[np.float64]
    gpus: NDArray[np.int64]
    more: Mapping[str, Sequence[Any]]
    """Those of `further` in which a job differs from one that asks for nothing else."""

    def __len__(self) -> int:
        return len(self.submit_s)

    def column(self, name: str) -> Sequence[Any]:
        """One of `further`, for every job."""
        found = self.more.get(name)
        return [further()[name]] * len(self) if found is None else found

    def select(self, kept: Sequence[int]) -> Requests:
        """Those of the jobs at these positions."""
        return Requests(
            self.ids[kept],
            self.submit_s[kept],
            self.gpus[kept],
            {name: [values[at] for at in kept] for name, values in self.more.items()},
        )

    def names(self) -> list[str]:
        """What the jobs are called."""
        known = self.ids.tolist()
        return [f"line{line}" for line in known] if self.ids.dtype.kind == "i" else known

    def jobs(self) -> list[Job]:
        """A new object for each job."""
        said = [self.more.get(name, repeat(default)) for name, default in further().items()]
        count = range(len(self))
        return list(map(Job, self.names(), count, self.submit_s.tolist(), self.gpus.tolist(), *said))

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Requests:
        """Those of jobs that are there already."""
        count = len(jobs)
        columns = {name: list(map(attrgetter(name), jobs)) for name in further()}
        return cls(
            np.array([job.id for job in jobs], np.dtypes.StringDType()),
            np.fromiter(map(attrgetter("submit_time"), jobs), np.float64, count),
            np.fromiter(map(attrgetter("gpus"), jobs), np.int64, count),
            {
                name: values
                for name, values in columns.items()
                if values.count(further()[name]) < count
            },
        )


class Jobs(Sequence[Job]):
    """The jobs of a trace, made of its columns when the first of them is looked at."""

    __slots__ = ("_jobs", "_requests")

    def __init__(self, requests: Requests) -> None:
        self._requests: Requests | None = requests
        self._jobs: list[Job] = []

    @property
    def requests(self) -> Requests:
        """What they ask for now, as jobs can be changed once they are made."""
        return Requests.of(self._jobs) if self._requests is None else self._requests

    def made(self) -> list[Job]:
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
        return iter(self.made())

    @overload
    def __getitem__(self, at: int) -> Job: ...
    @overload
    def __getitem__(self, at: slice) -> list[Job]: ...
    def __getitem__(self, at: int | slice) -> Job | list[Job]:
        return self.made()[at]
