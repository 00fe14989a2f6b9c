"""What a Jsonnet tree comes to: lazily, with objects that inherit, and never without bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from schedmate.agent.configs.files import ConfigError, Source
from schedmate.agent.configs.jsonnet import standard
from schedmate.agent.configs.jsonnet.parser import Field, Node
from schedmate.agent.values import Unknown, Value, unknown

MAX_STEPS = 50_000
MAX_DEPTH = 60
"""Evaluations inside each other."""
MAX_ITEMS = 10_000

Import: TypeAlias = Callable[[Path, str], tuple[Node, Source] | None]


@dataclass(slots=True)
class Scope:
    """Names in reach, the file they are written in, and the object that `self` means."""

    source: Source
    names: dict[str, Thunk]
    this: Object | None = None
    below: int = 0
    root: Object | None = None

    def inner(self, names: dict[str, Thunk]) -> Scope:
        return Scope(self.source, self.names | names, self.this, self.below, self.root)


@dataclass(slots=True)
class Thunk:
    """A value that is found when it is wanted; one that wants itself is unknown."""

    find: Callable[[], Value]
    found: Value | None = None
    busy: bool = False

    def value(self) -> Value:
        if self.found is None:
            if self.busy:
                return unknown()
            self.busy = True
            try:
                self.found = self.find()
            finally:
                self.busy = False
        return self.found


@dataclass(slots=True)
class Layer:
    """One `{...}`: its fields by name, its own names, and where it is written."""

    fields: dict[str, Field]
    bound: dict[str, Node]
    scope: Scope


@dataclass(slots=True)
class Object:
    """Layers, the last laid upon those before; fields are found from the whole."""

    layers: tuple[Layer, ...]
    found: dict[tuple[str, int], Value] = field(default_factory=dict)

    def names(self) -> Iterator[str]:
        """The fields that are shown, in order: hidden once, hidden in what is laid upon it."""
        order = dict.fromkeys(name for layer in self.layers for name in layer.fields)
        for name in order:
            if not any(layer.fields[name].hidden for layer in self.layers if name in layer.fields):
                yield name


@dataclass(slots=True)
class Function:
    parameters: dict[str, Node | None]
    body: Node
    scope: Scope


class Evaluator:
    """Evaluates one document and what it imports."""

    def __init__(self, imported: Import, variables: Mapping[str, Value]) -> None:
        self._imported = imported
        self.variables = variables
        self._steps = 0
        self._depth = 0

    def document(self, tree: Node, source: Source) -> Value:
        """The whole value of a document, with the origin of every leaf."""
        return self.whole(self.value(tree, Scope(source, {})), 0)

    def whole(self, value: Value, depth: int) -> Value:
        """A value with everything below it found."""
        self._step(None, 0)
        data = value.data
        if depth > MAX_DEPTH or isinstance(data, Function):
            return unknown(origin=value.origin)
        if isinstance(data, Object):
            shown = {name: self.field(data, name) for name in data.names()}
            items = {name: self.whole(item, depth + 1) for name, item in shown.items()}
            return Value(items, value.origin)
        if isinstance(data, list):
            return Value([self.whole(item.value(), depth + 1) for item in data], value.origin)
        return value

    def value(self, node: Node, scope: Scope) -> Value:
        """The value of a node; unknown for what is not understood."""
        self._step(scope.source, node.line)
        if self._depth > MAX_DEPTH:
            return unknown()
        self._depth += 1
        try:
            found: Value = getattr(self, f"_{node.kind}")(node, scope)
        finally:
            self._depth -= 1
        return found

    def _step(self, source: Source | None, line: int) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            message = "takes too long to read; write its values plainly"
            raise source.error(message, line) if source is not None else ConfigError(message)

    def later(self, node: Node, scope: Scope) -> Thunk:
        return Thunk(lambda: self.value(node, scope))

    def _plain(self, node: Node, scope: Scope) -> Value:
        return Value(node.parts[0], scope.source.origin(node.line))

    def _unread(self, node: Node, scope: Scope) -> Value:
        return unknown(origin=scope.source.origin(node.line))

    def _variable(self, node: Node, scope: Scope) -> Value:
        thunk = scope.names.get(node.parts[0])
        return thunk.value() if thunk is not None else unknown(node.parts[0])

    def _self(self, node: Node, scope: Scope) -> Value:
        return Value(scope.this) if scope.this is not None else unknown("self")

    def _root(self, node: Node, scope: Scope) -> Value:
        return Value(scope.root) if scope.root is not None else unknown("$")

    def _super(self, node: Node, scope: Scope) -> Value:
        return unknown("super")  # alone it means nothing

    def _local(self, node: Node, scope: Scope) -> Value:
        bound, body = node.parts
        return self.value(body, self._binding(bound, scope))

    def _binding(self, bound: dict[str, Node], scope: Scope) -> Scope:
        inner = scope.inner({})
        for name, value in bound.items():
            inner.names[name] = self.later(value, inner)
        return inner

    def _if(self, node: Node, scope: Scope) -> Value:
        test, then, other = node.parts
        chosen = self.value(test, scope).data
        if not isinstance(chosen, bool):
            return unknown(origin=scope.source.origin(node.line))
        return self.value(then if chosen else other, scope)

    def _function(self, node: Node, scope: Scope) -> Value:
        parameters, body = node.parts
        return Value(Function(parameters, body, scope), scope.source.origin(node.line))

    def _import(self, node: Node, scope: Scope) -> Value:
        found = self._imported(scope.source.path, node.parts[0])
        return self.value(found[0], Scope(found[1], {})) if found is not None else unknown()

    def _importstr(self, node: Node, scope: Scope) -> Value:
        return unknown(node.parts[0], scope.source.origin(node.line))

    def _array(self, node: Node, scope: Scope) -> Value:
        items = [self.later(item, scope) for item in node.parts]
        return Value(items, scope.source.origin(node.line))

    def _each(self, node: Node, scope: Scope) -> Value:
        body, loops = node.parts
        items = [self.later(body, inner) for inner in self._rounds(loops, scope)]
        return Value(items, scope.source.origin(node.line))

    def _rounds(self, loops: list[tuple[str | None, Node]], scope: Scope) -> list[Scope]:
        rounds = [scope]
        for name, node in loops:
            following: list[Scope] = []
            for inner in rounds:
                data = self.value(node, inner).data
                if name is None:
                    following += [inner] if data is True else []
                elif isinstance(data, list):
                    following += [inner.inner({name: item}) for item in data]
                if len(following) > MAX_ITEMS:
                    raise scope.source.error(f"makes more than {MAX_ITEMS:,} items; shorten it")
            rounds = following
        return rounds

    # -- objects ---------------------------------------------------------------

    def _object(self, node: Node, scope: Scope) -> Value:
        fields, bound, loops = node.parts
        layers = []
        for inner in self._rounds(loops, scope) if loops else [scope]:
            named: dict[str, Field] = {}
            for one in fields:
                name = self.value(one.name, inner).data
                if isinstance(name, str):
                    named[name] = one
            layers.append(Layer(named, bound, inner))
        return Value(Object(tuple(layers)), scope.source.origin(node.line))

    def field(self, this: Object, name: str, below: int | None = None) -> Value:
        """A field of an object, or of its first `below` layers (`super`)."""
        limit = len(this.layers) if below is None else below
        at = next((i for i in range(limit - 1, -1, -1) if name in this.layers[i].fields), None)
        if at is None:
            return unknown(name)
        if (name, at) not in this.found:
            this.found[name, at] = unknown(name)  # while it is being found
            layer = this.layers[at]
            scope = Scope(layer.scope.source, layer.scope.names, this, at)
            scope.root = layer.scope.root or this
            one = layer.fields[name]
            value = self.value(one.value, self._binding(layer.bound, scope))
            if one.upon:
                under = self.field(this, name, at)
                value = value if isinstance(under.data, Unknown) else self.added(under, value)
            this.found[name, at] = value
        return this.found[name, at]

    def _index(self, node: Node, scope: Scope) -> Value:
        base, key = node.parts
        name = self.value(key, scope).data
        if base.kind == "super" and scope.this is not None and isinstance(name, str):
            return self.field(scope.this, name, scope.below)
        data = self.value(base, scope).data
        if isinstance(data, Object) and isinstance(name, str):
            return self.field(data, name)
        if isinstance(data, list | str) and isinstance(name, int) and 0 <= name < len(data):
            found = data[name]
            return found.value() if isinstance(found, Thunk) else Value(found)
        return unknown(origin=scope.source.origin(node.line))

    # -- operators and calls ---------------------------------------------------

    def added(self, left: Value, right: Value) -> Value:
        """`left + right`: numbers, texts, arrays, or an object laid upon another."""
        if isinstance(left.data, Object) and isinstance(right.data, Object):
            return Value(Object((*left.data.layers, *right.data.layers)), right.origin)
        if isinstance(left.data, list) and isinstance(right.data, list):
            return Value([*left.data, *right.data][:MAX_ITEMS], right.origin)
        return standard.binary("+", left, right)

    def _binary(self, node: Node, scope: Scope) -> Value:
        operator, left, right = node.parts
        first = self.value(left, scope)
        if operator in ("&&", "||") and first.data is (operator == "||"):
            return first
        second = self.value(right, scope)
        if operator == "+":
            found = self.added(first, second)
        elif operator == "in":
            held = second.data
            known = isinstance(held, Object) and isinstance(first.data, str)
            found = (
                Value(any(first.data in one.fields for one in held.layers)) if known else unknown()
            )
        elif operator == "%" and isinstance(first.data, str):
            found = standard.formatted(first, self.whole(second, 0))
        else:
            found = standard.binary(operator, first, second)
        return Value(found.data, found.origin or scope.source.origin(node.line))

    def _unary(self, node: Node, scope: Scope) -> Value:
        operator, value = node.parts
        return standard.unary(operator, self.value(value, scope), scope.source.origin(node.line))

    def _call(self, node: Node, scope: Scope) -> Value:
        called, given, named = node.parts
        origin = scope.source.origin(node.line)
        if called.kind == "index" and called.parts[0].kind == "variable":
            module, name = called.parts[0].parts[0], called.parts[1].parts[0]
            if module == "std" and "std" not in scope.names:
                values = [self.value(one, scope) for one in (*given, *named.values())]
                if name == "extVar" and values:
                    return self.variables.get(str(values[0].data), unknown(str(values[0].data)))
                found = standard.call(name, [self.whole(value, 0) for value in values])
                return Value(_thunks(found.data), found.origin or origin)
        function = self.value(called, scope).data
        if not isinstance(function, Function):
            return unknown(origin=origin)
        return self.value(function.body, self._given(function, given, named, scope))

    def _given(
        self, function: Function, given: list[Node], named: dict[str, Node], scope: Scope
    ) -> Scope:
        inner = function.scope.inner({})
        told = dict(zip(function.parameters, given, strict=False)) | named
        for name, default in function.parameters.items():
            if name in told:
                inner.names[name] = self.later(told[name], scope)
            elif default is not None:
                inner.names[name] = self.later(default, inner)
            else:
                inner.names[name] = Thunk(unknown)
        return inner


def _thunks(data: Any) -> Any:
    """What the library gives, as the evaluator holds it."""
    if not isinstance(data, list):
        return data
    return [Thunk(partial(Value, _thunks(item.data), item.origin)) for item in data]
