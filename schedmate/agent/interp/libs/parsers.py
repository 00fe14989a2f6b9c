"""Parsers of command lines: their options, what they make of the arguments, and what they would
refuse.

Arguments are parsed as argparse does. What it would end at, the job would end at: that is told
where the options are the same in every environment.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.interp.libs.files import read_file
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Call,
    Instance,
    Invocation,
    Native,
    PathStr,
    Raised,
    as_class,
    as_function,
    as_symbol,
    is_own,
)
from schedmate.agent.interp.source import decode, last_name
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.syntax import parse
from schedmate.agent.values import Data, Items, Origin, StandIn, Unknown, Value, lifted, unknown
from schedmate.base.files import is_file


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
        """Whether the option takes a list of values."""
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
    """The `Parser` kept for a parser object of the program."""
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
    parser = owner.attrs.get("__parser__")
    return parser.data if parser is not None and isinstance(parser.data, Parser) else None


def as_default(value: Value, file: str, line: int | None) -> Value:
    """An option's default: what code says is said here, and gives way to what is set."""
    in_code = value.origin is None or value.origin.source == "code"
    return Value(value.data, Origin("default", file, line)) if in_code else value


MAX_OPTIONS = 10_000
"""Most options of a parser that are kept."""

PARSER = "argparse.ArgumentParser"

_OTHER_RULES = frozenset({"prefix_chars", "fromfile_prefix_chars", "exit_on_error"})
"""What makes a parser take other words for options, or go on after an error."""


# Parsing arguments as argparse does.


_STORE = ("store", "append", "extend")
_NUMBER = re.compile(r"^-\d+(\.\d*)?([eE][+-]?\d+)?$|^-\.\d+$")


def parse_arguments(
    machine: Machine, parser: Parser, argv: list[Value], namespace: AttrDict | None = None
) -> tuple[AttrDict, list[Value]]:
    """Parse `argv` as argparse would; returns the namespace and what was left over."""
    result = namespace if namespace is not None else AttrDict(flavour="namespace")
    for option in parser.options:
        if not _suppressed(option.default):
            result.setdefault(option.dest, _default_value(machine, option))
    result.update(parser.defaults)
    extras: list[Value] = []
    positionals = [option for option in parser.options if option.positional]
    loose: list[Value] = []
    index = 0
    only_positional = False
    while index < len(argv):
        token = argv[index]
        text = token.text
        index += 1
        if text is None:
            loose.append(token)
            continue
        if text == "--" and not only_positional:
            only_positional = True
            continue
        looks_flag = text.startswith("-") and len(text) > 1 and not only_positional
        if looks_flag and _NUMBER.match(text):
            looks_flag = False
        if not looks_flag:
            if parser.commands and text in parser.commands and len(loose) >= len(positionals):
                if parser.command_dest:
                    result[parser.command_dest] = token
                _, more = parse_arguments(machine, parser.commands[text], argv[index:], result)
                extras.extend(more)
                index = len(argv)
                break
            loose.append(token)
            continue
        matching = parser.flag(text)
        if matching is None and len(text) > 2 and text[1] != "-":
            matching = parser.flag(text[:2])
            if matching is not None and matching.action == "store":
                text = f"{text[:2]}={text[2:].lstrip('=')}"
                token = Value(text, token.origin)
        if matching is None:
            if text in parser.config_flags:
                continue
            extras.append(token)
            if "=" not in text and index < len(argv) and _is_plain(argv[index]):
                extras.append(argv[index])
                index += 1
            continue
        index = _consume_option(machine, parser, matching, token, argv, index, result)
    _positionals(machine, positionals, loose, result, extras)
    return result, extras


def _is_plain(token: Value) -> bool:
    text = token.text
    if text is None or not text.startswith("-") or _NUMBER.match(text):
        return True
    return " " in text and not re.match(r"--?[\w-]+=", text)


def _suppressed(default: Value) -> bool:
    symbol = as_symbol(default)
    return default.text == "==SUPPRESS==" if symbol is None else symbol.path.endswith("SUPPRESS")


def _default_value(machine: Machine, option: Option) -> Value:
    if option.default.text is not None and option.type is not None:
        return _typed_value(machine, option, option.default)
    return option.default


