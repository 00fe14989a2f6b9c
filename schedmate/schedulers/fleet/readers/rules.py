"""What pods demand of each other: anti-affinity as groups to avoid, and disruption budgets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from schedmate.schedulers.fleet.readers.selectors import Index, selects

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _Terms:
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
        keys, index = list(self.known), Index()
        for number, (selector, _) in enumerate(self.known.values()):
            index.add(number, selector)
        found = []
        for pod in pods:
            about = pod["metadata"]
            labels, space = about.get("labels") or {}, about.get("namespace", "default")
            mine = []
            for number in sorted(index.candidates(labels)):
                selector, among = self.known[keys[number]]
                if (among is None or space in among) and selects(selector, labels):
                    mine.append(keys[number])
            found.append(tuple(mine))
        return found


def apart(pods: Sequence[Any], hostname: str) -> tuple[list[str], list[list[str]], set[int]]:
    """Group and avoided groups of each pod, and pods that are locked because groups cannot express
    their rules.

    Pods that match the same terms are of one group. Anti-affinity over anything wider than a node
    cannot be expressed; pods with it, and those that it refers to, are locked.
    """
    terms, wider = _Terms(), _Terms()
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


def budgeted(pods: Sequence[Any], budgets: Sequence[Any], stays: Callable[[int], bool]) -> set[int]:
    """Pods that disruption budgets lock: all but the number that each allows at once.

    Pods that are locked anyway do not use up the budget.
    """
    index = Index()
    for number, budget in enumerate(budgets):
        index.add(number, budget["spec"].get("selector"))
    allowed = [(one.get("status") or {}).get("disruptionsAllowed") or 0 for one in budgets]
    kept: set[int] = set()
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
            kept.add(k)
    return kept
