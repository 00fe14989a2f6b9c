"""Members of the repository's enums, each the same object always."""

from __future__ import annotations

from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import (
    Class,
    Instance,
    as_call,
    as_class,
    as_function,
    as_instance,
    path_of,
)
from schedmate.agent.values import Value, unknown


def member_of(cls: Class, args: list[Value]) -> Value:
    """What calling an enum gives: the member that is meant, or what was given."""
    wanted = args[0] if args else unknown()
    for found in by_name(cls).values():
        held = as_instance(found)
        same = held and wanted.known and held.attrs["value"].plain() == wanted.plain()
        if same or found.data is wanted.data:
            return found
    return wanted


def is_member(cls: Class, name: str, value: Value) -> bool:
    """Whether a class attribute is a member of an enum."""
    return (
        as_function(value) is None
        and not name.startswith("_")
        and any(classes.last(base) in classes.ENUMS for base in cls.external_bases())
    )


def members(value: Value) -> Value:
    """What a loop over an enum class goes over; `value` itself for other classes."""
    cls = as_class(value)
    if cls is None or classes.ENUMS.isdisjoint(map(classes.last, cls.external_bases())):
        return value
    return Value(list(by_name(cls).values()), value.origin)


def by_name(cls: Class) -> dict[str, Value]:
    """The members of an enum, none for other classes."""
    return {n: member(cls, n, held) for n, held in cls.attrs.items() if is_member(cls, n, held)}


def member(cls: Class, name: str, value: Value) -> Value:
    """`Class.MEMBER` of an enum: an object with `name` and `value`."""
    if as_call(value) is not None and classes.last(path_of(value)) == "auto":
        numbers = [n for n, held in cls.attrs.items() if is_member(cls, n, held)]
        value = Value(1 + numbers.index(name), value.origin)
    attrs = {"name": Value(name, value.origin), "value": value, "_value_": value}
    return Value(cls.members.setdefault(name, Instance(cls, attrs)), value.origin)