def _consume_option(
    machine: Machine,
    parser: Parser,
    option: Option,
    token: Value,
    argv: list[Value],
    index: int,
    result: AttrDict,
) -> int:
    flag, equals, attached = str(token.data).partition("=")
    origin = flag_origin(token, flag)
    switch = option.action in ("store_true", "store_false", "store_const", "count", "boolean",
                               "append_const")  # fmt: skip
    following = None if equals else argv[index] if index < len(argv) else None
    if switch and following is not None and _takes_number(parser, following):
        result[option.dest] = spelled_value(following, origin)
        return index + 1
    if switch:
        data: Data = {
            "store_true": True,
            "store_false": False,
            "boolean": any(known.startswith(flag) for known in option.flags),
            "count": 1 if flag.startswith("--") else len(flag) - 1,
        }.get(option.action, option.const.data)
        result[option.dest] = Value(data, origin)
        return index
    if equals:
        values = [Value(attached, origin)]
    else:
        values, index = _take_values(parser, option.nargs, argv, index, flag)
    if option.action == "dict":
        result[option.dest] = _dotted_pairs(values, origin)
        return index
    ended = equals or index >= len(argv) or " " not in (argv[index].text or " ")
    if values or ended:
        parser.given.append((option, flag, values))
    if option.own is not None and _own_action(machine, option, values, result):
        return index
    if flag in parser.config_flags and values:
        load_config_file(machine, values[0], parser, result)
    if option.several:
        typed = [_typed_value(machine, option, value) for value in values]
        result[option.dest] = Value(typed, origin)
    elif not values and option.nargs is None and option.own is None and option.action in _STORE:
        result[option.dest] = unknown(origin=origin)  # argparse ends here
    elif not values:
        result[option.dest] = Value(option.const.data, origin)
    else:
        value = _typed_value(machine, option, values[0])
        value = Value(value.data, origin)
        if option.action == "append":
            before = result.get(option.dest)
            items = (before.elements if before is not None else None) or []
            value = Value([*items, value], origin)
        result[option.dest] = value
    return index


def _own_action(machine: Machine, option: Option, values: list[Value], result: AttrDict) -> bool:
    """Whether the program's own action has put the values where it wants them."""
    cls = as_class(option.own)
    method = cls.lookup("__call__") if cls is not None else None
    if cls is None or method is None or as_function(method) is None:
        return False
    action = Value(Instance(cls, {"dest": Value(option.dest), "default": option.default}))
    typed = [_typed_value(machine, option, value) for value in values]
    argument = Value(typed) if option.several or not typed else typed[0]
    flag = Value(option.flags[0] if option.flags else None)
    before = dict(result)
    try:
        machine.call(method, [action, unknown(), Value(result), argument, flag], {}, NOWHERE)
    except Raised:
        return False
    return result != before


def _takes_number(parser: Parser, following: Value) -> bool:
    """Whether a number after a switch can only be its value: the command is one that works."""
    takes_words = parser.commands or any(option.positional for option in parser.options)
    number = re.fullmatch(r"-?\d+(\.\d*)?([eE][+-]?\d+)?", following.text or "")
    return bool(number) and not takes_words


def _dotted_pairs(values: list[Value], origin: Origin | None) -> Value:
    """`a.b=1 c=[2,3]` as a mapping from dotted names."""
    items: Items = {}
    for value in values:
        if value.text is not None and "=" in value.text:
            key, _, text = value.text.partition("=")
            items[key] = lifted(parse_scalar(text), value.origin)
    return Value(items, origin)


def _take_values(
    parser: Parser, nargs: Data, argv: list[Value], index: int, flag: str
) -> tuple[list[Value], int]:
    limit = nargs if isinstance(nargs, int) else 1 if nargs in (None, "?") else 10_000
    taken: list[Value] = []
    while index < len(argv) and len(taken) < limit:
        token = argv[index]
        # a token after an option that needs a value is its value even if it is not known
        if not _is_plain(token) and nargs != "..." and not parser.greedy:
            break
        taken.append(Value(token.data, flag_origin(token, flag)))
        index += 1
    return taken, index


