"""Published figures of a cluster, and how well a drawn trace meets them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schedmate.schedulers.sim.traces.bundled import choose, names
from schedmate.schedulers.sim.traces.campaigns import Campaigns
from schedmate.schedulers.sim.traces.sample import facts
from schedmate.schedulers.sim.workload import Workload

FOLDER = "calibrations"


@dataclass(frozen=True)
class Calibration:
    """The contents of a file in calibrations/."""

    name: str
    title: str
    targets: Mapping[str, Any]
    """Published; times in seconds, GPU time in GPU seconds, states as shares."""
    nodes: int
    gpus_of_a_node: int
    vcs: Mapping[str, int]
    """GPUs of each virtual cluster; empty: there are none."""
    assumed: Mapping[str, Any]
    """Unpublished parameters: the shapes of arrivals and GPU demand."""
    campaigns: Campaigns | None
    """How submissions cluster and repeat; None: each job is drawn by itself."""

    @property
    def cluster(self) -> str:
        """The cluster as `simulate --cluster` takes it."""
        size = self.gpus_of_a_node
        if not self.vcs:
            return f"{self.nodes}x{size}"
        return ",".join(f"{gpus // size}x{size}@{vc}" for vc, gpus in self.vcs.items())

    @classmethod
    def read(cls, name: str) -> Calibration:
        """The bundled calibration called `name`, or the YAML file of that path.

        Raises `UsageError` for neither, `InputError` for a file that is none.
        """
        return choose("calibration", FOLDER, name, cls._of)

    @classmethod
    def _of(cls, name: str, document: Any) -> Calibration:
        cluster, targets = document["cluster"], document["targets"]
        vcs = {str(vc): int(gpus) for vc, gpus in cluster.get("vcs", {}).items()}
        size = int(cluster["gpus_of_a_node"])
        nodes = int(cluster.get("nodes", 0)) or sum(vcs.values()) // size
        for key in ("jobs", "days", "median_s", "mean_s", "max_s", "mean_gpus"):
            if not float(targets[key]) > 0:
                raise ValueError(f"targets.{key} is not above 0")
        for key in ("start", "hours", "weekdays", "shares", "sizes", "recipe"):
            document["assumed"][key]
        title = str(document.get("title", name))
        campaigns = Campaigns.of(document["assumed"].get("campaigns"))
        return cls(name, title, targets, nodes, size, vcs, document["assumed"], campaigns)


@dataclass(frozen=True)
class Match:
    """A published figure and that of a drawn trace."""

    target: str
    published: float
    drawn: float

    @property
    def off(self) -> float:
        """The relative difference."""
        return self.drawn / self.published - 1 if self.published else 0.0


def matches(workload: Workload, calibration: Calibration) -> list[Match]:
    """How well a trace meets each target; GPU time is per job, as it may have fewer jobs."""
    targets = calibration.targets
    found = facts(workload)
    held = [job.gpus * job.share for job in workload.jobs]
    times = [gpus * length for gpus, length in zip(held, workload.duration_s, strict=True)]
    rows = [
        Match("jobs a day", targets["jobs"] / targets["days"], _rate(workload, calibration)),
        Match("median duration [s]", targets["median_s"], found["median_s"]),
        Match("mean duration [s]", targets["mean_s"], found["mean_s"]),
        Match("longest [s], at most", targets["max_s"], found["max_s"]),
        Match("mean GPUs", targets["mean_gpus"], found["mean_gpus"]),
    ]
    if "median_gpus" in targets:
        rows.append(Match("median GPUs", targets["median_gpus"], statistics.median(held)))
    total = sum(times)
    if "gpu_s" in targets:
        each = targets["gpu_s"] / targets["jobs"]
        rows.append(Match("GPU time a job [GPU s]", each, total / len(times)))
    for state, share in targets.get("states", {}).items():
        drawn = workload.states.count(state) / len(workload)
        rows.append(Match(f"{state.lower()}, share of jobs", share, drawn))
    for state, share in targets.get("gpu_time", {}).items():
        part = sum(time for time, one in zip(times, workload.states, strict=True) if one == state)
        rows.append(Match(f"{state.lower()}, share of GPU time", share, part / total))
    return rows


def calibrations() -> tuple[str, ...]:
    """Names of the bundled calibrations."""
    return names(FOLDER)


def _rate(workload: Workload, calibration: Calibration) -> float:
    """Jobs per day, over whole days of the calibration's length if that was drawn."""
    span = workload.jobs[-1].submit_time - workload.jobs[0].submit_time
    return len(workload) / max(span, 1.0) * 86_400
