"""The state of one partial evaluation (`Machine`), and how models of libraries plug into it.

`Machine` keeps the frames, doubt and budget of one run, and binds as methods the functions of
`expressions` and `statements`, which follow Python's constructs. A `Plugin` models one
library by the dotted paths under which the program uses it; the `Registry` asks all plugins.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import splitext
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from schedmate.agent.interp import expressions, statements
from schedmate.agent.interp.builtins import BUILTINS
from schedmate.agent.interp.objects import (
    ANY_ERROR,
    BudgetSpent,
    Call,
    Class,
    Frame,
    Function,
    Handler,
    Invocation,
    Limits,
    Scope,
    Site,
    as_node,
    bound,
    lineage,
)
from schedmate.agent.interp.source import Sources
from schedmate.agent.interp.values.base import kind
from schedmate.agent.values import Data, Items, Value, stated, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.trace import Watcher


N = TypeVar("N", bound=ast.AST)
A = TypeVar("A")

LOOK = 10_000
"""Size of an operation after which the time is looked at."""
TRY_REACH = 3
"""Calls between a `raise` and the `try` that is still taken to be meant for it."""


class Machine:
    """One run of a partial evaluator over a program.

    It runs the parts of Python that decide what a training job is (assignments, argument parsing,
    config merging, factory functions) on data from the command and the repository's files, and
    leaves everything else unknown. It performs no I/O but reading files inside the repository, and
    stops at its step and time limits with what it has seen so far. What it does with each construct
    of Python is a function of its own, bound here as a method.
    """

    evaluate = expressions.evaluate
    follow = statements.execute_statements

    bind = statements.bind_name
    assign = statements.assign
    call = expressions.call_value
    call_function = expressions.call_function
    external = expressions.call_external

    import_module = expressions.import_module
    search_path = expressions.search_path
    load = expressions.load_module
    run_module = expressions.run_module
    module_attr = expressions.module_attr

    def __init__(
        self,
        sources: Sources,
        plugins: Registry,
        facts: Mapping[str, Data],
        observer: Watcher,
        argv: list[Value],
        environ: dict[str, Value],
        limits: Limits | None = None,
    ) -> None:
        self.sources = sources
        self.plugins = plugins
        self.observer = observer
        self.facts = {
            name: unknown() if fact is None else Value(fact, stated(name, fact))
            for name, fact in facts.items()
        }
        self.argv = argv
        self.environ = environ
        self.limits = limits or Limits()
        self.frames: list[Frame] = []
        self.steps = 0
        self.work = 0
        self.step_limit = self.limits.steps
        self.doubt = 0
        self.trying: list[tuple[int, set[str], bool]] = []
        self.networks: list[str] = []
        self.active: dict[int, int] = {}
        # of functions by their node: calls, steps so far, the step at which one that runs began
        self.spent: dict[int, tuple[int, int, int]] = {}
        self.blind: dict[int, Value] = {}  # of long functions followed in doubt, by their node
        self.shared: dict[str, Any] = {}
        # files by their place, those that earlier programs of the command wrote among them
        self.written: dict[str, Value] = {}
        self.texts: dict[str, Path] = {}
        self.gathered: dict[int, list[Value]] = {}  # in loops followed once: of unknown length
        self._answers: dict[tuple[Any, ast.AST], Any] = {}

    # -- what a run may take ---------------------------------------------------

    def tick(self) -> None:
        self.steps += 1
        if self.steps > self.step_limit:
            raise BudgetSpent
        if not self.steps & 15:
            self.look()

    def look(self) -> None:
        """Raise `BudgetSpent` when the time is over: between steps and before long operations."""
        if self.limits.time.spent():
            raise BudgetSpent

    def charge(self, size: int) -> None:
        """Count work against `limits.work`, by the size of what an operation reads or makes.

        A size counts items, or eighths of characters. Raises `BudgetSpent` past the limit.
        """
        self.work += size
        if self.work > self.limits.work:
            raise BudgetSpent
        if size > LOOK:
            self.look()

    def made(self, value: Value) -> Value:
        """`value`, after charging for the container or text that was made for it."""
        data = value.data
        if isinstance(data, str | bytes):
            self.charge(len(data) // 8)
        elif isinstance(data, list | tuple | dict):
            self.charge(len(data))
        return value

    def out_of_time(self) -> bool:
        return self.limits.time.spent()

    def once(self, question: Callable[[N], A], node: N) -> A:
        """The answer of `question` for a node of the syntax tree, computed once for each node."""
        key = question, node
        if key not in self._answers:
            self._answers[key] = question(node)
        answer: A = self._answers[key]
        return answer

    # -- doubt and errors ------------------------------------------------------

    @property
    def certain(self) -> bool:
        return self.doubt == 0

    @contextmanager
    def uncertain(self) -> Iterator[None]:
        self.doubt += 1
        try:
            yield
        finally:
            self.doubt -= 1

    def catches(self, *names: str) -> bool:
        """Whether a `try` close by in the program handles one of these exceptions."""
        wanted = ANY_ERROR.union(*map(lineage, names))
        return any(
            caught & wanted and len(self.frames) - depth <= TRY_REACH
            for depth, caught, _ in self.trying
        )

    def expects(self, *names: str) -> bool:
        """Whether a `try` here is meant for one of these errors: it names it or is short."""
        wanted = frozenset[str]().union(*map(lineage, names))
        return any(
            (caught & wanted or (short and caught & ANY_ERROR)) and len(self.frames) - depth <= 1
            for depth, caught, short in self.trying
        )

    # -- calls -----------------------------------------------------------------

    def record(
        self,
        path: str,
        args: list[Value],
        kwargs: dict[str, Value],
        site: Site,
        result: Value | None = None,
    ) -> None:
        """Tell the observer of a call that a library makes or that stands for one."""
        self.observer.called(self, Invocation(path, args, kwargs, site), result)

    # -- operations of Python --------------------------------------------------

    def join(self, first: Value, second: Value) -> Value:
        """The value of a name after two branches, of which it is not decided which one ran.

        Unknown where scalars differ, or where a scalar may also be unknown. None gives way to the
        other value, and of two containers or objects the first one stays.
        """
        a, b = kind(first), kind(second)
        if first.data is second.data:
            return first
        if a.unknown:
            return unknown(origin=first.origin) if b.scalar else second
        if b.unknown:
            return unknown(origin=second.origin) if a.scalar else first
        if first.data is None or second.data is None:
            return second if first.data is None else first
        if a.scalar and b.scalar and first.known and second.known:
            return first if first.data == second.data else self._at_hand(first, second)
        return first

    def _at_hand(self, first: Value, second: Value) -> Value:
        """Of two paths to one kind of file the one that is in the repository, else unknown."""
        endings = {splitext(value.text or "")[1] for value in (first, second)}
        if len(endings) == 1 and "" not in endings:
            there = [v for v in (first, second) if self.sources.locate(v.text or "") is not None]
            if len(there) == 1:
                return there[0]
        return unknown(origin=first.origin)

    def lookup(self, name: str, scope: Scope) -> Value:
        """The value of a name: of the scope or one around it, of the module, else Python's own.

        Unknown where none of them has it.
        """
        current: Scope | None = scope
        while current is not None:
            if name in current.names and name not in current.globals_:
                return current.names[name]
            current = current.parent
        module_scope = scope.module.scope
        if name in module_scope.names:
            return module_scope.names[name]
        for star in module_scope.stars:
            value = self.module_attr(star, name)
            if value is not None:
                return value
        builtin = BUILTINS.get(name)
        if builtin is not None:
            return builtin
        return unknown(name)

    def builtin(self, name: str) -> Value | None:
        """The value of one of Python's built-in names; None for another name."""
        return BUILTINS.get(name)

    def getattr(self, base: Value, name: str) -> Value:
        """The value of `base.name`: what a plugin answers, else what the kind of `base` does."""
        modelled = self.plugins.attribute(self, base, name)
        return modelled if modelled is not None else kind(base).getattr(self, base, name)

    def setattr(self, base: Value, name: str, value: Value) -> None:
        """Follow `base.name = value`, as the kind of `base` does it."""
        kind(base).setattr(self, base, name, value)

    def getitem(self, base: Value, index: Value) -> Value:
        """The value of `base[index]`, as the kind of `base` gives it."""
        return kind(base).getitem(self, base, index)

    def setitem(self, base: Value, index: Value, value: Value) -> None:
        """Follow `base[index] = value`, as the kind of `base` does it."""
        kind(base).setitem(self, base, index, value)

    def mapping(self, value: Value | None) -> Items | None:
        """The items of a mapping-like value, None when they are not known."""
        return kind(value).mapping(self, value) if value is not None else None

    def element(self, container: Value) -> Value:
        """A value for any item of a container whose items are not known."""
        return kind(container).element(container)

    # -- modules ---------------------------------------------------------------

    def parse(self, path: Path) -> ast.Module | None:
        """The syntax tree of a file of the repository."""
        return self.sources.parse(path, self.observer)


