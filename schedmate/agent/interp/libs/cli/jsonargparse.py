"""jsonargparse's `CLI`: functions whose parameters are options, nested ones and classes too.

`--config file`, `--train.epochs 3` into a record that is a parameter's default, `--data Alpaca` or
`data: {class_path: Alpaca, init_args: {...}}` for an object, sub-commands from a dict of functions.
"""

from __future__ import annotations

import ast

from schedmate.agent.configs import merge, parse_scalar, set_dotted
from schedmate.agent.configs.class_keys import built_by
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.dataclass_parsers import from_command_line
from schedmate.agent.interp.libs.cli.flags import flag_origin
from schedmate.agent.interp.libs.cli.records import cast, update
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.libs.hydra import build
from schedmate.agent.interp.libs.registries import class_named
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Function, Instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.interp.values.trees import plain_tree
from schedmate.agent.values import Origin, Value


def cli(machine: Machine, call: Invocation) -> Value:
    """`CLI(function)`, `CLI({"train": function, ...})` and `CLI([function, ...])`."""
    components = call.argument(0, "components")
    given = call.kwargs.get("args")
    argv = (iterate(given) if given is not None else None) or machine.argv[1:]
    while components is not None and not isinstance(components.data, Function):
        chosen = _chosen(components, argv)
        if chosen is None:
            return from_command_line(machine, call)
        components, argv = chosen
    if components is None:
        return from_command_line(machine, call)
    return _called(machine, components.data, argv)


def _chosen(components: Value, argv: list[Value]) -> tuple[Value, list[Value]] | None:
    """The function that a word names, and the other words."""
    data = components.data
    options: dict[object, Value] = data if isinstance(data, dict) else {}
    if isinstance(data, list | tuple):
        options = {one.data.name: one for one in data if isinstance(one.data, Function)}
    for at, token in enumerate(argv):
        if token.text is not None and token.text in options:
            return options[token.data], [*argv[:at], *argv[at + 1 :]]
    return None


def _called(machine: Machine, function: Function, argv: list[Value]) -> Value:
    function = function.undecorated()
    spec = function.node.args
    parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    notes = {p.arg: ast.unparse(p.annotation) if p.annotation else "" for p in parameters}
    config = _read(machine, function, notes, argv)
    held: dict[str, Value] = {}
    for name in notes:
        default = function.defaults.get(name)
        told = config.mapping.get(name) if config.mapping is not None else None
        value = default if told is None else _made(machine, told, default, function)
        if value is not None:
            held[name] = value
    machine.observer.settings(function.name, Value(dict(held)), "arguments")
    return machine.call(Value(function), [], held, function.site)


def _read(machine: Machine, function: Function, notes: dict[str, str], argv: list[Value]) -> Value:
    """What the words say, as a tree by parameter."""
    config = Value({})
    required = [name for name in notes if name not in function.defaults]
    at = 0
    while at < len(argv):
        token = argv[at]
        at += 1
        text = str(token.data)
        if not text.startswith("--"):
            if required:
                config = set_dotted(config, required.pop(0), token)
            continue
        key, equals, given = text.removeprefix("--").partition("=")
        value = Value(given, token.origin) if equals else None
        if value is None and at < len(argv) and not str(argv[at].data).startswith("--"):
            value = argv[at]
            at += 1
        if key == "config" and value is not None and key not in notes:
            loaded = read_file(machine, value)
            if loaded is not None and loaded.mapping is not None:
                config = merge(config, plain_tree(loaded))
            continue
        head, dot, _ = key.partition(".")
        if head in notes:
            told = _typed(machine, value, notes[head] if not dot else "", flag_origin(token))
            config = set_dotted(config, _into_arguments(config, key), told)
    return config


def _typed(machine: Machine, value: Value | None, note: str, origin: Origin | None) -> Value:
    """A word as its parameter's annotation wants it; the name of a class as the class."""
    if value is None:
        return Value(True, origin)
    text = value.data
    if not isinstance(text, str):
        return Value(text, origin)
    if class_named(machine, text.rpartition(".")[2]) is not None:
        return Value({"class_path": value}, value.origin)
    data = cast(text, Value(None), note) if note else parse_scalar(text)
    return wrap(data, origin)


def _into_arguments(config: Value, key: str) -> str:
    """`data.path` as `data.init_args.path` where `data` names a class."""
    head, _, rest = key.partition(".")
    section = config.mapping.get(head) if config.mapping is not None else None
    named = section is not None and section.mapping is not None and built_by(section.mapping)
    if not rest or not named or rest.startswith(("init_args", "class_path")):
        return key
    return f"{head}.init_args.{rest}"


def _made(machine: Machine, told: Value, default: Value | None, function: Function) -> Value:
    """A parameter's value: an object of the class that is named, a record with fields set."""
    if told.mapping is None:
        return told
    if built_by(told.data) is not None:
        return build(machine, told, [], {}, function.site)
    if default is not None and isinstance(default.data, Instance):
        update(default, told.data)
        return default
    return told if default is None else merge(default, told)


_NAMES = ("CLI", "auto_cli", "cli.CLI", "_cli.CLI", "_cli.auto_cli")

PLUGIN = Plugin(calls={f"jsonargparse.{name}": cli for name in _NAMES})
