"""Functions whose parameters are the command line, as fire and argbind make them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import flag_origin, parse_flags, plain_scalar
from schedmate.agent.interp.libs.cli.records import cast
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Bound, Function, Site, as_class, as_function, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.values import Items, Value, unknown


def call_with_flags(
    machine: Machine, function: Function, argv: list[Value], owner: Value | None = None
) -> Value:
    """Call a repository function with its parameters set from flags and positionals."""
    spec = function.node.args
    annotations = annotations_of(function)
    names = list(annotations)[1 if owner is not None else 0 :]
    holder: Items = {name: function.defaults[name] for name in names if name in function.defaults}
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
            value = cast(values[0], like, annotations.get(key, ""), origin)
            if len(values) > 1:
                loose.extend(values[1:])
        assert target is not None
        (holder if target in names else extra)[target] = value
    free = [name for name in names if name not in holder]
    for name, token in zip(free, loose, strict=False):
        like = unknown()
        holder[name] = cast(token, like, annotations.get(name, ""), token.origin)
    if spec.kwarg is not None:
        holder.update(extra)
    return call_with_settings(machine, function, holder, [owner] if owner is not None else [])


def call_with_settings(
    machine: Machine, function: Function, settings: Items, args: Sequence[Value] = ()
) -> Value:
    """Call a function with what the command line gives its parameters, noted as settings."""
    machine.observer.settings(function.name, Value(settings), "arguments")
    kwargs = {str(key): value for key, value in settings.items()}
    return machine.call(Value(function), list(args), kwargs, function.site)


def annotations_of(function: Function) -> dict[str, str]:
    """The source text of each parameter's annotation, empty where it has none."""
    spec = function.node.args
    parameters = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)
    return {p.arg: ast.unparse(p.annotation) if p.annotation else "" for p in parameters}


def fire(machine: Machine, call: Invocation) -> Value:
    component = call.argument(0, "component")
    argv = machine.argv[1:]
    if component is None:
        component = Value(machine.frames[-1].scope.module)
    return _fire(machine, component, argv)


def _fire(machine: Machine, component: Value, argv: list[Value]) -> Value:
    method = component.data if isinstance(component.data, Bound) else None
    function = as_function(method.func if method is not None else component)
    if function is not None:
        owner = method.self if method is not None else None
        return call_with_flags(machine, function.undecorated(), argv, owner)
    cls = as_class(component)
    if cls is not None:
        flags, loose = parse_flags(argv)
        init = cls.method("__init__")
        spec = init.node.args if init is not None else None
        names = {a.arg for a in (*spec.args, *spec.kwonlyargs)} if spec is not None else set()
        kwargs = {
            n.replace("-", "_"): plain_scalar(v[0])
            for n, v, _ in flags
            if v and n.replace("-", "_") in names
        }
        made = machine.call(component, [], kwargs, Site(cls.module.file, cls.node.lineno))
        loose += [token for _, values, _ in flags for token in values[1:]]
        rest = [
            t for t in argv if str(t.data).lstrip("-").split("=")[0].replace("-", "_") not in names
        ]
        return _fire(machine, made, rest) if loose else made
    if argv and not str(argv[0].data).startswith("-"):
        name = argv[0].data
        member = (
            machine.getitem(component, argv[0])
            if component.mapping is not None
            else machine.getattr(component, str(name).replace("-", "_"))
        )
        if not member.unknown:
            return _fire(machine, member, argv[1:])
    return unknown()


def _enter(machine: Machine, function: Function, decorator: Value) -> Value | None:
    if not path_of(decorator).endswith("argbind.bind"):
        return None
    return call_with_flags(machine, function.undecorated(), machine.argv[1:])


PLUGIN = Plugin(calls={"fire.Fire": fire}, on_enter=_enter)
