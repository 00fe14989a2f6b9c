"""Things of libraries, known by their dotted path, and what calling them gave."""

from __future__ import annotations

import re

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Symbol, as_symbol, is_own
from schedmate.agent.interp.values.base import Kind, iterate, of, plain_key
from schedmate.agent.values import Value

_RECORD = re.compile(r"\w(Config|Args|Arguments|Options|Settings|Hparams|Namespace)$")
"""Classes of libraries that keep what they are given under the names that it was given by."""


@of(Symbol)
class Name(Kind[Symbol]):
    """Something of a library."""

    foreign = True
    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        module, _, last = data.path.rpartition(".")
        if name in ("__name__", "__module__") and data.base is None and last[:1].isupper():
            return Value(last if name == "__name__" else module)
        path = machine.sources.canonical(f"{data.path}.{name}")
        return symbol(machine, path) if data.base is None else Value(Symbol(path, data.base))

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        if f"{self.data(base).path}.{name}" == "sys.argv":
            machine.argv = iterate(value) or machine.argv

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        data = self.data(base)
        known = machine.plugins.item(machine, base, data.path, index)
        if known is not None:
            return known
        return Value(Symbol(f"{data.path}[]", data.base or base), base.origin)

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        key = index.text
        if self.data(base).path == "os.environ" and key is not None and machine.certain:
            machine.environ[key] = value
            if len(machine.frames) == 1:  # for the whole program, not for one of its processes
                machine.shared.setdefault("os.environ", {})[key] = value

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        call.path, call.base = data.path, data.base
        return machine.external(call)

    def is_same(self, one: Value, other: Value) -> bool | None:
        same = as_symbol(other)
        if same is None:
            return False
        return True if self.data(one).path == same.path else None

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return False if classes.is_foreign(name) else None


@of(Call)
class Made(Kind[Call]):
    """What a call of a library's callable gave."""

    foreign = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        if name in data.attrs:
            return data.attrs[name]
        if name in data.kwargs and _RECORD.search(data.path):
            return data.kwargs[name]
        known = machine.plugins.name(machine, f"{data.path}().{name}")
        if known is None:
            known = machine.plugins.missing(machine, data, name)
        return known or Value(Symbol(f"{data.path}().{name}", base), base.origin)

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        self.data(base).attrs[name] = value

    def delattr(self, base: Value, name: str) -> None:
        self.data(base).attrs.pop(name, None)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        data = self.data(base)
        key = plain_key(index)
        if key in data.attrs:
            return data.attrs[key]
        suffix = f"[{key!r}]" if index.text is not None else "[]"
        return Value(Symbol(f"{data.path}(){suffix}", base), base.origin)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        if _wraps(machine, data):
            return machine.call(data.args[0], call.args, call.kwargs, call.site)
        call.path, call.base = f"{data.path}()", func
        return machine.external(call)

    def truth(self, value: Value) -> bool | None:
        return True if self.data(value).path == "re.Match" else None

    def element(self, container: Value) -> Value:
        return Value(Symbol(f"{self.data(container).path}()[]", container), container.origin)


def _wraps(machine: Machine, made: Call) -> bool:
    """Whether a library's wrapper was given a class or function: called, it makes the same."""
    inner = made.args[0] if made.args else None
    name = as_symbol(inner)
    callable_ = name.path.rpartition(".")[2][:1].isupper() if name else is_own(inner)
    return callable_ and f"{made.path}()" not in machine.plugins.calls


def symbol(machine: Machine, path: str) -> Value:
    """A library's name; what stands for it when that is known."""
    constant = machine.plugins.name(machine, path)
    return constant if constant is not None else Value(Symbol(path))
