"""What SchedMate's modules are worth in the loop of a scheduler: the paper's case studies 1 and 3.

    python benchmarks/semantic.py case1|case3|estimation|sensitivity|ablation|beyond DATA

DATA is a directory with philly/philly.csv and lucid/data/colocate_info.csv.
What jobs train is made up by a recipe on every trace (docs/traces.md), so that no row is wholly
real: `Philly` has real submissions and run times, the others are drawn to meet published figures.
Clusters are sized so that jobs have to wait. The advisor, the tracker and the handler are the real
ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _record import record

from schedmate.schedulers.adapters.advisor import Advisor
from schedmate.schedulers.estimators import Estimator, UserMean
from schedmate.schedulers.learned import Learned
from schedmate.schedulers.model import Cluster, Forecast, Job
from schedmate.schedulers.sim import runs
from schedmate.schedulers.sim.failures import FailureRates
from schedmate.schedulers.sim.parameters import HONEST, ColocationTable
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.assign import GROUP, assign
from schedmate.schedulers.sim.traces.calibration import Calibration
from schedmate.schedulers.sim.traces.recipe import parse
from schedmate.schedulers.sim.traces.synthesize import synthesize
from schedmate.schedulers.sim.workload import Workload

PAPER = "method=mean"
"""The paper's estimates: the mean of the three nearest."""
LOAD = 2.5
"""GPU time submitted over what the cluster has while jobs arrive: queues build up and are worked
off. A few days of a trace would never fill the whole cluster."""
LARGEST = 64
"""Jobs of more GPUs are left out of these few days: one would set the cluster's size."""
PHILLY_FROM = 30_000
"""Position from which jobs of the Philly trace are taken: its busiest weeks."""


class Trace(NamedTuple):
    """A workload, its cluster, and how much of it is real."""

    name: str
    workload: Workload
    cluster: str
    kind: str


def trace_of(name: str, data: Path, jobs: int, recipe: str = "", seed: int = 1) -> Trace:
    """One of the traces, with workloads by its recipe."""
    if name == "Philly":
        whole = read_trace(data / "philly" / "philly.csv")
        part = whole.select(range(PHILLY_FROM, PHILLY_FROM + jobs))
        chosen, kind = recipe or "lucid", "real submissions, run times"
    else:
        calibration = Calibration.read(name.lower())
        part = synthesize(calibration, jobs, seed)
        chosen = recipe or calibration.assumed["recipe"]
        kind = "synthetic"
    part = part.select(n for n, job in enumerate(part.jobs) if job.gpus <= LARGEST)
    span = part.jobs[-1].submit_time - part.jobs[0].submit_time
    work_s = sum(d * j.gpus for d, j in zip(part.duration_s, part.jobs, strict=True))
    least = max(job.gpus for job in part.jobs) // 8 + 4
    cluster = f"{max(least, round(work_s / span / 8 / LOAD))}x8"
    separator = "," if ":" in chosen else ":"
    work = assign(part, *parse(f"{chosen}{separator}seed={seed}"))
    return Trace(name, work, cluster, kind)


def run(trace: Trace, policy: str, data: Path, told: Any = "ga2m", **plan: Any) -> dict[str, Any]:
    """The numbers of one run; `told` is the name of an estimator, or one for Horus."""
    table = ColocationTable.read(data / "lucid" / "data" / "colocate_info.csv")
    parameters = replace(HONEST, interference=table)
    settings = {"seed": 1, "check": True, **plan}
    cluster = Cluster.parse(trace.cluster)
    made = runs.Plan((policy,), cluster, told, parameters, **settings)
    numbers = runs.run_policy(trace.workload, made, policy).numbers
    print(trace.name, policy, round(numbers["avg_jct_h"], 3), numbers["cpu_s"], file=sys.stderr)
    return numbers


def row_of(trace: Trace, title: str, numbers: dict[str, Any], base: float | None) -> dict[str, Any]:
    """A line of a table: percentiles stand for the CDF."""
    counted = numbers.get("schedmate", {})
    tracker = counted.get("tracker", {})
    return {
        "trace": trace.name,
        "of it": trace.kind,
        "policy": title,
        "avg JCT h": round(numbers["avg_jct_h"], 3),
        **{f"{p} JCT h": round(numbers[f"{p}_jct_h"], 3) for p in ("median", "p90", "p99", "p999")},
        "queue h": round(numbers["avg_queue_h"], 3),
        "base / this": None if base is None else round(base / numbers["avg_jct_h"], 3),
        "profiled": numbers["profiled"],
        "packed": numbers["packed"],
        "evicted": numbers["evictions"],
        "measured": tracker.get("measured"),
        "CPU s": numbers["cpu_s"],
    }


CASE1 = {
    "FIFO": ("fifo", "none"),
    "Horus, true utilisation": ("horus:backfill=true", "oracle"),
    "QSSF": ("qssf:backfill=true", "ga2m"),
    "Lucid": ("lucid", "ga2m"),
    "Lucid+SchedMate, paper": (f"lucid+schedmate:{PAPER}", "ga2m"),
    "Lucid+SchedMate": ("lucid+schedmate", "ga2m"),
}


