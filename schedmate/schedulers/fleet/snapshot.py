"""A whole cluster at one moment as columns, an array for each property of nodes and tasks.

Quantities are whole numbers, so that sums are exact: GPUs in thousandths (`MILLI` is a whole GPU),
CPUs in thousandths of a core, memory in kB. `Builder` makes a snapshot of rows and refuses an
impossible one: no plan is made on that, as it would rest on the fault.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import InputError, did_you_mean

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Bools = NDArray[np.bool_]

MILLI = 1000
"""A whole GPU, and a whole CPU core."""
UNLIMITED = 2**53
"""CPUs or memory of a node that does not say how much it has."""
NONE = -1
"""Marks a missing entry in a column of positions."""


@dataclass(frozen=True)
class Nodes:
    """A row for each machine."""

    name: list[str]
    gpu_type: Codes
    """Position in `FleetSnapshot.gpu_types`."""
    gpus: Ints
    """Whole GPUs; 0: a node of CPUs only."""
    cpus: Ints
    """[milli-cores], `UNLIMITED` where unknown."""
    memory: Ints
    """[kB], `UNLIMITED` where unknown."""
    switch: Codes
    """Access switch: position in `FleetSnapshot.switches`, or `NONE`."""
    aggregation: Codes
    """Aggregation switch: position in `FleetSnapshot.aggregations`, or `NONE`."""
    labels: Codes
    """Position in `FleetSnapshot.label_sets`."""

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Tasks:
    """A row for each running task: a pod, a Slurm job's share of a node, an instance."""

    name: list[str]
    job: Codes
    """Position in `FleetSnapshot.jobs`."""
    node: Codes
    """Position in `Nodes`."""
    gpus: Ints
    """[milli-GPUs]: whole GPUs, or less than one."""
    device: Codes
    """Which GPU of its node a task with a fraction is on; `NONE` for others."""
    cpus: Ints
    """[milli-cores]"""
    memory: Ints
    """[kB]"""
    low_priority: Bools
    """Class `lp`: spot."""
    locked: Bools
    """May not be moved."""
    any_type: Bools
    """Runs on every type of GPU; others only on the type that they are on now."""
    group: Codes
    """Position in `FleetSnapshot.groups`, or `NONE`."""
    avoid: Codes
    """Groups that it shares no node with: position in `FleetSnapshot.avoid_sets`."""
    require: Codes
    """Labels that its node must have: position in `FleetSnapshot.require_sets`."""
    checkpoint_age_s: NDArray[np.float64]
    """Time since its last checkpoint [s]: work that a restart loses."""
    remaining_s: NDArray[np.float64]
    """Estimated remaining time [s]; infinity if unknown."""

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class FleetSnapshot:
    """Nodes and the tasks on them; made by a reader, or by `builder.Builder`."""

    nodes: Nodes
    tasks: Tasks
    gpu_types: list[str]
    switches: list[str]
    aggregations: list[str]
    label_sets: list[Mapping[str, str]]
    jobs: list[str]
    groups: list[str]
    avoid_sets: list[tuple[int, ...]]
    """Of positions in `groups`."""
    require_sets: list[Mapping[str, str]]
    origin: str = "unstated"
    """`recorded`, `synthetic: ...` (with the synthetic parts) or `unstated`."""
    notes: list[str] = field(default_factory=list)
    """What a reader noticed, in sentences without a full stop."""

    @cached_property
    def fraction(self) -> Bools:
        """Which tasks hold less than a GPU, and some of one."""
        return (self.tasks.gpus > 0) & (self.tasks.gpus < MILLI)

    @cached_property
    def whole_used(self) -> Ints:
        """GPUs of each node that tasks hold whole."""
        return self._sum(np.where(self.fraction, 0, self.tasks.gpus)) // MILLI

    @cached_property
    def shared_devices(self) -> tuple[Ints, Ints]:
        """Shared GPUs: the node of each, and its free part [milli-GPUs]."""
        rows = np.flatnonzero(self.fraction)
        if not len(rows):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        key = self.tasks.node[rows].astype(np.int64) << 20 | self.tasks.device[rows]
        keys, where = np.unique(key, return_inverse=True)
        used = np.bincount(where, weights=self.tasks.gpus[rows]).astype(np.int64)
        return keys >> 20, MILLI - used

    @cached_property
    def whole_free(self) -> Ints:
        """Wholly free GPUs of each node."""
        shared = np.bincount(self.shared_devices[0], minlength=len(self.nodes))
        return self.nodes.gpus - self.whole_used - shared

    @cached_property
    def cpus_free(self) -> Ints:
        """[milli-cores]; that of a node without a limit is beyond any request."""
        return self.nodes.cpus - self._sum(self.tasks.cpus)

    @cached_property
    def memory_free(self) -> Ints:
        """[kB]; that of a node without a limit is beyond any request."""
        return self.nodes.memory - self._sum(self.tasks.memory)

    @cached_property
    def gpus_held(self) -> Ints:
        """GPU capacity of each node that tasks hold [milli-GPUs]."""
        return self._sum(self.tasks.gpus)

    @cached_property
    def task_count(self) -> Ints:
        """Tasks on each node."""
        return np.bincount(self.tasks.node, minlength=len(self.nodes)).astype(np.int64)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self.nodes.gpus.sum())

    @property
    def domains(self) -> Ints:
        """The access switch of each node, by position; a node without one counts as a switch, as a
        task on one node needs no switch."""
        alone = len(self.switches) + np.arange(len(self.nodes))
        return np.where(self.nodes.switch == NONE, alone, self.nodes.switch).astype(np.int64)

    @property
    def idle_gpus(self) -> float:
        """Idle GPUs, fractions included [GPUs]."""
        return self.gpus - int(self.tasks.gpus.sum()) / MILLI

    @property
    def synthetic(self) -> bool:
        return self.origin.startswith("synthetic")

    def slack(self, at: Ints | None = None) -> int:
        """Nodes that are not fully occupied: some of their GPUs are held, and some are idle.

        `at`: the node of each task, where tasks have moved.
        """
        held_milli = self.gpus_held
        if at is not None:
            sums = np.bincount(at, weights=self.tasks.gpus, minlength=len(self.nodes))
            held_milli = sums.astype(np.int64)
        return int(((held_milli > 0) & (held_milli < self.nodes.gpus * MILLI)).sum())

    @cached_property
    def hash(self) -> str:
        """Digest of everything that a plan depends on, whatever the order of nodes and tasks.

        Ages of checkpoints and remaining times are left out: they change with time, and never make
        a plan unsafe.
        """
        nodes, tasks = self.nodes, self.tasks
        digest = sha256()
        by_name = np.array(sorted(range(len(nodes)), key=nodes.name.__getitem__), dtype=np.int64)
        rank = np.empty(len(nodes), np.int64)
        rank[by_name] = np.arange(len(nodes))
        _add_texts(digest, [nodes.name[n] for n in by_name])
        _add_texts(digest, [self.gpu_types[code] for code in nodes.gpu_type[by_name]])
        _add_texts(digest, [_named(self.switches, code) for code in nodes.switch[by_name]])
        _add_texts(digest, [_named(self.aggregations, code) for code in nodes.aggregation[by_name]])
        _add_texts(digest, _texts(self.label_sets, nodes.labels[by_name]))
        for column in (nodes.gpus, nodes.cpus, nodes.memory):
            digest.update(column[by_name].astype("<i8").tobytes())
        order = np.array(sorted(range(len(tasks)), key=tasks.name.__getitem__), dtype=np.int64)
        _add_texts(digest, [tasks.name[t] for t in order])
        _add_texts(digest, [self.jobs[code] for code in tasks.job[order]])
        _add_texts(digest, [_named(self.groups, code) for code in tasks.group[order]])
        avoided = [sorted(self.groups[g] for g in groups) for groups in self.avoid_sets]
        _add_texts(digest, _texts(avoided, tasks.avoid[order]))
        _add_texts(digest, _texts(self.require_sets, tasks.require[order]))
        at = rank[tasks.node] if len(tasks) else tasks.node
        for values in (at, tasks.gpus, tasks.device, tasks.cpus, tasks.memory):
            digest.update(values[order].astype("<i8").tobytes())
        for flags in (tasks.low_priority, tasks.locked, tasks.any_type):
            digest.update(flags[order].tobytes())
        return f"sha256:{digest.hexdigest()}"

    def _sum(self, values: Ints) -> Ints:
        """A property of tasks, added up by node; exact below 2**53."""
        sums = np.bincount(self.tasks.node, weights=values, minlength=len(self.nodes))
        return sums.astype(np.int64)


