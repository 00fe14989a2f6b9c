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

SCHEMA = "schedmate.start-delays/v1"
SIZES = (1, 8)
"""Upper limits of the groups by GPUs; the last group is everything larger."""
BINS = 20
LEAST = BINS
"""Fewest starts of a group of its own; the jobs of a smaller one are drawn from all starts."""
LONGEST_S = 600.0
"""What started later on an idle cluster was held, had a begin time or depended on another [s]."""


class Group(BaseModel):
    """Start delays of jobs of some sizes."""

    model_config = ConfigDict(extra="forbid")

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
    def fit(cls, samples: Iterable[tuple[float, float]], source: str) -> StartDelays:
        """Of pairs of GPUs and delay [s]. Raises `InputError` for fewer than `LEAST`."""
        pairs = np.array([one for one in samples if 0.0 <= one[1] <= LONGEST_S]).reshape(-1, 2)
        if len(pairs) < LEAST:
            raise InputError(
                f"{source} has {counted(len(pairs), 'start')} that can be measured, on free GPUs "
                f"with no other job waiting; {LEAST} are needed: name a longer record."
            )
        groups, below = [], 0.0
        for size in (*SIZES, None):
            most = np.inf if size is None else float(size)
            held = pairs if size is None else pairs[(pairs[:, 0] > below) & (pairs[:, 0] <= most)]
            below = most
            if len(held) >= LEAST or size is None:
                delays = np.sort(held[:, 1])
                groups.append(
                    Group(
                        up_to_gpus=size,
                        starts=len(delays),
                        mean_s=round(float(delays.mean()), 4),
                        twentieths_s=[
                            round(float(part.mean()), 4) for part in np.array_split(delays, BINS)
                        ],
                    )
                )
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

    def takes_s(self, job: str, count: int, gpus: int) -> float:
        """The delay of the `count`-th start of the job with this id [s]."""
        below = 0
        group = self.groups[-1]
        for one in self.groups:
            if one.up_to_gpus is not None and below < gpus <= one.up_to_gpus:
                group = one
                break
            below = one.up_to_gpus or below
        draw = random.Random(f"start/{job}/{count}")  # noqa: S311 - an experiment
        return draw.choice(group.twentieths_s)


# From accounting: jobs that came to free GPUs, with nobody waiting before them.


class Recorded(NamedTuple):
    """A job of accounting; times in seconds."""

    queue: str
    submit: float
    start: float
    end: float
    gpus: float


def samples_of(jobs: Iterable[Recorded]) -> list[tuple[float, float]]:
    """GPUs and delay [s] of each job that its queue had room for when it came, and no job waiting.

    A queue's size is the most GPUs that its jobs held at once. Whether they were on one node is
    unknown, so that some delays of large jobs are waits.
    """
    samples: list[tuple[float, float]] = []
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
            (ours[n].gpus, ours[n].start - ours[n].submit)
            for n, before in met
            if before + ours[n].gpus <= most
        ]
    return samples
