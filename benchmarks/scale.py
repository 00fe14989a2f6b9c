"""How far one driver carries: measured with one and two processes, and simulated to a thousand.

    python benchmarks/scale.py [--logs 1200] [--jobs 120] [--tasks 2000] [--items 1000000]

Logs of a thousand steps, most of which end in one of three failures, go through `triage`, and
variations of the example repository through `analyze --batch`: in processes of this machine, and on
a local Ray cluster of one and of two cores. What its driver spends for each item (drawing it,
receiving and keeping its result) and for each task (a task of nothing) is CPU time of its process,
from the first result to the last, so that it holds on a busy machine, where wall time does not.

With these numbers and the CPU time that an item takes alone, the graph of tasks is simulated for
more workers: the driver serves one completion after another, a worker has two tasks, tasks are
sized as `schedmate.base.spread` does. The bottleneck is who is busy all the time. The simulation
knows no storage, no network and no machine that is slower than the others: they only take away.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _record import record
from batch import lines

from schedmate import load_settings
from schedmate.agent.static import extract
from schedmate.base.data import dumps
from schedmate.base.pool import MOST_ITEMS, RAY_AHEAD, RAY_TASK_S
from schedmate.base.spread import spread
from schedmate.commands.batch import Analyst, analyze_many
from schedmate.logparse.triage import Ledger, find_targets, triage
from schedmate.logparse.triage.run import examine
from schedmate.mate import SchedMate

WORKERS = (1, 2, 10, 30, 100, 300, 1000)
BUSY = 0.95
"""Who is busy for this share of the time is the bottleneck."""

ENDINGS = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "KeyError: 'labels'",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "Training completed.",
)


def write_logs(folder: Path, count: int) -> None:
    """That many logs of a thousand steps."""
    for number in range(count):
        steps = "".join(
            f"iteration {step}/ 1000 | lm loss: {9 / (step + number % 7 + 1):.4f} | "
            f"elapsed time per iteration (ms): {500 + (step * 7 + number) % 13}.0\n"
            for step in range(1, 1000)
        )
        end = f'Traceback (most recent call last):\n  File "t.py", line {number}, in <module>\n'
        (folder / f"job-{number}.log").write_text(f"{steps}{end}{ENDINGS[number % 4]}\n")


@dataclass(frozen=True)
class Cost:
    """Of each item between the first result and the last [s]."""

    wall_s: float
    driver_s: float


def cost(results: Iterable[Any]) -> Cost:
    """What results cost, each from the one before."""
    waiting = iter(results)
    next(waiting)
    began, used = time.perf_counter(), _cpu()
    count = sum(1 for _ in waiting)
    return Cost((time.perf_counter() - began) / count, (_cpu() - used) / count)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def read_s(line: str) -> float:
    """CPU time in which a repository is read [s]."""
    spec = json.loads(line)
    began = time.process_time()
    extract(Path(spec["repo"]), spec["command"])
    return time.process_time() - began


def nothing(item: int, _shared: None) -> int:
    """A task of nothing."""
    return item


def measured(options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The table of what was measured, and the numbers that the simulation takes."""
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / "logs"
        logs.mkdir()
        write_logs(logs, options.logs)
        targets = find_targets(str(logs), job="file").targets
        began = time.process_time()
        for target in targets[:100]:
            examine(target, ())
        found["log_s"] = (time.process_time() - began) / 100

        def triaged(**where: Any) -> Iterable[Any]:
            with Ledger(None, "benchmark") as ledger:
                yield from triage(targets, ledger, **where)

        settings = load_settings(history=str(Path(folder) / "history"), mode="static")
        jobs = lines(options.jobs)
        with SchedMate(settings, at_once=1) as mate:
            found["repository_s"] = statistics.median(read_s(line) for line in jobs[:20])

            def analysed(at_once: int = 1, ray: str | None = None) -> Iterable[Any]:
                for one in analyze_many(jobs, Analyst(settings, mate), at_once=at_once, ray=ray):
                    yield dumps(one.document)

            for count in (1, 2):
                add(rows, "triage", "processes", count, options.logs, triaged(processes=count))
            for count in (1, 2):
                with on_ray(count):
                    add(rows, "triage", "Ray", count, options.logs, triaged(ray="local"))
            found["triage_driver_s"] = rows[-1]["driver_ms_an_item"] / 1e3
            for count in (1, 2):
                add(rows, "analyze", "processes", count, options.jobs, analysed(count))
            for count in (1, 2):
                with on_ray(count):
                    add(rows, "analyze", "Ray", count, options.jobs, analysed(ray="local"))
            found["analyze_driver_s"] = rows[-1]["driver_ms_an_item"] / 1e3
    with on_ray(2):
        count = options.tasks
        results = spread(nothing, range(count), None, ray="local", most=1)
        add(rows, "nothing, an item a task", "Ray", 2, count, results)
    found["task_s"] = rows[-1]["driver_ms_an_item"] / 1e3
    return rows, found


