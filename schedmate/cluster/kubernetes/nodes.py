"""Nodes: whether they accept pods, their pool, their conditions, our taint.

A node's list of taints is one value to the API server: writing it writes the taints of others too.
So ours is added and removed by JSON patches that hold only for the version of the node that was
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedmate.base.terminal import clean
from schedmate.cluster.actions import REASON_PREFIX
from schedmate.cluster.adapter import LiveNode
from schedmate.cluster.kubernetes.api import (
    device_count,
    list_at,
    mapping_at,
    object_at,
    text_at,
    value_at,
)
from schedmate.cluster.kubernetes.connection import Json
from schedmate.cluster.kubernetes.workloads import DROPPED, TAINT, is_gpu

TAINT_EFFECT = "NoSchedule"
POOL_LABELS = (
    "schedmate.io/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)
"""Labels that say which pool a node is in, the first that is there: it is what guards count in."""
STANDARD_CONDITIONS = frozenset(
    {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}
)
"""Conditions that each kubelet reports: Kubernetes itself keeps pods off by these."""
OUT_OF_SERVICE_TAINTS = frozenset(
    {
        TAINT,
        *(f"node.kubernetes.io/{what}" for what in ("not-ready", "unreachable", "unschedulable")),
        *(f"node.kubernetes.io/{what}-pressure" for what in ("memory", "disk", "pid")),
        *(f"node.kubernetes.io/{what}" for what in ("network-unavailable", "out-of-service")),
        *(f"node.cloudprovider.kubernetes.io/{what}" for what in ("uninitialized", "shutdown")),
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
    }
)
"""Keys of taints of a node that is out of service, whatever a pod tolerates; other taints reserve
nodes for the pods that tolerate them."""


def slim_node(node: Json) -> Json:
    """The fields of a node that are read here: not its images, which are most of it."""
    about, status = object_at(node, "metadata"), object_at(node, "status")
    return {
        "metadata": {key: one for key, one in about.items() if key not in DROPPED},
        "spec": object_at(node, "spec"),
        "status": {
            key: status[key] for key in ("conditions", "allocatable", "capacity") if key in status
        },
    }


def our_mark(node: Json) -> str:
    """The mark of our taint on a node; empty without one."""
    for taint in list_at(node, "spec.taints"):
        if taint.get("key") == TAINT and taint.get("effect") == TAINT_EFFECT:
            return text_at(taint, "value")
    return ""


def is_ready(node: Json) -> bool:
    """Whether its kubelet reports it as ready."""
    ready = [
        condition
        for condition in list_at(node, "status.conditions")
        if condition.get("type") == "Ready"
    ]
    return not ready or ready[0].get("status") == "True"


def why_closed(node: Json) -> str:
    """Why a node is out of service: it should get no more pods, whatever they tolerate.

    It is isolated by us, cordoned, not ready, or tainted as one that is or is about to be gone.
    Empty: it is in service, if only for pods that tolerate its other taints.
    """
    mark = our_mark(node)
    if mark:
        return f"{REASON_PREFIX} {mark}"
    if value_at(node, "spec.unschedulable") is True:
        return "cordoned"
    if not is_ready(node):
        return "not ready"
    for taint in list_at(node, "spec.taints"):
        if text_at(taint, "key") in OUT_OF_SERVICE_TAINTS and (
            taint.get("effect") != "PreferNoSchedule"
        ):
            return f"tainted {text_at(taint, 'key')}"
    return ""


def node_gpus(node: Json) -> int:
    """Whole GPUs that pods may have on a node: allocatable ones, else all that it has."""
    there = value_at(node, "status.allocatable") or value_at(node, "status.capacity")
    counts = there.items() if isinstance(there, dict) else ()
    return sum(device_count(amount) for name, amount in counts if is_gpu(name))


def pool_of(node: Json) -> str:
    """The pool of a node, `nodes` without a label for it."""
    labels = mapping_at(node, "metadata.labels")
    return next((labels[name] for name in POOL_LABELS if labels.get(name)), "nodes")


def live_node(node: Json, busy: bool, gpus_used: int) -> LiveNode:
    """A node as the reconcile loop sees it."""
    reason = why_closed(node)
    return LiveNode(
        name=text_at(node, "metadata.name"),
        healthy=not reason,
        drained=bool(our_mark(node)) or value_at(node, "spec.unschedulable") is True,
        busy=busy,
        reason=reason,
        queues=(pool_of(node),),
        gpus=node_gpus(node),
        gpus_used=gpus_used,
    )


def isolation_patch(node: Json, mark: str) -> list[dict[str, Any]]:
    """The JSON patch that adds our taint to a node as it was read."""
    taint = {"key": TAINT, "value": mark, "effect": TAINT_EFFECT}
    if isinstance(value_at(node, "spec.taints"), list):
        change: Json = {"op": "add", "path": "/spec/taints/-", "value": taint}
    elif isinstance(node.get("spec"), dict):
        change = {"op": "add", "path": "/spec/taints", "value": [taint]}
    else:
        change = {"op": "add", "path": "/spec", "value": {"taints": [taint]}}
    return [_unchanged(node), change]


def return_patch(node: Json, mark: str) -> list[dict[str, Any]]:
    """The JSON patch that takes our taint with this mark away, and no other."""
    taints = value_at(node, "spec.taints")
    for number, taint in enumerate(taints if isinstance(taints, list) else ()):
        if isinstance(taint, dict) and taint.get("key") == TAINT and taint.get("value") == mark:
            place = f"/spec/taints/{number}"
            test = {"op": "test", "path": f"{place}/value", "value": mark}
            return [_unchanged(node), test, {"op": "remove", "path": place}]
    return []


def _unchanged(node: Json) -> dict[str, Any]:
    version = text_at(node, "metadata.resourceVersion")
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}


def node_faults(nodes: Sequence[Json]) -> dict[str, list[str]]:
    """Faults that nodes report, by node, as lines of a kernel log.

    Conditions beyond the standard ones are set by whatever watches the node (such as
    node-problem-detector) with the right to write a node's status, which no job has. What the lines
    mean is for the rules of the Failure Handler.
    """
    faults: dict[str, list[str]] = {}
    for node in nodes:
        name = text_at(node, "metadata.name")
        for condition in list_at(node, "status.conditions"):
            if condition.get("type") in STANDARD_CONDITIONS or condition.get("status") != "True":
                continue
            when = text_at(condition, "lastTransitionTime") or "1970-01-01T00:00:00Z"
            message = clean(text_at(condition, "message") or text_at(condition, "reason"), 500)
            faults.setdefault(name, []).append(f"{when} {name} kernel: {message}")
    return faults
