"""Kubernetes' selectors of labels, node affinity and taints, applied to plain objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Labels = Mapping[str, str]


def selects(selector: Any, labels: Labels) -> bool:
    """Whether a label selector (`matchLabels`, `matchExpressions`) matches; None never does."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(holds(one, labels) for one in selector.get("matchExpressions") or ())


def holds(expression: Any, labels: Labels) -> bool:
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
        if all(holds(one, labels) for one in expressions or ()) and all(
            holds(one, {"metadata.name": name}) for one in fields or ()
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


class Index:
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
        found = [n for item in labels.items() for n in self._by_label.get(item, ())]
        return [*self._others, *found]
