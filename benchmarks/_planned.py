"""Jobs that train large models with adaptive parallelism (Arena, section 5.1).

Submissions and durations are those of a trace; model, batch size, GPUs and GPU type are drawn for
each job. The work of a job is what it does in its duration on the requested GPUs, with the best
plan for them. All jobs run with the best plan, under every scheduler; schedulers differ in the
throughputs that agents report. The true throughput is that of the full cost model times a random
factor for each model, batch size, GPU type and number of GPUs, which no scheduler knows before it
has profiled or tried that.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from _performance import ModelJob, Performance

from schedmate.base.errors import InputError
from schedmate.schedulers.goodput import PlannedAgent, Size, Speeds, SpeedSource
from schedmate.schedulers.model import Allocation, Cluster, Job, Terms
from schedmate.schedulers.parallelism.models import find_model
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import FOREVER, SimulationObserver

Belief = Literal["adaptive", "data-parallel", "bootstrapped"]
"""Throughputs that agents report: of the best plans, of data parallelism, or of data parallelism on
one GPU times their number, until the job has run there."""

Freedom = Literal["rigid", "type", "count", "both"]
"""Freedom of a scheduler: nothing, the GPU type, the number of GPUs, or both."""

MODELS: tuple[tuple[str, tuple[int, ...]], ...] = (
    *((f"wide-resnet-{size}", (256, 512, 1024)) for size in ("0.5b", "1b", "2b", "4b")),
    *((f"gpt-{size}", (128, 256, 512)) for size in ("0.76b", "1.3b", "2.6b")),
    *((f"moe-{size}", (256, 512, 1024)) for size in ("0.69b", "1.3b", "2.4b")),
)
"""Table 2, without the sizes that fit on no GPU type of the smaller clusters."""

LARGER: tuple[tuple[str, tuple[int, ...]], ...] = (
    *((f"wide-resnet-{size}", (256, 512, 1024)) for size in ("2b", "4b", "6.8b")),
    *((f"gpt-{size}", (128, 256, 512)) for size in ("1.3b", "2.6b", "6.7b")),
    *((f"moe-{size}", (256, 512, 1024)) for size in ("2.4b", "10b", "27b")),
)
"""Models and batch sizes for the cluster with newer GPUs, for which the paper scales up."""

SEQUENCE = 1024
PRECISION = "fp16"
"""The precision of Alpa; V100 has no units for bf16."""


@dataclass(frozen=True)
class Costs:
    """Costs of scheduling besides training [s]."""

    search_s: float = 90.0
    """Pruned search before each start: 1 to 2 minutes (section 5.8)."""
    restore_s: float = 240.0
    """Checkpoint and resume: under 5 minutes (section 5.8)."""
    profile_s: float = 0.0
    """Profiling before the first start; Arena 510 (8.5 minutes), on all GPUs 600 (section 2)."""
    profile_gpu_s: float = 0.0
    """Profiling that takes this GPU time on the job's own GPUs, before the first start."""


@dataclass(frozen=True)
class Errors:
    """Errors of the reported throughputs: for each part, a standard deviation."""

    truth: float = 0.05
    """Of what runs from the full cost model."""
    profile: float = 0.05
    """Of profiled plans from what runs; Arena: 3.1 to 8.3 % on 1 to 16 GPUs (section 5.5)."""


class Submission(NamedTuple):
    """A row of the trace that is scaled to large models."""

    submit_s: float
    duration_s: float
    gpus: int = 0
    """0: drawn."""


def planned_workload(
    name: str,
    rows: Sequence[Submission],
    performance: Performance,
    seed: int,
    *,
    freedom: Freedom = "both",
    models: Sequence[tuple[str, tuple[int, ...]]] = MODELS,
    deadlines: tuple[float, float] | None = None,
) -> tuple[Workload, list[ModelJob]]:
    """The jobs of a trace with drawn models, and what each one trains.

    Args:
        name: name of the workload.
        rows: submissions and durations.
        performance: throughputs on the cluster.
        seed: gives the same draws whatever the freedom.
        freedom: what schedulers choose of a job's GPUs; the rest is as requested.
        models: names and global batch sizes to draw from.
        deadlines: the deadline of each job is its duration times a factor in this range.

    Raises `InputError` if no model fits anywhere.
    """
    draw = random.Random(seed)
    jobs, kinds = [], []
    work: list[float | None] = []
    for index, row in enumerate(sorted(rows)):
        kind, speeds = _drawn(draw, performance, models)
        sizes = sorted({gpus for _, gpus in speeds})
        wanted = row.gpus if row.gpus in sizes else draw.choice(sizes)
        gpu_type = draw.choice(sorted(gpu for gpu, gpus in speeds if gpus == wanted))
        job = Job(f"job{index}", index, row.submit_s, wanted, name=kind.spec.name)
        if freedom in ("rigid", "count"):
            job.gpu_type = gpu_type
        if freedom in ("count", "both"):
            counts = [gpus for gpu, gpus in speeds if freedom == "both" or gpu == gpu_type]
            job.min_gpus, job.max_gpus = min(counts), max(counts)
        factor = draw.random()
        if deadlines is not None:
            factor = deadlines[0] + factor * (deadlines[1] - deadlines[0])
            job.terms = Terms(deadline=row.submit_s + factor * row.duration_s)
        jobs.append(job)
        kinds.append(kind)
        work.append(row.duration_s * speeds[gpu_type, wanted])
    durations = [row.duration_s for row in sorted(rows)]
    workload = Workload(name, jobs, durations, [None] * len(jobs), columns={"samples": list(work)})
    return workload, kinds