def _named(names: list[str], code: int) -> str:
    return "" if code == NONE else names[code]


def _texts(sets: list[Any], codes: Codes) -> list[str]:
    texts = [repr(sorted(one.items()) if isinstance(one, Mapping) else one) for one in sets]
    return [texts[code] for code in codes]


def _add_texts(digest: Any, texts: list[str]) -> None:
    digest.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\1")


# Rows of nodes and tasks, as documents and tables have them, to the columns of a snapshot.


NODE_FIELDS = frozenset(
    ("name", "gpu_type", "gpus", "cpus", "memory_mb", "switch", "aggregation", "labels")
)
TASK_FIELDS = frozenset(
    (
        *("id", "job", "node", "gpus", "device", "cpus", "memory_mb", "class", "locked"),
        *("any_gpu_type", "group", "avoid", "require", "checkpoint_age_s", "remaining_s"),
    )
)
LARGEST = 1e12
"""Of any quantity: beyond every machine, and exact when added up."""


class _Names:
    """What repeats, each once, by position."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._codes: dict[Any, int] = {}

    def code(self, key: Any, value: Any = None) -> int:
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self.values)
            self.values.append(key if value is None else value)
        return code


class Builder:
    """Takes nodes first, then tasks; `build` checks the whole and raises `InputError`.

    Rows are mappings with the fields of `schedmate.fleet/v1` (docs/fleet.md). `source` names the
    input in messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._node_names: list[str] = []
        self._position: dict[str, int] = {}
        self._node = {name: array("q") for name in ("gpus", "cpus", "memory")}
        self._node_codes = {
            name: array("i") for name in ("gpu_type", "switch", "aggregation", "labels")
        }
        self._types, self._switches, self._aggregations = _Names(), _Names(), _Names()
        self._labels, self._jobs, self._groups = _Names(), _Names(), _Names()
        self._avoid, self._require = _Names(), _Names()
        self._labels.code((), {})
        self._avoid.code((), ())
        self._require.code((), {})
        self._task_names: list[str] = []
        self._task = {name: array("q") for name in ("gpus", "cpus", "memory")}
        self._times = {name: array("d") for name in ("checkpoint_age_s", "remaining_s")}
        self._task_codes = {
            name: array("i") for name in ("job", "node", "device", "group", "avoid", "require")
        }
        self._flags = {name: array("b") for name in ("low_priority", "locked", "any_type")}

    def node(self, row: Mapping[str, Any]) -> None:
        """Add a node."""
        name = self._name(row, "name", "node", self._node_names)
        try:
            if not row.keys() <= NODE_FIELDS:
                self._unknown(row.keys() - NODE_FIELDS, NODE_FIELDS)
            gpus = _number(row.get("gpus", 0), "gpus")
            if gpus != int(gpus) or gpus >= 1 << 20:
                raise ValueError(f"gpus is {gpus:g}, no number of GPUs that a node has")
            cpus, memory = row.get("cpus"), row.get("memory_mb")
            numbers = (
                int(gpus),
                UNLIMITED if cpus is None else round(_number(cpus, "cpus") * MILLI),
                UNLIMITED if memory is None else round(_number(memory, "memory_mb") * 1000),
            )
            codes = (
                self._types.code(_text(row, "gpu_type")),
                _code(self._switches, _text(row, "switch")),
                _code(self._aggregations, _text(row, "aggregation")),
                self._labels.code(*_mapping(row.get("labels"), "labels")),
            )
        except (TypeError, ValueError) as error:
            self._wrong("node", name, error)
        if self._position.setdefault(name, len(self._node_names)) != len(self._node_names):
            raise InputError(
                f"{self.source}: two nodes are called {name!r}; names of nodes must differ; mend "
                "it and read it again."
            )
        self._node_names.append(name)
        for column, number in zip(self._node.values(), numbers, strict=True):
            column.append(number)
        for column, code in zip(self._node_codes.values(), codes, strict=True):
            column.append(code)

    def task(self, row: Mapping[str, Any]) -> None:
        """Add a task on a node that was added before."""
        name = self._name(row, "id", "task", self._task_names)
        try:
            if not row.keys() <= TASK_FIELDS:
                self._unknown(row.keys() - TASK_FIELDS, TASK_FIELDS)
            node = self._position.get(row.get("node", ""))
            if node is None:
                raise InputError(
                    f"{self.source}: task {name!r} is on node {row.get('node')!r}, which the "
                    "snapshot does not have; export nodes and tasks at the same moment."
                )
            gpus = round(_number(row.get("gpus", 0), "gpus") * MILLI)
            if gpus > MILLI and gpus % MILLI:
                raise ValueError(f"gpus is {gpus / MILLI:g}, neither whole nor below 1")
            numbers = (
                gpus,
                round(_number(row.get("cpus") or 0, "cpus") * MILLI),
                round(_number(row.get("memory_mb") or 0, "memory_mb") * 1000),
            )
            device = row.get("device")
            group = _text(row, "group")
            avoid = _text_list(row.get("avoid"))
            codes = (
                self._jobs.code(_text(row, "job") or name),
                node,
                NONE if device is None or gpus >= MILLI else int(_number(device, "device")),
                _code(self._groups, group),
                self._avoid.code(tuple(sorted({self._groups.code(one) for one in avoid}))),
                self._require.code(*_mapping(row.get("require"), "require")),
            )
            kind = row.get("class", "hp")
            if kind not in ("hp", "lp"):
                raise ValueError(f"class is {kind!r}, neither 'hp' nor 'lp'")
            flags = (kind == "lp", _flag(row, "locked"), _flag(row, "any_gpu_type"))
            age = _number(row.get("checkpoint_age_s") or 0, "checkpoint_age_s")
            left = row.get("remaining_s")
            left = math.inf if left is None else _number(left, "remaining_s")
        except (TypeError, ValueError) as error:
            self._wrong("task", name, error)
        self._task_names.append(name)
        for column, number in zip(self._task.values(), numbers, strict=True):
            column.append(number)
        for column, code in zip(self._task_codes.values(), codes, strict=True):
            column.append(code)
        for bits, flag in zip(self._flags.values(), flags, strict=True):
            bits.append(flag)
        for times, time_s in zip(self._times.values(), (age, left), strict=True):
            times.append(time_s)

    def build(
        self, origin: str = "unstated", notes: Iterable[str] = (), *, running: bool = False
    ) -> FleetSnapshot:
        """The snapshot, after a check that no node holds more than it has.

        `running`: it is the export of a cluster, which may violate rules that changed since its
        tasks were placed. Such tasks are locked where they are, and a note has their number.
        """
        nodes = Nodes(name=self._node_names, **_columns(self._node, self._node_codes))
        flags = {
            name: np.frombuffer(one, np.int8).astype(bool) for name, one in self._flags.items()
        }
        times = {name: np.frombuffer(one, np.float64) for name, one in self._times.items()}
        columns = _columns(self._task, self._task_codes) | flags | times
        tasks = Tasks(name=self._task_names, **columns)
        snapshot = FleetSnapshot(
            nodes,
            tasks,
            self._types.values,
            self._switches.values,
            self._aggregations.values,
            self._labels.values,
            self._jobs.values,
            self._groups.values,
            self._avoid.values,
            self._require.values,
            origin,
            list(notes),
        )
        if running:
            snapshot = _as_it_runs(snapshot)
        check_snapshot(snapshot, self.source)
        return assign_devices(snapshot, self.source, running=running)

    def _name(self, row: Any, key: str, what: str, others: list[str]) -> str:
        if not isinstance(row, Mapping):
            raise InputError(
                f"{self.source}: {what} {len(others) + 1} is not an object with fields; "
                "see docs/fleet.md for the format."
            )
        name = row.get(key)
        if not isinstance(name, str) or not name:
            raise InputError(
                f"{self.source}: {what} {len(others) + 1} has no {key!r}; each needs one, "
                "so export it again."
            )
        return name

    def _unknown(self, names: Iterable[str], known: Iterable[str]) -> NoReturn:
        name = min(map(str, names))
        hint = did_you_mean(name, known) or f"; known are {', '.join(sorted(known))}"
        raise ValueError(f"unknown field {name!r}{hint}".rstrip("?"))

    def _wrong(self, what: str, name: str, error: Exception) -> NoReturn:
        raise InputError(f"{self.source}: {what} {name!r}: {error}; mend it and read it again.")


