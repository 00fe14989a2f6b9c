"""Evaluates expressions over `Value`s; follows calls among them, definitions and imports.

The repository's functions and classes are followed; a call of anything else is answered by a
library's model, or recorded only.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from schedmate.agent.bounds import (
    MAX_DATA,
    count_characters,
    is_short_number,
    is_short_specification,
    joined_length,
    measure,
)
from schedmate.agent.interp.objects import (
    Bound,
    Call,
    Class,
    Frame,
    Function,
    Invocation,
    Lacking,
    Module,
    Raised,
    Scope,
    Site,
    Symbol,
    as_call,
    as_class,
    as_function,
    as_instance,
    as_node,
    as_symbol,
    is_own,
    path_of,
)
from schedmate.agent.interp.source import constant_value, variable_name
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import (
    binary_operation,
    compare_values,
    is_left_over,
    iterate,
    kind,
    origin_of,
    plain_key,
    truth,
)
from schedmate.agent.interp.values.classes import symbol_value
from schedmate.agent.values import UNSET, Items, Origin, Unknown, Value, begun, unknown
from schedmate.base.files import is_dir

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine


def comprehension(
    machine: Machine,
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
    scope: Scope,
) -> Value:
    """The items, unknown when what is gone through or left out is not known exactly."""
    inner = Scope(scope.module, scope)
    out: list[tuple[Value | None, Value]] = []
    exact, gathered = True, False

    def emit() -> None:
        if isinstance(node, ast.DictComp):
            out.append((machine.evaluate(node.key, inner), machine.evaluate(node.value, inner)))
        else:
            out.append((None, machine.evaluate(node.elt, inner)))

    def run(level: int) -> None:
        nonlocal exact, gathered
        if level == len(node.generators):
            emit()
            return
        generator = node.generators[level]
        source = machine.evaluate(generator.iter, inner if level else scope)
        machine.observer.handed([source])
        gathered = gathered or id(source.data) in machine.gathered
        items = iterate(classes.enum_members(source))
        if items is None or len(items) > 2000:
            exact = False
            items = [machine.element(source)]
        for item in items:
            machine.assign(generator.target, item, inner)
            decided = [truth(machine.evaluate(test, inner)) for test in generator.ifs]
            if False in decided:
                continue
            if None in decided:
                exact = False
            run(level + 1)

    run(0)
    here = Origin("code", scope.module.file, node.lineno)
    if not exact:
        return Value(Unknown(), here)
    if isinstance(node, ast.DictComp):
        items_: Items = {}
        for key_value, value in out:
            key = plain_key(key_value) if key_value is not None else None
            if key is not None:
                items_[key] = value
        return Value(items_, here)
    made = [value for _, value in out]
    if gathered:
        machine.gathered[id(made)] = made
    return Value(made, here)


def yield_(machine: Machine, node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
    """Keep what a generator yields, None for items that are not known."""
    value = evaluate(machine, node.value, scope) if node.value is not None else Value(None)
    items = iterate(value) if isinstance(node, ast.YieldFrom) else [value]
    frame = machine.frames[-1]
    if items is None or frame.loops or not machine.certain:
        frame.yielded = None
    elif frame.yielded is not None:
        frame.yielded.extend(items)
    return unknown()


# Evaluation of expressions over `Value`s.


_UNARY: dict[type[ast.unaryop], Callable[[int | float], int | float]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def evaluate(machine: Machine, node: ast.expr, scope: Scope) -> Value:
    """The value of `node` in `scope`; unknown where the code cannot be followed."""
    machine.tick()
    handler = _EVAL.get(type(node))
    if handler is None:
        return unknown()
    return handler(machine, node, scope)


def _origin_here(node: ast.expr, scope: Scope) -> Origin:
    return Origin("code", scope.module.file, node.lineno)


def _constant(machine: Machine, node: ast.Constant, scope: Scope) -> Value:
    data = node.value
    if not is_short_number(data):
        return unknown(origin=_origin_here(node, scope))
    # complex numbers are no plain data, and pass for unknown
    return Value(None if data is Ellipsis else data, _origin_here(node, scope))  # type: ignore[arg-type]


def _joined(machine: Machine, node: ast.JoinedStr, scope: Scope) -> Value:
    parts: list[str] = []
    origin: Origin | None = None
    for index, piece in enumerate(node.values):
        if not isinstance(piece, ast.FormattedValue):
            parts.append(str(constant_value(piece)))
            continue
        value = evaluate(machine, piece.value, scope)
        long = joined_length(parts) + count_characters(value.data) > MAX_DATA
        if long or not value.known or kind(value).container:
            for later in node.values[index + 1 :]:  # what it calls is called all the same
                if isinstance(later, ast.FormattedValue):
                    evaluate(machine, later.value, scope)
            return begun(
                "".join(parts) if parts else value,
                origin or value.origin or _origin_here(node, scope),
            )
        spec = ""
        if piece.format_spec is not None:
            spec_value = evaluate(machine, piece.format_spec, scope)
            spec = spec_value.text or ""
        try:
            parts.append(
                format(value.data, spec) if is_short_specification(spec) else str(value.data)
            )
        except (ValueError, TypeError, OverflowError):
            parts.append(str(value.data))
        origin = origin or value.origin
    return machine.made(Value("".join(parts)[:MAX_DATA], origin or _origin_here(node, scope)))


def _sequence(
    machine: Machine, elements: list[ast.expr], scope: Scope, spread_unknown: Sequence[Value] = ()
) -> list[Value]:
    """The values of `a, *b, c`; `spread_unknown` stands for a `*b` that is not known."""
    items: list[Value] = []
    for element in elements:
        if isinstance(element, ast.Starred):
            spread = iterate(evaluate(machine, element.value, scope))
            items.extend(spread_unknown if spread is None else spread)
            machine.charge(len(spread or ()))
        else:
            items.append(evaluate(machine, element, scope))
    return items


def _display(machine: Machine, node: ast.List | ast.Set | ast.Tuple, scope: Scope) -> Value:
    items = _sequence(machine, node.elts, scope, [unknown()])
    made = tuple(items) if isinstance(node, ast.Tuple) else items
    return Value(made, _origin_here(node, scope))


def _dict(machine: Machine, node: ast.Dict, scope: Scope) -> Value:
    items: Items = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        value = evaluate(machine, value_node, scope)
        if key_node is None:
            mapping = machine.mapping(value)
            if mapping:
                machine.charge(len(mapping))
                items.update(mapping)
            continue
        key = plain_key(evaluate(machine, key_node, scope))
        if key is not None:
            items[key] = value
    return Value(items, _origin_here(node, scope))


def _binop(machine: Machine, node: ast.BinOp, scope: Scope) -> Value:
    left = evaluate(machine, node.left, scope)
    right = evaluate(machine, node.right, scope)
    if is_left_over(node, left, right):
        return left
    return machine.made(binary_operation(type(node.op), left, right, _origin_here(node, scope)))


def _unary(machine: Machine, node: ast.UnaryOp, scope: Scope) -> Value:
    value = evaluate(machine, node.operand, scope)
    operation = _UNARY.get(type(node.op))
    if operation is None and type(node.op) is ast.Not:
        decided = truth(value)
        return unknown() if decided is None else Value(not decided, value.origin)
    if operation is not None and isinstance(value.data, int | float):
        return Value(operation(value.data), value.origin)
    if value.integer is not None:
        return Value(~value.integer, value.origin)
    return unknown(origin=value.origin)


def _boolop(machine: Machine, node: ast.BoolOp, scope: Scope) -> Value:
    stop_on = type(node.op) is ast.Or
    undecided: Value | None = None
    last = unknown()
    for operand in node.values:
        last = evaluate(machine, operand, scope)
        decided = truth(last)
        if decided is None:
            undecided = undecided or last
        elif decided == stop_on and undecided is None:
            return last
        elif decided == stop_on:
            # `unknown or True` is true whichever way the unknown falls
            return Value(stop_on) if isinstance(last.data, bool) else unknown()
    if undecided is None:
        return last
    # `x or default` with an unknown x: the default is no more likely than x
    return unknown()


def _compare(machine: Machine, node: ast.Compare, scope: Scope) -> Value:
    left = evaluate(machine, node.left, scope)
    result: bool | None = True
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(machine, right_node, scope)
        outcome = compare_values(machine, op, left, right)
        if outcome is False:
            return Value(False, origin_of(left, right))
        if outcome is None:
            result = None
        left = right
    return unknown() if result is None else Value(True, origin_of(left))


def _ifexp(machine: Machine, node: ast.IfExp, scope: Scope) -> Value:
    decided = truth(evaluate(machine, node.test, scope))
    if decided is not None:
        return evaluate(machine, node.body if decided else node.orelse, scope)
    with machine.uncertain():
        first = evaluate(machine, node.body, scope)
        second = evaluate(machine, node.orelse, scope)
    if second.data == [] and not first.known:
        return first  # files of a folder, none where it is not there
    if second.text is not None and _from_environment(machine, node.test, scope):
        return second
    return machine.join(first, second)


def _from_environment(machine: Machine, test: ast.expr, scope: Scope) -> bool:
    """Whether a test asks for a variable of the environment, which the launch does not set."""
    name = variable_name(test)
    data = machine.lookup(name, scope).unknown if name is not None else None
    return data is not None and data.hints == UNSET


def _subscript(machine: Machine, node: ast.Subscript, scope: Scope) -> Value:
    base = evaluate(machine, node.value, scope)
    if not isinstance(node.slice, ast.Slice):
        return machine.getitem(base, evaluate(machine, node.slice, scope))
    ends = slice_ends(machine, node.slice, scope)
    if ends is None or ends.step == 0:
        return unknown(origin=base.origin)
    return kind(base).slice_(machine, base, ends)


def slice_ends(machine: Machine, node: ast.Slice, scope: Scope) -> slice | None:
    """`start:stop:step`, None where one of them is not known."""
    ends: list[int | None] = []
    for part in (node.lower, node.upper, node.step):
        value = evaluate(machine, part, scope) if part is not None else Value(None)
        if value.data is not None and value.integer is None:
            return None
        ends.append(value.integer)
    return slice(*ends)


def _call(machine: Machine, node: ast.Call, scope: Scope) -> Value:
    func = evaluate(machine, node.func, scope)
    args = _sequence(machine, node.args, scope)
    kwargs: dict[str, Value] = {}
    for keyword in node.keywords:
        value = evaluate(machine, keyword.value, scope)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        else:
            mapping, read = machine.mapping(value), as_node(value)
            if read is not None and read.flavour == "namespace":
                machine.observer.reads("*")
            if mapping is not None:
                kwargs.update({k: v for k, v in mapping.items() if isinstance(k, str)})
    return machine.call(func, args, kwargs, Site(scope.module.file, node.lineno, node))


def parameter_defaults(
    machine: Machine, arguments: ast.arguments, scope: Scope
) -> dict[str, Value]:
    """Default values of a function's parameters, evaluated where it is defined."""
    defaults: dict[str, Value] = {}
    positional = [*arguments.posonlyargs, *arguments.args]
    for parameter, node in zip(
        positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
    ):
        defaults[parameter.arg] = _as_default(evaluate(machine, node, scope))
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            defaults[parameter.arg] = _as_default(evaluate(machine, default, scope))
    return defaults


