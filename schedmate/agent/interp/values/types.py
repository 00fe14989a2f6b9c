"""Classes of the repository as values."""

from __future__ import annotations

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Bound, Class, Symbol, as_function
from schedmate.agent.interp.values import construction, enums
from schedmate.agent.interp.values.base import missing, of
from schedmate.agent.interp.values.callables import Invocable
from schedmate.agent.values import Value, unknown


@of(Class)
class Type(Invocable[Class]):
    """A class of the repository."""

    symbolic = True
    hashable = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        found = data.lookup(name)
        if found is not None:
            function = as_function(found)
            if function is not None and function.kind == "classmethod":
                return Value(Bound(found, base), found.origin)
            return enums.member(data, name, found) if enums.is_member(data, name, found) else found
        if name in ("__name__", "__qualname__"):
            return Value(data.name, base.origin)
        if name == "__module__":
            return Value(data.module.name)
        if name == "__dict__":
            return Value(data.attrs)
        if name == "__members__":
            return Value(enums.by_name(data))
        if name in ("__annotations__", "__dataclass_fields__"):
            return Value({key: unknown() for key in construction.fields(machine, data)})
        for external in data.external_bases():
            return Value(Symbol(f"{external}.{name}", base), base.origin)
        return missing(machine, name, "AttributeError")

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        self.data(base).attrs[name] = value

    def delattr(self, base: Value, name: str) -> None:
        self.data(base).attrs.pop(name, None)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        key = index.text
        if key is not None and key in self.data(base).attrs:
            return machine.getattr(base, key)
        return base

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        return construction.instantiate(machine, self.data(func), call.args, call.kwargs, call.site)

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        if name == "__dict__" or self.data(value).lookup(name) is not None:
            return True
        return False if classes.is_foreign(name) else None

    def class_of(self, value: Value) -> Class | None:
        return self.data(value)

    def names(self, value: Value) -> set[str] | None:
        return self.data(value).names()

    def attributes(self, value: Value) -> Value:
        return Value(self.data(value).attrs, value.origin)
