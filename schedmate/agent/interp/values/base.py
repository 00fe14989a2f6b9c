"""What Python's operations do with a value, by its kind.

A kind is a class without state; the value that it is asked about is an argument. `KINDS` holds one
for each type of data: plain data's, and the stand-ins' of `objects.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar, Generic, TypeAlias, TypeVar

from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Class, Symbol
from schedmate.agent.values import Data, Items, Origin, Unknown, Value, unknown

D_co = TypeVar("D_co", covariant=True)
K = TypeVar("K", bound="type[Kind[object]]")


class Kind(Generic[D_co]):
    """A kind of value of which nothing is known: what most kinds answer to most questions.

    Its parameter is the type of the data of its values.
    """

    container: ClassVar[bool] = False
    """Whether it is plain data that holds other values."""
    scalar: ClassVar[bool] = False
    """Whether it is a single plain datum, or None."""
    symbolic: ClassVar[bool] = False
    """Whether it stands for one thing of the program, which is itself and no other."""
    unknown: ClassVar[bool] = False
    """Whether nothing is known of it."""
    hashable: ClassVar[bool] = False
    """Whether its data is a key of mappings as it is."""
    foreign: ClassVar[bool] = False
    """Whether it is a library's."""
    callable_: ClassVar[bool | None] = None
    """Whether it can be called, None where plain data decides."""
    hands_on: ClassVar[bool] = True
    """Whether what a call of it is given counts as handed to something."""

    def data(self, value: Value) -> D_co:
        """The data of a value of this kind."""
        return value.data  # type: ignore[return-value]  # `KINDS` goes by its type

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        """`base.name`."""
        return Value(Symbol(f"?.{name}", base), base.origin)

    def method(self, base: Value, name: str) -> Value:
        """`base.name` of plain data, mostly to be called."""
        return unknown(name)

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        """`base.name = value`."""

    def delattr(self, base: Value, name: str) -> None:
        """`del base.name`, as `delattr` does it."""

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        """`base[index]`."""
        return Value(Unknown(), base.origin)

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        """`base[index] = value`."""

    def delitem(self, machine: Machine, base: Value, index: Value) -> None:
        """`del base[index]`."""
        items, key = self.mapping(machine, base), plain_key(index)
        if items is not None and key is not None:
            items.pop(key, None)

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        """`base[start:stop:step]`."""
        return unknown(origin=base.origin)

    def absent(self, machine: Machine, items: Value, base: Value, index: Value) -> Value:
        """`base[index]` where `items`, a value of this kind, are those of `base` and lack it."""
        return unknown(origin=base.origin)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        """`func(...)`; the invocation has no path yet."""
        call.path = "?"
        return machine.external(call)

    def truth(self, value: Value) -> bool | None:
        """Whether it is true, None when that cannot be decided."""
        return None

    def iterate(self, value: Value) -> list[Value] | None:
        """The items that going through it gives, None when they are not known."""
        return None

    def element(self, container: Value) -> Value:
        """An item of something whose items are not known."""
        return unknown(origin=container.origin)

    def mapping(self, machine: Machine, value: Value) -> Items | None:
        """Its items by key where it is like a mapping and they are known."""
        return None

    def key(self, value: Value) -> Hashable:
        """The value as a key of a mapping, None when it is none."""
        return value.data if self.hashable else None  # type: ignore[return-value]

    def is_same(self, one: Value, other: Value) -> bool | None:
        """Whether it and another symbolic value are the same thing."""
        return one.data is other.data

    def equals(self, value: Value, plain: Value) -> bool | None:
        """Whether it equals plain data, though it is none; None when that cannot be decided."""
        return None

    def parts(self, value: Value) -> Iterable[Value]:
        """The values that it holds, for going through all of a tree."""
        return ()

    def converted(self, value: Value, convert: Callable[[Value], Value]) -> Data:
        """The data of a container like it, whose items are what `convert` makes of its own."""
        return value.data

    def copy(self, value: Value) -> Value:
        """A copy that shares its items."""
        return value

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        """Put the copy of a mutable thing, or of what holds some, into `copies`."""

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        """`hasattr(value, name)`, None when it cannot be decided."""
        if value.known:
            return False if name == "__dict__" else hasattr(value.data, name)
        return None

    def class_of(self, value: Value) -> Class | None:
        """The class of the repository that it is an object of, or that it is."""
        return None

    def names(self, value: Value) -> set[str] | None:
        """The names that `dir` lists, None where they are not known."""
        return None

    def attributes(self, value: Value) -> Value:
        """`vars(value)`."""
        return unknown()


class Plain(Kind[D_co]):
    """Plain data."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        if name == "__class__" and (self.container or base.known):
            return machine.builtin(type(base.data).__name__) or unknown(name)
        return self.method(base, name)

    def truth(self, value: Value) -> bool | None:
        return bool(value.data)


Copies: TypeAlias = dict[int, Data]
"""Copies by the `id` of what they are copies of."""
ANYTHING: Kind[object] = Kind()
KINDS: dict[type, Kind[object]] = {}


def of(*types: type) -> Callable[[K], K]:
    """Declare a class the kind of values whose data is of these types."""

    def declare(kind: K) -> K:
        KINDS.update(dict.fromkeys(types, kind()))
        return kind

    return declare


def kind(value: Value) -> Kind[object]:
    """The kind of a value."""
    return KINDS.get(type(value.data), ANYTHING)


def truth(value: Value) -> bool | None:
    """Whether `value` is true; None when that cannot be decided."""
    return KINDS.get(type(value.data), ANYTHING).truth(value)


def iterate(value: Value | None) -> list[Value] | None:
    """The items that iterating over `value` gives, None when they are not known."""
    return kind(value).iterate(value) if value is not None else None


def plain_key(value: Value) -> Hashable:
    """`value` as a dict key, None when it is not known or not hashable."""
    return KINDS.get(type(value.data), ANYTHING).key(value)


def copy_shallow(value: Value) -> Value:
    """A copy of a container or an object that shares its items."""
    return KINDS.get(type(value.data), ANYTHING).copy(value)


def several(value: Value) -> list[Value]:
    """The items of a sequence, or the one value there is."""
    return list(value.sequence) if value.sequence is not None else [value]


def missing(machine: Machine, name: str, error: str) -> Value:
    """What is not there: an error where the program expects it, else unknown."""
    if machine.certain and machine.expects(error):
        raise Raised(error)
    return unknown(name)


def set_path(machine: Machine, base: Value, names: list[str], value: Value) -> None:
    """`base.first.second = value`."""
    for name in names[:-1]:
        base = machine.getattr(base, name)
    machine.setattr(base, names[-1], value)


_FIRST = {"command": 0, "script": 0, "environment": 1, "config": 2, "default": 3, "launch": 10}


def origin_of(*values: Value) -> Origin | None:
    """The most telling origin among operands: what a user set, before what the code says.

    The size of the launch comes last: `lr * world_size` comes from where `lr` is set.
    """
    best: Origin | None = None
    for value in values:
        origin = value.origin
        if origin is not None and (
            best is None or _FIRST.get(origin.source, 9) < _FIRST.get(best.source, 9)
        ):
            best = origin
    return best
