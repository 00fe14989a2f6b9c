"""Python's built-in functions over `Value`s."""

from __future__ import annotations

import builtins as python
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from schedmate.agent.interp import classes, methods
from schedmate.agent.interp.expressions import evaluate
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.nodes import as_config
from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Call,
    Class,
    FileHandle,
    Function,
    Instance,
    Module,
    Native,
    Partial,
    PathStr,
    RangeOf,
    Scope,
    Site,
    Super,
    Symbol,
)
from schedmate.agent.interp.source import parse_tolerant
from schedmate.agent.interp.values_ops import iterate, origin_of, truth
from schedmate.agent.syntax import parse_expression
from schedmate.agent.values import Unknown, Value, lifted, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

Args = list[Value]
Kwargs = dict[str, Value]

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
    "collections.abc.Sequence": (list, tuple, str),
    "collections.abc.Iterable": (list, tuple, str, dict),
    "collections.OrderedDict": (dict,),
    "argparse.Namespace": (AttrDict,),
    "omegaconf.DictConfig": (AttrDict,),
    "omegaconf.ListConfig": (list,),
}


def type_name(value: Value) -> str:
    """The name under which a type object is known here."""
    data = value.data
    if isinstance(data, Native | Class):
        return data.name
    return data.path if isinstance(data, Symbol) else ""


def is_instance(state: State, value: Value, kind: Value) -> bool | None:
    """`isinstance(value, kind)`, None when it cannot be decided."""
    if isinstance(kind.data, tuple | list):
        outcomes = [is_instance(state, value, item) for item in kind.data]
        return True if True in outcomes else None if None in outcomes else False
    data = value.data
    if isinstance(data, Unknown | Symbol | Call):
        return None
    if isinstance(data, Instance):
        if isinstance(kind.data, Class):
            return kind.data in data.cls.mro()
        name = type_name(kind)
        bases = {classes.last(base) for base in data.cls.external_bases()}
        if name in _TYPES:
            return classes.last(name) in bases or (name == "dict" and data.items is not None)
        return True if classes.last(name) in bases else None
    name = type_name(kind)
    if name in _TYPES:
        wanted = _TYPES[name]
        if bool not in wanted and isinstance(data, bool):
            return int in wanted
        if PathStr not in wanted and isinstance(data, PathStr):
            return False
        return isinstance(data, wanted)
    if isinstance(kind.data, Class) and (value.known or isinstance(data, AttrDict)):
        return False
    return None


