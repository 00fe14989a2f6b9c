"""A synthetic fleet with the statistics of the ASI paper; `asi.yaml` has the source of each
number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from schedmate.base.data import load
from schedmate.base.errors import UsageError
from schedmate.schedulers.fleet.room import NOWHERE, Part, Room
from schedmate.schedulers.fleet.snapshot import MILLI, NONE, Builder, FleetSnapshot

LEAST = 24
"""Nodes of the smallest fleet: two of each type."""
ORIGIN = "synthetic: drawn to the published statistics of ASI, with guesses for the rest"
Progress = Callable[[int, str], None]


class _Task(NamedTuple):
    job: int
    gpus: int  # milli
    cpus: int  # cores
    memory: int  # MB
    group: int


class _Job(NamedTuple):
    name: str
    kind: str
    low_priority: bool
    locked: bool
    spread: bool


def calibration() -> dict[str, Any]:
    """The published numbers and the guesses, each with its source."""
    found: dict[str, Any] = load("schedulers/fleet/asi.yaml")
    return found


def synthesize(
    nodes: int | None = None, seed: int = 0, progress: Progress = lambda _done, _text: None
) -> FleetSnapshot:
    """A synthetic fleet with this number of nodes, by default the published one.

    Deterministic for a seed. `progress` is called with the number of nodes done. Raises
    `UsageError` for fewer than `LEAST` nodes.
    """
    figures = calibration()
    published = int(figures["published"]["nodes"]["value"])
    count = published if nodes is None else nodes
    if count < LEAST:
        raise UsageError(
            f"--nodes {count}: a fleet of twelve GPU types has at least {LEAST} nodes."
        )
    draw = np.random.default_rng(seed)
    builder = Builder("the synthetic fleet")
    waiting: list[dict[str, Any]] = []
    made, switch = 0, 0
    limits = figures["topology"]["switch_nodes"]["value"]
    per_aggregation = figures["topology"]["switches_of_an_aggregation"]["value"]
    for gpu_type, size in _sizes(figures["types"], count, published).items():
        about = figures["types"][gpu_type]
        names = []
        left = 0
        for number in range(size):
            if not left:
                switch += 1
                left = int(draw.integers(limits[0], limits[1] + 1))
            left -= 1
            names.append(f"{gpu_type.lower()}-{number:05d}")
            builder.node(
                {
                    "name": names[-1],
                    "gpu_type": gpu_type,
                    "gpus": about["gpus"],
                    "cpus": about["cpus"],
                    "memory_mb": about["memory_gb"] * 1000,
                    "switch": f"asw-{switch:04d}",
                    "aggregation": f"agg-{switch // per_aggregation:03d}",
                }
            )
        step = figures["churn"]["placed_within"]
        for start in range(0, size, step):
            chunk = names[start : start + step]
            waiting += _Chunk(figures, gpu_type, chunk, draw, count / published).rows()
            made += len(chunk)
            progress(made, f"{gpu_type}")
    for row in waiting:
        builder.task(row)
    return builder.build(ORIGIN)


def _sizes(types: dict[str, Any], count: int, published: int) -> dict[str, int]:
    """Nodes of each type, in proportion, at least two; the largest takes what rounding leaves."""
    sizes = {
        name: max(2, round(about["nodes"] * count / published)) for name, about in types.items()
    }
    largest = max(sizes, key=lambda name: sizes[name])
    sizes[largest] += count - sum(sizes.values())
    return sizes


class _Chunk:
    """Some hundred nodes of one type while jobs come and go."""

    def __init__(
        self,
        figures: dict[str, Any],
        gpu_type: str,
        names: list[str],
        draw: np.random.Generator,
        scale: float,
    ) -> None:
        about = figures["types"][gpu_type]
        self.says, self.draw, self.gpu_type, self.names = figures, draw, gpu_type, names
        self.gpus, self.cores = about["gpus"], about["cpus"]
        self.capacity = len(names) * self.gpus * MILLI
        size = len(names)
        self.part = Part(
            gpus=[self.gpus] * size,
            cpus=[self.cores * MILLI] * size,
            memory=[about["memory_gb"] * 1_000_000] * size,
            kind=[0] * size,
            need=[], need_cpus=[], need_memory=[], reach=[], reaches=[(0,)],
            group=[], avoid=[], movable=[], node=[], device=[], cost=[],
        )  # fmt: skip
        self.room = Room(self.part, empty=True)
        self.jobs: list[_Job] = []
        self.tasks: list[_Task] = []
        self.members: dict[int, list[int]] = {}
        self.held = 0
        target = figures["cpu_jobs"]["of_all_tasks"]["value"] * scale
        share = size / (figures["published"]["nodes"]["value"] * scale)
        self.cpu_tasks = target * share

    def rows(self) -> list[dict[str, Any]]:
        """The tasks that remain in the end, as rows of a snapshot."""
        churn = self.says["churn"]
        allocated = self.says["published"]["allocated"]["value"]
        for _ in range(churn["cycles"]):
            self._fill(churn["filled"])
            self._cpu_jobs(self.cpu_tasks / 4)
            self._leave(1 - churn["leave"])
        self._fill(churn["filled"])
        self._leave(allocated)
        self._cpu_jobs(self.cpu_tasks - len(self.tasks_there()))
        return [self._row(t) for t in self.tasks_there()]

    def tasks_there(self) -> list[int]:
        return [t for t, n in enumerate(self.room.at) if n != NOWHERE]

    def _fill(self, share: float) -> None:
        refused = 0
        while self.held < share * self.capacity and refused < 150:
            refused = 0 if self._arrive() else refused + 1

    def _arrive(self) -> bool:
        """A job comes; False when not all of it finds room."""
        jobs = self.says["jobs"]
        wanted = self._drawn(jobs["sizes"])
        instance = min(self._drawn(jobs["instances"]), wanted, self.gpus)
        per_gpu = min(self._drawn(jobs["cpus_per_gpu"]), self.cores // self.gpus)
        gpus = instance * MILLI
        if wanted == 1 and self.draw.random() < jobs["fractional"]["value"] * 2:
            gpus = int(self.draw.choice(jobs["fractions"]["value"]))
        cpus = max(1, per_gpu * gpus // MILLI)
        memory = cpus * jobs["memory_gb_per_cpu"]["value"] * 1000
        count = max(1, wanted // instance)
        kind = self._kind()
        spread = (
            1 < count <= len(self.names) // 4
            and self.draw.random() < self.says["constraints"]["spread_replicas"]
        )
        job = self._job(kind, spread)
        group = job if spread else NONE
        placed: list[int] = []
        for _ in range(count):
            t = self._add(_Task(job, gpus, cpus, memory, group))
            n = self.room.best(t)
            if n == NOWHERE:
                for task in placed:
                    self.room.take(task)
                self.held -= gpus * len(placed)
                return False
            self.room.put(t, n)
            placed.append(t)
            self.held += gpus
        self.members[job] = placed
        return True

    def _cpu_jobs(self, count: float) -> None:
        """Jobs without a GPU come, each to a random node."""
        about = self.says["cpu_jobs"]
        for _ in range(round(count)):
            cpus = self._drawn(about["cpus"])
            job = self._job("cpu", False)
            t = self._add(
                _Task(job, 0, cpus, cpus * about["memory_gb_per_cpu"]["value"] * 1000, NONE)
            )
            for n in self.draw.integers(len(self.names), size=4).tolist():
                if self.room.fits(t, n):
                    self.room.put(t, n)
                    self.members[job] = [t]
                    break

    def _leave(self, share: float) -> None:
        """Jobs end at random until about this share of the GPUs is held."""
        target = share * self.capacity
        for job in self.draw.permutation(list(self.members)).tolist():
            size = sum(self.tasks[t].gpus for t in self.members[job])
            if self.held <= target:
                break
            # a task that is large here stays: without it far fewer GPUs would be held
            if self.held - size < target - 0.02 * self.capacity - MILLI:
                continue
            for t in self.members.pop(job):
                self.room.take(t)
            self.held -= size

    def _job(self, kind: str, spread: bool) -> int:
        about = self.says["cpu_jobs"] if kind == "cpu" else self.says["jobs"]["types"][kind]
        number = len(self.jobs)
        name = f"{self.gpu_type.lower()}-{self.names[0][-5:]}-{kind}-{number}"
        share = about.get("locked", self.says["published"]["locked"]["value"])
        hp, locked = self.draw.random(2) < (about["hp"], share)
        self.jobs.append(_Job(name, kind, not hp, bool(locked), spread))
        return number

    def _add(self, task: _Task) -> int:
        part = self.part
        part.need.append(task.gpus)
        part.need_cpus.append(task.cpus * MILLI)
        part.need_memory.append(task.memory * 1000)
        part.reach.append(0)
        part.group.append(task.group)
        part.avoid.append((task.group,) if task.group != NONE else ())
        part.device.append(NONE)
        self.room.at.append(NOWHERE)
        self.room.device.append(NONE)
        self.tasks.append(task)
        return len(self.tasks) - 1

    def _kind(self) -> str:
        shares = {k: v["share"] for k, v in self.says["jobs"]["types"].items() if k != "from"}
        return str(self._drawn(shares))

    def _drawn(self, weights: dict[Any, float]) -> Any:
        at = self.draw.random() * sum(weights.values())
        chosen = None
        for value, weight in weights.items():
            chosen = value
            at -= weight
            if at < 0:
                break
        # keys are texts where the calibration comes from a cache of JSON
        return chosen if isinstance(chosen, str) and not chosen.isdigit() else int(str(chosen))

    def _row(self, t: int) -> dict[str, Any]:
        task, job = self.tasks[t], self.jobs[self.tasks[t].job]
        row: dict[str, Any] = {
            "id": f"{job.name}-{t}",
            "job": job.name,
            "node": self.names[self.room.at[t]],
            "gpus": task.gpus / MILLI,
            "cpus": task.cpus,
            "memory_mb": task.memory,
            "class": "lp" if job.low_priority else "hp",
            "locked": job.locked,
        }
        if 0 < task.gpus < MILLI:
            row["device"] = self.room.device[t]
        if job.spread:
            row["group"] = job.name
            row["avoid"] = [job.name]
        if job.kind in ("training", "offline"):
            mean = self.says["constraints"]["checkpoint_age_s"]
            row["checkpoint_age_s"] = round(float(self.draw.exponential(mean)), 1)
        return row
