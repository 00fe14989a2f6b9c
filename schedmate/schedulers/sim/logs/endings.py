"""How the log of a failed job ends: real text, whose true type only the simulation knows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from schedmate.data import load


@dataclass(frozen=True)
class Ending:
    """One way to fail; `type` is infrastructure, framework or script."""

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
def endings() -> tuple[Ending, ...]:
    """Every ending, from endings.yaml."""
    return tuple(Ending(**one) for one in load("schedulers/sim/logs/endings.yaml")["endings"])


def draw_ending(infrastructure: bool, seed: str) -> Ending:
    """An ending whose cause is the infrastructure, or else the job itself."""
    draw = random.Random(seed)  # noqa: S311 - an experiment
    every = [one for one in endings() if (one.type == "infrastructure") is infrastructure]
    at = draw.random() * sum(one.weight for one in every)
    sums = accumulate(one.weight for one in every)
    return next(one for one, total in zip(every, sums, strict=True) if at < total)
