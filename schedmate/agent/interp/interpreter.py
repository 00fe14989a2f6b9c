"""The machine with everything it can do: what it does with each construct is bound here."""

from __future__ import annotations

from posixpath import splitext
from typing import Any

from schedmate.agent.interp import (
    assignment,
    attributes,
    calls,
    expressions,
    items,
    modules,
    statements,
)
from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Instance, Module, Scope, Symbol
from schedmate.agent.values import Unknown, Value, unknown


class Interpreter(Machine):
    """Follows one program from its entry.

    What it does with each construct of Python is a function of its own, bound here as a method.
    """

    evaluate = expressions.evaluate
    follow = statements.execute

    bind = assignment.bind
    assign = assignment.assign
    getattr = attributes.get_attribute
    setattr = assignment.set_attribute
    getitem = items.get_item
    setitem = assignment.set_item

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
        a, b = first.data, second.data
        if a is b:
            return first
        if isinstance(a, Unknown):
            return second if not _scalar(second) else unknown(origin=first.origin)
        if isinstance(b, Unknown):
            return first if not _scalar(first) else unknown(origin=second.origin)
        if a is None or b is None:
            return second if a is None else first
        if first.known and second.known and _scalar(first) and _scalar(second):
            return first if a == b else self._at_hand(first, second)
        return first

    def _at_hand(self, first: Value, second: Value) -> Value:
        """Of two paths to one kind of file the one that is in the repository, else unknown."""
        paths = [value for value in (first, second) if isinstance(value.data, str)]
        kinds = {splitext(value.data)[1] for value in paths}
        if len(paths) == 2 and len(kinds) == 1 and "" not in kinds:
            held = [value for value in paths if self.sources.locate(value.data) is not None]
            if len(held) == 1:
                return held[0]
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

    def element(self, container: Value) -> Value:
        """An item of something whose items are not known."""
        data = container.data
        if isinstance(data, Call):
            return Value(Symbol(f"{data.path}()[]", container), container.origin)
        return unknown(origin=container.origin)

    def mapping(self, value: Value) -> dict[Any, Value] | None:
        """The items of a mapping-like value, None when they are not known."""
        data = value.data
        if isinstance(data, dict):
            return data
        if isinstance(data, Instance):
            if data.items is not None and isinstance(data.items.data, dict):
                return data.items.data
            return None
        if isinstance(data, Module):
            self.load(data)
            return data.scope.names
        return None


def _scalar(value: Value) -> bool:
    return value.data is None or isinstance(value.data, bool | int | float | str | bytes)
