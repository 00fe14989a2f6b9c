"""Scheduler cores: the cluster model, policies, and the simulator that runs them.

The public names, imported on first use: a process that only runs commands on GPUs starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedmate.schedulers.estimators import Estimator
    from schedmate.schedulers.model import (
        Allocation,
        Capabilities,
        Cluster,
        Constraints,
        Forecast,
        Job,
        Node,
        NodeNews,
        Terms,
    )
    from schedmate.schedulers.policy import (
        Answer,
        Borrow,
        Decision,
        Drop,
        Evict,
        Migrate,
        Pack,
        Policy,
        Preempt,
        Profile,
        Resize,
        Start,
        View,
    )


_HOMES = {
    "estimators": ("Estimator",),
    "model": (
        "Allocation",
        "Capabilities",
        "Cluster",
        "Constraints",
        "Forecast",
        "Job",
        "Node",
        "NodeNews",
        "Terms",
    ),
}
"""Names by the module that they are in; all others are in `policy`."""

__all__ = [
    "Allocation",
    "Answer",
    "Borrow",
    "Capabilities",
    "Cluster",
    "Constraints",
    "Decision",
    "Drop",
    "Estimator",
    "Evict",
    "Forecast",
    "Job",
    "Migrate",
    "Node",
    "NodeNews",
    "Pack",
    "Policy",
    "Preempt",
    "Profile",
    "Resize",
    "Start",
    "Terms",
    "View",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'schedmate.schedulers' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "policy")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
