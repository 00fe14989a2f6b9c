"""What one decision of the queue actor costs with a thousand jobs waiting.

    .venv/bin/python benchmarks/ray_overhead.py

The queue without Ray: its store, its controller and each policy, on a cluster of 128 GPUs that is
full; runners are stand-ins that never end anything. A job ends, and its GPUs are given to others:
the time until the next one is on its way is that of one step, of which the policy's decision is a
part. CPU time, since the machine may be busy.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _record import record

from schedmate.cluster.ray.controller import Controller, expected_starts, waiting_reasons
from schedmate.cluster.ray.runner import News
from schedmate.cluster.ray.runs import QueueOptions
from schedmate.cluster.ray.seats import NodeSeen, Seats
from schedmate.cluster.ray.store import Request, Store, new_mark
from schedmate.jobs import JobSpec, LaunchConfig
from schedmate.schedulers import registry
from schedmate.schedulers.model import Forecast
from schedmate.schedulers.policy import Decision, View

QUEUED, STEPS = 1000, 60
POLICIES = ("fifo", "sjf", "srtf", "tiresias", "lucid", "lucid+schedmate", "sjf+schedmate")


class StandIn:
    """Runners that answer at once and end what they are told to."""

    def __init__(self) -> None:
        self.ended: list[News] = []
        self.running: list[int] = []

    def nodes(self) -> list[NodeSeen]:
        return [NodeSeen(f"id{n}", f"node{n:02d}", 8) for n in range(16)]

    def create(self, name: str, node: str, gpus: float) -> Any:
        return name

    def found(self) -> dict[str, Any]:
        return {}

    def call(self, handle: Any, method: str, *arguments: Any) -> Any:
        answer: Any = None
        if method == "describe":
            answer = {"runs": []}
        elif method == "start":
            self.running.append(arguments[0].run)
            answer = {"started": time.time()}
        elif method == "wait":
            answer = self.ended
        elif method == "stop":
            report = {"exit_code": 0, "why": "told", "ended": time.time(), "started": time.time()}
            self.ended.append(News(arguments[0], 0, report))
        return _Answer(answer)

    def ready(self, references: Any, timeout_s: float) -> list[Any]:
        return [one for one in references if one.value or one.value is None]

    def answer(self, reference: Any) -> Any:
        found = reference.value
        if found is self.ended:
            self.ended = []
        return found

    def kill(self, handle: Any) -> None:
        pass


class _Answer:
    def __init__(self, value: Any) -> None:
        self.value = value


def measure(policy: str) -> dict[str, Any]:
    """One policy."""
    draw = random.Random(policy)
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(Path(folder) / "queue.db") as store,
    ):
        backend = StandIn()
        seats = Seats(backend, "q", lease_s=60, keep_s=60, start_s=60)
        forecasts: dict[int, Forecast | None] = {}
        with store.writing():
            for _ in range(QUEUED + 200):
                gpus = draw.choice((1, 1, 1, 2, 4, 8))
                limit_s = draw.lognormvariate(8, 1)
                launch = LaunchConfig(gpus=gpus, time_limit_s=limit_s)
                spec = JobSpec(
                    repo="/", command="true", launch=launch, user=draw.choice("abcdefgh")
                )
                id_ = store.submit(new_mark(), Request(spec=spec, gpus=gpus), time.time())
                forecasts[id_] = Forecast(limit_s / 3, draw.uniform(5, 100), 4000.0)
        made = registry.make(policy)
        decide, decided = made.decide, [0.0]

        def timed(view: View) -> Sequence[Decision]:
            began = time.process_time()
            found = list(decide(view))
            decided.append(time.process_time() - began)
            return found

        made.decide = timed  # type: ignore[method-assign]
        queue = Controller(
            store, made, seats, QueueOptions(Path(folder)), forecasts=lambda: forecasts
        )
        queue.recover()
        for _ in range(40):
            queue.tick(0.0)
        steps, decisions = [], []
        waiting = store.counts()["PENDING"]
        for _ in range(STEPS):
            running = [one for one in queue.runs.values() if one.state == "running"]
            report = {"exit_code": 0, "why": "exited", "ended": time.time()}
            backend.ended.append(News(draw.choice(running).id, 0, report))
            decided.clear()
            began = time.process_time()
            for _ in range(4):  # the end is heard, decided on, begun, and has started
                queue.tick(0.0)
            steps.append(time.process_time() - began)
            decisions.append(max(decided, default=0.0))
        began = time.process_time()
        waiting_reasons(queue), expected_starts(queue, {})
        shown_s = time.process_time() - began
    return {
        "policy": policy,
        "waiting": waiting,
        "decision, median [ms]": round(1000 * statistics.median(decisions), 2),
        "decision, largest [ms]": round(1000 * max(decisions), 2),
        "end to next start, median [ms]": round(1000 * statistics.median(steps), 2),
        "end to next start, largest [ms]": round(1000 * max(steps), 2),
        "why and when of all [ms]": round(1000 * shown_s, 1),
    }


def main() -> None:
    """The table."""
    record("ray_overhead", [measure(policy) for policy in POLICIES], cluster="16x8")


if __name__ == "__main__":
    main()
