"""argparse and the parsers built on it (configargparse, jsonargparse, simple-parsing, HF)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from schedmate.agent.configs import parse_scalar
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.libs.records import (
    fill_prefixed,
    make_record,
    parse_flags,
    split_records,
)
from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Class,
    Function,
    Instance,
    Native,
    PathStr,
    Site,
    Symbol,
)
from schedmate.agent.interp.trace import Settings
from schedmate.agent.interp.values_ops import iterate, truth
from schedmate.agent.values import Origin, Unknown, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import Handler, Invocation, State

_NUMBER = re.compile(r"^-\d+(\.\d*)?([eE][+-]?\d+)?$|^-\.\d+$")


@dataclass(slots=True)
class Option:
    """One `add_argument`."""

    dest: str
    flags: tuple[str, ...]
    default: Value
    type: Value | None
    action: str
    nargs: Any
    const: Value

    @property
    def positional(self) -> bool:
        return not self.flags


@dataclass(slots=True)
class Parser:
    """What a parser object has been told."""

    options: list[Option] = field(default_factory=list)
    defaults: dict[str, Value] = field(default_factory=dict)
    commands: dict[str, Parser] = field(default_factory=dict)
    command_dest: str | None = None
    records: list[tuple[str, Value, str]] = field(default_factory=list)
    config_flags: set[str] = field(default_factory=set)
    config_files: list[str] = field(default_factory=list)

    def flag(self, token: str) -> Option | None:
        """The option a token names, by exact match or unambiguous prefix."""
        name = token.split("=", 1)[0]
        for option in reversed(self.options):
            if name in option.flags:
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


def parser_of(state: State, base: Value | None) -> Parser:
    """The parser model behind a parser object."""
    data = base.data if base is not None else None
    if isinstance(data, Call | Instance):
        held = data.attrs.get("__parser__")
        if held is None:
            held = Value(Parser())
            data.attrs["__parser__"] = held
            keywords = data.kwargs
            for parent in iterate(keywords.get("parents", Value([]))) or []:
                known = parser_of(state, parent)
                held.data.options.extend(known.options)
                held.data.defaults.update(known.defaults)
            for path in iterate(keywords.get("default_config_files", Value([]))) or []:
                if isinstance(path.data, str):
                    held.data.config_files.append(path.data)
        parser: Parser = held.data
        return parser
    return Parser()


def add_argument(state: State, call: Invocation) -> Value:
    parser = parser_of(state, call.base)
    names = [a.data for a in call.args if isinstance(a.data, str)]
    if not names:
        return unknown()
    flags = tuple(n for n in names if n.startswith("-"))
    given = call.kwargs.get("dest")
    if given is not None and isinstance(given.data, str):
        dest = given.data
    elif flags:
        long = next((f for f in flags if f.startswith("--")), flags[0])
        dest = long.lstrip("-").replace("-", "_")
    else:
        dest = names[0]
    kind = call.kwargs.get("type")
    if kind is not None and isinstance(kind.data, Class):
        fields = split_records(state, [kind])
        if fields:
            parser.records.append((dest, kind, ""))
            return unknown()
    action_value = call.kwargs.get("action", Value("store"))
    action = action_value.data if isinstance(action_value.data, str) else "store"
    if isinstance(action_value.data, Class) and re.search(
        "Dict|KeyValue|KV", action_value.data.name
    ):
        action = "dict"
    if isinstance(action_value.data, Symbol):
        path = action_value.data.path
        action = "boolean" if path.endswith("BooleanOptionalAction") else "store"
        if path.endswith("DictAction"):
            action = "dict"
        if path.endswith("ActionConfigFile"):
            parser.config_flags.update(flags)
    if truth(call.kwargs.get("is_config_file", Value(False))):
        parser.config_flags.update(flags)
    nargs = call.kwargs.get("nargs", Value(None)).data
    if isinstance(nargs, Symbol):
        nargs = "..." if nargs.path.endswith("REMAINDER") else None
    default = call.kwargs.get("default")
    here = Origin("default", call.site.file, call.site.line)
    if default is None:
        blank: Any = {"store_true": False, "store_false": True, "count": None}.get(action)
        default = Value(blank, here)
    elif default.origin is None or default.origin.source == "code":
        default = Value(default.data, here)
    option = Option(
        dest, flags, default, kind, action, nargs, call.kwargs.get("const", Value(True))
    )
    parser.options.append(option)
    return Value(option.dest)


def set_defaults(state: State, call: Invocation) -> Value:
    parser = parser_of(state, call.base)
    parser.defaults.update(call.kwargs)
    for argument in call.args:
        mapping = state.mapping(argument)
        if mapping is not None:
            parser.defaults.update(mapping)
    return Value(None)


def get_default(state: State, call: Invocation) -> Value:
    parser = parser_of(state, call.base)
    name = call.args[0].data if call.args else None
    for option in parser.options:
        if option.dest == name:
            return parser.defaults.get(option.dest, option.default)
    return unknown()


def same_parser(state: State, call: Invocation) -> Value:
    return call.base if call.base is not None else unknown()


def add_subparsers(state: State, call: Invocation) -> Value:
    parser = parser_of(state, call.base)
    dest = call.kwargs.get("dest")
    parser.command_dest = dest.data if dest is not None and isinstance(dest.data, str) else None
    group = Call(f"{_PARSER}().add_subparsers", call.args, call.kwargs)
    group.attrs["__parser__"] = Value(parser)
    return Value(group)


def add_parser(state: State, call: Invocation) -> Value:
    parent = parser_of(state, call.base)
    made = Call(_PARSER, [], call.kwargs)
    value = Value(made)
    name = call.args[0].data if call.args else None
    if isinstance(name, str):
        child = parser_of(state, value)
        parent.commands[name] = child
        for alias in iterate(call.kwargs.get("aliases", Value([]))) or []:
            if isinstance(alias.data, str):
                parent.commands[alias.data] = child
    return value


def add_records(state: State, call: Invocation) -> Value:
    """simple-parsing's `add_arguments(Config, dest="config")`."""
    parser = parser_of(state, call.base)
    kind = call.argument(0, "dataclass")
    dest = call.argument(1, "dest")
    if kind is not None and dest is not None and isinstance(dest.data, str):
        prefix = call.kwargs.get("prefix", Value("")).data
        parser.records.append((dest.data, kind, prefix if isinstance(prefix, str) else ""))
    return Value(None)


