"""The machine with everything it can do: what it does with each construct is bound here."""

from __future__ import annotations

from posixpath import splitext

from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.evaluate import assignment, calls, expressions, modules, statements
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Scope
from schedmate.agent.interp.values.base import kind
from schedmate.agent.values import Items, Value, unknown


class Interpreter(Machine):
    """Follows one program from its entry.

    What it does with each construct of Python is a function of its own, bound here as a method.
    """

    evaluate = expressions.evaluate
    follow = statements.execute

    bind = assignment.bind
    assign = assignment.assign
    call = calls.call
    call_function = calls.call_function
    external = calls.external

    import_module = modules.import_module
    search_path = modules.search_path
    load = modules.load
    run_module = modules.run_module
    module_attr = modules.module_attr

    def join(self, first: Value, second: Value) -> Value:
        """One value for two ways the program may have gone."""
        a, b = kind(first), kind(second)
        if first.data is second.data:
            return first
        if a.unknown:
            return unknown(origin=first.origin) if b.scalar else second
        if b.unknown:
            return unknown(origin=second.origin) if a.scalar else first
        if first.data is None or second.data is None:
            return second if first.data is None else first
        if a.scalar and b.scalar and first.known and second.known:
            return first if first.data == second.data else self._at_hand(first, second)
        return first

    def _at_hand(self, first: Value, second: Value) -> Value:
        """Of two paths to one kind of file the one that is in the repository, else unknown."""
        endings = {splitext(value.text or "")[1] for value in (first, second)}
        if len(endings) == 1 and "" not in endings:
            there = [v for v in (first, second) if self.sources.locate(v.text or "") is not None]
            if len(there) == 1:
                return there[0]
        return unknown(origin=first.origin)

    def lookup(self, name: str, scope: Scope) -> Value:
        current: Scope | None = scope
        while current is not None:
            if name in current.names and name not in current.globals_:
                return current.names[name]
            current = current.parent
        module_scope = scope.module.scope
        if name in module_scope.names:
            return module_scope.names[name]
        for star in module_scope.stars:
            found = self.module_attr(star, name)
            if found is not None:
                return found
        builtin = BUILTINS.get(name)
        if builtin is not None:
            return builtin
        return unknown(name)

    def builtin(self, name: str) -> Value | None:
        return BUILTINS.get(name)

    def getattr(self, base: Value, name: str) -> Value:
        known = self.plugins.attribute(self, base, name)
        return known if known is not None else kind(base).getattr(self, base, name)

    def setattr(self, base: Value, name: str, value: Value) -> None:
        kind(base).setattr(self, base, name, value)

    def getitem(self, base: Value, index: Value) -> Value:
        return kind(base).getitem(self, base, index)

    def setitem(self, base: Value, index: Value, value: Value) -> None:
        kind(base).setitem(self, base, index, value)

    def mapping(self, value: Value | None) -> Items | None:
        return kind(value).mapping(self, value) if value is not None else None

    def element(self, container: Value) -> Value:
        return kind(container).element(container)
