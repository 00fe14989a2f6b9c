"""Models Python's built-in functions and classes, as far as plain data reaches.

Conversions, containers and iteration; `isinstance`, `getattr` and their kin; `open`, `eval`,
`exec`. `BUILTINS` is the table of all their names.
"""

from __future__ import annotations

import ast
import builtins as python
from collections.abc import Callable
from typing import TYPE_CHECKING

from schedmate.agent.bounds import (
    MAX_BITS,
    MAX_DATA,
    MAX_WORK,
    VALUE_WEIGHT,
    count_characters,
    measure,
)
from schedmate.agent.interp.expressions import evaluate
from schedmate.agent.interp.objects import (
    Class,
    Handler,
    Invocation,
    Native,
    PathStr,
    Raised,
    RangeOf,
    Scope,
    Site,
    Symbol,
    as_call,
    as_class,
    as_instance,
    as_node,
    as_range,
    as_symbol,
    is_own,
    return_first,
)
from schedmate.agent.interp.source import nodes_of, parse_tolerant, variable_name
from schedmate.agent.interp.values import base, classes
from schedmate.agent.interp.values.base import iterate, kind, origin_of, plain_key, truth
from schedmate.agent.interp.values.classes import Super
from schedmate.agent.interp.values.files import FileHandle, WriteHandle, open_file
from schedmate.agent.interp.values.plain import as_config, fill_mapping, in_order
from schedmate.agent.syntax import parse_expression
from schedmate.agent.values import Data, Items, Origin, Value, lifted, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

MAX_DIGITS = 400
"""Longest text read as a number [characters]."""


def _len(machine: Machine, call: Invocation) -> Value:
    owner = as_instance(call.first)
    data = (owner.items if owner is not None and owner.items is not None else call.first).data
    if isinstance(data, str | list | tuple | dict) and id(data) not in machine.gathered:
        return Value(len(data), call.first.origin)
    return base.unknown_length(call.first) if call.args else unknown("len")


def _convert(convert_to: Callable[..., Data]) -> Handler:
    def convert(machine: Machine, call: Invocation) -> Value:
        if not call.args:
            return Value(convert_to())
        value, owner = call.args[0], as_instance(call.args[0])
        if owner is not None and "value" in owner.attrs and convert_to is str:
            return owner.attrs["value"]
        if base.passes_of(value) and convert_to is not str:
            return value
        if kind(value).container or not value.known:
            return unknown(origin=value.origin)
        if convert_to in (int, float) and count_characters(value.data) > MAX_DIGITS:
            return unknown(origin=value.origin)
        try:
            return machine.made(Value(convert_to(value.data), value.origin))
        except (TypeError, ValueError, OverflowError):
            if machine.expects("ValueError"):
                raise Raised("ValueError") from None
            return unknown(origin=value.origin)

    return convert


def _bool(machine: Machine, call: Invocation) -> Value:
    decided = truth(call.first) if call.args else False
    return unknown() if decided is None else Value(decided, call.first.origin)


def _listing(made_of: type[list[Value] | tuple[Value, ...]]) -> Handler:
    def build(machine: Machine, call: Invocation) -> Value:
        items = iterate(classes.enum_members(call.first)) if call.args else []
        if items is None:
            return unknown(origin=call.first.origin)
        return machine.made(Value(made_of(items), call.first.origin))

    return build


def _set(machine: Machine, call: Invocation) -> Value:
    """A set, kept as a list of what it holds once each."""
    made = _listing(list)(machine, call) or unknown()
    if made.elements is not None and made.known:
        seen: Items = {}
        for item in made.elements:
            key = plain_key(item)
            seen.setdefault(id(item) if key is None else key, item)
        made.elements[:] = seen.values()
    return made


def _dict(machine: Machine, call: Invocation) -> Value:
    items: Items = {}
    given = kind(call.first)
    if call.args and (given.unknown or given.foreign) and not call.kwargs:
        return unknown(origin=call.first.origin)
    fill_mapping(machine, items, call.args, call.kwargs)
    return Value(items)


def _range(machine: Machine, call: Invocation) -> Value:
    start, stop = (Value(0), call.need(0)) if len(call.args) < 2 else call.args[:2]
    return Value(RangeOf(start, stop, call.argument(2) or Value(1)), origin_of(*call.args))


def _enumerate(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.first)
    start = (call.argument(1, "start") or Value(0)).integer
    if items is None or start is None:
        return unknown(origin=call.first.origin)
    machine.charge(2 * VALUE_WEIGHT * len(items))
    return Value([Value((Value(start + i), item)) for i, item in enumerate(items)])