def add_trainer_options(state: State, call: Invocation) -> Value:
    """Lightning's `Trainer.add_argparse_args(parser)`; values are read as plain scalars."""
    base = call.argument(0, "parent_parser", "parser")
    if base is None:
        return unknown()
    parser = parser_of(state, base)
    scalar = Value(Native("scalar", _scalar))
    for name in state.library.trainer_options:
        parser.options.append(
            Option(name, (f"--{name}",), Value(None), scalar, "store", None, Value(True))
        )
    return base


def _scalar(state: State, args: list[Value], kwargs: dict[str, Value], site: Site) -> Value:
    return wrap(parse_scalar(str(args[0].data)), args[0].origin)


def ready_made(options: list[dict[str, Any]], path: str) -> Handler:
    """A library function that returns a parser of its own."""

    def make(state: State, call: Invocation) -> Value:
        value = Value(Call(_PARSER, [], {}))
        parser = parser_of(state, value)
        origin = Origin("library", text=path)
        for given in options:
            flags = tuple(given["flags"])
            dest = given.get("dest") or flags[0].lstrip("-").replace("-", "_")
            default = Value(given.get("default"), origin)
            action = given.get("action", "store")
            if action == "store_true":
                default = Value(False, origin)
            kind = Value(Native("scalar", _scalar)) if isinstance(default.data, int) else None
            parser.options.append(
                Option(dest, flags, default, kind, action, given.get("nargs"), Value(True))
            )
        return value

    return make


def trainer_from_options(state: State, call: Invocation) -> Value:
    """Lightning's `Trainer.from_argparse_args(args, **kwargs)`: a Trainer with those arguments."""
    mapping = state.mapping(call.args[0]) if call.args else None
    kwargs = {
        name: value
        for name, value in (mapping or {}).items()
        if name in state.library.trainer_options and value.data is not None
    }
    kwargs.update(call.kwargs)
    path = call.path.rsplit(".", 1)[0]
    return state.external(state.invocation(path, [], kwargs, call.site))


