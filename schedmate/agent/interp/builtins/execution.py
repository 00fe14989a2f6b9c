"""Built-in functions that open files and run code."""

from __future__ import annotations

import ast

from schedmate.agent.interp.evaluate.expressions import evaluate
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import Scope, as_call
from schedmate.agent.interp.repair import parse_tolerant
from schedmate.agent.interp.syntax import nodes, variable
from schedmate.agent.interp.values.paths import open_file
from schedmate.agent.interp.values.trees import as_config
from schedmate.agent.interp.values.written import FileHandle, WriteHandle
from schedmate.agent.syntax import parse_expression
from schedmate.agent.values import Value, unknown


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
    text = call.first.text
    if text is None or len(text) > 2000:
        return unknown()
    try:
        node = parse_expression(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return unknown(text[:80])
    for part in nodes([node], ast.expr):
        part.lineno = part.end_lineno = call.site.line
    value = evaluate(machine, node, machine.frames[-1].scope)
    if variable(node) and value.unknown and machine.expects("NameError"):
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
    tree = parse_tolerant(text, file, machine.observer)
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
    name = call.first.text
    return machine.import_module(name) if name is not None else unknown()


def exit_(machine: Machine, call: Invocation) -> Value:
    raise Raised("SystemExit")


FUNCTIONS: dict[str, Handler] = {
    "print": lambda *_: Value(None),
    "open": _open,
    "eval": _eval,
    "exec": _exec,
    "__import__": _import,
    "exit": exit_,
    "quit": exit_,
}