def case1(data: Path, jobs: int) -> None:
    """Lucid with and without SchedMate against others (Figure 10)."""
    rows = []
    for name in ("Philly", "Seren", "Venus", "Saturn"):
        trace = trace_of(name, data, jobs)
        numbers = {title: run(trace, p, data, told) for title, (p, told) in CASE1.items()}
        base = numbers["Lucid"]["avg_jct_h"]
        rows += [row_of(trace, title, one, base) for title, one in numbers.items()]
        record(
            "semantic_case1",
            rows,
            base="Lucid",
            note="workloads made up by recipe on every trace; paper: 1.23x to 1.91x over Lucid",
        )


FAILURES = "gpu_mtbf=25d,bugs=0.2,user=2h"
"""About a tenth of the failures are the infrastructure's, as in Acme (NSDI'24, section 5)."""


def case3(data: Path, jobs: int) -> None:
    """SchedMate as a scheduler of its own, with and without the handler (Figure 11)."""
    policies = {
        "FIFO": ("fifo", "none"),
        "Horus, true utilisation": ("horus:backfill=true", "oracle"),
        "QSSF, strict": ("qssf", "ga2m"),
        "QSSF": ("qssf:backfill=true", "ga2m"),
        "Tiresias": ("tiresias", "none"),
        "SJF+SchedMate, paper, strict, no handler": (
            f"sjf+schedmate:{PAPER}:backfill=false:handler=false",
            "user-mean",
        ),
        "SJF+SchedMate, paper, no handler": (f"sjf+schedmate:{PAPER}:handler=false", "user-mean"),
        "SJF+SchedMate, no handler": ("sjf+schedmate:handler=false", "user-mean"),
        "SJF+SchedMate": ("sjf+schedmate", "user-mean"),
        "QSSF+SchedMate": ("qssf+schedmate", "user-mean"),
    }
    rows = []
    for name in ("Seren", "Philly"):
        trace = trace_of(name, data, jobs)
        rates = FailureRates.parse(FAILURES)
        numbers = {
            t: run(trace, p, data, told, failures=rates) for t, (p, told) in policies.items()
        }
        base = numbers["QSSF"]["avg_jct_h"]
        for title, one in numbers.items():
            row = row_of(trace, title, one, base)
            handler = one.get("schedmate", {}).get("handler", {})
            rows.append({**row, "failures": one["failures"], **handler})
        record("semantic_case3", rows, base="QSSF", failures=FAILURES)


# Estimation.


class Same(Estimator):
    """Oracle retrieval: the mean of the last three runs that really are of the job's workload."""

    def __init__(self, workload: Workload) -> None:
        self.groups = workload.columns[GROUP]
        self.past: dict[Any, list[tuple[float, float]]] = {}

    def estimate(self, job: Job) -> Forecast | None:
        last = self.past.get(self.groups[job.index], [])[-3:]
        if not last:
            return None
        duration, util = np.mean(last, axis=0).tolist()
        return Forecast(duration, util)

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        assert job.profile is not None
        runs_ = self.past.setdefault(self.groups[job.index], [])
        runs_.append((run_time_s, job.profile.gpu_util))


def replay(workload: Workload, estimator: Estimator) -> list[Forecast | None]:
    """What is said of each job at submission, if none had to wait."""
    ends: list[tuple[float, int]] = []
    told = []
    for job, duration in zip(workload.jobs, workload.duration_s, strict=True):
        while ends and ends[0][0] <= job.submit_time:
            ended = workload.jobs[heappop(ends)[1]]
            ended.profile = workload.profiles[ended.index]
            estimator.observe(ended, workload.duration_s[ended.index], completed=True)
            ended.profile = None
        told.append(estimator.estimate(job))
        heappush(ends, (job.submit_time + duration, job.index))
    return told


class Quiet(Estimator):
    """Knows nothing, so that only what the advisor says is counted."""


def estimation(data: Path, jobs: int) -> None:
    """Errors at submission by how often workloads recur and how alike runs are (Figure 12)."""
    rows = []
    for recurrence, spread in ((0.3, 0.4), (0.6, 0.2), (0.6, 0.4), (0.6, 0.8), (0.85, 0.4)):
        trace = trace_of("Philly", data, jobs, f"lucid:recurrence={recurrence},spread={spread}")
        work = trace.workload
        estimators = {
            "SchedMate, paper": Advisor(work, Quiet(), method="mean"),
            "SchedMate": Advisor(work, Quiet()),
            "oracle retrieval": Same(work),
            "Lucid's GA2M": Learned("ga2m"),
            "user's mean": UserMean(),
        }
        for title, estimator in estimators.items():
            told = replay(work, estimator)
            pairs = [(f, n) for n, f in enumerate(told) if f is not None]
            errors = np.array([abs(f.duration_s / work.duration_s[n] - 1) for f, n in pairs])
            logs = np.array([abs(np.log(f.duration_s / work.duration_s[n])) for f, n in pairs])
            used = [
                abs(f.gpu_util / use.gpu_util - 1)
                for f, n in pairs
                if f.gpu_util is not None and (use := work.profiles[n]) is not None
            ]
            rows.append(
                {
                    "recurrence": recurrence,
                    "spread": spread,
                    "estimator": title,
                    "answers": f"{len(pairs) / len(work):.1%}",
                    "error < 100 %": f"{(errors < 1).mean():.1%}",
                    "error < 50 %": f"{(errors < 0.5).mean():.1%}",
                    "median error": f"{np.median(errors):.1%}",
                    "within 2x": f"{(logs < np.log(2)).mean():.1%}",
                    "p90 factor": round(float(np.exp(np.percentile(logs, 90))), 2),
                    "utilisation error": f"{np.mean(used):.1%}" if used else None,
                }
            )
    record(
        "semantic_estimation",
        rows,
        trace=f"Philly, {jobs} jobs: real run times, workloads made up",
        note="paper, on Mars: 85.7 % below 100 %, Lucid 27.7 %; utilisation 28.1 %",
    )


