"""The text that a simulated job writes while it runs, for the real log readers.

Formats are data (`formats.yaml`). Step times vary from one line to the next by 4 %, which is within
what Alibaba measured of mini-batches (3 to 5 %, cluster trace gpu-v2020), and the first steps after
a start are slow. The same job, window and seed give exactly the same text.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import accumulate
from typing import Any

from schedmate.data import load

NOISE = 0.04
"""Standard deviation of the logarithm of step times."""
WARM_UP = 20
"""Steps after a start until the pace is steady: data loaders fill, kernels are chosen."""
SLOW = 3.0
"""How much slower the first of them is; the excess falls evenly."""
LINE_S = 15.0
"""About how often a line is written [s]: programs log by steps, set so as to be readable."""
LINES = 70
"""Most lines of one stretch that are written out, its last; a tracker reads from the end."""
_EVERY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Format:
    """One way to log progress."""

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

    layout: Format
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
        """The lines of a stretch: at most the last `LINES`."""
        every = self.every
        first = -(-max(stretch.first, 1) // every) * every
        first = max(first, (stretch.last // every - LINES + 1) * every)
        end = "\r" if self.layout.redraws else "\n"
        text = []
        for step in range(first, stretch.last + 1, every):
            draw = random.Random(f"{self.seed}/{step}")  # noqa: S311 - an experiment
            s = stretch.step_s * math.exp(draw.gauss(0.0, NOISE))
            since = step - stretch.first
            if stretch.fresh and since < WARM_UP:
                s *= SLOW - (SLOW - 1.0) * since / WARM_UP
            clock = stretch.start + since * stretch.step_s
            if stretch.fresh:
                slow = min(since, WARM_UP)
                clock += (SLOW - 1.0) * slow * (1.0 - slow / WARM_UP / 2) * stretch.step_s
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
def formats() -> tuple[Format, ...]:
    """Every format, from formats.yaml."""
    return tuple(Format(**one) for one in load("schedulers/sim/logs/formats.yaml")["formats"])


def choose(seed: str, duration_s: float) -> JobLog:
    """The log of a job that runs for this long alone [s]: format and step time drawn by `seed`.

    Step times are log-uniform from 0.05 to 3 s, an assumption.
    """
    draw = random.Random(seed)  # noqa: S311 - an experiment
    every = formats()
    at = draw.random() * sum(one.weight for one in every)
    sums = accumulate(one.weight for one in every)
    layout = next(one for one, total in zip(every, sums, strict=True) if at < total)
    step_s = math.exp(draw.uniform(math.log(0.05), math.log(3.0)))
    return JobLog(layout, step_s, max(1, round(duration_s / step_s)), seed)


def _hms(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
