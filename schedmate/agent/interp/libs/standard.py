"""The parts of the standard library that decide what a program does."""

from __future__ import annotations

import ast
import math

from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp import passes
from schedmate.agent.interp.builtins.execution import exit_
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import identity
from schedmate.agent.interp.objects import AttrDict, DefaultDict, Native, Partial, Symbol
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import copy_shallow, iterate, origin_of, plain_key
from schedmate.agent.interp.values.mappings import fill
from schedmate.agent.interp.values.trees import deep_copy
from schedmate.agent.values import UNSET, Items, Unknown, Value, unknown


def environ_get(machine: Machine, call: Invocation) -> Value:
    asked, name = call.argument(0, "key"), call.text(0, "key")
    default = call.argument(1, "default")
    if name is not None and name in machine.environ:
        return machine.environ[name]
    if default is not None:
        return default
    return Value(Unknown(str(asked.data) if asked is not None else None, UNSET))


def environ_setdefault(machine: Machine, call: Invocation) -> Value:
    name = call.first.text
    if name is not None and len(call.args) == 2:
        return machine.environ.setdefault(name, call.args[1])
    return unknown()


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
    items: Items = {}
    fill(machine, items, call.args, call.kwargs)
    return Value(items)


def literal(machine: Machine, call: Invocation) -> Value:
    text, origin = call.first.text, call.first.origin
    if text is None or len(text) > 5000:
        return unknown(origin=origin)
    try:
        return wrap(ast.literal_eval(text.strip()), origin)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if machine.expects("ValueError", "SyntaxError"):
            raise Raised("ValueError") from None
        return unknown(origin=origin)


def strtobool(machine: Machine, call: Invocation) -> Value:
    text = call.first
    if text.text is None:
        return unknown(origin=text.origin)
    return Value(text.text.lower() in ("y", "yes", "t", "true", "on", "1"), text.origin)


def _math(name: str) -> Handler:
    function = getattr(math, name)

    def apply(machine: Machine, call: Invocation) -> Value:
        numbers = [a.data for a in call.args if isinstance(a.data, int | float)]
        if not numbers or len(numbers) < len(call.args):
            return passes.same(call.args) or unknown(origin=origin_of(*call.args))
        try:
            return Value(function(*numbers), origin_of(*call.args))
        except (ValueError, OverflowError, TypeError):
            return unknown(origin=origin_of(*call.args))

    return apply


def as_number(machine: Machine, call: Invocation) -> Value | None:
    """`count.astype(int)`, `count.item()`: a count that only the data's length leaves open."""
    return call.base if call.base is not None and passes.of(call.base) else None


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
        "os.environ.copy": lambda machine, _: Value(AttrDict(dict(machine.environ), "open")),
        "os.environ.setdefault": environ_setdefault,
        "os.environ.update": environ_update,
        "copy.deepcopy": lambda _, call: deep_copy(call.first),
        "copy.copy": lambda _, call: copy_shallow(call.first),
        "typing.cast": _cast,
        "functools.partial": partial,
        "functools.reduce": reduce,
        "operator.itemgetter": item_getter,
        "functools.lru_cache": identity,
        "functools.cache": identity,
        "collections.OrderedDict": ordered_dict,
        "collections.defaultdict": lambda _, call: Value(DefaultDict(call.first)),
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
