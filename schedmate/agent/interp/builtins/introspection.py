"""Built-in functions that ask what something is and which attributes it has."""

from __future__ import annotations

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import (
    AttrDict,
    Class,
    Function,
    Instance,
    Native,
    PathStr,
    Super,
    Symbol,
)
from schedmate.agent.interp.values.base import kind
from schedmate.agent.sizes import MAX_DATA, measure
from schedmate.agent.values import Unknown, Value, unknown

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
    "list": (list,),
    "tuple": (tuple,),
    "dict": (dict,),
    "bytes": (bytes,),
    "set": (list,),
    "NoneType": (type(None),),
    "pathlib.Path": (PathStr,),
    "Path": (PathStr,),
    "os.PathLike": (PathStr,),
    "collections.abc.Mapping": (dict,),
    "collections.abc.MutableMapping": (dict,),
    "collections.Mapping": (dict,),
    "collections.MutableMapping": (dict,),
    "typing.Mapping": (dict,),
    "typing.MutableMapping": (dict,),
    "typing.Sequence": (list, tuple, str),
    "typing.Iterable": (list, tuple, str, dict),
    "collections.Sequence": (list, tuple, str),
    "collections.Iterable": (list, tuple, str, dict),
    "collections.abc.Sequence": (list, tuple, str),
    "collections.abc.Iterable": (list, tuple, str, dict),
    "collections.OrderedDict": (dict,),
}


def type_name(value: Value) -> str:
    """The name under which a type object is known here."""
    data = value.data
    if isinstance(data, Native | Class):
        return data.name
    return data.path if isinstance(data, Symbol) else ""


def _types(machine: Machine, name: str) -> tuple[type, ...] | None:
    """The data that instances of a type are, by the name of the type."""
    return _TYPES.get(name) or machine.plugins.types.get(name)


def is_instance(machine: Machine, value: Value, of: Value) -> bool | None:
    """`isinstance(value, of)`, None when it cannot be decided."""
    if of.sequence is not None:
        if measure(of.data, limit=MAX_DATA) is None:
            return None
        outcomes = [is_instance(machine, value, item) for item in of.data]
        return True if True in outcomes else None if None in outcomes else False
    data = value.data
    if kind(value).unknown or kind(value).foreign:
        return None
    if isinstance(data, Instance):
        if isinstance(of.data, Class):
            return of.data in data.cls.mro()
        name = type_name(of)
        bases = {classes.last(base) for base in data.cls.external_bases()}
        if _types(machine, name) is not None:
            return classes.last(name) in bases or (name == "dict" and data.items is not None)
        return True if classes.last(name) in bases else None
    name = type_name(of)
    wanted = _types(machine, name)
    if wanted is not None:
        if bool not in wanted and isinstance(data, bool):
            return int in wanted
        if PathStr not in wanted and isinstance(data, PathStr):
            return False
        return isinstance(data, wanted)
    if isinstance(of.data, Class) and (value.known or isinstance(data, AttrDict)):
        return False
    return None


def _isinstance(machine: Machine, call: Invocation) -> Value:
    outcome = is_instance(machine, call.args[0], call.args[1]) if len(call.args) == 2 else None
    return unknown() if outcome is None else Value(outcome)


def _issubclass(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 2 and isinstance(call.args[0].data, Class):
        if isinstance(call.args[1].data, Class):
            return Value(call.args[1].data in call.args[0].data.mro())
        name = classes.last(type_name(call.args[1]))
        if name in {classes.last(base) for base in call.args[0].data.external_bases()}:
            return Value(True)
    return unknown()


def _getattr(machine: Machine, call: Invocation) -> Value:
    if len(call.args) < 2 or call.args[1].text is None:
        return unknown()
    machine.observer.looks_up(call.args[1].data)
    found = kind(call.args[0]).has(machine, call.args[0], call.args[1].data)
    if found is False and len(call.args) > 2:
        return call.args[2]
    value = machine.getattr(call.args[0], call.args[1].data)
    if len(call.args) > 2 and isinstance(value.data, Unknown | Symbol) and found is None:
        return value if isinstance(value.data, Symbol) else unknown(call.args[1].data)
    if isinstance(value.data, Function | Class | Symbol) and call.args[1].origin is not None:
        return Value(value.data, call.args[1].origin)
    return value


def _hasattr(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 2 and call.args[1].text is not None:
        found = kind(call.args[0]).has(machine, call.args[0], call.args[1].data)
        return unknown() if found is None else Value(found)
    return unknown()


def _setattr(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 3 and call.args[1].text is not None:
        machine.setattr(call.args[0], call.args[1].data, call.args[2])
    return Value(None)


def _delattr(machine: Machine, call: Invocation) -> Value:
    if machine.certain and len(call.args) == 2 and call.args[1].text is not None:
        kind(call.args[0]).delattr(call.args[0], call.args[1].data)
    return Value(None)


def _dir(machine: Machine, call: Invocation) -> Value:
    """`dir(x)` of an object or class of the repository."""
    names = kind(call.first).names(call.first)
    if names is None:
        return unknown()
    return Value([Value(name) for name in sorted(names)], call.first.origin)


def _vars(machine: Machine, call: Invocation) -> Value:
    return kind(call.first).attributes(call.first) if call.args else _locals(machine, call)


def _globals(machine: Machine, call: Invocation) -> Value:
    return Value(machine.frames[-1].scope.module.scope.names)


def _locals(machine: Machine, call: Invocation) -> Value:
    return Value(machine.frames[-1].scope.names)


def _super(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 2 and isinstance(call.args[0].data, Class):
        return Value(Super(call.args[0].data, call.args[1]))
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
    "globals": _globals,
    "locals": _locals,
    "super": _super,
    "callable": _callable,
}
