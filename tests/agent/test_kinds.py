"""Every kind of data has one class that says what Python's operations do with it."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.agent.interp import objects
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import NOWHERE
from schedmate.agent.interp.program import registry
from schedmate.agent.interp.source import Sources
from schedmate.agent.interp.trace import Watcher
from schedmate.agent.interp.values import classes, files
from schedmate.agent.interp.values.base import KINDS, Passes, iterate, kind, plain_key, truth
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import StandIn, Unknown, Value, lifted, unknown

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder: Path = tmp_path_factory.mktemp("repo")
    sources = Sources([folder], Repo(folder))
    return Machine(sources, registry(), {}, Watcher(), [], {})


def test_every_stand_in_and_all_plain_data_have_a_kind() -> None:
    stand_ins = {
        cls
        for module in (objects, classes, files)
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__ == module.__name__
        if issubclass(cls, StandIn | dict | str)
    }
    plain = {type(None), bool, int, float, str, bytes, list, tuple, dict}
    assert KINDS.keys() == stand_ins | plain | {Unknown, Passes}


@given(DATA)
def test_plain_data_is_as_true_and_as_long_as_in_python(data: object) -> None:
    value = lifted(data)
    assert truth(value) is bool(data)
    items = iterate(value)
    expected = list(data) if isinstance(data, str | list | tuple | dict) else None
    assert (None if items is None else [item.plain() for item in items]) == expected


@given(DATA)
def test_what_can_be_a_key_in_python_is_one(data: object) -> None:
    key = plain_key(lifted(data))
    try:
        hash(data)
    except TypeError:
        assert key is None
    else:
        assert key == data


@given(st.lists(SCALARS, max_size=5), st.integers(-7, 7))
def test_items_of_sequences(machine: Machine, data: list[object], index: int) -> None:
    for sequence in (data, tuple(data)):
        found = machine.getitem(lifted(sequence), Value(index))
        if -len(data) <= index < len(data):
            assert found.plain() == data[index]
        else:
            assert isinstance(found.data, Unknown)


@given(st.dictionaries(st.text(max_size=2), SCALARS, max_size=4), st.text(max_size=2))
def test_items_of_mappings(machine: Machine, data: dict[str, object], key: str) -> None:
    value = lifted(data)
    machine.setitem(value, Value(key), Value("new"))
    assert machine.getitem(value, Value(key)).plain() == "new"
    assert value.plain() == {**data, key: "new"}
    copied = kind(value).copy(value)
    machine.setitem(copied, Value("another key"), Value(1))
    assert "another key" not in value.data


@given(DATA)
def test_what_is_no_function_is_called_without_harm(machine: Machine, data: object) -> None:
    result = machine.call(lifted(data), [Value(1)], {}, NOWHERE)
    assert not result.known


def test_nothing_is_known_of_what_is_unknown(machine: Machine) -> None:
    value = unknown("x")
    assert truth(value) is None
    assert iterate(value) is None
    assert plain_key(value) is None
    assert kind(value).has(machine, value, "lr") is None
    assert machine.getattr(value, "lr").plain() is None
    assert machine.getitem(value, Value(0)).plain() is None
