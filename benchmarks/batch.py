"""How batch analysis scales with processes.

    python benchmarks/batch.py [--jobs 300] [--processes 1,2,4] [--rounds 3]

The jobs are variations of the example repository's launch command, so each one is analysed anew.

Wall time shows scaling only on cores that nobody else uses. CPU time shows it on any: jobs that
processes do side by side must cost each no more than alone, and what the parent process does for
each job (the only serial part) bounds how many processes can be kept busy. Both are measured less
what a run of one job a process costs, which is mostly starting it. Cores that are shared, with
other programs or as two threads of one, make CPU time itself longer, so a bare loop, which shares
nothing, is measured with as many processes in the same round: jobs should cost no more than it
grows by. The rounds alternate, and the table has their medians.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from _record import record

from schedmate import Settings, load_settings
from schedmate.commands.batch import Analyst, analyze_many
from schedmate.jobs import JobRecord
from schedmate.mate import SchedMate, embedder_of
from schedmate.retrieval.history import JobHistory

EXAMPLES = Path(__file__).parent.parent / "examples"


def lines(count: int) -> list[str]:
    """That many different jobs."""
    models = ("resnet18", "resnet50", "vit_small")
    return [
        json.dumps(
            {
                "repo": str(EXAMPLES / "train_repo"),
                "command": f"torchrun --nproc_per_node=4 train.py model={models[number % 3]} "
                f"trainer.epochs={10 + number}",
            }
        )
        for number in range(count)
    ]


@dataclass(frozen=True)
class Cost:
    """What some work took [s]: wall time, and CPU time of this process and of its children."""

    wall: float
    parent: float
    workers: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            self.wall - other.wall, self.parent - other.parent, self.workers - other.workers
        )

    @classmethod
    def now(cls) -> Cost:
        """Since the start; children count once they have ended."""
        for child in multiprocessing.active_children():
            child.join()
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.perf_counter(), time.process_time(), spent.ru_utime + spent.ru_stime)


def run(jobs: list[str], settings: Settings, processes: int) -> Cost:
    """Analyse all jobs with so many processes."""
    began = Cost.now()
    with SchedMate(settings, at_once=processes) as mate:
        for result in analyze_many(jobs, Analyst(settings, mate), at_once=processes):
            if result.failed:
                raise RuntimeError(f"a job failed: {result.document}")
    return Cost.now() - began


def spin(_: int = 0) -> float:
    """CPU seconds of a loop that shares nothing."""
    began = time.process_time()
    total = 0
    for number in range(20_000_000):
        total += number
    return time.process_time() - began


def bare_loop(processes: int) -> float:
    """The same, on average of as many processes at once."""
    with get_context("spawn").Pool(processes) as pool:
        return statistics.fmean(pool.map(spin, range(processes), chunksize=1))


def measure(jobs: list[str], settings: Settings, processes: int) -> dict[str, float]:
    """Milliseconds a job."""
    rest = len(jobs) - processes
    cost = run(jobs, settings, processes) - run(jobs[:processes], settings, processes)
    return {
        "wall_ms": 1000 * cost.wall / rest,
        "worker_cpu_ms": 1000 * cost.workers / rest,
        "parent_cpu_ms": 1000 * cost.parent / rest,
        "bare_loop_cpu_ms": 1000 * bare_loop(processes),
    }


def main() -> None:
    """Measure, print and record."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--processes", default=",".join(map(str, sorted({1, 2, 4, cores}))))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    counts = [int(count) for count in options.processes.split(",")]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        settings = load_settings(history=Path(directory) / "history")
        with JobHistory.open(settings.history, embedder_of(settings)) as history:
            for line in (EXAMPLES / "history.jsonl").read_text().splitlines():
                history.add(JobRecord.model_validate_json(line))
        jobs = lines(options.jobs)
        rounds = [
            {count: measure(jobs, settings, count) for count in counts}
            for _ in range(options.rounds)
        ]
    rows = []
    for count in counts:
        taken = {
            name: statistics.median(each[count][name] for each in rounds)
            for name in rounds[0][count]
        }
        first = rows[0] if rows else {"processes": count, **taken}
        rows.append(
            {
                "processes": count,
                **taken,
                "jobs_per_s": 1000 / taken["wall_ms"],
                "wall_speedup": first["wall_ms"] / taken["wall_ms"],
                "job_cpu_growth": taken["worker_cpu_ms"] / first["worker_cpu_ms"],
                "bare_loop_growth": taken["bare_loop_cpu_ms"] / first["bare_loop_cpu_ms"],
                "parent_keeps_busy": taken["worker_cpu_ms"] / taken["parent_cpu_ms"],
            }
        )
    rows = [{name: round(value, 2) for name, value in row.items()} for row in rows]
    record("batch", rows, cores=cores, jobs=options.jobs, load_before=round(load, 2))


if __name__ == "__main__":
    main()
