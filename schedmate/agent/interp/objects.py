"""What a `Value` can hold besides plain data while code is followed, and where control is.

The stand-ins for functions, classes, objects, modules and things of libraries come first; then a
call as a model receives it (`Invocation`), frames, and the ways in which a block is left.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from schedmate.agent.bounds import Budget
from schedmate.agent.values import Items, StandIn, Value, unknown
from schedmate.base.data import load

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

T = TypeVar("T")

MAX_BASES = 64
"""Bases of one class that are looked at."""
MAX_NAME = 300
"""Longest dotted path of a library's thing."""


def _bounded(path: str) -> str:
    """A dotted path, or one that says nothing where a program goes on and on: `x = x[0]`."""
    return path if len(path) <= MAX_NAME else "?"


class Scope:
    """Names visible in one module, class body or function call."""

    __slots__ = ("globals_", "module", "names", "nonlocals", "parent", "stars")

    def __init__(self, module: Module, parent: Scope | None = None) -> None:
        self.module = module
        self.parent = parent
        self.names: dict[str, Value] = {}
        self.stars: list[Module] = []
        self.globals_: set[str] = set()
        self.nonlocals: set[str] = set()


@dataclass(eq=False, slots=True)
class Module(StandIn):
    """A module of the repository; `scope` is filled when it is first needed."""

    name: str
    path: Path
    file: str
    package: str
    scope: Scope = field(init=False)
    loaded: bool = False

    def __post_init__(self) -> None:
        self.scope = Scope(self)


@dataclass(eq=False, slots=True)
class Symbol(StandIn):
    """Something of a third-party library known by its dotted path only."""

    path: str
    base: Value | None = None

    def __post_init__(self) -> None:
        self.path = _bounded(self.path)


@dataclass(eq=False, slots=True)
class Call(StandIn):
    """The result of calling a third-party callable; `path` names the callable."""

    path: str
    args: list[Value]
    kwargs: dict[str, Value]
    attrs: Items = field(default_factory=dict)
    callee: Value | None = None

    def __post_init__(self) -> None:
        self.path = _bounded(self.path)


@dataclass(eq=False, slots=True)
class Function(StandIn):
    """A function, method or lambda of the repository.

    `setter` is what assigns to a property.
    """

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    defaults: dict[str, Value]
    cls: Class | None = None
    decorators: list[Value] = field(default_factory=list)
    setter: Function | None = None
    kind: str = "function"  # function | classmethod | staticmethod | property | fixture

    @property
    def module(self) -> Module:
        return self.scope.module

    @property
    def site(self) -> Site:
        """The file and line of the definition."""
        return Site(self.module.file, self.node.lineno)

    def undecorated(self) -> Function:
        """The function without its decorators, so that calling it runs its body."""
        return Function(self.name, self.node, self.scope, self.defaults, self.cls)


@dataclass(eq=False, slots=True)
class Class(StandIn):
    """A class of the repository; `members` are those of an enum, each the same object always."""

    name: str
    node: ast.ClassDef
    scope: Scope
    bases: list[Value]
    attrs: dict[str, Value] = field(default_factory=dict)
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    decorators: list[Value] = field(default_factory=list)
    members: dict[str, Instance] = field(default_factory=dict)
    _order: list[Class] = field(default_factory=list)

    @property
    def module(self) -> Module:
        return self.scope.module

    def mro(self) -> list[Class]:
        """The repository's classes in lookup order (depth first, first seen wins)."""
        order = self._order
        stack: list[Class] = [] if order else [self]
        while stack:
            cls = stack.pop(0)
            if cls in order or len(order) > 64:
                continue
            order.append(cls)
            stack = [own for b in cls.bases[:MAX_BASES] if (own := as_class(b))] + stack
        return order

    def external_bases(self) -> list[str]:
        """Dotted paths of third-party classes among the ancestors."""
        bases = [base for cls in self.mro() for base in cls.bases[:MAX_BASES]]
        paths = [b.data.name if isinstance(b.data, Native) else path_of(b) for b in bases]
        return [path for path in paths if path]

    def lookup(self, name: str) -> Value | None:
        """A class attribute by method resolution order."""
        for cls in self.mro():
            if name in cls.attrs:
                return cls.attrs[name]
        return None

    def method(self, name: str) -> Function | None:
        """The function that a class attribute is, by method resolution order."""
        return as_function(self.lookup(name))

    def names(self) -> set[str]:
        """The names of all class attributes, inherited ones too."""
        return {name for cls in self.mro() for name in cls.attrs}


