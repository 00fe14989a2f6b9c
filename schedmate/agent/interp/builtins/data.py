"""Built-in types and functions over plain data: conversions, containers, iteration, numbers."""

from __future__ import annotations

import builtins as python
from collections.abc import Callable

from schedmate.agent.interp import passes
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import identity
from schedmate.agent.interp.objects import RangeOf, as_call, as_instance, as_range
from schedmate.agent.interp.values import enums
from schedmate.agent.interp.values.base import iterate, kind, origin_of, plain_key, truth
from schedmate.agent.interp.values.mappings import fill
from schedmate.agent.interp.values.sequences import in_order
from schedmate.agent.sizes import MAX_BITS, MAX_WORK, VALUE, characters, measure
from schedmate.agent.values import Data, Items, Unknown, Value, lifted, unknown

MAX_DIGITS = 400
"""Longest text read as a number [characters]."""


def _len(machine: Machine, call: Invocation) -> Value:
    owner = as_instance(call.first)
    data = (owner.items if owner is not None and owner.items is not None else call.first).data
    if isinstance(data, str | list | tuple | dict) and id(data) not in machine.gathered:
        return Value(len(data), call.first.origin)
    return passes.length_of(call.first) if call.args else unknown("len")


def _convert(convert_to: Callable[..., Data]) -> Handler:
    def convert(machine: Machine, call: Invocation) -> Value:
        if not call.args:
            return Value(convert_to())
        value, owner = call.args[0], as_instance(call.args[0])
        if owner is not None and "value" in owner.attrs and convert_to is str:
            return owner.attrs["value"]
        if passes.of(value) and convert_to is not str:
            return value
        if kind(value).container or not value.known:
            return unknown(origin=value.origin)
        if convert_to in (int, float) and characters(value.data) > MAX_DIGITS:
            return unknown(origin=value.origin)
        try:
            return machine.made(Value(convert_to(value.data), value.origin))
        except (TypeError, ValueError, OverflowError):
            if machine.expects("ValueError"):
                raise Raised("ValueError") from None
            return unknown(origin=value.origin)

    return convert


def _bool(machine: Machine, call: Invocation) -> Value:
    decided = truth(call.args[0]) if call.args else False
    return (
        unknown() if decided is None else Value(decided, call.args[0].origin if call.args else None)
    )


def _listing(made_of: type[list[Value] | tuple[Value, ...]]) -> Handler:
    def build(machine: Machine, call: Invocation) -> Value:
        if not call.args:
            return Value(made_of())
        items = iterate(enums.members(call.args[0]))
        if items is None:
            return Value(Unknown(), call.args[0].origin)
        return machine.made(Value(made_of(items), call.args[0].origin))

    return build


def _set(machine: Machine, call: Invocation) -> Value:
    """A set, kept as a list of what it holds once each."""
    made = _listing(list)(machine, call) or unknown()
    if made.elements is not None and made.known:
        seen: Items = {}
        for item in made.elements:
            key = plain_key(item)
            seen.setdefault(id(item) if key is None else key, item)
        made.elements[:] = seen.values()
    return made


def _dict(machine: Machine, call: Invocation) -> Value:
    items: Items = {}
    given = kind(call.first)
    if call.args and (given.unknown or given.foreign) and not call.kwargs:
        return unknown(origin=call.first.origin)
    fill(machine, items, call.args, call.kwargs)
    return Value(items)