def _typed_value(machine: Machine, option: Option, value: Value) -> Value:
    if option.type is None or value.text is None:
        return value
    return convert_argument(machine, option.type, value)


def convert_argument(machine: Machine, kind: Value, value: Value) -> Value:
    """Apply an argument's `type` to its text."""
    native, symbol = kind.data, as_symbol(kind)
    if isinstance(native, Native):
        if native.name == "bool":
            return Value(value.data not in ("", "0", "False", "false", "no"), value.origin)
        made = native.model(machine, Invocation(native.name, [value], {}, NOWHERE))
        return Value(made.data if made is not None else Unknown(), value.origin)
    if symbol is not None and symbol.path in ("pathlib.Path", "pathlib.PosixPath"):
        return Value(PathStr(value.data), value.origin)
    if symbol is not None and symbol.path in machine.plugins.calls:
        read = machine.call(kind, [value], {}, NOWHERE)  # `type=json.loads`
        plain = read.known or read.mapping is not None or read.elements is not None
        return Value(read.data, value.origin) if plain else value
    if is_own(kind):
        try:
            converted = machine.call(kind, [value], {}, NOWHERE)
        except Raised:
            return value
        return value if converted.unknown else Value(converted.data, value.origin)
    return value


def _positionals(
    machine: Machine,
    options: list[Option],
    loose: list[Value],
    result: AttrDict,
    extras: list[Value],
) -> None:
    remaining = list(loose)
    for position, option in enumerate(options):
        after = sum(1 for o in options[position + 1 :] if o.nargs is None)
        if option.nargs in ("+", "*", "..."):
            take = max(0, len(remaining) - after)
            values = [_typed_value(machine, option, v) for v in remaining[:take]]
            if values or option.nargs != "*":
                result[option.dest] = Value(values, values[0].origin if values else None)
            remaining = remaining[take:]
        elif isinstance(option.nargs, int):
            result[option.dest] = Value(
                [_typed_value(machine, option, v) for v in remaining[: option.nargs]]
            )
            remaining = remaining[option.nargs :]
        elif remaining:
            if option.nargs == "?" and len(remaining) <= after:
                continue
            result[option.dest] = _typed_value(machine, option, remaining.pop(0))
    extras.extend(remaining)


def load_config_file(machine: Machine, path: Value, parser: Parser, result: AttrDict) -> None:
    """Fill the namespace from a configuration file an option names."""
    loaded = read_file(machine, path)
    mapping = machine.mapping(loaded)
    for key, value in (mapping or {}).items():
        name = str(key).lstrip("-").replace("-", "_")
        option = next((o for o in parser.options if o.dest == name), None)
        result[name] = _typed_value(machine, option, value) if option is not None else value


# Command-line tokens: flags, their values, and where a value came from.


def parse_flags(argv: list[Value]) -> tuple[list[tuple[str, list[Value], Value]], list[Value]]:
    """Split `argv` into (name, values, flag token) triples and what stands before any flag."""
    flags: list[tuple[str, list[Value], Value]] = []
    loose: list[Value] = []
    complete = False
    for token in argv:
        text = token.text or ""
        if text.startswith("--") and len(text) > 2:
            name, equals, value = text[2:].partition("=")
            flags.append((name, [Value(value, token.origin)] if equals else [], token))
            complete = bool(equals)
        elif re.match(r"^-[A-Za-z]$", text):
            flags.append((text[1:], [], token))
            complete = False
        elif flags and not complete:
            flags[-1][1].append(token)
        else:
            loose.append(token)
    return flags, loose


def flag_origin(token: Value, flag: str | None = None) -> Origin | None:
    """The origin of what `token` gives, which says that it was given by this flag."""
    origin = token.origin
    text = token.text.split("=", 1)[0] if flag is None and token.text is not None else flag
    if origin is None or text is None:
        return origin
    return Origin(origin.source, origin.file, origin.line, text)


def plain_scalar(token: Value) -> Value:
    """The number, boolean or text that a token spells."""
    if token.text is None:
        return token
    value = spelled_value(token, token.origin)
    return value if value.mapping is None and value.elements is None else token


