"""How fast the simulator is, beside a bare loop of the same rules, and how it grows with jobs.

    python benchmarks/simulator_speed.py PHILLY.CSV [philly|shares|latency|growth ...]

The bare loop is strict FIFO in a page of Python that keeps nothing but the mean JCT: no policy, no
view, no record, no other rule. It is timed right after each run of a policy, garbage collection off
for both; the least of several counts. On a busy machine both take longer: compare by `x bare`.
"""

from __future__ import annotations

import gc
import heapq
import json
import operator
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from _record import record

from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import Cluster, Job, Profile
from schedmate.schedulers.policy import Decision, View
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.metrics import PerJob, spent, summary
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload

NODES, SIZE = 80, 8


def main(philly: Path, chosen: Sequence[str]) -> None:
    """The tables called for, or all: a real trace, made-up ones of growing size, decisions."""
    if not chosen or "philly" in chosen:
        from schedmate.schedulers.sim.traces import read_trace

        rows = _compare(read_trace(philly), ("fifo", "sjf", "qssf", "tiresias", "srtf"))
        record("simulator_speed_philly", rows, trace="Philly, 82,247 jobs, 80 x 8 GPUs; real")
    if not chosen or "shares" in chosen:
        shares(philly)
    if not chosen or "latency" in chosen:
        decision_latency()
    if chosen and "growth" not in chosen:
        return
    rows = []
    for count in (10**3, 10**4, 10**5, 10**6):
        some = ("fifo", "tiresias") if count > 10**5 else ("fifo", "sjf", "tiresias", "lucid")
        for policy in some:
            rows.append({"jobs": f"{count:,}", "policy": policy, **_alone(count, policy)})
    record(
        "simulator_speed_growth",
        rows,
        trace="synthetic: Poisson arrivals, log-normal durations, load 0.85 of 80 x 8 GPUs, seed 0",
        memory="peak of a process that makes the jobs and simulates one policy, and of that the "
        "jobs before it begins; the interpreter with NumPy is some 30 MB of it",
    )


def synthetic(count: int, *, profiles: bool = True) -> Workload:
    """Jobs that keep the cluster at 0.85 load."""
    draw = random.Random(0)
    sizes = [1, 1, 1, 1, 1, 1, 2, 2, 4, 8, 16]
    durations = [min(draw.lognormvariate(7.0, 1.8), 6e5) for _ in range(count)]
    gpus = bytes(draw.choice(sizes) for _ in range(count))
    rate = 0.85 * NODES * SIZE * count / sum(map(operator.mul, durations, gpus))
    jobs, now = [], 0.0
    for index in range(count):
        now += draw.expovariate(rate)
        jobs.append(Job(str(index), index, now, gpus[index]))
    # A trace has some thousands of different profiles at most.
    kinds = [Profile(draw.uniform(5, 100), 20.0, draw.uniform(1e3, 2e4)) for _ in range(2000)]
    shown = [draw.choice(kinds) if profiles else None for _ in range(count)]
    return Workload("synthetic", jobs, durations, shown)


