"""Built-in functions that ask what something is and which attributes it has."""

from __future__ import annotations

import re

from schedmate.agent.interp import classes, methods
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Native,
    Partial,
    PathStr,
    Super,
    Symbol,
)
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


_KINDS: tuple[type, ...] = (type, list, dict, int, str, type(iter([])))
_PYTHONS = frozenset(name for kind in _KINDS for name in dir(kind)) | {
    "__call__",
    "__enter__",
    "__exit__",
    "__getattr__",
    "__array__",
    "__version__",
    "__all__",
    "__file__",
    "__path__",
    "__spec__",
    "__package__",
    "__dict__",
}
"""Special names that classes may have without saying so."""


def _is_foreign(name: str) -> bool:
    """Whether a special name is neither Python's own nor one that modules have."""
    return re.fullmatch(r"__\w+__", name) is not None and name not in _PYTHONS


def type_name(value: Value) -> str:
    """The name under which a type object is known here."""
    data = value.data
    if isinstance(data, Native | Class):
        return data.name
    return data.path if isinstance(data, Symbol) else ""


def _types(machine: Machine, name: str) -> tuple[type, ...] | None:
    """The data that instances of a type are, by the name of the type."""
    return _TYPES.get(name) or machine.plugins.types.get(name)


def is_instance(machine: Machine, value: Value, kind: Value) -> bool | None:
    """`isinstance(value, kind)`, None when it cannot be decided."""
    if isinstance(kind.data, tuple | list):
        if measure(kind.data, limit=MAX_DATA) is None:
            return None
        outcomes = [is_instance(machine, value, item) for item in kind.data]
        return True if True in outcomes else None if None in outcomes else False
    data = value.data
    if isinstance(data, Unknown | Symbol | Call):
        return None
    if isinstance(data, Instance):
        if isinstance(kind.data, Class):
            return kind.data in data.cls.mro()
        name = type_name(kind)
        bases = {classes.last(base) for base in data.cls.external_bases()}
        if _types(machine, name) is not None:
            return classes.last(name) in bases or (name == "dict" and data.items is not None)
        return True if classes.last(name) in bases else None
    name = type_name(kind)
    wanted = _types(machine, name)
    if wanted is not None:
        if bool not in wanted and isinstance(data, bool):
            return int in wanted
        if PathStr not in wanted and isinstance(data, PathStr):
            return False
        return isinstance(data, wanted)
    if isinstance(kind.data, Class) and (value.known or isinstance(data, AttrDict)):
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
    if len(call.args) < 2 or not isinstance(call.args[1].data, str):
        return unknown()
    machine.observer.looks_up(call.args[1].data)
    found = has_attribute(machine, call.args[0], call.args[1].data)
    if found is False and len(call.args) > 2:
        return call.args[2]
    value = machine.getattr(call.args[0], call.args[1].data)
    if len(call.args) > 2 and isinstance(value.data, Unknown | Symbol) and found is None:
        return value if isinstance(value.data, Symbol) else unknown(call.args[1].data)
    if isinstance(value.data, Function | Class | Symbol) and call.args[1].origin is not None:
        return Value(value.data, call.args[1].origin)
    return value


def has_attribute(machine: Machine, value: Value, name: str) -> bool | None:
    """`hasattr(value, name)`, None when it cannot be decided."""
    data = value.data
    if isinstance(data, AttrDict):
        return name in data or isinstance(methods.bound_method(value, name).data, Native)
    if isinstance(data, Instance):
        if name == "__dict__" or name in data.attrs or data.cls.lookup(name) is not None:
            return True
        if data.items is not None and isinstance(data.items.data, dict) and name in data.items.data:
            return True
        if data.cls.lookup("__getattr__") is not None:
            return None
        return False if not data.cls.external_bases() else None
    if isinstance(data, Module):
        return machine.module_attr(data, name) is not None
    if name == "__dict__" and (value.known or isinstance(data, Class | Function)):
        return isinstance(data, Class | Function)
    if isinstance(data, Class) and data.lookup(name) is not None:
        return True
    if isinstance(data, Class | Symbol) and _is_foreign(name):
        return False  # no library's class has another's: `getattr(cls, "__inject__", [])`
    if value.known:
        return hasattr(data, name)
    return None


def _hasattr(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 2 and isinstance(call.args[1].data, str):
        found = has_attribute(machine, call.args[0], call.args[1].data)
        return unknown() if found is None else Value(found)
    return unknown()


def _setattr(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 3 and isinstance(call.args[1].data, str):
        machine.setattr(call.args[0], call.args[1].data, call.args[2])
    return Value(None)


def _delattr(machine: Machine, call: Invocation) -> Value:
    held = call.args[0].data if len(call.args) == 2 else None
    attrs = held if isinstance(held, dict) else getattr(held, "attrs", {})
    if machine.certain and len(call.args) == 2 and isinstance(call.args[1].data, str):
        attrs.pop(call.args[1].data, None)
    return Value(None)


def _dir(machine: Machine, call: Invocation) -> Value:
    """`dir(x)` of an object or class of the repository."""
    data = call.args[0].data if call.args else None
    if not isinstance(data, Instance | Class):
        return unknown()
    cls = data.cls if isinstance(data, Instance) else data
    names = {name for current in cls.mro() for name in current.attrs}
    if isinstance(data, Instance):
        names |= set(data.attrs)
    return Value([Value(name) for name in sorted(names)], call.args[0].origin)


def _vars(machine: Machine, call: Invocation) -> Value:
    if not call.args:
        return _locals(machine, call)
    data = call.args[0].data
    if isinstance(data, dict):
        return call.args[0]
    if isinstance(data, Instance):
        return Value(data.attrs, call.args[0].origin)
    if isinstance(data, Class):
        return Value(data.attrs, call.args[0].origin)
    if isinstance(data, Module):
        return call.args[0]
    return unknown()


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
    data = call.args[0].data if call.args else None
    if isinstance(data, Function | Class | Native | Bound | Partial):
        return Value(True)
    if call.args and (call.args[0].known or isinstance(data, dict)):
        return Value(False)
    return unknown()


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
