"""Runs commands on one set of GPUs, and measures what they use: a worker of the queue.

A runner is where the GPUs are (on Ray: an actor that holds them) and knows no policy. Each call
from the queue is a heartbeat; without one the commands end with their lease (`supervise.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.base.running import run
from schedmate.cluster.claims import ClaimedError, claim
from schedmate.cluster.ray import supervise

BEAT_S = 0.2
"""Least time between two heartbeats that are passed on [s]."""


class Order(NamedTuple):
    """One command to be run."""

    run: int
    """The number of the run in the queue's store."""
    rank: int
    """Of this node among the nodes of the run."""
    job: str
    """What all runs of the job have in common: a name that is its own on every cluster."""
    command: str
    cwd: str
    env: dict[str, str]
    log: str
    report: str
    """The file that records how the command ended."""
    claims: str
    """The folder of locks, on a file system that the nodes share."""
    lease_s: float

    @property
    def mark(self) -> str:
        """The mark that identifies the processes of this command."""
        return f"{self.job}/{self.run}/{self.rank}"


class News(NamedTuple):
    """A command has ended, or could not be started."""

    run: int
    rank: int
    report: dict[str, Any]
    """`exit_code`, `signal`, `why` (exited, told, lease, runner), `started`, `ended` [s since
    epoch], `use`: means of the measurements."""


class Runner:
    """Commands on the same GPUs: one, or two that share them."""

    def __init__(self, gpus: list[str] | None = None, meter: tuple[str, ...] | None = None) -> None:
        """`gpus` are the ids of the GPUs, `meter` the command that measures them (`Meter`)."""
        self.gpus = gpus or []
        self._meter = Meter(meter, self.gpus)
        self._running: dict[int, _Running] = {}
        self._ended: dict[tuple[int, int], News] = {}
        self._stopped_early: set[int] = set()
        """Runs that were asked to stop before their order came: calls may overtake each other."""
        self._lock = threading.Condition()

    def describe(self) -> dict[str, Any]:
        """Describe this runner: its process, its GPUs, and its running and ended runs."""
        self._beat()
        runs = {*self._running, *(run for run, _ in self._ended)}
        return {"pid": os.getpid(), "gpus": self.gpus, "runs": sorted(runs)}

    def start(self, order: Order) -> dict[str, Any]:
        """Start a command; repeating an order has no effect.

        The answer has `started` [s since epoch], or `refused`: why it must not start.
        """
        with self._lock:
            self._beat()
            running = self._running.get(order.run)
            if running is None:
                if order.run in self._stopped_early:
                    return {"refused": "it was asked to stop"}
                running = _Running(order, self.gpus)
                if running.refused:
                    return {"refused": running.refused}
                self._running[order.run] = running
                threading.Thread(target=self._follow, args=(running,), daemon=True).start()
                self._meter.watch(list(self._running))
        return {"started": running.started}

    def wait(self, timeout_s: float, seen: Sequence[int] = ()) -> list[News]:
        """Ended runs; waits until there is one, or the time is up.

        The same is reported again until it is `seen`, as the caller may not have got the answer.
        """
        self._beat()
        with self._lock:
            for key in [one for one in self._ended if one[0] in seen]:
                del self._ended[key]
            self._lock.wait_for(lambda: bool(self._ended), timeout_s)
            return list(self._ended.values())

    def stop(self, run: int, number: int = signal.SIGTERM, grace_s: float = 0.0) -> None:
        """Send a signal to the processes of a run, and kill them after the grace time [s]."""
        self._beat()
        with self._lock:  # one that is being started is reported later
            running = self._running.get(run)
            if running is not None:
                running.say(f"stop {int(number)} {grace_s}")
            elif not any(one == run for one, _ in self._ended):
                self._stopped_early.add(run)

    def use(self, run: int) -> dict[str, float] | None:
        """Means of the measurements while a run had the GPUs to itself; see `Meter`."""
        self._beat()
        return self._meter.use(run)

    def _beat(self) -> None:
        for running in list(self._running.values()):
            running.beat()

    def _follow(self, running: _Running) -> None:
        report = running.ended()
        with self._lock:
            report["use"] = self._meter.use(running.order.run)
            self._running.pop(running.order.run, None)
            self._meter.watch(list(self._running))
            run, rank = running.order.run, running.order.rank
            self._ended[run, rank] = News(run, rank, report)
            self._lock.notify_all()


