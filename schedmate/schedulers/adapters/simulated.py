"""The logs of simulated jobs, as real text that is written on demand: progress and failures."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from schedmate.base.data import load
from schedmate.logparse.progress.ratio import WARM_UP
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.storage import Memory
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.world import SimulationObserver

if TYPE_CHECKING:
    from schedmate.jobs import Progress
    from schedmate.schedulers.sim.workload import Workload
    from schedmate.schedulers.sim.world import Failure


STEP_NOISE = 0.04
"""Standard deviation of the logarithm of step times."""
WARM_UP_STEPS = 20
"""Steps after a start until the pace is steady: data loaders fill, kernels are chosen."""
FIRST_STEP_SLOWDOWN = 3.0
"""How much slower the first of them is; the excess falls evenly."""
LINE_S = 15.0
"""About how often a line is written [s]: programs log by steps, set so as to be readable."""
MOST_LINES = 70
"""Most lines of one stretch that are written out, its last; a tracker reads from the end."""
_EVERY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class LogFormat:
    """A format in which a program logs its progress."""

    name: str
    line: str
    weight: float
    head: str = ""
    other: str = ""
    redraws: bool = False
    says: bool = True
    """Whether its lines state the step time, directly or not."""


@dataclass(frozen=True)
class Stretch:
    """A part of a job's run at one pace.

    `start` [s since epoch]; steps `first` to `last`, of those that the job has, take `step_s` [s]
    each; `fresh`: the program had just been started.
    """

    start: float
    first: int
    last: int
    step_s: float
    fresh: bool = False


@dataclass(frozen=True)
class JobLog:
    """The log of one job: its format, and its length in steps."""

    layout: LogFormat
    step_s: float
    """Time of one step alone [s]."""
    total: int
    """Steps of the whole job."""
    seed: str

    @property
    def every(self) -> int:
        """Steps from one line to the next."""
        return min(_EVERY, key=lambda n: abs(math.log(n * self.step_s / LINE_S)))

    def head(self, start: float) -> str:
        """The first lines of the program."""
        head = self.layout.head
        return head.format(**self._fields(0, start, self.step_s, start)).rstrip("\n") + "\n"

    def lines(self, stretch: Stretch) -> str:
        """The lines of a stretch: at most the last `MOST_LINES`."""
        every = self.every
        first = -(-max(stretch.first, 1) // every) * every
        first = max(first, (stretch.last // every - MOST_LINES + 1) * every)
        end = "\r" if self.layout.redraws else "\n"
        text = []
        for step in range(first, stretch.last + 1, every):
            draw = random.Random(f"{self.seed}/{step}")  # noqa: S311 - an experiment
            s = stretch.step_s * math.exp(draw.gauss(0.0, STEP_NOISE))
            since = step - stretch.first
            if stretch.fresh and since < WARM_UP_STEPS:
                s *= FIRST_STEP_SLOWDOWN - (FIRST_STEP_SLOWDOWN - 1.0) * since / WARM_UP_STEPS
            clock = stretch.start + since * stretch.step_s
            if stretch.fresh:
                slow = min(since, WARM_UP_STEPS)
                clock += (
                    (FIRST_STEP_SLOWDOWN - 1.0)
                    * slow
                    * (1.0 - slow / WARM_UP_STEPS / 2)
                    * stretch.step_s
                )
            fields = self._fields(step, clock, s, clock - step * stretch.step_s)
            text.append(self.layout.line.format(**fields) + end)
            if self.layout.other and draw.random() < 0.03:
                text.append(self.layout.other.format(**fields) + "\n")
        return "".join(text)

    def _fields(self, step: int, clock: float, s: float, began: float) -> dict[str, Any]:
        per_epoch = max(2 * self.every, min(self.total, 1000))
        epoch, of_epoch = divmod(max(step - 1, 0), per_epoch)
        of_epoch += 1
        moment = datetime.fromtimestamp(clock, UTC)
        batch = 32
        done = step / max(self.total, 1)
        return {
            "step": step,
            "total": self.total,
            "epoch": epoch,
            "epochs": -(-self.total // per_epoch),
            "epoch_at": step / per_epoch,
            "per_epoch": per_epoch,
            "step_of_epoch": of_epoch,
            "percent": round(100 * done),
            "percent_of_epoch": round(100 * of_epoch / per_epoch),
            "bar": "█" * round(10 * done) + " " * (10 - round(10 * done)),
            "s": s,
            "ms": 1000 * s,
            "pace": f"{s:.2f}s/it" if s > 1 else f"{1 / s:.2f}it/s",
            "pace_it": f"{1 / s:.2f}it/s",
            "rate": batch / s,
            "batch": batch,
            "samples": batch * per_epoch,
            "seen": batch * step,
            "tokens": batch * 1024,
            "elapsed": _hms(clock - began),
            "left": _hms((self.total - step) * s),
            "elapsed_of_epoch": _hms(of_epoch * s),
            "left_of_epoch": _hms((per_epoch - of_epoch) * s),
            "loss": 8.0 / (1.0 + math.log1p(step / 50)) + 0.5 * math.cos(step) ** 2 / 10,
            "norm": 0.9 + 0.2 * math.sin(step),
            "lr": 3e-4 * (1.0 - 0.9 * done),
            "clock": moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3].replace(".", ","),
            "slash_clock": moment.strftime("%m/%d %H:%M:%S"),
        }


@cache
def log_formats() -> tuple[LogFormat, ...]:
    """Every format, from log_formats.yaml."""
    return tuple(
        LogFormat(**fields) for fields in load("schedulers/adapters/log_formats.yaml")["formats"]
    )


def draw_log(seed: str, duration_s: float) -> JobLog:
    """The log of a job that runs for this long alone [s]: format and step time drawn by `seed`.

    Step times are log-uniform from 0.05 to 3 s, an assumption.
    """
    draw = random.Random(seed)  # noqa: S311 - an experiment
    every = log_formats()
    at = draw.random() * sum(log_format.weight for log_format in every)
    sums = accumulate(log_format.weight for log_format in every)
    layout = next(log_format for log_format, total in zip(every, sums, strict=True) if at < total)
    step_s = math.exp(draw.uniform(math.log(0.05), math.log(3.0)))
    return JobLog(layout, step_s, max(1, round(duration_s / step_s)), seed)


def _hms(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


# The logs of simulated jobs as a `LogSource`, written on demand.


RUNS_DIFFER = 0.1
"""Standard deviation of the logarithm of step times between runs of a workload, on other nodes and
with other users of their storage: an assumption."""


@dataclass
class SimulatedWindow:
    """Part of a job's log, after the parts before it."""

    log: JobLog
    stretch: Stretch
    before: SimulatedWindow | None = None

    @cached_property
    def text(self) -> str:
        """The whole log so far."""
        head = self.log.head(self.stretch.start) if self.before is None else self.before.text
        return head + self.log.lines(self.stretch)

    def progress(self) -> Progress:
        """The real Metric Tracker's reading of it."""
        since = 0 if self.before is None else len(self.before.text.encode())
        return track(LogFile("job.out", Memory(self.text.encode())), since=since)


