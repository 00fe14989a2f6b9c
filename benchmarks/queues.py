"""What are run-time estimates worth in a queue with backfill, and is that queue like the real one?

    python benchmarks/queues.py --data DATA [--trace KTH-SP2-1996-2 ...] [--windows 20]

Real jobs of the Parallel Workloads Archive, with the recorded run time, size and requested time, on
as many processors as the machine had. `queues_fidelity`: policy `slurm` (EASY by requested times,
in order of submission) over the whole trace, its waits beside the recorded ones, by tenth of the
jobs. `queues_estimates`: windows of `JOBS` jobs spread evenly over the trace, each from an empty
machine, of which those after the first `WARM` count; EASY backfill, and SJF that lets all pass.

What an estimator knows is what had ended by the recorded submission, in the recorded order, not in
the simulated one: it is the same for every policy. Every run lasts as recorded (limits have cut it
already). `gain` is mean wait by requested times over mean wait by this estimator, the median over
windows with a 95 % interval (bootstrap); above 1 is better. `lost` counts windows below 1.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from _record import record
from estimation import Past, in_order
from estimation_traces import Job, traces

from schedmate.retrieval.mixture import Mixture
from schedmate.schedulers import Cluster
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.workload import Workload

PROCESSORS = {"KTH-SP2-1996-2": 100, "HPC2N-2002-2.1-cln": 240}
"""Of the machine, by the head of the log."""
JOBS, WARM = 600, 100
EASY, SJF = "slurm:limits=false:qos=0", "sjf:backfill=true"
ESTIMATORS = ("requested", "last", "last two", "experts", "perfect")


def predictions(jobs: list[Job]) -> dict[str, list[float]]:
    """What each estimator predicted at the recorded submission of every job [s]."""
    past, mixture = Past(), Mixture()
    told: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
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
        told["perfect"].append(jobs[number].run_s)
    return told


def waits(jobs: list[Job], policy: str, processors: int, told: list[float]) -> np.ndarray:
    """Simulated waits of these jobs [s]; the run is audited."""
    begin = jobs[0].asked.submitted
    rows = [(job.asked.submitted - begin, job.run_s, int(job.asked.size or 1)) for job in jobs]
    work = Workload.of(rows)
    for one, job in zip(work.jobs, jobs, strict=True):
        one.time_limit_s = job.asked.request_s
        one.user = job.asked.user or ""
    cluster = Cluster.parse(f"1x{processors}")
    outcome = Simulation(work, make(policy), cluster, estimator=Table(told)).run()
    audit(work, cluster, outcome)
    return np.array(outcome.first_start) - np.array([row[0] for row in rows])


def fidelity(name: str, jobs: list[Job], processors: int) -> list[dict[str, Any]]:
    recorded = np.array([job.ended - job.run_s - job.asked.submitted for job in jobs])
    policy = EASY + ":predict=false"
    modelled = waits(jobs, policy, processors, [job.run_s for job in jobs])
    ranks = [np.argsort(np.argsort(one)) for one in (recorded, modelled)]
    parts = [("all", np.arange(len(jobs)))]
    tenths = np.array_split(np.arange(len(jobs)), 10)
    parts += [(str(number), part) for number, part in enumerate(tenths, 1)]
    return [
        {
            "trace": name,
            "tenth": which,
            "jobs": len(part),
            "recorded mean h": f"{recorded[part].mean() / 3600:.2f}",
            "modelled mean h": f"{modelled[part].mean() / 3600:.2f}",
            "recorded median s": round(float(np.median(recorded[part]))),
            "modelled median s": round(float(np.median(modelled[part]))),
            "rank correlation": f"{np.corrcoef(ranks[0][part], ranks[1][part])[0, 1]:.2f}",
        }
        for which, part in parts
    ]


def worth(name: str, jobs: list[Job], processors: int, windows: int) -> list[dict[str, Any]]:
    told = predictions(jobs)
    begins = np.linspace(len(jobs) // 20, len(jobs) - JOBS, windows).astype(int)
    lines = []
    draw = np.random.default_rng(0)
    for title, policy in (("EASY", EASY), ("SJF", SJF)):
        means: dict[str, np.ndarray] = {}
        for estimator in ESTIMATORS:
            means[estimator] = np.array(
                [
                    waits(
                        jobs[at : at + JOBS], policy, processors, told[estimator][at : at + JOBS]
                    )[WARM:].mean()
                    for at in begins
                ]
            )
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
                    "median of mean waits h": f"{np.median(means[estimator]) / 3600:.2f}",
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--trace", nargs="+", choices=PROCESSORS, default=["KTH-SP2-1996-2"])
    parser.add_argument("--windows", type=int, default=20)
    asked = parser.parse_args()
    readers = dict(traces(asked.data))
    real: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    for name in asked.trace:
        jobs = readers[name]()
        real += fidelity(name, jobs, PROCESSORS[name])
        values += worth(name, jobs, PROCESSORS[name], asked.windows)
    record("queues_fidelity", real, processors=PROCESSORS)
    record(
        "queues_estimates",
        values,
        processors=PROCESSORS,
        jobs=f"{JOBS} a window, {WARM} of them not counted",
        skipped="windows with a mean wait below a minute by requested times",
    )


if __name__ == "__main__":
    main()
