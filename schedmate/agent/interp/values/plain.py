"""Plain data as values: numbers, texts, lists, tuples, ranges and mappings, and what is not known.

Mappings are plain ones, or configuration nodes that are read by attribute as well. Then trees of
values: copies, and conversion between plain mappings and configuration nodes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from schedmate.agent.bounds import (
    MAX_DATA,
    MAX_ITEMS,
    MAX_KEY,
    MAX_NESTING,
    VALUE_WEIGHT,
    fits,
    formatted_length,
    joined_length,
    measure,
    replaced_length,
)
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Class,
    DefaultDict,
    Function,
    Handler,
    Invocation,
    Partial,
    RangeOf,
    Site,
    Symbol,
    as_instance,
    bound,
    modelled,
    native,
)
from schedmate.agent.interp.values import base
from schedmate.agent.interp.values.base import (
    Copies,
    D_co,
    Kind,
    Passes,
    Plain,
    binary_operation,
    iterate,
    kind,
    kind_of,
    not_there,
    plain_key,
    truth,
)
from schedmate.agent.values import (
    UNSAID,
    Data,
    Items,
    Origin,
    Unknown,
    Value,
    begun,
    lifted,
    unknown,
)

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

_NUMBER_METHODS = frozenset(["is_integer", "bit_length", "conjugate"])
_ITSELF = ("real", "numerator")


class Scalar(Plain[D_co]):
    """Values that are one datum, without items: numbers, texts, None."""

    scalar = True


@kind_of(type(None))
class Nothing(Scalar[bytes | None]):
    """The value None."""

    def method(self, base: Value, name: str) -> Value:
        return Value(Symbol(f"?.{name}", base), base.origin)


@kind_of(bytes)
class Bytes(Nothing):
    """Byte strings."""

    hashable = True


@kind_of(bool, int, float)
class Number(Scalar[int | float]):
    """Numbers and truth values."""

    hashable = True

    def method(self, base: Value, name: str) -> Value:
        if name in _NUMBER_METHODS:
            return native(
                name, lambda *_: Value(cast("int", getattr(base.data, name)()), base.origin)
            )
        return base if name in _ITSELF else unknown(name)


# Texts: their methods, where the result keeps to a size.


MAX_CHARACTERS = 2000
"""Characters that going through a text gives."""

_STR = frozenset((
    "lower", "upper", "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "replace",
    "startswith", "endswith", "find", "rfind", "index", "join", "title", "capitalize",
    "casefold", "isdigit", "isnumeric", "isalpha", "isalnum", "isupper", "islower", "count",
    "partition", "rpartition", "removeprefix", "removesuffix", "zfill", "swapcase",
    "isidentifier", "encode", "decode", "format", "center", "ljust", "rjust",
))  # fmt: skip

T_co = TypeVar("T_co", bound=str, covariant=True)

_CODECS = frozenset((
    "utf-8", "utf8", "utf_8", "utf-8-sig", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1",
    "cp1252", "utf-16", "utf-16le", "utf-16be", "utf-32",
))  # fmt: skip
"""Encodings whose time grows with the text alone; punycode and IDNA are quadratic."""
_WIDTHS = ("zfill", "center", "ljust", "rjust")


@kind_of(str)
class Text(Plain[T_co]):
    """Texts, with the methods of `str`."""

    scalar = True
    hashable = True

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        return (
            native(f"str.{name}", _text_method(base, self.data(base), name))
            if name in _STR
            else unknown(name)
        )

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        place, text = index.integer, self.data(base)
        if place is None:
            return super().getitem(machine, base, index)
        if -len(text) <= place < len(text):
            return Value(text[place], base.origin)
        return not_there(machine, str(place), "IndexError")

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        return machine.made(Value(self.data(base)[ends], base.origin))

    def iterate(self, value: Value) -> list[Value] | None:
        return [Value(char, value.origin) for char in self.data(value)[:MAX_CHARACTERS]]


def _text_method(base: Value, text: str, name: str) -> Callable[..., Value]:
    def call(machine: Machine, call: Invocation) -> Value:
        if name == "join" and call.args:
            parts = iterate(call.args[0])
            texts = [part.text for part in parts or () if part.text is not None]
            if parts is None or len(texts) < len(parts) or joined_length(texts, text) > MAX_DATA:
                return unknown(origin=base.origin)
            return machine.made(Value(str(text).join(texts), base.origin))
        if not all(a.known for a in [*call.args, *call.kwargs.values()]):
            start = str(text).split("{", 1)[0] if name == "format" else ""
            return begun(start, base.origin)
        machine.charge(len(text) // 8)
        if not _is_bearable(name, text, call.args, call.kwargs):
            return unknown(origin=base.origin)
        try:
            result = getattr(str(text), name)(
                *(a.plain() for a in call.args), **{k: v.plain() for k, v in call.kwargs.items()}
            )
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            return unknown(origin=base.origin)
        if isinstance(result, list | tuple):
            machine.charge(VALUE_WEIGHT * len(result))
            kind = type(result)
            return Value(kind(Value(item, base.origin) for item in result), base.origin)
        if isinstance(result, str) and len(result) > MAX_DATA:
            return unknown(origin=base.origin)
        return machine.made(Value(result, base.origin))

    return call


def _is_bearable(name: str, text: str, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a method's result will be no longer than a text or list may be."""
    first = args[0] if args else Value(None)
    if name == "format":
        given = [value.data for value in (*args, *kwargs.values())]
        return "{" in text and fits(formatted_length(text, given))
    if name in _WIDTHS:
        return first.integer is not None and first.integer <= 100
    if name in ("encode", "decode"):
        codec = kwargs.get("encoding", first if first.data else Value("utf-8")).text
        return codec is not None and codec.lower() in _CODECS
    if name == "replace" and len(args) > 1 and first.text is not None:
        new = args[1].text
        return new is not None and replaced_length(text, first.text, new) <= MAX_DATA
    if name in ("split", "rsplit", "splitlines") and len(text) > MAX_DATA:
        return _pieces(name, text, kwargs.get("sep", first).text) <= MAX_DATA
    return True


