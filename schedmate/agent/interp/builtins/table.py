"""Python's built-in names."""

from __future__ import annotations

import builtins as python
from typing import TYPE_CHECKING

from schedmate.agent.interp.builtins import data, execution, introspection
from schedmate.agent.interp.objects import (
    Args,
    Instance,
    Kwargs,
    Native,
    NativeFunction,
    Site,
    Symbol,
)
from schedmate.agent.values import Value, unknown

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
    return unknown()


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
