"""Amounts as Kubernetes and Slurm write them, and what a pod requests."""

from __future__ import annotations

import re
from typing import Any

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
        _add(running, _requests(container))
    sidecars: dict[str, float] = {}
    peak: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        needs = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, needs)
            needs = {}
        for name, amount in (*sidecars.items(), *needs.items()):
            there = sidecars.get(name, 0.0) + needs.get(name, 0.0)
            peak[name] = max(peak.get(name, 0.0), amount, there)
    _add(running, sidecars)
    found = {name: max(running.get(name, 0.0), peak.get(name, 0.0)) for name in {*running, *peak}}
    found |= _requests(spec)
    _add(found, {name: quantity(one) for name, one in (spec.get("overhead") or {}).items()})
    return found


def _requests(container: Any) -> dict[str, float]:
    resources = container.get("resources") or {}
    # a limit without a request is its request
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(one) for name, one in asked.items()}


def _add(sums: dict[str, float], more: dict[str, float]) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0.0) + amount
