"""The state of following one program: names, attributes, calls, and the budget.

`State` is a partial evaluator. It runs the parts of Python that decide what a training job is
(assignments, argument parsing, config merging, factory functions) on data from the command and the
repository's files, and leaves everything else unknown. It performs no I/O but reading files inside
the repository, and stops at its step and time limits with what it has seen so far.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.agent.interp import attributes, builtins, classes, expressions, statements
from schedmate.agent.interp.flow import BudgetSpent, Flow, Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.nodes import converted
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Bound,
    Call,
    Class,
    Function,
    Instance,
    Module,
    Native,
    Partial,
    Scope,
    Site,
    Symbol,
)
from schedmate.agent.interp.source import Sources
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.interp.values_ops import iterate, plain_key
from schedmate.agent.values import Origin, Unknown, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.libs.library import Library

MAX_DEPTH = 48
MAX_EVENTS = 20_000
MAX_ACTIVE = 8
MAX_BLIND = 2
TRY_REACH = 3
"""Calls between a `raise` and the `try` that is still taken to be meant for it."""


@dataclass(slots=True)
class Frame:
    """One active call."""

    scope: Scope
    function: str
    cls: Class | None = None
    self: Value | None = None
    loops: int = 0
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] | None = field(default_factory=list)


@dataclass(slots=True)
class Limits:
    """How far to follow: evaluation steps and seconds."""

    steps: int = 220_000
    seconds: float = 5.0
    network_steps: int = 4_000


class State:
    """Follows one program from its entry."""

    def __init__(
        self,
        sources: Sources,
        library: Library,
        argv: list[Value],
        environ: dict[str, Value],
        limits: Limits | None = None,
    ) -> None:
        self.sources = sources
        self.library = library
        self.argv = argv
        self.environ = environ
        self.limits = limits or Limits()
        self.trace = Trace()
        self.frames: list[Frame] = []
        self.steps = 0
        self.deadline = time.monotonic() + self.limits.seconds
        self.step_limit = self.limits.steps
        self.doubt = 0
        self.trying: list[tuple[int, set[str], bool]] = []
        self.networks: list[str] = []
        self.events: dict[int, CallEvent] = {}
        self.active: dict[int, int] = {}
        self.shared: dict[str, Any] = {}
        self.texts: dict[str, Path] = {}
        self.configs: list[tuple[str, Value]] = []

    # -- budget and certainty -----------------------------------------------

    def tick(self) -> None:
        self.steps += 1
        if self.steps > self.step_limit:
            raise BudgetSpent
        if not self.steps & 511 and time.monotonic() > self.deadline:
            raise BudgetSpent

    def out_of_time(self) -> bool:
        return time.monotonic() > self.deadline

    @property
    def certain(self) -> bool:
        return self.doubt == 0

    def catches(self, *names: str) -> bool:
        """Whether a `try` close by in the program handles one of these exceptions."""
        wanted = {*names, "Exception", "BaseException"}
        return any(
            caught & wanted and len(self.frames) - depth <= TRY_REACH
            for depth, caught, _ in self.trying
        )

    def expects(self, *names: str) -> bool:
        """Whether a `try` here is meant for one of these errors: it names it or is short."""
        wanted, any_error = set(names), {"Exception", "BaseException"}
        return any(
            (caught & wanted or (short and caught & any_error)) and len(self.frames) - depth <= 1
            for depth, caught, short in self.trying
        )

    @contextmanager
    def uncertain(self) -> Iterator[None]:
        self.doubt += 1
        try:
            yield
        finally:
            self.doubt -= 1

    def join(self, first: Value, second: Value) -> Value:
        """One value for two ways the program may have gone."""
        a, b = first.data, second.data
        if a is b:
            return first
        if isinstance(a, Unknown):
            return second if not _scalar(second) else unknown(origin=first.origin)
        if isinstance(b, Unknown):
            return first if not _scalar(first) else unknown(origin=second.origin)
        if a is None or b is None:
            return second if a is None else first
        if first.known and second.known and _scalar(first) and _scalar(second):
            return first if a == b else unknown(origin=first.origin)
        return first

    # -- names --------------------------------------------------------------

    def lookup(self, name: str, scope: Scope) -> Value:
        current: Scope | None = scope
        while current is not None:
            if name in current.names and name not in current.globals_:
                return current.names[name]
            current = current.parent
        module_scope = scope.module.scope
        if name in module_scope.names:
            return module_scope.names[name]
        for star in module_scope.stars:
            found = self.module_attr(star, name)
            if found is not None:
                return found
        builtin = builtins.BUILTINS.get(name)
        if builtin is not None:
            return builtin
        return unknown(name)

    def bind(self, name: str, value: Value, scope: Scope) -> None:
        if name in scope.globals_:
            scope.module.scope.names[name] = value
            return
        if name in scope.nonlocals:
            outer = scope.parent
            while outer is not None:
                if name in outer.names:
                    outer.names[name] = value
                    return
                outer = outer.parent
        scope.names[name] = value

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Bind `value` to an assignment target."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, scope)
        elif isinstance(target, ast.Attribute):
            self.setattr(self.evaluate(target.value, scope), target.attr, value)
        elif isinstance(target, ast.Subscript):
            base = self.evaluate(target.value, scope)
            if not isinstance(target.slice, ast.Slice):
                self.setitem(base, self.evaluate(target.slice, scope), value)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, scope)

    def _unpack(self, targets: list[ast.expr], value: Value, scope: Scope) -> None:
        items = iterate(value)
        if items is None:
            items = [self.element(value, index) for index in range(len(targets))]
        starred = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        if starred is not None:
            after = len(targets) - starred - 1
            end = max(starred, len(items) - after)
            items = [*items[:starred], Value(items[starred:end]), *items[end:]]
        for index, target in enumerate(targets):
            self.assign(target, items[index] if index < len(items) else unknown(), scope)

    def element(self, container: Value, index: int = 0) -> Value:
        """An item of something whose items are not known."""
        data = container.data
        if isinstance(data, Call):
            return Value(Symbol(f"{data.path}()[]", container), container.origin)
        return unknown(origin=container.origin)

    # -- attributes and items -----------------------------------------------

    def getattr(self, base: Value, name: str) -> Value:
        return attributes.get_attribute(self, base, name)

    def setattr(self, base: Value, name: str, value: Value) -> None:
        data = base.data
        if isinstance(data, AttrDict):
            held = data.get(name)
            if held is not None and held.known and held.data is not None:
                # `args.epochs = ceil(args.steps / len(loader))` is the same length, put otherwise
                number = isinstance(held.data, int | float)
                if isinstance(value.data, Unknown) or (
                    number and isinstance(value.data, Symbol | Call)
                ):
                    return
            if self._overrides(held, value):
                data[name] = converted(data, value)
        elif isinstance(data, Instance):
            if data.items is not None and data.cls.lookup("__getattr__") is not None:
                mapping = data.items.data
                if isinstance(mapping, dict):
                    mapping[name] = value
                    return
            data.attrs[name] = value
        elif isinstance(data, Class | Call):
            data.attrs[name] = value
        elif isinstance(data, Symbol) and f"{data.path}.{name}" == "sys.argv":
            self.argv = iterate(value) or self.argv
        elif isinstance(data, Module):
            self.load(data)
            data.scope.names[name] = value

    def _overrides(self, held: Value | None, value: Value) -> bool:
        """Whether an assignment replaces what is held: in doubt, a known value stays."""
        return self.certain or held is None or held.data is None or not held.known

    def getitem(self, base: Value, index: Value) -> Value:
        return attributes.get_item(self, base, index)

    def setitem(self, base: Value, index: Value, value: Value) -> None:
        data = base.data
        key = plain_key(index)
        if isinstance(data, Instance):
            setter = data.cls.lookup("__setitem__")
            if setter is not None and isinstance(setter.data, Function):
                self.call_function(setter.data, [base, index, value], {}, NOWHERE)
                return
            if data.items is not None:
                data = data.items.data
        if isinstance(data, dict) and key is not None:
            if self._overrides(data.get(key), value):
                data[key] = converted(data, value)
        elif isinstance(data, list) and isinstance(key, int) and -len(data) <= key < len(data):
            data[key] = value

    def mapping(self, value: Value) -> dict[Any, Value] | None:
        """The items of a mapping-like value, None when they are not known."""
        data = value.data
        if isinstance(data, dict):
            return data
        if isinstance(data, Instance):
            if data.items is not None and isinstance(data.items.data, dict):
                return data.items.data
            return None
        if isinstance(data, Module):
            self.load(data)
            return data.scope.names
        return None

    key = staticmethod(plain_key)

    # -- evaluation ---------------------------------------------------------

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        return expressions.evaluate(self, node, scope)

    def defaults(self, arguments: ast.arguments, scope: Scope) -> dict[str, Value]:
        """Default values of a function's parameters, evaluated where it is defined."""
        found: dict[str, Value] = {}
        positional = [*arguments.posonlyargs, *arguments.args]
        for parameter, node in zip(
            positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
        ):
            found[parameter.arg] = _as_default(self.evaluate(node, scope))
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is not None:
                found[parameter.arg] = _as_default(self.evaluate(default, scope))
        return found

    # -- calls --------------------------------------------------------------

    def call_node(self, node: ast.Call, scope: Scope) -> Value:
        func = self.evaluate(node.func, scope)
        args: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                spread = iterate(self.evaluate(argument.value, scope))
                if spread is not None:
                    args.extend(spread)
            else:
                args.append(self.evaluate(argument, scope))
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, scope)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            else:
                mapping = self.mapping(value)
                if mapping is not None:
                    kwargs.update({k: v for k, v in mapping.items() if isinstance(k, str)})
        return self.call(func, args, kwargs, Site(scope.module.file, node.lineno, node))

    def call(self, func: Value, args: list[Value], kwargs: dict[str, Value], site: Site) -> Value:
        """Call `func`; what it does not know how to call yields an unknown or a `Call`."""
        self.tick()
        data = func.data
        if isinstance(data, Native):
            return data.fn(self, args, kwargs, site)
        for value in (*args, *kwargs.values()):
            self.use(value)
        if isinstance(data, Function):
            return self.call_function(data, args, kwargs, site)
        if isinstance(data, Class):
            return classes.instantiate(self, data, args, kwargs, site)
        if isinstance(data, Bound):
            if isinstance(data.func.data, Function):
                return self.call_function(data.func.data, [data.self, *args], kwargs, site)
            return self.call(data.func, [data.self, *args], kwargs, site)
        if isinstance(data, Partial):
            return self.call(data.func, [*data.args, *args], {**data.kwargs, **kwargs}, site)
        if isinstance(data, Symbol):
            return self.external(Invocation(data.path, args, kwargs, site, data.base))
        if isinstance(data, Call):
            return self.external(Invocation(f"{data.path}()", args, kwargs, site, func))
        if isinstance(data, Instance):
            return self._call_instance(func, data, args, kwargs, site)
        text = data.text if isinstance(data, Unknown) and data.text else ""
        return self.external(Invocation(f"?{text}", args, kwargs, site))

    def use(self, value: Value) -> None:
        """Note that an object was handed to something."""
        data = value.data
        if isinstance(data, Call | Instance):
            self.trace.used.add(id(data))
            if isinstance(data, Call) and data.callee is not None and "(" in data.path:
                self.use(data.callee)
        elif (
            isinstance(data, Symbol) and data.base is not None and isinstance(data.base.data, Call)
        ):
            self.use(data.base)
        elif isinstance(data, list | tuple) and len(data) <= 8:
            for item in data:
                self.use(item)

    def _call_instance(
        self, func: Value, data: Instance, args: list[Value], kwargs: dict[str, Value], site: Site
    ) -> Value:
        if classes.is_network(data.cls):
            return unknown()
        method = data.cls.lookup("__call__")
        if method is not None and isinstance(method.data, Function):
            return self.call_function(method.data, [func, *args], kwargs, site)
        return unknown()

    def call_function(
        self,
        function: Function,
        args: list[Value],
        kwargs: dict[str, Value],
        site: Site,
    ) -> Value:
        """Follow a function of the repository; unknown past the depth or recursion limits."""
        if function.decorators and not args and not kwargs:
            answer = self.library.enter(self, function)
            if answer is not None:
                return answer
        identity = id(function.node)
        active = self.active.get(identity, 0)
        if len(self.frames) >= MAX_DEPTH or active >= MAX_ACTIVE:
            return unknown()
        if active >= MAX_BLIND and not any(_tells(v) for v in (*args, *kwargs.values())):
            # recursion over something unknown has nothing to end it
            return unknown()
        self.trace.functions.setdefault(function.name, site)
        scope = Scope(function.module, function.scope)
        self._bind_arguments(function, args, kwargs, scope)
        frame = Frame(scope, function.name, function.cls, args[0] if args else None)
        self.active[identity] = active + 1
        self.frames.append(frame)
        try:
            if isinstance(function.node, ast.Lambda):
                return self.evaluate(function.node.body, scope)
            flow = statements.execute(self, function.node.body, scope)
        except Raised as error:
            loading = any(frame.function == "" for frame in self.frames[1:])
            if error.name != "SystemExit" or not loading:
                raise
            return unknown()  # no import of a healthy job ends it
        finally:
            self.frames.pop()
            self.active[identity] = active
        result = flow.value if flow is not None and flow.kind == "return" else None
        if statements.is_generator(function.node):
            items = frame.yielded
            return Value(
                Unknown() if items is None else items, Origin("code", site.file, site.line)
            )
        for candidate in frame.returned:
            result = candidate if result is None else self.join(result, candidate)
        return result if result is not None else Value(None)

    def _bind_arguments(
        self, function: Function, args: list[Value], kwargs: dict[str, Value], scope: Scope
    ) -> None:
        spec = function.node.args
        positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        names = scope.names
        for name, value in zip(positional, args, strict=False):
            names[name] = value
        if spec.vararg is not None:
            names[spec.vararg.arg] = Value(tuple(args[len(positional) :]))
        extra: dict[Any, Value] = {}
        known = {*positional, *(a.arg for a in spec.kwonlyargs)}
        for name, value in kwargs.items():
            if name in known:
                names[name] = value
            else:
                extra[name] = value
        if spec.kwarg is not None:
            names[spec.kwarg.arg] = Value(extra)
        for name, value in self.library.bound_arguments(self, function).items():
            if name in known:
                names.setdefault(name, value)
        for name, value in function.defaults.items():
            names.setdefault(name, value)
        for name in known:
            names.setdefault(name, unknown(name))

    def builtin(self, name: str) -> Value | None:
        """A built-in function or type."""
        return builtins.BUILTINS.get(name)

    def external(self, invocation: Invocation) -> Value:
        """A call that leaves the repository: a library model answers, or it is only recorded."""
        path = self.sources.canonical(invocation.path)
        invocation.path = path
        handler = self.library.handlers.get(path)
        if handler is None and "." in path:
            handler = self.library.handlers.get("*." + path.rsplit(".", 1)[-1])
        if handler is not None:
            answer = handler(self, invocation)
            if answer is not None:
                return answer
        elif self.library.is_parser(invocation):
            # a library adds its options to the program's parser
            return invocation.args[0]
        origin = Origin("code", invocation.site.file, invocation.site.line)
        result = Value(
            Call(path, invocation.args, invocation.kwargs, callee=invocation.base), origin
        )
        self.record(path, invocation.args, invocation.kwargs, invocation.site, result)
        return result

    def record(
        self,
        path: str,
        args: list[Value],
        kwargs: dict[str, Value],
        site: Site,
        result: Value | None = None,
        cls: Class | None = None,
    ) -> CallEvent:
        """Note a call in the trace."""
        frame = self.frames[-1] if self.frames else None
        event = CallEvent(
            path,
            args,
            kwargs,
            site,
            self.certain,
            tuple(self.networks),
            cls,
            frame.function if frame else "",
            result,
            in_loop=any(f.loops for f in self.frames),
            owner=frame.cls if frame else None,
        )
        if len(self.trace.calls) < MAX_EVENTS and not (self.networks and path.startswith("torch.")):
            self.trace.calls.append(event)
        if result is not None:
            self.events[id(result.data)] = event
        return event

    # -- modules ------------------------------------------------------------

    def import_module(self, name: str, importer: Module | None = None) -> Value:
        """`import name`: a repository module, a modelled standard module, or a symbol."""
        module = self.sources.find(name, importer, self.search_path())
        if module is None:
            self.trace.imports.add(name.split(".", maxsplit=1)[0])
            return Value(Symbol(self.sources.canonical(name)))
        self.load(module)
        return Value(module)

    def search_path(self) -> list[str]:
        """Extra import roots the program added to `sys.path` as plain strings."""
        value = self.shared.get("sys.path")
        if value is None:
            return []
        return [item.data for item in value.data if isinstance(item.data, str)]

    def load(self, module: Module) -> None:
        """Follow a module's top level, once."""
        if module.loaded:
            return
        module.loaded = True
        tree = self.sources.parse(module.path, self.trace)
        if tree is None:
            return
        self.run_module(module, tree)

    def run_module(self, module: Module, tree: ast.Module) -> None:
        scope = module.scope
        scope.names["__name__"] = Value(module.name)
        scope.names["__file__"] = Value(str(module.path))
        self.frames.append(Frame(scope, ""))
        doubt, self.doubt = self.doubt, 0
        try:
            statements.execute(self, tree.body, scope)
        except Raised as error:
            if module.name == "__main__" or not self.certain:
                raise
            self.trace.warn(f"{module.file}: loading stopped at a raised {error.name}")
        finally:
            self.doubt = doubt
            self.frames.pop()

    def follow(self, body: Sequence[ast.stmt], scope: Scope) -> Flow | None:
        """Run statements in `scope`."""
        return statements.execute(self, body, scope)

    def module_attr(self, module: Module, name: str) -> Value | None:
        """`module.name`: a name defined there, a star-imported one, or a submodule."""
        self.load(module)
        scope = module.scope
        if name in scope.names:
            return scope.names[name]
        for star in scope.stars:
            if star is not module:
                found = star.scope.names.get(name) if star.loaded else None
                if found is None:
                    found = self.module_attr(star, name)
                if found is not None:
                    return found
        if module.path.name == "__init__.py" or module.path.is_dir():
            child = self.sources.find(f"{module.name}.{name}", None, self.search_path())
            if child is not None:
                self.load(child)
                return Value(child)
        return None


def _tells(value: Value) -> bool:
    """Whether an argument can decide anything in a function."""
    return isinstance(value.data, dict | list | tuple) or (
        value.known and value.data not in (None, "", True, False)
    )


def _scalar(value: Value) -> bool:
    return value.data is None or isinstance(value.data, bool | int | float | str | bytes)


def _as_default(value: Value) -> Value:
    origin = value.origin
    if origin is not None and origin.source == "code" and value.known:
        return Value(value.data, Origin("default", origin.file, origin.line))
    return value
