"""A run as a Chrome trace, which Perfetto (https://ui.perfetto.dev) opens: one track a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.engine import Outcome
from schedmate.schedulers.sim.workload import Workload


def events(workload: Workload, cluster: Cluster, outcome: Outcome) -> Iterator[dict[str, Any]]:
    """Trace events: nodes are processes, GPUs threads; times count from the first submission."""
    origin = workload.jobs[0].submit_time
    for position, node in enumerate(cluster.nodes):
        name = f"{node.name} {node.gpu_type}".strip()
        yield {"ph": "M", "pid": position, "name": "process_name", "args": {"name": name}}
    for one in outcome.segments:
        job = workload.jobs[one.job]
        for held, mask in one.allocation:
            for gpu in range(mask.bit_length()):
                if mask >> gpu & 1:
                    yield {
                        "ph": "X",
                        "pid": held,
                        # A job that joined another gets a track of its own beside it.
                        "tid": 2 * gpu + (one.kind == "packed"),
                        "ts": round((one.start - origin) * 1e6),
                        "dur": round((one.end - one.start) * 1e6),
                        "name": job.id,
                        "cat": one.kind,
                        "args": {"gpus": job.gpus, "work": one.work},
                    }
