"""A queue in this process, over seats without Ray; its jobs are real processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from thread_seats import ThreadBackend

from schedmate.cluster.ray.controller import Controller
from schedmate.cluster.ray.runner import Order, Runner
from schedmate.cluster.ray.runs import QueueOptions
from schedmate.cluster.ray.seats import Seats
from schedmate.cluster.ray.store import Request, Store, StoredJob, new_mark
from schedmate.jobs import JobSpec, LaunchConfig
from schedmate.schedulers.policy import Decision, Observer, Policy, Start, View

LONG_S = 300.0
"""How long to wait for what is sure to come [s]."""

Make = Callable[..., "Queue"]

WORK = """\
import fcntl, os, pathlib, signal, sys, time
name, steps = sys.argv[1], int(sys.argv[2])
place = pathlib.Path(name)
lock = open(name + ".lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("TWO COPIES"); pathlib.Path(name + ".twice").touch(); sys.exit(9)
step = int(place.read_text()) if place.exists() else 0
def save(*_):
    place.with_suffix(".part").write_text(str(step)); place.with_suffix(".part").replace(place)
def stop(*_):
    save(); print("saved", step, flush=True); os._exit(0)
signal.signal(signal.SIGTERM, stop)
print("began at", step, "on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while step < steps and not pathlib.Path(name + ".go").exists():
    time.sleep(0.02); step += 1; save()
print("done", flush=True)
with open(name + ".ends", "a") as stream: stream.write("end\\n")
"""
"""Counts steps from its checkpoint; a file NAME.go ends it. It notices a second copy of itself."""


class Queue:
    """Store, seats and controller; `reopen` is a restart of all but the seats and the store."""

    def __init__(
        self,
        folder: Path,
        policy: Callable[[], Policy],
        *nodes: int,
        lease_s: float = 60.0,
        observers: Sequence[Observer] = (),
        meter: tuple[str, ...] = (),
        again_s: float = 0.1,
    ) -> None:
        self.folder, self._policy, self._observers = folder, policy, observers
        self.options = QueueOptions(folder, lease_s=lease_s, keep_s=60.0, again_s=again_s)
        self.backend = ThreadBackend(*nodes, meter=meter)
        self.work = folder / "work.py"
        self.work.write_text(WORK)
        self.store = Store(folder / "queue.db")
        self.reopen()

    def reopen(self, clock: Callable[[], float] = time.time) -> None:
        seats = Seats(self.backend, "q", lease_s=self.options.lease_s, keep_s=60.0, start_s=60.0)
        self.queue = Controller(
            self.store, self._policy(), seats, self.options, observers=self._observers, clock=clock
        )
        self.queue.recover()

    def submit(
        self, command: str, gpus: float = 1, *, limit_s: float | None = None, **more: Any
    ) -> int:
        launch = LaunchConfig(gpus=max(1, int(gpus)), time_limit_s=limit_s)
        spec = JobSpec(repo=str(self.folder), command=command, launch=launch)
        request = Request(spec=spec, gpus=gpus, **more)
        return self.store.submit(new_mark(), request, time.time())

    def submit_work(self, name: str, steps: int = 100_000, gpus: float = 1, **more: Any) -> int:
        return self.submit(f"exec {sys.executable} -I -S work.py {name} {steps}", gpus, **more)

    def go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def until(self, what: Callable[[], bool]) -> None:
        """Tick until it is so."""
        end = time.monotonic() + LONG_S
        while not what():
            self.queue.tick(0.02)
            assert time.monotonic() < end, (self.store.jobs(), self.store.open_runs())

    def wait(self, what: Callable[[], bool]) -> None:
        """Wait until it is so, while the queue does nothing."""
        end = time.monotonic() + LONG_S
        while not what():
            time.sleep(0.02)
            assert time.monotonic() < end

    def job(self, id_: int) -> StoredJob:
        found = self.store.job(id_)
        assert found is not None
        return found

    def runs(self, *ids: int) -> None:
        """Wait until jobs have printed something."""
        self.until(lambda: all(self.job(id_).state == "RUNNING" for id_ in ids))
        self.until(lambda: all(self.text(id_) for id_ in ids))

    def over(self, *ids: int) -> list[str]:
        """The states of jobs once they are over."""
        self.until(lambda: all(self.job(id_).state not in ("PENDING", "RUNNING") for id_ in ids))
        return [self.job(id_).state for id_ in ids]

    def text(self, id_: int, number: int = -1, rank: int = 0) -> str:
        runs = self.store.runs_of(id_)
        place = Path(runs[number].folder) / f"rank{rank}.log"
        return place.read_text() if place.exists() else ""

    def outcomes(self, id_: int) -> list[str]:
        return [run.outcome for run in self.store.runs_of(id_)]

    def close(self) -> None:
        self.queue.seats.close()
        self.backend.pool.shutdown(wait=True)
        self.store.close()
        assert not list(self.folder.glob("*.twice"))


class Told(Policy):
    """Starts what fits, and then does what it is told, once."""

    name: ClassVar[str] = "told"
    next: ClassVar[Callable[[View], Sequence[Decision]] | None] = None

    def decide(self, view: View) -> Sequence[Decision]:
        if Told.next is not None:
            decisions = list(Told.next(view))
            if decisions:
                Told.next = None
                return decisions
            return []
        return [Start(*found) for found in view.pending.walk(view.space.place)]


def order(folder: Path, run: int, command: str, lease_s: float = 60.0) -> Order:
    """An order of a job that is the test's own: a runner ends what else has the job's name."""
    job = f"{folder.name}-{os.getpid()}"
    return Order(
        *(run, 0, job, command, str(folder), {"PATH": os.environ["PATH"]}),
        *(str(folder / f"log{run}"), str(folder / f"report{run}"), str(folder / "claims"), lease_s),
    )


def until_news(runner: Runner, *, beat: bool = True) -> list[Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if beat and (found := runner.wait(0.1)):
            return found
        if not beat:
            with runner._lock:
                runner._lock.wait_for(lambda: bool(runner._ended), 60)
                return list(runner._ended.values())
    return []
