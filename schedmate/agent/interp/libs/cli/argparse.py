"""argparse and the parsers built on it (configargparse, jsonargparse, simple-parsing)."""

from __future__ import annotations

import re
from typing import Any

from schedmate.agent.configs import parse_scalar
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import flag_origin, parse_flags
from schedmate.agent.interp.libs.cli.parser import PARSER, Option, Parser, parser_of
from schedmate.agent.interp.libs.cli.parsing import load_config_file, parse
from schedmate.agent.interp.libs.cli.records import fill_prefixed, make_record, split_records
from schedmate.agent.interp.libs.cli.refused import tell_refused
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import AttrDict, Call, Class, Symbol
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate, truth
from schedmate.agent.values import Origin, Value, unknown

_CONFIG_FILE = ("is_config_file", "is_config_file_arg")
"""What makes an option of configargparse name a configuration file."""


def add_argument(machine: Machine, call: Invocation) -> Value:
    parser = parser_of(machine, call.base)
    names = [a.text for a in call.args if a.text is not None]
    if len(names) < len(call.args) or not names:
        parser.open = True
    if not names:
        return unknown()
    flags = tuple(n for n in names if n.startswith("-"))
    given = call.kwargs.get("dest")
    if given is not None and given.text is not None:
        dest = given.data
    elif flags:
        long = next((f for f in flags if f.startswith("--")), flags[0])
        dest = long.lstrip("-").replace("-", "_")
    else:
        dest = names[0]
    kind = call.kwargs.get("type")
    if kind is not None and isinstance(kind.data, Class):
        fields = split_records(machine, [kind])
        if fields:
            parser.records.append((dest, kind, ""))
            parser.open = True
            return unknown()
    action_value = call.kwargs.get("action", Value("store"))
    action = action_value.text if action_value.text is not None else "store"
    if isinstance(action_value.data, Class) and re.search(
        "Dict|KeyValue|KV", action_value.data.name
    ):
        action = "dict"
    own = action_value if isinstance(action_value.data, Class) and action == "store" else None
    if isinstance(action_value.data, Symbol):
        path = action_value.data.path
        action = "boolean" if path.endswith("BooleanOptionalAction") else "store"
        if path.endswith("DictAction"):
            action = "dict"
        if path.endswith("ActionConfigFile"):
            parser.config_flags.update(flags)
    if any(truth(call.kwargs.get(name, Value(False))) for name in _CONFIG_FILE):
        parser.config_flags.update(flags)
    nargs = call.kwargs.get("nargs", Value(None)).data
    if isinstance(nargs, Symbol):
        nargs = "..." if nargs.path.endswith("REMAINDER") else None
    default = call.kwargs.get("default") or parser.argument_default
    here = Origin("default", call.site.file, call.site.line)
    if default is None:
        blank: Any = {"store_true": False, "store_false": True, "count": None}.get(action)
        default = Value(blank, here)
    elif default.origin is None or default.origin.source == "code":
        default = Value(default.data, here)
    const = call.kwargs.get("const", Value(True))
    choices = call.kwargs.get("choices")
    option = Option(dest, flags, default, kind, action, nargs, const, own, choices)
    parser.options.append(option)
    return Value(option.dest)


def actions(parser: Parser) -> Value:
    """`parser._actions`: what has been added, by which programs make a second parser."""
    found = []
    for option in parser.options:
        flags = Value([Value(flag) for flag in option.flags])
        items = {"dest": Value(option.dest), "default": option.default, "option_strings": flags,
                 "type": option.type or Value(None), "nargs": Value(option.nargs)}  # fmt: skip
        found.append(Value(AttrDict(items, "namespace")))
    return Value(found)


def set_defaults(machine: Machine, call: Invocation) -> Value:
    parser = parser_of(machine, call.base)
    here = Origin("default", call.site.file, call.site.line)
    for name, value in call.kwargs.items():
        in_code = value.origin is None or value.origin.source == "code"
        parser.defaults[name] = Value(value.data, here) if in_code else value
    for argument in call.args:
        mapping = machine.mapping(argument)
        if mapping is not None:
            parser.defaults.update(mapping)
    return Value(None)


def get_default(machine: Machine, call: Invocation) -> Value:
    parser = parser_of(machine, call.base)
    name = call.args[0].data if call.args else None
    for option in parser.options:
        if option.dest == name:
            return parser.defaults.get(option.dest, option.default)
    return unknown()


def add_group(machine: Machine, call: Invocation) -> Value:
    """A group is an object of its own, whose options are the parser's."""
    group = Call(PARSER, [], {})
    group.attrs["__parser__"] = Value(parser_of(machine, call.base))
    return Value(group)


def add_subparsers(machine: Machine, call: Invocation) -> Value:
    parser = parser_of(machine, call.base)
    dest = call.kwargs.get("dest")
    parser.command_dest = dest.text if dest is not None else None
    group = Call(f"{PARSER}().add_subparsers", call.args, call.kwargs)
    group.attrs["__parser__"] = Value(parser)
    return Value(group)


def add_parser(machine: Machine, call: Invocation) -> Value:
    parent = parser_of(machine, call.base)
    made = Call(PARSER, [], call.kwargs)
    value = Value(made)
    name = call.args[0].data if call.args else None
    parent.open |= not isinstance(name, str)
    if isinstance(name, str):
        child = parser_of(machine, value)
        parent.commands[name] = child
        for alias in iterate(call.kwargs.get("aliases", Value([]))) or []:
            if alias.text is not None:
                parent.commands[alias.data] = child
    return value


