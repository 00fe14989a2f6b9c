"""Thirty jobs on a real Slurm with and without schedmate's agent, and what an agent costs.

    sudo .venv/bin/python benchmarks/slurm_live.py        (root, and `.ci/install live`)

A private Slurm 22.05 (tests/live/slurm_testbed.py): four nodes of four fake GPUs on this machine.
Jobs are real batch jobs of a node each, whose training is a sleep of known length; the agent reads
their code and has learned from twelve earlier jobs that ran on the same cluster. The queue is full
before the first job starts, with and without the agent alike; the order of submission is drawn
anew for each repetition. The same jobs, with the run times that Slurm measured, then run in the
simulator: FIFO, and shortest job first on the estimates that the agent gave.

The second table is one agent on a thousand pending jobs: CPU time of all its processes.
"""

from __future__ import annotations

import csv
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "live"))

from _record import record  # noqa: E402
from agents import AgentFiles  # noqa: E402
from slurm_testbed import USER, Testbed, missing, until  # noqa: E402
from training_jobs import EPOCH_S, TrainingJob, make_repository, submit  # noqa: E402

REPETITIONS = 3
PAST = [
    TrainingJob(model, round(length / EPOCH_S[model]))
    for model in EPOCH_S
    for length in (1, 3, 9, 24)
]
LENGTHS = (
    1,
    1,
    1,
    2,
    2,
    2,
    3,
    3,
    4,
    4,
    5,
    5,
    6,
    6,
    7,
    8,
    8,
    9,
    10,
    10,
    12,
    12,
    14,
    14,
    16,
    18,
    18,
    20,
    22,
    24,
)
"""Run times of the thirty jobs [s]."""
PENDING = 1000
PASSES = 30
POLL_S = 10.0


def main() -> None:
    """Both tables."""
    why = missing()
    if why is not None:
        sys.exit(why)
    root = Path(tempfile.mkdtemp(prefix="schedmate-bench-"))
    root.rmdir()
    more = "MaxJobCount=20000"
    with Testbed(root, more=more) as bed, tempfile.TemporaryDirectory() as folder:
        os.environ.update(bed.environment, SLURM_TIME_FORMAT="%s")
        bed.environment["SLURM_TIME_FORMAT"] = "%s"
        files = AgentFiles(bed, Path(folder))
        files.allow(
            order={"allowed": True, "shortest": 1, "longest": 30, "ageing": "1d", "every": 1}
        )
        repository = make_repository(bed.jobs_folder / "training")
        if "--cost" not in sys.argv:
            learn(bed, files, repository)
            rows = [
                row for seed in range(REPETITIONS) for row in compare(bed, files, repository, seed)
            ]
            record("slurm_live", rows, slurm="22.05.8", jobs=len(LENGTHS), nodes="4 x 4 fake GPUs")
        record("slurm_cost", cost(bed, files, repository), slurm="22.05.8", passes=PASSES)


def learn(bed: Testbed, files: AgentFiles, repository: Path) -> None:
    """Let the agent see the earlier jobs end."""
    with files.opened() as setup:
        setup.agent.once()
        jobs = [submit(bed, repository, job) for job in PAST]
        until("the earlier jobs", 300, lambda: not bed.queue())
        learned = 0
        while learned < len(jobs):
            learned += setup.agent.once().learned
            time.sleep(1.0)


def compare(bed: Testbed, files: AgentFiles, repository: Path, seed: int) -> list[dict[str, Any]]:
    """One repetition: without, with, and both in the simulator."""
    draw = random.Random(seed)
    models = list(EPOCH_S)
    jobs = [
        TrainingJob(model, max(1, round(length / EPOCH_S[model])))
        for length in draw.sample(LENGTHS, len(LENGTHS))
        for model in [draw.choice(models)]
    ]
    rows = []
    for with_us in (False, True):
        ran = run(bed, files if with_us else None, repository, jobs)
        simulated = simulate(ran, "sjf" if with_us else "fifo")
        waits = [one["wait"] for one in ran]
        rows.append(
            {
                "repetition": seed + 1,
                "order": "schedmate" if with_us else "Slurm alone",
                "mean wait [s]": round(statistics.mean(waits), 1),
                "median wait [s]": round(statistics.median(waits), 1),
                "longest wait [s]": round(max(waits), 1),
                "simulated mean wait [s]": round(simulated, 1),
                "difference": f"{statistics.mean(waits) / simulated - 1:+.1%}",
                "estimates off by (median factor)": round(
                    statistics.median(
                        max(one["estimate"] / one["length"], one["length"] / one["estimate"])
                        for one in ran
                    ),
                    2,
                )
                if with_us
                else "",
            }
        )
    return rows


