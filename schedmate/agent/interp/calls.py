"""Follows calls, definitions of functions and classes, and imports of the repository's modules.

The repository's functions and classes are followed; a call of anything else is answered by a
library's model, or recorded only.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, cast

from schedmate.agent.bounds import measure
from schedmate.agent.interp.expressions import evaluate, parameter_defaults
from schedmate.agent.interp.objects import (
    Bound,
    Call,
    Class,
    Frame,
    Function,
    Invocation,
    Module,
    Raised,
    Scope,
    Site,
    Symbol,
    as_call,
    as_class,
    as_function,
    as_instance,
    as_symbol,
    is_own,
    path_of,
)
from schedmate.agent.interp.source import variable_name
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import kind
from schedmate.agent.interp.values.instances import symbol_value
from schedmate.agent.values import Items, Origin, Unknown, Value, unknown
from schedmate.base.files import is_dir

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

MAX_DEPTH = 48
"""Calls inside each other."""
MAX_ACTIVE = 8
"""Calls of one function inside each other."""
MAX_BLIND = 2
"""The same where no argument can decide anything."""
LONG_BLIND = 500
"""Steps of a function followed in doubt and knowing nothing, that is not followed so again."""
MANY_CALLS, MANY_STEPS = 40, 80_000
"""A function called so often, which took so much together, is left out of the second half."""


def call_value(
    machine: Machine, func: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """Call `func`; what it does not know how to call yields an unknown or a `Call`."""
    machine.tick()
    machine.look()
    called = kind(func)
    if called.hands_on:
        machine.observer.handed((*args, *kwargs.values()))
    return called.call(machine, func, Invocation("", args, kwargs, site))


def call_function(
    machine: Machine, function: Function, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """Follow a function of the repository; unknown past the depth or recursion limits."""
    if function.decorators and not args and not kwargs:
        answer = machine.plugins.enter(machine, function)
        if answer is not None:
            return answer
    identity = id(function.node)
    active = machine.active.get(identity, 0)
    if len(machine.frames) >= MAX_DEPTH or active >= MAX_ACTIVE:
        return unknown()
    times, spent, start = machine.spent.get(identity, (0, 0, 0))
    spent += machine.steps - start if active else 0
    scarce = machine.steps > machine.limits.steps // 2
    if scarce and times >= MANY_CALLS and spent >= MANY_STEPS:
        return unknown(function.name)
    arguments = (*args, *kwargs.values())
    if active >= MAX_BLIND and not any(_is_telling(v) for v in arguments):
        # recursion over something unknown has nothing to end it
        return unknown()
    if not arguments or machine.certain or not all(map(_is_opaque, arguments)):
        return _follow(machine, function, args, kwargs, site)
    if identity not in machine.blind:
        before = machine.steps
        result = _follow(machine, function, args, kwargs, site)
        if machine.steps - before < LONG_BLIND:
            return result
        machine.blind[identity] = result
    return machine.blind[identity]  # another time would be as long, and tell as little


def _follow(
    machine: Machine, function: Function, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """What a function returns, followed with these arguments."""
    identity = id(function.node)
    active = machine.active.get(identity, 0)
    times, spent, start = machine.spent.get(identity, (0, 0, 0))
    machine.spent[identity] = times + 1, spent, start if active else machine.steps
    machine.observer.enters(function, site)
    scope = Scope(function.module, function.scope)
    _bind_arguments(machine, function, args, kwargs, scope)
    machine.observer.binds_parameters(scope.names)
    frame = Frame(scope, function.name, function.cls, args[0] if args else None)
    machine.active[identity] = active + 1
    machine.frames.append(frame)
    try:
        if isinstance(function.node, ast.Lambda):
            return machine.evaluate(function.node.body, scope)
        flow = machine.follow(function.node.body, scope)
    except Raised as error:
        if error.name == "SystemExit":
            if any(frame.function == "" for frame in machine.frames[1:]):
                return unknown()  # no import of a healthy job ends it
            raise
        if not frame.returned:
            raise
        flow = None  # a way that returned was open, which a healthy job has taken
    finally:
        machine.frames.pop()
        machine.active[identity] = active
        if not active:
            times, spent, start = machine.spent[identity]
            machine.spent[identity] = times, spent + machine.steps - start, 0
    result = flow.value if flow is not None and flow.kind == "return" else None
    if machine.once(is_generator, function.node):
        items = frame.yielded
        if items and any(
            classes.last_part(path_of(d)) == "contextmanager" for d in function.decorators
        ):
            return items[0]  # what `with` binds
        return Value(Unknown() if items is None else items, Origin("code", site.file, site.line))
    for candidate in frame.returned:
        result = candidate if result is None else machine.join(result, candidate)
    return result if result is not None else Value(None)


def _bind_arguments(
    machine: Machine, function: Function, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> None:
    spec = function.node.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    names = scope.names
    for name, value in zip(positional, args, strict=False):
        names[name] = value
    if spec.vararg is not None:
        names[spec.vararg.arg] = Value(tuple(args[len(positional) :]))
    extra: Items = {}
    parameters = {*positional, *(a.arg for a in spec.kwonlyargs)}
    for name, value in kwargs.items():
        if name in parameters:
            names[name] = value
        else:
            extra[name] = value
    if spec.kwarg is not None:
        names[spec.kwarg.arg] = Value(extra)
    for name, value in machine.plugins.arguments(machine, function).items():
        if name in parameters:
            names.setdefault(name, value)
    for name, value in function.defaults.items():
        names.setdefault(name, value)
    for name in parameters:
        names.setdefault(name, unknown(name))


def _is_telling(value: Value) -> bool:
    """Whether an argument can decide anything in a function."""
    return kind(value).container or (value.known and value.data not in (None, "", True, False))


def _is_opaque(value: Value) -> bool:
    """Whether nothing is known of an argument, nor whose it is: what a file held, or a part."""
    made, part = as_call(value), as_symbol(value)
    loaded = made is not None and made.path.endswith((".load", ".safe_load"))
    return loaded or kind(value).unknown or (part is not None and bool(part.base))


def call_external(machine: Machine, invocation: Invocation) -> Value:
    """A call that leaves the repository: a library model answers, or it is only recorded."""
    path = machine.sources.canonical(invocation.path)
    invocation.path = path
    handler = machine.plugins.model(path)
    if handler is not None:
        invocation.args = [_within_limits(machine, value) for value in invocation.args]
        invocation.kwargs = {
            k: _within_limits(machine, value) for k, value in invocation.kwargs.items()
        }
        answer = handler(machine, invocation)
        if answer is not None:
            if answer.mapping is not None or answer.elements is not None:
                machine.charge(measure(answer.data) or 0)
            return answer
    else:
        answer = machine.plugins.otherwise(machine, invocation)
        if answer is not None:
            return answer
    origin = Origin("code", invocation.site.file, invocation.site.line)
    result = Value(Call(path, invocation.args, invocation.kwargs, callee=invocation.base), origin)
    machine.observer.left(machine, invocation, result)
    return result


def _within_limits(machine: Machine, value: Value) -> Value:
    """An argument that a model may go through: unknown to it where it expands too far."""
    items = value.mapping if value.mapping is not None else value.sequence
    if items is None:
        return value
    size = measure(items)
    machine.charge(len(items) if size is None else size)
    return unknown(origin=value.origin) if size is None else value


# Definitions of functions and classes.


_ACCESSORS = ("setter", "deleter", "getter")


def define_function(
    machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope
) -> None:
    accessor = next(
        (d for d in node.decorator_list if isinstance(d, ast.Attribute) and d.attr in _ACCESSORS),
        None,
    )
    if accessor is not None:
        getter = as_function(scope.names.get(node.name))
        if accessor.attr == "setter" and getter is not None:
            getter.setter = Function(node.name, node, scope, {})
        return
    function = Function(node.name, node, scope, parameter_defaults(machine, node.args, scope))
    value = Value(function, Origin("code", scope.module.file, node.lineno))
    for decorator_node in reversed(node.decorator_list):
        decorator = evaluate(machine, decorator_node, scope)
        function.decorators.append(decorator)
        value = _decorated(machine, decorator, function, value, scope, node.lineno)
    scope.names[node.name] = value
    if function.decorators:
        machine.plugins.defined(machine, function)


def _decorated(
    machine: Machine, decorator: Value, function: Function, value: Value, scope: Scope, line: int
) -> Value:
    match decorator.data:
        case Symbol(path="classmethod" | "staticmethod" | "property" as path):
            function.kind = path
            return value
        case Symbol(path=path) if path.endswith("cached_property"):
            function.kind = "property"
            return value
        case _:
            return _wrapped(machine, decorator, value, Site(scope.module.file, line))


REGISTERING = 30_000
"""Evaluation steps that methods as decorators may take together: some register thousands."""


def _wrapped(machine: Machine, decorator: Value, value: Value, site: Site) -> Value:
    """What a decorator of the repository makes of a function or class."""
    method = isinstance(decorator.data, Bound)
    if not (method or is_own(decorator) or as_instance(decorator) is not None):
        return value
    spent: list[int] = machine.shared.setdefault("registering", [])
    if method and sum(spent) > REGISTERING:
        return value
    before = machine.steps
    result = machine.call(decorator, [value], {}, site)
    if method:
        spent.append(machine.steps - before)
    return result if is_own(result) else value


def define_class(machine: Machine, node: ast.ClassDef, scope: Scope) -> None:
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    copied = machine.plugins.stands_for(methods | scope.module.scope.names.keys())
    if copied is not None:
        # what the library's own reader makes of a file is known, and sooner
        scope.names[node.name] = symbol_value(machine, copied)
        return
    bases = [evaluate(machine, base, scope) for base in node.bases]
    cls = Class(node.name, node, scope, bases)
    inner = Scope(scope.module, scope)
    inner.names["__qualname__"] = Value(node.name)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and (name := variable_name(statement.target)):
            cls.annotations[name] = statement.annotation
            cls.lines[name] = statement.lineno
    machine.follow(node.body, inner)
    for value in inner.names.values():
        method = as_function(value)
        if method is not None and method.scope is inner:
            method.scope, method.cls = scope, cls
            if method.setter is not None:
                method.setter.scope, method.setter.cls = scope, cls
    cls.attrs = inner.names
    value = Value(cls, Origin("code", scope.module.file, node.lineno))
    scope.names[node.name] = value
    for decorator_node in reversed(node.decorator_list):
        decorator = evaluate(machine, decorator_node, scope)
        cls.decorators.append(decorator)
        if as_class(decorator) is None:
            value = _wrapped(machine, decorator, value, Site(scope.module.file, node.lineno))
    scope.names[node.name] = value
    _announce(machine, node, cls, scope)


def _announce(machine: Machine, node: ast.ClassDef, cls: Class, scope: Scope) -> None:
    """A base class's `__init_subclass__` hears of the new class."""
    for base in cls.mro()[1:]:
        hook = as_function(base.attrs.get("__init_subclass__"))
        if hook is not None:
            given = {k.arg: evaluate(machine, k.value, scope) for k in node.keywords if k.arg}
            site = Site(scope.module.file, node.lineno)
            machine.call_function(hook, [Value(cls)], given, site)
            return


