"""Built-in functions that open files and run code."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from schedmate.agent.interp.expressions import evaluate
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.nodes import as_config
from schedmate.agent.interp.objects import (
    Args,
    Call,
    FileHandle,
    Kwargs,
    NativeFunction,
    Scope,
    Site,
)
from schedmate.agent.interp.paths import open_file
from schedmate.agent.interp.source import parse_tolerant
from schedmate.agent.syntax import parse_expression
from schedmate.agent.values import Unknown, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


def _print(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    return Value(None)


def _open(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    path = args[0] if args else kwargs.get("file", unknown())
    mode = args[1] if len(args) > 1 else kwargs.get("mode", Value("r"))
    if isinstance(mode.data, str) and any(letter in mode.data for letter in "wax"):
        return unknown()
    handle = open_file(state, path)
    if not isinstance(handle.data, FileHandle):
        state.record("open", [path], kwargs, site)
    return handle


def _eval(state: State, args: Args, kwargs: Kwargs, site: Site) -> Value:
    """An expression given as text, followed like the program's own."""
    text = args[0].data if args else None
    if not isinstance(text, str) or len(text) > 2000:
        return unknown()
    try:
        node = parse_expression(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return unknown(text[:80])
    for part in ast.walk(node):
        if isinstance(part, ast.expr):
            part.lineno = part.end_lineno = site.line
    value = evaluate(state, node, state.frames[-1].scope)
    undefined = isinstance(node, ast.Name) and isinstance(value.data, Unknown)
    if undefined and state.expects("NameError"):
        raise Raised("NameError")  # `try: value = eval(text)`, `except: pass`
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


FUNCTIONS: dict[str, NativeFunction] = {
    "print": _print,
    "open": _open,
    "eval": _eval,
    "exec": _exec,
    "__import__": _import,
    "exit": _exit,
    "quit": _exit,
}