def add_records(machine: Machine, call: Invocation) -> Value:
    """simple-parsing's `add_arguments(Config, dest="config")`."""
    parser = parser_of(machine, call.base)
    kind = call.argument(0, "dataclass")
    dest = call.argument(1, "dest")
    if kind is not None and dest is not None and dest.text is not None:
        parser.open = True
        prefix = call.kwargs.get("prefix", Value("")).data
        parser.records.append((dest.data, kind, prefix if isinstance(prefix, str) else ""))
    return Value(None)


def _arguments(machine: Machine, call: Invocation) -> list[Value]:
    given = call.argument(0, "args")
    if given is not None and given.data is not None:
        items = iterate(given)
        if items is not None:
            return items
    return machine.argv[1:]


def _finish(machine: Machine, call: Invocation) -> tuple[Value, list[Value]]:
    parser = parser_of(machine, call.base)
    start = call.argument(1, "namespace")
    namespace = start.data if start is not None and isinstance(start.data, AttrDict) else None
    argv = _arguments(machine, call)
    fresh = AttrDict(flavour="namespace")
    for path in parser.config_files:
        load_config_file(machine, Value(path), parser, fresh)
    records = [(dest, make_record(machine, kind), prefix) for dest, kind, prefix in parser.records]
    result, extras = parse(machine, parser, argv, namespace if namespace is not None else None)
    for key, value in fresh.items():
        held = result.get(key)
        if held is None or held.origin is None or held.origin.source not in ("command", "script"):
            result[key] = value
    for dest, record, prefix in records:
        fill_prefixed(machine, record, prefix)
        result[dest] = record
    value = Value(result)
    machine.observer.parses_arguments(value)
    return value, extras


def parse_args(machine: Machine, call: Invocation) -> Value:
    value, extras = _finish(machine, call)
    given = call.argument(0, "args")
    if given is None or given.data is None:
        tell_refused(machine, parser_of(machine, call.base), extras)
    unknown_flags = [e.text for e in extras if e.text is not None and e.text.startswith("-")]
    if unknown_flags and not parser_of(machine, call.base).records:
        # a library may have added options of its own; the job's user knows that they exist
        mapping = value.data
        for name, values, flag in parse_flags(extras)[0]:
            origin = flag_origin(flag)
            given = values[0] if values else Value(True)
            mapping[name.replace("-", "_")] = _read(given, origin)
    return value


def _read(given: Value, origin: Origin | None) -> Value:
    """What the text of a flag that no option declares spells; what is not known stays so."""
    read = parse_scalar(given.text) if given.text is not None else given.data
    return wrap(read, origin)


def parse_known_args(machine: Machine, call: Invocation) -> Value:
    value, extras = _finish(machine, call)
    given = {
        name.replace("-", "_"): _read(values[0], flag_origin(flag, str(flag.data)))
        for name, values, flag in parse_flags(extras)[0]
        if values
    }
    if given:
        machine.observer.settings("command", Value(given), "arguments")
    return Value((value, Value(extras)))


def parse_table(machine: Machine, call: Invocation) -> Value:
    """`gymutil.parse_arguments(custom_parameters=[{"name": "--task", ...}])` of Isaac Gym."""
    parser = Value(Call(PARSER, [], {}))
    given = call.argument(3, "custom_parameters")
    for row in (iterate(given) if given is not None else None) or []:
        options = machine.mapping(row)
        if options is not None and "name" in options:
            rest = {str(key): item for key, item in options.items() if key != "name"}
            add_argument(machine, Invocation(PARSER, [options["name"]], rest, call.site, parser))
    value, _ = _finish(machine, Invocation(PARSER, [], {}, call.site, parser))
    return value


CONSTRUCTORS = (
    PARSER,
    "configargparse.ArgumentParser",
    "configargparse.ArgParser",
    "jsonargparse.ArgumentParser",
    "simple_parsing.ArgumentParser",
    "argparse.ArgumentParser().add_subparsers",
    "fairseq.options",
    "optparse.OptionParser",
)


_METHODS = {
    "add_argument": add_argument,
    "add_option": add_argument,
    "add": add_argument,
    "add_arg": add_argument,
    "add_class_arguments": add_records,
    "add_arguments": add_records,
    "add_argument_group": add_group,
    "add_mutually_exclusive_group": add_group,
    "add_subparsers": add_subparsers,
    "add_parser": add_parser,
    "set_defaults": set_defaults,
    "get_default": get_default,
    "parse_args": parse_args,
    "parse_known_args": parse_known_args,
    "parse_intermixed_args": parse_args,
    "parse": parse_args,
}


_CALLS: dict[str, Handler] = {
    f"{constructor}().{name}": method
    for constructor in CONSTRUCTORS
    for name, method in _METHODS.items()
}
_CALLS["optparse.OptionParser().parse_args"] = parse_known_args
_CALLS["isaacgym.gymutil.parse_arguments"] = parse_table


def _actions(machine: Machine, base: Value) -> Value | None:
    data = base.data
    known = isinstance(data, Call) and "_actions" not in data.attrs and "__parser__" in data.attrs
    return actions(data.attrs["__parser__"].data) if known else None


def _added_to(machine: Machine, call: Invocation) -> Value | None:
    """A function of a library that is given a parser adds its options to it."""
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value.data, Call) and value.data.path in CONSTRUCTORS:
            parser_of(machine, value).open = True
    data = call.first.data
    return call.first if isinstance(data, Call) and data.path in CONSTRUCTORS else None


PLUGIN = Plugin(
    types={"argparse.Namespace": (AttrDict,)},
    calls=_CALLS,
    attributes={"_actions": _actions},
    otherwise=_added_to,
)
