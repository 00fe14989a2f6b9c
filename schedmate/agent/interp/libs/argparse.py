"""Models argparse, click and typer, the parsers built on them, and options of libraries.

configargparse, optparse and simple-parsing are built on argparse; Lightning's `Trainer`, detectron2
and Isaac Gym bring options. Options of click are decorators, those of typer are parameters.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.interp.builtins import BUILTINS
from schedmate.agent.interp.libs.files import read_file
from schedmate.agent.interp.libs.libraries import TRAINER_OPTIONS, documented_parsers
from schedmate.agent.interp.libs.parsers import (
    MAX_OPTIONS,
    PARSER,
    Option,
    Parser,
    as_default,
    command_option,
    flag_origin,
    known_parser,
    load_config_file,
    parse_arguments,
    parse_flags,
    parser_of,
    spelled_value,
    switches,
    tell_refused,
)
from schedmate.agent.interp.libs.records import (
    call_with_settings,
    fill_prefixed,
    is_record,
    make_record,
)
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    GROUPS,
    AttrDict,
    Call,
    Function,
    Handler,
    Invocation,
    Native,
    Scope,
    as_call,
    as_class,
    as_function,
    as_node,
    as_symbol,
    modelled,
    path_of,
)
from schedmate.agent.interp.source import constant_value, elements
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import iterate, truth
from schedmate.agent.values import Origin, Value, lifted, unknown

_CONFIG_FILE = ("is_config_file", "is_config_file_arg")
"""What makes an option of configargparse name a configuration file."""


def add_argument(machine: Machine, call: Invocation) -> Value:
    parser = parser_of(machine, call.base)
    if len(parser.options) >= MAX_OPTIONS:
        parser.open = True
        return unknown()
    names = [a.text for a in call.args if a.text is not None]
    unsure = len(names) < len(call.args) or not names or _spread_unknown(machine, call)
    parser.open |= unsure
    if not names:
        return unknown()
    flags = tuple(n for n in names if n.startswith("-"))
    dest = _dest(call, names, flags)
    kind = call.kwargs.get("type")
    if kind is not None and as_class(kind) is not None and is_record(kind):
        parser.records.append((dest, kind, ""))
        parser.open = True
        return unknown()
    asked = call.kwargs.get("action", Value("store"))
    action = asked.text if asked.text is not None else "store"
    cls, symbol = as_class(asked), as_symbol(asked)
    if cls is not None and re.search("Dict|KeyValue|KV", cls.name):
        action = "dict"
    own = None
    if symbol is not None:
        action = "boolean" if symbol.path.endswith("BooleanOptionalAction") else "store"
        if symbol.path.endswith("DictAction"):
            action = "dict"
        if symbol.path.endswith("ActionConfigFile"):
            parser.config_flags.update(flags)
    if any(truth(call.kwargs.get(name, Value(False))) for name in _CONFIG_FILE):
        parser.config_flags.update(flags)
    if asked.text is None and action == "store":
        own = asked  # how many values another's action takes is not known
    count = call.kwargs.get("nargs", Value(None))
    symbol, nargs = as_symbol(count), count.data
    parser.open |= symbol is None and not count.known
    if symbol is not None:
        nargs = "..." if symbol.path.endswith("REMAINDER") else None
    default = call.kwargs.get("default") or parser.argument_default
    if default is None:
        default = Value({"store_true": False, "store_false": True}.get(action))
    default = as_default(default, call.site.file, call.site.line)
    const = call.kwargs.get("const", Value(True))
    choices = call.kwargs.get("choices")
    written, spread = _written_choices(call)
    if spread and own is None:
        own = unknown()  # `**options` may say more than is known
    option = Option(dest, flags, default, kind, action, nargs, const, own, choices, written)
    parser.options.append(option)
    return Value(option.dest)


def _spread_unknown(machine: Machine, call: Invocation) -> bool:
    """Whether names are given as `*names` and are not known."""
    node = call.site.node
    if not isinstance(node, ast.Call) or not machine.frames:
        return False
    scope = machine.frames[-1].scope
    spread = (argument.value for argument in node.args if isinstance(argument, ast.Starred))
    return any(iterate(machine.evaluate(one, scope)) is None for one in spread)


def _written_choices(call: Invocation) -> tuple[ast.expr | None, bool]:
    """The choices of a call as they are written, and whether it has `**options`."""
    node = call.site.node
    keywords = node.keywords if isinstance(node, ast.Call) else []
    named = {keyword.arg: keyword.value for keyword in keywords}
    return named.get("choices"), None in named


def _dest(call: Invocation, names: list[str], flags: tuple[str, ...]) -> str:
    """The name under which the namespace has an option's value."""
    given = call.text(None, "dest")
    if given is not None or not flags:
        return given if given is not None else names[0]
    long = next((f for f in flags if f.startswith("--")), flags[0])
    return long.lstrip("-").replace("-", "_")