_YIELDS = frozenset((ast.Yield, ast.YieldFrom))
_NO_YIELD = frozenset(
    (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Name, ast.Constant, ast.alias)
)
"""Nodes with none inside, or with one that makes a generator of themselves."""


def is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Whether calling the function gives a generator."""
    if isinstance(node, ast.Lambda):
        return False
    pending: list[object] = list(node.body)
    while pending:
        current = pending.pop()
        kind = type(current)
        if kind is list:
            pending += cast("list[object]", current)
        elif kind in _YIELDS:
            return True
        elif isinstance(current, ast.AST) and kind not in _NO_YIELD:
            pending += vars(current).values()
    return False


# The repository's modules: importing them, and what they hold.


def import_module(machine: Machine, name: str, importer: Module | None = None) -> Value:
    """`import name`: a repository module, a modelled standard module, or a symbol."""
    module = machine.sources.find(name, importer, machine.search_path())
    if module is None:
        machine.observer.imports(name)
        return Value(Symbol(machine.sources.canonical(name)))
    machine.load(module)
    return Value(module)


def search_path(machine: Machine) -> list[str]:
    """Extra import roots the program added to `sys.path` as plain strings."""
    value = machine.shared.get("sys.path")
    if value is None:
        return []
    return [item.text for item in value.data if item.text is not None]


def load_module(machine: Machine, module: Module) -> None:
    """Follow a module's top level, once."""
    if not module.loaded:
        _load_package(machine, module)
    if module.loaded:  # its package may have loaded it
        return
    machine.look()
    module.loaded = True
    tree = machine.parse(module.path)
    if tree is None:
        return
    machine.run_module(module, tree)


