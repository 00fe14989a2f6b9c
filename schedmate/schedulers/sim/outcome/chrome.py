"""A run as a Chrome trace, which Perfetto (https://ui.perfetto.dev) opens: one track a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.outcome.results import Result


def events(result: Result, cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Trace events: nodes are processes, GPUs threads; times count from the first submission."""
    for position, node in enumerate(cluster.nodes):
        name = f"{node.name} {node.gpu_type}".strip()
        yield {"ph": "M", "pid": position, "name": "process_name", "args": {"name": name}}
    origin = float(result.jobs["submit_s"][0])
    ids, asked = result.jobs["job_id"].tolist(), result.jobs["gpus"].tolist()
    columns = (values.tolist() for values in result.segments.values())
    for job, kind, start, end, node, first, count, failed, _ in zip(*columns, strict=True):
        for gpu in range(first, first + max(1, int(count))):
            yield {
                "ph": "X",
                "pid": node,
                # A job that shares another's GPUs gets a separate track.
                "tid": 2 * gpu + (kind == "packed"),
                "ts": round((start - origin) * 1e6),
                "dur": round((end - start) * 1e6),
                "name": ids[job],
                "cat": kind,
                "args": {"gpus": asked[job], "failed": bool(failed)},
            }