def parse(
    state: State,
    parser: Parser,
    argv: list[Value],
    namespace: AttrDict | None = None,
) -> tuple[AttrDict, list[Value]]:
    """Parse `argv` as argparse would; returns the namespace and what was left over."""
    result = namespace if namespace is not None else AttrDict(flavour="namespace")
    for option in parser.options:
        if option.default.data != "==SUPPRESS==" and not _suppressed(option.default):
            result.setdefault(option.dest, _default(state, option))
    result.update(parser.defaults)
    extras: list[Value] = []
    positionals = [option for option in parser.options if option.positional]
    loose: list[Value] = []
    index = 0
    only_positional = False
    while index < len(argv):
        token = argv[index]
        text = token.data
        index += 1
        if not isinstance(text, str):
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
                _, more = parse(state, parser.commands[text], argv[index:], result)
                extras.extend(more)
                index = len(argv)
                break
            loose.append(token)
            continue
        found = parser.flag(text)
        if found is None and len(text) > 2 and text[1] != "-":
            found = parser.flag(text[:2])
            if found is not None and found.action == "store":
                token = Value(f"{text[:2]}={text[2:].lstrip('=')}", token.origin)
                text = token.data
        if found is None:
            if text in parser.config_flags:
                continue
            extras.append(token)
            if "=" not in text and index < len(argv) and _is_plain(argv[index]):
                extras.append(argv[index])
                index += 1
            continue
        index = _consume(state, parser, found, token, argv, index, result)
    _positionals(state, positionals, loose, result, extras)
    return result, extras


def _is_plain(token: Value) -> bool:
    text = token.data
    return not isinstance(text, str) or not text.startswith("-") or bool(_NUMBER.match(text))


def _suppressed(default: Value) -> bool:
    return isinstance(default.data, Symbol) and default.data.path.endswith("SUPPRESS")


def _default(state: State, option: Option) -> Value:
    if isinstance(option.default.data, str) and option.type is not None:
        return _typed(state, option, option.default)
    return option.default


def _consume(
    state: State,
    parser: Parser,
    option: Option,
    token: Value,
    argv: list[Value],
    index: int,
    result: AttrDict,
) -> int:
    text: str = token.data
    flag, equals, attached = text.partition("=")
    origin = _flag_origin(token, flag)
    if option.action in ("store_true", "store_false", "store_const", "count", "boolean",
                         "append_const"):  # fmt: skip
        data: Any = {
            "store_true": True,
            "store_false": False,
            "boolean": not flag.startswith("--no-"),
            "count": 1,
        }.get(option.action, option.const.data)
        result[option.dest] = Value(data, origin)
        return index
    if equals:
        values = [Value(attached, origin)]
    else:
        values, index = _take(option.nargs, argv, index, flag)
    if option.action == "dict":
        result[option.dest] = _pairs(values, origin)
        return index
    if flag in parser.config_flags and values:
        load_config_file(state, values[0], parser, result)
    if option.nargs in ("+", "*", "...") or isinstance(option.nargs, int):
        typed = [_typed(state, option, value) for value in values]
        result[option.dest] = Value(typed, origin)
    elif not values:
        result[option.dest] = Value(option.const.data, origin)
    else:
        value = _typed(state, option, values[0])
        value = Value(value.data, origin)
        if option.action == "append":
            held = result.get(option.dest)
            items = list(held.data) if held is not None and isinstance(held.data, list) else []
            value = Value([*items, value], origin)
        result[option.dest] = value
    return index


def _pairs(values: list[Value], origin: Origin | None) -> Value:
    """`a.b=1 c=[2,3]` as a mapping from dotted names."""
    found: dict[Any, Value] = {}
    for value in values:
        if isinstance(value.data, str) and "=" in value.data:
            key, _, text = value.data.partition("=")
            found[key] = wrap(parse_scalar(text), value.origin)
    return Value(found, origin)


def _flag_origin(token: Value, flag: str) -> Origin | None:
    origin = token.origin
    return Origin(origin.source, origin.file, origin.line, flag) if origin is not None else None


def _take(nargs: Any, argv: list[Value], index: int, flag: str) -> tuple[list[Value], int]:
    limit = {None: 1, "?": 1}.get(nargs, 10_000) if not isinstance(nargs, int) else nargs
    taken: list[Value] = []
    while index < len(argv) and len(taken) < limit:
        token = argv[index]
        # a token after an option that needs a value is its value even if it is not known
        if not _is_plain(token) and nargs != "...":
            break
        origin = token.origin
        taken.append(
            Value(token.data, Origin(origin.source, origin.file, origin.line, flag))
            if origin is not None
            else token
        )
        index += 1
    return taken, index


def _typed(state: State, option: Option, value: Value) -> Value:
    if option.type is None or not isinstance(value.data, str):
        return value
    return convert(state, option.type, value)


def convert(state: State, kind: Value, value: Value) -> Value:
    """Apply an argument's `type` to its text."""
    data = kind.data
    if isinstance(data, Native):
        if data.name == "bool":
            return Value(value.data not in ("", "0", "False", "false", "no"), value.origin)
        converted = data.fn(state, [value], {}, _SITE)
        return Value(converted.data, value.origin)
    if isinstance(data, Symbol):
        if data.path in ("pathlib.Path", "pathlib.PosixPath"):
            return Value(PathStr(value.data), value.origin)
        return value
    if isinstance(data, Function | Class):
        try:
            converted = state.call(kind, [value], {}, _SITE)
        except Raised:
            return value
        if isinstance(converted.data, Unknown):
            return value
        return Value(converted.data, value.origin)
    return value


