"""Resolvers that are plain choices, and all others, which are never followed."""

from __future__ import annotations

import ast

import pytest

from schedmate.agent.configs.choices import plain_choice
from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.values import Unknown, Value, lifted


def function(text: str) -> ast.Lambda | ast.FunctionDef:
    node = ast.parse(text).body[0]
    if isinstance(node, ast.Expr):
        assert isinstance(node.value, ast.Lambda)
        return node.value
    assert isinstance(node, ast.FunctionDef)
    return node


@pytest.mark.parametrize(
    ("text", "given", "chosen"),
    [
        ("lambda a, b: a if b == '' else b", [1, ""], 1),
        ("lambda a, b: a if b == '' else b", [1, 2], 2),
        ("lambda a, b: a or b", [None, 3], 3),
        ("lambda a, b: b if a is None else a", [0, 3], 0),
        ("lambda t, a, b: a if t else b", [False, 1, 2], 2),
        ("lambda a, b: a.lower() in b.upper().lower()", ["Ant", "an ANT"], True),
        ("lambda a: not a", [0], True),
        ("def pick(a, b):\n    'which'\n    return a if a > b else b", [4, 7], 7),
    ],
)
def test_choices(text: str, given: list[object], chosen: object) -> None:
    choice = plain_choice(function(text))

    assert choice is not None
    found = choice.of([Value(item) for item in given])
    assert found is not None
    assert found.data == chosen


@pytest.mark.parametrize(
    "text",
    [
        "lambda a: eval(a)",
        "lambda a: open(a).read()",
        "lambda a: a.format()",
        "lambda a: a.lower().mro()",
        "lambda a, b: a * b",
        "lambda a: [a for _ in range(9)]",
        "lambda a: other",
        "lambda *a: a",
        "lambda a, b=1: b",
        "def f(a):\n    import os\n    return a",
        "lambda a: " + " or ".join(["a"] * 99),
    ],
)
def test_what_does_more_is_no_choice(text: str) -> None:
    assert plain_choice(function(text)) is None


@pytest.mark.parametrize("given", [[1], [1, 2, 3], [[], 2]])
def test_arguments_that_do_not_fit(given: list[object]) -> None:
    choice = plain_choice(function("lambda a, b: a.lower() == b"))

    assert choice is not None
    assert choice.of([Value(item) for item in given]) is None


def test_an_unknown_resolver_keeps_its_text() -> None:
    choice = plain_choice(function("lambda a, b: a or b"))
    assert choice is not None
    config = lifted({"a": "${pick:0,7}", "b": "${eval:'1+1'}", "c": "${pick:1}"})

    found = resolve_interpolations(config, choices={"pick": choice}).data

    assert found["a"].data == 7
    assert found["b"].data == Unknown("${eval:'1+1'}")
    assert found["c"].data == Unknown("${pick:1}")