def parser_actions(parser: Parser) -> Value:
    """`parser._actions`: what has been added, by which programs make a second parser."""
    actions = []
    for option in parser.options:
        flags = Value([Value(flag) for flag in option.flags])
        items = {"dest": Value(option.dest), "default": option.default, "option_strings": flags,
                 "type": option.type or Value(None), "nargs": Value(option.nargs)}  # fmt: skip
        actions.append(Value(AttrDict(items, "namespace")))
    return Value(actions)


def set_defaults(machine: Machine, call: Invocation) -> Value:
    parser = parser_of(machine, call.base)
    for name, value in call.kwargs.items():
        parser.defaults[name] = as_default(value, call.site.file, call.site.line)
    for argument in call.args:
        mapping = machine.mapping(argument)
        if mapping is not None:
            parser.defaults.update(mapping)
    return Value(None)


def get_default(machine: Machine, call: Invocation) -> Value:
    parser = parser_of(machine, call.base)
    name = call.first.text
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
    parser.command_dest = call.text(None, "dest")
    group = Call(f"{PARSER}().add_subparsers", call.args, call.kwargs)
    group.attrs["__parser__"] = Value(parser)
    return Value(group)


def add_parser(machine: Machine, call: Invocation) -> Value:
    parent = parser_of(machine, call.base)
    made = Call(PARSER, [], call.kwargs)
    value = Value(made)
    parent.open |= call.first.text is None
    if call.first.text is not None:
        child = parser_of(machine, value)
        for name in [call.first, *(iterate(call.kwargs.get("aliases")) or [])]:
            if name.text is not None:
                parent.commands[name.text] = child
    return value


def add_records(machine: Machine, call: Invocation) -> Value:
    """simple-parsing's `add_arguments(Config, dest="config")`."""
    parser = parser_of(machine, call.base)
    kind = call.argument(0, "dataclass")
    dest = call.text(1, "dest")
    if kind is not None and dest is not None:
        parser.open = True
        parser.records.append((dest, kind, call.text(None, "prefix") or ""))
    return Value(None)


def finish_parsing(machine: Machine, call: Invocation) -> tuple[Value, list[Value]]:
    parser = parser_of(machine, call.base)
    namespace = as_node(call.argument(1, "namespace"))
    words = iterate(call.argument(0, "args"))
    argv = words if words is not None else machine.argv[1:]
    fresh = AttrDict(flavour="namespace")
    for path in parser.config_files:
        load_config_file(machine, Value(path), parser, fresh)
    records = [(dest, make_record(machine, kind), prefix) for dest, kind, prefix in parser.records]
    result, extras = parse_arguments(machine, parser, argv, namespace)
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
    value, extras = finish_parsing(machine, call)
    argument = call.argument(0, "args")
    parser = parser_of(machine, call.base)
    if argument is None or argument.data is None:
        tell_refused(machine, parser, extras)
    namespace = as_node(value)
    undeclared = any(e.text is not None and e.text.startswith("-") for e in extras)
    if namespace is not None and undeclared and not parser.records:
        # a library may have added options of its own; the job's user knows that they exist
        for name, values, flag in parse_flags(extras)[0]:
            argument = values[0] if values else Value(True)
            namespace[name.replace("-", "_")] = spelled_value(argument, flag_origin(flag))
    return value


def parse_known_args(machine: Machine, call: Invocation) -> Value:
    value, extras = finish_parsing(machine, call)
    flags = {
        name.replace("-", "_"): spelled_value(values[0], flag_origin(flag, str(flag.data)))
        for name, values, flag in parse_flags(extras)[0]
        if values
    }
    if flags:
        machine.observer.settings("command", Value(flags), "arguments")
    return Value((value, Value(extras)))


def _actions_attribute(machine: Machine, base: Value) -> Value | None:
    made = as_call(base)
    parser = known_parser(made) if made is not None and "_actions" not in made.attrs else None
    return parser_actions(parser) if parser is not None else None


