"""Scheduler cores: the cluster model, policies, and the simulator that runs them.

The public names, imported on first use: a process that only runs commands on GPUs starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedmate.schedulers.decisions import (
        Answer,
        Borrow,
        Decision,
        Drop,
        Evict,
        Migrate,
        Pack,
        Preempt,
        Profile,
        Resize,
        Start,
    )
    from schedmate.schedulers.estimators import Estimator
    from schedmate.schedulers.model import Allocation, Cluster, Forecast, Job, Node
    from schedmate.schedulers.policy import Policy
    from schedmate.schedulers.terms import Capabilities, Constraints, NodeNews, Terms
    from schedmate.schedulers.view import View

_HOMES = {
    "estimators": ("Estimator",),
    "model": ("Allocation", "Cluster", "Forecast", "Job", "Node"),
    "policy": ("Policy",),
    "terms": ("Capabilities", "Constraints", "NodeNews", "Terms"),
    "view": ("View",),
}
"""Names by the module that they are in; all others are in `decisions`."""

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
    home = next((module for module, names in _HOMES.items() if name in names), "decisions")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
