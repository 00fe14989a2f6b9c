"""Start delays: the time from the decision to start a job to its first work, as measured.

`samples_of` takes them from accounting, a queue of `schedmate ray` knows its own; `StartDelays.fit`
keeps their distribution by size, which `schedmate simulate --start-delays` draws from.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schedmate.base.errors import InputError, reason_of
from schedmate.base.inputs import fault_sentence
from schedmate.base.reading import MOST_SETTINGS, read_text
from schedmate.base.terminal import counted
from schedmate.schedulers.free import bits
from schedmate.schedulers.model import Allocation, gpus_in

SCHEMA = "schedmate.start-delays/v1"
SIZES = (1, 8)
"""Upper limits of the groups by GPUs; the last group is everything larger."""
BINS = 20
LEAST = BINS
"""Fewest starts of a group of its own; the jobs of a smaller one are drawn from all starts."""
LONGEST_S = 600.0
"""What started later on an idle cluster was held, had a begin time or depended on another [s]."""


class Sample(NamedTuple):
    """One measured start."""

    gpus: float
    delay_s: float
    kept: bool | None = None
    """Whether its GPUs were last held by a job of that size, whose runner process a queue may have
    kept for it; None: unknown."""


class Group(BaseModel):
    """Start delays of jobs of some sizes, on kept runners or new ones."""

    model_config = ConfigDict(extra="forbid")

    kept: bool | None = Field(None, description="Null: whether or not a runner was kept")
    up_to_gpus: int | None = Field(gt=0, description="Null: jobs of any size")
    starts: int = Field(gt=0, description="Measured starts")
    mean_s: float = Field(ge=0, le=LONGEST_S, allow_inf_nan=False)
    twentieths_s: list[float] = Field(
        min_length=BINS, max_length=BINS, description="Mean of each twentieth, shortest first"
    )

    @model_validator(mode="after")
    def _is_a_distribution(self) -> Self:
        values = self.twentieths_s
        if not all(0.0 <= one <= LONGEST_S for one in values) or values != sorted(values):
            raise ValueError(f"'twentieths_s' have to rise from 0 to {LONGEST_S:g} at most")
        return self


class StartDelays(BaseModel):
    """Measured start delays, by size of the job; the last group is of all jobs."""

    model_config = ConfigDict(extra="forbid")

    schema_: str = Field(SCHEMA, alias="schema", pattern=f"^{SCHEMA}$")
    source: str
    groups: list[Group] = Field(min_length=1)

    @classmethod
    def fit(cls, samples: Iterable[Sample], source: str) -> StartDelays:
        """Raises `InputError` for fewer samples than `LEAST`.

        Where it is known which runners were kept, that tells starts apart, else their size does.
        """
        measured = [one for one in samples if 0.0 <= one.delay_s <= LONGEST_S]
        if len(measured) < LEAST:
            raise InputError(
                f"{source} has {counted(len(measured), 'start')} that can be measured, on free "
                f"GPUs with no other job waiting; {LEAST} are needed: name a longer record."
            )
        ways: list[tuple[bool | None, int | None]] = [(None, size) for size in SIZES]
        if any(one.kept is not None for one in measured):
            ways = [(True, None), (False, None)]
        groups: list[Group] = []
        below = 0.0
        for kept, size in [*ways, (None, None)]:
            most = np.inf if size is None else float(size)
            held = [
                one.delay_s
                for one in measured
                if kept in (None, one.kept) and (size is None or below < one.gpus <= most)
            ]
            below = most
            if len(held) >= LEAST or (kept is not None and held):
                groups.append(_group(held, kept, size))
        return cls(source=source, groups=groups)

    @classmethod
    def read(cls, path: Path) -> StartDelays:
        """From the file that `schedmate traces delays` wrote; raises `InputError` for another."""
        try:
            return cls.model_validate(json.loads(read_text(path, most=MOST_SETTINGS)))
        except ValidationError as error:
            raise InputError(f"{path}: {fault_sentence(error, place='it')}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(
                f"{path} has no start delays ({reason_of(error)}); `schedmate traces delays` "
                "writes such a file."
            ) from None

    def takes_s(self, job: str, count: int, gpus: int, kept: bool) -> float:
        """The delay of the `count`-th start of the job with this id [s]; `kept` as of `Sample`."""
        below = 0
        group = self.groups[-1]
        for one in self.groups:
            if one.kept is kept or (one.up_to_gpus is not None and below < gpus <= one.up_to_gpus):
                group = one
                break
            below = one.up_to_gpus or below
        draw = random.Random(f"start/{job}/{count}")  # noqa: S311 - an experiment
        return draw.choice(group.twentieths_s)


def _group(delays: list[float], kept: bool | None, size: int | None) -> Group:
    parts = np.array_split(np.sort(delays), BINS) if len(delays) >= BINS else []
    means = [float(part.mean()) for part in parts] or [float(np.mean(delays))] * BINS
    return Group(
        kept=kept,
        up_to_gpus=size,
        starts=len(delays),
        mean_s=round(float(np.mean(delays)), 4),
        twentieths_s=[round(one, 4) for one in means],
    )


class Runners:
    """Which GPUs were last held by a job of which size, as a simulation goes on."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], int] = {}

    def kept(self, allocation: Allocation) -> bool:
        """Whether the runner of a job of the same size can be there; the GPUs are held from now."""
        gpus = gpus_in(allocation)
        places = [(node, place) for node, mask in allocation for place in bits(mask)]
        was = all(self._held.get(one) == gpus for one in places)
        self._held |= dict.fromkeys(places, gpus)
        return was