def _options_added_to(machine: Machine, call: Invocation) -> Value | None:
    """A function of a library that is given a parser adds its options to it."""
    for value in (*call.args, *call.kwargs.values()):
        made = as_call(value)
        if made is not None and made.path in GROUPS["argparse"]:
            parser_of(machine, value).open = True
    made = as_call(call.first)
    return call.first if made is not None and made.path in GROUPS["argparse"] else None


# Options and parsers that libraries bring along: Lightning's `Trainer`, detectron2, Isaac Gym.


def add_trainer_options(machine: Machine, call: Invocation) -> Value:
    """Lightning's `Trainer.add_argparse_args(parser)`; values are read as plain scalars."""
    base = call.need(0, "parent_parser", "parser")
    parser = parser_of(machine, base)
    parser.open = True  # which options there are depends on the version
    scalar = Value(Native("scalar", _plain_value))
    for name in TRAINER_OPTIONS:
        parser.options.append(Option(name, (f"--{name}",), Value(None), scalar))
    return base


def _plain_value(machine: Machine, call: Invocation) -> Value:
    return lifted(parse_scalar(str(call.args[0].data)), call.args[0].origin)


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


def ready_made_parser(options: list[dict[str, Any]], path: str) -> Handler:
    """A library function that returns a parser of its own."""

    def make(machine: Machine, call: Invocation) -> Value:
        value = Value(Call(PARSER, [], {}))
        parser = parser_of(machine, value)
        parser.open = True
        origin = Origin("library", text=path)
        for spec in options:
            flags = tuple(spec["flags"])
            dest = spec.get("dest") or flags[0].lstrip("-").replace("-", "_")
            default = Value(spec.get("default"), origin)
            action = spec.get("action", "store")
            if action == "store_true":
                default = Value(False, origin)
            kind = Value(Native("scalar", _plain_value)) if isinstance(default.data, int) else None
            parser.options.append(Option(dest, flags, default, kind, action, spec.get("nargs")))
        return value

    return make


def parse_table(machine: Machine, call: Invocation) -> Value:
    """`gymutil.parse_arguments(custom_parameters=[{"name": "--task", ...}])` of Isaac Gym."""
    parser = Value(Call(PARSER, [], {}))
    table = call.argument(3, "custom_parameters")
    for row in iterate(table) or []:
        options = machine.mapping(row)
        if options is not None and "name" in options:
            rest = {str(key): item for key, item in options.items() if key != "name"}
            add_argument(machine, Invocation(PARSER, [options["name"]], rest, call.site, parser))
    value, _ = finish_parsing(machine, Invocation(PARSER, [], {}, call.site, parser))
    return value


def file_arguments(machine: Machine, call: Invocation) -> Value:
    """prefigure's `get_all_args("defaults.ini")`: each value of the file is an option's default."""
    defaults_file = call.argument(0, "defaults_file")
    read = read_file(machine, defaults_file if defaults_file is not None else Value("defaults.ini"))
    sections = machine.mapping(read)
    if sections is None:
        return unknown()
    parser = Parser()
    for section in sections.values():
        for name, item in (machine.mapping(section) or {}).items():
            quoted = item.text is not None and re.fullmatch(r"([\"'])(.*)\1", item.text)
            default = Value(quoted[2], item.origin) if quoted else item
            flags = tuple(dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}")))
            scalar = Value(Native("scalar", _plain_value))
            parser.options.append(Option(name, flags, default, scalar))
    result, _ = parse_arguments(machine, parser, machine.argv[1:])
    value = Value(result)
    machine.observer.settings("arguments", value, "arguments")
    return value


_READS_COMMAND = re.compile(r"(^|\.)(get|parse|read)_(all_)?(args|arguments|options|opts|flags)$")
"""Functions of libraries that read the command line in ways of their own."""


def _undeclared_option(machine: Machine, made: Call, name: str) -> Value | None:
    """An option of a parser that a library has and the repository does not show."""
    return command_option(machine, name) if _READS_COMMAND.search(made.path) else None


# click: commands whose options are decorators.


_CLICK_ADDED = "click commands"


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
    namespace, extras = parse_arguments(machine, parser, argv)
    tell_refused(machine, parser, extras)
    return call_with_settings(machine, function.undecorated(), namespace, args)


def _only_clicks(decorator: Value) -> bool:
    """Whether a decorator is click's own, and leaves it at click's rules."""
    made, path = as_call(decorator), path_of(decorator)
    own = path.startswith(("click.", "rich_click.")) or path.endswith((".command", ".group"))
    name = classes.last_part(path)
    if not own or name.endswith("_option"):
        return False
    other = made is not None and (
        not _CLICK_OTHER_RULES.isdisjoint(made.kwargs)
        or (name in ("option", "argument") and any(arg.text is None for arg in made.args))
        or (name in ("command", "group") and len(made.args) > 1)
    )
    return not other