@dataclass(eq=False, slots=True)
class Instance(StandIn):
    """An object of a class of the repository. `items` is set for subclasses of dict or list."""

    cls: Class
    attrs: dict[str, Value] = field(default_factory=dict)
    items: Value | None = None
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)

    @property
    def mapping(self) -> Items | None:
        """Its items by key, where its class is built on dict."""
        return self.items.mapping if self.items is not None else None

    @property
    def is_member(self) -> bool:
        """Whether it is a member of an enum."""
        return self in self.cls.members.values()


@dataclass(eq=False, slots=True)
class Bound(StandIn):
    """A method bound to its object."""

    func: Value
    self: Value


@dataclass(eq=False, slots=True)
class Partial(StandIn):
    """`functools.partial` or a library's equivalent."""

    func: Value
    args: list[Value]
    kwargs: dict[str, Value]


@dataclass(eq=False, slots=True)
class Native(StandIn):
    """A function that schedmate models itself; `model` is a `Handler` of the machine."""

    name: str
    model: Callable[..., Value | None]


@dataclass(eq=False, slots=True)
class RangeOf(StandIn):
    """`range(start, stop, step)` whose ends may be unknown."""

    start: Value
    stop: Value
    step: Value


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a call: module file and line, and the call's source node."""

    file: str
    line: int
    node: ast.AST | None = None


NOWHERE = Site("", 1)
"""The site of a call that no line of the program makes."""


class AttrDict(Items):
    """A dict whose items are attributes as well: namespaces and configuration nodes.

    `flavour` names the library it stands for, which decides the methods it has.
    """

    __slots__ = ("flavour", "label")

    def __init__(self, items: Items | None = None, flavour: str = "", label: str = "") -> None:
        super().__init__(items or {})
        self.flavour = flavour
        self.label = label

    # identity, as for the mutable object it stands for
    __hash__ = object.__hash__  # type: ignore[assignment]


class PathStr(str):
    """A `pathlib.Path`."""

    __slots__ = ()


class DefaultDict(Items):
    """A `collections.defaultdict` and the factory of its missing items."""

    __slots__ = ("factory",)

    def __init__(self, factory: Value) -> None:
        super().__init__()
        self.factory = factory


def path_of(value: Value | None) -> str:
    """The dotted path of a library's thing, or of what made it; empty for other values."""
    data = value.data if value is not None else None
    return data.path if isinstance(data, Symbol | Call) else ""


def _as(kind: type[T]) -> Callable[[Value | None], T | None]:
    """A function that gives the data of a value where it is of a kind, else None."""

    def data_of(value: Value | None) -> T | None:
        data = value.data if value is not None else None
        return data if isinstance(data, kind) else None

    return data_of


as_function = _as(Function)
as_class = _as(Class)
as_instance = _as(Instance)
as_call = _as(Call)
as_symbol = _as(Symbol)
as_range = _as(RangeOf)
as_node = _as(AttrDict)


def is_own(value: Value | None) -> bool:
    """Whether a value is a function or a class of the repository."""
    return value is not None and isinstance(value.data, Function | Class)


# A call of something that schedmate models, as its model receives it.


@dataclass(slots=True)
class Invocation:
    """A call of a third-party callable; `base` is the object whose method it is."""

    path: str
    args: list[Value]
    kwargs: dict[str, Value]
    site: Site
    base: Value | None = None

    @property
    def owner(self) -> Value:
        """The object whose method is called, unknown for a function."""
        return self.base if self.base is not None else unknown()

    @property
    def first(self) -> Value:
        """The first argument given by position, unknown without one."""
        return self.args[0] if self.args else unknown()

    def argument(self, position: int | None, *names: str) -> Value | None:
        """The argument under the first of `names` that was given, else the one at `position`."""
        return pick_argument(self.args, self.kwargs, position, names)

    def text(self, position: int | None, *names: str) -> str | None:
        """The text of the argument that `argument` gives; None where it is not a known text."""
        found = pick_argument(self.args, self.kwargs, position, names)
        return found.text if found is not None else None

    def need(self, position: int | None, *names: str) -> Value:
        """The argument that `argument` gives; raises `Lacking` where there is none."""
        found = pick_argument(self.args, self.kwargs, position, names)
        if found is None:
            raise Lacking
        return found

    def need_text(self, position: int | None, *names: str) -> str:
        """The text that `text` gives; raises `Lacking` where there is none."""
        text = self.text(position, *names)
        if text is None:
            raise Lacking
        return text


