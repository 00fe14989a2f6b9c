"""Finds where a job of this machine's cluster writes, by the scheduler's id."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from schedmate.base.errors import InputError
from schedmate.cluster import kind_here
from schedmate.cluster.adapter import Description, description_of
from schedmate.cluster.bounds import load_bounds
from schedmate.jobs import JobSpec


class JobLogs(NamedTuple):
    """Where a job writes, and the nodes that it is or was on."""

    paths: list[Path]
    nodes: tuple[str, ...]


def logs_of_job(job: str, now: float) -> JobLogs:
    """The logs of a job of the cluster that this machine belongs to, by the scheduler's id.

    Those of its present run, else of its last one that has ended. Raises `InputError` if the
    cluster knows no such job, or not where it writes.
    """
    kind = kind_here()
    if kind is None:
        raise InputError(
            f"{job}: there is no such file, and this machine belongs to no cluster whose job it "
            "could be; name the log."
        )
    adapter = kind.adapter(load_bounds(None))
    description = Description(JobSpec(), "")
    run: Any = next(
        (one for one in adapter.jobs() if (one.id, one.state) == (job, "RUNNING")), None
    )
    if run is not None:
        description = adapter.describe([job]).get(job, description)
    elif ended := kind.runs_of(adapter, job, now):
        run = ended[-1]
        description = description_of(adapter, run)
    else:
        raise InputError(kind.no_run.format(job=job))
    spec = description.spec.model_copy(update={"job_id": job, "node_names": list(run.nodes)})
    patterns = dict.fromkeys(one for one in (description.log, description.errors) if one)
    found = [adapter.log_path(run, pattern, spec) for pattern in patterns]
    paths = [path for path in dict.fromkeys(found) if path is not None]
    if not paths:
        raise InputError(f"{kind.title} does not say where job {job} writes; name its log.")
    return JobLogs(paths, tuple(run.nodes))
