"""The events of a simulation: their kinds, in the order in which simultaneous ones are handled."""

from __future__ import annotations

from schedmate.errors import SchedmateError
from schedmate.schedulers.sim.engine.record import KINDS

END, FAIL, PROFILED, LEFT, PACE, RERANK = range(6)
"""Events of a job's present run; void once its epoch has changed."""
DRAIN, MOVED, RECLAIM, LEND, SUBMIT, WAKE, REORDER, UP, DOWN, TICK, HORIZON = range(6, 17)
"""Events that hold whatever the job has done since: of jobs, nodes and the clock."""

Event = tuple[float, int, int, int]
"""Time [s], kind, position of the job or node, epoch (of a wake: the observer's position)."""

RUN, PACKED, PROFILE, LOAN = range(len(KINDS))
"""Kinds of segments: how a job holds its GPUs."""


class PhysicsError(SchedmateError):
    """A physics, a faults object or an observer asked for something impossible."""