# Plugins: the model of one library, and the registry of all of them.
#
# A plugin is asked by what the program calls things: dotted paths, in which `()` marks the result
# of a call and `?` something unknown. `*.name` is a method of anything.


T = TypeVar("T")
Attribute: TypeAlias = Callable[[Machine, Value], Value | None]
Item: TypeAlias = Callable[[Machine, Value, Value], Value | None]

ANY = "*"
"""The flavour whose methods all configuration nodes have, but those of flavours listed."""


def _no_entries() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """The models of one library: what its calls, names, methods and classes give.

    Attributes:
        calls: models of what is called, by dotted path.
        names: what dotted names stand for.
        methods: methods of configuration nodes, by their flavour; `__missing__` answers for an item
            that is not there. A flavour listed here has no methods of `ANY`.
        attributes: what an attribute of any value is, by its name.
        items: what an item of a library's thing is, by the thing's path or its beginning.
        types: the data that stands for instances of a library's class.
        defaults: documented values of the fields of a configuration class, by its path.
        stands_for: the path of the library's class that a class is a copy of, by the names of its
            methods and its module.
        otherwise: the answer to a call that nothing models.
        missing: an attribute that nothing knows of a call's result.
        arguments: what the library gives a function or class that its caller does not.
        on_constructed: the object, where a class built on the library's was constructed and that is
            all that there is to follow.
        on_defined: hears of decorated functions.
        on_enter: what calling a decorated function without arguments gives, by one decorator.
    """

    calls: Mapping[str, Handler] = field(default_factory=_no_entries)
    names: Mapping[str, Callable[[Machine], Value | None]] = field(default_factory=_no_entries)
    methods: Mapping[str, Mapping[str, Handler]] = field(default_factory=_no_entries)
    attributes: Mapping[str, Attribute] = field(default_factory=_no_entries)
    items: Mapping[str, Item] = field(default_factory=_no_entries)
    types: Mapping[str, tuple[type, ...]] = field(default_factory=_no_entries)
    defaults: Callable[[str], dict[str, Value]] | None = None
    stands_for: Callable[[set[str]], str | None] | None = None
    otherwise: Handler | None = None
    missing: Callable[[Machine, Call, str], Value | None] | None = None
    arguments: Callable[[Machine, Function | Class], dict[str, Value]] | None = None
    on_constructed: Callable[[Machine, Value, Invocation], Value | None] | None = None
    on_defined: Callable[[Machine, Function], None] | None = None
    on_enter: Callable[[Machine, Function, Value], Value | None] | None = None


