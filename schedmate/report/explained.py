"""Parameters with their values and their descriptions, from docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple


class Explained(NamedTuple):
    """One parameter: its meaning, unit and source are the docstring under it."""

    name: str
    value: str
    about: str


def explained(parameters: Any) -> list[Explained]:
    """Every field of a dataclass instance that is set, in order."""
    notes = _notes(type(parameters))
    return [
        Explained(one.name, written(value), notes.get(one.name) or _about(value))
        for one in fields(parameters)
        if (value := getattr(parameters, one.name)) not in (None, {}, frozenset(), ())
    ]


def written(value: Any) -> str:
    """A value in a few words, however much it holds."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = [f"{one.name}={written(getattr(value, one.name))}" for one in fields(value)]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Mapping):
        if len(value) > 8:
            return f"{len(value):,} entries"
        return ", ".join(f"{key}: {written(one)}" for key, one in value.items())
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value)))
    return f"{value:,.9g}" if isinstance(value, float) else str(value)


def _about(value: Any) -> str:
    return " ".join((type(value).__doc__ or "").split()) if is_dataclass(value) else ""


def _notes(kind: type) -> dict[str, str]:
    """The string under each field of a class body."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes = {}
    for one, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                notes[one.target.id] = " ".join(str(after.value.value).split())
    return notes