def _columns(numbers: Mapping[str, Any], codes: Mapping[str, Any]) -> dict[str, Any]:
    columns = {name: np.frombuffer(column, np.int64) for name, column in numbers.items()}
    return columns | {name: np.frombuffer(column, np.int32) for name, column in codes.items()}


def _code(names: _Names, text: str) -> int:
    return names.code(text) if text else NONE


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is {value!r}, no number")
    if not math.isfinite(value) or not 0 <= value <= LARGEST:
        raise ValueError(f"{what} is {value!r}, not between 0 and {LARGEST:g}")
    return value


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key) or ""
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, no text")
    return value


def _flag(row: Mapping[str, Any], key: str) -> bool:
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise TypeError(f"{key} is {value!r}, neither true nor false")
    return value


def _text_list(value: Any) -> list[str]:
    if not value:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise TypeError(f"avoid is {value!r}, no list of groups")
    return value


def _mapping(value: Any, what: str) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    """The key of a set of labels, and the set."""
    if not value:
        return (), {}
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    ):
        raise TypeError(f"{what} is {value!r}, no object of texts")
    return tuple(sorted(value.items())), value


# What makes a snapshot impossible: no plan is made on one, as it would rest on the fault.


_EXPORT = "export it again, or take what is wrong out of it"


