"""draccus: configuration classes chosen by name, `--policy.type act`."""

from __future__ import annotations

import ast

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import parse_flags
from schedmate.agent.interp.libs.cli.records import attributes, make_record
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Class, as_call, as_class, as_instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.syntax import last_name, nodes
from schedmate.agent.values import Value, unknown

_REGISTER = "register_subclass"
_REGISTERED = "draccus choices"


def choose(machine: Machine, record: Value, argv: list[Value]) -> list[Value]:
    """Put the chosen classes' objects into a record's fields; gives the arguments that remain."""
    rest = list(argv)
    for name, values, flag in parse_flags(argv)[0]:
        field, dot, kind = name.replace("-", "_").rpartition(".")
        owner = as_instance(record)
        if not dot or kind != "type" or not values or owner is None:
            continue
        base = _declared(machine, owner.cls, field)
        chosen = _choices(machine, base).get(str(values[0].data)) if base is not None else None
        if chosen is None:
            continue
        made = make_record(machine, chosen)
        attributes(made).setdefault("type", values[0])
        attributes(record)[field] = made
        rest = [token for token in rest if token is not flag and token is not values[0]]
    return rest


def _declared(machine: Machine, cls: Class, field: str) -> Class | None:
    """The class of the repository that a field's annotation names."""
    for current in cls.mro():
        annotation = current.annotations.get(field)
        for node in nodes([annotation] if annotation is not None else [], ast.expr):
            named = last_name(node) is not None
            declared = as_class(machine.evaluate(node, current.scope)) if named else None
            if declared is not None:
                return declared
    return None


def _choices(machine: Machine, base: Class) -> dict[str, Value]:
    held: dict[str, Value] = dict(machine.shared.get(_REGISTERED, {}).get(base, {}))
    for _, value, cls in machine.sources.defined(Class):
        for decorator in cls.decorators if base in cls.mro() else ():
            made = as_call(decorator)
            if made is not None and made.path.endswith(f".{_REGISTER}"):
                name = made.args[0] if made.args else made.kwargs.get("name", unknown())
                held[str(name.data)] = value
    return held


def register(machine: Machine, call: Invocation) -> Value | None:
    """`Base.register_subclass("name", Chosen)`; as a decorator it is found at the class."""
    base = as_class(call.base)
    name, chosen = call.argument(0, "choice_name", "name"), call.argument(1, "choice_cls")
    if base is not None and name is not None and chosen is not None:
        registered = machine.shared.setdefault(_REGISTERED, {})
        registered.setdefault(base, {})[str(name.data)] = chosen
        return chosen
    return None


def choice_class(machine: Machine, call: Invocation) -> Value | None:
    """`Base.get_choice_class("name")`."""
    base = as_class(call.base)
    name = call.argument(0, "choice_name", "name")
    if base is None or name is None:
        return None
    return _choices(machine, base).get(str(name.data))


PLUGIN = Plugin(calls={f"*.{_REGISTER}": register, "*.get_choice_class": choice_class})