def _pieces(name: str, text: str, separator: str | None) -> int:
    """How many pieces a text is split into at most, counted without making them."""
    if name == "splitlines":
        return 1 + sum(map(text.count, _ENDS))
    if separator:
        return text.count(separator) + 1
    return len(text.split(None, MAX_DATA))


_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters that end a line."""


# Lists (and sets, which are lists of what they hold), tuples, and ranges.


MAX_RANGE = 64
"""Numbers that going through a range gives; a longer one is a count."""


S_co = TypeVar("S_co", list[Value], tuple[Value, ...], covariant=True)


def _list_of(call: Invocation) -> list[Value]:
    """The list whose method is called."""
    return cast("list[Value]", call.owner.data)


def _append(machine: Machine, call: Invocation) -> Value:
    items = _list_of(call)
    if call.args and len(items) < MAX_DATA:
        items.append(call.args[0])
    return Value(None)


def _extend(machine: Machine, call: Invocation) -> Value:
    added, items = iterate(call.first), _list_of(call)
    if added and len(items) + len(added) < MAX_DATA:
        machine.charge(len(added))
        items.extend(added)
    return Value(None)


def _insert(machine: Machine, call: Invocation) -> Value:
    where = call.args[0].integer if len(call.args) == 2 else None
    if where is not None and abs(where) <= MAX_DATA and len(_list_of(call)) < MAX_DATA:
        _list_of(call).insert(where, call.args[1])
    return Value(None)


def _list_pop(machine: Machine, call: Invocation) -> Value:
    index, items = call.args[0].integer if call.args else -1, _list_of(call)
    return items.pop(index) if index is not None and _has_index(items, index) else unknown()


def _list_index(machine: Machine, call: Invocation) -> Value:
    size = measure(call.owner.data)
    if size is None or not call.args or not call.args[0].known:
        return unknown()
    machine.charge(size)
    wanted = call.args[0].plain()
    for index, item in enumerate(call.owner.sequence or ()):
        if item.known and item.plain() == wanted:
            return Value(index, call.owner.origin)
    return unknown()


def _list_remove(machine: Machine, call: Invocation) -> Value:
    index = _list_index(machine, call).integer
    if index is not None:
        _list_of(call).pop(index)
    return Value(None)


def _count(machine: Machine, call: Invocation) -> Value:
    if not (call.owner.known and call.args and call.args[0].known):
        return unknown()
    return Value(call.owner.plain().count(call.args[0].plain()))


def _in_place(name: str) -> Handler:
    """`reverse` and `clear`: Python's own method of the list."""

    def change(machine: Machine, call: Invocation) -> Value:
        getattr(_list_of(call), name)()
        return Value(None)

    return change


