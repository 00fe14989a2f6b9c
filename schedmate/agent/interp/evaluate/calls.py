"""Calls: the repository's functions and classes are followed, anything else is recorded."""

from __future__ import annotations

import ast

from schedmate.agent.interp import classes
from schedmate.agent.interp.evaluate.definitions import is_generator
from schedmate.agent.interp.flow import Frame, Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Function, Scope, Site, as_call, as_symbol, path_of
from schedmate.agent.interp.values.base import kind
from schedmate.agent.sizes import measure
from schedmate.agent.values import Items, Origin, Unknown, Value, unknown

MAX_DEPTH = 48
"""Calls inside each other."""
MAX_ACTIVE = 8
"""Calls of one function inside each other."""
MAX_BLIND = 2
"""The same where no argument can decide anything."""
LONG_BLIND = 500
"""Steps of a function followed in doubt and knowing nothing, that is not followed so again."""
MANY_CALLS, MANY_STEPS = 40, 80_000
"""A function called so often, which took so much together, is left out of the second half."""


def call(
    machine: Machine, func: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """Call `func`; what it does not know how to call yields an unknown or a `Call`."""
    machine.tick()
    machine.look()
    called = kind(func)
    if called.hands_on:
        machine.observer.handed((*args, *kwargs.values()))
    return called.call(machine, func, Invocation("", args, kwargs, site))


def call_function(
    machine: Machine, function: Function, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """Follow a function of the repository; unknown past the depth or recursion limits."""
    if function.decorators and not args and not kwargs:
        answer = machine.plugins.enter(machine, function)
        if answer is not None:
            return answer
    identity = id(function.node)
    active = machine.active.get(identity, 0)
    if len(machine.frames) >= MAX_DEPTH or active >= MAX_ACTIVE:
        return unknown()
    times, spent, start = machine.spent.get(identity, (0, 0, 0))
    spent += machine.steps - start if active else 0
    scarce = machine.steps > machine.limits.steps // 2
    if scarce and times >= MANY_CALLS and spent >= MANY_STEPS:
        return unknown(function.name)
    given = (*args, *kwargs.values())
    if active >= MAX_BLIND and not any(_tells(v) for v in given):
        # recursion over something unknown has nothing to end it
        return unknown()
    if not given or machine.certain or not all(map(_opaque, given)):
        return _follow(machine, function, args, kwargs, site)
    if identity not in machine.blind:
        before = machine.steps
        result = _follow(machine, function, args, kwargs, site)
        if machine.steps - before < LONG_BLIND:
            return result
        machine.blind[identity] = result
    return machine.blind[identity]  # another time would be as long, and tell as little


def _follow(
    machine: Machine, function: Function, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """What a function returns, followed with these arguments."""
    identity = id(function.node)
    active = machine.active.get(identity, 0)
    times, spent, start = machine.spent.get(identity, (0, 0, 0))
    machine.spent[identity] = times + 1, spent, start if active else machine.steps
    machine.observer.enters(function, site)
    scope = Scope(function.module, function.scope)
    _bind_arguments(machine, function, args, kwargs, scope)
    machine.observer.given(scope.names)
    frame = Frame(scope, function.name, function.cls, args[0] if args else None)
    machine.active[identity] = active + 1
    machine.frames.append(frame)
    try:
        if isinstance(function.node, ast.Lambda):
            return machine.evaluate(function.node.body, scope)
        flow = machine.follow(function.node.body, scope)
    except Raised as error:
        if error.name == "SystemExit":
            if any(frame.function == "" for frame in machine.frames[1:]):
                return unknown()  # no import of a healthy job ends it
            raise
        if not frame.returned:
            raise
        flow = None  # a way that returned was open, which a healthy job has taken
    finally:
        machine.frames.pop()
        machine.active[identity] = active
        if not active:
            times, spent, start = machine.spent[identity]
            machine.spent[identity] = times, spent + machine.steps - start, 0
    result = flow.value if flow is not None and flow.kind == "return" else None
    if machine.once(is_generator, function.node):
        items = frame.yielded
        if items and any(classes.last(path_of(d)) == "contextmanager" for d in function.decorators):
            return items[0]  # what `with` binds
        return Value(Unknown() if items is None else items, Origin("code", site.file, site.line))
    for candidate in frame.returned:
        result = candidate if result is None else machine.join(result, candidate)
    return result if result is not None else Value(None)


def _bind_arguments(
    machine: Machine, function: Function, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> None:
    spec = function.node.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    names = scope.names
    for name, value in zip(positional, args, strict=False):
        names[name] = value
    if spec.vararg is not None:
        names[spec.vararg.arg] = Value(tuple(args[len(positional) :]))
    extra: Items = {}
    known = {*positional, *(a.arg for a in spec.kwonlyargs)}
    for name, value in kwargs.items():
        if name in known:
            names[name] = value
        else:
            extra[name] = value
    if spec.kwarg is not None:
        names[spec.kwarg.arg] = Value(extra)
    for name, value in machine.plugins.arguments(machine, function).items():
        if name in known:
            names.setdefault(name, value)
    for name, value in function.defaults.items():
        names.setdefault(name, value)
    for name in known:
        names.setdefault(name, unknown(name))


def _tells(value: Value) -> bool:
    """Whether an argument can decide anything in a function."""
    return kind(value).container or (value.known and value.data not in (None, "", True, False))


def _opaque(value: Value) -> bool:
    """Whether nothing is known of an argument, nor whose it is: what a file held, or a part."""
    made, part = as_call(value), as_symbol(value)
    loaded = made is not None and made.path.endswith((".load", ".safe_load"))
    return loaded or kind(value).unknown or (part is not None and bool(part.base))


def external(machine: Machine, invocation: Invocation) -> Value:
    """A call that leaves the repository: a library model answers, or it is only recorded."""
    path = machine.sources.canonical(invocation.path)
    invocation.path = path
    handler = machine.plugins.model(path)
    if handler is not None:
        invocation.args = [_within(machine, value) for value in invocation.args]
        invocation.kwargs = {k: _within(machine, value) for k, value in invocation.kwargs.items()}
        answer = handler(machine, invocation)
        if answer is not None:
            if answer.mapping is not None or answer.elements is not None:
                machine.charge(measure(answer.data) or 0)
            return answer
    else:
        answer = machine.plugins.otherwise(machine, invocation)
        if answer is not None:
            return answer
    origin = Origin("code", invocation.site.file, invocation.site.line)
    result = Value(Call(path, invocation.args, invocation.kwargs, callee=invocation.base), origin)
    machine.observer.left(machine, invocation, result)
    return result


def _within(machine: Machine, value: Value) -> Value:
    """An argument that a model may go through: unknown to it where it expands too far."""
    items = value.mapping if value.mapping is not None else value.sequence
    if items is None:
        return value
    size = measure(items)
    machine.charge(len(items) if size is None else size)
    return unknown(origin=value.origin) if size is None else value