def spelled_value(text_value: Value, origin: Origin | None) -> Value:
    """What a text spells, `3`, `true` or `[1, 2]`, with an origin; other data as it is."""
    if text_value.text is None:
        return Value(text_value.data, origin)
    return lifted(parse_scalar(text_value.text), origin)


def command_option(machine: Machine, name: str) -> Value | None:
    """What the command gives an option, `--name value` or `--na-me=value`, of an unseen parser."""
    for token, after in zip(machine.argv, [*machine.argv[1:], Value(None)], strict=True):
        if token.text is None:
            continue
        flag, equals, text = token.text.partition("=")
        if flag.startswith("--") and flag[2:].replace("-", "_") == name:
            if equals:
                return plain_scalar(Value(text, flag_origin(token)))
            given = after.text is not None and not after.text.startswith("--")
            return plain_scalar(Value(after.data, flag_origin(after, flag))) if given else None
    return None


# What a program's parser would refuse of its command line: the job would end at once.
#
# It is told only of parsers whose options are all known. One that a library adds to, that takes
# what it does not know, or that reads other words than those of the command says nothing here.


_HELP = ("-h", "--help")
_END = "it would end at once"
_MOST_TOLD = 8
"""Choices that are listed."""
_LONGEST = 80
"""Characters of a word that are quoted."""
_PLACEHOLDER = re.compile(r"[<>$\[\]{}…*]|\.\.\.|^[A-Z][A-Z_]{3,}$")
"""Words of a command that are not yet what will be typed."""
_OTHER_WORDS = re.compile(
    r"parse_known_args|parse_known_intermixed|\bparser\.error\s*=|_remove_action|_add_action|"
    r"\bdel\s+sys\.argv|sys\.argv\s*(\[[^\]]*\]\s*)?(=[^=]|\+=)|sys\.argv\.\w+\(|"
    r"token_normalize_func|ignore_unknown_options|allow_extra_args|ignore_unknown"
)
"""How programs read other words than those of the command, or let unknown ones pass."""
_LEAST: dict[object, object] = {None: 1, "+": 1}
"""Fewest values of an option, by its `nargs`."""
_COUNTS: dict[object, str] = {None: "one value", "+": "at least one value"}
_KINDS = {"int": (int, "a whole number"), "float": (float, "a number")}


def tell_refused(machine: Machine, parser: Parser, extras: Iterable[Value]) -> None:
    """Tell the observer what `parser` would end at, given what it left over, where that is sure."""
    parsers = list(_all_parsers(parser))
    if not machine.certain or machine.catches("SystemExit"):
        return
    if any(one.open or one.records or one.config_flags for one in parsers):
        return
    if any(option.nargs == "..." for one in parsers for option in one.options):
        return
    program = str(machine.argv[0].data)
    left = list(extras)
    if not any((*_unknown_options(parsers, left), *_refused_values(parsers, None))):
        return
    modules = _program_modules(machine)
    try:
        if modules is None or options_depend(modules):
            return
        unknown = (("", complaint) for complaint in _unknown_options(parsers, left))
        for option, complaint in islice(
            chain(unknown, _refused_values(parsers, modules)), _MOST_TOLD
        ):
            machine.observer.refuses(f"{program} {complaint}", option)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # what is left out as not valid in this Python may be an option


def _all_parsers(parser: Parser, depth: int = 0) -> Iterator[Parser]:
    yield parser
    for child in parser.commands.values() if depth < 3 else ():
        yield from _all_parsers(child, depth + 1)


def _unknown_options(parsers: list[Parser], extras: Iterable[Value]) -> Iterator[str]:
    """One sentence about the options of the command line that no parser has, if any."""
    flags = [flag for one in parsers for option in one.options for flag in spellings(option)]
    unknown_flags: dict[str, str] = {}
    for token in extras:
        flag = (token.text or "").partition("=")[0]
        if not re.fullmatch(r"--[A-Za-z][\w.-]*", flag) or flag in _HELP or flag in unknown_flags:
            continue
        if any(flag_name.startswith(flag) for flag_name in flags):
            continue  # an abbreviation
        near = _nearest_word(flag, flags) if len(unknown_flags) < _MOST_TOLD else ""
        unknown_flags[flag] = f"{_cut_word(flag)}{near}"
    if unknown_flags:
        yield f"has no option {_list_words(list(unknown_flags.values()))}: {_END}"