def _copy(machine: Machine, call: Invocation) -> Value:
    """`items.copy()` of a list or a mapping."""
    return machine.made(kind(call.owner).copy(call.owner))


def _combined(operator: str) -> Handler:
    """`a.union(b)` of sets, which are lists here, as the operator of this name makes it."""
    op = getattr(ast, operator)

    def combine(machine: Machine, call: Invocation) -> Value:
        result = call.owner
        for value in call.args:
            items = iterate(value)
            if items is None:
                return unknown()
            machine.charge(len(items))
            result = binary_operation(op, result, Value(items), Origin("code"))
        return result

    return combine


def _reorder(machine: Machine, call: Invocation) -> Value:
    items = _list_of(call)
    items[:] = in_order(machine, list(items), call.kwargs, call.site)
    return Value(None)


def in_order(
    machine: Machine, items: list[Value], kwargs: dict[str, Value], site: Site
) -> list[Value]:
    """`items` sorted by `key` and `reverse`; as they are where the order is not known."""
    key = kwargs.get("key", Value(None))
    keys = items
    if key.data is not None and len(items) <= 500:
        keys = [machine.call(key, [item], {}, site) for item in items]
    size = measure(keys, plain=True)
    if size is None:
        return items
    machine.charge(size)
    down = truth(kwargs.get("reverse", Value(False))) is True
    try:
        order = sorted(range(len(items)), key=lambda i: keys[i].plain(), reverse=down)
    except TypeError:
        return items
    return [items[i] for i in order]


_TUPLE = modelled("tuple", globals())


class Sequence(Plain[S_co]):
    """What lists and tuples have in common: items by position."""

    container = True
    methods: ClassVar[dict[str, Handler]] = {}

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        found = self.methods.get(name)
        return bound(base, name, found) if found is not None else unknown(name)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        place, items = index.integer, self.data(base)
        if place is None:
            return super().getitem(machine, base, index)
        return (
            items[place]
            if _has_index(items, place)
            else not_there(machine, str(place), "IndexError")
        )

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        return machine.made(Value(self.data(base)[ends], base.origin))

    def iterate(self, value: Value) -> list[Value] | None:
        return list(self.data(value))

    def parts(self, value: Value) -> Iterable[Value]:
        return self.data(value)

    def converted(self, value: Value, convert: Callable[[Value], Value]) -> Data:
        data = self.data(value)
        return type(data)(map(convert, data))


@kind_of(list)
class List(Sequence[list[Value]]):
    """Lists, and sets, which are kept as lists."""

    methods = _TUPLE | modelled("list", globals())

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        place, items = index.integer, self.data(base)
        if place is not None and _has_index(items, place):
            items[place] = value

    def delitem(self, machine: Machine, base: Value, index: Value) -> None:
        place, items = index.integer, self.data(base)
        if place is not None and _has_index(items, place):
            del items[place]

    def copy(self, value: Value) -> Value:
        return Value(list(self.data(value)), value.origin)

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        same = copies[id(value.data)] = list[Value]()
        same.extend([copied(item) for item in self.data(value)])


@kind_of(tuple)
class Tuple(Sequence[tuple[Value, ...]]):
    """Tuples."""

    methods = _TUPLE

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        copies[id(value.data)] = tuple(copied(item) for item in self.data(value))

    def key(self, value: Value) -> Hashable:
        return cast("Hashable", value.plain()) if _is_key(self.data(value)) else None


def _has_index(items: list[Value] | tuple[Value, ...], index: int) -> bool:
    """Whether there is an item at a place, counted from either end."""
    return -len(items) <= index < len(items)


def _is_key(data: tuple[Value, ...]) -> bool:
    """Whether a tuple is a key: plain, of a modest size and without lists however deep."""
    if measure(data, limit=MAX_KEY, plain=True) is None:
        return False
    return not any(
        kind(item).container and not (isinstance(item.data, tuple) and _is_key(item.data))
        for item in data
    )


@kind_of(RangeOf)
class Range(Kind[RangeOf]):
    """Ranges (`RangeOf`), whose ends may be unknown."""

    def iterate(self, value: Value) -> list[Value] | None:
        data = self.data(value)
        start, stop, step = data.start.integer, data.stop.integer, data.step.integer
        if start is not None and stop is not None and step:
            numbers = range(start, stop, step)
            if not numbers[MAX_RANGE:]:  # a length of over 64 bits cannot even be asked for
                return [Value(number, value.origin) for number in numbers]
        return None


