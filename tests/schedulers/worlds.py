"""Policies that do what a test says, and runs that are audited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import strategies as st

from schedmate.schedulers import Cluster, Decision, Job, Node, Policy, Start, View
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.parameters import HONEST, Parameters, Shutdown
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import Maintenance

CHEAP = replace(
    HONEST, restart_s=5.0, checkpoint_s=7.0, handover_s=2.0, shutdown=Shutdown(3.0, 3.0)
)
"""Round numbers: everybody takes three seconds to stop."""

POLICIES = (
    "fifo", "sjf", "sjf-ageing", "qssf:backfill=true", "srtf", "srtf:quota=true", "tiresias",
    "tiresias:quota=true", "gittins", "gittins:preempt=true", "serpt", "likely-short",
    "serpt:preempt=true:backfill=true", "lucid", "gavel", "pollux", "sia", "elasticflow", "arena",
    "horus", "spot", "slurm", "slurm:conservative=true", "slurm:strict=true",
    "slurm:reservations=0:fair_share=1", "kueue",
)  # fmt: skip
Outages = list[tuple[int, int, int, int]]
OUTAGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 250), st.integers(0, 60), st.integers(1, 200)),
    max_size=4,
)


def apart(outages: Outages) -> list[Maintenance]:
    """Closures of nodes, no two of one node at a time."""
    chosen: list[Maintenance] = []
    until = [0.0, 0.0, 0.0]
    for node, begin, notice, length in sorted(outages, key=lambda one: one[1]):
        if begin > until[node]:
            until[node] = float(begin + notice + length)
            chosen.append(Maintenance(node, float(begin), float(begin + notice), until[node]))
    return chosen


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


def simulate(
    workload: Workload, policy: Policy | str = "fifo", cluster: str = "1x1", **more: Any
) -> Outcome:
    """Simulate by the honest mode, unless `more` says otherwise, and audit."""
    policy = make(policy) if isinstance(policy, str) else policy
    return run(workload, policy, cluster, **{"parameters": HONEST, **more})


def of(outcome: Outcome, index: int) -> list[tuple[float, float, str]]:
    """When one job held GPUs, and how."""
    return [(one.start, one.end, one.kind) for one in outcome.segments if one.job == index]
