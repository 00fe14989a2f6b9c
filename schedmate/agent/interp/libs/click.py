"""Models click and typer: commands whose options are decorators, and functions whose parameters
are options.
"""

from __future__ import annotations

import ast
import re

from schedmate.agent.interp.builtins import BUILTINS
from schedmate.agent.interp.libs.parsers import (
    Option,
    Parser,
    as_default,
    parse_arguments,
    switches,
    tell_refused,
)
from schedmate.agent.interp.libs.records import call_with_settings
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    Call,
    Function,
    Invocation,
    Scope,
    as_call,
    as_function,
    path_of,
)
from schedmate.agent.interp.source import constant_value, elements
from schedmate.agent.interp.values import classes
from schedmate.agent.values import Origin, Value, unknown

_CLICK_ADDED = "click commands"


def run_click(machine: Machine, function: Function, argv: list[Value]) -> Value:
    """Parse a click command's options; a group passes the rest on to the command named next."""
    parser = Parser(open=not all(map(_only_clicks, function.decorators)), greedy=True)
    args: list[Value] = []
    for decorator in reversed(function.decorators):
        _click_option(machine, decorator, parser, function)
        if path_of(decorator).endswith("pass_context"):
            args.append(unknown("ctx"))
    children = _commands_of(machine, function)
    if children:
        return _click_group(machine, function, parser, children, argv)
    namespace, extras = parse_arguments(machine, parser, argv)
    tell_refused(machine, parser, extras)
    return call_with_settings(machine, function.undecorated(), namespace, args)


def _only_clicks(decorator: Value) -> bool:
    """Whether a decorator is click's own, and leaves it at click's rules."""
    made, path = as_call(decorator), path_of(decorator)
    own = path.startswith(("click.", "rich_click.")) or path.endswith((".command", ".group"))
    name = classes.last_part(path)
    if not own or name.endswith("_option"):
        return False
    other = made is not None and (
        not _CLICK_OTHER_RULES.isdisjoint(made.kwargs)
        or (name in ("option", "argument") and any(arg.text is None for arg in made.args))
        or (name in ("command", "group") and len(made.args) > 1)
    )
    return not other


_CLICK_OTHER_RULES = frozenset(
    {"cls", "context_settings", "flag_value", "params", "prompt_required"}
)
"""Arguments of click's decorators after which its usual rules need not hold."""

_NUMBERS = {
    "click.IntRange": "int",
    "click.FloatRange": "float",
    "click.INT": "int",
    "click.FLOAT": "float",
}
"""click's own types of numbers."""


def _click_option(machine: Machine, decorator: Value, parser: Parser, function: Function) -> None:
    data = as_call(decorator)
    if data is None or classes.last_part(data.path) not in ("option", "argument"):
        return
    names = [a.text for a in data.args if a.text is not None]
    flags, off = switches(names)
    dest = next((name for name in reversed(names) if not name.startswith("-")), None)
    positional = classes.last_part(data.path) == "argument"
    long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    dest = (dest or long.lstrip("-")).replace("-", "_").lower()
    line = data.args[0].origin.line if data.args and data.args[0].origin else None
    file = function.module.file
    default = as_default(data.kwargs.get("default", Value(None)), file, line)
    is_flag = data.kwargs.get("is_flag", Value(False)).data is True or bool(off)
    if is_flag and default.data is None:
        default = Value(False, Origin("default", file, line))
    kind = data.kwargs.get("type")
    choices = None
    made = as_call(kind) if kind is not None else None
    if made is not None and made.path == "click.Choice":
        choices = made.args[0] if len(made.args) == 1 and not made.kwargs else None
        kind = BUILTINS.get("str")
    elif kind is not None:
        kind = BUILTINS.get(_NUMBERS.get(path_of(kind), ""), kind)
    if kind is None and default.text is None and default.known and not is_flag:
        kind = BUILTINS.get(type(default.data).__name__)
    many = data.kwargs.get("nargs", Value(None)).integer
    multiple = data.kwargs.get("multiple", Value(False)).data is True
    nargs = "+" if many == -1 else many if many is not None and many > 1 else None
    counted = data.kwargs.get("count", Value(False)).data is not False
    action = "store_true" if is_flag else "append" if multiple else "store"
    action = "count" if counted else action
    if (kind is not None and kind.sequence is not None) or (
        "nargs" in data.kwargs and many is None
    ):
        parser.open = True  # a tuple of types takes several words
    given = () if positional else tuple(flags)
    parser.options.append(Option(dest, given, default, kind, action, nargs, choices=choices))
    parser.options[-1].written = _written_choices(function, names[0]) if names else None
    if off:
        parser.options.append(Option(dest, tuple(off), default, None, "store_false"))


