"""Modules of the repository as values."""

from __future__ import annotations

from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import native
from schedmate.agent.interp.objects import Module, Symbol
from schedmate.agent.interp.values.base import Kind, kind, of
from schedmate.agent.interp.values.mappings import item
from schedmate.agent.values import Items, Value, unknown
from schedmate.paths import is_dir


@of(Module)
class OwnModule(Kind[Module]):
    """A module, which stands for its `__dict__` and its specification as well."""

    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        found = machine.module_attr(data, name)
        if found is not None:
            return found
        if name == "__dict__":
            return Value(data)
        if name == "__path__" and (is_dir(data.path) or data.path.name == "__init__.py"):
            return Value([Value(str(data.path if is_dir(data.path) else data.path.parent))])
        child = machine.sources.find(f"{data.name}.{name}", None, machine.search_path())
        if child is not None:
            machine.load(child)
            return Value(child)
        if name in ("items", "keys", "values", "get"):
            names = Value(dict(data.scope.names))
            return kind(names).getattr(machine, names, name)
        if name == "loader":
            return Value(data)
        if name == "load_module":
            return native(name, lambda *_: Value(data))
        return Value(Symbol(machine.sources.canonical(f"{data.name}.{name}")))

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        data = self.data(base)
        machine.load(data)
        data.scope.names[name] = value

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        items = self.mapping(machine, base)
        key = index.text
        if key is None:
            return item(machine, base, items, index)
        machine.observer.looks_up(key)
        return machine.module_attr(self.data(base), key) or unknown(key)

    def truth(self, value: Value) -> bool | None:
        return True

    def mapping(self, machine: Machine, value: Value) -> Items:
        data = self.data(value)
        machine.load(data)
        return data.scope.names

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return machine.module_attr(self.data(value), name) is not None

    def attributes(self, value: Value) -> Value:
        return value
