"""What a policy may bring along besides its decisions: an estimator, observers, failure handling.

Adapters use it; a policy without `equip` runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.observer import Observer
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.faults import Faults
from schedmate.schedulers.sim.world.physics import Physics

if TYPE_CHECKING:
    from schedmate.schedulers.sim.world.failures import FailureRates


class World(NamedTuple):
    """The inputs of a run that are the same for every policy."""

    workload: Workload
    estimator: Estimator | None
    """The estimator of the comparison."""
    failures: FailureRates | None
    """How jobs fail; None: they do not."""
    seed: int


class Equipment(NamedTuple):
    """Replacements for the ordinary parts; None keeps the ordinary one."""

    estimator: Estimator | None = None
    faults: Faults | None = None
    physics: Physics | None = None
    observers: tuple[Observer, ...] = ()
    report: Callable[[], dict[str, Any]] = dict
    """Its counters at the end of the run, which become `schedmate` in the results."""


@runtime_checkable
class Equipped(Protocol):
    """A policy with modules around it."""

    def equip(self, world: World) -> Equipment:
        """New parts for one run in this world."""
        ...