def _zip(machine: Machine, call: Invocation) -> Value:
    columns = []
    for value in call.args:
        columns.append(iterate(value))
        machine.charge(VALUE_WEIGHT + len(columns[-1] or ()))
    resolved = [column for column in columns if column is not None]
    if not columns or len(resolved) != len(columns):
        counts = [value for value in call.args if as_range(value) is not None]
        return counts[0] if counts else unknown()  # `zip(range(steps), batches)` goes so often
    return Value([Value(tuple(row)) for row in zip(*resolved, strict=False)])


def _map(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.args[1]) if len(call.args) == 2 else None
    if items is None or len(items) > 500:
        return unknown()
    return Value([machine.call(call.args[0], [item], {}, call.site) for item in items])


def _filter(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.argument(1))
    if items is None or len(items) > 500:
        return unknown()
    asked = items
    if call.first.data is not None:
        asked = [machine.call(call.first, [item], {}, call.site) for item in items]
    decided = list(map(truth, asked))
    if None in decided:
        return unknown()
    return Value([item for item, passes in zip(items, decided, strict=True) if passes])


def _sorted(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.first)
    if items is None:
        made = as_call(call.first)
        return call.first if made is not None and made.path == "glob.glob" else unknown()
    return Value(in_order(machine, items, call.kwargs, call.site))


def _reversed(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.first)
    return unknown() if items is None else machine.made(Value(items[::-1]))


def _numeric(name: str) -> Handler:
    function = getattr(python, name)

    def apply(machine: Machine, call: Invocation) -> Value:
        args = call.args
        if len(args) == 1 and args[0].sequence is not None and name != "abs":
            args = list(args[0].sequence)
            if name == "sum":
                args = [Value(args)]
        key = call.kwargs.get("key")
        if key is not None and name in ("min", "max"):
            items = iterate(args[0]) if len(args) == 1 else args
            ordered = in_order(machine, items or [], {"key": key}, call.site)
            return ordered[0 if name == "min" else -1] if ordered else unknown()
        size = measure(args, plain=True)
        if not args or size is None:
            return base.same_passes(args) or unknown(origin=origin_of(*args))
        if not _is_bearable(name, args, size):
            return unknown(origin=origin_of(*args))
        machine.charge(size)
        try:
            return lifted(function(*(value.plain() for value in args)), origin_of(*args))
        except (TypeError, ValueError, OverflowError):
            return unknown(origin=origin_of(*args))

    return apply


def _is_bearable(name: str, args: list[Value], size: int) -> bool:
    """Whether `round` and `sum` keep to a size: `round(5, -10**9)`, `sum(lists, [])`."""
    last, digits = args[-1], args[-1].integer
    if name == "round" and len(args) > 1:
        return digits is not None and abs(digits) <= MAX_BITS
    if name == "sum" and len(args) > 1 and last.sequence is not None:
        # each addition copies what there is so far
        return size * len(args[0].sequence or ()) <= MAX_WORK
    return True


def _any_all(name: str) -> Handler:
    def apply(machine: Machine, call: Invocation) -> Value:
        items = iterate(call.first)
        if items is None:
            return unknown()
        outcomes = [truth(item) for item in items]
        decisive = name == "any"
        if decisive in outcomes:
            return Value(decisive)
        return unknown() if None in outcomes else Value(not decisive)

    return apply


def _next(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.first)
    return items[0] if items else machine.element(call.first)


# Built-in functions that ask what something is and which attributes it has.


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
    wanted = _TYPES.get(name) or machine.plugins.types.get(name)
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
    return classes.last_part(name) in map(classes.last_part, cls.external_bases())


def _is_plain(data: Data, wanted: tuple[type, ...]) -> bool:
    """Whether plain data is of one of these types, to the program that is followed."""
    if bool not in wanted and isinstance(data, bool):
        return int in wanted
    if PathStr not in wanted and isinstance(data, PathStr):
        return False
    return isinstance(data, wanted)


def _isinstance(machine: Machine, call: Invocation) -> Value:
    outcome = is_instance(machine, call.need(0), call.need(1))
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
    name = call.need_text(1)
    machine.observer.looks_up(name)
    exists = kind(call.first).has(machine, call.first, name)
    if exists is False and len(call.args) > 2:
        return call.args[2]
    value = machine.getattr(call.first, name)
    if as_symbol(value) is not None and exists is None and len(call.args) > 2:
        return value
    if value.unknown and exists is None and len(call.args) > 2:
        return unknown(name)
    if (is_own(value) or as_symbol(value) is not None) and call.args[1].origin is not None:
        return Value(value.data, call.args[1].origin)
    return value


def _hasattr(machine: Machine, call: Invocation) -> Value:
    found = kind(call.first).has(machine, call.first, call.need_text(1))
    return unknown() if found is None else Value(found)


def _setattr(machine: Machine, call: Invocation) -> Value:
    machine.setattr(call.first, call.need_text(1), call.need(2))
    return Value(None)


