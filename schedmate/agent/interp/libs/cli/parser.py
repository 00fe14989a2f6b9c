"""The model of a command-line parser: its options, records and subcommands."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Instance
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Data, Origin, StandIn, Value


@dataclass(slots=True)
class Option:
    """One `add_argument`; `own` is the program's class of action, where it has one.

    `choices` are the values that it takes, where it takes only some, and `written` is their text.
    """

    dest: str
    flags: tuple[str, ...]
    default: Value
    type: Value | None
    action: str = "store"
    nargs: Data = None
    const: Value = field(default_factory=lambda: Value(True))
    own: Value | None = None
    choices: Value | None = None
    written: ast.expr | None = None

    @property
    def positional(self) -> bool:
        return not self.flags

    @property
    def several(self) -> bool:
        """Whether it takes a list of values."""
        return self.nargs in ("+", "*", "...") or isinstance(self.nargs, int)


@dataclass(slots=True)
class Parser(StandIn):
    """The options, records and subcommands that a program has added to a parser.

    `open` says that it may have options besides those that were seen. `given` are the values that a
    command gave to options, by the flag as it was written. A `greedy` one takes the next word for
    an option's value even if it looks like a flag, as click does.
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
    greedy: bool = False
    given: list[tuple[Option, str, list[Value]]] = field(default_factory=list)

    def flag(self, token: str) -> Option | None:
        """The option a token names, by exact match or unambiguous prefix."""
        name = token.split("=", 1)[0]
        for option in reversed(self.options):
            if name in spellings(option):
                return option
        if name.startswith("--"):
            candidates = {
                option.dest: option
                for option in self.options
                for flag in spellings(option)
                if flag.startswith(name)
            }
            if len(candidates) == 1:
                return next(iter(candidates.values()))
            dashed = name.replace("_", "-"), name.replace("-", "_")
            for option in self.options:
                if set(dashed) & set(option.flags) and option.action == "record":
                    return option
        return None


def spellings(option: Option) -> tuple[str, ...]:
    """The flags of an option, with `--no-x` of argparse's `BooleanOptionalAction`."""
    if option.action != "boolean":
        return option.flags
    long = (flag for flag in option.flags if flag.startswith("--"))
    return (*option.flags, *(f"--no-{flag[2:]}" for flag in long))


def switches(names: list[str]) -> tuple[list[str], list[str]]:
    """Of names such as `--on/--off`, those of the option and those that switch it off."""
    pairs = [name.partition("/") for name in names if name.startswith("-")]
    on, off = ([pair[side].strip() for pair in pairs] for side in (0, 2))
    return list(filter(None, on)), list(filter(None, off))


def parser_of(machine: Machine, base: Value | None) -> Parser:
    """The parser model behind a parser object."""
    owner = base.data if base is not None else None
    if not isinstance(owner, Call | Instance):
        return Parser()
    parser = known_parser(owner)
    if parser is None:
        parser = Parser(argument_default=owner.kwargs.get("argument_default"))
        owner.attrs["__parser__"] = Value(parser)
        plain = isinstance(owner, Call) and owner.path == PARSER
        parents = iterate(owner.kwargs.get("parents", Value([])))
        parser.open = not plain or parents is None or not _OTHER_RULES.isdisjoint(owner.kwargs)
        taken = [parser]
        for parent in parents or []:
            above = parser_of(machine, parent)
            parser.open |= above.open or not isinstance(parent.data, Call)
            if any(above is one for one in taken):
                parser.open = True  # argparse refuses a parser twice
                continue
            taken.append(above)
            if len(parser.options) + len(above.options) > MAX_OPTIONS:
                parser.open = True
                break
            parser.options.extend(above.options)
            parser.defaults.update(above.defaults)
        paths = iterate(owner.kwargs.get("default_config_files")) or []
        parser.config_files.extend(path.text for path in paths if path.text is not None)
    return parser


def known_parser(owner: Call | Instance) -> Parser | None:
    """The parser model of an object, None where it has none yet."""
    held = owner.attrs.get("__parser__")
    return held.data if held is not None and isinstance(held.data, Parser) else None


def as_default(value: Value, file: str, line: int | None) -> Value:
    """An option's default: what code says is said here, and gives way to what is set."""
    in_code = value.origin is None or value.origin.source == "code"
    return Value(value.data, Origin("default", file, line)) if in_code else value


MAX_OPTIONS = 10_000
"""Most options of a parser that are kept."""

PARSER = "argparse.ArgumentParser"

_OTHER_RULES = frozenset({"prefix_chars", "fromfile_prefix_chars", "exit_on_error"})
"""What makes a parser take other words for options, or go on after an error."""