class SimulatedLogs(SimulationObserver):
    """A `LogSource` of a simulation: what each job has written follows from its progress."""

    def __init__(self, workload: Workload, seed: int = 0) -> None:
        """
        Args:
            workload: whose jobs write logs; those of one workload in one format.
            seed: of the logs.
        """
        self._workload = workload
        self._seed = seed
        self._logs: dict[int, JobLog] = {}
        self._marks: dict[int, tuple[float, int, SimulatedWindow | None]] = {}

    def kind_of(self, job: Job) -> str:
        """The workload of a job, if its metadata states it; else the job itself."""
        metadata = self._workload.metadata_of(job)
        return job.id if metadata is None else metadata.fingerprint()

    def mark(self, job: Job) -> None:
        """See `LogSource`; there is nothing before to compare a single job with."""
        before = None if job.partner is None else self.window(job)
        self._marks[job.index] = (self.watch.now, self._step(job), before)

    def window(self, job: Job) -> SimulatedWindow:
        """See `LogSource`."""
        log, step = self._log(job), self._step(job)
        at, first, before = self._marks[job.index]
        if before is None:
            began = self.watch.now - (step - first) * log.step_s
            return SimulatedWindow(log, Stretch(began, first + 1, step, log.step_s, fresh=True))
        step_s = (self.watch.now - at) / max(step - first, 1)
        return SimulatedWindow(log, Stretch(at, first + 1, step, step_s), before)

    def alone(self, job: Job) -> SimulatedWindow | None:
        """See `LogSource`."""
        window = self.window(job)
        return window if window.stretch.last - window.stretch.first >= WARM_UP else None

    def _log(self, job: Job) -> JobLog:
        index = job.index
        if index not in self._logs:
            seed, kind = f"{self._seed}/{job.id}", self.kind_of(job)
            log = draw_log(f"{self._seed}/{kind}", self._workload.duration_s[index])
            if kind != job.id:
                draw = random.Random(seed)  # noqa: S311 - an experiment
                step_s = log.step_s * math.exp(draw.gauss(0.0, RUNS_DIFFER))
                total = max(1, round(self._workload.duration_s[index] / step_s))
                log = replace(log, step_s=step_s, total=total, seed=seed)
            self._logs[index] = log
        return self._logs[index]

    def _step(self, job: Job) -> int:
        return int(self.watch.work_done(job) / self._log(job).step_s)


