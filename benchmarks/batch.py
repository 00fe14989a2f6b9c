"""How batch analysis scales with processes.

    python benchmarks/batch.py [--jobs 200] [--processes 1,2,4]

The jobs are variations of the example repository's launch command, so each one is analysed anew.
The time to start the pool, which each process pays once, is part of what is measured; the rate
after the first result is given beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _record import record

from schedmate import Settings, load_settings
from schedmate.commands.batch import analyze_many
from schedmate.jobs import JobRecord
from schedmate.retrieval.embedders import load_embedder
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


def run(jobs: list[str], settings: Settings, processes: int) -> dict[str, Any]:
    """Analyse all jobs with so many processes."""
    began = time.perf_counter()
    first = began
    for number, result in enumerate(analyze_many(jobs, settings, processes)):
        if result.failed:
            raise SystemExit(f"a job failed: {result.document}")
        if number == 0:
            first = time.perf_counter()
    ended = time.perf_counter()
    return {
        "processes": processes,
        "jobs": len(jobs),
        "total_s": round(ended - began, 2),
        "first_result_s": round(first - began, 2),
        "jobs_per_s_once_running": round((len(jobs) - 1) / (ended - first), 1),
    }


def spin(_: int = 0) -> float:
    """Seconds of a loop that shares nothing: the yardstick of what more processes can give."""
    began = time.perf_counter()
    total = 0
    for number in range(10_000_000):
        total += number
    return time.perf_counter() - began


def ceiling(processes: int) -> float:
    """How many times the work of one process this machine does with several, at best."""
    alone = spin()
    with get_context("spawn").Pool(processes) as pool:
        together = max(pool.map(spin, range(processes)))
    return round(processes * alone / together, 2)


def main() -> None:
    """Measure, print and record."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--processes", default=",".join(map(str, sorted({1, 2, cores}))))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        settings = load_settings(history=Path(directory) / "history")
        with JobHistory.open(
            settings.history, load_embedder(settings.embedder), create=True
        ) as history:
            for line in (EXAMPLES / "history.jsonl").read_text().splitlines():
                history.add(JobRecord.model_validate_json(line))
        jobs = lines(options.jobs)
        rows = [run(jobs, settings, int(count)) for count in options.processes.split(",")]
    for row in rows:
        row["times_one_process"] = round(
            row["jobs_per_s_once_running"] / rows[0]["jobs_per_s_once_running"], 2
        )
        row["a_bare_loop"] = ceiling(row["processes"])
    record("batch", rows, cores=cores)


if __name__ == "__main__":
    main()
