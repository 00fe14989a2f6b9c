"""When do waiting jobs start: the queue run forward beside the waits of the last jobs.

    python benchmarks/starts.py --data DATA [--trace KTH-SP2-1996-2 ...]

Real jobs of public logs with recorded submission, start, end, size and requested time. At `MOMENTS`
moments at which jobs wait, evenly spread over the later half of the last `JOBS` jobs of a log, the
queue is rebuilt as a scheduler would list it: running is what had started and not ended, waiting
what had been submitted and not started (jobs that were cancelled in the queue too, until then; they
are not scored). The machine is one pool of as many processors as it had. `expected_starts` gets

- `estimates`: run times by schedmate's experts as of each job's submission, from what had ended by
  then (`remaining_time` of them for running jobs), within the requested times;
- `requested`: every job lasts as long as it asked for, which is what a scheduler plans backfill by;
- `true run times`: an upper bound on what better estimates are worth.

Beside them the simplest answers, by what is known at the same moment, as intervals of the waits of
the last `LAST` jobs that started:

- `all waits`: those of all that started since the log's begin;
- `last waits`, `last of this size`, `last of this queue`: less the time already waited, at least 0;
- `last longer waits`: of those that waited longer than this job has, what came after that.

The order of the waiting is that of submission: the priorities of a site, its limits and
reservations are not in these logs. Of each moment up to `EACH` waiting jobs that ran later count,
drawn at random, so that no long queue decides. `within 2x` is the share whose median start is right
within a factor of two, both counted from `FLOOR_S` on, so that short waits do not decide; `pinball`
is the mean over the three percentiles on log(`FLOOR_S` + wait); `covered` the share that starts in
the 80 % interval, `answered` that of jobs with an answer: the other columns are about those that
all methods answer. `gain` is the pinball of the best baseline of this log, in hindsight, over the
method's, above 1 is better; its 95 % interval draws `STRETCHES` stretches of the time anew
(bootstrap). Constants of the product were chosen on `DEVELOPMENT`; other logs were looked at for
the report only.

No trace of GPU jobs at hand will do: they lack starts, or jobs (samples, cleaned subsets, only what
was pending at noon). These logs are of CPUs.
"""

from __future__ import annotations

import argparse
import math
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _record import record
from estimation_traces import Job, in_order, jobs_of_log

from schedmate.cluster import expected
from schedmate.cluster.adapter import LiveJob, LiveNode
from schedmate.cluster.expected import Runs, expected_starts
from schedmate.jobs import Estimate, Remaining
from schedmate.retrieval.experts import P10, P50, P90
from schedmate.retrieval.mixture import Mixture
from schedmate.retrieval.remaining import remaining_time

PROCESSORS = {
    "KTH-SP2-1996-2": 100,
    "SDSC-BLUE-2000-4.2-cln": 1152,
    "ALCF-Theta-2023": 4392,
    "HPC2N-2002-2.1-cln": 240,
    "ANL-Intrepid-2009-1": 163_840,
    "ALCF-Mira-2018": 49_152,
    "CEA-Curie-2011-2.1-cln": 93_312,
    "LANL-Mustang-2015-windows100-131": 38_400,
}
"""Of the machine, by the head of the log; of Theta and Mira, its nodes."""
DEVELOPMENT = ("KTH-SP2-1996-2", "SDSC-BLUE-2000-4.2-cln", "ALCF-Theta-2023")
JOBS, MOMENTS, EACH = 30_000, 150, 10
LAST = 100
FLOOR_S = 600.0
STRETCHES, DRAWS, SEED = 25, 2000, 0
LEVELS = np.array([0.1, 0.5, 0.9])
RUN_FORWARD = ("estimates", "requested", "true run times")
BASELINES = ("all waits", "last waits", "last of this size", "last of this queue",
             "last longer waits")
METHODS = (*RUN_FORWARD, *BASELINES)


