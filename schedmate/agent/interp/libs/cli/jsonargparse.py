"""jsonargparse's `CLI`: functions whose parameters are options, nested ones and classes too.

`--config file`, `--train.epochs 3` into a record that is a parameter's default, `--data Alpaca` or
`data: {class_path: Alpaca, init_args: {...}}` for an object, sub-commands from a dict of functions.
"""

from __future__ import annotations

from collections.abc import Iterator

from schedmate.agent.configs.class_keys import built_by
from schedmate.agent.configs.trees import merge, set_dotted
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.dataclass_parsers import from_command_line
from schedmate.agent.interp.libs.cli.flags import flag_origin, spelled
from schedmate.agent.interp.libs.cli.functions import annotations_of, call_with_settings
from schedmate.agent.interp.libs.cli.records import cast, update
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.libs.hydra import build
from schedmate.agent.interp.libs.importing import class_named
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Function, as_function, as_instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.interp.values.trees import plain_tree
from schedmate.agent.values import Items, Origin, Value


def cli(machine: Machine, call: Invocation) -> Value:
    """`CLI(function)`, `CLI({"train": function, ...})` and `CLI([function, ...])`."""
    components = call.argument(0, "components")
    argv = iterate(call.kwargs.get("args")) or machine.argv[1:]
    while components is not None:
        function = as_function(components)
        if function is not None:
            return _called(machine, function, argv)
        chosen = _chosen(components, argv)
        if chosen is None:
            break
        components, argv = chosen
    return from_command_line(machine, call)


def _chosen(components: Value, argv: list[Value]) -> tuple[Value, list[Value]] | None:
    """The function that a word names, and the other words."""
    options = dict(components.mapping or {})
    for component in components.sequence or ():
        function = as_function(component)
        if function is not None:
            options[function.name] = component
    for at, token in enumerate(argv):
        if token.text is not None and token.text in options:
            return options[token.text], [*argv[:at], *argv[at + 1 :]]
    return None


def _called(machine: Machine, function: Function, argv: list[Value]) -> Value:
    function = function.undecorated()
    notes = annotations_of(function)
    config = _read(machine, function, notes, argv)
    settings: Items = {}
    for name in notes:
        default = function.defaults.get(name)
        setting = config.mapping.get(name) if config.mapping is not None else None
        value = default if setting is None else _argument(machine, setting, default, function)
        if value is not None:
            settings[name] = value
    return call_with_settings(machine, function, settings)


def _read(machine: Machine, function: Function, notes: dict[str, str], argv: list[Value]) -> Value:
    """What the words say, as a tree by parameter."""
    config = Value({})
    required = [name for name in notes if name not in function.defaults]
    for key, value, token in options(argv):
        if not key:
            if required:
                config = set_dotted(config, required.pop(0), token)
            continue
        if key == "config" and value is not None and key not in notes:
            loaded = read_file(machine, value)
            if loaded is not None and loaded.mapping is not None:
                config = merge(config, plain_tree(loaded))
            continue
        head, dot, _ = key.partition(".")
        if head in notes:
            setting = _typed(machine, value, notes[head] if not dot else "", flag_origin(token))
            config = set_dotted(config, into_arguments(config, key), setting)
    return config


def options(argv: list[Value]) -> Iterator[tuple[str, Value | None, Value]]:
    """The options of a command with their values and tokens; other words have no name."""
    words = iter(zip(argv, [*argv[1:], Value("--")], strict=True))
    for token, after in words:
        text = str(token.data)
        if not text.startswith("--") and text != "-c":
            yield "", token, token
            continue
        key, equals, given = text.lstrip("-").partition("=")
        value = Value(given, token.origin) if equals else None
        if value is None and not str(after.data).startswith("--"):
            value, _ = next(words)
        yield key, value, token


def _typed(machine: Machine, value: Value | None, note: str, origin: Origin | None) -> Value:
    """A word as its parameter's annotation wants it; the name of a class as the class."""
    if value is None:
        return Value(True, origin)
    text = value.text
    if text is None:
        return Value(value.data, origin)
    if class_named(machine, text.rpartition(".")[2]) is not None:
        return Value({"class_path": value}, value.origin)
    return cast(value, Value(None), note, origin) if note else spelled(value, origin)


def into_arguments(config: Value, key: str) -> str:
    """`data.path` as `data.init_args.path` where `data` names a class."""
    head, _, rest = key.partition(".")
    section = config.mapping.get(head) if config.mapping is not None else None
    named = section is not None and section.mapping is not None and built_by(section.mapping)
    if not rest or not named or rest.startswith(("init_args", "class_path")):
        return key
    return f"{head}.init_args.{rest}"


def _argument(machine: Machine, setting: Value, default: Value | None, function: Function) -> Value:
    """A parameter's value: an object of the class that is named, a record with fields set."""
    if setting.mapping is None:
        return setting
    if built_by(setting.mapping) is not None:
        return build(machine, setting, [], {}, function.site)
    if default is not None and as_instance(default) is not None:
        update(default, setting.mapping)
        return default
    return setting if default is None else merge(default, setting)


_NAMES = ("CLI", "auto_cli", "cli.CLI", "_cli.CLI", "_cli.auto_cli")

PLUGIN = Plugin(calls={f"jsonargparse.{name}": cli for name in _NAMES})
