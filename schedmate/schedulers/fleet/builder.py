"""Rows of nodes and tasks, as documents and tables have them, to the columns of a snapshot."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from schedmate.errors import InputError, did_you_mean
from schedmate.schedulers.fleet.devices import on_devices
from schedmate.schedulers.fleet.faults import check
from schedmate.schedulers.fleet.snapshot import (
    MILLI,
    NONE,
    UNLIMITED,
    FleetSnapshot,
    Nodes,
    Tasks,
)

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
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = len(self.values)
            self.values.append(key if value is None else value)
        return found


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
            avoid = _list(row.get("avoid"))
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

    def build(self, origin: str = "unstated", notes: Iterable[str] = ()) -> FleetSnapshot:
        """The snapshot, after a check that no node holds more than it has."""
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
        check(snapshot, self.source)
        return on_devices(snapshot, self.source)

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
    found = {name: np.frombuffer(column, np.int64) for name, column in numbers.items()}
    return found | {name: np.frombuffer(column, np.int32) for name, column in codes.items()}


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


def _list(value: Any) -> list[str]:
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
