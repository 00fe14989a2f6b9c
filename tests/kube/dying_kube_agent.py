"""An agent that is killed (SIGKILL) at a named point: `dying_kube_agent.py POINT FILES...`.

Nothing of the agent is changed but that: the point is before or after one of its own methods.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schedmate.cluster.kubernetes import Kubernetes, lease
from schedmate.cluster.kubernetes.api import Api
from schedmate.cluster.memory import Memory
from schedmate.cluster.record import Record
from schedmate.commands.agents import opened_agent

Fits = Callable[..., bool]


def anything(*_: Any, **__: Any) -> bool:
    return True


def sent_to(place: str, *, dry_run: bool) -> Fits:
    """A request to a path with a text in it."""
    return lambda _self, path, *_, **more: place in path and bool(more.get("dry_run")) == dry_run


POINTS: dict[str, tuple[type, str, str, Fits]] = {
    "failure seen": (Record, "observe", "after", lambda _self, what, *_, **__: what == "failure"),
    "plan proposed": (Record, "propose", "after", anything),
    "failure diagnosed": (Memory, "diagnosed", "before", anything),
    "taint intended": (Record, "intend", "after", anything),
    "taint tried": (Api, "patch", "after", sent_to("/nodes/", dry_run=True)),
    "node tainted": (Api, "patch", "after", sent_to("/nodes/", dry_run=False)),
    "taint answered": (Record, "answer", "after", anything),
    "job marked": (Api, "patch", "after", sent_to("/jobs/", dry_run=False)),
    "eviction tried": (Api, "create", "after", sent_to("eviction", dry_run=True)),
    "pod evicted": (Api, "create", "after", sent_to("eviction", dry_run=False)),
    "plan applied": (Record, "move", "before", lambda _self, _id, to, **_: to == "applied"),
    "run learned": (Memory, "learned", "before", anything),
}


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
    lease.GIVE_UP_S = 600.0  # however slow the machine is
    bounds, state, kubeconfig = map(Path, sys.argv[2:])
    with opened_agent(
        Kubernetes(), bounds, state, str(state / "history"), kubeconfig=str(kubeconfig)
    ) as setup:
        setup.adapter._settled_s = 0.0
        with setup.lease():
            for _ in range(3):
                setup.agent.once()
    print("it lived")