def _delattr(machine: Machine, call: Invocation) -> Value:
    attributes = kind(call.first).attributes(call.first).mapping
    if machine.certain and len(call.args) == 2 and attributes is not None:
        attributes.pop(call.args[1].text, None)
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
    if kind(call.first).callable_:
        return Value(True)
    plain = call.first.known or call.first.mapping is not None
    return Value(False) if plain else unknown()


# Built-in functions that open files and run code.


def _open(machine: Machine, call: Invocation) -> Value:
    path = call.args[0] if call.args else call.kwargs.get("file", unknown())
    mode = call.args[1] if len(call.args) > 1 else call.kwargs.get("mode", Value("r"))
    if mode.text is not None and any(letter in mode.text for letter in "wax"):
        return unknown() if path.text is None else Value(WriteHandle(path.text), path.origin)
    handle = open_file(machine, path)
    if not isinstance(handle.data, FileHandle):
        machine.record("open", [path], call.kwargs, call.site)
    return handle


def _eval(machine: Machine, call: Invocation) -> Value:
    """An expression given as text, followed like the program's own."""
    text = call.need_text(0)
    if len(text) > 2000:
        return unknown()
    try:
        node = parse_expression(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return unknown(text[:80])
    for part in nodes_of([node], ast.expr):
        part.lineno = part.end_lineno = call.site.line
    value = evaluate(machine, node, machine.frames[-1].scope)
    if variable_name(node) and value.unknown and machine.expects("NameError"):
        raise Raised("NameError")  # `try: value = eval(text)`, `except: pass`
    return Value(value.data, call.args[0].origin or value.origin)


def _exec(machine: Machine, call: Invocation) -> Value:
    """`exec(open(path).read())`: a file of the repository, followed in the present scope."""
    compiled = as_call(call.first)
    text = (compiled.args[0] if compiled is not None and compiled.args else call.first).text
    path = machine.texts.get(text) if text is not None else None
    if path is None or text is None:
        return Value(None)
    file = machine.sources.relative(path)
    tree = parse_tolerant(text, file, machine.observer.warns)
    if tree is None:
        return Value(None)
    module = machine.sources.module(path, path.stem)
    frame = machine.frames[-1]
    scope = Scope(module)
    target = call.args[1].mapping if len(call.args) > 1 else frame.scope.names
    if target is not None:
        scope.names = target
    machine.follow(tree.body, scope)
    for name, value in scope.names.items():
        if value.known:
            scope.names[name] = as_config(value, file)
    machine.observer.executes(file, Value(dict(scope.names)))
    return Value(None)


def _import(machine: Machine, call: Invocation) -> Value:
    return machine.import_module(call.need_text(0))


def _exit(machine: Machine, call: Invocation) -> Value:
    raise Raised("SystemExit")


# Python's built-in names.


def _type(machine: Machine, call: Invocation) -> Value:
    if len(call.args) == 1:
        value = call.args[0]
        owner = as_instance(value)
        if owner is not None:
            return Value(owner.cls)
        if kind(value).container or value.known:
            name = "NoneType" if value.data is None else type(value.data).__name__
            return BUILTINS.get(name, unknown())
    if len(call.args) == 3:
        title, attrs = call.args[0].text, call.args[2].mapping
        if title is not None and attrs is not None:
            return _new_class(machine, title, call.args[1], attrs, call.site)
    return unknown()


def _new_class(
    machine: Machine, name: str, bases: Value, attrs: dict[str, Value], site: Site
) -> Value:
    """`type(name, bases, attributes)`: a class that no `class` statement makes."""
    node = ast.ClassDef(name, [], [], [], [], lineno=site.line)
    made = Class(name, node, machine.frames[-1].scope, iterate(bases) or [], dict(attrs))
    return Value(made, Origin("code", site.file, site.line))


FUNCTIONS: dict[str, Handler] = {
    # a function of this module called `_len` models Python's `len`
    **{name: globals()[f"_{name}"] for name in dir(python) if f"_{name}" in globals()},
    **{name: _convert(getattr(python, name)) for name in ("int", "float", "str", "repr")},
    **{name: _numeric(name) for name in ("min", "max", "sum", "abs", "round")},
    **{name: _any_all(name) for name in ("any", "all")},
    "list": _listing(list),
    "tuple": _listing(tuple),
    **dict.fromkeys(("iter", "compile"), return_first),
    "frozenset": _set,
    "xrange": _range,
    "quit": _exit,
    "print": lambda *_: Value(None),
    "globals": lambda machine, _: Value(machine.frames[-1].scope.module.scope.names),
    "__import__": _import,
}
"""The models of built-in functions, by their names."""

BUILTINS: dict[str, Value] = {
    name: Value(Native(name, function)) for name, function in FUNCTIONS.items()
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
