"""Built-in functions that ask what something is and which attributes it has."""

from __future__ import annotations

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import (
    Class,
    Native,
    PathStr,
    as_class,
    as_instance,
    as_node,
    as_symbol,
    is_own,
)
from schedmate.agent.interp.values.base import kind
from schedmate.agent.interp.values.instances import Super
from schedmate.agent.sizes import MAX_DATA, measure
from schedmate.agent.values import Data, Value, unknown

_ABSTRACT: dict[str, tuple[type, ...]] = {
    "Mapping": (dict,),
    "MutableMapping": (dict,),
    "Sequence": (list, tuple, str),
    "Iterable": (list, tuple, str, dict),
}
_TYPES: dict[str, tuple[type, ...]] = {
    **{kind.__name__: (kind,) for kind in (str, int, float, bool, list, tuple, dict, bytes)},
    **{
        f"{module}.{name}": types
        for module in ("collections", "collections.abc", "typing")
        for name, types in _ABSTRACT.items()
    },
    **dict.fromkeys(("pathlib.Path", "Path", "os.PathLike"), (PathStr,)),
    "set": (list,),
    "NoneType": (type(None),),
    "collections.OrderedDict": (dict,),
}


def type_name(value: Value) -> str:
    """The name under which a type object is known here."""
    symbol = as_symbol(value)
    if symbol is not None:
        return symbol.path
    return value.data.name if isinstance(value.data, Native | Class) else ""


def _types(machine: Machine, name: str) -> tuple[type, ...] | None:
    """The data that instances of a type are, by the name of the type."""
    return _TYPES.get(name) or machine.plugins.types.get(name)


def is_instance(machine: Machine, value: Value, of: Value) -> bool | None:
    """`isinstance(value, of)`, None when it cannot be decided."""
    if of.sequence is not None:
        if measure(of.data, limit=MAX_DATA) is None:
            return None
        outcomes = [is_instance(machine, value, item) for item in of.sequence]
        return True if True in outcomes else None if None in outcomes else False
    if kind(value).unknown or kind(value).foreign:
        return None
    owner, own, name = as_instance(value), as_class(of), type_name(of)
    wanted = _types(machine, name)
    if owner is not None:
        if own is not None:
            return own in owner.cls.mro()
        built_on = _built_on(owner.cls, name)
        if wanted is not None:
            return built_on or (name == "dict" and owner.items is not None)
        return True if built_on else None
    if wanted is not None:
        return _is_plain(value.data, wanted)
    return False if own is not None and (value.known or as_node(value) is not None) else None


def _built_on(cls: Class, name: str) -> bool:
    """Whether a class is built on a library's of this name."""
    return classes.last(name) in map(classes.last, cls.external_bases())


def _is_plain(data: Data, wanted: tuple[type, ...]) -> bool:
    """Whether plain data is of one of these types, to the program that is followed."""
    if bool not in wanted and isinstance(data, bool):
        return int in wanted
    if PathStr not in wanted and isinstance(data, PathStr):
        return False
    return isinstance(data, wanted)


def _isinstance(machine: Machine, call: Invocation) -> Value:
    outcome = is_instance(machine, call.args[0], call.args[1]) if len(call.args) == 2 else None
    return unknown() if outcome is None else Value(outcome)


def _issubclass(machine: Machine, call: Invocation) -> Value:
    cls = as_class(call.first)
    if cls is not None and len(call.args) == 2:
        above = as_class(call.args[1])
        if above is not None:
            return Value(above in cls.mro())
        if _built_on(cls, type_name(call.args[1])):
            return Value(True)
    return unknown()


def _getattr(machine: Machine, call: Invocation) -> Value:
    name = call.args[1].text if len(call.args) > 1 else None
    if name is None:
        return unknown()
    machine.observer.looks_up(name)
    found = kind(call.first).has(machine, call.first, name)
    if found is False and len(call.args) > 2:
        return call.args[2]
    value = machine.getattr(call.first, name)
    if as_symbol(value) is not None and found is None and len(call.args) > 2:
        return value
    if value.unknown and found is None and len(call.args) > 2:
        return unknown(name)
    if (is_own(value) or as_symbol(value) is not None) and call.args[1].origin is not None:
        return Value(value.data, call.args[1].origin)
    return value


def _hasattr(machine: Machine, call: Invocation) -> Value:
    name = call.args[1].text if len(call.args) == 2 else None
    found = kind(call.first).has(machine, call.first, name) if name is not None else None
    return unknown() if found is None else Value(found)


def _setattr(machine: Machine, call: Invocation) -> Value:
    name = call.args[1].text if len(call.args) == 3 else None
    if name is not None:
        machine.setattr(call.first, name, call.args[2])
    return Value(None)


def _delattr(machine: Machine, call: Invocation) -> Value:
    name = call.args[1].text if machine.certain and len(call.args) == 2 else None
    if name is not None:
        kind(call.first).delattr(call.first, name)
    return Value(None)


def _dir(machine: Machine, call: Invocation) -> Value:
    """`dir(x)` of an object or class of the repository."""
    names = kind(call.first).names(call.first)
    if names is None:
        return unknown()
    return Value([Value(name) for name in sorted(names)], call.first.origin)


def _vars(machine: Machine, call: Invocation) -> Value:
    return kind(call.first).attributes(call.first) if call.args else _locals(machine, call)


def _locals(machine: Machine, call: Invocation) -> Value:
    return Value(machine.frames[-1].scope.names)


def _super(machine: Machine, call: Invocation) -> Value:
    cls = as_class(call.first)
    if cls is not None and len(call.args) == 2:
        return Value(Super(cls, call.args[1]))
    for frame in reversed(machine.frames):
        if frame.cls is not None and frame.self is not None:
            return Value(Super(frame.cls, frame.self))
    return unknown()


def _callable(machine: Machine, call: Invocation) -> Value:
    if not call.args:
        return unknown()
    if kind(call.first).callable_:
        return Value(True)
    plain = call.first.known or call.first.mapping is not None
    return Value(False) if plain else unknown()


FUNCTIONS: dict[str, Handler] = {
    "isinstance": _isinstance,
    "issubclass": _issubclass,
    "getattr": _getattr,
    "hasattr": _hasattr,
    "setattr": _setattr,
    "delattr": _delattr,
    "dir": _dir,
    "vars": _vars,
    "globals": lambda machine, _: Value(machine.frames[-1].scope.module.scope.names),
    "locals": _locals,
    "super": _super,
    "callable": _callable,
}
