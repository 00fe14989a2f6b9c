"""`kubectl get nodes,pods,poddisruptionbudgets -A -o json` as a snapshot of a fleet.

What a snapshot cannot express exactly is treated so that no plan can violate it: such pods are
locked, and a note has their number and the reason. Node selectors, required node affinity and
taints become one required label for each combination, which exactly the eligible nodes have; nodes
out of service (`nodes.why_closed`) are eligible for none.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from schedmate.base.data import load
from schedmate.base.errors import InputError
from schedmate.cluster.kubernetes.nodes import node_gpus, why_closed
from schedmate.cluster.kubernetes.workloads import is_gpu
from schedmate.schedulers.fleet.snapshot import Builder, FleetSnapshot

ELIGIBLE = "schedmate/eligible-{}"
WHY = {
    "annotation": "are marked as not safe to evict",
    "budget": "are held by a PodDisruptionBudget",
    "bare": "have no controller that would start them again",
    "other": "have affinity to other pods, or spread over zones",
    "misplaced": "run where the scheduler would not put them now",
}


def read_kubernetes(items: Iterable[Any], source: str) -> FleetSnapshot:
    """The snapshot in the items of Kubernetes lists; raises `InputError`."""
    try:
        return _Reader(items, source).read()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{source} is not what kubectl exports: {_fault_in_words(error)}; export it with "
            "`kubectl get nodes,pods,poddisruptionbudgets -A -o json`."
        ) from None


def _fault_in_words(error: Exception) -> str:
    """The fault of the export, in words."""
    if isinstance(error, KeyError):
        return f"an object of it has no {error.args[0]!r}"
    if isinstance(error, TypeError | AttributeError):
        return "a field of it has another form than in Kubernetes (say, a list for an object)"
    return str(error)


class _Reader:
    def __init__(self, items: Iterable[Any], source: str) -> None:
        self.says = load("cluster/kubernetes/snapshot.yaml")
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
        groups, avoid, wider = anti_affinity(pods, self.says["hostname"])
        why = {
            k: self._reason(pod) or ("other" if k in wider else "") for k, pod in enumerate(pods)
        }
        why |= dict.fromkeys(budget_locked(pods, self.budgets, lambda k: bool(why[k])), "budget")
        node_names = {node["metadata"]["name"] for node in self.nodes}
        away = 0
        for k, pod in enumerate(pods):
            where = pod["spec"]["nodeName"]
            if where not in node_names:
                away += 1
                continue
            row = self._task(pod, groups[k], avoid[k])
            reason = why[k]
            label = of_pod[k]
            if label is not None and where not in eligible[label]:
                reason = reason or "misplaced"
            elif label is not None:
                row["require"] = {ELIGIBLE.format(label): "yes"}
            if reason:
                row["locked"] = True
                self.locked[reason] += 1
            builder.task(row)
        notes = [
            f"pods that stay because they {WHY[why]}: {count:,}"
            for why, count in self.locked.items()
        ]
        if away:
            notes.append(f"pods left out as the export does not have their node: {away:,}")
        if staying:
            notes.append(f"pods of DaemonSets and of nodes count as their nodes': {len(staying):,}")
        return builder.build("recorded", notes, running=True)

    def _node(self, node: Any, taken: Counter[str], eligible: list[set[str]]) -> dict[str, Any]:
        about, status = node["metadata"], node["status"]
        labels = about.get("labels") or {}
        there = status.get("allocatable") or status["capacity"]
        name = about["name"]
        row = {
            "name": name,
            "gpus": node_gpus(node),
            "cpus": max(0.0, quantity(there["cpu"]) - taken["cpu"]),
            "memory_mb": max(0.0, quantity(there["memory"]) - taken["memory"]) / 1e6,
            "labels": {
                ELIGIBLE.format(k): "yes" for k, nodes in enumerate(eligible) if name in nodes
            },
        }
        for field in ("gpu_type", "switch", "aggregation"):
            values = (labels[one] for one in self.says[f"{field}_labels"] if labels.get(one))
            row[field] = next(values, "")
        return row

    def _task(self, pod: Any, group: str, avoid: list[str]) -> dict[str, Any]:
        about, spec = pod["metadata"], pod["spec"]
        needs = pod_requests(pod)
        gpus: float = sum(amount for resource, amount in needs.items() if is_gpu(resource))
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
        set_of: dict[str, int | None] = {}
        sets: list[set[str]] = []
        eligible = []
        for pod in pods:
            spec = pod["spec"]
            affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
            required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
            parts = (spec.get("nodeSelector"), required, spec.get("tolerations"))
            key = json.dumps(parts, sort_keys=True)
            if key not in set_of:
                good = {
                    node["metadata"]["name"] for node in self.nodes if _is_eligible(parts, node)
                }
                if len(good) == len(self.nodes):
                    set_of[key] = None
                elif good in sets:
                    set_of[key] = sets.index(good)
                else:
                    set_of[key] = len(sets)
                    sets.append(good)
            eligible.append(set_of[key])
        return sets, eligible

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


def _is_eligible(parts: tuple[Any, Any, Any], node: Any) -> bool:
    selector, required, tolerations = parts
    about, spec = node["metadata"], node.get("spec") or {}
    labels = about.get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector or {}).items()):
        return False
    if required is not None and not node_affine(
        required.get("nodeSelectorTerms"), labels, about["name"]
    ):
        return False
    return not why_closed(node) and tolerated(tolerations, spec.get("taints"))


def _controller(pod: Any) -> Any:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _of_its_node(pod: Any) -> bool:
    owner = _controller(pod)
    mirror = "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
    return mirror or (owner is not None and owner["kind"] in ("DaemonSet", "Node"))


# What pods demand of each other: anti-affinity as groups to avoid, and disruption budgets.


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _AntiAffinityTerms:
    """Terms of anti-affinity, each once, and the pods that they match."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Any, set[str] | None]] = {}

    def add(self, term: Any, own: str) -> str:
        """Add a term of a pod in the namespace `own`; return its key."""
        spaces = set(term.get("namespaces") or [own])
        among = None if term.get("namespaceSelector") is not None else spaces
        selector = term.get("labelSelector")
        key = json.dumps([selector, among and sorted(among)], sort_keys=True)
        self.known[key] = (selector, among)
        return key

    def matching(self, pods: Sequence[Any]) -> list[tuple[str, ...]]:
        """The keys of the terms that match each pod."""
        keys, index = list(self.known), SelectorIndex()
        for number, (selector, _) in enumerate(self.known.values()):
            index.add(number, selector)
        matches = []
        for pod in pods:
            about = pod["metadata"]
            labels, space = about.get("labels") or {}, about.get("namespace", "default")
            mine = []
            for number in sorted(index.candidates(labels)):
                selector, among = self.known[keys[number]]
                if (among is None or space in among) and selects(selector, labels):
                    mine.append(keys[number])
            matches.append(tuple(mine))
        return matches


