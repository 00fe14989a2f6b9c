"""What `inspect` tells of the repository's functions: registries fill in defaults by it."""

from __future__ import annotations

import re

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
    data = call.first.data
    if isinstance(data, Class) or _by_name(data):
        return Value(True)
    plain = call.first.known or isinstance(data, Function | Instance | Bound)
    return Value(False) if plain else unknown()


def is_function(machine: Machine, call: Invocation) -> Value | None:
    data = call.first.data
    if isinstance(data, Function):
        return Value(True)
    plain = call.first.known or isinstance(data, Class | Instance | Bound) or _by_name(data)
    return Value(False) if plain else unknown()


_KINDS = {"inspect.isclass": Class, "inspect.isfunction": Function}


def members(_: Machine, call: Invocation) -> Value | None:
    """`inspect.getmembers(module, inspect.isclass)`: names and what is under them, by name."""
    asked = call.args[1].data if len(call.args) > 1 else None
    kind = _KINDS.get(asked.path) if isinstance(asked, Symbol) else object
    if not isinstance(call.first.data, Module) or kind is None:
        return None
    found = sorted(call.first.data.scope.names.items())
    return Value([Value((Value(k), v)) for k, v in found if isinstance(v.data, kind)])


def method(_: Machine, call: Invocation) -> Value:
    """`types.MethodType(function, instance)`."""
    return Value(Bound(call.args[0], call.args[1])) if len(call.args) == 2 else unknown()


def _by_name(data: object) -> bool:
    """Whether a library's name is that of a class: `torch.cuda.amp.GradScaler`."""
    return isinstance(data, Symbol) and re.search(r"\.[A-Z]+[a-z]\w*$", data.path) is not None


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
