"""How fast the simulator is, beside a bare loop of the same rules, and how it grows with jobs.

    python benchmarks/simulator_speed.py [PHILLY.CSV]

The bare loop is strict FIFO in a page of Python that keeps nothing but the mean JCT: no policy, no
view, no record, no other rule. Each policy is timed right after it, three times, the least counts.
"""

from __future__ import annotations

import heapq
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from _record import record

from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import Cluster, Profile
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.workload import Workload

NODES, SIZE = 80, 8


def main(philly: Path | None) -> None:
    """Real trace first if there is one, then made-up ones of growing size."""
    if philly is not None:
        from schedmate.schedulers.sim.traces import read_trace

        rows = _compare(read_trace(philly), ("fifo", "sjf", "qssf", "tiresias", "srtf"))
        record("simulator_speed_philly", rows, trace="Philly, 82,247 jobs, 80 x 8 GPUs; real")
    rows = []
    for count in (10**3, 10**4, 10**5, 10**6):
        workload = synthetic(count)
        policies = ("fifo", "sjf", "tiresias", "lucid") if count <= 10**5 else ("fifo", "sjf")
        rows += [
            {"jobs": f"{count:,}", **row}
            for row in _compare(workload, policies, 3 - (count > 10**5))
        ]
    record(
        "simulator_speed_growth",
        rows,
        trace="synthetic: Poisson arrivals, log-normal durations, load 0.85 of 80 x 8 GPUs, seed 0",
    )
    decision_latency()


def synthetic(count: int) -> Workload:
    """Jobs that keep the cluster at 0.85 load."""
    draw = random.Random(0)
    gpus = [1, 1, 1, 1, 1, 1, 2, 2, 4, 8, 16]
    rows = [(0.0, min(draw.lognormvariate(7.0, 1.8), 6e5), draw.choice(gpus)) for _ in range(count)]
    work = sum(duration * n for _, duration, n in rows)
    rate = 0.85 * NODES * SIZE / (work / count)
    now, timed = 0.0, []
    for _, duration, n in rows:
        now += draw.expovariate(rate)
        timed.append((now, duration, n))
    profiles = [Profile(draw.uniform(5, 100), 20.0, draw.uniform(1e3, 2e4)) for _ in rows]
    return Workload.of(timed, profiles=list(profiles))


def _compare(
    workload: Workload, policies: tuple[str, ...], rounds: int = 3
) -> list[dict[str, object]]:
    yardstick = min(_timed(lambda: bare(workload)) for _ in range(rounds))
    rows: list[dict[str, object]] = [
        {"policy": "bare loop", "CPU s": round(yardstick, 3), "x bare": 1}
    ]
    for policy in policies:
        times, events = [], 0
        for _ in range(rounds):
            simulation = Simulation(
                workload,
                make(policy),
                Cluster.parse(f"{NODES}x{SIZE}"),
                estimator=Table(workload.duration_s),
            )
            began = time.process_time()
            events = simulation.run().events
            times.append(time.process_time() - began)
        rows.append(
            {
                "policy": policy,
                "CPU s": round(min(times), 3),
                "x bare": round(min(times) / yardstick, 1),
                "microseconds a job": round(min(times) / len(workload) * 1e6, 1),
                "events a second": f"{events / min(times):,.0f}",
                "peak MB of the process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                // 1024,
            }
        )
    return rows


def decision_latency() -> None:
    """One decision with 2,048 jobs in the queue (Lucid, section 4.4, gives its own as 3 ms)."""
    rows = []
    draw = random.Random(0)
    for policy in ("fifo", "sjf", "qssf:backfill=true", "srtf", "tiresias", "horus", "lucid"):
        jobs = [(0.0, 1e6, 1)] * (NODES * SIZE)
        jobs += [(1.0 + n / 4096, 1e5, draw.choice([1, 2, 4, 8])) for n in range(2048)]
        profiles = [Profile(draw.uniform(5, 100), 20.0, draw.uniform(1e3, 2e4)) for _ in jobs]
        workload = Workload.of(jobs, profiles=list(profiles))
        chosen = make(policy)
        simulation = Simulation(
            workload, chosen, Cluster.parse(f"{NODES}x{SIZE}"), estimator=Table(workload.duration_s)
        )
        times: list[float] = []
        decide = chosen.decide

        def timed(view, decide=decide, times=times):  # type: ignore[no-untyped-def]
            began = time.process_time()
            found = decide(view)
            if len(view.pending) >= 1500:
                times.append(time.process_time() - began)
            return found

        chosen.decide = timed  # type: ignore[method-assign]
        simulation.run()
        times.sort()
        rows.append(
            {
                "policy": policy,
                "decisions with 1,500 to 2,048 waiting": len(times),
                "median ms": round(times[len(times) // 2] * 1e3, 3) if times else None,
                "largest ms": round(times[-1] * 1e3, 2) if times else None,
            }
        )
    record("simulator_decision_latency", rows, trace="synthetic: 2,048 jobs wait for 640 busy GPUs")


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def bare(workload: Workload) -> float:
    """Strict FIFO with consolidated best fit; the mean JCT."""
    jobs = [(job.submit_time, job.gpus) for job in workload.jobs]
    durations, count = workload.duration_s, len(workload)
    free = [SIZE] * NODES
    buckets: list[set[int]] = [set() for _ in range(SIZE)] + [set(range(NODES))]
    ends: list[tuple[float, int, list[tuple[int, int]]]] = []
    queue: list[int] = []
    head, i, total = 0, 0, 0.0
    while i < count or ends:
        if ends and (i >= count or ends[0][0] <= jobs[i][0]):
            now, _, held = heapq.heappop(ends)
            for node, n in held:
                buckets[free[node]].discard(node)
                free[node] += n
                buckets[free[node]].add(node)
        else:
            now = jobs[i][0]
            queue.append(i)
            i += 1
        while head < len(queue):
            job = queue[head]
            n = jobs[job][1]
            places = None
            if n <= SIZE:
                for left in range(n, SIZE + 1):
                    if buckets[left]:
                        places = [(next(iter(buckets[left])), n)]
                        break
            elif len(buckets[SIZE]) >= -(-n // SIZE):
                nodes = list(buckets[SIZE])[: -(-n // SIZE)]
                places = [(node, min(SIZE, n - SIZE * k)) for k, node in enumerate(nodes)]
            if places is None:
                break
            head += 1
            for node, taken in places:
                buckets[free[node]].discard(node)
                free[node] -= taken
                buckets[free[node]].add(node)
            heapq.heappush(ends, (now + durations[job], job, places))
            total += now + durations[job] - jobs[job][0]
    return total / count


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
