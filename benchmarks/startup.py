"""How long a person waits: `schedmate --help` (goal 0.3 s) and one whole `analyze` (goal 2 s).

    python benchmarks/startup.py

Every run is a new process with warm disk caches. The last row is the same work inside a running
process, as the submit hook does it; the SchedMate paper's advisor takes about 9 s a job.
"""

from __future__ import annotations

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
PAPER_S = 9.0


def schedmate(*arguments: str) -> None:
    """One run of the command line in a process of its own."""
    subprocess.run(
        [sys.executable, "-m", "schedmate", *arguments], check=True, stdout=subprocess.DEVNULL
    )


def measure(what: str, run: Callable[[], object], goal_s: float, runs: int = 15) -> dict[str, Any]:
    """Median and worst of some runs, after one that does not count."""
    run()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    middle = statistics.median(times)
    return {
        "what": what,
        "median_s": round(middle, 4),
        "worst_s": round(max(times), 4),
        "goal_s": goal_s,
        "met": middle < goal_s,
        "times_faster_than_the_papers_9_s": round(PAPER_S / middle, 1),
    }


def main() -> None:
    """Measure, print and record."""
    with tempfile.TemporaryDirectory() as directory:
        place = ["--history", str(Path(directory) / "history")]
        schedmate("history", "import", str(EXAMPLES / "history.jsonl"), *place)
        analyze = ["analyze", REPO, "--command", COMMAND, "--json", *place]
        rows = [
            measure("schedmate --version", lambda: schedmate("--version"), 0.3),
            measure("schedmate --help", lambda: schedmate("--help"), 0.3),
            measure("schedmate analyze", lambda: schedmate(*analyze), 2.0),
        ]
        with SchedMate(load_settings(history=Path(place[1]))) as mate:
            spec = JobSpec(repo=REPO, command=COMMAND)
            rows.append(measure("SchedMate.analyze, warm", lambda: mate.analyze(spec), 2.0))
    record("startup", rows)


if __name__ == "__main__":
    main()
