"""The public trace openb (alibaba/clusterdata, cluster-trace-gpu-v2023) as snapshots.

Its nodes and pods are recorded; the node of a pod is not, so pods are placed here, and every
snapshot says so. At any moment of its 149 days few pods run at once. A full cluster is built as by
the authors of fragmentation gradient descent (ATC'23): pods are drawn until they request a given
share of all GPUs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from schedmate.base.errors import InputError
from schedmate.base.reading import MOST_RECORDS, bounded_rows, open_text
from schedmate.schedulers.fleet.room import NOWHERE, Part, Room
from schedmate.schedulers.fleet.snapshot import MILLI, NONE, Builder, FleetSnapshot
from schedmate.schedulers.fragmentation import EPSILON, FragmentationSpace
from schedmate.schedulers.model import Allocation, Cluster, Job, Node
from schedmate.schedulers.space import Space

NODES = ("openb_node_list_gpu_node.csv", "openb_node_list_all_node.csv")
PODS = "openb_pod_list_default.csv"
CLASSES = {"LS": "hp", "Guaranteed": "hp", "Burstable": "hp", "BE": "lp"}
"""Service classes of its column `qos`: best effort pods may be evicted."""


@dataclass(frozen=True)
class Pod:
    """A row of its list of pods."""

    name: str
    gpus: int
    """[milli-GPUs]"""
    cpus: int
    """[milli-cores]"""
    memory: int
    """[MB]"""
    types: tuple[str, ...]
    """GPU types it may run on; empty: all."""
    qos: str
    created_s: float
    scheduled_s: float | None
    deleted_s: float


def is_openb(folder: Path) -> bool:
    """Whether a folder holds the trace."""
    return folder.is_dir() and (folder / PODS).exists()


def read_openb(
    folder: Path,
    *,
    at_s: float | None = None,
    filled: float = 1.0,
    placement: str = "best-fit",
    seed: int = 0,
) -> FleetSnapshot:
    """The cluster at a moment [s], or with pods drawn until they request `filled` of its GPUs.

    `placement`: `best-fit` or `random`. Raises `InputError` for files that are not of the trace.
    """
    nodes, pods = read_nodes(folder), read_pods(folder)
    draw = np.random.default_rng(seed)
    if at_s is not None:
        there = [
            pod
            for pod in pods
            if pod.scheduled_s is not None and pod.scheduled_s <= at_s < pod.deleted_s
        ]
        there.sort(key=lambda pod: (pod.scheduled_s, pod.name))
        what = "which pod is on which node"
    else:
        there = _drawn(pods, filled * sum(row["gpus"] for row in nodes) * MILLI, draw)
        what = f"pods drawn from all until they ask for {filled:.0%} of the GPUs, and placed"
    room = _placed(nodes, there, placement, draw)
    builder = Builder(folder.name)
    for row in nodes:
        builder.node(row)
    unplaced = 0
    for t, pod in enumerate(there):
        if room.at[t] == NOWHERE:
            unplaced += 1
            continue
        row = {
            "id": f"{pod.name}-{t}" if at_s is None else pod.name,
            "job": pod.name,
            "node": nodes[room.at[t]]["name"],
            "gpus": pod.gpus / MILLI,
            "cpus": pod.cpus / MILLI,
            "memory_mb": pod.memory,
            "class": CLASSES.get(pod.qos, "hp"),
            "any_gpu_type": not pod.types,
        }
        if 0 < pod.gpus < MILLI:
            row["device"] = room.device[t]
        builder.task(row)
    notes = [f"{unplaced:,} of {len(there):,} pods found no room"] if unplaced else []
    return builder.build(f"synthetic: {what} ({placement}, seed {seed})", notes)


def read_nodes(folder: Path) -> list[dict[str, Any]]:
    """Its nodes as rows of a snapshot: from the list of nodes with GPUs, if there is one."""
    path = next((folder / name for name in NODES if (folder / name).exists()), folder / NODES[0])
    return [
        {
            "name": row["sn"],
            "gpu_type": row["model"],
            "gpus": int(row["gpu"]),
            "cpus": int(row["cpu_milli"]) / MILLI,
            "memory_mb": int(row["memory_mib"]) * 2**20 / 1e6,
        }
        for row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
    ]


def read_pods(folder: Path) -> list[Pod]:
    """The pods of the trace, in the order of its file."""
    needed = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
    times = ("creation_time", "deletion_time", "scheduled_time")
    pods = []
    for row in _rows(folder / PODS, (*needed, *times)):
        count, milli = int(row["num_gpu"]), int(row["gpu_milli"])
        pods.append(
            Pod(
                row["name"],
                count * (milli if count == 1 else MILLI),
                int(row["cpu_milli"]),
                round(int(row["memory_mib"]) * 2**20 / 1e6),
                tuple(row["gpu_spec"].split("|")) if row["gpu_spec"] else (),
                row["qos"],
                float(row["creation_time"]),
                float(row["scheduled_time"]) if row["scheduled_time"] else None,
                float(row["deletion_time"]),
            )
        )
    return pods


def _rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with open_text(path, newline="") as stream:
            reader = csv.DictReader(stream)
            if not set(columns) <= set(reader.fieldnames or ()):
                raise InputError(
                    f"{path} lacks columns of openb ({', '.join(columns)}); give the folder with "
                    "its lists of nodes and pods."
                )
            return list(bounded_rows(reader, path, MOST_RECORDS))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}: {error}; check its name and rights.") from None


def _drawn(pods: list[Pod], gpus: float, draw: np.random.Generator) -> list[Pod]:
    """Pods in random order, repeated at random, until they request this number of GPUs."""
    order = [pods[n] for n in draw.permutation(len(pods)).tolist()]
    drawn: list[Pod] = []
    asked = 0
    while asked < gpus:
        pod = order[len(drawn)] if len(drawn) < len(order) else pods[int(draw.integers(len(pods)))]
        drawn.append(pod)
        asked += pod.gpus
    return drawn


def _placed(
    nodes: list[dict[str, Any]], pods: list[Pod], placement: str, draw: np.random.Generator
) -> Room:
    types = sorted({row["gpu_type"] for row in nodes})
    kind = {name: code for code, name in enumerate(types)}
    reaches = sorted({pod.types for pod in pods})
    room = Room(
        Part(
            gpus=[row["gpus"] for row in nodes],
            cpus=[round(row["cpus"] * MILLI) for row in nodes],
            memory=[round(row["memory_mb"] * 1000) for row in nodes],
            kind=[kind[row["gpu_type"]] for row in nodes],
            need=[pod.gpus for pod in pods],
            need_cpus=[pod.cpus for pod in pods],
            need_memory=[pod.memory * 1000 for pod in pods],
            reach=[reaches.index(pod.types) for pod in pods],
            reaches=[tuple(kind[t] for t in types if not one or t in one) for one in reaches],
            group=[NONE] * len(pods),
            avoid=[()] * len(pods),
            movable=[True] * len(pods),
            node=[NOWHERE] * len(pods),
            device=[NONE] * len(pods),
            cost=[0.0] * len(pods),
        ),
        empty=True,
    )
    for t in range(len(pods)):
        if placement == "best-fit":
            n = room.best(t)
        else:
            fitting = [n for n in room.candidates(t) if room.fits(t, n)]
            n = fitting[int(draw.integers(len(fitting)))] if fitting else NOWHERE
        if n != NOWHERE:
            room.put(t, n)
    return room


# A cluster that fills up, as the authors of FGD (ATC'23) measured it.


MARKS = (0.90, 0.95, 1.00, 1.30)
"""Shares of all GPUs that have been asked for when the unallocated ones are counted."""


class Filled(NamedTuple):
    """The cluster when a share of its GPUs has been asked for."""

    mark: float
    unallocated: float
    """[% of all GPUs]"""
    held: Sequence[tuple[Job, Allocation]]
    refused: Sequence[Job]


def cluster_and_pods(folder: Path) -> tuple[Cluster, list[Job]]:
    """Its nodes as a cluster, and its pods as jobs, those without GPUs included.

    Raises `InputError` for files that are not of the trace.
    """
    pods = [
        Job(
            pod.name,
            n,
            0.0,
            -(-pod.gpus // MILLI),
            share=min(pod.gpus, MILLI) / MILLI or 1.0,
            cpus=pod.cpus / MILLI,
            memory_mb=pod.memory,
            gpu_type="|".join(pod.types),
        )
        for n, pod in enumerate(read_pods(folder))
    ]
    nodes = (
        Node(one["name"], one["gpus"], one["gpu_type"], one["cpus"], one["memory_mb"])
        for one in read_nodes(folder)
    )
    return Cluster(tuple(nodes)), pods


def arrivals(pods: Sequence[Job], cluster: Cluster, seed: int) -> list[Job]:
    """All pods in random order, then drawn ones, until they ask for the last of `MARKS`."""
    draw = np.random.default_rng(seed)
    found = [pods[n] for n in draw.permutation(len(pods)).tolist()]
    asked = sum(job.gpus * job.share for job in found)
    while asked < MARKS[-1] * cluster.gpus:
        found.append(pods[int(draw.integers(len(pods)))])
        asked += found[-1].gpus * found[-1].share
    return found


def fill(cluster: Cluster, jobs: Sequence[Job], space: Space) -> Iterator[Filled]:
    """What is allocated at each of `MARKS`, as jobs arrive one by one and stay."""
    arrived = allocated = 0.0
    held: list[tuple[Job, Allocation]] = []
    refused: list[Job] = []
    marks = list(MARKS)
    for job in jobs:
        arrived += job.gpus * job.share
        if (allocation := space.place(job)) is not None:
            allocated += job.gpus * job.share
            held.append((job, allocation))
        else:
            refused.append(job)
        while marks and arrived >= marks[0] * cluster.gpus - EPSILON:
            yield Filled(marks.pop(0), 100 * (1 - allocated / cluster.gpus), held, refused)
    for mark in marks:
        yield Filled(mark, 100 * (1 - allocated / cluster.gpus), held, refused)


def unallocated(folder: Path, rule: str, seeds: Sequence[int]) -> dict[str, float]:
    """Mean share of GPUs left unallocated at each mark [%], by `fgd` or `fgd-priced`."""
    cluster, pods = cluster_and_pods(folder)
    found = []
    for seed in seeds:
        jobs = arrivals(pods, cluster, seed)
        space = FragmentationSpace(cluster, jobs, priced=rule == "fgd-priced")
        found.append([one.unallocated for one in fill(cluster, jobs, space)])
    means = np.mean(found, axis=0).tolist()
    return {
        f"unallocated_{mark:.0%}".rstrip("%"): mean for mark, mean in zip(MARKS, means, strict=True)
    }
