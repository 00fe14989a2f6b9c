"""What makes a snapshot impossible: no plan is made on one, as it would rest on the fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from schedmate.errors import InputError
from schedmate.schedulers.fleet.snapshot import MILLI, NONE, UNLIMITED, FleetSnapshot, Ints

_EXPORT = "export it again, or take what is wrong out of it"


def check(snapshot: FleetSnapshot, source: str) -> None:
    """Raise `InputError` with the first fault found, and the number of faults of its kind."""
    nodes, tasks = snapshot.nodes, snapshot.tasks
    if not len(nodes):
        raise InputError(f"{source} has no nodes; export those of the cluster.")
    if not nodes.gpus.sum():
        raise InputError(
            f"{source}: none of the {len(nodes):,} nodes has a GPU; export the nodes that have."
        )
    if len(set(tasks.name)) < len(tasks):
        name, _ = Counter(tasks.name).most_common(1)[0]
        raise InputError(f"{source}: two tasks are called {name!r}; {_EXPORT}.")
    _more_than_there_is(snapshot, source)
    _labels(snapshot, source)
    _groups(snapshot, source)


def _more_than_there_is(snapshot: FleetSnapshot, source: str) -> None:
    nodes = snapshot.nodes
    held = {
        "GPUs": (nodes.gpus * MILLI - snapshot.gpus_held, nodes.gpus * MILLI, MILLI, 0),
        "CPUs": (snapshot.cpus_free, nodes.cpus, MILLI, 1),
        "MB of memory": (snapshot.memory_free, nodes.memory, 1000, 1),
    }
    for what, (free, capacity, unit, rounding) in held.items():
        # each task's number was rounded
        over = np.flatnonzero((free < -rounding * snapshot.task_count) & (capacity < UNLIMITED))
        if len(over):
            n = int(over[0])
            raise InputError(
                f"{source}: tasks on node {nodes.name[n]!r} hold {_said(capacity - free, n, unit)} "
                f"{what} and it has {_said(capacity, n, unit)}{_others(len(over), 'node')}; "
                f"{_EXPORT}."
            )


def _said(values: Ints, position: int, unit: int) -> str:
    return f"{values[position] / unit:,.10g}"


def _labels(snapshot: FleetSnapshot, source: str) -> None:
    """Every task's node has the labels that the task requires."""
    nodes, tasks = snapshot.nodes, snapshot.tasks
    there = {item for labels in snapshot.label_sets for item in labels.items()}
    names = {name for name, _ in there}
    for code, required in enumerate(snapshot.require_sets):
        for name, value in required.items():
            if (name, value) not in there:
                t = int(np.flatnonzero(tasks.require == code)[0])
                which = f"{name}={value}" if name in names else f"a label {name!r}"
                raise InputError(
                    f"{source}: task {tasks.name[t]!r} requires {which}, which no node has; "
                    "export the nodes with their labels."
                )
    fits = fitting(snapshot.require_sets, snapshot.label_sets)
    wrong = np.flatnonzero(~fits[tasks.require, nodes.labels[tasks.node]])
    if len(wrong):
        t = int(wrong[0])
        required = snapshot.require_sets[tasks.require[t]]
        raise InputError(
            f"{source}: task {tasks.name[t]!r} requires {dict(required)} and runs on "
            f"{nodes.name[tasks.node[t]]!r}, which is labelled otherwise"
            f"{_others(len(wrong), 'task')}; {_EXPORT}."
        )


def fitting(
    required: list[Mapping[str, str]], labels: list[Mapping[str, str]]
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Which sets of labels (columns) have all that is required (rows)."""
    asked = {name for one in required for name in one}
    kept = [{name: one[name] for name in one.keys() & asked} for one in labels]
    kinds = {tuple(sorted(one.items())): one for one in kept}
    column = {key: n for n, key in enumerate(kinds)}
    table = np.ones((len(required), len(kinds)), dtype=bool)
    for row, one in enumerate(required):
        if one:
            table[row] = [one.items() <= has.items() for has in kinds.values()]
    return table[:, [column[tuple(sorted(one.items()))] for one in kept]]


def _groups(snapshot: FleetSnapshot, source: str) -> None:
    """No task shares a node with a group that it avoids."""
    nodes, tasks = snapshot.nodes, snapshot.tasks
    on: dict[int, dict[int, list[int]]] = defaultdict(dict)
    for t in np.flatnonzero(tasks.group != NONE).tolist():
        on[int(tasks.node[t])].setdefault(int(tasks.group[t]), []).append(t)
    for t in np.flatnonzero(tasks.avoid != 0).tolist():
        here = on.get(int(tasks.node[t]), {})
        for group in snapshot.avoid_sets[tasks.avoid[t]]:
            others = [other for other in here.get(group, ()) if other != t]
            if others:
                raise InputError(
                    f"{source}: task {tasks.name[t]!r} avoids group {snapshot.groups[group]!r}, "
                    f"and {tasks.name[others[0]]!r} of that group runs beside it on "
                    f"{nodes.name[tasks.node[t]]!r}: both cannot be; {_EXPORT}."
                )


def _others(count: int, what: str) -> str:
    return f" (and {count - 1:,} more {what}{'s' * (count > 2)})" if count > 1 else ""