def _isinstance(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    outcome = is_instance(state, args[0], args[1]) if len(args) == 2 else None
    return unknown() if outcome is None else Value(outcome)


def _issubclass(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if len(args) == 2 and isinstance(args[0].data, Class):
        if isinstance(args[1].data, Class):
            return Value(args[1].data in args[0].data.mro())
        name = classes.last(type_name(args[1]))
        if name in {classes.last(base) for base in args[0].data.external_bases()}:
            return Value(True)
    return unknown()


def _getattr(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if len(args) < 2 or not isinstance(args[1].data, str):
        return unknown()
    state.trace.looked_up.add(args[1].data)
    found = has_attribute(state, args[0], args[1].data)
    if found is False and len(args) > 2:
        return args[2]
    value = state.getattr(args[0], args[1].data)
    if len(args) > 2 and isinstance(value.data, Unknown | Symbol) and found is None:
        return value if isinstance(value.data, Symbol) else unknown(args[1].data)
    if isinstance(value.data, Function | Class | Symbol) and args[1].origin is not None:
        return Value(value.data, args[1].origin)
    return value


def has_attribute(state: State, value: Value, name: str) -> bool | None:
    """`hasattr(value, name)`, None when it cannot be decided."""
    data = value.data
    if isinstance(data, AttrDict):
        return name in data or isinstance(methods.bound_method(value, name).data, Native)
    if isinstance(data, Instance):
        if name in data.attrs or data.cls.lookup(name) is not None:
            return True
        if data.items is not None and isinstance(data.items.data, dict) and name in data.items.data:
            return True
        if data.cls.lookup("__getattr__") is not None:
            return None
        return False if not data.cls.external_bases() else None
    if isinstance(data, Module):
        return state.module_attr(data, name) is not None
    if isinstance(data, Class):
        return True if data.lookup(name) is not None else None
    if value.known:
        return hasattr(data, name)
    return None


def _hasattr(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if len(args) == 2 and isinstance(args[1].data, str):
        found = has_attribute(state, args[0], args[1].data)
        return unknown() if found is None else Value(found)
    return unknown()


def _setattr(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if len(args) == 3 and isinstance(args[1].data, str):
        state.setattr(args[0], args[1].data, args[2])
    return Value(None)


def _vars(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if not args:
        return _locals(state, args, kwargs, site)
    data = args[0].data
    if isinstance(data, dict):
        return args[0]
    if isinstance(data, Instance):
        return Value(data.attrs, args[0].origin)
    if isinstance(data, Class):
        return Value(data.attrs, args[0].origin)
    if isinstance(data, Module):
        return args[0]
    return unknown()


def _globals(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    return Value(state.frames[-1].scope.module.scope.names)


def _locals(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    return Value(state.frames[-1].scope.names)


def _super(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if len(args) == 2 and isinstance(args[0].data, Class):
        return Value(Super(args[0].data, args[1]))
    for frame in reversed(state.frames):
        if frame.cls is not None and frame.self is not None:
            return Value(Super(frame.cls, frame.self))
    return unknown()


def _len(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    data = args[0].data if args else None
    if isinstance(data, Instance) and data.items is not None:
        data = data.items.data
    if isinstance(data, str | list | tuple | dict):
        return Value(len(data), args[0].origin)
    return unknown("len")


def _convert(kind: type) -> Callable[..., Value]:
    def convert(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
        if not args:
            return Value(kind())
        value = args[0]
        data = value.data
        if isinstance(data, Instance) and "value" in data.attrs and kind is str:
            return data.attrs["value"]
        if not value.known or isinstance(data, list | tuple | dict):
            return unknown(origin=value.origin)
        try:
            return Value(kind(data), value.origin)
        except (TypeError, ValueError, OverflowError):
            if state.expects("ValueError"):
                raise Raised("ValueError") from None
            return unknown(origin=value.origin)

    return convert


def _bool(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    decided = truth(args[0]) if args else False
    return unknown() if decided is None else Value(decided, args[0].origin if args else None)


def _listing(kind: type) -> Callable[..., Value]:
    def build(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
        if not args:
            return Value(kind())
        items = iterate(args[0])
        if items is None:
            return Value(Unknown(), args[0].origin)
        return Value(kind(items), args[0].origin)

    return build


def _dict(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    items: dict[Any, Value] = {}
    if args and isinstance(args[0].data, Unknown | Call | Symbol) and not kwargs:
        return unknown(origin=args[0].origin)
    classes.fill_mapping(state, items, args, kwargs)
    return Value(items)


def _range(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if len(args) == 1:
        parts = (Value(0), args[0], Value(1))
    elif len(args) >= 2:
        parts = (args[0], args[1], args[2] if len(args) > 2 else Value(1))
    else:
        return unknown()
    return Value(RangeOf(*parts), origin_of(*args))


def _enumerate(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if not args:
        return unknown()
    items = iterate(args[0])
    start = kwargs.get("start", args[1] if len(args) > 1 else Value(0)).data
    if items is None or not isinstance(start, int):
        return Value(Unknown(), args[0].origin)
    return Value([Value((Value(start + i), item)) for i, item in enumerate(items)])


def _zip(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    columns = [iterate(value) for value in args]
    known = [column for column in columns if column is not None]
    if not columns or len(known) != len(columns):
        return unknown()
    return Value([Value(tuple(row)) for row in zip(*known, strict=False)])


def _map(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    items = iterate(args[1]) if len(args) == 2 else None
    if items is None or len(items) > 500:
        return unknown()
    return Value([state.call(args[0], [item], {}, site) for item in items])


def _filter(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    items = iterate(args[1]) if len(args) == 2 else None
    if items is None or len(items) > 500:
        return unknown()
    kept = []
    for item in items:
        decided = truth(item if args[0].data is None else state.call(args[0], [item], {}, site))
        if decided is None:
            return unknown()
        if decided:
            kept.append(item)
    return Value(kept)


def _sorted(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    items = iterate(args[0]) if args else None
    if items is None:
        return unknown()
    if "key" not in kwargs and all(item.known for item in items):
        try:
            items = sorted(items, key=lambda item: item.plain())
        except TypeError:
            return Value(items)
        if truth(kwargs.get("reverse", Value(False))):
            items.reverse()
    return Value(items)


def _reversed(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    items = iterate(args[0]) if args else None
    return unknown() if items is None else Value(items[::-1])


def _numeric(name: str) -> Callable[..., Value]:
    function = getattr(python, name)

    def apply(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
        if len(args) == 1 and isinstance(args[0].data, list | tuple) and name != "abs":
            args = list(args[0].data)
            if name in ("sum", "any", "all"):
                args = [Value(args)]
        if not args or not all(value.known for value in args):
            return unknown(origin=origin_of(*args))
        try:
            return lifted(function(*(value.plain() for value in args)), origin_of(*args))
        except (TypeError, ValueError, OverflowError):
            return unknown(origin=origin_of(*args))

    return apply


def _any_all(name: str) -> Callable[..., Value]:
    def apply(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
        items = iterate(args[0]) if args else None
        if items is None:
            return unknown()
        outcomes = [truth(item) for item in items]
        decisive = name == "any"
        if decisive in outcomes:
            return Value(decisive)
        return unknown() if None in outcomes else Value(not decisive)

    return apply


def _print(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    return Value(None)


def _open(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    path = args[0] if args else kwargs.get("file", unknown())
    mode = args[1] if len(args) > 1 else kwargs.get("mode", Value("r"))
    if isinstance(mode.data, str) and any(letter in mode.data for letter in "wax"):
        return unknown()
    handle = methods.open_file(state, path)
    if not isinstance(handle.data, FileHandle):
        state.record("open", [path], kwargs, site)
    return handle


def _type(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    if len(args) == 1:
        data = args[0].data
        if isinstance(data, Instance):
            return Value(data.cls)
        if args[0].known or isinstance(data, dict | list | tuple):
            name = "NoneType" if data is None else type(data).__name__
            return BUILTINS.get(name, unknown())
    return unknown()


def _callable(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    data = args[0].data if args else None
    if isinstance(data, Function | Class | Native | Bound | Partial):
        return Value(True)
    if args and (args[0].known or isinstance(data, dict)):
        return Value(False)
    return unknown()


def _iter(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    return args[0] if args else unknown()


def _next(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    items = iterate(args[0]) if args else None
    if items:
        return items[0]
    return state.element(args[0]) if args else unknown()


def _eval(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    """An expression given as text, followed like the program's own."""
    text = args[0].data if args else None
    if not isinstance(text, str) or len(text) > 2000:
        return unknown()
    try:
        node = parse_expression(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return unknown(text[:80])
    value = evaluate(state, node, state.frames[-1].scope)
    return Value(value.data, args[0].origin or value.origin)


def _exec(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    """`exec(open(path).read())`: a file of the repository, followed in the present scope."""
    text = args[0].data if args else None
    if isinstance(args[0].data, Call) and args[0].data.args:
        text = args[0].data.args[0].data
    path = state.texts.get(text) if isinstance(text, str) else None
    if path is None:
        return Value(None)
    file = state.sources.relative(path)
    tree = parse_tolerant(str(text), file, state.trace)
    if tree is None:
        return Value(None)
    module = state.sources.module(path, path.stem)
    frame = state.frames[-1]
    target = args[1].data if len(args) > 1 else frame.scope.names
    scope = Scope(module)
    if isinstance(target, dict):
        scope.names = target
    state.follow(tree.body, scope)
    for name, value in scope.names.items():
        if value.known:
            scope.names[name] = as_config(value, file)
    state.configs.append((file, Value(dict(scope.names))))
    return Value(None)


def _import(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    name = args[0].data if args else None
    return state.import_module(name) if isinstance(name, str) else unknown()


def _exit(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    raise Raised("SystemExit")


def _id(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    return args[0] if args else unknown()


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "isinstance": _isinstance,
    "issubclass": _issubclass,
    "getattr": _getattr,
    "hasattr": _hasattr,
    "setattr": _setattr,
    "vars": _vars,
    "globals": _globals,
    "locals": _locals,
    "super": _super,
    "len": _len,
    "int": _convert(int),
    "float": _convert(float),
    "str": _convert(str),
    "repr": _convert(repr),  # type: ignore[arg-type]
    "bool": _bool,
    "list": _listing(list),
    "tuple": _listing(tuple),
    "set": _listing(list),
    "frozenset": _listing(list),
    "dict": _dict,
    "range": _range,
    "xrange": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    "map": _map,
    "filter": _filter,
    "sorted": _sorted,
    "reversed": _reversed,
    "min": _numeric("min"),
    "max": _numeric("max"),
    "sum": _numeric("sum"),
    "abs": _numeric("abs"),
    "round": _numeric("round"),
    "any": _any_all("any"),
    "all": _any_all("all"),
    "print": _print,
    "open": _open,
    "type": _type,
    "callable": _callable,
    "iter": _iter,
    "next": _next,
    "eval": _eval,
    "exec": _exec,
    "compile": _id,
    "__import__": _import,
    "exit": _exit,
    "quit": _exit,
}

BUILTINS: dict[str, Value] = {
    name: Value(Native(name, function)) for name, function in _FUNCTIONS.items()
}
BUILTINS.update(
    {
        name: Value(Symbol(name))
        for name in dir(python)
        if name not in BUILTINS and not name.startswith("_")
    }
)
BUILTINS["True"], BUILTINS["False"], BUILTINS["None"] = Value(True), Value(False), Value(None)
BUILTINS["NoneType"] = Value(Symbol("NoneType"))
BUILTINS["unicode"] = BUILTINS["str"]
