"""Jobs that train large models with adaptive parallelism, whatever a scheduler believes of them.

As in Arena, section 5.1: submissions and durations are those of a trace; model, batch size, GPUs
and GPU type are drawn for each job. A job's work is what it does in its duration on the GPUs that
it asks for, with the best plan there. Every scheduler's jobs run with the best plan; the schedulers
differ in what their jobs' agents tell them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from schedmate.errors import InputError
from schedmate.schedulers.goodput.planned import PlannedAgent, Speeds
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.parallelism.models import model
from schedmate.schedulers.parallelism.performance import Kind, Performance
from schedmate.schedulers.sim.observer import Observer
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.physics import FOREVER

Belief = Literal["adaptive", "data-parallel"]

MODELS: tuple[tuple[str, tuple[int, ...]], ...] = (
    *((f"wide-resnet-{size}", (256, 512, 1024)) for size in ("0.5b", "1b", "2b", "4b")),
    *((f"gpt-{size}", (128, 256, 512)) for size in ("0.76b", "1.3b", "2.6b")),
    *((f"moe-{size}", (256, 512, 1024)) for size in ("0.69b", "1.3b", "2.4b")),
)
"""Table 2, without the sizes that fit on no GPU type of the smaller clusters."""

SEQUENCE = 1024


@dataclass(frozen=True)
class Costs:
    """What scheduling costs a job besides training [s]."""

    search_s: float = 90.0
    """Pruned search before each start: 1 to 2 minutes (section 5.8)."""
    restore_s: float = 240.0
    """Checkpoint and resume: under 5 minutes (section 5.8)."""
    profile_s: float = 0.0
    """Profiling before the first start; Arena 510 (8.5 minutes), on all GPUs 600 (section 2)."""


class Submission(NamedTuple):
    """A row of the trace that is scaled to large models."""

    submit_s: float
    duration_s: float
    gpus: int = 0
    """0: drawn."""


def planned_workload(
    name: str, rows: Sequence[Submission], performance: Performance, seed: int, *, rigid: bool
) -> tuple[Workload, list[Kind]]:
    """The jobs of a trace with drawn models, and what each one trains.

    `rigid`: they run on the GPU type and number that they ask for, as for FCFS; otherwise on any
    type and number that their model fits on. Raises `InputError` where no model fits anywhere.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation
    jobs, kinds = [], []
    work: list[float | None] = []
    for index, row in enumerate(sorted(rows)):
        kind, speeds = _drawn(draw, performance)
        sizes = sorted({gpus for _, gpus in speeds})
        wanted = row.gpus if row.gpus in sizes else draw.choice(sizes)
        types = sorted(gpu for gpu, gpus in speeds if gpus == wanted)
        gpu_type = draw.choice(types)
        job = Job(f"job{index}", index, row.submit_s, wanted, name=kind.spec.name)
        if rigid:
            job.gpu_type = gpu_type
        else:
            job.min_gpus, job.max_gpus = sizes[0], sizes[-1]
        jobs.append(job)
        kinds.append(kind)
        work.append(row.duration_s * speeds[gpu_type, wanted])
    durations = [row.duration_s for row in sorted(rows)]
    workload = Workload(name, jobs, durations, [None] * len(jobs), columns={"samples": list(work)})
    return workload, kinds


def _drawn(draw: random.Random, performance: Performance) -> tuple[Kind, Speeds]:
    for _ in range(100):
        name, batches = draw.choice(MODELS)
        kind = Kind(model(name), draw.choice(batches), SEQUENCE, "bf16")
        speeds = performance.adaptive(kind)
        if speeds:
            return kind, speeds
    raise InputError("none of the models fits on any GPU type of this cluster")


class PlannedPhysics(Observer):
    """Work is samples: a job does as many a second as its best plan on the GPUs that it has."""

    def __init__(
        self,
        workload: Workload,
        kinds: Sequence[Kind],
        performance: Performance,
        cluster: Cluster,
        belief: Belief,
        costs: Costs,
    ) -> None:
        """`belief`: whether agents tell of adaptive or of data parallelism only."""
        self.work: Sequence[float] = [one or 0.0 for one in workload.columns["samples"]]
        self.cluster, self.costs = cluster, costs
        self.truth = [performance.adaptive(kind) for kind in kinds]
        self._agents = []
        for job, kind, truth in zip(workload.jobs, kinds, self.truth, strict=True):
            told: Speeds = truth
            if belief == "data-parallel":
                told = {
                    size: speed
                    for size, speed in performance.data_parallel(kind).items()
                    if size in truth
                }
                if not told:  # no type holds the whole model: what it asks for is all they know
                    told = {size: 1.0 for size in truth if size[1] == job.gpus}
            cost = costs.search_s + costs.restore_s
            self._agents.append(PlannedAgent(told, kind.batch, cost))

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """Samples a second, until the end."""
        gpu_type = self.cluster.nodes[allocation[0][0]].gpu_type
        gpus = sum(mask.bit_count() for _, mask in allocation)
        return self.truth[job].get((gpu_type, gpus), 0.0), FOREVER

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """The search before each start; profiling before the first, restoring before the others."""
        agent = self._agents[job]
        seconds = self.costs.search_s
        seconds += self.costs.restore_s if previous else self.costs.profile_s
        if previous:
            agent.restarts += 1
        agent.restoring_until = self.watch.now + seconds
        return seconds

    def saved(self, job: int, done: float, since: float) -> float:
        """A job that is moved or stopped on purpose saves its state first."""
        return done

    def submitted(self, job: Job) -> None:
        """Its agent is there from the beginning."""
        agent = self._agents[job.index]
        agent.restarts, agent.restoring_until = 0, 0.0
        job.agent = agent
