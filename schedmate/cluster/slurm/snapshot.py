"""`scontrol show node --json`, `scontrol show job --json` and `topology.conf` as a snapshot of a
fleet.

Each job is a task on each of its nodes. Slurm moves a job by requeueing it, so jobs that may not be
requeued, jobs on several nodes and exclusive ones are locked. A job stays within its partition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from schedmate.base.errors import InputError
from schedmate.cluster.slurm.reading import Job, ShapeError, hosts_of, read_job, read_node
from schedmate.retrieval.sacct import gpus_of, parse_size, parse_tres
from schedmate.schedulers.fleet.snapshot import Builder, FleetSnapshot

_MIB = 2**20 / 1e6


def read_slurm(
    nodes: list[Any], jobs: list[Any], topology: str | None, source: str
) -> FleetSnapshot:
    """The snapshot; raises `InputError` for what Slurm does not write."""
    try:
        return _read_document(nodes, jobs, topology, source)
    except ShapeError as error:
        fault = str(error).rstrip(".")
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        fault = f"{type(error).__name__} {error}"
    raise InputError(
        f"{source} is not what Slurm exports: {fault}; write it with "
        "`scontrol show node --json` and `scontrol show job --json`."
    )


def _read_document(
    nodes: list[Any], jobs: list[Any], topology: str | None, source: str
) -> FleetSnapshot:
    builder = Builder(source)
    switch, aggregation = _switches(topology or "")
    gpus: dict[str, int] = {}
    usable: dict[str, set[str]] = {}
    for node in map(read_node, nodes):
        gpus[node.name] = node.gpus
        # a node that takes no jobs is in no partition that any job requires
        partitions = set(node.partitions) if node.healthy else set()
        usable[node.name] = partitions
        builder.node(
            {
                "name": node.name,
                "gpu_type": node.gpu_type,
                "gpus": node.gpus,
                "cpus": node.cpus,
                "memory_mb": node.memory_mib * _MIB,
                "switch": switch.get(node.name, ""),
                "aggregation": aggregation.get(node.name, ""),
                "labels": {f"partition/{one}": "yes" for one in sorted(partitions)},
            }
        )
    stays: Counter[str] = Counter()
    for job in map(read_job, jobs):
        if "RUNNING" not in job.states:
            continue
        rows = list(_tasks(job, gpus))
        why = _why_locked(job)
        for row in rows:
            name = row["node"]
            if name not in usable:
                raise InputError(
                    f"{source}: job {job.job} runs on node {name!r}, which the snapshot does "
                    "not have; export nodes and jobs at the same moment."
                )
            row |= {"class": "hp", "locked": bool(why), "job": job.job}
            if job.partition in usable[name]:
                row["require"] = {f"partition/{job.partition}": "yes"}
            elif not why:
                row["locked"], why = True, "run on nodes that take no jobs"
            builder.task(row)
        if why:
            stays[why] += 1
    notes = [f"jobs that stay because they {why}: {count:,}" for why, count in stays.items()]
    if topology is None:
        notes.append("no topology.conf was found, so nodes have no switch")
    return builder.build("recorded", notes, running=True)


def _why_locked(job: Job) -> str:
    """Why a job may not be moved; empty: it may."""
    if len(job.shares) > 1:
        return "run on several nodes"
    if not job.requeue:
        return "may not be requeued"
    if job.exclusive:
        return "have their node for themselves"
    return "ask for features of nodes" if job.features else ""


def _tasks(job: Job, gpus: dict[str, int]) -> Iterator[dict[str, Any]]:
    """A job's tasks, one for each of its nodes; what is known of all alone is divided equally."""
    count = len(job.shares)
    tres = parse_tres(job.tres)
    all_gpus, _ = gpus_of(tres)
    all_gpus = all_gpus or 0
    for share in job.shares:
        mine: float = all_gpus / count if share.gpus is None else share.gpus
        if mine != int(mine):
            mine = min(-(-all_gpus // count), gpus.get(share.node, 0))
        memory = tres.get("mem", "0")
        # without a unit it is in MiB
        memory_b = parse_size(f"{memory}M" if memory[-1:].isdigit() else memory) or 0.0
        yield {
            "id": f"{job.job}@{share.node}" if count > 1 else job.job,
            "node": share.node,
            "gpus": mine,
            "cpus": share.cpus or float(tres.get("cpu", 0)) / count,
            "memory_mb": share.memory_mib * _MIB if share.memory_mib else memory_b / count / 1e6,
        }


def _switches(topology: str) -> tuple[dict[str, str], dict[str, str]]:
    """The switch of each node, and the one above that, from `topology.conf`."""
    leaf: dict[str, str] = {}
    above: dict[str, str] = {}
    for line in topology.splitlines():
        fields = dict(re.findall(r"(?<!\w)(\w++)=(\S++)", line.partition("#")[0]))
        fields = {name.lower(): value for name, value in fields.items()}
        name = fields.get("switchname") or fields.get("blockname")
        if not name:
            continue
        for node in hosts_of(fields.get("nodes", "")):
            leaf[node] = name
        for child in hosts_of(fields.get("switches", "")):
            above[child] = name
    return leaf, {node: above[name] for node, name in leaf.items() if name in above}