@contextmanager
def on_ray(cores: int) -> Iterator[None]:
    """A local cluster of so many cores."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(
        "local",
        num_cpus=cores,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        yield
    finally:
        ray.shutdown()


def add(
    rows: list[dict[str, Any]],
    what: str,
    where: str,
    count: int,
    items: int,
    results: Iterable[Any],
) -> None:
    """A row of what results cost."""
    one = cost(results)
    before = [row for row in rows if (row["work"], row["where"]) == (what, where)]
    rows.append(
        {
            "work": what,
            "where": where,
            "cores": count,
            "items": items,
            "items_per_s": round(1 / one.wall_s, 1),
            "speedup": round(before[0]["wall_ms_an_item"] / (one.wall_s * 1e3), 2)
            if before
            else 1.0,
            "wall_ms_an_item": round(one.wall_s * 1e3, 3),
            "driver_ms_an_item": round(one.driver_s * 1e3, 3),
        }
    )
    print(rows[-1], flush=True)


@dataclass
class Outcome:
    """Of one simulated run."""

    seconds: float
    driver_busy: float
    workers_busy: float


def simulate(
    workers: int, items: int, item_s: float, driver_item_s: float, task_s: float
) -> Outcome:
    """The graph of tasks: workers with two tasks each, a driver that serves them one by one."""
    left, now, driver_free, busy, working = items, 0.0, 0.0, 0.0, 0.0
    size = 1
    queued: list[deque[int]] = [deque() for _ in range(workers)]
    ends: list[tuple[float, int, int]] = []
    running = [False] * workers

    def give(worker: int, at: float) -> None:
        nonlocal left, driver_free, busy
        count = min(size, left, max(1, -(-left // (RAY_AHEAD * workers * RAY_AHEAD))))
        if not count:
            return
        left -= count
        driver_free = max(driver_free, at) + task_s
        busy += task_s
        queued[worker].append(count)
        begin(worker, driver_free)

    def begin(worker: int, at: float) -> None:
        nonlocal working
        if not running[worker] and queued[worker]:
            count = queued[worker].popleft()
            running[worker] = True
            working += count * item_s
            heapq.heappush(ends, (at + count * item_s, worker, count))

    for _ in range(RAY_AHEAD):
        for worker in range(workers):
            give(worker, 0.0)
    while ends:
        now, worker, count = heapq.heappop(ends)
        running[worker] = False
        begin(worker, now)
        driver_free = max(driver_free, now) + count * driver_item_s
        busy += count * driver_item_s
        size = max(1, min(MOST_ITEMS, int(RAY_TASK_S / item_s)))
        give(worker, driver_free)
    seconds = max(now, driver_free)
    return Outcome(seconds, busy / seconds, working / seconds / workers)


def simulated(found: dict[str, Any], items: int) -> list[dict[str, Any]]:
    """The table of simulated runs."""
    rows = []
    for what, item_s, driver_s in (
        ("triage", found["log_s"], found["triage_driver_s"]),
        ("triage, logs ten times as long", 10 * found["log_s"], found["triage_driver_s"]),
        ("analyze", found["repository_s"], found["analyze_driver_s"]),
        ("runs of a second", 1.0, found["analyze_driver_s"]),
    ):
        for workers in WORKERS:
            one = simulate(workers, items, item_s, driver_s, found["task_s"])
            rows.append(
                {
                    "work": what,
                    "item_ms": round(item_s * 1e3, 2),
                    "driver_ms": round(driver_s * 1e3, 3),
                    "workers": workers,
                    "hours": round(one.seconds / 3600, 3),
                    "items_per_s": round(items / one.seconds),
                    "efficiency": round(one.workers_busy, 3),
                    "driver_busy": round(one.driver_busy, 3),
                    "bottleneck": "driver"
                    if one.driver_busy > BUSY
                    else "workers"
                    if one.workers_busy > BUSY
                    else "neither",
                }
            )
    return rows


def main() -> None:
    """Measure, simulate, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=1200)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--items", type=int, default=1_000_000)
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    rows, found = measured(options)
    facts = {key: f"{value * 1e3:.3f} ms" for key, value in found.items()}
    record("scale", rows, load_before=load, **facts)
    record("scale_simulated", simulated(found, options.items), items=options.items, **facts)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
