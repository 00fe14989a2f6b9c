"""Scaling jobs down to launch another, and up where GPUs are idle (Arena, section 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from schedmate.schedulers.model import Job

Size = tuple[str, int]
"""GPU type and number of GPUs."""


class Change(NamedTuple):
    """A job gets other GPUs."""

    job: Job
    size: Size
    worth: float
    """Gain of the objective; negative for a loss."""


Options = Callable[[Job], dict[Size, float]]
"""Throughput of a job by size, over that of the size it asks for."""


@dataclass
class Allocations:
    """Who has how many GPUs of which type, while a round decides."""

    free: dict[str, int]
    held: dict[Job, Size] = field(default_factory=dict)
    pinned: set[Job] = field(default_factory=set)
    """Jobs that are being started or moved: they are left alone."""

    def set(self, job: Job, size: Size | None) -> None:
        """Give a job these GPUs in place of what it has."""
        before = self.held.pop(job, None)
        if before is not None:
            self.free[before[0]] += before[1]
        if size is not None:
            self.free[size[0]] -= size[1]
            self.held[job] = size

    def fits(self, size: Size, besides: Size | None = None) -> bool:
        """Whether so many GPUs are free, with those of `besides` given back."""
        left = self.free.get(size[0], 0)
        if besides is not None and besides[0] == size[0]:
            left += besides[1]
        return size[1] <= left

    def copy(self) -> Allocations:
        """The same, to try something on."""
        return Allocations(dict(self.free), dict(self.held), set(self.pinned))


def best_fit(job: Job, options: dict[Size, float], now: Allocations) -> Size | None:
    """The size with the most throughput a GPU among those that are free, the largest of equals.

    What is idle once everybody is launched goes to whoever gains most from it (`scale_up`).
    """
    fitting = [size for size in options if now.fits(size)]
    return max(fitting, key=lambda size: (options[size] / size[1], size[1]), default=None)


def launch(
    job: Job, options: Options, now: Allocations, depth: int, weight: Callable[[Job], float]
) -> Allocations | None:
    """The allocations with `job` launched, after at most `depth` others were scaled down.

    None where it cannot be: launched jobs run to completion and are never scaled to nothing.
    """
    trial = now.copy()
    own = options(job)
    for _ in range(depth + 1):
        size = best_fit(job, own, trial)
        if size is not None:
            trial.set(job, size)
            return trial
        change = max(
            _smaller(trial, options, {gpu_type for gpu_type, _ in own}, weight),
            key=lambda one: (one.worth, -one.job.index),
            default=None,
        )
        if change is None:
            return None
        trial.set(change.job, change.size)
    return None


def _smaller(
    now: Allocations, options: Options, types: set[str], weight: Callable[[Job], float]
) -> Iterator[Change]:
    """Ways to free GPUs of the types: a job gets half of them, or as many of another type.

    Their worth is the loss of the objective for each GPU that is freed.
    """
    for job, size in now.held.items():
        gpu_type, gpus = size
        if job in now.pinned or gpu_type not in types:
            continue
        speeds = options(job)
        present = speeds.get(size, 0.0)
        for other, speed in speeds.items():
            freed = gpus - other[1] if other[0] == gpu_type else gpus
            halved = other == (gpu_type, gpus // 2)
            moved = other[0] != gpu_type and other[1] <= gpus and now.fits(other)
            if freed > 0 and (halved or moved):
                yield Change(job, other, weight(job) * (speed - present) / freed)


def scale_up(
    options: Options, now: Allocations, depth: int, weight: Callable[[Job], float], least: float
) -> None:
    """Give idle GPUs to the jobs that gain most from them, at most `depth` times.

    A change has to gain at least the part `least` of the job's throughput.
    """
    for _ in range(depth):
        best: Change | None = None
        for job, size in now.held.items():
            if job in now.pinned:
                continue
            speeds = options(job)
            present = speeds.get(size, 0.0)
            for other, speed in speeds.items():
                grown = other[0] != size[0] or other[1] == 2 * size[1]
                if not grown or speed < present * (1 + least) or not now.fits(other, size):
                    continue
                change = Change(job, other, weight(job) * (speed - present))
                if best is None or change.worth > best.worth:
                    best = change
        if best is None:
            return
        now.set(best.job, best.size)
        now.pinned.add(best.job)
