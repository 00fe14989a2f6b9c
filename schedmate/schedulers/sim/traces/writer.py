"""Write a workload in schedmate's own format, which reads back as the same workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from schedmate.errors import require
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
        "vc": [one or None for one in workload.vcs] or blank,
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
        columns[name] = [None if one is None else getattr(one, field) for one in profiles]
    columns["amp"] = [None if one is None else int(one.amp) for one in profiles]
    columns |= _training(workload)
    for name, values in workload.columns.items():
        columns.setdefault(name, list(values))
    return columns


def _agreed(workload: Workload) -> dict[str, list[Any]]:
    """Classes, tenants, checkpoints, gangs and Standby windows."""
    terms = [job.terms for job in workload.jobs]
    some = any(one is not None and one.low for one in terms)
    lends = [workload.standby.get(job.index) for job in workload.jobs]
    return {
        "class": [
            ("lp" if one is not None and one.low else "hp") if some else None for one in terms
        ],
        "tenant": [None if one is None else one.tenant or None for one in terms],
        "checkpoint_s": [None if one is None else one.checkpoint_s for one in terms],
        "saves": [1 if one is not None and one.saves else None for one in terms],
        "pods": [
            None if job.constraints is None else job.constraints.pods or None
            for job in workload.jobs
        ],
        "standby": [
            ";".join(f"{start:.15g}-{end:.15g}" for start, end in one) if one else None
            for one in lends
        ],
    }


def _training(workload: Workload) -> dict[str, list[Any]]:
    known: dict[int, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for one in workload.metadata:
        if one is None:
            rows.append({})
            continue
        if id(one) not in known:
            sections = one.sections()
            known[id(one)] = {
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
        rows.append(known[id(one)])
    names = list(dict.fromkeys(name for row in known.values() for name in row))
    return {name: [row.get(name) for row in rows] for name in names}
