"""click: commands and groups whose options are decorators."""

from __future__ import annotations

from schedmate.agent.interp import classes
from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.parser import Option, Parser
from schedmate.agent.interp.libs.cli.parsing import parse
from schedmate.agent.interp.libs.cli.refused import tell_refused
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Function, Symbol, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.values import Origin, Value, unknown

_ADDED = "click commands"


def run_click(machine: Machine, function: Function, argv: list[Value]) -> Value:
    """Parse a click command's options; a group passes the rest on to the command named next."""
    parser = Parser(open=not all(map(_only_clicks, function.decorators)))
    args: list[Value] = []
    for decorator in reversed(function.decorators):
        _click_option(machine, decorator, parser, function)
        if path_of(decorator).endswith("pass_context"):
            args.append(unknown("ctx"))
    children = _commands_of(machine, function)
    if children:
        return _click_group(machine, function, parser, children, argv)
    namespace, extras = parse(machine, parser, argv)
    tell_refused(machine, parser, extras)
    machine.observer.settings(function.name, Value(namespace), "arguments")
    kwargs = {str(key): value for key, value in namespace.items()}
    return machine.call(Value(function.undecorated()), args, kwargs, function.site)


def _only_clicks(decorator: Value) -> bool:
    """Whether a decorator is click's own, and leaves it at click's rules."""
    data = decorator.data
    path = path_of(decorator)
    own = path.startswith(("click.", "rich_click.")) or path.endswith((".command", ".group"))
    return own and not (isinstance(data, Call) and "context_settings" in data.kwargs)


_NUMBERS = {
    "click.IntRange": "int",
    "click.FloatRange": "float",
    "click.INT": "int",
    "click.FLOAT": "float",
}
"""click's own types of numbers."""


def _click_option(machine: Machine, decorator: Value, parser: Parser, function: Function) -> None:
    data = decorator.data
    if not isinstance(data, Call) or classes.last(data.path) not in ("option", "argument"):
        return
    names = [a.text for a in data.args if a.text is not None]
    flags: list[str] = []
    off: list[str] = []
    dest = None
    for name in names:
        if name.startswith("-"):
            on, _, negative = name.partition("/")
            flags.append(on.strip())
            if negative:
                off.append(negative.strip())
        else:
            dest = name
    positional = classes.last(data.path) == "argument"
    long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    dest = dest or long.lstrip("-")
    dest = dest.replace("-", "_").lower()
    line = data.args[0].origin.line if data.args and data.args[0].origin else None
    here = Origin("default", function.module.file, line)
    default = data.kwargs.get("default", Value(None, here))
    if default.origin is None or default.origin.source == "code":
        default = Value(default.data, here)
    is_flag = data.kwargs.get("is_flag", Value(False)).data is True or bool(off)
    if is_flag and default.data is None:
        default = Value(False, here)
    kind = data.kwargs.get("type")
    choices = None
    if kind is not None and isinstance(kind.data, Call) and kind.data.path == "click.Choice":
        choices = kind.data.args[0] if kind.data.args and not kind.data.kwargs else None
        kind = BUILTINS.get("str")
    elif kind is not None and isinstance(kind.data, Call | Symbol):
        kind = BUILTINS.get(_NUMBERS.get(kind.data.path, ""), kind)
    if kind is None and default.text is None and default.known and not is_flag:
        kind = BUILTINS.get(type(default.data).__name__)
    many = data.kwargs.get("nargs", Value(None)).data
    multiple = data.kwargs.get("multiple", Value(False)).data is True
    nargs = "+" if many == -1 else many if isinstance(many, int) and many > 1 else None
    action = "store_true" if is_flag else "append" if multiple else "store"
    names_of = () if positional else tuple(flags)
    parser.options.append(
        Option(dest, names_of, default, kind, action, nargs, Value(True), choices=choices)
    )
    if off:
        parser.options.append(
            Option(dest, tuple(off), default, None, "store_false", None, Value(False))
        )


def _commands_of(machine: Machine, group: Function) -> dict[str, Value]:
    """Commands attached to a click group by decorators or `add_command`."""
    found: dict[str, Value] = {}
    for name, value, function in machine.sources.defined(Function):
        for decorator in function.decorators if function is not group else ():
            if path_of(decorator) in (f"?{group.name}.command", f"?{group.name}.group"):
                data = decorator.data
                given = data.args[0].text if isinstance(data, Call) and data.args else None
                found[name.replace("_", "-") if given is None else given] = value
    for call in machine.shared.get(_ADDED, ()):
        if call.path == f"?{group.name}.add_command" and call.args:
            function = call.args[0].data
            if isinstance(function, Function):
                given = call.argument(1, "name")
                key = given.data if given is not None else function.name.replace("_", "-")
                found[str(key)] = call.args[0]
    return found


def _click_group(
    machine: Machine,
    function: Function,
    parser: Parser,
    children: dict[str, Value],
    argv: list[Value],
) -> Value:
    for index, token in enumerate(argv):
        name = str(token.data)
        child = children.get(name) or children.get(name.replace("_", "-"))
        if child is not None and isinstance(child.data, Function):
            namespace, _ = parse(machine, parser, argv[:index])
            kwargs = {str(key): value for key, value in namespace.items()}
            machine.call(Value(function.undecorated()), [], kwargs, function.site)
            return run_click(machine, child.data, argv[index + 1 :])
    return unknown()


def _enter(machine: Machine, function: Function, decorator: Value) -> Value | None:
    path = path_of(decorator)
    if path.startswith("click.") or path in ("rich_click.command", "rich_click.group"):
        return run_click(machine, function, machine.argv[1:])
    return None


def _add_command(machine: Machine, call: Invocation) -> None:
    """`group.add_command(command)`: kept until the group runs."""
    machine.shared.setdefault(_ADDED, []).append(call)


PLUGIN = Plugin(calls={"*.add_command": _add_command}, on_enter=_enter)