def _load_package(machine: Machine, module: Module) -> None:
    """Follow the package around a module, which may register what the module needs."""
    package, _, own = module.name.rpartition(".")
    followed: set[str] = machine.shared.setdefault("packages", set())
    if package and own != "__main__" and package not in followed:
        followed.add(package)
        above = machine.sources.find(package, None, machine.search_path())
        if above is not None and above is not module and not machine.sources.defer(above):
            load_module(machine, above)


def run_module(machine: Machine, module: Module, tree: ast.Module) -> None:
    scope = module.scope
    scope.names["__name__"] = Value(module.name)
    scope.names["__file__"] = Value(str(module.path))
    scope.names["__package__"] = Value(module.package)
    machine.frames.append(Frame(scope, ""))
    doubt, machine.doubt = machine.doubt, 0
    try:
        machine.follow(tree.body, scope)
    except Raised as error:
        if module.name == "__main__" or not machine.certain:
            raise
        machine.observer.warns(f"{module.file}: loading stopped at a raised {error.name}")
    finally:
        machine.doubt = doubt
        machine.frames.pop()


def module_attr(machine: Machine, module: Module, name: str) -> Value | None:
    """`module.name`: a name defined there, a star-imported one, or a submodule."""
    machine.load(module)
    scope = module.scope
    if name in scope.names:
        return scope.names[name]
    for star in scope.stars:
        if star is not module:
            value = star.scope.names.get(name) if star.loaded else None
            if value is None:
                value = machine.module_attr(star, name)
            if value is not None:
                return value
    if module.path.name == "__init__.py" or is_dir(module.path):
        return submodule(machine, f"{module.name}.{name}")
    return None


