"""`kubectl get nodes,pods,poddisruptionbudgets -A -o json` as a snapshot.

What a snapshot cannot express exactly is treated so that no plan can violate it: such pods are
locked, and a note has their number and the reason. Node selectors, required node affinity, taints
and cordons become one required label for each combination, which exactly the eligible nodes have.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from schedmate.data import load
from schedmate.errors import InputError
from schedmate.schedulers.fleet.builder import Builder
from schedmate.schedulers.fleet.readers.quantities import pod_requests, quantity
from schedmate.schedulers.fleet.readers.rules import apart, budgeted
from schedmate.schedulers.fleet.readers.selectors import node_affine, tolerated
from schedmate.schedulers.fleet.snapshot import FleetSnapshot

ELIGIBLE = "schedmate/eligible-{}"
WHY = {
    "annotation": "are marked as not safe to evict",
    "budget": "are held by a PodDisruptionBudget",
    "bare": "have no controller that would start them again",
    "other": "have affinity to other pods, or spread over zones",
    "misplaced": "run where the scheduler would not put them now",
}


def read_snapshot(items: Iterable[Any], source: str) -> FleetSnapshot:
    """The snapshot in the items of Kubernetes lists; raises `InputError`."""
    try:
        return _Reader(items, source).read()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{source} is not what kubectl exports: {_fault(error)}; export it with "
            "`kubectl get nodes,pods,poddisruptionbudgets -A -o json`."
        ) from None


def _fault(error: Exception) -> str:
    """The fault of the export, in words."""
    if isinstance(error, KeyError):
        return f"an object of it has no {error.args[0]!r}"
    if isinstance(error, TypeError | AttributeError):
        return "a field of it has another form than in Kubernetes (say, a list for an object)"
    return str(error)


class _Reader:
    def __init__(self, items: Iterable[Any], source: str) -> None:
        self.says = load("schedulers/fleet/readers/kubernetes.yaml")
        self.source = source
        self.nodes: list[Any] = []
        self.pods: list[Any] = []
        self.budgets: list[Any] = []
        for item in items:
            kind = item.get("kind")
            if kind == "Node":
                self.nodes.append(item)
            elif kind == "Pod" and item["spec"].get("nodeName"):
                if item["status"].get("phase") not in ("Succeeded", "Failed"):
                    self.pods.append(item)
            elif kind == "PodDisruptionBudget":
                self.budgets.append(item)
        self.locked: Counter[str] = Counter()

    def read(self) -> FleetSnapshot:
        # pods that belong to their node are part of what the node needs itself
        staying = [pod for pod in self.pods if _of_its_node(pod)]
        pods = [pod for pod in self.pods if not _of_its_node(pod)]
        taken: dict[str, Counter[str]] = defaultdict(Counter)
        for pod in staying:
            taken[pod["spec"]["nodeName"]].update(pod_requests(pod))
        eligible, of_pod = self._eligible(pods)
        builder = Builder(self.source)
        for node in self.nodes:
            builder.node(self._node(node, taken[node["metadata"]["name"]], eligible))
        groups, avoid, wider = apart(pods, self.says["hostname"])
        why = {
            k: self._reason(pod) or ("other" if k in wider else "") for k, pod in enumerate(pods)
        }
        why |= dict.fromkeys(budgeted(pods, self.budgets, lambda k: bool(why[k])), "budget")
        known = {node["metadata"]["name"] for node in self.nodes}
        for k, pod in enumerate(pods):
            where = pod["spec"]["nodeName"]
            row = self._task(pod, groups[k], avoid[k])
            reason = why[k]
            label = of_pod[k]
            if label is not None and where in known and where not in eligible[label]:
                reason = reason or "misplaced"
            elif label is not None and where in known:
                row["require"] = {ELIGIBLE.format(label): "yes"}
            if reason:
                row["locked"] = True
                self.locked[reason] += 1
            builder.task(row)
        notes = [
            f"pods that stay because they {WHY[why]}: {count:,}"
            for why, count in self.locked.items()
        ]
        if staying:
            notes.append(f"pods of DaemonSets and of nodes count as their nodes': {len(staying):,}")
        return builder.build("recorded", notes)

    def _node(self, node: Any, taken: Counter[str], eligible: list[set[str]]) -> dict[str, Any]:
        about, status = node["metadata"], node["status"]
        labels = about.get("labels") or {}
        there = status.get("allocatable") or status["capacity"]
        gpus = sum(quantity(there.get(one, 0)) for one in self.says["gpu_resources"])
        name = about["name"]
        row = {
            "name": name,
            "gpus": round(gpus),
            "cpus": max(0.0, quantity(there["cpu"]) - taken["cpu"]),
            "memory_mb": max(0.0, quantity(there["memory"]) - taken["memory"]) / 1e6,
            "labels": {
                ELIGIBLE.format(k): "yes" for k, nodes in enumerate(eligible) if name in nodes
            },
        }
        for field in ("gpu_type", "switch", "aggregation"):
            found = (labels[one] for one in self.says[f"{field}_labels"] if labels.get(one))
            row[field] = next(found, "")
        return row

    def _task(self, pod: Any, group: str, avoid: list[str]) -> dict[str, Any]:
        about, spec = pod["metadata"], pod["spec"]
        needs = pod_requests(pod)
        gpus: float = sum(needs.get(one, 0) for one in self.says["gpu_resources"])
        annotations = about.get("annotations") or {}
        for name, unit in self.says["fractions"].items():
            if name in annotations and 0 < float(annotations[name]) < unit:
                gpus = float(annotations[name]) / unit
        priority = spec.get("priority") or 0
        low = priority < 0 or re.search(
            self.says["low_priority"], spec.get("priorityClassName") or ""
        )
        name = f"{about.get('namespace', 'default')}/{about['name']}"
        return {
            "id": name,
            "job": self._job(pod) or name,
            "node": spec["nodeName"],
            "gpus": gpus,
            "cpus": needs.get("cpu", 0),
            "memory_mb": needs.get("memory", 0) / 1e6,
            "class": "lp" if low else "hp",
            "group": group,
            "avoid": avoid,
        }

    def _job(self, pod: Any) -> str:
        about = pod["metadata"]
        labels = about.get("labels") or {}
        name = next((labels[one] for one in self.says["job_labels"] if labels.get(one)), "")
        owner = _controller(pod)
        if not name and owner:
            name = f"{owner['kind']}/{owner['name']}"
        return f"{about.get('namespace', 'default')}/{name}" if name else ""

    def _eligible(self, pods: list[Any]) -> tuple[list[set[str]], list[int | None]]:
        """Nodes for each combination of constraints, and the combination of each pod."""
        known: dict[str, int | None] = {}
        sets: list[set[str]] = []
        found = []
        for pod in pods:
            spec = pod["spec"]
            affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
            required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
            parts = (spec.get("nodeSelector"), required, spec.get("tolerations"))
            key = json.dumps(parts, sort_keys=True)
            if key not in known:
                good = {node["metadata"]["name"] for node in self.nodes if _may(parts, node)}
                if len(good) == len(self.nodes):
                    known[key] = None
                elif good in sets:
                    known[key] = sets.index(good)
                else:
                    known[key] = len(sets)
                    sets.append(good)
            found.append(known[key])
        return sets, found

    def _reason(self, pod: Any) -> str:
        annotations = pod["metadata"].get("annotations") or {}
        if annotations.get(self.says["safe_to_evict"]) == "false":
            return "annotation"
        if not _controller(pod):
            return "bare"
        spec = pod["spec"]
        affinity = spec.get("affinity") or {}
        together = (affinity.get("podAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        spread = any(
            one.get("whenUnsatisfiable") == "DoNotSchedule"
            for one in spec.get("topologySpreadConstraints") or ()
        )
        return "other" if together or spread else ""


def _may(parts: tuple[Any, Any, Any], node: Any) -> bool:
    selector, required, tolerations = parts
    about, spec = node["metadata"], node.get("spec") or {}
    labels = about.get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector or {}).items()):
        return False
    if required is not None and not node_affine(
        required.get("nodeSelectorTerms"), labels, about["name"]
    ):
        return False
    taints = list(spec.get("taints") or ())
    if spec.get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    ready = [one for one in node["status"].get("conditions") or () if one.get("type") == "Ready"]
    if ready and ready[0].get("status") != "True":
        return False
    return tolerated(tolerations, taints)


def _controller(pod: Any) -> Any:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _of_its_node(pod: Any) -> bool:
    owner = _controller(pod)
    mirror = "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
    return mirror or (owner is not None and owner["kind"] in ("DaemonSet", "Node"))
