"""Python's built-in names."""

from __future__ import annotations

import ast
import builtins as python

from schedmate.agent.interp.builtins import data, execution, introspection
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import (
    Class,
    Instance,
    Native,
    Site,
    Symbol,
)
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Origin, Value, unknown


def _id(machine: Machine, call: Invocation) -> Value:
    return call.args[0] if call.args else unknown()


def _type(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 1:
        data = call.args[0].data
        if isinstance(data, Instance):
            return Value(data.cls)
        if call.args[0].known or isinstance(data, dict | list | tuple):
            name = "NoneType" if data is None else type(data).__name__
            return BUILTINS.get(name, unknown())
    if len(call.args) == 3 and call.args[0].text is not None and call.args[2].mapping is not None:
        return _new_class(machine, call.args[0].data, call.args[1], call.args[2].data, call.site)
    return unknown()


def _new_class(
    machine: Machine, name: str, bases: Value, attrs: dict[str, Value], site: Site
) -> Value:
    """`type(name, bases, attributes)`: a class that no `class` statement makes."""
    node = ast.ClassDef(name, [], [], [], [], lineno=site.line)
    made = Class(name, node, machine.frames[-1].scope, iterate(bases) or [], dict(attrs))
    return Value(made, Origin("code", site.file, site.line))


_FUNCTIONS: dict[str, Handler] = {
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
