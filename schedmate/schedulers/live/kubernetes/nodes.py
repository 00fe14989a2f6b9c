"""Nodes: whether they accept pods, their pool, their conditions, our taint.

A node's list of taints is one value to the API server: writing it writes the taints of others too.
So ours is added and removed by JSON patches that hold only for the version of the node that was
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedmate.schedulers.live.actions import REASON_PREFIX
from schedmate.schedulers.live.adapter import LiveNode
from schedmate.schedulers.live.kubernetes.api import Json
from schedmate.schedulers.live.kubernetes.fields import at, count_of, list_at, mapping_at, text_at
from schedmate.schedulers.live.kubernetes.kinds import TAINT
from schedmate.terminal import clean

EFFECT = "NoSchedule"
POOLS = (
    "schedmate.io/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)
"""Labels that say which pool a node is in, the first that is there: it is what guards count in."""
STANDARD = frozenset(
    {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}
)
"""Conditions that each kubelet reports: Kubernetes itself keeps pods off by these."""


def ours(node: Json) -> str:
    """The mark of our taint on a node; empty without one."""
    for taint in list_at(node, "spec.taints"):
        if taint.get("key") == TAINT and taint.get("effect") == EFFECT:
            return text_at(taint, "value")
    return ""


def is_ready(node: Json) -> bool:
    """Whether its kubelet reports it as ready."""
    ready = [one for one in list_at(node, "status.conditions") if one.get("type") == "Ready"]
    return not ready or ready[0].get("status") == "True"


def reason_of(node: Json) -> str:
    """Why a node accepts none of our pods; empty: it does."""
    mark = ours(node)
    if mark:
        return f"{REASON_PREFIX} {mark}"
    if at(node, "spec.unschedulable") is True:
        return "cordoned"
    return "" if is_ready(node) else "not ready"


def pool_of(node: Json) -> str:
    """The pool of a node, `nodes` without a label for it."""
    labels = mapping_at(node, "metadata.labels")
    return next((labels[name] for name in POOLS if labels.get(name)), "nodes")


def live_node(node: Json, busy: bool, gpus_used: int) -> LiveNode:
    """A node as the reconcile loop sees it."""
    allocatable = at(node, "status.allocatable")
    counts = allocatable.items() if isinstance(allocatable, dict) else ()
    gpus = sum(count_of(n) for name, n in counts if name.endswith("/gpu"))
    reason = reason_of(node)
    return LiveNode(
        name=text_at(node, "metadata.name"),
        healthy=not reason,
        drained=bool(ours(node)) or at(node, "spec.unschedulable") is True,
        busy=busy,
        reason=reason,
        queues=(pool_of(node),),
        gpus=gpus,
        gpus_used=gpus_used,
    )


def isolating(node: Json, mark: str) -> list[dict[str, Any]]:
    """The JSON patch that adds our taint to a node as it was read."""
    taint = {"key": TAINT, "value": mark, "effect": EFFECT}
    if isinstance(at(node, "spec.taints"), list):
        change: Json = {"op": "add", "path": "/spec/taints/-", "value": taint}
    elif isinstance(node.get("spec"), dict):
        change = {"op": "add", "path": "/spec/taints", "value": [taint]}
    else:
        change = {"op": "add", "path": "/spec", "value": {"taints": [taint]}}
    return [_unchanged(node), change]


def returning(node: Json, mark: str) -> list[dict[str, Any]]:
    """The JSON patch that takes our taint with this mark away, and no other."""
    for number, taint in enumerate(at(node, "spec.taints") or ()):
        if isinstance(taint, dict) and taint.get("key") == TAINT and taint.get("value") == mark:
            place = f"/spec/taints/{number}"
            test = {"op": "test", "path": f"{place}/value", "value": mark}
            return [_unchanged(node), test, {"op": "remove", "path": place}]
    return []


def _unchanged(node: Json) -> dict[str, Any]:
    version = text_at(node, "metadata.resourceVersion")
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}


def said_by(nodes: Sequence[Json]) -> dict[str, list[str]]:
    """Faults that nodes report, by node, as lines of a kernel log.

    Conditions beyond the standard ones are set by whatever watches the node (such as
    node-problem-detector) with the right to write a node's status, which no job has. What the lines
    mean is for the rules of the Failure Handler.
    """
    found: dict[str, list[str]] = {}
    for node in nodes:
        name = text_at(node, "metadata.name")
        for one in list_at(node, "status.conditions"):
            if one.get("type") in STANDARD or one.get("status") != "True":
                continue
            when = text_at(one, "lastTransitionTime") or "1970-01-01T00:00:00Z"
            message = clean(text_at(one, "message") or text_at(one, "reason"), 500)
            found.setdefault(name, []).append(f"{when} {name} kernel: {message}")
    return found