def anti_affinity(
    pods: Sequence[Any], hostname: str
) -> tuple[list[str], list[list[str]], set[int]]:
    """Group and avoided groups of each pod, and pods that are locked because groups cannot express
    their rules.

    Pods that match the same terms are of one group. Anti-affinity over anything wider than a node
    cannot be expressed; pods with it, and those that it refers to, are locked.
    """
    terms, wider = _AntiAffinityTerms(), _AntiAffinityTerms()
    of_pod: list[list[str]] = []
    staying: set[int] = set()
    for k, pod in enumerate(pods):
        own = pod["metadata"].get("namespace", "default")
        affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        mine = []
        for term in affinity.get(_REQUIRED) or ():
            if term.get("topologyKey") == hostname:
                mine.append(terms.add(term, own))
            else:
                wider.add(term, own)
                staying.add(k)
        of_pod.append(mine)
    staying |= {k for k, keys in enumerate(wider.matching(pods)) if keys}
    matched = terms.matching(pods)
    names = {keys: f"group-{n}" for n, keys in enumerate(sorted(set(matched) - {()}), start=1)}
    of_key: dict[str, list[str]] = {}
    for keys, name in names.items():
        for key in keys:
            of_key.setdefault(key, []).append(name)
    avoid = [sorted({one for key in mine for one in of_key.get(key, ())}) for mine in of_pod]
    return [names.get(keys, "") for keys in matched], avoid, staying


def budget_locked(
    pods: Sequence[Any], budgets: Sequence[Any], stays: Callable[[int], bool]
) -> set[int]:
    """Pods that disruption budgets lock: all but the number that each allows at once.

    Pods that are locked anyway do not use up the budget.
    """
    index = SelectorIndex()
    for number, budget in enumerate(budgets):
        index.add(number, budget["spec"].get("selector"))
    allowed = [(one.get("status") or {}).get("disruptionsAllowed") or 0 for one in budgets]
    locked: set[int] = set()
    for k, pod in enumerate(pods):
        about = pod["metadata"]
        labels = about.get("labels") or {}
        mine = [
            number
            for number in index.candidates(labels)
            if budgets[number]["metadata"].get("namespace") == about.get("namespace")
            and selects(budgets[number]["spec"].get("selector"), labels)
        ]
        if not mine or stays(k):
            continue
        if all(allowed[number] > 0 for number in mine):
            for number in mine:
                allowed[number] -= 1
        else:
            locked.add(k)
    return locked


