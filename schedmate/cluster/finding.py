"""Finds a job of this machine's cluster by the scheduler's id: where it writes, what it used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from schedmate.base.errors import InputError
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import counted
from schedmate.cluster import ClusterKind, kind_here
from schedmate.cluster.adapter import ClusterAdapter, Description, Usage, description_of
from schedmate.cluster.bounds import load_bounds
from schedmate.cluster.usage import Stretch, completed
from schedmate.jobs import JobSpec
from schedmate.settings import load_settings

UNLIMITED_S = 365 * 86_400.0
"""A time limit that is none: Slurm states unlimited ones as a year [s]."""


class FoundJob(NamedTuple):
    """A job of the cluster."""

    title: str
    """What people call the kind of cluster."""
    spec: JobSpec
    """As its owner described it, with the nodes that it is or was on."""
    paths: list[Path]
    """Where it writes; empty for a job that waits, and where the cluster does not say."""
    efficiency: str
    """What it used of what it asked for, in words; empty: that is not known."""


def job_here(job: str, now: float, *, has_run: bool = False) -> FoundJob:
    """A job of the cluster that this machine belongs to, by the scheduler's id.

    Its present run, else its last one that has ended; one that `has_run` before and waits to run
    again is that last run. Raises `InputError` if the cluster knows no such job.
    """
    kind = kind_here()
    if kind is None:
        raise InputError(
            f"{job}: there is no such file, and this machine belongs to no cluster whose job it "
            "could be; name the log."
        )
    bounds = kind.limited(load_bounds(None), **kind.where_of(job))
    with kind.visited(bounds) as adapter:
        return _found(kind, adapter, job, now, has_run)


def _found(
    kind: ClusterKind[Any], adapter: ClusterAdapter, job: str, now: float, has_run: bool
) -> FoundJob:
    description = Description(JobSpec(), "")
    run: Any = next((one for one in adapter.jobs() if one.id == job), None)
    waits = run is not None and run.state == "PENDING"
    ended = kind.runs_of(adapter, job, now) if run is None or (waits and has_run) else []
    live = run is not None and not ended
    if live:
        description = adapter.describe([job]).get(job, description)
    elif ended:
        run = ended[-1]
        description = description_of(adapter, run)
    else:
        raise InputError(kind.no_run.format(job=job))
    spec = description.spec.model_copy(update={"job_id": job, "node_names": list(run.nodes)})
    if live and run.state == "PENDING":
        return FoundJob(kind.title, spec, [], "")
    patterns = [description.log, *([description.errors] if description.errors else [])]
    found = [adapter.log_path(run, pattern, spec) for pattern in patterns]
    paths = [path for path in dict.fromkeys(found) if path is not None]
    took = now - (run.started or now) if live else run.record.duration_s
    limit = spec.launch.time_limit_s or (None if live else run.record.launch.time_limit_s)
    until = now if live else run.record.end_time or now
    number, server = job if live else run.raw, load_settings().prometheus
    labels = adapter.measured_as([number]).get(number, {}) if server else {}
    used, _ = completed(
        kind.usage(adapter, [job], running=live),
        *(server, kind.name, {job: labels}),
        {} if took is None else {job: Stretch(until - took, until)},
    )
    return FoundJob(kind.title, spec, paths, efficiency_of(used.get(job, Usage()), took, limit))


def logs_of_job(job: str, now: float) -> FoundJob:
    """As `job_here`; raises `InputError` also where the cluster does not say where it writes."""
    found = job_here(job, now, has_run=True)
    if not found.paths:
        raise InputError(
            f"{found.title} does not say where job {job} writes, or it has not begun; name its log."
        )
    return found


def efficiency_of(used: Usage, took_s: float | None, limit_s: float | None) -> str:
    """What a job used of what it asked for, in words; empty where nothing is known."""
    parts = []
    if used.cpu is not None and used.cpus is not None:
        parts.append(f"{used.cpu:.0%} of {counted(used.cpus, 'CPU')}")
    if used.gpu is not None:
        parts.append(f"{used.gpu:.0%} of its GPUs")
    if used.gpu_memory_bytes is not None:
        parts.append(f"{used.gpu_memory_bytes / 2**30:.1f} GiB memory of a GPU")
    if used.memory is not None and used.memory_bytes is not None:
        size, asked = used.memory_bytes / 2**30, (used.memory_asked_bytes or 0.0) / 2**30
        parts.append(f"{size:.1f} of {asked:.1f} GiB memory ({used.memory:.0%})")
    if took_s is not None and limit_s and limit_s < UNLIMITED_S:
        took, limit = format_duration(took_s), format_duration(limit_s)
        parts.append(f"{took} of {limit} ({took_s / limit_s:.0%})")
    return ", ".join(parts)
