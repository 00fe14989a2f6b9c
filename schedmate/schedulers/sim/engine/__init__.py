"""The event loop, and what it needs to run one policy over one workload."""

from schedmate.schedulers.sim.engine.simulation import Simulation

__all__ = ["Simulation"]
