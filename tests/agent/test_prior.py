"""The table of points: every row is used, every use has a row, and no points stand in code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedmate.agent.fields import prior
from schedmate.data import PACKAGE, load

FIELDS = PACKAGE / "agent/fields"
TABLE = load("agent/fields/prior.yaml")
SECTIONS = {name: points.section for name, points in vars(prior).items()
            if isinstance(points, prior.Points)}  # fmt: skip


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(FIELDS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            yield path, node


def section_of(node: ast.AST) -> str | None:
    """The section that `prior.loop` is."""
    match node:
        case ast.Attribute(value=ast.Name(id="prior"), attr=name):
            return SECTIONS[name]
    return None


def chosen_of(key: ast.expr) -> Iterator[str]:
    """The rows that `"a"` and `"a" if condition else "b"` may be."""
    match key:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from chosen_of(body)
            yield from chosen_of(other)


def rows_used() -> Iterator[tuple[str, str]]:
    for _, node in nodes():
        match node:
            case ast.Subscript(value=table, slice=key) if section := section_of(table):
                yield from ((section, text) for text in chosen_of(key))
            case ast.Call(
                func=ast.Attribute(value=table, attr="sure"), args=[ast.Constant(value=row), _]
            ) if section := section_of(table):
                yield section, str(row)
                yield section, f"{row} unsure"


def test_every_row_that_code_asks_for_is_in_the_table() -> None:
    used = set(rows_used())
    assert len(used) > 200
    assert [(section, row) for section, row in used if row not in TABLE[section]] == []


def test_every_row_is_asked_for_and_says_what_it_means() -> None:
    used = set(rows_used())
    texts = {n.value for _, n in nodes() if isinstance(n, ast.Constant)}
    for section, rows in TABLE.items():
        for row, (number, meaning) in rows.items():
            # some are chosen by a variable: what stands in the code all the same, or a source
            assert (section, row) in used or row in texts, f"{section}: {row}"
            assert isinstance(number, int | float)
            assert len(meaning) > 5 or meaning == "the same"


def _is_number(node: ast.AST | None) -> bool:
    match node:
        case ast.Constant(value=int() | float() as value):
            return not isinstance(value, bool) and value != 0
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) or _is_number(right)
        case ast.IfExp(body=body, orelse=other):
            return _is_number(body) or _is_number(other)
    return False


def test_no_points_stand_in_code() -> None:
    """Neither a candidate's first points, nor what is added to them, nor what they must reach."""
    found = []
    for path, node in nodes():
        match node:
            case (
                ast.Call(
                    func=ast.Name(id="Candidate" | "Length" | "length_of"), args=[_, _, score, *_]
                )
                | ast.Call(func=ast.Name(id="counted"), args=[_, score, *_])
            ):
                literal = _is_number(score)
            case ast.AugAssign(target=ast.Name(id="score") | ast.Attribute(attr="score"), value=by):
                literal = _is_number(by)
            case ast.Assign(targets=[ast.Name(id="score")], value=value):
                literal = _is_number(value)
            case ast.Compare(left=ast.Attribute(attr="score"), comparators=[limit]):
                literal = _is_number(limit)
            case _:
                continue
        if literal:
            found.append(f"{path.relative_to(FIELDS)}:{node.lineno}")
    assert found == []


def test_a_row_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        prior.loop["no such row"]
