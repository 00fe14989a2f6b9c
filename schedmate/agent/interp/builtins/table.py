"""Python's built-in names."""

from __future__ import annotations

import ast
import builtins as python

from schedmate.agent.interp.builtins import data, execution, introspection
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import identity
from schedmate.agent.interp.objects import Class, Native, Site, Symbol, as_instance
from schedmate.agent.interp.values.base import iterate, kind
from schedmate.agent.values import Origin, Value, unknown


def _type(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 1:
        value = call.args[0]
        owner = as_instance(value)
        if owner is not None:
            return Value(owner.cls)
        if kind(value).container or value.known:
            name = "NoneType" if value.data is None else type(value.data).__name__
            return BUILTINS.get(name, unknown())
    if len(call.args) == 3:
        title, attrs = call.args[0].text, call.args[2].mapping
        if title is not None and attrs is not None:
            return _new_class(machine, title, call.args[1], attrs, call.site)
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
    "compile": identity,
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
