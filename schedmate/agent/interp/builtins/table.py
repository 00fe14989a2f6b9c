"""Python's built-in names."""

from __future__ import annotations

import ast
import builtins as python
from typing import TYPE_CHECKING

from schedmate.agent.interp.builtins import data, execution, introspection
from schedmate.agent.interp.objects import (
    Args,
    Class,
    Instance,
    Kwargs,
    Native,
    NativeFunction,
    Site,
    Symbol,
)
from schedmate.agent.interp.values_ops import iterate
from schedmate.agent.values import Origin, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


def _id(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    return args[0] if args else unknown()


def _type(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if len(args) == 1:
        data = args[0].data
        if isinstance(data, Instance):
            return Value(data.cls)
        if args[0].known or isinstance(data, dict | list | tuple):
            name = "NoneType" if data is None else type(data).__name__
            return BUILTINS.get(name, unknown())
    if len(args) == 3 and isinstance(args[0].data, str) and isinstance(args[2].data, dict):
        return _new_class(state, args[0].data, args[1], args[2].data, site)
    return unknown()


def _new_class(state: State, name: str, bases: Value, attrs: dict[str, Value], site: Site) -> Value:
    """`type(name, bases, attributes)`: a class that no `class` statement makes."""
    node = ast.ClassDef(name, [], [], [], [], lineno=site.line)
    made = Class(name, node, state.frames[-1].scope, iterate(bases) or [], dict(attrs))
    return Value(made, Origin("code", site.file, site.line))


_FUNCTIONS: dict[str, NativeFunction] = {
    **introspection.FUNCTIONS,
    **data.FUNCTIONS,
    **execution.FUNCTIONS,
    "type": _type,
    "compile": _id,
}

BUILTINS: dict[str, Value] = {
    name: Value(Native(name, function)) for name, function in _FUNCTIONS.items()
}
BUILTINS.update(
    {
        name: Value(Symbol(name))
        for name in dir(python)
        if name not in BUILTINS and not name.startswith("_")
    }
)
BUILTINS["True"], BUILTINS["False"], BUILTINS["None"] = Value(True), Value(False), Value(None)
BUILTINS["NoneType"] = Value(Symbol("NoneType"))
BUILTINS["unicode"] = BUILTINS["str"]