def _written_choices(function: Function, name: str) -> ast.expr | None:
    """The list in `click.Choice([...])` of an option as it is written."""
    decorators = getattr(function.node, "decorator_list", [])
    for node in decorators:
        if isinstance(node, ast.Call) and any(constant_value(arg) == name for arg in node.args):
            kinds = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
            if kinds and isinstance(kinds[0], ast.Call) and kinds[0].args:
                return kinds[0].args[0]
    return None


def _commands_of(machine: Machine, group: Function) -> dict[str, Value]:
    """Commands attached to a click group by decorators or `add_command`."""
    commands: dict[str, Value] = {}
    for name, value, function in machine.sources.defined(Function):
        for decorator in function.decorators if function is not group else ():
            if path_of(decorator) in (f"?{group.name}.command", f"?{group.name}.group"):
                data = as_call(decorator)
                stated = data.args[0].text if data is not None and data.args else None
                commands[name.replace("_", "-") if stated is None else stated] = value
    for call in machine.shared.get(_CLICK_ADDED, ()):
        if call.path == f"?{group.name}.add_command" and call.args:
            command = as_function(call.args[0])
            if command is not None:
                stated = call.text(1, "name")
                commands[stated if stated is not None else command.name.replace("_", "-")] = (
                    call.args[0]
                )
    return commands


def _click_group(
    machine: Machine,
    function: Function,
    parser: Parser,
    children: dict[str, Value],
    argv: list[Value],
) -> Value:
    for index, token in enumerate(argv):
        name = str(token.data)
        child = as_function(children.get(name) or children.get(name.replace("_", "-")))
        if child is not None:
            namespace, _ = parse_arguments(machine, parser, argv[:index])
            kwargs = {str(key): value for key, value in namespace.items()}
            machine.call(Value(function.undecorated()), [], kwargs, function.site)
            return run_click(machine, child, argv[index + 1 :])
    return unknown()


def _enter_click(machine: Machine, function: Function, decorator: Value) -> Value | None:
    path = path_of(decorator)
    if path.startswith("click.") or path in ("rich_click.command", "rich_click.group"):
        return run_click(machine, function, machine.argv[1:])
    return None


def _add_command(machine: Machine, call: Invocation) -> None:
    """`group.add_command(command)`: kept until the group runs."""
    machine.shared.setdefault(_CLICK_ADDED, []).append(call)


CLICK = Plugin(calls={"*.add_command": _add_command}, on_enter=_enter_click)


# typer: functions whose parameters are options.


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


_TYPER_OTHER_RULES = frozenset(
    {"click_type", "param_decls", "flag_value", "is_flag", "prompt_required"}
)
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
            default_value = (
                marker.args[0] if marker.args else marker.kwargs.get("default", Value(None))
            )
            default = Value(default_value.data, Origin("default", data.module.file, line))
        option = marker if marker is not None else note
        declared = option.args[0 if marker is None else 1 :] if option is not None else []
        names = [word.text for word in declared if word.text is not None]
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
        spelt_elsewhere = not _TYPER_OTHER_RULES.isdisjoint(said_more)
        several = bool(annotation) and (not plain or "uple" in plain)
        parser.open |= spelt_elsewhere or several
    parser.open |= not all(map(_only_typers, data.decorators)) or spec.kwarg is not None
    # the namespace needs no item for them
    hidden = Value("==SUPPRESS==")
    parser.options += [Option("", (flag,), hidden, None, "count") for flag in _COMPLETION]
    namespace, extras = parse_arguments(machine, parser, argv)
    tell_refused(machine, parser, extras)
    return call_with_settings(machine, data.undecorated(), namespace)


def _only_typers(decorator: Value) -> bool:
    """Whether a decorator is typer's own, and leaves it at typer's rules."""
    made = as_call(decorator)
    plain = made is not None and not {"context_settings", "cls"} & set(made.kwargs)
    return plain and path_of(decorator).startswith("typer.")


TYPER = Plugin(calls={"typer.Typer()": typer_app, "typer.run": typer_run})