def check_snapshot(snapshot: FleetSnapshot, source: str) -> None:
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
    _check_capacity(snapshot, source)
    _check_labels(snapshot, source)
    _check_groups(snapshot, source)


def _as_it_runs(snapshot: FleetSnapshot) -> FleetSnapshot:
    """The snapshot with tasks locked whose nodes hold more than they have or that avoid neighbours.

    Nothing can be added to such a node: it has what it holds, no more.
    """
    nodes, tasks = snapshot.nodes, snapshot.tasks
    over = np.zeros(len(nodes), dtype=bool)
    for _, free, capacity, _, rounding in _capacities(snapshot):
        over |= (free < -rounding * snapshot.task_count) & (capacity < UNLIMITED)
    locked = over[tasks.node]
    beside = {t for pair in _pairs_apart(snapshot) for t in pair}
    notes = [
        f"{what}: {count:,}"
        for what, count in (
            ("nodes that hold more than they have now, whose tasks stay", int(over.sum())),
            ("tasks that stay because they run beside a group that they avoid", len(beside)),
        )
        if count
    ]
    if not notes:
        return snapshot
    locked[list(beside)] = True
    gpus = np.maximum(nodes.gpus, -(-snapshot.gpus_held // MILLI))
    cpus = np.where(over, nodes.cpus - np.minimum(0, snapshot.cpus_free), nodes.cpus)
    memory = np.where(over, nodes.memory - np.minimum(0, snapshot.memory_free), nodes.memory)
    return replace(
        snapshot,
        nodes=replace(nodes, gpus=gpus, cpus=cpus, memory=memory),
        tasks=replace(tasks, locked=tasks.locked | locked),
        notes=[*snapshot.notes, *notes],
    )


def _capacities(snapshot: FleetSnapshot) -> Iterator[tuple[str, Ints, Ints, int, int]]:
    """Of each resource: name, free and whole capacity by node, unit, rounding error of a task."""
    nodes = snapshot.nodes
    whole = nodes.gpus * MILLI
    yield "GPUs", whole - snapshot.gpus_held, whole, MILLI, 0
    yield "CPUs", snapshot.cpus_free, nodes.cpus, MILLI, 1
    yield "MB of memory", snapshot.memory_free, nodes.memory, 1000, 1


def _check_capacity(snapshot: FleetSnapshot, source: str) -> None:
    nodes = snapshot.nodes
    for what, free, capacity, unit, rounding in _capacities(snapshot):
        over = np.flatnonzero((free < -rounding * snapshot.task_count) & (capacity < UNLIMITED))
        if len(over):
            n = int(over[0])
            raise InputError(
                f"{source}: tasks on node {nodes.name[n]!r} hold "
                f"{_amount(capacity - free, n, unit)} {what} and it has "
                f"{_amount(capacity, n, unit)}{_and_others(len(over), 'node')}; "
                f"{_EXPORT}."
            )


def _amount(values: Ints, position: int, unit: int) -> str:
    return f"{values[position] / unit:,.10g}"


def _check_labels(snapshot: FleetSnapshot, source: str) -> None:
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
    fits = fitting_labels(snapshot.require_sets, snapshot.label_sets)
    wrong = np.flatnonzero(~fits[tasks.require, nodes.labels[tasks.node]])
    if len(wrong):
        t = int(wrong[0])
        required = snapshot.require_sets[tasks.require[t]]
        raise InputError(
            f"{source}: task {tasks.name[t]!r} requires {dict(required)} and runs on "
            f"{nodes.name[tasks.node[t]]!r}, which is labelled otherwise"
            f"{_and_others(len(wrong), 'task')}; {_EXPORT}."
        )


def fitting_labels(
    required: list[Mapping[str, str]], labels: list[Mapping[str, str]]
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Which sets of labels (columns) have all that is required (rows)."""
    asked = {name for label_set in required for name in label_set}
    relevant = [
        {name: label_set[name] for name in label_set.keys() & asked} for label_set in labels
    ]
    kinds = {tuple(sorted(label_set.items())): label_set for label_set in relevant}
    column = {key: n for n, key in enumerate(kinds)}
    table = np.ones((len(required), len(kinds)), dtype=bool)
    for row, label_set in enumerate(required):
        if label_set:
            table[row] = [label_set.items() <= has.items() for has in kinds.values()]
    return table[:, [column[tuple(sorted(label_set.items()))] for label_set in relevant]]


def _check_groups(snapshot: FleetSnapshot, source: str) -> None:
    """No task shares a node with a group that it avoids, unless both are locked there."""
    nodes, tasks = snapshot.nodes, snapshot.tasks
    for t, other in _pairs_apart(snapshot):
        if not (tasks.locked[t] and tasks.locked[other]):
            raise InputError(
                f"{source}: task {tasks.name[t]!r} avoids group "
                f"{snapshot.groups[tasks.group[other]]!r}, and {tasks.name[other]!r} of that group "
                f"runs beside it on {nodes.name[tasks.node[t]]!r}: both cannot be; {_EXPORT}."
            )


def _pairs_apart(snapshot: FleetSnapshot) -> Iterator[tuple[int, int]]:
    """Tasks that avoid a group, each with every task of that group on its node."""
    tasks = snapshot.tasks
    on: dict[int, dict[int, list[int]]] = defaultdict(dict)
    for t in np.flatnonzero(tasks.group != NONE).tolist():
        on[int(tasks.node[t])].setdefault(int(tasks.group[t]), []).append(t)
    for t in np.flatnonzero(tasks.avoid != 0).tolist():
        here = on.get(int(tasks.node[t]), {})
        for group in snapshot.avoid_sets[tasks.avoid[t]]:
            yield from ((t, other) for other in here.get(group, ()) if other != t)


def _and_others(count: int, what: str) -> str:
    return f" (and {count - 1:,} more {what}{'s' * (count > 2)})" if count > 1 else ""


# Which GPU of its node each fraction is on, where the source does not say.


def assign_devices(snapshot: FleetSnapshot, source: str, *, running: bool = False) -> FleetSnapshot:
    """The snapshot with a GPU for every fraction.

    Unknown ones are assigned largest first, which assumes less fragmentation within GPUs than there
    may be; a note has their number. Raises `InputError` if they do not fit; where they are
    `running`, their node has as many GPUs as it takes, and nothing on it may be moved.
    """
    tasks = snapshot.tasks
    rows = np.flatnonzero(snapshot.fraction)
    if not len(rows):
        return snapshot
    on: dict[int, list[int]] = defaultdict(list)
    for t in rows.tolist():
        on[int(tasks.node[t])].append(t)
    device, gpus_of, full = tasks.device.copy(), snapshot.nodes.gpus.copy(), list[int]()
    for node, here in on.items():
        free: dict[int, int] = {}
        for t in here:
            if device[t] != NONE:
                free[int(device[t])] = free.get(int(device[t]), MILLI) - int(tasks.gpus[t])
        gpus, whole = int(snapshot.nodes.gpus[node]), int(snapshot.whole_used[node])
        for t in sorted(
            (t for t in here if device[t] == NONE), key=lambda t: (-tasks.gpus[t], tasks.name[t])
        ):
            need = int(tasks.gpus[t])
            fitting = [one for one, room in free.items() if room >= need]
            chosen = min(fitting) if fitting else min(set(range(len(free) + 1)) - free.keys())
            device[t] = chosen
            free[chosen] = free.get(chosen, MILLI) - need
        if running and len(free) + whole > gpus:
            gpus_of[node] = len(free) + whole
            full.append(node)
        elif min(free.values()) < 0 or max(free) >= gpus or len(free) + whole > gpus:
            raise InputError(
                f"{source}: the fractions on node {snapshot.nodes.name[node]!r} do not fit on its "
                f"{gpus} GPUs beside {whole} whole ones; state the GPU of each with 'device'."
            )
    unknown = int((tasks.device[rows] == NONE).sum())
    notes = list(snapshot.notes)
    if unknown:
        notes.append(
            f"{unknown:,} fractions of GPUs have no known GPU, and were assigned largest first"
        )
    if full:
        notes.append(f"nodes whose fractions need more GPUs, whose tasks stay: {len(full):,}")
    tasks = replace(tasks, device=device, locked=tasks.locked | np.isin(tasks.node, full))
    nodes = replace(snapshot.nodes, gpus=gpus_of)
    return replace(snapshot, nodes=nodes, tasks=tasks, notes=notes)