class Lacking(Exception):
    """A call does not have what its model needs, so that its result is unknown."""


def pick_argument(
    args: list[Value], kwargs: dict[str, Value], position: int | None, names: tuple[str, ...]
) -> Value | None:
    """The argument under the first of `names` that was given, else the one at `position`."""
    for name in names:
        if name in kwargs:
            return kwargs[name]
    if position is not None and position < len(args):
        return args[position]
    return None


# Models of functions as values of the program.

Handler: TypeAlias = "Callable[[Machine, Invocation], Value | None]"
"""A model of something that is called: a function, or a method of the call's `base`.

None says that it has nothing to add to the recorded call.
"""


def native(name: str, model: Handler) -> Value:
    """A callable value of the program, named `name`, whose calls `model` answers."""
    return Value(Native(name, model))


def bound(base: Value, name: str, model: Handler) -> Value:
    """The value of `base.name`, a method that `model` answers for."""

    def call(machine: Machine, call: Invocation) -> Value | None:
        call.base = base
        return model(machine, call)

    return Value(Native(name, call))


def return_owner(machine: Machine, call: Invocation) -> Value:
    """A method that gives back the object that it is called on."""
    return call.owner


def return_first(machine: Machine, call: Invocation) -> Value:
    """A callable that gives back what it is given first."""
    return call.first


_GIVEN = load("agent/interp/libs/models.yaml")
_MODELS: dict[str, dict[str, list[str]]] = _GIVEN["calls"]
GROUPS: dict[str, list[str]] = _GIVEN["groups"]
"""Paths of libraries, or parts of them, that models.yaml names together."""


def modelled(
    section: str, functions: Mapping[str, Callable[..., Handler | Value | None]]
) -> dict[str, Handler]:
    """The models of a section of models.yaml, by the paths or names of what they answer.

    `functions` are the names that it may use: those of the module whose section it is.
    """
    calls: dict[str, Handler] = {}
    for entry, paths in _MODELS[section].items():
        name, _, word = entry.partition(" ")
        model = cast("Handler", functions[name](word) if word else functions[name])
        for path in paths:
            groups = re.findall(r"\{(\w+)\}", path)
            for members in product(*(GROUPS[group] for group in groups)):
                calls[path.format_map(dict(zip(groups, members, strict=True)))] = model
    return calls


# Where control is in the followed program, and how it leaves a block.


@dataclass(slots=True)
class Frame:
    """One active call: its function and class, and how many loops it is in."""

    scope: Scope
    function: str
    cls: Class | None = None
    self: Value | None = None
    loops: int = 0
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] | None = field(default_factory=list)


@dataclass(slots=True)
class Limits:
    """How far to follow: evaluation steps, work by its size, and time.

    `work` counts items and eighths of characters that are gone through or made, which bounds the
    memory that a program's values take together.
    """

    steps: int = 220_000
    work: int = 40_000_000
    network_steps: int = 4_000
    time: Budget = field(default_factory=lambda: Budget(5.0))


class BudgetSpent(Exception):
    """The step or time limit is reached; what was traced so far stands."""


class Raised(Exception):
    """The followed program raises; `name` is the exception's class name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


ANY_ERROR = frozenset(["Exception", "BaseException"])


def lineage(error: str) -> frozenset[str]:
    """An exception's name and those of the classes it is derived from, but for `ANY_ERROR`."""
    found = getattr(builtins, error, None)
    classes = found.__mro__[:-1] if isinstance(found, type) else ()
    return frozenset([error, *(cls.__name__ for cls in classes)]) - ANY_ERROR


@dataclass(frozen=True, slots=True)
class Flow:
    """A block that did not fall through: return, break or continue."""

    kind: str
    value: Value | None = None


BREAK = Flow("break")
CONTINUE = Flow("continue")
