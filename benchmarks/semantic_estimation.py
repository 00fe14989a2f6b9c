"""How good estimates at submission are (the paper's Figure 12).

    python benchmarks/semantic_estimation.py DATA [JOBS [SEED ...]]

DATA has philly/philly.csv, with real run times; what jobs train is made up by a recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from _record import record
from _runs import trace_of

from schedmate.schedulers.adapters.modules import Advisor
from schedmate.schedulers.estimators import Estimator, UserMean
from schedmate.schedulers.learned import Learned
from schedmate.schedulers.model import Forecast, Job
from schedmate.schedulers.sim.traces.assign import GROUP
from schedmate.schedulers.sim.workload import Workload


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


class Quiet(Estimator):
    """Knows nothing, so that only what the advisor says is counted."""


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


def estimation(data: Path, jobs: int, seeds: Sequence[int]) -> None:
    """Errors at submission by how often workloads recur and what code states (Figure 12)."""
    rows = []
    for recurrence, stated in ((0.3, 0), (0.6, 0), (0.9, 0), (0.6, 1), (0.9, 1)):
        found: dict[str, list[dict[str, float]]] = {}
        recipe = f"lucid:recurrence={recurrence},stated={stated}"
        for seed in seeds:
            work = trace_of("Philly", data, jobs, seed, recipe=recipe).workload
            estimators = {
                "SchedMate, paper": Advisor(work, Quiet(), method="mean"),
                "SchedMate": Advisor(work, Quiet()),
                "SchedMate, expected value": Advisor(work, Quiet(), risk=1.0),
                "oracle retrieval": Same(work),
                "Lucid's GA2M": Learned("ga2m"),
                "QSSF's boosting": Learned("boosting"),
                "user's mean": UserMean(),
            }
            for title, estimator in estimators.items():
                found.setdefault(title, []).append(_errors(work, replay(work, estimator)))
        for title, several in found.items():
            line: dict[str, Any] = {"recurrence": recurrence, "stated": stated, "estimator": title}
            for key in several[0]:
                values = [one[key] for one in several]
                share = key != "p90 factor"
                middle, wide = np.mean(values), np.ptp(values) / 2
                line[key] = f"{middle:.1%} ± {wide:.1%}" if share else f"{middle:.1f} ± {wide:.1f}"
                if np.isnan(middle):
                    line[key] = None
            rows.append(line)
    record(
        "semantic_estimation",
        rows,
        trace=f"Philly, {jobs} jobs, seeds {seeds}: real run times, workloads made "
        "up; ± half the range over seeds",
        note="paper, on Mars: 85.7 % below 100 %, Lucid 27.7 %; utilisation 28.1 %",
    )


def _errors(work: Workload, told: list[Forecast | None]) -> dict[str, float]:
    pairs = [(f, n) for n, f in enumerate(told) if f is not None]
    factors = np.array([f.duration_s / work.duration_s[n] for f, n in pairs])
    errors, logs = abs(factors - 1), abs(np.log(factors))
    used = [
        abs(f.gpu_util / use.gpu_util - 1)
        for f, n in pairs
        if f.gpu_util is not None and (use := work.profiles[n]) is not None
    ]
    return {
        "answers": len(pairs) / len(work),
        "error < 100 %": float((errors < 1).mean()),
        "error < 50 %": float((errors < 0.5).mean()),
        "median error": float(np.median(errors)),
        "within 2x": float((logs < np.log(2)).mean()),
        "p90 factor": float(np.exp(np.percentile(logs, 90))),
        "utilisation error": float(np.mean(used)) if used else float("nan"),
    }


if __name__ == "__main__":
    path, count, *draws = [*sys.argv[1:], *("1000", "1", "2", "3")[len(sys.argv) - 2 :]]
    estimation(Path(path), int(count), [int(one) for one in draws])
