"""Classes of the repository as values."""

from __future__ import annotations

from typing import Any

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Bound, Class, Function, Symbol
from schedmate.agent.interp.values import construction, enums
from schedmate.agent.interp.values.base import iterate, missing, of, plain_key
from schedmate.agent.interp.values.callables import Invocable
from schedmate.agent.values import Value, unknown


@of(Class)
class Type(Invocable):
    """A class of the repository."""

    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data: Class = base.data
        found = data.lookup(name)
        if found is not None:
            function = found.data
            if isinstance(function, Function) and function.kind == "classmethod":
                return Value(Bound(found, base), found.origin)
            return enums.member(data, name, found) if enums.is_member(data, name, found) else found
        if name in ("__name__", "__qualname__"):
            return Value(data.name, base.origin)
        if name == "__module__":
            return Value(data.module.name)
        if name == "__dict__":
            return Value(data.attrs)
        if name == "__members__":
            members = iterate(enums.members(base)) or []
            return Value({member.data.attrs["name"].data: member for member in members})
        if name in ("__annotations__", "__dataclass_fields__"):
            return Value({key: unknown() for key in construction.fields(machine, data)})
        for external in data.external_bases():
            return Value(Symbol(f"{external}.{name}", base), base.origin)
        return missing(machine, name, "AttributeError")

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        base.data.attrs[name] = value

    def delattr(self, base: Value, name: str) -> None:
        base.data.attrs.pop(name, None)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        key = plain_key(index)
        if isinstance(key, str) and key in base.data.attrs:
            return machine.getattr(base, key)
        return base

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        return construction.instantiate(machine, func.data, call.args, call.kwargs, call.site)

    def key(self, value: Value) -> Any:
        return value.data

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        if name == "__dict__" or value.data.lookup(name) is not None:
            return True
        return False if classes.is_foreign(name) else None

    def class_of(self, value: Value) -> Class | None:
        cls: Class = value.data
        return cls

    def names(self, value: Value) -> set[str] | None:
        found: set[str] = value.data.names()
        return found

    def attributes(self, value: Value) -> Value:
        return Value(value.data.attrs, value.origin)
