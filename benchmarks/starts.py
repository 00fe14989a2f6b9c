"""When do waiting jobs start: what schedmate expects beside the waits of the last jobs.

    python benchmarks/starts.py --data DATA [--trace KTH-SP2-1996-2 ...]
    python benchmarks/starts.py --data DATA --trace RICC-2010-2 METACENTRUM-Wagap-2013 --name unseen

Real jobs of public logs with recorded submission, start, end, size and requested time. At `MOMENTS`
moments at which jobs wait, evenly spread over the later half of the last `JOBS` jobs of a log, the
queue is rebuilt as a scheduler would list it: running is what had started and not ended, waiting
what had been submitted and not started (also jobs that were cancelled in the queue, until then;
they are not scored). The machine is one pool of the processors that it had. `expected_starts` gets

- `schedmate`: run times by its experts as of each job's submission, from what had ended by then
  (`remaining_time` of them for running jobs) within the requested times, and the waits of jobs that
  had started;
- `queue, estimates`: the same without those waits;
- `queue, requested times`: every job lasts as long as it asked for, by which schedulers plan
  backfill; without waits;
- `queue, true run times`: what better estimates could be worth; without waits.

Beside them what the waits of earlier jobs say by themselves, all by what is known at the moment:

- `all waits`: of all that started since the log's begin, and `last waits`, `last of this size` (by
  powers of two), `last of this queue`: of the last `LAST`; less the time waited, at least 0;
- `last longer waits`: of the last `LAST` that waited longer than this job has, what came after
  that: the strongest simple baseline.

The order of the waiting is that of submission: the priorities of a site, its limits and
reservations are not in these logs. Of each moment up to `EACH` waiting jobs that ran later count,
drawn at random, so that no long queue decides. `within 2x` is the share whose median start is right
within a factor of two and `pinball` the mean over the three percentiles of the logarithm, both of
the wait and `FLOOR_S`, so that short waits do not decide. `covered` is the share that starts in the
80 % interval (to the second), `answered` that of jobs with an answer; other columns are about jobs
that all methods answer. `gain` is the pinball of `last longer waits` over the method's, above 1 is
better; its 95 % interval draws `STRETCHES` equal parts of the time anew (bootstrap). Constants of
the product were chosen on `DEVELOPMENT` alone. `starts_fresh` is of the jobs that had waited for
less than an hour. The last rows are means over the other logs, in which `lost` names those with a
gain below 1. They were reported on once before the last change, that users' days count once, which
was chosen on `DEVELOPMENT` as well; `starts_unseen` is of two logs that were not run before it.

No trace of GPU jobs at hand will do: they lack starts, or jobs (samples, cleaned subsets, only what
was pending at noon). These logs are of CPUs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _record import record
from estimation_traces import Job, in_order, jobs_of_log

from schedmate.cluster import expected
from schedmate.cluster.adapter import LiveJob, LiveNode
from schedmate.cluster.expected import WAITS_S, Runs, expected_starts
from schedmate.jobs import Estimate
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
    "RICC-2010-2": 8192,
    "METACENTRUM-Wagap-2013": 2176,
}
"""Of the machine, by the head of the log or its description (the last two; Wagap is two clusters);
of Theta and Mira, its nodes."""
UNSEEN = ("RICC-2010-2", "METACENTRUM-Wagap-2013")
DEVELOPMENT = ("KTH-SP2-1996-2", "SDSC-BLUE-2000-4.2-cln", "ALCF-Theta-2023")
JOBS, MOMENTS, EACH = 30_000, 150, 10
LAST = 100
FLOOR_S = 600.0
FRESH_S = 3600.0
STRETCHES, DRAWS, SEED = 25, 2000, 0
LEVELS = np.array([0.1, 0.5, 0.9])
PRODUCT = ("schedmate", "queue, estimates", "queue, requested times", "queue, true run times")
BASELINE = "last longer waits"


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


Told = tuple[float, ...] | None
"""The 10th, 50th and 90th percentiles of the time until a start [s]; None: no answer."""


class Answer(NamedTuple):
    """What was said of one waiting job at one moment [s since the log's begin], by method, the
    time that it had waited and that it still waited [s]."""

    at: float
    waited: float
    truth: float
    told: dict[str, Told]


def answers(log: Log, processors: int) -> Iterator[Answer]:
    """What each method says of waiting jobs."""
    queues = [(now, log.running(now), log.waiting(now)) for now in log.moments()]
    known = estimates(log, {int(one) for _, *both in queues for part in both for one in part})
    draw = np.random.default_rng(SEED)
    for now, running, waiting in queues:
        later = waiting[log.ran[waiting]]
        chosen = draw.choice(later, min(EACH, len(later)), replace=False)
        told = by_product(log, processors, now, running, waiting, known)
        for one in chosen:
            said = {name: told[name][str(one)] for name in PRODUCT}
            said |= by_waits(log, one, now)
            yield Answer(now, now - log.submitted[one], log.started[one] - now, said)


def by_product(
    log: Log,
    processors: int,
    now: float,
    running: np.ndarray,
    waiting: np.ndarray,
    known: dict[int, Estimate],
) -> dict[str, dict[str, Told]]:
    """What the product says of all waiting jobs, by kind of run times."""
    used = int(min(processors, log.size[running].sum()))
    nodes = [LiveNode("machine", True, False, True, "", ("all",), processors, used)]
    queue: list[LiveJob] = []
    runs: dict[str, dict[str, Runs]] = {name: {} for name in PRODUCT[1:]}
    for one in (*running, *waiting):
        job, begun, key = log.jobs[one], log.started[one] <= now, str(one)
        queue.append(
            LiveJob(
                *(key, key, "RUNNING" if begun else "PENDING", job.asked.user or "", ("all",)),
                submitted=log.submitted[one],
                started=log.started[one] if begun else None,
                nodes=(),
                held=False,
                reason="",
            )
        )
        ran = max(0.0, now - log.started[one])
        request, true = job.asked.request_s, max(0.0, job.run_s - ran)
        limit = None if request is None else max(0.0, request - ran)
        left = remaining_time(ran, known.get(int(one)))
        times = (left.remaining_p10_s, left.remaining_s, left.remaining_p90_s)
        asked = None if limit is None else (limit, limit, limit)
        for name, estimate in zip(runs, (times, asked, (true, true, true)), strict=True):
            some = None if estimate is None or None in estimate else estimate
            most = None if name == PRODUCT[3] else limit
            runs[name][key] = Runs(log.size[one], some, most)
    started = log.before(now)
    ended = started[(log.ended[started] <= now) & (log.submitted[started] >= now - WAITS_S)]
    earlier = [
        (log.submitted[one], log.started[one], log.jobs[one].asked.user) for one in ended.tolist()
    ]
    told = {PRODUCT[0]: expected_starts(queue, runs[PRODUCT[1]], nodes, now, earlier)}
    unseen = [job._replace(submitted=None) for job in queue]  # so that none has a wait
    for name, known_runs in runs.items():
        expected.DRAWS = 40 if name == PRODUCT[1] else 1  # the others are the same in each
        told[name] = expected_starts(unseen, known_runs, nodes, now)
    expected.DRAWS = 40
    return {
        name: {job: None if start.p50 is None else start[:3] for job, start in starts.items()}
        for name, starts in told.items()
    }


def by_waits(log: Log, one: int, now: float) -> dict[str, Told]:
    """What the waits of earlier jobs say of one."""
    waited, before = now - log.submitted[one], log.before(now)
    waits = log.started[before] - log.submitted[before]
    size = np.floor(np.log2(log.size))
    like, queue = size[before] == size[one], log.kind[before] == log.kind[one]
    found = {
        "all waits": np.maximum(waits - waited, 0.0),
        "last waits": np.maximum(waits[-LAST:] - waited, 0.0),
        "last of this size": np.maximum(waits[like][-LAST:] - waited, 0.0),
        "last of this queue": np.maximum(waits[queue][-LAST:] - waited, 0.0),
        BASELINE: waits[waits > waited][-LAST:] - waited,
    }
    return {
        name: tuple(np.quantile(part, LEVELS)) if len(part) else None
        for name, part in found.items()
    }


def measured(name: str, found: list[Answer]) -> list[dict[str, Any]]:
    """A row for each method on one log."""
    common = [one for one in found if None not in one.told.values()]
    if not common:
        return []
    truth = np.array([one.truth for one in common])
    at = np.array([one.at for one in common])
    edges = np.linspace(at.min(), at.max(), STRETCHES + 1)[1:-1]
    stretch = np.digitize(at, edges)
    sums = {}
    rows = []
    for method in found[0].told:
        told = np.array([one.told[method] for one in common])
        off = np.log(truth + FLOOR_S)[:, None] - np.log(told + FLOOR_S)
        loss = np.maximum(LEVELS * off, (LEVELS - 1) * off).mean(axis=1)
        sums[method] = np.bincount(stretch, loss, STRETCHES)
        error = np.abs(told[:, 1] - truth) / 3600
        inside = (truth >= told[:, 0] - 1) & (truth <= told[:, 2] + 1)
        rows.append(
            {
                "trace": name,
                "development": "yes" if name in DEVELOPMENT else "",
                "method": method,
                "answered": np.mean([one.told[method] is not None for one in found]),
                "within 2x": np.mean(np.abs(off[:, 1]) <= math.log(2)),
                "median error h": np.median(error),
                "mean error h": error.mean(),
                "pinball": loss.mean(),
                "covered": inside.mean(),
            }
        )
    drawn = np.random.default_rng(SEED).integers(STRETCHES, size=(DRAWS, STRETCHES))
    for row in rows:
        own, other = sums[row["method"]], sums[BASELINE]
        sets = other[drawn].sum(axis=1) / own[drawn].sum(axis=1)
        low, high = np.quantile(sets, (0.025, 0.975))
        row["gain"] = other.sum() / own.sum()
        row["gain 95 %"] = f"{low:.2f} to {high:.2f}"
    days = float(np.ptp(at)) / 86_400
    rows[0] |= {"jobs": len(common), "days": days, "median wait h": np.median(truth) / 3600}
    return rows


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each method, the means over the logs that were not used in development."""
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        ours = [row for row in rows if row["method"] == method and not row["development"]]
        if not ours:
            return []
        columns = ("answered", "within 2x", "pinball", "covered", "gain")
        row = {column: float(np.mean([row[column] for row in ours])) for column in columns}
        lost = ", ".join(row["trace"] for row in ours if row["gain"] < 1)
        found.append({"trace": f"mean of {len(ours)}", "method": method, **row, "lost": lost})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--trace",
        nargs="+",
        choices=PROCESSORS,
        default=[name for name in PROCESSORS if name not in UNSEEN],
    )
    parser.add_argument("--name", help="what to call the results")
    asked = parser.parse_args()
    title = f"starts_{asked.name}" if asked.name else "starts"
    tables: dict[str, list[dict[str, Any]]] = {title: [], f"{title}_fresh": []}
    for name in asked.trace:
        log = Log(jobs_of_log(asked.data, name)[-JOBS:])
        found = list(answers(log, PROCESSORS[name]))
        tables[title] += measured(name, found)
        fresh = [one for one in found if one.waited < FRESH_S]
        tables[f"{title}_fresh"] += measured(name, fresh)
    for table, by_log in tables.items():
        rows = by_log + means(by_log)
        for row in rows:
            row |= {key: round(one, 3) for key, one in row.items() if isinstance(one, float)}
        record(table, rows, processors=PROCESSORS, moments=MOMENTS, baseline=BASELINE)


if __name__ == "__main__":
    main()