# From a queue that keeps runners, by node: what it says of each start.


class Begun(NamedTuple):
    """A run of a queue; times in seconds."""

    decided: float
    started: float
    ended: float
    places: tuple[tuple[str, float], ...]
    """Nodes and the number of GPUs there."""


def samples_of_queue(runs: Iterable[Begun]) -> list[Sample]:
    """A start is on a kept runner if one of its size is idle on each of its nodes.

    A runner stays where it is until other jobs need its GPUs, of which a node has as many as were
    ever held there at once.
    """
    all_runs = sorted(runs)
    events = sorted(
        [(run.ended, 0, n) for n, run in enumerate(all_runs)]
        + [(run.decided, 1, n) for n, run in enumerate(all_runs)]
    )
    held: dict[str, float] = {}
    size: dict[str, float] = {}
    for _, begins, n in events:
        for node, gpus in all_runs[n].places:
            held[node] = held.get(node, 0.0) + (gpus if begins else -gpus)
            size[node] = max(size.get(node, 0.0), held[node])
    held = {}
    idle: dict[str, list[float]] = {node: [] for node in size}
    samples: list[Sample] = []
    for _, begins, n in events:
        run = all_runs[n]
        if not begins:
            for node, gpus in run.places:
                idle[node].append(gpus)
                held[node] = held.get(node, 0.0) - gpus
            continue
        kept = all(gpus in idle[node] for node, gpus in run.places)
        for node, gpus in run.places:
            if gpus in idle[node]:
                idle[node].remove(gpus)
            held[node] = held.get(node, 0.0) + gpus
            while idle[node] and held[node] + sum(idle[node]) > size[node]:
                idle[node].pop(0)
        samples.append(Sample(sum(gpus for _, gpus in run.places), run.started - run.decided, kept))
    return samples


# From accounting: jobs that came to free GPUs, with nobody waiting before them.


class Recorded(NamedTuple):
    """A job of accounting; times in seconds."""

    queue: str
    submit: float
    start: float
    end: float
    gpus: float


def samples_of(jobs: Iterable[Recorded]) -> list[Sample]:
    """One of each job that its queue had room for when it came, and no job waiting.

    A queue's size is the most GPUs that its jobs held at once. Whether they were on one node is
    unknown, so that some delays of large jobs are waits.
    """
    samples: list[Sample] = []
    queues: dict[str, list[Recorded]] = {}
    for job in jobs:
        queues.setdefault(job.queue, []).append(job)
    for ours in queues.values():
        # at one moment GPUs are freed before a job comes, and it comes before one starts
        events = sorted(
            [(job.end, 0, n) for n, job in enumerate(ours)]
            + [(job.submit, 1, n) for n, job in enumerate(ours)]
            + [(job.start, 2, n) for n, job in enumerate(ours)]
        )
        held, most, waiting = 0.0, 0.0, 0
        met: list[tuple[int, float]] = []
        for _, what, n in events:
            if what == 0:
                held -= ours[n].gpus
            elif what == 1:
                if not waiting:
                    met.append((n, held))
                waiting += 1
            else:
                waiting -= 1
                held += ours[n].gpus
                most = max(most, held)
        samples += [
            Sample(ours[n].gpus, ours[n].start - ours[n].submit)
            for n, before in met
            if before + ours[n].gpus <= most
        ]
    return samples
