"""Writes a workload in schedmate's own format, cuts parts out of it, and tells its figures.

What is written reads back as the same workload.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import UsageError, require
from schedmate.schedulers.sim.tables import write_csv, write_parquet
from schedmate.schedulers.sim.workload import Workload

_ALWAYS = ("job_id", "submit_s", "duration_s", "gpus")


def write_trace(workload: Workload, path: Path | None) -> None:
    """Write `workload` to `path`, as CSV or Parquet by its suffix; None: CSV to standard output.

    Columns without any value are left out. What is synthetic is stated in every row, so that no
    tool that processes the file loses it: an empty text in all of them means nothing is. Of the
    metadata, keys with a column are written. Raises `UsageError` if Parquet cannot be written,
    `InputError` if the place cannot be written to.
    """
    table = {
        name: np.array(values, dtype=object)
        for name, values in _columns(workload).items()
        if name in _ALWAYS or any(value is not None for value in values)
    }
    if path is None or path.suffix != ".parquet":
        write_csv(path, table)
    else:
        write_parquet(path, table)


def require_writer(path: Path | None) -> None:
    """Raise `MissingExtraError` when what writes to this path is not installed."""
    if path is not None and path.suffix == ".parquet":
        require(str(path), "parquet", "pyarrow")


def _columns(workload: Workload) -> dict[str, list[Any]]:
    jobs = workload.jobs
    count = len(jobs)
    blank: list[Any] = [None] * count
    columns: dict[str, list[Any]] = {
        "job_id": [job.id for job in jobs],
        "submit_s": [job.submit_time for job in jobs],
        "duration_s": list(workload.duration_s),
        "gpus": [job.gpus for job in jobs],
        "share": [job.share if job.share < 1 else None for job in jobs],
        "vc": [profile or None for profile in workload.vcs] or blank,
        "user": [job.user or None for job in jobs],
        "name": [job.name or None for job in jobs],
        "state": list(workload.states) or blank,
        "gpu_type": [job.gpu_type or None for job in jobs],
        "cpus": [job.cpus or None for job in jobs],
        "memory_mb": [job.memory_mb or None for job in jobs],
        "time_limit_s": [job.time_limit_s or None for job in jobs],
        "priority": [job.priority or None for job in jobs],
        **_agreed(workload),
        "synthetic": ["; ".join(workload.made_up)] * count,
    }
    if workload.origin == "unstated":
        columns["synthetic"] = blank
    profiles = workload.profiles
    for name, field in (
        ("gpu_util_pct", "gpu_util"),
        ("gmem_util_pct", "memory_util"),
        ("gmem_mb", "memory_mb"),
    ):
        columns[name] = [
            None if profile is None else getattr(profile, field) for profile in profiles
        ]
    columns["amp"] = [None if profile is None else int(profile.amp) for profile in profiles]
    columns |= _training(workload)
    for name, values in workload.columns.items():
        columns.setdefault(name, list(values))
    return columns


def _agreed(workload: Workload) -> dict[str, list[Any]]:
    """Classes, tenants, checkpoints, gangs, Standby windows and phases."""
    terms = [job.terms for job in workload.jobs]
    some = any(job_terms is not None and job_terms.low for job_terms in terms)
    lends = [workload.standby.get(job.index) for job in workload.jobs]
    return {
        "class": [
            ("lp" if job_terms is not None and job_terms.low else "hp") if some else None
            for job_terms in terms
        ],
        "tenant": [None if job_terms is None else job_terms.tenant or None for job_terms in terms],
        "checkpoint_s": [
            None if job_terms is None else job_terms.checkpoint_s for job_terms in terms
        ],
        "saves": [1 if job_terms is not None and job_terms.saves else None for job_terms in terms],
        "pods": [
            None if job.constraints is None else job.constraints.pods or None
            for job in workload.jobs
        ],
        "standby": [
            ";".join(f"{start:.15g}-{end:.15g}" for start, end in job_terms) if job_terms else None
            for job_terms in lends
        ],
        "phases": [
            ";".join(f"{one.work_s:.15g}x{one.gpus}" for one in workload.phases.get(job.index, ()))
            or None
            for job in workload.jobs
        ],
    }


def _training(workload: Workload) -> dict[str, list[Any]]:
    rows_of: dict[int, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for metadata in workload.metadata:
        if metadata is None:
            rows.append({})
            continue
        if id(metadata) not in rows_of:
            sections = metadata.sections()
            rows_of[id(metadata)] = {
                "model": sections["model_config"]["model_name"],
                "task": sections["model_config"]["task_type"],
                "dataset": sections["dataset_config"]["train"],
                "validation": sections["dataset_config"]["valid"],
                "batchsize": sections["training_config"].get("batch_size"),
                "iterations": sections["training_config"]["iters"],
                "iter_type": sections["training_config"]["iter_type"],
                "optimizer": sections["training_config"].get("optimizer"),
                "lr": sections["training_config"].get("lr"),
            }
        rows.append(rows_of[id(metadata)])
    names = list(dict.fromkeys(name for row in rows_of.values() for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


# Parts of a trace, and what a trace holds in figures.


def cut_window(workload: Workload, start_s: float, end_s: float) -> Workload:
    """The jobs submitted in [start, end), times since the first submission [s]."""
    first = workload.jobs[0].submit_time
    return _subset_of(
        workload,
        [
            position
            for position, job in enumerate(workload.jobs)
            if start_s <= job.submit_time - first < end_s
        ],
        "no job was submitted in that window",
    )


def draw_share(workload: Workload, names: Sequence[str], share: float, seed: int) -> Workload:
    """All jobs of a share of the names (users, virtual clusters), which are drawn at random.

    `names` has one for each job. What the chosen ones do stays as it was, resubmissions included.
    """
    if not 0 < share <= 1:
        raise UsageError(f"{share:g} must be a share above 0 and up to 1, such as 0.5.")
    there = sorted(set(names))
    if there == [""]:
        raise UsageError(
            "the trace has no users or virtual clusters; draw a number of jobs with --jobs instead."
        )
    wanted = max(1, round(share * len(there)))
    chosen = set(np.random.default_rng(seed).permutation(there)[:wanted].tolist())
    positions = [position for position, name in enumerate(names) if name in chosen]
    return _subset_of(workload, positions, "no job is left")


def draw_jobs(workload: Workload, count: int, seed: int) -> Workload:
    """`count` jobs drawn at random: arrivals keep their shape and get rarer by the same factor."""
    if not 0 < count <= len(workload):
        raise UsageError(
            f"{count:,} of {len(workload):,} jobs cannot be drawn; give a number from 1 to "
            f"{len(workload)}."
        )
    chosen = np.random.default_rng(seed).choice(len(workload), count, replace=False)
    return workload.select(chosen.tolist())


def cut_to_gpus(workload: Workload, gpus: float) -> Workload:
    """The jobs that request at most this many GPUs."""
    positions = [at for at, job in enumerate(workload.jobs) if job.gpus * job.share <= gpus]
    return _subset_of(workload, positions, f"no job asks for {gpus:g} GPUs or fewer")


def trace_facts(workload: Workload) -> dict[str, float]:
    """Statistics of a trace.

    Durations and span in seconds; `load` is how many GPUs its jobs keep busy on average between the
    first and the last submission. Where jobs have users and names, `recurrence` is the share of
    jobs with an earlier one of the same user, name and GPUs, and `spread` the standard deviation of
    the logarithm of run times among those.
    """
    jobs, durations = workload.jobs, workload.duration_s
    span = jobs[-1].submit_time - jobs[0].submit_time
    gpus = [job.gpus * job.share for job in jobs]
    gpu_s = sum(duration * gpus_held for duration, gpus_held in zip(durations, gpus, strict=True))
    facts: dict[str, float] = {
        "jobs": len(jobs),
        "span_s": span,
        "median_s": statistics.median(durations),
        "mean_s": statistics.fmean(durations),
        "max_s": max(durations),
        "mean_gpus": statistics.fmean(gpus),
        "max_gpus": max(gpus),
        "gpu_h": gpu_s / 3600,
        "load_gpus": gpu_s / span if span else float("inf"),
        "vcs": len(set(workload.vcs) - {""}),
        "users": len({job.user for job in jobs} - {""}),
    }
    if any(job.user for job in jobs) and any(job.name for job in jobs):
        table: dict[tuple[str, str, int], int] = {}
        groups = np.array(
            [table.setdefault((job.user, job.name, job.gpus), len(table)) for job in jobs]
        )
        logs = np.log(np.maximum(durations, 1.0))
        none = np.zeros(len(jobs), dtype=bool)
        facts["recurrence"], facts["spread"] = recurrence_of(groups, logs, none)
    return facts


def recurrence_of(
    groups: NDArray[np.int64], logs: NDArray[np.float64], early: NDArray[np.bool_]
) -> tuple[float, float]:
    """How often workloads recur and how far their run times spread.

    Returns the share of jobs that are not the first of their workload, and the standard deviation
    of the logarithms of run times [log s] within workloads, without jobs that ended early.
    """
    recurrence = 1 - len(np.unique(groups)) / len(groups)
    later, logs = groups[~early], logs[~early]
    if not len(later):
        return recurrence, 0.0
    sizes = np.bincount(later)
    means = np.bincount(later, logs) / np.maximum(sizes, 1)
    freedom = int(len(later) - (sizes > 0).sum())
    squares = float(((logs - means[later]) ** 2).sum())
    return recurrence, math.sqrt(squares / freedom) if freedom else 0.0


def _subset_of(workload: Workload, positions: list[int], otherwise: str) -> Workload:
    if not positions:
        raise UsageError(
            f"{otherwise}; the trace has {len(workload):,} jobs, so ask for less to be cut off."
        )
    return workload.select(positions)
