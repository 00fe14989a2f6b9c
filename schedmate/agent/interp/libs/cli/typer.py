"""typer: functions whose parameters are options."""

from __future__ import annotations

import ast
import re

from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.functions import call_with_settings
from schedmate.agent.interp.libs.cli.parser import Option, Parser, switches
from schedmate.agent.interp.libs.cli.parsing import parse
from schedmate.agent.interp.libs.cli.refused import tell_refused
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Function, Scope, as_call, as_function, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.syntax import elements
from schedmate.agent.values import Origin, Value, unknown


def typer_app(machine: Machine, call: Invocation) -> Value:
    """`app()`: run the only command, or the one the command line names."""
    commands: dict[str, Value] = {}
    group = False
    for name, value, function in machine.sources.defined(Function):
        for decorator in function.decorators:
            data = as_call(decorator)
            group |= path_of(decorator).startswith("typer.Typer().callback")
            if data is not None and data.path == "typer.Typer().command":
                given = data.args[0] if data.args else data.kwargs.get("name", unknown())
                commands[name.replace("_", "-") if given.text is None else given.text] = value
    argv = machine.argv[1:]
    if len(commands) == 1:
        chosen = next(iter(commands.values()))
        if argv and argv[0].data in commands:
            argv = argv[1:]
    else:
        index = next((i for i, token in enumerate(argv) if token.data in commands), None)
        if index is None:
            return unknown()
        chosen, argv = commands[str(argv[index].data)], argv[index + 1 :]
    return _typer_run(machine, chosen, argv, group)


def typer_run(machine: Machine, call: Invocation) -> Value:
    return _typer_run(machine, call.args[0], machine.argv[1:]) if call.args else unknown()


def _annotated(machine: Machine, node: ast.expr | None, scope: Scope) -> tuple[str, Call | None]:
    """The type's text, and the `typer.Option(...)` of an `Annotated[type, typer.Option(...)]`."""
    if node is None:
        return "", None
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Annotated"):
        parts = elements(node.slice)
        markers = (_marker(machine.evaluate(part, scope)) for part in parts[1:])
        return ast.unparse(parts[0]), next((m for m in markers if m is not None), None)
    return ast.unparse(node), None


def _plain_type(annotation: str) -> str:
    """The name of the type in an annotation that may be quoted and may allow None."""
    text = annotation.strip("'\"").strip()
    wrapped = re.fullmatch(r"(?:\w+\.)*(Optional|Union)\[(.*)\]", text)
    parts = re.split(r"[,|]", wrapped[2] if wrapped else text)
    named = [part.strip().strip("'\"") for part in parts]
    named = [part for part in named if part != "None"]
    single = len(named) == 1 and (wrapped is None or wrapped[1] == "Union" or len(parts) < 3)
    return named[0].rpartition(".")[2] if single else ""


def _marker(value: Value | None) -> Call | None:
    """The `typer.Option(...)` or `typer.Argument(...)` that a value is."""
    made = as_call(value)
    return made if made is not None and made.path in _MARKERS else None


_OTHER_RULES = frozenset({"click_type", "param_decls", "flag_value", "is_flag", "prompt_required"})
"""Arguments of `typer.Option` after which its usual rules need not hold."""
_COMPLETION = ("--install-completion", "--show-completion")
_MARKERS = ("typer.Option", "typer.Argument")


def _typer_run(machine: Machine, function: Value, argv: list[Value], group: bool = False) -> Value:
    """Call a function whose parameters are `typer.Option`s and `typer.Argument`s.

    In a `group`, a callback has options as well.
    """
    data = as_function(function)
    if data is None:
        return unknown()
    defaults = dict(data.defaults)
    spec = data.node.args
    parser = Parser(greedy=True, open=group)
    for parameter in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
        name = parameter.arg
        annotation, note = _annotated(machine, parameter.annotation, data.scope)
        default = defaults.get(name)
        marker = _marker(default)
        if marker is not None:
            line = default.origin.line if default is not None and default.origin else None
            given = marker.args[0] if marker.args else marker.kwargs.get("default", Value(None))
            default = Value(given.data, Origin("default", data.module.file, line))
        option = marker if marker is not None else note
        said = option.args[0 if marker is None else 1 :] if option is not None else []
        names = [word.text for word in said if word.text is not None]
        positional = default is None if option is None else option.path.endswith("Argument")
        default = default or Value(None)
        said_more = option.kwargs if option is not None else {}
        flags, off = switches(names)
        plain = _plain_type(annotation)
        is_flag = plain == "bool" or (not annotation and isinstance(default.data, bool))
        if not flags and not off:
            flags = [f"--{name.replace('_', '-')}"]
            off = [f"--no-{name.replace('_', '-')}"]
        kind = BUILTINS.get(plain if plain in ("int", "float", "str") else "")
        if not annotation and default.number is not None and not is_flag:
            kind = BUILTINS.get(type(default.data).__name__)
        kind = said_more.get("parser", kind)
        counted = said_more.get("count", Value(False)).data is not False
        action = "count" if counted else "store_true" if is_flag else "store"
        own = () if positional else tuple(flags)
        parser.options.append(Option(name, own, default, kind, action))
        if is_flag and off and not positional:
            parser.options.append(Option(name, tuple(off), default, None, "store_false"))
        spelt_elsewhere = not _OTHER_RULES.isdisjoint(said_more)
        several = bool(annotation) and (not plain or "uple" in plain)
        parser.open |= spelt_elsewhere or several
    parser.open |= not all(map(_only_typers, data.decorators)) or spec.kwarg is not None
    # the namespace needs no item for them
    hidden = Value("==SUPPRESS==")
    parser.options += [Option("", (flag,), hidden, None, "count") for flag in _COMPLETION]
    namespace, extras = parse(machine, parser, argv)
    tell_refused(machine, parser, extras)
    return call_with_settings(machine, data.undecorated(), namespace)


def _only_typers(decorator: Value) -> bool:
    """Whether a decorator is typer's own, and leaves it at typer's rules."""
    made = as_call(decorator)
    plain = made is not None and not {"context_settings", "cls"} & set(made.kwargs)
    return plain and path_of(decorator).startswith("typer.")


PLUGIN = Plugin(calls={"typer.Typer()": typer_app, "typer.run": typer_run})