class Log:
    """The jobs of a log as arrays, in order of submission [s]."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.submitted = np.array([job.asked.submitted for job in jobs])
        self.ran = np.array([job.run_s > 0 for job in jobs])
        self.ended = np.array([job.ended for job in jobs])
        self.started = self.ended - np.array([max(job.run_s, 0.0) for job in jobs])
        self.size = np.array([float(int(job.asked.size or 1)) for job in jobs])
        self.kind = np.array([str(job.asked.kind) for job in jobs])
        self._by_start = np.flatnonzero(self.ran)[np.argsort(self.started[self.ran], kind="stable")]

    def waiting(self, now: float) -> np.ndarray:
        """Jobs that wait at a moment."""
        return np.flatnonzero((self.submitted <= now) & (self.started > now))

    def running(self, now: float) -> np.ndarray:
        """Jobs that run at a moment."""
        return np.flatnonzero(self.ran & (self.started <= now) & (self.ended > now))

    def before(self, now: float) -> np.ndarray:
        """Jobs that had started by a moment, in the order of their starts."""
        count = np.searchsorted(self.started[self._by_start], now, side="right")
        found: np.ndarray = self._by_start[:count]
        return found

    def moments(self) -> np.ndarray:
        """Moments at which jobs wait that ran later, evenly spread over the later half."""
        half = self.submitted[len(self.jobs) // 2 :]
        times = np.linspace(half[0], half[-1], 20 * MOMENTS)
        queued = [one for one in times if self.ran[self.waiting(one)].any()]
        return np.array(queued)[np.linspace(0, len(queued) - 1, MOMENTS).astype(int)]


def estimates(log: Log, wanted: set[int]) -> dict[int, Estimate]:
    """What the experts said of these jobs when they were submitted."""
    mixture, found = Mixture(), {}
    for number, ended in in_order(log.jobs):
        for one in ended:
            job = log.jobs[one]
            if job.run_s > 0:
                mixture.learn(job.asked, job.ended, math.log(job.run_s), job.cut)
        if number in wanted:
            forecast = mixture.predict(log.jobs[number].asked)
            if forecast is not None:
                seconds = np.exp(forecast.quantiles)
                found[number] = Estimate(
                    quantiles_s=seconds.tolist(),
                    duration_p10_s=seconds[P10],
                    duration_p50_s=seconds[P50],
                    duration_p90_s=seconds[P90],
                )
    return found


class Answer(NamedTuple):
    """What was said of one waiting job at one moment, and what came [s]."""

    at: float
    job: int
    waited: float
    truth: float
    told: dict[str, tuple[float, ...] | None]
    """The 10th, 50th and 90th percentiles of the time until its start, by method."""


def answers(log: Log, processors: int) -> Iterator[Answer]:
    """What each method says of waiting jobs."""
    moments = log.moments()
    queues = [(now, log.running(now), log.waiting(now)) for now in moments]
    known = estimates(log, {int(one) for _, *both in queues for part in both for one in part})
    draw = np.random.default_rng(SEED)
    for now, running, waiting in queues:
        later = waiting[log.ran[waiting]]
        chosen = draw.choice(later, min(EACH, len(later)), replace=False)
        told = run_forward(log, processors, now, running, waiting, known)
        for one in chosen:
            waited = now - log.submitted[one]
            said = {name: told[name].get(str(one)) for name in RUN_FORWARD}
            said |= by_waits(log, one, now, waited)
            yield Answer(now, int(one), waited, log.started[one] - now, said)


def run_forward(
    log: Log,
    processors: int,
    now: float,
    running: np.ndarray,
    waiting: np.ndarray,
    known: dict[int, Estimate],
) -> dict[str, dict[str, tuple[float, ...] | None]]:
    """What the product says of all waiting jobs, by each kind of run times."""
    nodes = [LiveNode("machine", True, False, True, "", ("all",), processors,
                      int(min(processors, log.size[running].sum())))]
    live, runs = [], {name: {} for name in RUN_FORWARD}
    for state, part in (("RUNNING", running), ("PENDING", waiting)):
        for one in part:
            job, begun = log.jobs[one], state == "RUNNING"
            live.append(
                LiveJob(
                    *(str(one), str(one), state, job.asked.user or "", ("all",)),
                    submitted=log.submitted[one],
                    started=log.started[one] if begun else None,
                    nodes=(),
                    held=False,
                    reason="" if begun else "Priority",
                )
            )
            ran = now - log.started[one] if begun else 0.0
            request = job.asked.request_s
            limit = None if request is None else max(0.0, request - ran)
            left = remaining_time(ran, known.get(int(one)))
            times = (left.remaining_p10_s, left.remaining_s, left.remaining_p90_s)
            size = log.size[one]
            true = max(0.0, job.run_s - ran)
            runs["estimates"][str(one)] = Runs(size, None if None in times else times, limit)
            runs["requested"][str(one)] = Runs(size, None if limit is None else (limit,) * 3, limit)
            runs["true run times"][str(one)] = Runs(size, (true,) * 3)
    told = {}
    for name in RUN_FORWARD:
        expected.DRAWS = 40 if name == "estimates" else 1  # the others are the same in each
        starts = expected_starts(live, runs[name], nodes)
        told[name] = {
            job: None if start.p50 is None else start[:3] for job, start in starts.items()
        }
    return told


def by_waits(log: Log, one: int, now: float, waited: float) -> dict[str, tuple[float, ...] | None]:
    """What the waits of earlier jobs say."""
    before = log.before(now)
    waits = log.started[before] - log.submitted[before]
    size = np.floor(np.log2(log.size))
    like, queue = size[before] == size[one], log.kind[before] == log.kind[one]
    longer = waits > waited
    found = {
        "all waits": np.maximum(waits - waited, 0.0),
        "last waits": np.maximum(waits[-LAST:] - waited, 0.0),
        "last of this size": np.maximum(waits[like][-LAST:] - waited, 0.0),
        "last of this queue": np.maximum(waits[queue][-LAST:] - waited, 0.0),
        "last longer waits": waits[longer][-LAST:] - waited,
    }
    return {
        name: tuple(np.quantile(part, LEVELS)) if len(part) else None
        for name, part in found.items()
    }
