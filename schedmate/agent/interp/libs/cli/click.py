"""click: commands and groups whose options are decorators."""

from __future__ import annotations

import ast

from schedmate.agent.interp import classes
from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.functions import call_with_settings
from schedmate.agent.interp.libs.cli.parser import Option, Parser, as_default, switches
from schedmate.agent.interp.libs.cli.parsing import parse
from schedmate.agent.interp.libs.cli.refused import tell_refused
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Function, as_call, as_function, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.syntax import constant
from schedmate.agent.values import Origin, Value, unknown

_ADDED = "click commands"


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
    namespace, extras = parse(machine, parser, argv)
    tell_refused(machine, parser, extras)
    return call_with_settings(machine, function.undecorated(), namespace, args)


def _only_clicks(decorator: Value) -> bool:
    """Whether a decorator is click's own, and leaves it at click's rules."""
    made, path = as_call(decorator), path_of(decorator)
    own = path.startswith(("click.", "rich_click.")) or path.endswith((".command", ".group"))
    name = classes.last(path)
    if not own or name.endswith("_option"):
        return False
    other = made is not None and (
        not _OTHER_RULES.isdisjoint(made.kwargs)
        or (name in ("option", "argument") and any(arg.text is None for arg in made.args))
        or (name in ("command", "group") and len(made.args) > 1)
    )
    return not other


_OTHER_RULES = frozenset({"cls", "context_settings", "flag_value", "params", "prompt_required"})
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
    if data is None or classes.last(data.path) not in ("option", "argument"):
        return
    names = [a.text for a in data.args if a.text is not None]
    flags, off = switches(names)
    dest = next((name for name in reversed(names) if not name.startswith("-")), None)
    positional = classes.last(data.path) == "argument"
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
    parser.options[-1].written = _written(function, names[0]) if names else None
    if off:
        parser.options.append(Option(dest, tuple(off), default, None, "store_false"))


def _written(function: Function, name: str) -> ast.expr | None:
    """The list in `click.Choice([...])` of an option as it is written."""
    decorators = getattr(function.node, "decorator_list", [])
    for node in decorators:
        if isinstance(node, ast.Call) and any(constant(arg) == name for arg in node.args):
            kinds = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
            if kinds and isinstance(kinds[0], ast.Call) and kinds[0].args:
                return kinds[0].args[0]
    return None


def _commands_of(machine: Machine, group: Function) -> dict[str, Value]:
    """Commands attached to a click group by decorators or `add_command`."""
    found: dict[str, Value] = {}
    for name, value, function in machine.sources.defined(Function):
        for decorator in function.decorators if function is not group else ():
            if path_of(decorator) in (f"?{group.name}.command", f"?{group.name}.group"):
                data = as_call(decorator)
                given = data.args[0].text if data is not None and data.args else None
                found[name.replace("_", "-") if given is None else given] = value
    for call in machine.shared.get(_ADDED, ()):
        if call.path == f"?{group.name}.add_command" and call.args:
            command = as_function(call.args[0])
            if command is not None:
                given = call.text(1, "name")
                found[given if given is not None else command.name.replace("_", "-")] = call.args[0]
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
        child = as_function(children.get(name) or children.get(name.replace("_", "-")))
        if child is not None:
            namespace, _ = parse(machine, parser, argv[:index])
            kwargs = {str(key): value for key, value in namespace.items()}
            machine.call(Value(function.undecorated()), [], kwargs, function.site)
            return run_click(machine, child, argv[index + 1 :])
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
