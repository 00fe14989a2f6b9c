"""Parsing arguments as argparse does."""

from __future__ import annotations

import re

from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import flag_origin, spelled
from schedmate.agent.interp.libs.cli.parser import Option, Parser
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Instance,
    Native,
    PathStr,
    as_class,
    as_function,
    as_symbol,
    is_own,
)
from schedmate.agent.values import Data, Items, Origin, Unknown, Value, unknown

_STORE = ("store", "append", "extend")
_NUMBER = re.compile(r"^-\d+(\.\d*)?([eE][+-]?\d+)?$|^-\.\d+$")


def parse(
    machine: Machine, parser: Parser, argv: list[Value], namespace: AttrDict | None = None
) -> tuple[AttrDict, list[Value]]:
    """Parse `argv` as argparse would; returns the namespace and what was left over."""
    result = namespace if namespace is not None else AttrDict(flavour="namespace")
    for option in parser.options:
        if not _suppressed(option.default):
            result.setdefault(option.dest, _default(machine, option))
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
                _, more = parse(machine, parser.commands[text], argv[index:], result)
                extras.extend(more)
                index = len(argv)
                break
            loose.append(token)
            continue
        found = parser.flag(text)
        if found is None and len(text) > 2 and text[1] != "-":
            found = parser.flag(text[:2])
            if found is not None and found.action == "store":
                text = f"{text[:2]}={text[2:].lstrip('=')}"
                token = Value(text, token.origin)
        if found is None:
            if text in parser.config_flags:
                continue
            extras.append(token)
            if "=" not in text and index < len(argv) and _is_plain(argv[index]):
                extras.append(argv[index])
                index += 1
            continue
        index = _consume(machine, parser, found, token, argv, index, result)
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


def _default(machine: Machine, option: Option) -> Value:
    if option.default.text is not None and option.type is not None:
        return _typed(machine, option, option.default)
    return option.default


def _consume(
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
    if switch and following is not None and _takes_it(parser, following):
        result[option.dest] = spelled(following, origin)
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
        values, index = _take(parser, option.nargs, argv, index, flag)
    if option.action == "dict":
        result[option.dest] = _pairs(values, origin)
        return index
    ended = equals or index >= len(argv) or " " not in (argv[index].text or " ")
    if values or ended:
        parser.given.append((option, flag, values))
    if option.own is not None and _acted(machine, option, values, result):
        return index
    if flag in parser.config_flags and values:
        load_config_file(machine, values[0], parser, result)
    if option.several:
        typed = [_typed(machine, option, value) for value in values]
        result[option.dest] = Value(typed, origin)
    elif not values and option.nargs is None and option.own is None and option.action in _STORE:
        result[option.dest] = unknown(origin=origin)  # argparse ends here
    elif not values:
        result[option.dest] = Value(option.const.data, origin)
    else:
        value = _typed(machine, option, values[0])
        value = Value(value.data, origin)
        if option.action == "append":
            before = result.get(option.dest)
            items = (before.elements if before is not None else None) or []
            value = Value([*items, value], origin)
        result[option.dest] = value
    return index


def _acted(machine: Machine, option: Option, values: list[Value], result: AttrDict) -> bool:
    """Whether the program's own action has put the values where it wants them."""
    cls = as_class(option.own)
    method = cls.lookup("__call__") if cls is not None else None
    if cls is None or method is None or as_function(method) is None:
        return False
    action = Value(Instance(cls, {"dest": Value(option.dest), "default": option.default}))
    typed = [_typed(machine, option, value) for value in values]
    given = Value(typed) if option.several or not typed else typed[0]
    flag = Value(option.flags[0] if option.flags else None)
    before = dict(result)
    try:
        machine.call(method, [action, unknown(), Value(result), given, flag], {}, NOWHERE)
    except Raised:
        return False
    return result != before


def _takes_it(parser: Parser, following: Value) -> bool:
    """Whether a number after a switch can only be its value: the command is one that works."""
    takes_words = parser.commands or any(option.positional for option in parser.options)
    number = re.fullmatch(r"-?\d+(\.\d*)?([eE][+-]?\d+)?", following.text or "")
    return bool(number) and not takes_words


def _pairs(values: list[Value], origin: Origin | None) -> Value:
    """`a.b=1 c=[2,3]` as a mapping from dotted names."""
    found: Items = {}
    for value in values:
        if value.text is not None and "=" in value.text:
            key, _, text = value.text.partition("=")
            found[key] = wrap(parse_scalar(text), value.origin)
    return Value(found, origin)


def _take(
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


def _typed(machine: Machine, option: Option, value: Value) -> Value:
    if option.type is None or value.text is None:
        return value
    return convert(machine, option.type, value)


def convert(machine: Machine, kind: Value, value: Value) -> Value:
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
            values = [_typed(machine, option, v) for v in remaining[:take]]
            if values or option.nargs != "*":
                result[option.dest] = Value(values, values[0].origin if values else None)
            remaining = remaining[take:]
        elif isinstance(option.nargs, int):
            result[option.dest] = Value(
                [_typed(machine, option, v) for v in remaining[: option.nargs]]
            )
            remaining = remaining[option.nargs :]
        elif remaining:
            if option.nargs == "?" and len(remaining) <= after:
                continue
            result[option.dest] = _typed(machine, option, remaining.pop(0))
    extras.extend(remaining)


def load_config_file(machine: Machine, path: Value, parser: Parser, result: AttrDict) -> None:
    """Fill the namespace from a configuration file an option names."""
    loaded = read_file(machine, path)
    mapping = machine.mapping(loaded)
    for key, value in (mapping or {}).items():
        name = str(key).lstrip("-").replace("-", "_")
        option = next((o for o in parser.options if o.dest == name), None)
        result[name] = _typed(machine, option, value) if option is not None else value