def _as_default(value: Value) -> Value:
    origin = value.origin
    if origin is not None and origin.source == "code" and value.known:
        return Value(value.data, origin._replace(source="default"))
    return value


def _named(machine: Machine, node: ast.NamedExpr, scope: Scope) -> Value:
    value = evaluate(machine, node.value, scope)
    machine.assign(node.target, value, scope)
    return value


_EVAL: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Constant: _constant,
    ast.Name: lambda machine, node, scope: machine.lookup(node.id, scope),
    ast.Attribute: lambda machine, node, scope: machine.getattr(
        evaluate(machine, node.value, scope), node.attr
    ),
    ast.JoinedStr: _joined,
    ast.List: _display,
    ast.Set: _display,
    ast.Tuple: _display,
    ast.Dict: _dict,
    ast.BinOp: _binop,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolop,
    ast.Compare: _compare,
    ast.IfExp: _ifexp,
    ast.Subscript: _subscript,
    ast.Lambda: lambda machine, node, scope: Value(
        Function("<lambda>", node, scope, parameter_defaults(machine, node.args, scope))
    ),
    ast.Call: _call,
    ast.ListComp: comprehension,
    ast.SetComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.DictComp: comprehension,
    ast.NamedExpr: _named,
    ast.Await: lambda machine, node, scope: evaluate(machine, node.value, scope),
    ast.Yield: yield_,
    ast.YieldFrom: yield_,
}


# Calls: of the repository's functions, which are followed, and of anything else.


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
    names.update(zip(positional, args, strict=False))
    if spec.vararg is not None:
        names[spec.vararg.arg] = Value(tuple(args[len(positional) :]))
    parameters = [*positional, *(a.arg for a in spec.kwonlyargs)]
    names.update({name: value for name, value in kwargs.items() if name in parameters})
    if spec.kwarg is not None:
        names[spec.kwarg.arg] = Value({k: v for k, v in kwargs.items() if k not in parameters})
    bound = machine.plugins.arguments(machine, function)
    for name in parameters:
        if name not in names:
            given = bound.get(name, function.defaults.get(name))
            names[name] = given if given is not None else unknown(name)


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
        try:
            answer = handler(machine, invocation)
        except Lacking:
            return unknown()
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
