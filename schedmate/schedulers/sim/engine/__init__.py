"""The event loop, and what it needs to run one policy over one workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedmate.schedulers.sim.engine.simulation import Simulation

__all__ = ["Simulation"]


def __getattr__(name: str) -> Any:
    if name == "Simulation":  # what it recorded is looked at without it too
        from schedmate.schedulers.sim.engine.simulation import Simulation

        return Simulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