def run(
    bed: Testbed, files: AgentFiles | None, repository: Path, jobs: list[TrainingJob]
) -> list[dict[str, float]]:
    """Run all jobs; their waits [s], run times as Slurm says, and estimates."""
    bed.clear()
    blocker = bed.submit("sleep 3600", nodes=4)
    until("the blocker", 30, lambda: [blocker, "RUNNING"] in bed.queue("%A %T"))
    ids = [submit(bed, repository, job) for job in jobs]
    estimates: dict[str, float] = {}
    if files is not None:
        with files.opened() as setup:
            while len(estimates) < len(ids):
                found = setup.agent.once()
                assert not found.problems, found.problems
                estimates |= {
                    one.job: one.estimate.duration_s or 0.0
                    for one in found.estimated
                    if one.job in ids
                }
            setup.agent.once()
    bed.run("scancel", blocker)
    until("all jobs", 600, lambda: not bed.queue())
    until("accounting", 60, lambda: all(bed.settled(job) for job in ids))
    fields = "JobIDRaw,Start,End"
    rows = {row[0]: row for row in bed.accounting(",".join([*ids, blocker]), fields)}
    free = float(rows[blocker][2])
    return [
        {
            "wait": float(rows[job][1]) - free,
            "length": max(1.0, float(rows[job][2]) - float(rows[job][1])),
            "estimate": estimates.get(job, 0.0),
        }
        for job in ids
    ]


def simulate(ran: list[dict[str, float]], policy: str) -> float:
    """The mean wait of the same jobs in the simulator [s]."""
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder) / "jobs.csv", Path(folder) / "out"
        with trace.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["job_id", "submit", "duration", "gpus", "estimate"])
            for number, one in enumerate(ran):
                writer.writerow([number, 0, one["length"], 4, one["estimate"]])
        told = ["--estimator", "column:estimate"] if policy == "sjf" else []
        columns = "submit=submit,duration=duration,gpus=gpus"
        words = [sys.executable, "-m", "schedmate", "simulate", trace, "--policy", policy]
        subprocess.run(
            [*words, "--cluster", "4x4", *told, "--map", columns, "--out", out],
            check=True,
            capture_output=True,
        )
        (summary,) = out.rglob("summary.json")
        return float(json.loads(summary.read_text())["avg_queue_h"]) * 3600


def cost(bed: Testbed, files: AgentFiles, repository: Path) -> list[dict[str, Any]]:
    """What an agent costs on a full queue."""
    bed.clear()
    blocker = bed.submit("sleep 36000", nodes=4)
    until("the blocker", 30, lambda: [blocker, "RUNNING"] in bed.queue("%A %T"))
    script = repository / "train.sh"
    one = f"sbatch -Q --gres=gpu:4 {script} resnet18"
    bed.run("sh", "-c", f"for n in $(seq {PENDING}); do {one} $n; done", user=USER, timeout=1200)
    files.allow(
        order={"allowed": True, "shortest": 1, "longest": 30, "ageing": "1d"},
        learn={"every": 30},
        advise={"seconds": 600},
    )
    rows = []
    with files.opened() as setup:
        began, spent = time.perf_counter(), cpu_s()
        first = setup.agent.once()
        rows.append(
            row("first pass: every job is read and ordered", began, spent, 1, first.pending)
        )
        began, spent = time.perf_counter(), cpu_s()
        for _ in range(PASSES):
            setup.agent.once()
        rows.append(
            row(
                f"{PASSES} further passes, accounting asked in the first",
                began,
                spent,
                PASSES,
                first.pending,
            )
        )
        began, spent = time.perf_counter(), cpu_s()
        for _ in range(PASSES):
            setup.agent._due.clear()  # noqa: SLF001
            setup.agent.once()
        rows.append(
            row(
                f"{PASSES} passes that ask accounting each time",
                began,
                spent,
                PASSES,
                first.pending,
            )
        )
    return rows


def cpu_s() -> float:
    """CPU time of this process and of all that it has started and waited for [s]."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


def row(what: str, began: float, spent: float, passes: int, pending: int) -> dict[str, Any]:
    """One line of the second table."""
    each = (cpu_s() - spent) / passes
    return {
        "what": what,
        "pending jobs": pending,
        "wall time of a pass [s]": round((time.perf_counter() - began) / passes, 3),
        "CPU time of a pass [s]": round(each, 4),
        f"share of a core at a pass every {POLL_S:g} s": f"{each / POLL_S:.2%}"
        if passes > 1
        else "",
    }


if __name__ == "__main__":
    main()
