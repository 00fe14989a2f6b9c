"""Functions whose parameters are the command line, as fire and argbind make them."""

from __future__ import annotations

import ast
from typing import Any

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import flag_origin, parse_flags, plain_scalar
from schedmate.agent.interp.libs.cli.records import cast
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Bound, Class, Function, Site, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.values import Unknown, Value, lifted, unknown


def call_with_flags(
    machine: Machine, function: Value, argv: list[Value], owner: Value | None = None
) -> Value:
    """Call a repository function with its parameters set from flags and positionals."""
    assert isinstance(function.data, Function)
    spec = function.data.node.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    annotations = {
        a.arg: ast.unparse(a.annotation) if a.annotation is not None else ""
        for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)
    }
    if owner is not None:
        names = names[1:]
    holder: dict[Any, Value] = {}
    for name in names:
        if name in function.data.defaults:
            holder[name] = function.data.defaults[name]
    flags, loose = parse_flags(argv)
    extra: dict[str, Value] = {}
    for name, values, flag in flags:
        key = name.replace("-", "_")
        origin = flag_origin(flag)
        if not values:
            off = key.removeprefix("no_") if key.startswith("no_") and key not in names else None
            target, value = (
                (off, Value(False, origin)) if off in names else (key, Value(True, origin))
            )
        else:
            target = key
            like = holder.get(key, unknown())
            value = lifted(cast(values[0].data, like, annotations.get(key, "")), origin)
            if len(values) > 1:
                loose.extend(values[1:])
        assert target is not None
        (holder if target in names else extra)[target] = value
    free = [name for name in names if name not in holder]
    for name, token in zip(free, loose, strict=False):
        like = unknown()
        holder[name] = lifted(cast(token.data, like, annotations.get(name, "")), token.origin)
    if spec.kwarg is not None:
        holder.update(extra)
    machine.observer.settings(function.data.name, Value(holder), "arguments")
    kwargs = {str(key): value for key, value in holder.items()}
    first = [owner] if owner is not None else []
    return machine.call(function, first, kwargs, function.data.site)


def fire(machine: Machine, call: Invocation) -> Value:
    component = call.argument(0, "component")
    argv = machine.argv[1:]
    if component is None:
        component = Value(machine.frames[-1].scope.module)
    return _fire(machine, component, argv)


def _fire(machine: Machine, component: Value, argv: list[Value]) -> Value:
    data = component.data
    if isinstance(data, Function):
        return call_with_flags(machine, Value(data.undecorated()), argv)
    if isinstance(data, Bound) and isinstance(data.func.data, Function):
        return call_with_flags(machine, Value(data.func.data.undecorated()), argv, data.self)
    if isinstance(data, Class):
        flags, loose = parse_flags(argv)
        init = data.lookup("__init__")
        names: set[str] = set()
        if init is not None and isinstance(init.data, Function):
            names = {a.arg for a in (*init.data.node.args.args, *init.data.node.args.kwonlyargs)}
        kwargs = {
            n.replace("-", "_"): plain_scalar(v[0])
            for n, v, _ in flags
            if v and n.replace("-", "_") in names
        }
        made = machine.call(component, [], kwargs, Site(data.module.file, data.node.lineno))
        loose += [token for _, values, _ in flags for token in values[1:]]
        rest = [
            t for t in argv if str(t.data).lstrip("-").split("=")[0].replace("-", "_") not in names
        ]
        return _fire(machine, made, rest) if loose else made
    if argv and not str(argv[0].data).startswith("-"):
        name = argv[0].data
        member = (
            machine.getitem(component, argv[0])
            if isinstance(data, dict)
            else machine.getattr(component, str(name).replace("-", "_"))
        )
        if not isinstance(member.data, Unknown):
            return _fire(machine, member, argv[1:])
    return unknown()


def _enter(machine: Machine, function: Function, decorator: Value) -> Value | None:
    if not path_of(decorator).endswith("argbind.bind"):
        return None
    return call_with_flags(machine, Value(function.undecorated()), machine.argv[1:])


PLUGIN = Plugin(calls={"fire.Fire": fire}, on_enter=_enter)
