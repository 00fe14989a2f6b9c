"""What `inspect` tells of the repository's functions: registries fill in defaults by it."""

from __future__ import annotations

import re
from collections.abc import Callable

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Class,
    Function,
    Instance,
    Module,
    Symbol,
    as_class,
    as_function,
    as_symbol,
)
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.values import Value, unknown

_EMPTY = "inspect.Parameter.empty"


def _function(value: Value) -> tuple[Function, bool] | None:
    """The repository's function that is asked about, and whether its first argument is bound."""
    match value.data:
        case Function() as function:
            return function, False
        case Bound(func=inner):
            found = _function(inner)
        case Class() as cls:
            init = cls.lookup("__init__")
            found = _function(init) if init is not None else None
        case _:
            return None
    return (found[0], True) if found is not None else None


def full_argument_names(machine: Machine, call: Invocation) -> Value | None:
    """`inspect.getfullargspec(f)`: names and defaults of its arguments."""
    found = _function(call.first)
    if found is None:
        return None
    function, _ = found
    spec = function.node.args
    names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
    given = tuple(function.defaults[name] for name in names if name in function.defaults)
    only = {a.arg: function.defaults[a.arg] for a in spec.kwonlyargs if a.arg in function.defaults}
    described = {
        "args": Value([Value(name) for name in names]),
        "varargs": Value(spec.vararg.arg if spec.vararg is not None else None),
        "varkw": Value(spec.kwarg.arg if spec.kwarg is not None else None),
        "defaults": Value(given or None),
        "kwonlyargs": Value([Value(argument.arg) for argument in spec.kwonlyargs]),
        "kwonlydefaults": Value(only or None),
    }
    return Value(AttrDict({**described, "keywords": described["varkw"]}))


def signature(machine: Machine, call: Invocation) -> Value | None:
    """`inspect.signature(f)`: its parameters in order."""
    found = _function(call.first)
    if found is None:
        return None
    function, bound = found
    spec = function.node.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)][1 if bound else 0 :]
    kinds = dict.fromkeys(positional, "POSITIONAL_OR_KEYWORD")
    kinds |= {spec.vararg.arg: "VAR_POSITIONAL"} if spec.vararg is not None else {}
    kinds |= {argument.arg: "KEYWORD_ONLY" for argument in spec.kwonlyargs}
    kinds |= {spec.kwarg.arg: "VAR_KEYWORD"} if spec.kwarg is not None else {}
    parameters = {
        name: Value(
            AttrDict(
                {
                    "name": Value(name),
                    "kind": Value(Symbol(f"inspect.Parameter.{kind}")),
                    "default": function.defaults.get(name, Value(Symbol(_EMPTY))),
                }
            )
        )
        for name, kind in kinds.items()
    }
    return Value(AttrDict({"parameters": Value(parameters)}))


def is_class(machine: Machine, call: Invocation) -> Value | None:
    if as_class(call.first) is not None or _names_class(call.first):
        return Value(True)
    return Value(False) if _is_decided(call.first) else unknown()


def is_function(machine: Machine, call: Invocation) -> Value | None:
    if as_function(call.first) is not None:
        return Value(True)
    return Value(False) if _is_decided(call.first) or _names_class(call.first) else unknown()


def _is_decided(value: Value) -> bool:
    """Whether it is plain data, or of the repository, so that it is known what it is."""
    return value.known or isinstance(value.data, Class | Function | Instance | Bound)


_WANTED: dict[str, Callable[[Value], object]] = {
    "inspect.isclass": as_class,
    "inspect.isfunction": as_function,
}


def members(_: Machine, call: Invocation) -> Value | None:
    """`inspect.getmembers(module, inspect.isclass)`: names and what is under them, by name."""
    module, asked = call.first.data, as_symbol(call.args[1]) if len(call.args) > 1 else None
    wanted = _WANTED.get(asked.path) if asked is not None else lambda _: True
    if not isinstance(module, Module) or wanted is None:
        return None
    found = sorted(module.scope.names.items())
    return Value([Value((Value(name), value)) for name, value in found if wanted(value)])


def method(_: Machine, call: Invocation) -> Value:
    """`types.MethodType(function, instance)`."""
    return Value(Bound(call.args[0], call.args[1])) if len(call.args) == 2 else unknown()


def _names_class(value: Value) -> bool:
    """Whether a library's name is that of a class: `torch.cuda.amp.GradScaler`."""
    symbol = as_symbol(value)
    return symbol is not None and re.search(r"\.[A-Z]+[a-z]\w*$", symbol.path) is not None


PLUGIN = Plugin(
    calls={
        "inspect.isclass": is_class,
        "inspect.isfunction": is_function,
        "inspect.getmembers": members,
        "inspect.getfullargspec": full_argument_names,
        "inspect.getargspec": full_argument_names,
        "inspect.signature": signature,
        "types.MethodType": method,
    }
)
