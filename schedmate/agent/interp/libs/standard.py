"""The parts of the standard library that decide what a program does."""

from __future__ import annotations

import ast
import math
from typing import Any

from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp import passes
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import identity
from schedmate.agent.interp.objects import (
    AttrDict,
    DefaultDict,
    Native,
    Partial,
    Symbol,
)
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import copy_shallow, iterate, origin_of, plain_key
from schedmate.agent.interp.values.mappings import fill
from schedmate.agent.interp.values.trees import deep_copy
from schedmate.agent.values import UNSET, Unknown, Value, unknown


def environ_get(machine: Machine, call: Invocation) -> Value:
    name = call.argument(0, "key")
    default = call.argument(1, "default")
    if name is not None and name.text is not None and name.text in machine.environ:
        return machine.environ[name.data]
    if default is not None:
        return default
    return Value(Unknown(str(name.data) if name is not None else None, UNSET))


def environ_copy(machine: Machine, call: Invocation) -> Value:
    return Value(AttrDict(dict(machine.environ), "open"))


def environ_setdefault(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 2 and call.args[0].text is not None:
        return machine.environ.setdefault(call.args[0].data, call.args[1])
    return unknown()


def deepcopy(machine: Machine, call: Invocation) -> Value:
    return deep_copy(call.first)


def shallow(machine: Machine, call: Invocation) -> Value:
    return copy_shallow(call.first)


def partial(machine: Machine, call: Invocation) -> Value:
    if not call.args:
        return unknown()
    return Value(Partial(call.args[0], call.args[1:], call.kwargs), call.args[0].origin)


def reduce(machine: Machine, call: Invocation) -> Value:
    """`functools.reduce(getattr, "a.b".split("."), x)`."""
    items = iterate(call.args[1]) if len(call.args) > 1 else None
    if items is None or len(items) > 500:
        return unknown()
    items = [*call.args[2:3], *items]
    if not items:
        return unknown()
    result = items[0]
    for item in items[1:]:
        result = machine.call(call.args[0], [result, item], {}, call.site)
    return result


def item_getter(machine: Machine, call: Invocation) -> Value:
    """`operator.itemgetter("lr")`: a function that takes an item."""
    key = call.first

    def take(machine: Machine, taken: Invocation) -> Value:
        one = taken.args and len(call.args) == 1
        return machine.getitem(taken.args[0], key) if one else unknown()

    return Value(Native("itemgetter", take))


def environ_update(machine: Machine, call: Invocation) -> Value:
    for key, value in ((machine.mapping(call.first) or {}) | call.kwargs).items():
        machine.setitem(Value(Symbol("os.environ")), Value(key), value)
    return Value(None)


def ordered_dict(machine: Machine, call: Invocation) -> Value:
    items: dict[Any, Value] = {}
    fill(machine, items, call.args, call.kwargs)
    return Value(items)


def default_dict(machine: Machine, call: Invocation) -> Value:
    return Value(DefaultDict(call.first))


def literal(machine: Machine, call: Invocation) -> Value:
    text = call.first
    if text.text is None or len(text.data) > 5000:
        return unknown(origin=text.origin)
    try:
        return wrap(ast.literal_eval(text.data.strip()), text.origin)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if machine.expects("ValueError", "SyntaxError"):
            raise Raised("ValueError") from None
        return unknown(origin=text.origin)


def exit_(machine: Machine, call: Invocation) -> Value:
    raise Raised("SystemExit")


def strtobool(machine: Machine, call: Invocation) -> Value:
    text = call.first
    if text.text is None:
        return unknown(origin=text.origin)
    return Value(text.data.lower() in ("y", "yes", "t", "true", "on", "1"), text.origin)


def _math(name: str) -> Handler:
    function = getattr(math, name)

    def apply(machine: Machine, call: Invocation) -> Value:
        if not call.args or not all(isinstance(a.data, int | float) for a in call.args):
            return passes.same(call.args) or unknown(origin=origin_of(*call.args))
        try:
            return Value(function(*(a.data for a in call.args)), origin_of(*call.args))
        except (ValueError, OverflowError, TypeError):
            return unknown(origin=origin_of(*call.args))

    return apply


def as_number(machine: Machine, call: Invocation) -> Value | None:
    """`count.astype(int)`, `count.item()`: a count that only the data's length leaves open."""
    return (
        call.base if call.base is not None and isinstance(call.base.data, passes.Passes) else None
    )


def _cast(_: Machine, call: Invocation) -> Value | None:
    """`typing.cast(T, value)` is its value."""
    return call.argument(1, "val")


def _environ(machine: Machine, base: Value, index: Value) -> Value:
    name = str(plain_key(index))
    return machine.environ.get(name, unknown(name))


def _modules(machine: Machine, base: Value, index: Value) -> Value:
    name = plain_key(index)
    named = (module for module in machine.sources.modules.values() if module.name == name)
    return next((Value(module) for module in named), Value(Symbol(str(name))))


def _search_path(machine: Machine) -> Value:
    paths: Value = machine.shared.setdefault("sys.path", Value([]))
    return paths


PLUGIN = Plugin(
    names={"sys.argv": lambda machine: Value(machine.argv), "sys.path": _search_path},
    items={"os.environ": _environ, "sys.modules": _modules},
    calls={
        "*.astype": as_number,
        "*.item": as_number,
        "os.environ.get": environ_get,
        "os.getenv": environ_get,
        "os.environ.copy": environ_copy,
        "os.environ.setdefault": environ_setdefault,
        "os.environ.update": environ_update,
        "copy.deepcopy": deepcopy,
        "copy.copy": shallow,
        "typing.cast": _cast,
        "functools.partial": partial,
        "functools.reduce": reduce,
        "operator.itemgetter": item_getter,
        "functools.lru_cache": identity,
        "functools.cache": identity,
        "collections.OrderedDict": ordered_dict,
        "collections.defaultdict": default_dict,
        "ast.literal_eval": literal,
        "distutils.strtobool": strtobool,
        "sys.exit": exit_,
        "os._exit": exit_,
        **{
            f"math.{name}": _math(name)
            for name in ("ceil", "floor", "sqrt", "log", "log2", "exp", "pow")
        },
        **{
            f"numpy.{name}": _math(name) for name in ("ceil", "floor", "sqrt", "log", "log2", "exp")
        },
    },
)
