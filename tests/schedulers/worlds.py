"""Policies that do what a test says, and runs that are audited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from schedmate.schedulers import Cluster, Decision, Job, Node, Policy, Start, View
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.parameters import HONEST, Parameters, Shutdown
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload

CHEAP = replace(
    HONEST, restart_s=5.0, checkpoint_s=7.0, handover_s=2.0, shutdown=Shutdown(3.0, 3.0)
)
"""Round numbers: everybody takes three seconds to stop."""


class Scripted(Policy):
    """First come, first served where there is room, and at some times what the script says."""

    name: ClassVar[str] = "scripted"

    def __init__(self, script: dict[float, Callable[[View], Sequence[Decision]]]) -> None:
        self.script = dict(script)
        self.seen: list[tuple[float, list[str], list[str]]] = []

    def decide(self, view: View) -> Sequence[Decision]:
        self.seen.append(
            (view.now, [job.id for job in view.pending], [job.id for job in view.running])
        )
        if view.now in self.script:
            return self.script.pop(view.now)(view)
        return [Start(job, found) for job, found in view.pending.walk(view.space.place)]


def job(view: View, name: str) -> Job:
    """The job of this id, waiting or running."""
    return next(one for one in view.jobs() if one.id == name)


def nodes(*sizes: int, **more: Any) -> Cluster:
    """A cluster of nodes of these sizes; `more` holds for all."""
    return Cluster(tuple(Node(f"n{n}", size, **more) for n, size in enumerate(sizes)))


def run(
    workload: Workload,
    policy: Policy,
    cluster: Cluster | str,
    parameters: Parameters = CHEAP,
    **more: Any,
) -> Outcome:
    """Simulate and audit."""
    if isinstance(cluster, str):
        cluster = Cluster.parse(cluster)
    simulation = Simulation(workload, policy, cluster, parameters=parameters, **more)
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    return outcome


def of(outcome: Outcome, index: int) -> list[tuple[float, float, str]]:
    """When one job held GPUs, and how."""
    return [(one.start, one.end, one.kind) for one in outcome.segments if one.job == index]
