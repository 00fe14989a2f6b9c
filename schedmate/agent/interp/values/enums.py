"""Members of the repository's enums, each the same object always."""

from __future__ import annotations

from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Call, Class, Function, Instance
from schedmate.agent.values import Value, unknown


def member_of(cls: Class, args: list[Value]) -> Value:
    """What calling an enum gives: the member that is meant, or what was given."""
    wanted = args[0] if args else unknown()
    for name, value in cls.attrs.items():
        if is_member(cls, name, value):
            found = member(cls, name, value)
            same = wanted.known and found.data.attrs["value"].plain() == wanted.plain()
            if same or found.data is wanted.data:
                return found
    return wanted


def is_member(cls: Class, name: str, value: Value) -> bool:
    """Whether a class attribute is a member of an enum."""
    return (
        not isinstance(value.data, Function)
        and not name.startswith("_")
        and any(classes.last(base) in classes.ENUMS for base in cls.external_bases())
    )


def members(value: Value) -> Value:
    """What a loop over an enum class goes over; `value` itself for other classes."""
    cls = value.data
    if not isinstance(cls, Class) or classes.ENUMS.isdisjoint(
        classes.last(base) for base in cls.external_bases()
    ):
        return value
    found = [
        member(cls, name, held) for name, held in cls.attrs.items() if is_member(cls, name, held)
    ]
    return Value(found, value.origin)


def member(cls: Class, name: str, value: Value) -> Value:
    """`Class.MEMBER` of an enum: an object with `name` and `value`."""
    if isinstance(value.data, Call) and classes.last(value.data.path) == "auto":
        numbers = [n for n, held in cls.attrs.items() if is_member(cls, n, held)]
        value = Value(1 + numbers.index(name), value.origin)
    attrs = {"name": Value(name, value.origin), "value": value, "_value_": value}
    return Value(cls.members.setdefault(name, Instance(cls, attrs)), value.origin)