def _range(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 1:
        parts = (Value(0), call.args[0], Value(1))
    elif len(call.args) >= 2:
        parts = (call.args[0], call.args[1], call.args[2] if len(call.args) > 2 else Value(1))
    else:
        return unknown()
    return Value(RangeOf(*parts), origin_of(*call.args))


def _enumerate(machine: Machine, call: Invocation) -> Value:
    if not call.args:
        return unknown()
    items = iterate(call.args[0])
    start = call.kwargs.get("start", call.args[1] if len(call.args) > 1 else Value(0)).integer
    if items is None or start is None:
        return Value(Unknown(), call.args[0].origin)
    machine.charge(2 * VALUE * len(items))
    return Value([Value((Value(start + i), item)) for i, item in enumerate(items)])


def _zip(machine: Machine, call: Invocation) -> Value:
    columns = []
    for value in call.args:
        columns.append(iterate(value))
        machine.charge(VALUE + len(columns[-1] or ()))
    known = [column for column in columns if column is not None]
    if not columns or len(known) != len(columns):
        counts = [value for value in call.args if as_range(value) is not None]
        return counts[0] if counts else unknown()  # `zip(range(steps), batches)` goes so often
    return Value([Value(tuple(row)) for row in zip(*known, strict=False)])


def _map(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.args[1]) if len(call.args) == 2 else None
    if items is None or len(items) > 500:
        return unknown()
    return Value([machine.call(call.args[0], [item], {}, call.site) for item in items])


def _filter(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.args[1]) if len(call.args) == 2 else None
    if items is None or len(items) > 500:
        return unknown()
    kept = []
    for item in items:
        decided = truth(
            item if call.args[0].data is None else machine.call(call.args[0], [item], {}, call.site)
        )
        if decided is None:
            return unknown()
        if decided:
            kept.append(item)
    return Value(kept)


def _sorted(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.first)
    if items is None:
        made = as_call(call.first)
        return call.first if made is not None and made.path == "glob.glob" else unknown()
    return Value(in_order(machine, items, call.kwargs, call.site))


def _reversed(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.first)
    return unknown() if items is None else machine.made(Value(items[::-1]))


def _numeric(name: str) -> Handler:
    function = getattr(python, name)

    def apply(machine: Machine, call: Invocation) -> Value:
        args = call.args
        if len(args) == 1 and args[0].sequence is not None and name != "abs":
            args = list(args[0].sequence)
            if name == "sum":
                args = [Value(args)]
        key = call.kwargs.get("key")
        if key is not None and name in ("min", "max"):
            items = iterate(args[0]) if len(args) == 1 else args
            ordered = in_order(machine, items or [], {"key": key}, call.site)
            return ordered[0 if name == "min" else -1] if ordered else unknown()
        size = measure(args, plain=True)
        if not args or size is None:
            return passes.same(args) or unknown(origin=origin_of(*args))
        if not _bearable(name, args, size):
            return unknown(origin=origin_of(*args))
        machine.charge(size)
        try:
            return lifted(function(*(value.plain() for value in args)), origin_of(*args))
        except (TypeError, ValueError, OverflowError):
            return unknown(origin=origin_of(*args))

    return apply


def _bearable(name: str, args: list[Value], size: int) -> bool:
    """Whether `round` and `sum` keep to a size: `round(5, -10**9)`, `sum(lists, [])`."""
    last, digits = args[-1], args[-1].integer
    if name == "round" and len(args) > 1:
        return digits is not None and abs(digits) <= MAX_BITS
    if name == "sum" and len(args) > 1 and last.sequence is not None:
        # each addition copies what there is so far
        return size * len(args[0].sequence or ()) <= MAX_WORK
    return True


def _any_all(name: str) -> Handler:
    def apply(machine: Machine, call: Invocation) -> Value:
        items = iterate(call.first)
        if items is None:
            return unknown()
        outcomes = [truth(item) for item in items]
        decisive = name == "any"
        if decisive in outcomes:
            return Value(decisive)
        return unknown() if None in outcomes else Value(not decisive)

    return apply


def _next(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.first)
    if items:
        return items[0]
    return machine.element(call.args[0]) if call.args else unknown()


FUNCTIONS: dict[str, Handler] = {
    "len": _len,
    "int": _convert(int),
    "float": _convert(float),
    "str": _convert(str),
    "repr": _convert(repr),
    "bool": _bool,
    "list": _listing(list),
    "tuple": _listing(tuple),
    "set": _set,
    "frozenset": _set,
    "dict": _dict,
    "range": _range,
    "xrange": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    "map": _map,
    "filter": _filter,
    "sorted": _sorted,
    "reversed": _reversed,
    "min": _numeric("min"),
    "max": _numeric("max"),
    "sum": _numeric("sum"),
    "abs": _numeric("abs"),
    "round": _numeric("round"),
    "any": _any_all("any"),
    "all": _any_all("all"),
    "iter": identity,
    "next": _next,
}