def _list_words(words: list[str]) -> str:
    return ", ".join(words[:_MOST_TOLD]) + (", …" if len(words) > _MOST_TOLD else "")


def _cut_word(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…"


def _nearest_word(word: str, words: list[str]) -> str:
    # what a switch is spelt with is no part of what was meant
    if len(word) > _LONGEST:
        return ""
    spelt = {
        candidate.replace("_", "-"): candidate for candidate in words if len(candidate) <= _LONGEST
    }
    near = difflib.get_close_matches(word.replace("_", "-"), spelt, n=1, cutoff=0.7)
    return f" (did you mean {spelt[near[0]]}?)" if near else ""


def _refused_values(
    parsers: list[Parser], modules: ProgramModules | None
) -> Iterator[tuple[str, str]]:
    """Options and the values that they do not take; without `modules`, choices may be computed."""
    fixed: dict[int, bool] = {}
    for one in parsers:
        for option, flag, values in one.given:
            if modules is not None and option.choices is not None and id(option) not in fixed:
                fixed[id(option)] = is_fixed_list(option.written, modules)
            twice = [other for other in one.options if flag in other.flags]
            if len(twice) > 1 or option.own is not None or flag not in option.flags:
                continue
            least = _LEAST.get(option.nargs, option.nargs)
            if isinstance(least, int) and len(values) < least:
                if option.action in ("store", "append", "extend"):
                    wants = _COUNTS.get(option.nargs, f"{least} values")
                    has = len(values) or "none"
                    yield flag, f"takes {wants} for {_cut_word(flag)}, which has {has}: {_END}"
                continue
            for value in values:
                if value.text is not None and not _PLACEHOLDER.search(value.text):
                    for complaint in _refused_value(
                        option, flag, value.text, fixed.get(id(option), True)
                    ):
                        yield flag, complaint


def _refused_value(option: Option, flag: str, text: str, fixed: bool) -> Iterator[str]:
    data = option.type.data if option.type is not None else None
    kind = _KINDS.get(data.name) if isinstance(data, Native) else None
    converted: object = text
    if kind is not None:
        try:
            converted = kind[0](text)
        except ValueError:
            yield f"takes {kind[1]} for {_cut_word(flag)}, not {_cut_word(text)!r}: {_END}"
            return
    elif option.type is not None and not (isinstance(data, Native) and data.name == "str"):
        return  # what a function makes of it is not known
    allowed = _plain_choices(option.choices)
    if allowed and converted not in allowed and fixed:
        listed = _list_words([_cut_word(str(one)) for one in allowed[: _MOST_TOLD + 1]])
        near = _nearest_word(text, [str(one) for one in allowed])
        yield f"takes {listed} for {_cut_word(flag)}, not {_cut_word(text)!r}{near}: {_END}"


def _plain_choices(value: Value | None) -> list[object]:
    """The plain values of a list, tuple or set of choices; none where one is not known."""
    items = value.sequence if value is not None else None
    if not items or any(not isinstance(one.data, str | int | float) for one in items):
        return []
    return [one.data for one in items]


def _program_modules(machine: Machine) -> ProgramModules | None:
    """The program's modules, None where its parser need not get the command as it is."""
    texts = []
    for module in list(machine.sources.modules.values()):
        if not is_file(module.path):
            continue
        try:
            text = decode(module.path.read_bytes())
        except OSError:
            return None
        if _OTHER_WORDS.search(text):
            return None
        texts.append(text)
    return ProgramModules(texts)


# Whether the options of a program are the same in every environment.
#
# It is read from the text: a program that adds options under a condition, in a function that may
# return before, or by text that it executes, may have others elsewhere.


_ADDS = frozenset(
    ("add_argument", "add_option", "add_arg", "add_parser", "add_subparsers", "add_arguments")
)
_BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.TryStar, ast.Match, ast.While, ast.BoolOp)