def _drawn(
    draw: random.Random,
    performance: Performance,
    models: Sequence[tuple[str, tuple[int, ...]]],
) -> tuple[ModelJob, Speeds]:
    for _ in range(100):
        name, batches = draw.choice(models)
        kind = ModelJob(find_model(name), draw.choice(batches), SEQUENCE, PRECISION)
        speeds = performance.adaptive(kind)
        if speeds:
            return kind, speeds
    raise InputError(
        "none of the models fits on any GPU type of this cluster; give one with more GPU memory, "
        "as 6x4:A100."
    )


def disturbed(speeds: Speeds, kind: ModelJob, part: float, what: str) -> dict[Size, float]:
    """Speeds times factors around 1: the same for the same kind, size and `what`."""
    disturbed_speeds = {}
    for size, speed in speeds.items():
        draw = random.Random(f"{what} {kind} {size}")
        disturbed_speeds[size] = speed * math.exp(draw.gauss(0.0, part)) if part else speed
    return disturbed_speeds


class PlannedPhysics(SimulationObserver):
    """Work is samples: the speed of a job is the throughput of the best plan for its GPUs."""

    def __init__(
        self,
        workload: Workload,
        kinds: Sequence[ModelJob],
        performance: Performance,
        cluster: Cluster,
        belief: Belief,
        costs: Costs,
        errors: Errors | None = None,
    ) -> None:
        """`belief`: throughputs that agents report; `errors`: None for none."""
        errors = errors or Errors(0.0, 0.0)
        self.work: Sequence[float] = [one or 0.0 for one in workload.columns["samples"]]
        self.cluster, self.costs = cluster, costs
        self.learns = belief == "bootstrapped"
        self.truth: list[dict[Size, float]] = []
        self._agents: list[PlannedAgent] = []
        self._held: dict[int, tuple[str, float]] = {}
        by_kind: dict[ModelJob, tuple[dict[Size, float], dict[Size, float]]] = {}
        for job, kind, samples in zip(workload.jobs, kinds, self.work, strict=True):
            if kind not in by_kind:
                truth = disturbed(performance.adaptive(kind), kind, errors.truth, "truth")
                by_kind[kind] = truth, believed(performance, kind, truth, belief, errors)
            truth, reported = by_kind[kind]
            self.truth.append(truth)
            if not any(_may_have(job, size) for size in reported):
                # No type that it may get holds the whole model: its request is all that is known.
                reported = {size: speed for size, speed in truth.items() if size[1] == job.gpus}
            cost = costs.search_s + costs.restore_s
            first = costs.search_s + costs.profile_s + costs.profile_gpu_s / job.gpus
            self._agents.append(PlannedAgent(reported, kind.batch, cost, samples, first))

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """Samples a second, until the end."""
        size = self._size(allocation)
        speed, agent = self.truth[job].get(size, 0.0), self._agents[job]
        if self.learns and speed:
            agent.learn(size, speed)
        since = max(self.watch.now, agent.restoring_until)
        agent.seen = SpeedSource(self.work[job] - done, since, speed)
        return speed, FOREVER

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """The search before each start; profiling before the first, restoring before the others."""
        agent, costs = self._agents[job], self.costs
        seconds = costs.search_s
        if previous:
            seconds += costs.restore_s
            agent.restarts += 1
        else:
            seconds += costs.profile_s + costs.profile_gpu_s / self._size(allocation)[1]
        agent.restoring_until = self.watch.now + seconds
        return seconds

    def saved(self, job: int, done: float, since: float) -> float:
        """A job that is moved or stopped on purpose saves its state first."""
        return done

    def submitted(self, job: Job) -> None:
        """The job gets its agent: planned and profiled before it runs."""
        agent = self._agents[job.index]
        agent.restarts, agent.restoring_until = 0, 0.0
        agent.seen = SpeedSource(self.work[job.index], 0.0, 0.0)
        job.agent = agent

    def started(self, job: Job) -> None:
        """Remember since when it holds its type."""
        self._held[job.index] = self._size(job.allocation)[0], self.watch.now

    def stopped(self, job: Job) -> None:
        """The job makes no progress while it waits."""
        agent, now = self._agents[job.index], self.watch.now
        agent.seen = SpeedSource(agent.left(now) or 0.0, now, 0.0)
        gpu_type, since = self._held.pop(job.index)
        agent.held_s[gpu_type] = agent.held_s.get(gpu_type, 0.0) + now - since

    def _size(self, allocation: Allocation) -> Size:
        gpus = sum(mask.bit_count() for _, mask in allocation)
        return self.cluster.nodes[allocation[0][0]].gpu_type, gpus


def _may_have(job: Job, size: Size) -> bool:
    return job.gpu_type in ("", size[0]) and (job.elastic or size[1] == job.gpus)


def believed(
    performance: Performance, kind: ModelJob, truth: Speeds, belief: Belief, errors: Errors
) -> dict[Size, float]:
    """Throughputs that agents report at first; combinations not listed cannot run."""
    if belief == "adaptive":
        return disturbed(truth, kind, errors.profile, "profile")
    copies = performance.data_parallel(kind)
    copies = {size: speed for size, speed in copies.items() if size in truth}
    copies = disturbed(copies, kind, errors.truth, "truth")
    if belief == "data-parallel":
        return copies
    return {
        (gpu_type, gpus): gpus * copies[gpu_type, 1]
        for gpu_type, gpus in truth
        if (gpu_type, 1) in copies
    }
