"""What a policy may bring along: who estimates, who watches, who handles failures, beside its
decisions. Adapters use it; a policy without `equip` is run as it is."""

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
    """What every policy of the comparison is told."""
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
    """What it counted, asked for when the run is over: it goes into the results as `schedmate`."""


@runtime_checkable
class Equipped(Protocol):
    """A policy with modules around it."""

    def equip(self, world: World) -> Equipment:
        """New parts for one run in this world."""
        ...