class ProgramModules:
    """The program's modules by their text, each parsed when something in it is looked for.

    Parsing raises what `ast.parse` does.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)
        self._trees: dict[str, ast.AST] = {}

    def naming(self, words: Iterable[str]) -> list[ast.AST]:
        """The trees of the modules in which one of these words occurs."""
        wanted = re.compile("|".join(map(re.escape, sorted(words))))
        texts = [text for text in self._texts if wanted.search(text)]
        for text in texts:
            if text not in self._trees:
                self._trees[text] = parse(text)
        return [self._trees[text] for text in texts]


@dataclass(frozen=True, slots=True)
class _Step:
    """A call, by its name, or a `return`, without one; what is around it, and its line."""

    called: str | None
    line: int
    branch: bool
    owners: tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, ...]


def options_depend(modules: ProgramModules) -> bool:
    """Whether what adds options in these modules may run elsewhere and not here."""
    adding = set(_ADDS)
    while True:
        trees = modules.naming({*adding, "parse_args", "exec"})
        steps = [step for tree in trees for step in _steps(tree)]
        # what parses as well has a parser of its own
        whole = {
            step.owners[-1].name for step in steps if step.called == "parse_args" and step.owners
        }
        more = {
            owner.name for step in steps if step.called in adding for owner in step.owners
        } - whole
        if more <= adding:
            break
        adding |= more
    returned: dict[ast.AST, int] = {}  # of functions, their first line that may end them
    for step in steps:
        if step.called == "exec" or (step.branch and step.called in adding):
            return True
        if step.called is None and step.branch:
            for owner in step.owners:
                if not isinstance(owner, ast.ClassDef):
                    returned[owner] = min(step.line, returned.get(owner, step.line))
    added = [(step.line, owner) for step in steps if step.called in adding for owner in step.owners]
    return any(returned.get(owner, line) < line for line, owner in added)


def _steps(tree: ast.AST) -> Iterator[_Step]:
    """The calls and returns of a module; `branch` are those under a condition of a function."""
    stack: list[tuple[ast.AST, bool, tuple[Any, ...]]] = [(tree, False, ())]
    while stack:
        node, branch, owners = stack.pop()
        if isinstance(node, ast.Return):
            yield _Step(None, node.lineno, branch, owners)
        elif isinstance(node, ast.Call) and (name := last_name(node.func)) is not None:
            yield _Step(name, node.lineno, branch, owners)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            owners, branch = (*owners, node), branch and isinstance(node, ast.ClassDef)
        # `if __name__ == "__main__":` is no condition
        test = node.test if isinstance(node, ast.If) else None
        is_main = isinstance(test, ast.Compare) and last_name(test.left) == "__name__"
        inside = branch or (isinstance(node, _BRANCHES) and not is_main)
        stack += [(child, inside, owners) for child in ast.iter_child_nodes(node)]


_COPIES = frozenset(("list", "sorted", "tuple", "set"))


def is_fixed_list(node: ast.expr | None, modules: ProgramModules) -> bool:
    """Whether an expression is a list of literals, or a name for one that nothing changes."""
    if _is_literal(node):
        return True
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
            node = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id in _COPIES and len(node.args) == 1:
            node = node.args[0]
        else:
            return False
    name = last_name(node)
    if name is None:
        return _is_literal(node)
    return _given_literals(name, modules.naming([name])) == [True]


def _given_literals(name: str, trees: Sequence[ast.AST]) -> list[bool]:
    """For each assignment and change of a name, whether it gives it literals."""
    literals = []
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and any(last_name(one) == name for one in node.targets):
                literals.append(_is_literal(node.value))
            elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
                stored = not isinstance(node.ctx, ast.Load)
                inner = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
                method = isinstance(node, ast.Attribute) and node.attr not in _READS
                if (stored or method) and last_name(inner) == name:
                    literals.append(False)
            elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
                if last_name(node.target) == name:
                    literals.append(False)
            elif isinstance(node, ast.arg) and node.arg == name:
                literals.append(False)
    return literals


_READS = frozenset(("keys", "values", "items", "get", "copy", "index"))


def _is_literal(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Dict):
        return all(isinstance(key, ast.Constant) for key in node.keys)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(isinstance(item, ast.Constant | ast.UnaryOp) for item in node.elts)
    return False