# What is not known, or no more of it than its beginning or how it hangs together.


@kind_of(Unknown, Passes)
class UnknownKind(Kind[Unknown]):
    """Unknown values: whatever is done with one gives another unknown."""

    unknown = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        known = _starts_with(base, self.data(base).text) if name == "startswith" else None
        return known or super().getattr(machine, base, name)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        call.path = f"?{self.data(func).text or ''}"
        return machine.external(call)


def _starts_with(base: Value, text: str | None) -> Value | None:
    """`startswith` of a text that is known up to a variable of the shell: `logs/$RUN`, `$DATA`.

    A variable alone is a word that options are given, and no option.
    """
    if text is None or not ("$" in text or UNSAID in text):
        return None
    prefix = re.split(rf"[$`{UNSAID}]", text, maxsplit=1)[0]

    def call(machine: Machine, call: Invocation) -> Value:
        start = call.first.text
        if start is None:
            return unknown(origin=base.origin)
        if prefix.startswith(start):
            return Value(True, base.origin)
        if not start.startswith(prefix) or (not prefix and start.startswith("-")):
            return Value(False, base.origin)
        return unknown(origin=base.origin)

    return native("str.startswith", call)


# Mappings: plain ones, and configuration nodes that are read by attribute as well.


NAMED_TUPLE = "named tuple"
"""The label of attribute records that are tuples as well."""
M_co = TypeVar("M_co", bound=Items, covariant=True)


def _items_of(call: Invocation) -> Items:
    """The mapping whose method is called."""
    return cast("Items", call.owner.data)


def _get(machine: Machine, call: Invocation) -> Value:
    key, items = plain_key(call.first), _items_of(call)
    if key is None:
        return unknown()
    default = call.argument(1) or call.kwargs.get("default", Value(None))
    found = items.get(key, default)
    if _has_parts(found):
        machine.observer.picks(items, found, call.first)
    return found


def _has_parts(value: Value) -> bool:
    """Whether it is a mapping or an object, which holds settings of its own."""
    return value.mapping is not None or as_instance(value) is not None


def _keys(machine: Machine, call: Invocation) -> Value:
    items = _items_of(call)
    machine.charge(VALUE_WEIGHT * len(items))
    return Value([lifted(key, item.origin) for key, item in items.items()], call.owner.origin)


def _values(machine: Machine, call: Invocation) -> Value:
    return machine.made(Value(list(_items_of(call).values()), call.owner.origin))


def _items(machine: Machine, call: Invocation) -> Value:
    items = _items_of(call)
    machine.charge(2 * VALUE_WEIGHT * len(items))
    pairs = [Value((lifted(key, item.origin), item)) for key, item in items.items()]
    return Value(pairs, call.owner.origin)


def _dict_update(machine: Machine, call: Invocation) -> Value:
    machine.charge(sum(len(machine.mapping(value) or ()) for value in call.args))
    fill_mapping(machine, _items_of(call), call.args, call.kwargs)
    return Value(None)


def _setdefault(machine: Machine, call: Invocation) -> Value:
    key, default = plain_key(call.first), call.argument(1) or Value(None)
    return unknown() if key is None else _items_of(call).setdefault(key, default)


def _dict_pop(machine: Machine, call: Invocation) -> Value:
    key, default, items = plain_key(call.first), call.argument(1) or unknown(), _items_of(call)
    if not machine.certain or key not in items:
        return items.get(key, default)
    found = items.pop(key)
    machine.observer.takes_out(items, key, found)
    return found


_MAPPING_METHODS = modelled("mapping", globals())