# Kubernetes' selectors of labels, node affinity and taints, applied to plain objects.


Labels = Mapping[str, str]


def selects(selector: Any, labels: Labels) -> bool:
    """Whether a label selector (`matchLabels`, `matchExpressions`) matches; None never does."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(requirement_holds(one, labels) for one in selector.get("matchExpressions") or ())


def requirement_holds(expression: Any, labels: Labels) -> bool:
    """Whether one requirement (`key`, `operator`, `values`) holds."""
    key, operator = expression["key"], expression["operator"]
    values: list[str] = expression.get("values") or []
    value = labels.get(key)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt"):
        try:
            number, limit = int(value or ""), int(values[0])
        except (ValueError, IndexError):
            return False
        return number > limit if operator == "Gt" else number < limit
    raise ValueError(f"operator {operator!r} of a selector is not known")


def node_affine(terms: Any, labels: Labels, name: str) -> bool:
    """Whether a node fits any of the terms of a required node affinity."""
    for term in terms or ():
        expressions, fields = term.get("matchExpressions"), term.get("matchFields")
        if not expressions and not fields:
            continue  # an empty term matches no node
        if all(requirement_holds(one, labels) for one in expressions or ()) and all(
            requirement_holds(one, {"metadata.name": name}) for one in fields or ()
        ):
            return True
    return False


def tolerated(tolerations: Any, taints: Any) -> bool:
    """Whether a pod may be placed on a node with these taints."""
    for taint in taints or ():
        if taint.get("effect") == "PreferNoSchedule":
            continue
        if not any(_tolerates(one, taint) for one in tolerations or ()):
            return False
    return True


def _tolerates(toleration: Any, taint: Any) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key = toleration.get("key")
    if not key:
        return bool(toleration.get("operator") == "Exists")
    if key != taint.get("key"):
        return False
    same = toleration.get("value", "") == taint.get("value", "")
    return bool(same or toleration.get("operator") == "Exists")


class SelectorIndex:
    """Selectors by a label that they require: few of very many may match a pod."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[int]] = {}
        self._others: list[int] = []

    def add(self, number: int, selector: Any) -> None:
        """Add a selector under a number."""
        wanted = (selector or {}).get("matchLabels") or {}
        item = next(iter(wanted.items()), None)
        (self._others if item is None else self._by_label.setdefault(item, [])).append(number)

    def candidates(self, labels: Labels) -> list[int]:
        """The numbers of all selectors that may match these labels."""
        labelled = [n for item in labels.items() for n in self._by_label.get(item, ())]
        return [*self._others, *labelled]


# Amounts as Kubernetes and Slurm write them, and what a pod requests.


_QUANTITY = re.compile(
    r"([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)([numkMGTPE]|[KMGTPE]i)?"
)
_UNITS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}
_UNITS |= {letter: 1e3**power for power, letter in enumerate("MGTPE", start=2)}
_UNITS |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}


def quantity(text: Any) -> float:
    """A Kubernetes quantity in its base unit (cores, bytes, GPUs); raises `ValueError`."""
    if isinstance(text, int | float):
        return float(text)
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * _UNITS[match[2] or ""]


def pod_requests(pod: Any) -> dict[str, float]:
    """Resources that a pod is charged for on its node, as the scheduler counts them.

    Containers in parallel; init containers one after the other, each with the sidecars started
    before it; requests of the pod as a whole if it has them; overhead.
    """
    spec = pod["spec"]
    running: dict[str, float] = {}
    for container in spec.get("containers") or ():
        _add_amounts(running, _requests(container))
    sidecars: dict[str, float] = {}
    peak: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        needs = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add_amounts(sidecars, needs)
            needs = {}
        for name, amount in (*sidecars.items(), *needs.items()):
            there = sidecars.get(name, 0.0) + needs.get(name, 0.0)
            peak[name] = max(peak.get(name, 0.0), amount, there)
    _add_amounts(running, sidecars)
    requests = {
        name: max(running.get(name, 0.0), peak.get(name, 0.0)) for name in {*running, *peak}
    }
    requests |= _requests(spec)
    _add_amounts(
        requests, {name: quantity(one) for name, one in (spec.get("overhead") or {}).items()}
    )
    return requests


def _requests(container: Any) -> dict[str, float]:
    resources = container.get("resources") or {}
    # a limit without a request is its request
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(one) for name, one in asked.items()}


def _add_amounts(sums: dict[str, float], more: dict[str, float]) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0.0) + amount
