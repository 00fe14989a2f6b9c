"""Workloads of elastic jobs: name, time, application, num_replicas, batch_size[, category].

The tables of the applications are in a folder `traces` beside or above the workload, with one
folder for each application, as in the artifact of Sia (SOSP'23).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from schedmate.errors import InputError
from schedmate.jobs import WorkloadMetadata
from schedmate.plain import LONGEST_S, encodable
from schedmate.schedulers.goodput.agent import MOST_REPLICAS
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.sim.elastic.physics import TablePhysics
from schedmate.schedulers.sim.elastic.tables import Application, Tables
from schedmate.schedulers.sim.elastic.tables import applications as applications_known
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload

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


def read_workload(
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
    facts = applications_known().get(row.application, {}).get("metadata")
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
