"""What a command-line parser has been told: its options, records and subcommands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Instance
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Value


@dataclass(slots=True)
class Option:
    """One `add_argument`; `own` is the program's class of action, where it has one.

    `choices` are the values that it takes, where it takes only some.
    """

    dest: str
    flags: tuple[str, ...]
    default: Value
    type: Value | None
    action: str
    nargs: Any
    const: Value
    own: Value | None = None
    choices: Value | None = None

    @property
    def positional(self) -> bool:
        return not self.flags


@dataclass(slots=True)
class Parser:
    """What a parser object has been told.

    `open` says that it may have options besides those that were seen. `given` are the values that a
    command gave to options, by the flag as it was written.
    """

    options: list[Option] = field(default_factory=list)
    defaults: dict[str, Value] = field(default_factory=dict)
    commands: dict[str, Parser] = field(default_factory=dict)
    command_dest: str | None = None
    argument_default: Value | None = None
    records: list[tuple[str, Value, str]] = field(default_factory=list)
    config_flags: set[str] = field(default_factory=set)
    config_files: list[str] = field(default_factory=list)
    open: bool = False
    given: list[tuple[Option, str, list[Value]]] = field(default_factory=list)

    def flag(self, token: str) -> Option | None:
        """The option a token names, by exact match or unambiguous prefix."""
        name = token.split("=", 1)[0]
        for option in reversed(self.options):
            negated = option.action == "boolean" and name.replace("--no-", "--", 1) in option.flags
            if name in option.flags or negated:
                return option
        if name.startswith("--"):
            candidates = {
                option.dest: option
                for option in self.options
                for flag in option.flags
                if flag.startswith(name)
            }
            if len(candidates) == 1:
                return next(iter(candidates.values()))
            dashed = name.replace("_", "-"), name.replace("-", "_")
            for option in self.options:
                if set(dashed) & set(option.flags) and option.action == "record":
                    return option
        return None


def parser_of(machine: Machine, base: Value | None) -> Parser:
    """The parser model behind a parser object."""
    data = base.data if base is not None else None
    if isinstance(data, Call | Instance):
        held = data.attrs.get("__parser__")
        if held is None:
            held = Value(Parser())
            data.attrs["__parser__"] = held
            keywords = data.kwargs
            plain = isinstance(data, Call) and data.path == PARSER
            held.data.open = not plain or not _OTHER_RULES.isdisjoint(keywords)
            held.data.argument_default = keywords.get("argument_default")
            parents = iterate(keywords.get("parents", Value([])))
            held.data.open |= parents is None
            for parent in parents or []:
                known = parser_of(machine, parent)
                held.data.open |= known.open or not isinstance(parent.data, Call)
                held.data.options.extend(known.options)
                held.data.defaults.update(known.defaults)
            for path in iterate(keywords.get("default_config_files", Value([]))) or []:
                if path.text is not None:
                    held.data.config_files.append(path.data)
        parser: Parser = held.data
        return parser
    return Parser()


PARSER = "argparse.ArgumentParser"

_OTHER_RULES = frozenset({"prefix_chars", "fromfile_prefix_chars", "exit_on_error"})
"""What makes a parser take other words for options, or go on after an error."""