def log_of_failure(workload: Workload, failure: Failure, seed: int, *, bug: bool) -> Log:
    """The log that a failure leaves, of the infrastructure or of a bug of the job."""
    job = failure.job
    drawn = f"{seed}/{job}/{failure.attempt}"
    # One bug fails in the same way each time.
    ending = draw_ending(not bug, f"{seed}/{job}/bug" if bug else drawn)
    log = draw_log(f"{seed}/{job}", workload.duration_s[job])
    step = int(failure.done / log.step_s)
    began = failure.time - step * log.step_s
    text = log.head(began) + log.lines(Stretch(began, max(1, step - 5000), step, log.step_s))
    text += ending.write(drawn, step)
    return Log("job", [LogFile("job.out", Memory(text.encode()))])


# How the log of a failed job ends: real text, whose true type only the simulation knows.


@dataclass(frozen=True)
class LogEnding:
    """The end of the log of a failed job; `type` is infrastructure, framework or script."""

    type: str
    name: str
    weight: float
    text: str
    source: str

    def write(self, seed: str, step: int) -> str:
        """The lines, with ranks, nodes and numbers drawn by `seed`."""
        draw = random.Random(seed)  # noqa: S311 - an experiment
        return self.text.format(
            rank=draw.randrange(1, 8),
            gpu=draw.randrange(8),
            node=f"gpu-{draw.randrange(1, 200):03d}",
            step=step,
            ip=f"10.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(1, 255)}",
            port=draw.randrange(20000, 60000),
            path=f"/mnt/store/run-{draw.randrange(1000)}",
            pid=draw.randrange(10_000, 4_000_000),
        )


@cache
def log_endings() -> tuple[LogEnding, ...]:
    """Every ending, from log_endings.yaml."""
    return tuple(
        LogEnding(**fields) for fields in load("schedulers/adapters/log_endings.yaml")["endings"]
    )


def draw_ending(infrastructure: bool, seed: str) -> LogEnding:
    """An ending whose cause is the infrastructure, or else the job itself."""
    draw = random.Random(seed)  # noqa: S311 - an experiment
    every = [
        ending for ending in log_endings() if (ending.type == "infrastructure") is infrastructure
    ]
    at = draw.random() * sum(ending.weight for ending in every)
    sums = accumulate(ending.weight for ending in every)
    return next(ending for ending, total in zip(every, sums, strict=True) if at < total)
