"""`scontrol show node --json`, `scontrol show job --json` and `topology.conf` as a snapshot.

Each job is a task on each of its nodes. Slurm moves a job by requeueing it, so jobs that may not be
requeued, jobs on several nodes and exclusive ones are locked. A job stays within its partition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from schedmate.errors import InputError
from schedmate.hosts import expand_hostlist
from schedmate.schedulers.fleet.builder import Builder
from schedmate.schedulers.fleet.snapshot import FleetSnapshot

_GRES = re.compile(r"(?:^|,)gpu(?::([\w.+-]+?))?:(\d+)(?:\([^)]*\))?(?=,|$)")
_TRES = re.compile(r"(?:^|,)([\w/:.+-]+)=([\d.]+)([KMGTP]?)")
_MB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MIB = 2**20 / 1e6
_DOWN = {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "NOT_RESPONDING"}
MOST_HOSTS = 1_000_000


def read_snapshot(
    nodes: list[Any], jobs: list[Any], topology: str | None, source: str
) -> FleetSnapshot:
    """The snapshot; raises `InputError` for what Slurm does not write."""
    try:
        return _read_document(nodes, jobs, topology, source)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise InputError(
            f"{source} is not what Slurm exports: {type(error).__name__} {error}; write it with "
            "`scontrol show node --json` and `scontrol show job --json`."
        ) from None


def _read_document(
    nodes: list[Any], jobs: list[Any], topology: str | None, source: str
) -> FleetSnapshot:
    builder = Builder(source)
    switch, aggregation = _switches(topology or "")
    gpus: dict[str, int] = {}
    usable: dict[str, set[str]] = {}
    for node in nodes:
        name = node["name"]
        found = _GRES.findall(node.get("gres") or "")
        gpus[name] = sum(int(count) for _, count in found)
        # a node that takes no jobs is in no partition that any job requires
        partitions = set() if _states(node) & _DOWN else set(_listed(node.get("partitions")))
        usable[name] = partitions
        builder.node(
            {
                "name": name,
                "gpu_type": next((kind for kind, _ in found if kind), ""),
                "gpus": gpus[name],
                "cpus": _number(node.get("effective_cpus")) or _number(node["cpus"]),
                "memory_mb": _number(node["real_memory"]) * _MIB,
                "switch": switch.get(name, ""),
                "aggregation": aggregation.get(name, ""),
                "labels": {f"partition/{one}": "yes" for one in sorted(partitions)},
            }
        )
    stays: Counter[str] = Counter()
    for job in jobs:
        if "RUNNING" not in _upper(job["job_state"]):
            continue
        held = list(_tasks(job, gpus))
        why = ""
        if len(held) > 1:
            why = "run on several nodes"
        elif not job.get("requeue", True):
            why = "may not be requeued"
        elif {"EXCLUSIVE", "NODE", "NONE"} & _upper(
            job.get("exclusive") or job.get("shared") or ""
        ):
            why = "have their node for themselves"
        elif _listed(job.get("features")):
            why = "ask for features of nodes"
        for name, row in held:
            if name not in usable:
                raise InputError(
                    f"{source}: job {job['job_id']} runs on node {name!r}, which the snapshot does "
                    "not have; export nodes and jobs at the same moment."
                )
            partition = str(job.get("partition") or "")
            row |= {"class": "hp", "locked": bool(why), "job": str(job["job_id"])}
            if partition in usable[name]:
                row["require"] = {f"partition/{partition}": "yes"}
            elif not why:
                row["locked"], why = True, "run on nodes that take no jobs"
            builder.task(row)
        if why:
            stays[why] += 1
    notes = [f"jobs that stay because they {why}: {count:,}" for why, count in stays.items()]
    if topology is None:
        notes.append("no topology.conf was found, so nodes have no switch")
    return builder.build("recorded", notes)


def _tasks(job: Any, gpus: dict[str, int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A job's tasks, one for each of its nodes."""
    resources = job.get("job_resources") or {}
    listed = resources.get("nodes")
    details = resources.get("allocated_nodes") or (
        listed.get("allocation") if isinstance(listed, dict) else None
    )
    if isinstance(details, dict):
        details = list(details.values())
    by_name = {one.get("nodename") or one.get("name"): one for one in details or ()}
    names = list(by_name) or hosts(job.get("nodes") or "")
    tres = {
        name: float(amount) * (_MB[unit] if name == "mem" else 1.0)
        for name, amount, unit in _TRES.findall(job.get("tres_alloc_str") or "")
    }
    # `gres/gpu` counts all, `gres/gpu:type` some of them
    all_gpus = tres.get("gres/gpu") or sum(v for k, v in tres.items() if k.startswith("gres/gpu:"))
    detail = [
        sum(int(count) for _, count in _GRES.findall(one)) for one in job.get("gres_detail") or ()
    ]
    for position, name in enumerate(names):
        about = by_name.get(name) or {}
        cpus, memory = about.get("cpus"), about.get("memory")
        mine = detail[position] if len(detail) == len(names) else all_gpus / len(names)
        used = (cpus or {}).get("count") if isinstance(cpus, dict) else None
        given = (memory or {}).get("allocated") if isinstance(memory, dict) else None
        given = given or _number(about.get("memory_allocated"))
        yield (
            name,
            {
                "id": f"{job['job_id']}@{name}" if len(names) > 1 else str(job["job_id"]),
                "node": name,
                "gpus": mine
                if mine == int(mine)
                else min(-(-all_gpus // len(names)), gpus.get(name, 0)),
                "cpus": used or tres.get("cpu", 0.0) / len(names),
                "memory_mb": (given or tres.get("mem", 0.0) / len(names)) * _MIB,
            },
        )


def hosts(text: str) -> list[str]:
    """The hosts of a Slurm host list: `gpu[01-03,7],login`; raises `ValueError`."""
    found = list(islice(expand_hostlist(text, MOST_HOSTS), MOST_HOSTS + 1))
    if len(found) > MOST_HOSTS:
        raise ValueError(f"{text[:40]!r} names more than {MOST_HOSTS:,} hosts")
    return found


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
        for node in hosts(fields.get("nodes", "")):
            leaf[node] = name
        for child in hosts(fields.get("switches", "")):
            above[child] = name
    return leaf, {node: above[name] for node, name in leaf.items() if name in above}


def _states(node: Any) -> set[str]:
    return _upper(node.get("state")) | _upper(node.get("state_flags"))


def _upper(value: Any) -> set[str]:
    return {one.upper() for one in _listed(value)}


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return [one for one in re.split(r"[,+]", value) if one]
    return [str(one) for one in value or ()]


def _number(value: Any) -> float:
    """A number, also as `{"set": true, "number": n}`; 0 if there is none."""
    if isinstance(value, dict):
        return float(value.get("number") or 0) if value.get("set", True) else 0.0
    return float(value or 0)
