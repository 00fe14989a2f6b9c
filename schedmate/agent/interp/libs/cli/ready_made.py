"""Options and parsers that libraries bring along: Lightning's `Trainer`, detectron2, Isaac Gym."""

from __future__ import annotations

import re
from typing import Any

from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.argparse import add_argument, finish
from schedmate.agent.interp.libs.cli.flags import command_option
from schedmate.agent.interp.libs.cli.parser import PARSER, Option, Parser, parser_of
from schedmate.agent.interp.libs.cli.parsing import parse
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.libs.documented import TRAINER_OPTIONS, parsers
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import Call, Native
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Origin, Value, unknown


def add_trainer_options(machine: Machine, call: Invocation) -> Value:
    """Lightning's `Trainer.add_argparse_args(parser)`; values are read as plain scalars."""
    base = call.argument(0, "parent_parser", "parser")
    if base is None:
        return unknown()
    parser = parser_of(machine, base)
    parser.open = True  # which options there are depends on the version
    scalar = Value(Native("scalar", _scalar))
    for name in TRAINER_OPTIONS:
        parser.options.append(Option(name, (f"--{name}",), Value(None), scalar))
    return base


def _scalar(machine: Machine, call: Invocation) -> Value:
    return wrap(parse_scalar(str(call.args[0].data)), call.args[0].origin)


def trainer_from_options(machine: Machine, call: Invocation) -> Value:
    """Lightning's `Trainer.from_argparse_args(args, **kwargs)`: a Trainer with those arguments."""
    mapping = machine.mapping(call.first)
    kwargs = {
        name: value
        for name, value in (mapping or {}).items()
        if name in TRAINER_OPTIONS and value.data is not None
    }
    kwargs.update(call.kwargs)
    path = call.path.rsplit(".", 1)[0]
    return machine.external(Invocation(path, [], kwargs, call.site))


def ready_made(options: list[dict[str, Any]], path: str) -> Handler:
    """A library function that returns a parser of its own."""

    def make(machine: Machine, call: Invocation) -> Value:
        value = Value(Call(PARSER, [], {}))
        parser = parser_of(machine, value)
        parser.open = True
        origin = Origin("library", text=path)
        for given in options:
            flags = tuple(given["flags"])
            dest = given.get("dest") or flags[0].lstrip("-").replace("-", "_")
            default = Value(given.get("default"), origin)
            action = given.get("action", "store")
            if action == "store_true":
                default = Value(False, origin)
            kind = Value(Native("scalar", _scalar)) if isinstance(default.data, int) else None
            parser.options.append(Option(dest, flags, default, kind, action, given.get("nargs")))
        return value

    return make


def parse_table(machine: Machine, call: Invocation) -> Value:
    """`gymutil.parse_arguments(custom_parameters=[{"name": "--task", ...}])` of Isaac Gym."""
    parser = Value(Call(PARSER, [], {}))
    given = call.argument(3, "custom_parameters")
    for row in iterate(given) or []:
        options = machine.mapping(row)
        if options is not None and "name" in options:
            rest = {str(key): item for key, item in options.items() if key != "name"}
            add_argument(machine, Invocation(PARSER, [options["name"]], rest, call.site, parser))
    value, _ = finish(machine, Invocation(PARSER, [], {}, call.site, parser))
    return value


def file_arguments(machine: Machine, call: Invocation) -> Value:
    """prefigure's `get_all_args("defaults.ini")`: each value of the file is an option's default."""
    given = call.argument(0, "defaults_file")
    read = read_file(machine, given if given is not None else Value("defaults.ini"))
    sections = machine.mapping(read)
    if sections is None:
        return unknown()
    parser = Parser()
    for section in sections.values():
        for name, item in (machine.mapping(section) or {}).items():
            quoted = item.text is not None and re.fullmatch(r"([\"'])(.*)\1", item.text)
            default = Value(quoted[2], item.origin) if quoted else item
            flags = tuple(dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}")))
            scalar = Value(Native("scalar", _scalar))
            parser.options.append(Option(name, flags, default, scalar))
    result, _ = parse(machine, parser, machine.argv[1:])
    value = Value(result)
    machine.observer.settings("arguments", value, "arguments")
    return value


_READS_COMMAND = re.compile(r"(^|\.)(get|parse|read)_(all_)?(args|arguments|options|opts|flags)$")
"""Functions of libraries that read the command line in ways of their own."""


def _undeclared(machine: Machine, made: Call, name: str) -> Value | None:
    """An option of a parser that a library has and the repository does not show."""
    return command_option(machine, name) if _READS_COMMAND.search(made.path) else None


PLUGIN = Plugin(
    missing=_undeclared,
    calls={
        **{path: ready_made(options, path) for path, options in parsers().items()},
        "*.add_argparse_args": add_trainer_options,
        "isaacgym.gymutil.parse_arguments": parse_table,
        "*.from_argparse_args": trainer_from_options,
        "prefigure.get_all_args": file_arguments,
        "prefigure.prefigure.get_all_args": file_arguments,
    },
)
