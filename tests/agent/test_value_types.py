"""The interpreter's values are typed: what they hold is a closed union, asked by kind."""

from __future__ import annotations

import ast
from pathlib import Path

import schedmate.agent.interp
from schedmate.agent.interp.values.base import KINDS, kind
from schedmate.agent.values import Data, StandIn, Value

INTERP = Path(schedmate.agent.interp.__file__).parent
LIBRARIES = "libs"
"""The package that knows libraries; all else in `interp/` knows values alone."""
CEILING = 13
"""Calls of `isinstance` in 1,000 lines."""


def _core() -> list[Path]:
    return [
        path
        for path in sorted(INTERP.rglob("*.py"))
        if path.parent.name != LIBRARIES and path.name != "machine.py"
    ]


def test_what_a_value_holds_is_asked_of_its_kind() -> None:
    """A ladder of `isinstance` belongs into a method of the kinds, or an accessor with a name."""
    lines, calls = 0, 0
    for path in INTERP.rglob("*.py"):
        text = path.read_text()
        lines += text.count("\n")
        calls += sum(
            isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
            for node in ast.walk(ast.parse(text))
        )
    assert lines > 5000
    assert calls / lines * 1000 < CEILING


def test_the_core_never_gives_up_the_type_of_a_value() -> None:
    """`machine.py` alone names `Any`, for what plugins keep in it from call to call."""
    named = [
        f"{path.relative_to(INTERP)}:{node.lineno}"
        for path in _core()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    assert not named
    assert Value.__annotations__["data"] == "Data"


def test_every_stand_in_of_the_interpreter_has_a_kind() -> None:
    """Data that no kind is declared for would be asked as if nothing were known of it."""
    from schedmate.agent.interp import objects

    stand_ins = {
        cls
        for cls in vars(objects).values()
        if isinstance(cls, type) and issubclass(cls, StandIn) and cls is not StandIn
    }
    without = {cls.__name__ for cls in stand_ins - KINDS.keys()}
    assert without == set()
    plain: list[Data] = [None, True, 1, 1.0, "text", b"bytes", {}, [], ()]
    assert all(kind(Value(data)).container or kind(Value(data)).scalar for data in plain)