def submodule(machine: Machine, name: str, importer: Module | None = None) -> Value | None:
    """The module of a dotted name, loaded, where the repository holds it."""
    child = machine.sources.find(name, importer, machine.search_path())
    if child is not None:
        machine.load(child)
    return Value(child) if child is not None else None


def import_statement(machine: Machine, node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        value = machine.import_module(alias.name, scope.module)
        if alias.asname is None and "." in alias.name:
            value = machine.import_module(alias.name.split(".")[0], scope.module)
        machine.bind(alias.asname or alias.name.split(".")[0], value, scope)


def import_from_statement(machine: Machine, node: ast.ImportFrom, scope: Scope) -> None:
    name = machine.sources.absolute(node.module or "", node.level, scope.module)
    module = machine.sources.find(name, scope.module, machine.search_path())
    if module is None:
        if node.level == 0:
            machine.observer.imports(name)
        for alias in node.names:
            if alias.name == "*":
                continue
            child = submodule(machine, f"{name}.{alias.name}", scope.module)
            if child is None:
                path = machine.sources.canonical(f"{name}.{alias.name}")
                child = symbol_value(machine, path)
            machine.bind(alias.asname or alias.name, child, scope)
        return
    for alias in node.names:
        if alias.name == "*":
            if not machine.sources.defer(module):
                machine.load(module)
            scope.module.scope.stars.insert(0, module)
            continue
        value = machine.module_attr(module, alias.name)
        if value is None:
            # a package that loads its names lazily: known by path, as a third party's
            value = symbol_value(machine, machine.sources.canonical(f"{name}.{alias.name}"))
        machine.bind(alias.asname or alias.name, value, scope)