class _Running:
    """A supervisor and the lock of its job, which it and the command hold with us."""

    def __init__(self, order: Order, gpus: list[str]) -> None:
        self.order, self.refused, self.started = order, "", 0.0
        self._held = ExitStack()
        self._beaten = 0.0
        lock = self._claim()
        if lock is None:
            return
        for file in (order.log, order.report):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpus), **order.env}
        environment[supervise.MARK] = order.mark
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervise.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(lock,),
            env={},
        )
        self.say(json.dumps({**order._asdict(), "mark": order.mark, "env": environment}))
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.started = json.loads(line)["started"] if line else time.time()

    def _claim(self) -> int | None:
        """The lock of the job, once no process of its earlier runs is alive; None: it is not
        available."""
        order = self.order
        left = supervise.kill_marked(order.job, order.run)
        if not left:
            try:
                return self._held.enter_context(
                    claim(Path(order.claims), f"{order.job}.{order.rank}")
                )
            except ClaimedError:
                pass
        self.refused = "processes of an earlier run of the job still live" + (
            f" on {os.uname().nodename}: {', '.join(map(str, left))}" if left else " elsewhere"
        )
        return None

    def beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten >= BEAT_S:
            self._beaten = now
            self.say("beat")

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it has ended
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def ended(self) -> dict[str, Any]:
        """How the command ended, once it has."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._process.wait()
        if not line:
            # the supervisor was killed, and the command with it; what that started may live on, and
            # for as long as it does the lock and the GPUs are its own
            while supervise.kill_marked(self.order.mark):
                pass
        self._held.close()
        self._process.stdout.close()
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        if line:
            report: dict[str, Any] = json.loads(line)
            return report
        return {"exit_code": None, "signal": signal.SIGKILL, "why": "supervisor"} | {
            "started": self.started,
            "ended": time.time(),
        }


# What jobs use of their GPUs, by a command that measures them: Lucid's non-intrusive profiler.


NVIDIA_SMI = (
    *("nvidia-smi", "--query-gpu=utilization.gpu,utilization.memory,memory.used"),
    *("--format=csv,noheader,nounits", "--id={gpus}"),
)
"""Measures NVIDIA's GPUs; a line for each: GPU [%], memory accesses [%], memory in use [MB]."""
MEASURE_EVERY_S = 2.0
MEASURE_PATIENCE_S = 10.0
"""How long one measurement may take [s]."""


def nvidia_smi() -> tuple[str, ...] | None:
    """The command for this node; None if there is no such program."""
    return NVIDIA_SMI if shutil.which("nvidia-smi") else None


class Meter:
    """Measures the GPUs of a runner while one run has them to itself.

    `command` prints three numbers separated by commas for each GPU; `{gpus}` in it stands for their
    ids. None: `nvidia-smi` if it is installed; empty: nothing is measured.
    """

    def __init__(
        self, command: tuple[str, ...] | None, gpus: Sequence[str], every_s: float = MEASURE_EVERY_S
    ) -> None:
        chosen = nvidia_smi() if command is None else command
        self._command = [word.replace("{gpus}", ",".join(gpus)) for word in chosen or ()]
        self._every_s = every_s
        self._alone: int | None = None
        self._sums: dict[int, list[float]] = {}
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, runs: list[int]) -> None:
        """These runs have the GPUs from now on."""
        self._alone = runs[0] if len(runs) == 1 else None
        self._changed.set()
        if self._command and self._thread is None:
            self._thread = threading.Thread(target=self._measure, daemon=True)
            self._thread.start()

    def use(self, run: int) -> dict[str, float] | None:
        """Means over the time of a run: `gpu_util` [%], `memory_util` [%], `memory_mb` of one GPU;
        None: it was never measured alone."""
        sums = self._sums.get(run)
        if not sums:
            return None
        count, gpu, memory, most = sums
        return {"gpu_util": gpu / count, "memory_util": memory / count, "memory_mb": most}

    def _measure(self) -> None:
        while True:
            self._changed.clear()
            self._changed.wait(self._every_s)
            if self._changed.is_set():
                time.sleep(min(0.2, self._every_s))  # a command that has begun is not yet at work
                continue
            run = self._alone
            seen = None if run is None else self._look()
            if seen is None or run is None or self._alone != run:
                continue
            sums = self._sums.setdefault(run, [0.0, 0.0, 0.0, 0.0])
            sums[:] = [sums[0] + 1, sums[1] + seen[0], sums[2] + seen[1], max(sums[3], seen[2])]

    def _look(self) -> tuple[float, float, float] | None:
        try:
            done = run(self._command, timeout_s=MEASURE_PATIENCE_S, most=1 << 20)
            if done.code != 0:
                return None
            rows = [
                [float(one) for one in line.split(",")]
                for line in done.text().split("\n")
                if line.strip()
            ]
            columns = list(zip(*rows, strict=True))
            mean = [sum(column) / len(column) for column in columns]
            return mean[0], mean[1], max(columns[2])
        except (OSError, ValueError, IndexError):
            return None