_CLICK_OTHER_RULES = frozenset(
    {"cls", "context_settings", "flag_value", "params", "prompt_required"}
)
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
    if data is None or classes.last_part(data.path) not in ("option", "argument"):
        return
    names = [a.text for a in data.args if a.text is not None]
    flags, off = switches(names)
    dest = next((name for name in reversed(names) if not name.startswith("-")), None)
    positional = classes.last_part(data.path) == "argument"
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
    parser.options[-1].written = _choices_of_click(function, names[0]) if names else None
    if off:
        parser.options.append(Option(dest, tuple(off), default, None, "store_false"))


def _choices_of_click(function: Function, name: str) -> ast.expr | None:
    """The list in `click.Choice([...])` of an option as it is written."""
    decorators = getattr(function.node, "decorator_list", [])
    for node in decorators:
        if isinstance(node, ast.Call) and any(constant_value(arg) == name for arg in node.args):
            kinds = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
            if kinds and isinstance(kinds[0], ast.Call) and kinds[0].args:
                return kinds[0].args[0]
    return None


def _commands_of(machine: Machine, group: Function) -> dict[str, Value]:
    """Commands attached to a click group by decorators or `add_command`."""
    commands: dict[str, Value] = {}
    for name, value, function in machine.sources.defined(Function):
        for decorator in function.decorators if function is not group else ():
            if path_of(decorator) in (f"?{group.name}.command", f"?{group.name}.group"):
                data = as_call(decorator)
                stated = data.args[0].text if data is not None and data.args else None
                commands[name.replace("_", "-") if stated is None else stated] = value
    for call in machine.shared.get(_CLICK_ADDED, ()):
        if call.path == f"?{group.name}.add_command" and call.args:
            command = as_function(call.args[0])
            if command is not None:
                stated = call.text(1, "name")
                commands[stated if stated is not None else command.name.replace("_", "-")] = (
                    call.args[0]
                )
    return commands


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
            namespace, _ = parse_arguments(machine, parser, argv[:index])
            kwargs = {str(key): value for key, value in namespace.items()}
            machine.call(Value(function.undecorated()), [], kwargs, function.site)
            return run_click(machine, child, argv[index + 1 :])
    return unknown()


def _enter_click(machine: Machine, function: Function, decorator: Value) -> Value | None:
    path = path_of(decorator)
    if path.startswith("click.") or path in ("rich_click.command", "rich_click.group"):
        return run_click(machine, function, machine.argv[1:])
    return None


def add_command(machine: Machine, call: Invocation) -> None:
    """`group.add_command(command)`: kept until the group runs."""
    machine.shared.setdefault(_CLICK_ADDED, []).append(call)


# typer: functions whose parameters are options.


def typer_app(machine: Machine, call: Invocation) -> Value:
    """`app()`: run the only command, or the one the command line names."""
    commands: dict[str, Value] = {}
    group = False
    for name, value, function in machine.sources.defined(Function):
        for decorator in function.decorators:
            data = as_call(decorator)
            group |= path_of(decorator).startswith("typer.Typer().callback")
            if data is not None and data.path == "typer.Typer().command":
                given = data.args[0] if data.args else data.kwargs.get("name", unknown())
                commands[name.replace("_", "-") if given.text is None else given.text] = value
    argv = machine.argv[1:]
    if len(commands) == 1:
        chosen = next(iter(commands.values()))
        if argv and argv[0].data in commands:
            argv = argv[1:]
    else:
        index = next((i for i, token in enumerate(argv) if token.data in commands), None)
        if index is None:
            return unknown()
        chosen, argv = commands[str(argv[index].data)], argv[index + 1 :]
    return _typer_run(machine, chosen, argv, group)


def typer_run(machine: Machine, call: Invocation) -> Value:
    return _typer_run(machine, call.args[0], machine.argv[1:]) if call.args else unknown()


def _annotated(machine: Machine, node: ast.expr | None, scope: Scope) -> tuple[str, Call | None]:
    """The type's text, and the `typer.Option(...)` of an `Annotated[type, typer.Option(...)]`."""
    if node is None:
        return "", None
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Annotated"):
        parts = elements(node.slice)
        markers = (_marker(machine.evaluate(part, scope)) for part in parts[1:])
        return ast.unparse(parts[0]), next((m for m in markers if m is not None), None)
    return ast.unparse(node), None