def _alone(count: int, policy: str) -> dict[str, object]:
    """One measurement in a process of its own, for its memory."""
    command = [sys.executable, __file__, "--one", str(count), policy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def one(count: int, policy: str) -> dict[str, object]:
    """Time and memory of one policy over `count` jobs."""
    workload = synthetic(count, profiles=policy == "lucid")
    before = _peak_mb()
    times, events = [], 0
    for _ in range(1 if count > 10**4 else 3):
        simulation = _simulation(workload, policy)
        began = time.process_time()
        events = simulation.run().events
        times.append(time.process_time() - began)
    peak = _peak_mb()
    yardstick = min(_timed(lambda: bare(workload)) for _ in range(1 if count > 10**4 else 3))
    return {
        "CPU s": round(min(times), 3),
        "bare loop": round(yardstick, 3),
        "x bare": round(min(times) / yardstick, 1),
        "microseconds a job": round(min(times) / count * 1e6, 1),
        "events a second": f"{events / min(times):,.0f}",
        "peak MB": peak,
        "jobs MB": before,
    }


def _simulation(workload: Workload, policy: str) -> Simulation:
    """Not begun; the run times are known beforehand."""
    cluster = Cluster.parse(f"{NODES}x{SIZE}")
    return Simulation(workload, make(policy), cluster, estimator=Table(workload.duration_s))


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _compare(
    workload: Workload, policies: tuple[str, ...], rounds: int = 5
) -> list[dict[str, object]]:
    times: dict[str, list[float]] = {policy: [] for policy in policies}
    metrics: dict[str, list[float]] = {policy: [] for policy in policies}
    events, yardsticks = {}, []
    # In turn, so that a busy minute of the machine is nobody's alone.
    for _ in range(rounds):
        for policy in policies:
            simulation = _simulation(workload, policy)
            began = time.process_time()
            outcome = simulation.run()
            times[policy].append(time.process_time() - began)
            events[policy] = outcome.events
            metrics[policy].append(_timed(lambda: _metrics(workload, simulation, outcome)))  # noqa: B023
            yardsticks.append(_timed(lambda: bare(workload)))
    return [
        {
            "policy": policy,
            "CPU s": round(min(times[policy]), 3),
            "bare loop": round(min(yardsticks), 3),
            "x bare": round(min(times[policy]) / min(yardsticks), 1),
            "metrics CPU s": round(min(metrics[policy]), 3),
            "with metrics x bare": round(
                (min(times[policy]) + min(metrics[policy])) / min(yardsticks), 1
            ),
            "microseconds a job": round(min(times[policy]) / len(workload) * 1e6, 1),
            "events a second": f"{events[policy] / min(times[policy]):,.0f}",
        }
        for policy in policies
    ]


def _metrics(workload: Workload, simulation: Simulation, outcome: Outcome) -> None:
    per_job = PerJob.of(workload, outcome)
    became = spent(workload, outcome, HONEST.restart)
    summary(workload, simulation.cluster, outcome, per_job, became)


def shares(philly: Path) -> None:
    """What of a simulation by the engine is the policy's own work: what no faster engine saves."""
    from schedmate.schedulers.sim.traces import read_trace
    from schedmate.schedulers.sim.traces.assign import assign
    from schedmate.schedulers.sim.traces.recipe import parse_recipe

    workload, rows = assign(read_trace(philly), *parse_recipe("lucid")), []
    for name in ("lucid", "tiresias", "srtf"):
        policy, spent = make(name), [0.0]
        decide = policy.decide

        def timed(view: View) -> Sequence[Decision]:
            began = time.process_time()
            decisions = decide(view)  # noqa: B023
            spent[0] += time.process_time() - began  # noqa: B023
            return decisions

        policy.decide = timed  # type: ignore[method-assign]
        cluster = Cluster.parse(f"{NODES}x{SIZE}")
        simulation = Simulation(workload, policy, cluster, estimator=Table(workload.duration_s))
        began = time.process_time()
        simulation.run()
        whole = time.process_time() - began
        rows.append(
            {
                "policy": name,
                "CPU s": round(whole, 2),
                "in the policy": f"{spent[0] / whole:.0%}",
                "times faster, were the engine free": round(whole / spent[0], 1),
            }
        )
    record("simulator_speed_shares", rows, trace="Philly, 82,247 jobs, 80 x 8 GPUs, recipe lucid")


def decision_latency() -> None:
    """One decision with a long queue (Lucid, section 4.4, gives its own for 2,048 jobs as 3 ms)."""
    rows = []
    for queued in (2048, 10_000):
        for policy in ("fifo", "sjf", "qssf:backfill=true", "srtf", "tiresias", "horus", "lucid"):
            # The same calls each time: the least of three is what they cost by themselves.
            runs = [_decisions(policy, queued) for _ in range(3)]
            found = [min(calls) for calls in zip(*runs, strict=True)]
            times = sorted(took for took, _ in found)
            longest, made = max(found)
            rows.append(
                {
                    "queue": f"{queued:,}",
                    "policy": policy,
                    "calls": len(found),
                    "median ms": round(times[len(times) // 2] * 1e3, 3),
                    "p99 ms": round(times[len(times) * 99 // 100] * 1e3, 2),
                    "longest ms": round(longest * 1e3, 2),
                    "decisions that it made": made,
                    "microseconds each": round(longest / max(made, 1) * 1e6, 1),
                }
            )
    record(
        "simulator_decision_latency",
        rows,
        trace="synthetic: 2,048 or 10,000 jobs arrive within 0.5 s (2.4 s) at 640 busy GPUs",
        counts="calls of `decide` while three quarters of them wait; each the least of three runs",
    )


def _decisions(policy: str, queued: int) -> list[tuple[float, int]]:
    """How long each call took [s], and how many decisions it returned."""
    draw = random.Random(0)
    jobs = [(0.0, 1e6, 1)] * (NODES * SIZE)
    jobs += [(1.0 + n / 4096, 1e5, draw.choice([1, 2, 4, 8])) for n in range(queued)]
    profiles = [Profile(draw.uniform(5, 100), 20.0, draw.uniform(1e3, 2e4)) for _ in jobs]
    workload = Workload.of(jobs, profiles=list(profiles))
    chosen = make(policy)
    found: list[tuple[float, int]] = []
    decide = chosen.decide

    def timed(view: View) -> Sequence[Decision]:
        waiting = len(view.pending)
        began = time.process_time()
        decisions = decide(view)
        took = time.process_time() - began
        if waiting >= queued * 3 // 4:
            found.append((took, len(decisions)))
        return decisions

    chosen.decide = timed  # type: ignore[method-assign]
    Simulation(
        workload, chosen, Cluster.parse(f"{NODES}x{SIZE}"), estimator=Table(workload.duration_s)
    ).run()
    return found


def _timed(work: Callable[[], object]) -> float:
    gc.disable()
    began = time.process_time()
    work()
    took = time.process_time() - began
    gc.enable()
    return took


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
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(int(sys.argv[2]), sys.argv[3])))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
