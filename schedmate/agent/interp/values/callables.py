"""Functions and methods of the repository, and what stands for them."""

from __future__ import annotations

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    Bound,
    Class,
    Function,
    Native,
    Partial,
    Site,
    Symbol,
    as_function,
)
from schedmate.agent.interp.values.base import D_co, Kind, of
from schedmate.agent.values import Value, unknown


class Invocable(Kind[D_co]):
    """Something that can be called."""

    callable_ = True

    def truth(self, value: Value) -> bool | None:
        return True


@of(Function)
class Own(Invocable[Function]):
    """A function of the repository."""

    symbolic = True
    hashable = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        if name in ("__name__", "__qualname__"):
            return Value(data.name, base.origin)
        if name in ("main", "callback") or data.decorators:
            return Value(Symbol(f"?{data.name}.{name}", base), base.origin)
        return unknown(name)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        return machine.call_function(self.data(func), call.args, call.kwargs, call.site)

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return True if name == "__dict__" else None


@of(Native)
class Modelled(Invocable[Native]):
    """A function that schedmate models itself."""

    symbolic = True
    hands_on = False

    def is_same(self, one: Value, other: Value) -> bool | None:
        return isinstance(other.data, Native) and self.data(one).name == other.data.name

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        call.path = data.name
        answer = data.model(machine, call)
        return answer if answer is not None else unknown()


@of(Bound)
class Method(Invocable[Bound]):
    """A method bound to its object."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        return machine.getattr(self.data(base).func, name)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        args, function = [data.self, *call.args], as_function(data.func)
        if function is not None:
            return machine.call_function(function, args, call.kwargs, call.site)
        return machine.call(data.func, args, call.kwargs, call.site)


@of(Partial)
class WithArguments(Invocable[Partial]):
    """A function of which some arguments are given."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        known = {"func": data.func, "args": Value(tuple(data.args)), "keywords": Value(data.kwargs)}
        return known.get(name, unknown(name))

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        kwargs = {**data.kwargs, **call.kwargs}
        return machine.call(data.func, [*data.args, *call.args], kwargs, call.site)


def bind(machine: Machine, found: Value, owner: Value, cls: Class) -> Value:
    """What an object of `cls` has under the name of a class attribute."""
    function = as_function(found)
    if function is None or function.kind == "staticmethod":
        return found
    if function.kind == "property":
        return machine.call_function(function, [owner], {}, Site(function.module.file, 1))
    if function.kind == "classmethod":
        return Value(Bound(found, Value(cls)), found.origin)
    return Value(Bound(found, owner), found.origin)