def _positionals(
    state: State,
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
            values = [_typed(state, option, v) for v in remaining[:take]]
            if values or option.nargs != "*":
                result[option.dest] = Value(values, values[0].origin if values else None)
            remaining = remaining[take:]
        elif isinstance(option.nargs, int):
            result[option.dest] = Value(
                [_typed(state, option, v) for v in remaining[: option.nargs]]
            )
            remaining = remaining[option.nargs :]
        elif remaining:
            if option.nargs == "?" and len(remaining) <= after:
                continue
            result[option.dest] = _typed(state, option, remaining.pop(0))
    extras.extend(remaining)


def load_config_file(state: State, path: Value, parser: Parser, result: AttrDict) -> None:
    """Fill the namespace from a configuration file an option names."""
    loaded = state.library.read_file(state, path)
    mapping = state.mapping(loaded) if loaded is not None else None
    for key, value in (mapping or {}).items():
        name = str(key).lstrip("-").replace("-", "_")
        option = next((o for o in parser.options if o.dest == name), None)
        result[name] = _typed(state, option, value) if option is not None else value


def _arguments(state: State, call: Invocation) -> list[Value]:
    given = call.argument(0, "args")
    if given is not None and given.data is not None:
        items = iterate(given)
        if items is not None:
            return items
    return state.argv[1:]


def _finish(state: State, call: Invocation) -> tuple[Value, list[Value]]:
    parser = parser_of(state, call.base)
    start = call.argument(1, "namespace")
    namespace = start.data if start is not None and isinstance(start.data, AttrDict) else None
    argv = _arguments(state, call)
    fresh = AttrDict(flavour="namespace")
    for path in parser.config_files:
        load_config_file(state, Value(path), parser, fresh)
    records = [(dest, make_record(state, kind), prefix) for dest, kind, prefix in parser.records]
    result, extras = parse(state, parser, argv, namespace if namespace is not None else None)
    for key, value in fresh.items():
        held = result.get(key)
        if held is None or held.origin is None or held.origin.source not in ("command", "script"):
            result[key] = value
    for dest, record, prefix in records:
        fill_prefixed(state, record, prefix)
        result[dest] = record
    value = Value(result)
    if not any(s.value.data is result for s in state.trace.settings):
        state.trace.settings.append(Settings("arguments", value, "arguments"))
    return value, extras


def parse_args(state: State, call: Invocation) -> Value:
    value, extras = _finish(state, call)
    unknown_flags = [e.data for e in extras if isinstance(e.data, str) and e.data.startswith("-")]
    if unknown_flags and not parser_of(state, call.base).records:
        # a library may have added options of its own; the job's user knows that they exist
        mapping = value.data
        for name, values, flag in parse_flags(extras)[0]:
            origin = _flag_origin(flag, str(flag.data).partition("=")[0])
            given = values[0] if values else Value(True)
            mapping[name.replace("-", "_")] = wrap(parse_scalar(str(given.data)), origin)
    return value


def parse_known_args(state: State, call: Invocation) -> Value:
    value, extras = _finish(state, call)
    given = {
        name.replace("-", "_"): wrap(
            parse_scalar(str(values[0].data)), _flag_origin(flag, str(flag.data))
        )
        for name, values, flag in parse_flags(extras)[0]
        if values
    }
    if given:
        state.trace.settings.append(Settings("command", Value(given), "arguments"))
    return Value((value, Value(extras)))


_SITE = Site("", 1)
_PARSER = "argparse.ArgumentParser"
CONSTRUCTORS = (
    _PARSER,
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
    "add_argument_group": same_parser,
    "add_mutually_exclusive_group": same_parser,
    "add_subparsers": add_subparsers,
    "add_parser": add_parser,
    "set_defaults": set_defaults,
    "get_default": get_default,
    "parse_args": parse_args,
    "parse_known_args": parse_known_args,
    "parse_intermixed_args": parse_args,
    "parse": parse_args,
}

HANDLERS: dict[str, Handler] = {
    f"{constructor}().{name}": method
    for constructor in CONSTRUCTORS
    for name, method in _METHODS.items()
}
HANDLERS["*.add_argparse_args"] = add_trainer_options
HANDLERS["*.from_argparse_args"] = trainer_from_options
