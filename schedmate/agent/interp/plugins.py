"""How models of libraries join the machine: what one says of its library, and all of them.

A plugin is asked by what the program calls things: dotted paths, in which `()` marks the result of
a call and `?` something unknown. `*.name` is a method of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import bound
from schedmate.agent.interp.objects import Call, Class, Function, as_node
from schedmate.agent.values import Value

T = TypeVar("T")
Attribute: TypeAlias = Callable[[Machine, Value], Value | None]
Item: TypeAlias = Callable[[Machine, Value, Value], Value | None]

ANY = "*"
"""The flavour whose methods all configuration nodes have, but those of flavours listed."""


def _none() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What schedmate knows of one library.

    Attributes:
        calls: models of what is called, by dotted path.
        names: what dotted names stand for.
        methods: methods of configuration nodes, by their flavour; `__missing__` answers for an item
            that is not there. A flavour listed here has no methods of `ANY`.
        attributes: what an attribute of any value is, by its name.
        items: what an item of a library's thing is, by the thing's path or its beginning.
        types: the data that stands for instances of a library's class.
        defaults: documented values of the fields of a configuration class, by its path.
        stands_for: the path of the library's class that a class is a copy of, by the names of its
            methods and its module.
        otherwise: the answer to a call that nothing models.
        missing: an attribute that nothing knows of a call's result.
        arguments: what the library gives a function or class that its caller does not.
        on_constructed: the object, where a class built on the library's was constructed and that is
            all that there is to follow.
        on_defined: hears of decorated functions.
        on_enter: what calling a decorated function without arguments gives, by one decorator.
    """

    calls: Mapping[str, Handler] = field(default_factory=_none)
    names: Mapping[str, Callable[[Machine], Value | None]] = field(default_factory=_none)
    methods: Mapping[str, Mapping[str, Handler]] = field(default_factory=_none)
    attributes: Mapping[str, Attribute] = field(default_factory=_none)
    items: Mapping[str, Item] = field(default_factory=_none)
    types: Mapping[str, tuple[type, ...]] = field(default_factory=_none)
    defaults: Callable[[str], dict[str, Value]] | None = None
    stands_for: Callable[[set[str]], str | None] | None = None
    otherwise: Handler | None = None
    missing: Callable[[Machine, Call, str], Value | None] | None = None
    arguments: Callable[[Machine, Function | Class], dict[str, Value]] | None = None
    on_constructed: Callable[[Machine, Value, Invocation], Value | None] | None = None
    on_defined: Callable[[Machine, Function], None] | None = None
    on_enter: Callable[[Machine, Function, Value], Value | None] | None = None


class TwiceError(ValueError):
    """Two plugins model the same thing."""


class Registry:
    """All plugins, asked as one; `companions.Plugins` says what each question means.

    Args:
        plugins: each in the order in which it is asked; no two may model the same path.

    Raises:
        TwiceError: two of them do.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self.calls: dict[str, Handler] = self._one_each("calls")
        self.names: dict[str, Callable[[Machine], Value | None]] = self._one_each("names")
        self._methods: dict[str, Mapping[str, Handler]] = self._one_each("methods")
        self._attributes: dict[str, Attribute] = self._one_each("attributes")
        self._items: dict[str, Item] = self._one_each("items")
        self.types: dict[str, tuple[type, ...]] = self._one_each("types")
        self._defaults = [p.defaults for p in self.plugins if p.defaults]
        self._stands_for = [p.stands_for for p in self.plugins if p.stands_for]
        self._otherwise = [p.otherwise for p in self.plugins if p.otherwise]
        self._missing = [p.missing for p in self.plugins if p.missing]
        self._arguments = [p.arguments for p in self.plugins if p.arguments]
        self._on_constructed = [p.on_constructed for p in self.plugins if p.on_constructed]
        self._on_defined = [p.on_defined for p in self.plugins if p.on_defined]
        self._on_enter = [p.on_enter for p in self.plugins if p.on_enter]

    def _one_each(self, table: str) -> dict[str, Any]:
        """What all plugins say in one of their tables."""
        found: dict[str, Any] = {}
        for plugin in self.plugins:
            said: Mapping[str, Any] = getattr(plugin, table)
            for path, model in said.items():
                if path in found:
                    raise TwiceError(f"two plugins have {path!r} among their {table}")
                found[path] = model
        return found

    def model(self, path: str) -> Handler | None:
        """The model of what is called at `path`."""
        found = self.calls.get(path)
        if found is None and "." in path:
            found = self.calls.get("*." + path.rsplit(".", 1)[-1])
        return found

    def name(self, machine: Machine, path: str) -> Value | None:
        known = self.names.get(path)
        return known(machine) if known is not None else None

    def attribute(self, machine: Machine, base: Value, name: str) -> Value | None:
        asked = self._attributes.get(name)
        return asked(machine, base) if asked is not None else None

    def missing(self, machine: Machine, base: Call, name: str) -> Value | None:
        return _first(asked(machine, base, name) for asked in self._missing)

    def item(self, machine: Machine, base: Value, path: str, index: Value) -> Value | None:
        asked = self._items.get(path) or self._items.get(path[: path.rfind(".") + 1])
        return asked(machine, base, index) if asked is not None else None

    def node_method(self, flavour: str, name: str) -> Handler | None:
        table = self._methods.get(flavour)
        return (self._methods.get(ANY, {}) if table is None else table).get(name)

    def method(self, base: Value, name: str) -> Value | None:
        node = as_node(base)
        if node is None or (node.flavour == "namespace" and not name.startswith("_")):
            return None
        found = self.node_method(node.flavour, name)
        return bound(base, name, found) if found is not None else None

    def otherwise(self, machine: Machine, call: Invocation) -> Value | None:
        return _first(asked(machine, call) for asked in self._otherwise)

    def defaults(self, path: str) -> dict[str, Value]:
        return next((found for asked in self._defaults if (found := asked(path))), {})

    def stands_for(self, names: set[str]) -> str | None:
        return _first(asked(names) for asked in self._stands_for)

    def arguments(self, machine: Machine, target: Function | Class) -> dict[str, Value]:
        given: dict[str, Value] = {}
        for asked in self._arguments:
            given |= asked(machine, target)
        return given

    def constructed(self, machine: Machine, instance: Value, call: Invocation) -> Value | None:
        return _first(asked(machine, instance, call) for asked in self._on_constructed)

    def defined(self, machine: Machine, function: Function) -> None:
        for handler in self._on_defined:
            handler(machine, function)

    def enter(self, machine: Machine, function: Function) -> Value | None:
        return _first(
            asked(machine, function, decorator)
            for decorator in function.decorators
            for asked in self._on_enter
        )


def _first(answers: Iterable[T | None]) -> T | None:
    """The first answer that is one."""
    return next((answer for answer in answers if answer is not None), None)
