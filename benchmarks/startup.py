"""What a whole command costs and how long it takes: a process from its start to its end.

    python benchmarks/startup.py

Every run is a new process with warm disk caches and compiled modules; `python -c pass`, run in turn
with the others, says how fast the machine was meanwhile. CPU time is that of the process and of all
it starts; goals are for it. A log has two lines, a repository is examples/train_repo. The last row
is the same work inside a running process, as the submit hook does it; the SchedMate paper's advisor
takes about 9 s a job.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import record

from schedmate import JobSpec, SchedMate, load_settings

EXAMPLES = Path(__file__).parent.parent / "examples"
REPO = str(EXAMPLES / "train_repo")
COMMAND = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"
LOG = "step 1 loss 2.0\nRuntimeError: CUDA error: device-side assert triggered\n"
YARDSTICK = "python -c pass"
RUNS = 9
# Compiled modules are kept, as they are where schedmate is installed.
ENVIRONMENT = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def process(*arguments: str) -> None:
    """One run of Python in a process of its own."""
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT
    )


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Wall time, and CPU time of this process and its children [s]."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    before = [resource.getrusage(kind) for kind in kinds]
    began = time.perf_counter()
    run()
    wall = time.perf_counter() - began
    after = [resource.getrusage(kind) for kind in kinds]
    cpu = sum(
        new.ru_utime + new.ru_stime - old.ru_utime - old.ru_stime
        for new, old in zip(after, before, strict=True)
    )
    return wall, cpu


def measure(commands: dict[str, tuple[Callable[[], object], float | None]]) -> list[dict[str, Any]]:
    """Medians of some runs of each, taken in turn, after one that does not count."""
    times: dict[str, list[tuple[float, float]]] = {what: [] for what in commands}
    for number in range(RUNS + 1):
        for what, (run, _) in commands.items():
            found = timed(run)
            if number:
                times[what].append(found)
    rows = []
    for what, (_, goal) in commands.items():
        wall, cpu = ([run[part] for run in times[what]] for part in (0, 1))
        middle = statistics.median(cpu)
        rows.append(
            {
                "what": what,
                "cpu_s": round(middle, 4),
                "least_cpu_s": round(min(cpu), 4),
                "wall_s": round(statistics.median(wall), 4),
                "goal_cpu_s": goal,
                "met": None if goal is None else middle < goal,
            }
        )
    return rows


def main() -> None:
    """Measure, print and record."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ENVIRONMENT["XDG_DATA_HOME"] = str(folder / "data")
        log = folder / "job.log"
        log.write_text(LOG)
        place = ["--history", str(folder / "history")]
        schedmate = ("-m", "schedmate")
        analyze = (*schedmate, "analyze", REPO, "--command", COMMAND)
        process(*schedmate, "history", "import", str(EXAMPLES / "history.jsonl"), *place)
        with SchedMate(load_settings(history=Path(place[1]))) as mate:
            spec = JobSpec(repo=REPO, command=COMMAND)
            rows = measure(
                {
                    YARDSTICK: (lambda: process("-c", "pass"), None),
                    "schedmate --version": (lambda: process(*schedmate, "--version"), 0.3),
                    "schedmate --help": (lambda: process(*schedmate, "--help"), 0.3),
                    "schedmate diagnose": (lambda: process(*schedmate, "diagnose", str(log)), 0.4),
                    "schedmate track": (lambda: process(*schedmate, "track", str(log)), 0.4),
                    "schedmate analyze": (lambda: process(*analyze), 0.8),
                    "schedmate analyze, 40 past jobs": (lambda: process(*analyze, *place), None),
                    "SchedMate.analyze, warm": (lambda: mate.analyze(spec), None),
                }
            )
    load = os.getloadavg()[0]
    record(
        "startup", rows, load=f"{load:.1f} (mean number of running processes in the last minute)"
    )


if __name__ == "__main__":
    main()
