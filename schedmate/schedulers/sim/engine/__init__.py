"""The event engine, which runs one policy over one workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedmate.schedulers.sim.engine.simulation import Simulation

__all__ = ["Simulation"]


def __getattr__(name: str) -> Any:
    if name == "Simulation":  # its record is also used without it
        from schedmate.schedulers.sim.engine.simulation import Simulation

        return Simulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
