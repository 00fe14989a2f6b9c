"""What hostile input can take: time, memory, and the answers of the jobs beside it.

    python benchmarks/hostile.py [--inputs 2000] [--seed 0] [--at-once 2]

Three tables. `hostile` reads made-up hostile repositories and logs, a deadline of 0.5 s each, and
counts overruns: an answer more than 50 ms after the deadline, or a process that has used more than
its memory limit (goal: none). `hostile_hook` asks the submit hook from 16 threads,
one submission in ten hostile. `hostile_cost` is what reading in a process of its own costs the
usual job, in pairs with reading in this process.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from _hostile_inputs import FIXTURES, LOGS, REPOSITORIES
from _record import record
from rich.progress import track

from schedmate import JobSpec, LaunchConfig, SchedMate, load_settings
from schedmate.base.errors import LimitError, SchedmateError
from schedmate.readers import Readers

DEADLINE_S = 0.5
LATE_S = 0.05
MEMORY_MB = 2048
CLASSES = {one.__name__: one for one in (*REPOSITORIES, *LOGS)}
EXAMPLES = Path(__file__).parent.parent / "examples"
COMMAND = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"


def attack(readers: Readers, name: str, seed: int) -> tuple[str, float]:
    """Read one input; gives the outcome and how long that took [s]."""
    rng = random.Random(f"{name} {seed}")
    case = CLASSES[name](rng)
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        path = case.write(folder)
        began = time.perf_counter()
        try:
            if case.log is None:
                spec = JobSpec(repo=str(path), command=case.command)
                readers.extract(spec, DEADLINE_S, DEADLINE_S)
            elif rng.random() < 0.5:
                readers.track(path, wall_s=DEADLINE_S)
            else:
                readers.diagnose([path], wall_s=DEADLINE_S)
            outcome = "answered"
        except LimitError:
            outcome = "ended at a limit"
        except SchedmateError as error:
            outcome = "internal error" if "internal error" in str(error) else "refused"
        taken = time.perf_counter() - began
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome, taken


def attacks(inputs: int, seed: int, at_once: int) -> None:
    """The table `hostile`."""
    names = list(CLASSES)
    tasks = [(names[n % len(names)], seed + n) for n in range(inputs)]
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    times: defaultdict[str, list[float]] = defaultdict(list)
    errors = []
    with Readers(MEMORY_MB) as readers, ThreadPoolExecutor(at_once) as pool:
        readers.prepare()
        results = pool.map(lambda task: attack(readers, *task), tasks)
        described = track(zip(tasks, results, strict=True), "attacking", len(tasks))
        for (name, number), (outcome, taken) in described:
            outcomes[name][outcome] += 1
            times[name].append(taken)
            if outcome == "internal error":
                errors.append(f"{name} {number}")
    # of the template's processes, all of which have ended by now
    most_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    kinds = ("answered", "refused", "ended at a limit", "internal error")
    rows = []
    for name in [*names, "all"]:
        every = [one for each in times.values() for one in each] if name == "all" else times[name]
        counts = sum(outcomes.values(), Counter()) if name == "all" else outcomes[name]
        if not every:
            continue
        rows.append(
            {
                "class": name,
                "inputs": len(every),
                **{kind: counts[kind] for kind in kinds},
                "median_s": round(statistics.median(every), 3),
                "longest_s": round(max(every), 3),
                "late": sum(one > DEADLINE_S + LATE_S for one in every),
            }
        )
    record(
        *("hostile", rows),
        seed=seed,
        at_once=at_once,
        deadline_s=DEADLINE_S,
        memory_limit_mb=MEMORY_MB,
        most_memory_mb=round(most_mb),
        internal_errors="; ".join(errors[:20]) or "none",
    )


def hook(seed: int, calls: int = 4000, threads: int = 16) -> None:
    """The table `hostile_hook`: usual submissions beside hostile ones, one in ten."""
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    hostile = []
    for number in range(60):
        place = folder / str(number)
        place.mkdir()
        case = rng.choice(REPOSITORIES)(rng)
        case.write(place)
        hostile.append(JobSpec(repo=str(place), command=case.command))
    usual = JobSpec(repo=str(EXAMPLES / "train_repo"), command=COMMAND)
    history = folder / "history"
    importing = [
        sys.executable,
        "-m",
        "schedmate",
        "history",
        "import",
        str(EXAMPLES / "history.jsonl"),
    ]
    subprocess.run([*importing, "--history", str(history)], check=True, capture_output=True)
    lock, taken = threading.Lock(), defaultdict[str, list[tuple[float, bool]]](list)

    def submit(number: int) -> None:
        kind = "hostile" if number % 10 == 0 else "usual"
        spec = hostile[number // 10 % len(hostile)] if kind == "hostile" else usual
        began = time.perf_counter()
        estimate = mate.on_submit(spec)
        with lock:
            taken[kind].append((time.perf_counter() - began, estimate is not None))

    with SchedMate(load_settings(history=history, deadline_s=DEADLINE_S)) as mate:
        began = time.perf_counter()
        mate.on_submit(usual)
        first = time.perf_counter() - began
        mate.prepare()
        with ThreadPoolExecutor(threads) as pool:
            list(track(pool.map(submit, range(calls)), "submitting", calls))
    shutil.rmtree(folder, ignore_errors=True)
    rows: list[dict[str, Any]] = [
        {"submissions": "the first call", "n": 1, "longest_s": round(first, 3)}
    ]
    for kind in ("usual", "hostile", "all"):
        found = [one for k, each in taken.items() if kind in (k, "all") for one in each]
        times = sorted(one for one, _ in found)
        rows.append(
            {
                "submissions": kind,
                "n": len(times),
                "answered": sum(answered for _, answered in found),
                **{
                    f"p{100 * share:g}_s": round(
                        times[min(int(share * len(times)), len(times) - 1)], 3
                    )
                    for share in (0.5, 0.99, 0.999)
                },
                "longest_s": round(times[-1], 3),
                "late": sum(one > DEADLINE_S + LATE_S for one in times),
            }
        )
    record("hostile_hook", rows, threads=threads, deadline_s=DEADLINE_S, seed=seed)


def cost(rounds: int = 3) -> None:
    """The table `hostile_cost`: ordinary repositories, confined and in this process."""
    from schedmate.agent.static import extract

    jobs = [
        JobSpec(repo=str(case.parent), command=yaml.safe_load(case.read_text())["command"])
        for case in sorted(FIXTURES.glob("*/case.yaml"))
    ]
    jobs.append(JobSpec(repo=str(EXAMPLES / "train_repo"), command=COMMAND))
    direct, confined = [], []
    with Readers() as readers:
        readers.prepare()
        for spec in track(jobs * rounds, "pairing"):
            try:
                began = time.perf_counter()
                extract(Path(spec.repo or ""), spec.command, LaunchConfig())
                middle = time.perf_counter()
                readers.extract(spec, 10.0)
                ended = time.perf_counter()
            except SchedmateError:
                continue
            direct.append(middle - began)
            confined.append(ended - middle)
    more = sorted(1000 * (b - a) for a, b in zip(direct, confined, strict=True))
    rows = [
        {
            "pairs": len(more),
            "direct_median_ms": round(1000 * statistics.median(direct), 1),
            "confined_median_ms": round(1000 * statistics.median(confined), 1),
            "more_median_ms": round(statistics.median(more), 1),
            "more_p90_ms": round(more[int(0.9 * len(more))], 1),
            "goal_ms": 20,
        }
    ]
    record("hostile_cost", rows)


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", choices=["attacks", "hook", "cost"])
    options = parser.parse_args()
    if options.only in (None, "cost"):
        cost()
    if options.only in (None, "hook"):
        hook(options.seed)
    if options.only in (None, "attacks"):
        attacks(options.inputs, options.seed, options.at_once)


if __name__ == "__main__":
    main()