# Sensitivity, ablation, and what the paper does not have.


def variants(
    name: str,
    data: Path,
    traces: Sequence[Trace],
    every: dict[str, tuple[str, str, Any]],
    base: str,
) -> None:
    """Each variant on each trace, beside the one called `base`."""
    rows = []
    for trace in traces:
        done = {
            title: run(trace, policy, data, told, **({"failures": f} if f else {}))
            for title, (policy, told, f) in every.items()
        }
        first = done[base]["avg_jct_h"]
        rows += [row_of(trace, title, one, first) for title, one in done.items()]
        record(name, rows, base=base)


def ablation(data: Path, jobs: int) -> None:
    """Each module taken out of Lucid+SchedMate."""
    lucid = "lucid+schedmate"
    every = {
        "Lucid+SchedMate": (lucid, "ga2m", None),
        "no advisor (Lucid's estimates, profiling)": (f"{lucid}:advisor=false", "ga2m", None),
        "no bypass": (f"{lucid}:bypass=false", "ga2m", None),
        "no tracker": (f"{lucid}:tracker=false", "ga2m", None),
        "max_slowdown 0.5": (f"{lucid}:max_slowdown=0.5", "ga2m", None),
        "Lucid": ("lucid", "ga2m", None),
    }
    traces = [trace_of(name, data, jobs) for name in ("Philly", "Seren")]
    variants("semantic_ablation", data, traces, every, "Lucid+SchedMate")


def sensitivity(data: Path, jobs: int) -> None:
    """Detection rate, error, latency, and the handler's recall and false alarms."""
    rates = FailureRates.parse(FAILURES)
    # Without sharing scores every pair that fits is made: the tracker has something to undo.
    lucid = "lucid+schedmate:capacity=4"
    every: dict[str, tuple[str, str, Any]] = {"SJF+SchedMate": ("sjf+schedmate", "user-mean", None)}
    for rate in (0.0, 0.25, 0.5, 0.75, 1.0):
        every[f"detection {rate:g}, any pair shares"] = (
            f"{lucid}:detection_rate={rate}",
            "user-mean",
            None,
        )
    for error in (0.5, 1.0, 2.0, 3.0):
        every[f"error x e^{error:g}"] = (f"sjf+schedmate:error={error}", "user-mean", None)
    for latency in (0, 60, 600):
        every[f"latency {latency} s"] = (f"sjf+schedmate:latency_s={latency}", "user-mean", None)
    for recall, alarms in ((0.0, 0.0), (0.61, 0.05), (1.0, 0.0), (1.0, 0.2), (1.0, 1.0)):
        every[f"failures; recall {recall:g}, false alarms {alarms:g}"] = (
            f"sjf+schedmate:recall={recall}:false_alarms={alarms}",
            "user-mean",
            rates,
        )
    every["failures; the handler itself"] = ("sjf+schedmate", "user-mean", rates)
    variants("semantic_sensitivity", data, [trace_of("Philly", data, jobs)], every, "SJF+SchedMate")


BEYOND = {
    "paper": f"lucid+schedmate:{PAPER}",
    "weighted": "lucid+schedmate",
    "weighted, risk": "lucid+schedmate:risk=0.5",
    "weighted, spread": "lucid+schedmate:spread=true",
    "weighted, affine": "lucid+schedmate:affine=true",
    "weighted, spread, affine": "lucid+schedmate:spread=true:affine=true",
    "SJF, weighted": "sjf+schedmate",
    "SJF, weighted, risk": "sjf+schedmate:risk=0.5",
}


def beyond(data: Path, jobs: int) -> None:
    """What the paper does not have: looked at on Philly with seed 1, reported on the others."""
    every = {title: (policy, "user-mean", None) for title, policy in BEYOND.items()}
    traces = [trace_of("Philly", data, jobs, seed=1)]
    traces += [trace_of(name, data, jobs, seed=2) for name in ("Seren", "Venus", "Saturn")]
    variants("semantic_beyond", data, traces, every, "paper")


if __name__ == "__main__":
    parts = {f.__name__: f for f in (case1, case3, estimation, sensitivity, ablation, beyond)}
    parts[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 4000)
