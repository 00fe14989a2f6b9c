"""Construction of objects of the repository's classes, and the fields of records."""

from __future__ import annotations

from schedmate.agent.interp import classes
from schedmate.agent.interp.flow import BudgetSpent
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Class,
    Function,
    Instance,
    Site,
    as_call,
    as_instance,
    as_symbol,
)
from schedmate.agent.interp.values import enums
from schedmate.agent.interp.values.mappings import fill
from schedmate.agent.values import Origin, Unknown, Value


def fields(machine: Machine, cls: Class) -> dict[str, Value]:
    """A record class's fields with their default values, inherited ones first."""
    found: dict[str, Value] = {}
    for base in reversed(cls.external_bases()):
        found.update(machine.plugins.defaults(base))
    for current in reversed(cls.mro()):
        for name in current.annotations:
            default = current.attrs.get(name)
            line = current.lines.get(name)
            origin = Origin("default", current.module.file, line)
            if default is None:
                found.setdefault(name, Value(Unknown(name), origin))
                continue
            found[name] = _field_default(machine, default, origin, current)
        for name, value in current.attrs.items():
            if name in found and name not in current.annotations and value.known:
                found[name] = value
    return found


def _field_default(machine: Machine, default: Value, origin: Origin, cls: Class) -> Value:
    data = as_call(default)
    if data is not None and classes.last(data.path) in classes.FIELDS:
        given = data.kwargs.get("default")
        if given is None and data.args and classes.last(data.path) != "subparsers":
            given = data.args[0]
        factory = data.kwargs.get("default_factory") or data.kwargs.get("factory")
        if given is None and factory is not None:
            made = machine.call(factory, [], {}, Site(cls.module.file, origin.line or 1))
            return Value(made.data, origin)
        if given is None and classes.last(data.path) in ("list_field", "mutable_field"):
            return Value(list(data.args), origin)
        return Value(Unknown() if given is None or _is_missing(given) else given.data, origin)
    if isinstance(default.data, Instance | AttrDict | Call):
        return default
    return Value(Unknown() if _is_missing(default) else default.data, origin)


def _is_missing(value: Value) -> bool:
    """Whether it stands for no default: `dataclasses.MISSING`, `omegaconf.MISSING`."""
    symbol = as_symbol(value)
    return symbol is not None and "MISSING" in symbol.path


def instantiate(
    machine: Machine, cls: Class, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """Construct an object as far as that can be followed."""
    externals = [classes.last(base) for base in cls.external_bases()]
    if not classes.ENUMS.isdisjoint(externals):
        return enums.member_of(cls, args)
    instance = Instance(cls, args=args, kwargs=kwargs)
    if not classes.MAPPINGS.isdisjoint(externals):
        instance.items = Value({})
    elif not classes.LISTS.isdisjoint(externals):
        instance.items = Value([])
    value = Value(instance, Origin("code", site.file, site.line))
    call = Invocation(classes.qualified(cls), args, kwargs, site)
    machine.observer.called(machine, call, value, cls)
    if externals:
        made = machine.plugins.constructed(machine, value, call)
        if made is not None:
            return made
    machine.observer.constructs(instance)
    init = cls.method("__init__")
    if classes.is_record(cls) and init is None:
        instance.attrs.update(_record_arguments(machine, cls, args, kwargs))
        after = cls.method("__post_init__")
        if after is not None:
            machine.call_function(after, [value], {}, site)
        return value
    if instance.mapping is not None and cls.lookup("__init__") is None:
        fill(machine, instance.mapping, args, kwargs)
    if init is not None:
        if classes.is_network(cls):
            _run_network(machine, cls, init, [value, *args], kwargs, site)
        else:
            machine.call_function(init, [value, *args], kwargs, site)
    elif (maker := cls.method("__new__")) is not None:
        made = machine.call_function(maker, [Value(cls), *args], kwargs, site)
        if as_instance(made) is not None:
            return made
    return value


def _run_network(
    machine: Machine,
    cls: Class,
    init: Function,
    args: list[Value],
    kwargs: dict[str, Value],
    site: Site,
) -> None:
    """Follow a network's constructor a little way: its parts matter less than its name."""
    if len(machine.networks) >= 2:
        return
    machine.networks.append(cls.name)
    limit = machine.step_limit
    machine.step_limit = min(limit, machine.steps + machine.limits.network_steps)
    try:
        machine.call_function(init, args, kwargs, site)
    except BudgetSpent:
        if machine.steps > limit or machine.out_of_time():
            raise
    finally:
        machine.step_limit = limit
        machine.networks.pop()


def _record_arguments(
    machine: Machine, cls: Class, args: list[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    values = fields(machine, cls)
    names = list(values)
    values.update(machine.plugins.arguments(machine, cls))
    for name, value in zip(names, args, strict=False):
        values[name] = value
    values.update(kwargs)
    return values