class TwiceError(ValueError):
    """Two plugins model the same path, name, attribute or type."""


class Registry:
    """All plugins, asked as one.

    Args:
        plugins: each in the order in which it is asked; no two may model the same path.

    Raises:
        TwiceError: two of them do.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self.calls: dict[str, Handler] = self._one_each("calls")
        self.names: dict[str, Callable[[Machine], Value | None]] = self._one_each("names")
        self._methods: dict[str, Mapping[str, Handler]] = self._one_each("methods")
        self._attributes: dict[str, Attribute] = self._one_each("attributes")
        self._items: dict[str, Item] = self._one_each("items")
        self.types: dict[str, tuple[type, ...]] = self._one_each("types")
        self._defaults = [p.defaults for p in self.plugins if p.defaults]
        self._stands_for = [p.stands_for for p in self.plugins if p.stands_for]
        self._otherwise = [p.otherwise for p in self.plugins if p.otherwise]
        self._missing = [p.missing for p in self.plugins if p.missing]
        self._arguments = [p.arguments for p in self.plugins if p.arguments]
        self._on_constructed = [p.on_constructed for p in self.plugins if p.on_constructed]
        self._on_defined = [p.on_defined for p in self.plugins if p.on_defined]
        self._on_enter = [p.on_enter for p in self.plugins if p.on_enter]

    def _one_each(self, table: str) -> dict[str, Any]:
        """One table of all plugins together; raises `TwiceError` for a key that two have."""
        models: dict[str, Any] = {}
        for plugin in self.plugins:
            entries: Mapping[str, Any] = getattr(plugin, table)
            for path, model in entries.items():
                if path in models:
                    raise TwiceError(f"two plugins have {path!r} among their {table}")
                models[path] = model
        return models

    def model(self, path: str) -> Handler | None:
        """The model of the callable at `path`, or else of its last name as `*.name`; or None."""
        handler = self.calls.get(path)
        if handler is None and "." in path:
            handler = self.calls.get("*." + path.rsplit(".", 1)[-1])
        return handler

    def name(self, machine: Machine, path: str) -> Value | None:
        """The value that a dotted name of a library stands for; None where no plugin says."""
        maker = self.names.get(path)
        return maker(machine) if maker is not None else None

    def attribute(self, machine: Machine, base: Value, name: str) -> Value | None:
        """The value of `base.name` where a plugin gives that name a meaning; else None."""
        model = self._attributes.get(name)
        return model(machine, base) if model is not None else None

    def missing(self, machine: Machine, base: Call, name: str) -> Value | None:
        """The value of an attribute of a library call's result that nothing else gives; or None."""
        return _first_answer(model(machine, base, name) for model in self._missing)

    def item(self, machine: Machine, base: Value, path: str, index: Value) -> Value | None:
        """The value of `base[index]`, where `base` is what a library has at `path`; else None."""
        model = self._items.get(path) or self._items.get(path[: path.rfind(".") + 1])
        return model(machine, base, index) if model is not None else None

    def node_method(self, flavour: str, name: str) -> Handler | None:
        """The model of a method of configuration nodes of a flavour; None where they lack it."""
        table = self._methods.get(flavour)
        return (self._methods.get(ANY, {}) if table is None else table).get(name)

    def method(self, base: Value, name: str) -> Value | None:
        """A method of a configuration node, bound to it."""
        node = as_node(base)
        if node is None or (node.flavour == "namespace" and not name.startswith("_")):
            return None
        handler = self.node_method(node.flavour, name)
        return bound(base, name, handler) if handler is not None else None

    def otherwise(self, machine: Machine, call: Invocation) -> Value | None:
        """The result of a call that has no model of its own; None where no plugin answers."""
        return _first_answer(model(machine, call) for model in self._otherwise)

    def defaults(self, path: str) -> dict[str, Value]:
        """Documented defaults of a library's configuration class, by field."""
        return next((values for documented in self._defaults if (values := documented(path))), {})

    def stands_for(self, names: set[str]) -> str | None:
        """The path of the library class that a class with these names is a copy of; else None."""
        return _first_answer(recognise(names) for recognise in self._stands_for)

    def arguments(self, machine: Machine, target: Function | Class) -> dict[str, Value]:
        """Values that configuration libraries give to parameters the caller leaves out, by name."""
        bound_by_libraries: dict[str, Value] = {}
        for bindings_of in self._arguments:
            bound_by_libraries |= bindings_of(machine, target)
        return bound_by_libraries

    def constructed(self, machine: Machine, instance: Value, call: Invocation) -> Value | None:
        """The object, where a library takes over once a class built on its own is constructed."""
        return _first_answer(model(machine, instance, call) for model in self._on_constructed)

    def defined(self, machine: Machine, function: Function) -> None:
        """Tell the plugins that a decorated function was just defined."""
        for handler in self._on_defined:
            handler(machine, function)

    def enter(self, machine: Machine, function: Function) -> Value | None:
        """Run a decorated main function called without arguments, as its decorator would."""
        return _first_answer(
            model(machine, function, decorator)
            for decorator in function.decorators
            for model in self._on_enter
        )


def _first_answer(answers: Iterable[T | None]) -> T | None:
    """The first answer that is not None; None where there is none."""
    return next((answer for answer in answers if answer is not None), None)
