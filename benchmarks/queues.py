"""What are run-time estimates worth in a queue with backfill, and is that queue like the real one?

    python benchmarks/queues.py --data DATA [--trace KTH-SP2-1996-2 ...] [--first 6000]
    python benchmarks/queues.py --data DATA --trace KTH-SP2-1996-2 HPC2N-2002-2.1-cln \
        --windows 20 --first 12000 --name twenty
    python benchmarks/queues.py --data DATA --trace ALCF-Theta-2023 --order EASY SJF \
        --windows 20 --first 12000 --name theta

Real jobs of public logs, with the recorded run time, size, requested time and wait, on as many
processors as the machine had. `queues_fidelity`: policy `slurm` (EASY by requested times, in order
of submission) on the first jobs of each log, its waits beside the recorded ones. `idle` is the
share of all waiting time during which as many processors as the job asked for were idle: backfill
leaves some for reservations; what goes beyond has causes that the log does not hold.

`queues_NAME_estimates`: `--windows` parts of `JOBS` jobs, spread evenly over the same jobs, each
from an empty machine, of which those after the first `WARM` count; the policies of `ORDERS`. What
an estimator knows is what had ended by the recorded submission, in the recorded order, not in the
simulated one: it is the same for every policy. Every run lasts as recorded (limits have cut it
already). A delay is the time from submission to the end without the run itself. `gain` is the mean
delay by requested times over the mean delay by this estimator, the median over windows with a 95 %
interval (bootstrap); above 1 is better. `lost` counts windows below 1. Estimators but the experts
say one time, of which `gittins` makes shortest GPU time first.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _record import record
from estimation import Past
from estimation_traces import Job, in_order, traces

from schedmate.retrieval.mixture import Mixture
from schedmate.schedulers import Cluster
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload

PROCESSORS = {"KTH-SP2-1996-2": 100, "HPC2N-2002-2.1-cln": 240, "ALCF-Theta-2023": 4392}
"""Of the machine, by the head of the log; of Theta, its nodes."""
JOBS, WARM = 600, 100
EASY = "slurm:limits=false:qos=0"
ORDERS = {
    "EASY": EASY,
    "conservative": f"{EASY}:conservative=true",
    "SJF": "sjf:backfill=true",
    "Gittins": "gittins:backfill=true",
    "Gittins, preemptive": "gittins:backfill=true:preempt=true",
}
ESTIMATORS = ("requested", "last", "last two", "experts", "perfect")


class Told(NamedTuple):
    """What an estimator predicted at the recorded submission of every job."""

    seconds: list[float]
    quantiles: list[tuple[float, ...] | None] | None = None
    """[s]"""

    def of(self, begin: int, count: int) -> Table:
        """For the jobs of a window."""
        part = slice(begin, begin + count)
        return Table(self.seconds[part], quantiles=self.quantiles and self.quantiles[part])


def predictions(jobs: list[Job]) -> dict[str, Told]:
    """What each estimator says of these jobs."""
    past, mixture = Past(), Mixture()
    told: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    quantiles: list[tuple[float, ...] | None] = []
    for number, ended in in_order(jobs):
        for one in ended:
            job = jobs[one]
            past.learn(job)
            mixture.learn(job.asked, job.ended, math.log(job.run_s), job.cut)
        asked = jobs[number].asked
        points = past.points(asked)
        forecast = mixture.predict(asked)
        for name in ("requested", "last", "last two"):
            told[name].append(math.exp(points[name]))
        point = points["median"] if forecast is None else forecast.point
        told["experts"].append(math.exp(point))
        spread = None if forecast is None else tuple(np.exp(forecast.quantiles).tolist())
        quantiles.append(spread)
        told["perfect"].append(jobs[number].run_s)
    return {
        name: Told(seconds, quantiles if name == "experts" else None)
        for name, seconds in told.items()
    }


def simulated(jobs: list[Job], policy: str, processors: int, told: Table) -> Outcome:
    """These jobs on an empty machine; the run is audited."""
    begin = jobs[0].asked.submitted
    rows = [(job.asked.submitted - begin, job.run_s, int(job.asked.size or 1)) for job in jobs]
    work = Workload.of(rows)
    for one, job in zip(work.jobs, jobs, strict=True):
        one.time_limit_s = job.asked.request_s
        one.user = job.asked.user or ""
    cluster = Cluster.parse(f"1x{processors}")
    outcome = Simulation(work, make(policy), cluster, estimator=told).run()
    audit(work, cluster, outcome)
    return outcome


def delays(jobs: list[Job], policy: str, processors: int, told: Table) -> np.ndarray:
    """From submission to the end, without the run itself [s]."""
    outcome, begin = simulated(jobs, policy, processors, told), jobs[0].asked.submitted
    return np.array(
        [
            end - (job.asked.submitted - begin) - job.run_s
            for job, end in zip(jobs, outcome.end, strict=True)
        ]
    )


def idle_share(jobs: list[Job], starts: np.ndarray, processors: int) -> float:
    """Share of all waiting time during which a job's processors were idle, by these starts [s]."""
    sizes = np.array([float(int(job.asked.size or 1)) for job in jobs])
    ends = starts + np.array([job.run_s for job in jobs])
    times, changes = np.concatenate([starts, ends]), np.concatenate([sizes, -sizes])
    order = np.lexsort((changes, times))
    times = np.concatenate([[-math.inf], times[order], [math.inf]])
    idle = processors - np.concatenate([[0.0], np.cumsum(changes[order])])
    waited = unused = 0.0
    for job, start, size in zip(jobs, starts, sizes, strict=True):
        first = np.searchsorted(times, job.asked.submitted, "right") - 1
        last = np.searchsorted(times, start, "left")
        spans = np.diff(np.clip(times[first : last + 1], job.asked.submitted, start))
        waited += start - job.asked.submitted
        unused += spans[idle[first:last] >= size].sum()
    return unused / waited


