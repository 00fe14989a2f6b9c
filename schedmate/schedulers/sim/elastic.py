"""Workloads of elastic jobs, and their ground truth from measured tables: steps, gradients,
epochs.

A workload has the columns name, time, application, num_replicas, batch_size[, category]. The tables
of the applications are in a folder `traces` beside or above it, with one folder for each
application, as in the artifact of Sia (SOSP'23).
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from schedmate.base.data import LONGEST_S, encodable, load
from schedmate.base.errors import InputError
from schedmate.base.reading import MOST_RECORDS, bounded_rows, open_text
from schedmate.jobs import WorkloadMetadata
from schedmate.schedulers.goodput import (
    MOST_REPLICAS,
    Agent,
    Batch,
    Floats,
    Limits,
    Observation,
    Shape,
)
from schedmate.schedulers.model import Allocation, Cluster, Job
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import FOREVER, SimulationObserver

CATEGORIES = ("adaptive", "scale-gpus", "rigid")
"""Which may change both batch size and GPUs, which GPUs only, and which neither."""


def physics_of(
    workload: Workload,
    tables: Tables,
    cluster: Cluster,
    parameters: Parameters,
    policy: type[Policy],
) -> TablePhysics:
    """How the jobs of this workload (or a part of it) progress on this cluster."""
    batches = [
        None if policy.adapts_batch and category == CATEGORIES[0] else int(batch or 0)
        for category, batch in zip(workload.categories, workload.columns["batch_size"], strict=True)
    ]
    applications = [tables.applications[name] for name in workload.configs]
    asked = [int(batch or 0) or None for batch in workload.columns["batch_size"]]
    return TablePhysics(workload.jobs, applications, batches, cluster, parameters, asked)


def read_elastic_workload(
    path: Path,
    names: Sequence[str],
    table: Iterable[tuple[int, list[str]]],
    *,
    tables: Path | None = None,
) -> Workload:
    """The workload of these columns and rows, each with its line in the file `path`.

    Raises `InputError` with the line of a bad row, or if there are no tables.
    """
    rows, bad, seen = [], [], set[str]()
    for line, cells in table:
        try:
            if len(cells) != len(names):
                raise ValueError(f"it has {len(cells)} cells, the header {len(names)}")
            rows.append(_row(dict(zip(names, cells, strict=True)), seen))
        except ValueError as error:
            bad.append(f"line {line}: {error}")
    if bad:
        raise InputError(f"{path} has {len(bad)} bad rows: {'; '.join(bad[:5])}; correct them.")
    if not rows:
        raise InputError(f"{path} has no jobs; a workload has a row for each below its header.")
    kinds = sorted({row.application for row in rows})
    folder = tables or _tables_beside(path, kinds[0])
    applications = {name: Application(_inside(folder, name)) for name in kinds}
    rows.sort(key=lambda row: row.submit_s)
    jobs, durations = [], []
    for index, row in enumerate(rows):
        application = applications[row.application]
        job = Job(row.id, index, row.submit_s, row.gpus, name=row.application)
        job.min_gpus, job.max_gpus = _span(row, application)
        jobs.append(job)
        durations.append(application.duration_s(row.gpus, row.batch))
    return Workload(
        encodable(path.name),
        jobs,
        durations,
        [None] * len(jobs),
        metadata=[_metadata(row, applications[row.application]) for row in rows],
        configs=[row.application for row in rows],
        categories=[row.category for row in rows],
        columns={"batch_size": [float(row.batch) for row in rows]},
        tables=Tables(folder, applications),
    )


_MOST = 1e9


@dataclass(frozen=True)
class _Row:
    id: str
    submit_s: float
    application: str
    gpus: int
    batch: int
    category: str


def _row(row: dict[str, str], seen: set[str]) -> _Row:
    name = row["name"].strip()
    if not name or name in seen:
        raise ValueError(f"the name {name!r} is empty or not the first of its kind")
    seen.add(name)
    submit_s = float(row["time"] or "nan")
    counts = [float(row[column] or 0) for column in ("num_replicas", "batch_size")]
    if not all(0 <= one <= _MOST and one.is_integer() for one in counts):
        raise ValueError("num_replicas and batch_size have to be whole numbers of a sane size")
    gpus, batch = map(int, counts)
    category = (row.get("category") or CATEGORIES[0]).strip()
    if not 0 <= submit_s <= LONGEST_S or gpus < 1 or batch < 1:
        raise ValueError("time, num_replicas and batch_size have to be positive numbers")
    if category not in CATEGORIES:
        raise ValueError(f"category {category!r} is none of {', '.join(CATEGORIES)}")
    return _Row(name, submit_s, row["application"].strip(), gpus, batch, category)


def _metadata(row: _Row, application: Application) -> WorkloadMetadata | None:
    """The metadata of such a job; None for an application without a description."""
    facts = known_applications().get(row.application, {}).get("metadata")
    if facts is None:
        return None
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": facts["model"], "task_type": facts["task"]},
            "training_config": {
                "iters": len(application.ends),
                "iter_type": "epoch",
                "batch_size": row.batch,
            },
            "dataset_config": {"train": facts.get("data")},
        }
    )


def _span(row: _Row, application: Application) -> tuple[int, int]:
    if row.category == "rigid":
        return row.gpus, row.gpus
    limits = [one.limits for one in application.steps.values()]
    batch = row.batch if row.category == "scale-gpus" else application.batches[-1]
    most = max(min(MOST_REPLICAS, batch // one.smallest) * one.gpus for one in limits)
    return min(one.gpus for one in limits), max(most, row.gpus)


def _tables_beside(path: Path, name: str) -> Path:
    for parent in path.resolve().parents:
        if (parent / "traces" / name).is_dir():
            return parent / "traces"
    raise InputError(
        f"{path} is a workload of elastic jobs, whose speeds come from measured tables; no folder "
        f"traces/{name} is beside or above it. Name the folder of tables with --tables."
    )


def _inside(folder: Path, name: str) -> Path:
    if not name or Path(name).name != name or not (folder / name).is_dir():
        raise InputError(f"{folder} has no tables of the application {name!r}.")
    return folder / name


# Measured tables of one application: how long a step takes, what a batch size does to progress.
#
# `placements-TYPE.csv` and `scalability-TYPE.csv` have `local_bsz, step_time, sync_time` [samples,
# s] by placement ("44": four GPUs on each of two nodes) and by nodes and replicas;
# `validation-B.csv` has progress and gradient statistics of each epoch at global batch size B.


@cache
def known_applications() -> dict[str, dict[str, Any]]:
    """Named parameters of applications, from applications.yaml."""
    applications: dict[str, dict[str, Any]] = load("schedulers/sim/applications.yaml")
    return applications


class StepTimes:
    """Step times of one application on one GPU type."""

    def __init__(self, placements: Path, scalability: Path, *, pipeline: bool) -> None:
        self.pipeline = pipeline
        self._times: dict[tuple[tuple[int, ...], int], tuple[float, float]] = {}
        self.by_placement: dict[str, Floats] = {}
        rows = _rows(placements, ("placement", "local_bsz", "step_time", "sync_time"))
        grouped: dict[str, list[list[float]]] = {}
        for row in rows:
            times = [float(row[name]) for name in ("local_bsz", "step_time", "sync_time")]
            grouped.setdefault(_smallest_rotation(row["placement"]), []).append(times)
        for placement, measured in grouped.items():
            self.by_placement[placement] = np.array(sorted(measured)).T
        self.by_size = self._by_size(scalability)
        sizes = [row[0] for table in self.by_placement.values() for row in table.T]
        nodes = [len(placement) for placement in self.by_placement]
        nodes += [nodes for nodes, _ in self.by_size]
        unit = min(sum(map(int, placement)) for placement in self.by_placement)
        self.limits = Limits(int(min(sizes)), int(max(sizes)), max(nodes), unit if pipeline else 1)

    def _by_size(self, path: Path) -> dict[tuple[int, int], Floats]:
        grouped: dict[tuple[int, int], list[list[float]]] = {}
        names = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
        for row in _rows(path, names):
            times = [float(row[name]) for name in names[2:]]
            nodes, replicas = (int(float(row[name])) for name in _WHOLE)
            grouped.setdefault((nodes, replicas), []).append(times)
        for placement, table in self.by_placement.items():
            key = (len(placement), sum(map(int, placement)))
            grouped.setdefault(key, table.T.tolist())
        return {key: np.array(sorted(times)).T for key, times in grouped.items()}

    def times(self, counts: tuple[int, ...], batch: int) -> tuple[float, float]:
        """A step without and one with synchronisation [s]; `counts`: GPUs on each node.

        Interpolated in the batch size; a placement that was not measured takes the mean of those
        next to it in (nodes, replicas).
        """
        times = self._times.get((counts, batch))
        if times is None:
            table = self.by_placement.get(_smallest_rotation("".join(map(str, counts))))
            if table is None:
                at = self._between(min(len(counts), 16), sum(counts), batch)
            else:
                at = _times_at(table, batch)
            times = self._times[counts, batch] = self._split(*at)
        return times

    def _split(self, step: float, sync: float) -> tuple[float, float]:
        if self.pipeline:
            # Here a synchronisation takes longer than a step, so it cannot be a part of it.
            return step, step + sync
        return max(step - sync, 1e-6), step

    def _between(self, nodes: int, gpus: int, batch: int) -> tuple[float, float]:
        node_counts = sorted({key[0] for key in self.by_size})
        place = bisect_left(node_counts, nodes)
        low, high = node_counts[max(0, place - 1)], node_counts[min(place, len(node_counts) - 1)]
        if node_counts[min(place, len(node_counts) - 1)] == nodes:
            low = high = nodes
        below, above = (self._of_nodes(count, gpus, batch) for count in (low, high))
        part = 0.0 if low == high else (nodes - low) / (high - low)
        return (below[0] + part * (above[0] - below[0]), below[1] + part * (above[1] - below[1]))

    def _of_nodes(self, nodes: int, gpus: int, batch: int) -> tuple[float, float]:
        sizes = sorted(key[1] for key in self.by_size if key[0] == nodes)
        times = [_times_at(self.by_size[nodes, size], batch) for size in sizes]
        step = float(np.interp(gpus, sizes, [one[0] for one in times]))
        return step, float(np.interp(gpus, sizes, [one[1] for one in times]))


class Application:
    """One program: its steps on every GPU type, its gradients and its epochs."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        facts = {**known_applications()["otherwise"], **known_applications().get(self.name, {})}
        self.slowdown = float(facts["slowdown"])
        self.rescale_s = float(facts["rescale_s"])
        self.told_s = float(facts.get("told_s", self.rescale_s))
        self._noise: dict[tuple[float, int], tuple[float, float]] = {}
        self.counts_on_asked = bool(facts.get("counts_on_asked", True))
        pipeline = bool(facts.get("pipeline"))
        self.steps: dict[str, StepTimes] = {}
        for path in sorted(folder.glob("placements-*.csv")):
            gpu_type = path.stem.partition("-")[2]
            scalability = folder / f"scalability-{gpu_type}.csv"
            if scalability.exists():
                self.steps[gpu_type] = StepTimes(path, scalability, pipeline=pipeline)
        curves = {
            int(path.stem.partition("-")[2]): path for path in folder.glob("validation-*.csv")
        }
        if not self.steps or not curves:
            raise InputError(
                f"{folder} has no tables of the application {self.name!r}; it needs "
                "placements-TYPE.csv, scalability-TYPE.csv and validation-BATCH.csv."
            )
        self._read_curves(curves, facts.get("epochs"))

    def _read_curves(self, curves: dict[int, Path], epochs: int | None) -> None:
        self.batches = sorted(curves)
        tables = []
        for batch in self.batches:
            rows = _rows(curves[batch], ("progress", "grad_sqr", "grad_var"))
            tables.append([[float(row[name]) for name in row if name in _NEEDED] for row in rows])
        count = min(epochs or len(tables[0]), *(len(table) for table in tables))
        data = np.array([table[:count] for table in tables])
        names = [name for name in rows[0] if name in _NEEDED]
        column = {name: data[:, :, place] for place, name in enumerate(names)}
        self.ends = np.maximum.accumulate(column["progress"].min(axis=0))
        """Progress at the end of each epoch [iterations of the smallest batch size]."""
        self.squared, self.variance = column["grad_sqr"], column["grad_var"]
        if any(one >= other for one, other in pairwise(self.ends)) or self.ends[0] <= 0:
            raise InputError(
                f"progress in the validation tables of {self.name} does not grow; correct them, or "
                "name other tables with --tables."
            )

    @property
    def work(self) -> float:
        """Progress that a job needs."""
        return float(self.ends[-1])

    def epoch(self, done: float) -> int:
        """The epoch of a job after this progress."""
        return min(int(np.searchsorted(self.ends, done * (1 + 1e-12), "right")), len(self.ends) - 1)

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of the gradient at this global batch size."""
        noise = self._noise.get((batch, epoch))
        if noise is None:
            squared = np.interp(batch, self.batches, self.squared[:, epoch])
            variance = np.interp(batch, self.batches, self.variance[:, epoch])
            noise = self._noise[batch, epoch] = float(squared), float(variance)
        return noise

    def duration_s(self, gpus: int, batch: int) -> float:
        """Run time on this number of GPUs of the first type by name, at this batch size [s].

        It is what the user's request would take; no policy of elastic jobs knows it.
        """
        steps = self.steps[min(self.steps)]
        unit, widest = steps.limits.gpus, max(int(max(one)) for one in steps.by_placement)
        counts = (widest,) * (gpus // widest) + ((gpus % widest,) if gpus % widest else ())
        replicas = max(1, gpus // unit)
        more = max(0, -(-batch // (replicas * steps.limits.largest)) - 1)
        size = -(-batch // (replicas * (more + 1)))
        accumulation, step = steps.times(counts, size)
        total = 0.0
        for epoch, progress in enumerate(np.diff(self.ends, prepend=0.0)):
            squared, variance = self.noise(batch, epoch)
            scale = batch / self.batches[0]
            total += progress / ((variance + squared) / (variance / scale + squared))
        return float(total * (more * accumulation + step) * self.slowdown)

    def alone(self, gpu_type: str) -> float:
        """Samples per second of one replica that fills its memory, which can only be known by
        trying."""
        limits = self.steps[gpu_type].limits
        _, step = self.steps[gpu_type].times((limits.gpus,), limits.largest)
        return limits.largest / step


_WHOLE = ("num_nodes", "num_replicas")
_NEEDED = ("progress", "grad_sqr", "grad_var")
_LARGEST = 1e30
"""No number is larger: the gradients' variance of BERT in Sia's tables is above 1e16."""


def _rows(path: Path, needs: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with open_text(path, newline="") as stream:
            rows = list(bounded_rows(csv.DictReader(stream), path, MOST_RECORDS))
    except (OSError, UnicodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}: {error}; check its name and rights.") from None
    missing = [name for name in needs if not rows or name not in rows[0]]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}, or no rows; name other tables with --tables."
        )
    for line, row in enumerate(rows, 2):
        for name in needs:
            try:
                number = float(row[name])
                if not 0 <= number <= _LARGEST or (name in _WHOLE and not number.is_integer()):
                    raise ValueError
            except (TypeError, ValueError):
                raise InputError(
                    f"{path}, line {line}: {name} is {row[name]!r}; correct it: a number of at "
                    "least 0, whole where it is a count."
                ) from None
    return rows


def _smallest_rotation(placement: str) -> str:
    """The smallest rotation: which node comes first does not matter."""
    return min(placement[one:] + placement[:one] for one in range(len(placement)))


def _times_at(table: Floats, batch: float) -> tuple[float, float]:
    sizes, steps, syncs = table
    return float(np.interp(batch, sizes, steps)), float(np.interp(batch, sizes, syncs))


@dataclass(frozen=True)
class Tables:
    """The measured tables of all applications of a workload, and where they are kept."""

    folder: Path
    applications: dict[str, Application]


# Elastic jobs that progress by measured tables, with agents that learn from observations.


PROFILED_BATCHES = 10
"""Batch sizes measured on each type in a profile, spaced geometrically (Sia, section 3.2)."""

_PUBLISHED_ROUND_S = 60.0
"""The published simulator steps jobs from round to round, and agents learn at the end of one."""

_CLOCK_S = 1e-6
"""Sums of times are exact to this, over years."""


class TablePhysics(SimulationObserver):
    """Work is progress in iterations of the initial batch size, summed over epochs.

    A job's agent observes what a real one would: the step times of configurations in which the job
    has run for `Parameters.report_s`, and its gradient in the present epoch. In the published mode
    it also knows the true ratio of the speeds of single GPUs, moves between equal nodes cost
    nothing, and its reports come at the end of each round.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        applications: Sequence[Application],
        batches: Sequence[int | None],
        cluster: Cluster,
        parameters: Parameters,
        asked: Sequence[int | None] | None = None,
    ) -> None:
        """Args:
            jobs: in order of submission.
            applications: one for each job.
            batches: the fixed global batch size of each job; None: it may choose.
            asked: the global batch size of each request, which the published scheduler assumes.
            cluster: its GPU types are those of the tables.
            parameters: `sia_oracle` is the published mode.

        Raises `InputError` if no table has the speed of a job on any GPU type of the cluster.
        """
        self.jobs = jobs
        self.applications = applications
        self.cluster = cluster
        self.published = parameters.sia_oracle
        self.free_profiles = parameters.profiling_is_free and not self.published
        self._report_s = parameters.report_s
        self.work: Sequence[float] = [one.work for one in applications]
        self.agents = [
            self._agent(application, batch, wanted)
            for application, batch, wanted in zip(
                applications, batches, asked or [None] * len(batches), strict=True
            )
        ]
        self._running: dict[int, tuple[Shape, Batch]] = {}
        self._stopped: dict[int, float] = {}
        self._profiling: dict[int, Allocation] = {}
        self._begun: dict[int, tuple[str, float]] = {}

    def _agent(self, application: Application, batch: int | None, asked: int | None) -> Agent:
        types = {node.gpu_type for node in self.cluster.nodes}
        limits = {name: one.limits for name, one in application.steps.items() if name in types}
        if not limits:
            raise InputError(
                f"{application.name} was measured on {', '.join(application.steps)}, and the "
                f"cluster has {', '.join(sorted(types)) or 'no GPU types'}; write a cluster as "
                f"6x4:{min(application.steps)}."
            )
        return Agent(
            limits,
            initial_batch=application.batches[0],
            largest_batch=application.batches[-1],
            fixed_batch=batch,
            offered_batch=asked if self.published and application.counts_on_asked else None,
            restart_s=application.told_s if self.published else application.rescale_s,
            ratios={name: application.alone(name) for name in limits} if self.published else None,
        )

    # Physics.

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        """The speed by the tables, until the epoch ends or the agent reports a measurement."""
        if job in self._profiling:
            return 0.0, FOREVER
        application, agent = self.applications[job], self.agents[job]
        shape, counts = self._shape(allocation)
        if shape.gpu_type not in application.steps:
            return 0.0, FOREVER
        epoch = application.epoch(done)
        if job in self._running:
            before, batch = self._running[job]
            self._observe(job, before, counts, batch)
            agent.set_noise(*application.noise(self._total(job, shape, batch), epoch))
        elif agent.noise is None:
            agent.set_noise(*application.noise(application.batches[0], epoch))
        batch = agent.batch(shape) or Batch(agent.limits[shape.gpu_type].smallest, 0)
        self._running[job] = (shape, batch)
        total = self._total(job, shape, batch)
        agent.set_noise(*application.noise(total, epoch))
        accumulation, step = application.steps[shape.gpu_type].times(counts, batch.size)
        seconds = (batch.steps * accumulation + step) * application.slowdown
        speed = float(agent.gain(total)) / seconds
        until = float(application.ends[epoch])
        if not self._is_known(job, shape, batch):
            until = min(until, done + speed * self._until_report_s(agent))
        return speed, until

    def _until_report_s(self, agent: Agent) -> float:
        """Time for which the job has to run until its agent knows its speed [s]."""
        if not self.published:
            return self._report_s
        left = _PUBLISHED_ROUND_S - max(self.watch.now, agent.restoring_until) % _PUBLISHED_ROUND_S
        # A round that ends within the rounding of the clock has ended: the next one counts.
        return left if left > _CLOCK_S else left + _PUBLISHED_ROUND_S

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        """The application's start time, also for its first start.

        In the published mode an immediate move to equal GPUs is free.
        """
        if self.jobs[job].profiling:
            self._profiling[job] = allocation
            return 0.0
        self._running.pop(job, None)
        agent = self.agents[job]
        moved = bool(previous) and self._stopped.get(job) == self.watch.now
        if moved and self.published and self._shape(allocation) == self._shape(previous):
            return 0.0
        if previous:
            agent.restarts += 1
        rescale_s = self.applications[job].rescale_s
        agent.restoring_until = self.watch.now + rescale_s
        return rescale_s

    def saved(self, job: int, done: float, since: float) -> float:
        """A checkpoint is made at the end of every epoch."""
        ends = self.applications[job].ends
        return max([since, *(float(end) for end in ends[ends <= done][-1:])])

    # Observer.

    def submitted(self, job: Job) -> None:
        """The job gets its agent, which knows nothing yet unless profiling is free."""
        agent = job.agent = self.agents[job.index]
        if self.free_profiles and not agent.models:
            self._measure(job.index, list(agent.limits))

    def started(self, job: Job) -> None:
        """Remember since when it holds which type."""
        self._begun[job.index] = (self._shape(job.allocation)[0].gpu_type, self.watch.now)

    def stopped(self, job: Job) -> None:
        """The job lost its GPUs; at the end of a profile, its agent knows the measurements."""
        index = job.index
        if index in self._begun:
            gpu_type, since = self._begun.pop(index)
            held_s = self.agents[index].held_s
            held_s[gpu_type] = held_s.get(gpu_type, 0.0) + self.watch.now - since
        self._stopped[index] = self.watch.now
        if index in self._profiling:
            nodes = [node for node, _ in self._profiling.pop(index)]
            types = dict.fromkeys(self.cluster.nodes[node].gpu_type for node in nodes)
            self._measure(index, list(types))

    # What agents learn.

    def _measure(self, job: int, types: list[str]) -> None:
        """A profile: one replica on each GPU type, at several batch sizes."""
        application, agent = self.applications[job], self.agents[job]
        for gpu_type in types:
            if gpu_type not in agent.limits:
                continue
            smallest, largest, _, gpus = agent.limits[gpu_type]
            for size in sorted({int(b) for b in np.geomspace(smallest, largest, PROFILED_BATCHES)}):
                times = application.steps[gpu_type].times((gpus,), size)
                agent.observe(gpu_type, Observation(1, 1, size, *times))
        if agent.noise is None:
            agent.set_noise(*application.noise(application.batches[0], 0))

    def _observe(self, job: int, shape: Shape, counts: tuple[int, ...], batch: Batch) -> None:
        if not self._is_known(job, shape, batch):
            times = self.applications[job].steps[shape.gpu_type].times(counts, batch.size)
            self.agents[job].observe(
                shape.gpu_type, Observation(*self._key(job, shape, batch), *times)
            )

    def _is_known(self, job: int, shape: Shape, batch: Batch) -> bool:
        seen = self.agents[job].observations.get(shape.gpu_type, {})
        return self._key(job, shape, batch) in seen

    def _key(self, job: int, shape: Shape, batch: Batch) -> tuple[int, int, int]:
        gpus = self.agents[job].limits[shape.gpu_type].gpus
        return (shape.nodes, max(1, shape.gpus // gpus), batch.size)

    def _total(self, job: int, shape: Shape, batch: Batch) -> int:
        return self._key(job, shape, batch)[1] * batch.size * (batch.steps + 1)

    def _shape(self, allocation: Allocation) -> tuple[Shape, tuple[int, ...]]:
        counts = tuple(mask.bit_count() for _, mask in allocation)
        gpu_type = self.cluster.nodes[allocation[0][0]].gpu_type
        return Shape(gpu_type, len(counts), sum(counts)), counts