@kind_of(dict)
class PlainMapping(Plain[M_co]):
    """Plain mappings (`dict`)."""

    container = True

    def method(self, base: Value, name: str) -> Value:
        """`base.name`, to be called."""
        found = _MAPPING_METHODS.get(name)
        return bound(base, name, found) if found is not None else unknown(name)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        return mapping_item(machine, base, self.data(base), index)

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        key, items = plain_key(index), self.data(base)
        if key is not None and is_overriding(machine, items.get(key), value):
            items[key] = self.as_stored(items, value)

    def as_stored(self, items: Items, value: Value) -> Value:
        """The value that is put into the mapping: `value` itself, for a plain mapping."""
        return value

    def absent(self, machine: Machine, items: Value, base: Value, index: Value) -> Value:
        return not_there(machine, str(plain_key(index)), "KeyError")

    def iterate(self, value: Value) -> list[Value] | None:
        return [lifted(key, item.origin) for key, item in self.data(value).items()]

    def mapping(self, machine: Machine, value: Value) -> Items | None:
        return self.data(value)

    def parts(self, value: Value) -> Iterable[Value]:
        return self.data(value).values()

    def converted(self, value: Value, convert: Callable[[Value], Value]) -> Data:
        same = self.empty(value)
        same.update({key: convert(item) for key, item in self.data(value).items()})
        return same

    def copy(self, value: Value) -> Value:
        return Value(dict(self.data(value)), value.origin)

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        data = self.data(value)
        same = copies[id(data)] = self.empty(value)
        same.update({key: copied(item) for key, item in data.items()})

    def empty(self, value: Value) -> Items:
        """An empty mapping to take the place of this one in a copy."""
        return {}

    def attributes(self, value: Value) -> Value:
        return value


@kind_of(DefaultDict)
class DefaultMapping(PlainMapping[DefaultDict]):
    """Mappings with a factory of missing items (`defaultdict`)."""

    def absent(self, machine: Machine, items: Value, base: Value, index: Value) -> Value:
        key, mapping = plain_key(index), self.data(items)
        if key is None:
            return super().absent(machine, items, base, index)
        mapping[key] = machine.call(mapping.factory, [], {}, NOWHERE)
        return mapping[key]


_READ_AS_A_WHOLE = ("get", "pop", "setdefault", "update")
_OF_NAMESPACES = ("update", "get", "items", "keys", "values", "pop", "setdefault", "copy")


