"""The GPUs of each job in columns: one row for each GPU or run of GPUs of each segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.model import Allocation
from schedmate.schedulers.sim.engine.record import Segment, Segments

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Held(NamedTuple):
    """The columns of segments."""

    jobs: Ints
    starts: Floats
    ends: Floats
    works: Floats
    code: Ints
    """Which of `allocations` each has; the same one can be there more than once."""
    allocations: list[Allocation]

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Held:
        """Of what a simulation recorded."""
        if isinstance(segments, Segments):
            columns = (segments.jobs, segments.starts, segments.ends, segments.works)
            given: Sequence[Allocation] = segments.allocations
        else:
            columns = tuple([one[at] for one in segments] for at in (0, 1, 2, 4))  # type: ignore[assignment]
            given = [one.allocation for one in segments]
        jobs, starts, ends, works = columns
        # The same places come again and again as the same objects.
        number = {place: code for code, place in enumerate(dict.fromkeys(map(id, given)))}
        known = dict(zip(map(id, given), given, strict=True))
        return cls(
            np.array(jobs, np.int64),
            np.array(starts, np.float64),
            np.array(ends, np.float64),
            np.array(works, np.float64),
            np.fromiter(map(number.__getitem__, map(id, given)), np.int64, len(given)),
            [known[place] for place in number],
        )

    def each(self, measure: Callable[[Allocation], float]) -> NDArray[Any]:
        """Something of the allocation of each segment."""
        return np.array([measure(one) for one in self.allocations])[self.code]


class Pieces:
    """Parts of allocations, as tuples of whole numbers: GPUs, runs of GPUs or nodes."""

    def __init__(
        self, held: Held, parts: Callable[[Allocation], Iterator[tuple[int, ...]]]
    ) -> None:
        found = [
            (code, *one) for code, given in enumerate(held.allocations) for one in parts(given)
        ]
        self._code, *self.columns = (
            np.array(found, np.int64).T if found else np.zeros((2, 0), np.int64)
        )
        self._held = held

    def rows(self, chosen: NDArray[np.bool_] | None = None) -> tuple[Ints, list[Ints]]:
        """A row for each part (of those `chosen`) that a segment has: its position, the part."""
        code, columns = self._code, list(self.columns)
        if chosen is not None:
            code, columns = code[chosen], [one[chosen] for one in columns]
        many = np.bincount(code, minlength=len(self._held.allocations))
        first = np.cumsum(many) - many
        each = many[self._held.code]
        segment = np.repeat(np.arange(len(each)), each)
        within = np.arange(len(segment)) - np.repeat(np.cumsum(each) - each, each)
        at = first[self._held.code[segment]] + within
        return segment, [one[at] for one in columns]

    def count(self) -> int:
        """The number of rows."""
        many = np.bincount(self._code, minlength=len(self._held.allocations))
        return int(many[self._held.code].sum())
