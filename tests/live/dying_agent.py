"""An agent that is killed (SIGKILL) at a named point of its pass: `dying_agent.py POINT FILES...`.

Nothing of the agent is changed but that: the point is before or after one of its own methods.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schedmate.cluster.memory import Memory
from schedmate.cluster.record import Record
from schedmate.cluster.slurm import Slurm
from schedmate.cluster.slurm.adapter import Commands, SlurmAdapter
from schedmate.commands.agents import opened_agent
from schedmate.mate import SchedMate

POINTS: dict[str, tuple[type, str, str, Callable[..., bool]]] = {
    "estimate kept": (Memory, "remember", "after", lambda *_, **__: True),
    "values written down": (Memory, "give", "after", lambda _self, values, *_, **__: bool(values)),
    "order proposed": (Record, "propose", "after", lambda *_, **__: True),
    "order approved": (Record, "approve", "after", lambda *_, **__: True),
    "order intended": (Record, "intend", "after", lambda *_, **__: True),
    "order half given": (
        Commands, "run", "after", lambda _self, *words, **_: "SiteFactor" in words[-1],
    ),
    "order given": (SlurmAdapter, "act", "after", lambda *_, **__: True),
    "order answered": (Record, "answer", "after", lambda *_, **__: True),
    "run stored": (SchedMate, "learn", "after", lambda *_, **__: True),
    "run learned": (Memory, "learned", "before", lambda *_, **__: True),
    "failure seen": (Record, "observe", "after", lambda _self, what, *_, **__: what == "failure"),
    "failure diagnosed": (Memory, "diagnosed", "before", lambda *_, **__: True),
    "node drained": (Commands, "run_directly", "after", lambda *_, **__: True),
    "job requeued": (Commands, "run", "after", lambda _self, *words, **_: "requeuehold" in words),
    "node excluded": (
        Commands, "run", "after", lambda _self, *words, **_: "ExcNodeList" in words[-1],
    ),
    "job released": (Commands, "run", "after", lambda _self, *words, **_: "release" in words),
    "plan applied": (
        Record, "move", "before", lambda _self, _id, to, **_: to == "applied",
    ),
}  # fmt: skip


def arrange(point: str) -> None:
    """Make the process kill itself at a point."""
    owner, name, when, fits = POINTS[point]
    method = getattr(owner, name)

    def dying(*arguments: Any, **options: Any) -> Any:
        fatal = fits(*arguments, **options)
        if fatal and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*arguments, **options)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


if __name__ == "__main__":
    arrange(sys.argv[1])
    bounds, state, history = map(Path, sys.argv[2:])
    with opened_agent(Slurm(), bounds, state, history) as setup:
        setup.agent.once()
    print("it lived")