@kind_of(AttrDict)
class ConfigNode(PlainMapping[AttrDict]):
    """A namespace or a configuration node, with the methods that plugins have for its flavour."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        if data.flavour == "namespace":
            # `vars(args).items()` is mostly printed
            machine.observer.reads("*" if name in _READ_AS_A_WHOLE else name)
        if name in data:
            return data[name]
        if name == "__dict__" or (name == "__flags" and data.flavour == "flags"):
            return base
        method = machine.plugins.method(base, name)
        if method is not None:
            return method
        # `vars(namespace)` is the namespace itself here, with the methods of a mapping
        if name in _MAPPING_METHODS and (data.flavour != "namespace" or name in _OF_NAMESPACES):
            return self.method(base, name)
        return not_there(machine, name, "AttributeError")

    def as_stored(self, items: Items, value: Value) -> Value:
        """The value that is put into the node: a mapping becomes a node of the same flavour."""
        flavour = self.data(Value(items)).flavour
        plain = type(value.data) is dict and flavour not in ("namespace", "flags", "record")
        return attr_tree(value, flavour) if plain else value

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        data = self.data(base)
        current = data.get(name)
        if current is not None and current.known and current.data is not None:
            # `args.epochs = ceil(args.steps / len(loader))` is the same length, put otherwise
            number = current.number is not None or current.integer is not None
            unsaid = kind(value).unknown and not _replaces_default(current, value)
            if unsaid or (number and kind(value).foreign):
                return
        if is_overriding(machine, current, value):
            data[name] = self.as_stored(data, value)

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        key, data = plain_key(index), self.data(base)
        if data.label == NAMED_TUPLE and index.integer is not None:
            return machine.getitem(Value(iterate(base)), index)
        if data.flavour == "namespace" and key in data:
            machine.observer.reads(str(key))
        return super().getitem(machine, base, index)

    def absent(self, machine: Machine, items: Value, base: Value, index: Value) -> Value:
        flavour = self.data(items).flavour
        model = machine.plugins.node_method(flavour, "__missing__")
        asked = Invocation("__missing__", [index], {}, NOWHERE, base)
        found = model(machine, asked) if model is not None else None
        if found is not None:
            return found
        if flavour == "open":
            return unknown(str(plain_key(index)))
        return super().absent(machine, items, base, index)

    def iterate(self, value: Value) -> list[Value] | None:
        data = self.data(value)
        if data.label == NAMED_TUPLE:
            return list(data.values())
        return super().iterate(value)

    def copy(self, value: Value) -> Value:
        data = self.data(value)
        return Value(AttrDict(dict(data), data.flavour, data.label), value.origin)

    def empty(self, value: Value) -> Items:
        data = self.data(value)
        return AttrDict({}, data.flavour, data.label)

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return name in self.data(value) or name in _MAPPING_METHODS


def mapping_item(machine: Machine, base: Value, items: Items, index: Value) -> Value:
    """`base[index]` of what has these items."""
    key = plain_key(index)
    if key not in items:
        container = Value(items)
        return kind(container).absent(machine, container, base, index)
    item = items[key]
    if index.text is not None and isinstance(item.data, Class | Function | Partial):
        machine.observer.looks_up(index.text)
    elif _has_parts(item):
        machine.observer.picks(items, item, index)
    return item


def is_overriding(machine: Machine, held: Value | None, value: Value) -> bool:
    """Whether an assignment replaces what is held: in doubt, a known value stays."""
    return machine.certain or held is None or held.data is None or not held.known


def _replaces_default(current: Value, value: Value) -> bool:
    """Whether a default gives way to what was set: `args.steps = args.epochs * len(loader)`."""
    count = base.passes_of(value)
    counted = count.epochs if count is not None else None
    sources = [v.origin.source if v.origin is not None else "" for v in (current, counted) if v]
    return len(sources) == 2 and sources[0] == "default" and sources[1] not in ("default", "code")


def fill_mapping(
    machine: Machine, items: Items, args: list[Value], kwargs: dict[str, Value]
) -> None:
    """Put into `items` what `dict(*args, **kwargs)` has."""
    for value in args:
        mapping = machine.mapping(value)
        if mapping is not None:
            items.update(mapping)
            continue
        pairs = [iterate(pair) or [] for pair in iterate(value) or []]
        for key, item in (pair for pair in pairs if len(pair) == 2):
            if (name := plain_key(key)) is not None:
                items[name] = item
    items.update(kwargs)


# Trees of values: copies, and configuration nodes for mappings, read by attribute as well.


def attr_tree(value: Value, flavour: str) -> Value:
    """A copy of a tree whose mappings are all readable by attribute; unknown where too large."""
    return _rebuilt(value, lambda items: AttrDict(items, flavour))


def plain_tree(value: Value) -> Value:
    """A copy of a tree whose mappings are all plain, down to the leaves; unknown if too large."""
    return _rebuilt(value, lambda items: items)


def _rebuilt(value: Value, mapping: Callable[[Items], Items]) -> Value:
    """A copy of a tree with other mappings; what is shared is copied for each place it has."""
    if measure(value.data) is None:
        return unknown(origin=value.origin)

    def build(value: Value) -> Value:
        items = value.mapping
        if items is not None:
            return Value(mapping({k: build(item) for k, item in items.items()}), value.origin)
        if value.sequence is not None:
            return Value(kind(value).converted(value, build), value.origin)
        return value

    return build(value)


def is_bounded(value: Value) -> bool:
    """Whether a value and the objects in it come to a tree that is not too large."""
    return _is_spread_within(value, [MAX_ITEMS], 0)


def _is_spread_within(value: Value, left: list[int], depth: int) -> bool:
    left[0] -= 1
    if left[0] < 0 or depth > MAX_NESTING:
        return False
    return all(_is_spread_within(part, left, depth + 1) for part in kind(value).parts(value))


def deep_copy(value: Value) -> Value:
    """A copy that shares nothing mutable with the original, as `copy.deepcopy` makes it.

    What is the same object in several places of the original is one object in the copy as well.
    """
    copies: dict[int, Data] = {}

    def copied(value: Value) -> Value:
        if id(value.data) not in copies:
            kind(value).deep_copy(value, copies, copied)
        return Value(copies.get(id(value.data), value.data), value.origin)

    return copied(value)


def as_config(value: Value, file: str) -> Value:
    """The same tree, its literals of `file` said to come from a configuration file.

    Unknown where it is too large.
    """
    if measure(value.data) is None:
        return unknown(origin=value.origin)

    def convert(value: Value) -> Value:
        origin = value.origin
        if origin is not None and origin.source == "code" and origin.file == file:
            origin = Origin("config", file, origin.line, origin.text)
        return Value(kind(value).converted(value, convert), origin)

    return convert(value)


def replace_items(target: Value, source: Value) -> None:
    """Give a mapping the items of another one, in place."""
    if target.mapping is not None and source.mapping is not None:
        items = dict(source.mapping)
        target.mapping.clear()
        target.mapping.update(items)