def fidelity(name: str, jobs: list[Job], processors: int) -> list[dict[str, Any]]:
    """Recorded and modelled waits, of all jobs and of each quarter."""
    submitted = np.array([job.asked.submitted for job in jobs])
    recorded = np.array([job.ended - job.run_s for job in jobs])
    limits = Table([job.run_s for job in jobs])
    outcome = simulated(jobs, f"{EASY}:predict=false", processors, limits)
    modelled = np.array(outcome.first_start) + submitted[0]
    waits = (recorded - submitted, modelled - submitted)
    ranks = [np.argsort(np.argsort(one)) for one in waits]
    parts = [("all", np.arange(len(jobs)))]
    quarters = np.array_split(np.arange(len(jobs)), 4)
    parts += [(str(number), part) for number, part in enumerate(quarters, 1)]
    lines: list[dict[str, Any]] = [
        {
            "trace": name,
            "quarter": which,
            "jobs": len(part),
            "recorded mean h": f"{waits[0][part].mean() / 3600:.2f}",
            "modelled mean h": f"{waits[1][part].mean() / 3600:.2f}",
            "recorded median s": round(float(np.median(waits[0][part]))),
            "modelled median s": round(float(np.median(waits[1][part]))),
            "rank correlation": f"{np.corrcoef(ranks[0][part], ranks[1][part])[0, 1]:.2f}",
        }
        for which, part in parts
    ]
    lines[0]["recorded idle"] = f"{idle_share(jobs, recorded, processors):.0%}"
    lines[0]["modelled idle"] = f"{idle_share(jobs, modelled, processors):.0%}"
    return lines


def worth(
    name: str, jobs: list[Job], processors: int, orders: list[str], windows: int
) -> list[dict[str, Any]]:
    """What each estimator is worth in each of these orders, over the windows of one trace."""
    told = predictions(jobs)
    begins = np.linspace(len(jobs) // 20, len(jobs) - JOBS, windows).astype(int)
    lines = []
    draw = np.random.default_rng(0)
    for title in orders:
        policy = ORDERS[title]
        means = {
            estimator: np.array(
                [
                    delays(jobs[at : at + JOBS], policy, processors, told[estimator].of(at, JOBS))[
                        WARM:
                    ].mean()
                    for at in begins
                ]
            )
            for estimator in ESTIMATORS
        }
        queued = means["requested"] >= 60.0
        for estimator in ESTIMATORS:
            ratio = means["requested"][queued] / np.maximum(means[estimator][queued], 1.0)
            sets = np.median(draw.choice(ratio, (2000, len(ratio))), axis=1)
            low, high = np.quantile(sets, (0.025, 0.975))
            lines.append(
                {
                    "trace": name,
                    "order": title,
                    "estimator": estimator,
                    "gain (95 %)": f"{np.median(ratio):.2f} ({low:.2f} to {high:.2f})",
                    "lost": int((ratio < 0.995).sum()),
                    "windows": len(ratio),
                    "median of mean delays h": f"{np.median(means[estimator]) / 3600:.2f}",
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--trace", nargs="+", choices=PROCESSORS, default=list(PROCESSORS))
    parser.add_argument("--first", type=int, default=6000, help="jobs of each trace")
    parser.add_argument("--order", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--windows", type=int, default=10, help="windows of each trace")
    parser.add_argument("--name", help="what to call the results")
    asked = parser.parse_args()
    title = f"queues_{asked.name}" if asked.name else "queues"
    readers = dict(traces(asked.data))
    real: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    for name in asked.trace:
        jobs = readers[name]()[: asked.first]
        real += fidelity(name, jobs, PROCESSORS[name])
        record(f"{title}_fidelity", real, processors=PROCESSORS)
        values += worth(name, jobs, PROCESSORS[name], asked.order, asked.windows)
        record(
            f"{title}_estimates",
            values,
            processors=PROCESSORS,
            jobs=f"{asked.windows} windows of {JOBS}, {WARM} of each not counted",
            skipped="windows with a mean delay below a minute by requested times",
        )


if __name__ == "__main__":
    main()