def _plain_type(annotation: str) -> str:
    """The name of the type in an annotation that may be quoted and may allow None."""
    text = annotation.strip("'\"").strip()
    wrapped = re.fullmatch(r"(?:\w+\.)*(Optional|Union)\[(.*)\]", text)
    parts = re.split(r"[,|]", wrapped[2] if wrapped else text)
    named = [part.strip().strip("'\"") for part in parts]
    named = [part for part in named if part != "None"]
    single = len(named) == 1 and (wrapped is None or wrapped[1] == "Union" or len(parts) < 3)
    return named[0].rpartition(".")[2] if single else ""


def _marker(value: Value | None) -> Call | None:
    """The `typer.Option(...)` or `typer.Argument(...)` that a value is."""
    made = as_call(value)
    return made if made is not None and made.path in _MARKERS else None


_TYPER_OTHER_RULES = frozenset(
    {"click_type", "param_decls", "flag_value", "is_flag", "prompt_required"}
)
"""Arguments of `typer.Option` after which its usual rules need not hold."""
_COMPLETION = ("--install-completion", "--show-completion")
_MARKERS = ("typer.Option", "typer.Argument")


def _typer_run(machine: Machine, function: Value, argv: list[Value], group: bool = False) -> Value:
    """Call a function whose parameters are `typer.Option`s and `typer.Argument`s.

    In a `group`, a callback has options as well.
    """
    data = as_function(function)
    if data is None:
        return unknown()
    defaults = dict(data.defaults)
    spec = data.node.args
    parser = Parser(greedy=True, open=group)
    for parameter in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
        name = parameter.arg
        annotation, note = _annotated(machine, parameter.annotation, data.scope)
        default = defaults.get(name)
        marker = _marker(default)
        if marker is not None:
            line = default.origin.line if default is not None and default.origin else None
            default_value = (
                marker.args[0] if marker.args else marker.kwargs.get("default", Value(None))
            )
            default = Value(default_value.data, Origin("default", data.module.file, line))
        option = marker if marker is not None else note
        declared = option.args[0 if marker is None else 1 :] if option is not None else []
        names = [word.text for word in declared if word.text is not None]
        positional = default is None if option is None else option.path.endswith("Argument")
        default = default or Value(None)
        said_more = option.kwargs if option is not None else {}
        flags, off = switches(names)
        plain = _plain_type(annotation)
        is_flag = plain == "bool" or (not annotation and isinstance(default.data, bool))
        if not flags and not off:
            flags = [f"--{name.replace('_', '-')}"]
            off = [f"--no-{name.replace('_', '-')}"]
        kind = BUILTINS.get(plain if plain in ("int", "float", "str") else "")
        if not annotation and default.number is not None and not is_flag:
            kind = BUILTINS.get(type(default.data).__name__)
        kind = said_more.get("parser", kind)
        counted = said_more.get("count", Value(False)).data is not False
        action = "count" if counted else "store_true" if is_flag else "store"
        own = () if positional else tuple(flags)
        parser.options.append(Option(name, own, default, kind, action))
        if is_flag and off and not positional:
            parser.options.append(Option(name, tuple(off), default, None, "store_false"))
        spelt_elsewhere = not _TYPER_OTHER_RULES.isdisjoint(said_more)
        several = bool(annotation) and (not plain or "uple" in plain)
        parser.open |= spelt_elsewhere or several
    parser.open |= not all(map(_only_typers, data.decorators)) or spec.kwarg is not None
    # the namespace needs no item for them
    hidden = Value("==SUPPRESS==")
    parser.options += [Option("", (flag,), hidden, None, "count") for flag in _COMPLETION]
    namespace, extras = parse_arguments(machine, parser, argv)
    tell_refused(machine, parser, extras)
    return call_with_settings(machine, data.undecorated(), namespace)


def _only_typers(decorator: Value) -> bool:
    """Whether a decorator is typer's own, and leaves it at typer's rules."""
    made = as_call(decorator)
    plain = made is not None and not {"context_settings", "cls"} & set(made.kwargs)
    return plain and path_of(decorator).startswith("typer.")


PARSERS = Plugin(
    types={"argparse.Namespace": (AttrDict,)},
    calls=modelled("argparse", globals())
    | {path: ready_made_parser(options, path) for path, options in documented_parsers().items()},
    attributes={"_actions": _actions_attribute},
    otherwise=_options_added_to,
    missing=_undeclared_option,
    on_enter=_enter_click,
)
