"""Programs whose functions are their command lines: click, typer, fire, absl, sacred, hydra."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from schedmate.agent.configs import parse_scalar
from schedmate.agent.interp import classes
from schedmate.agent.interp.libs import argparse, records
from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Call,
    Class,
    Function,
    Module,
    Scope,
    Site,
    Symbol,
)
from schedmate.agent.interp.trace import Settings
from schedmate.agent.values import Origin, Unknown, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import Handler, Invocation, State


def enter(state: State, function: Function) -> Value | None:
    """Run a decorated main function called without arguments, as its decorator would."""
    for decorator in function.decorators:
        data = decorator.data
        path = data.path if isinstance(data, Symbol | Call) else ""
        if path in ("hydra.main", "nemo.core.config.hydra_runner", "hydra_zen.main"):
            from schedmate.agent.interp.libs.hydra import compose_for

            config = compose_for(state, function, data)
            return _run(state, function, [config])
        if path.startswith("click.") or path in ("rich_click.command", "rich_click.group"):
            return _click(state, function, state.argv[1:])
        if path.split(".")[-1] == "wrap" and path.startswith(
            ("pyrallis", "draccus", "?", "lerobot")
        ):
            return _wrapped(state, function)
        if path.endswith(("argbind.bind",)):
            return records.call_with_flags(state, _plain(function), state.argv[1:])
    return None


def _plain(function: Function) -> Value:
    """The function without its decorators, so that calling it runs its body."""
    bare = Function(
        function.name, function.node, function.scope, function.defaults, function.cls, []
    )
    return Value(bare)


def _run(state: State, function: Function, args: list[Value]) -> Value:
    site = Site(function.module.file, function.node.lineno)
    return state.call(_plain(function), args, {}, site)


def _wrapped(state: State, function: Function) -> Value:
    spec = function.node.args
    first = next(iter((*spec.posonlyargs, *spec.args)), None)
    if first is None or first.annotation is None:
        return _run(state, function, [])
    kind = state.evaluate(first.annotation, function.scope)
    site = Site(function.module.file, function.node.lineno)
    call = state.invocation("pyrallis.parse", [kind], {}, site)
    return _run(state, function, [records.from_command_line(state, call)])


# -- click -----------------------------------------------------------------


def _click(state: State, function: Function, argv: list[Value]) -> Value:
    """Parse a click command's options; a group passes the rest on to the command named next."""
    parser = argparse.Parser()
    passed: list[tuple[str, Value]] = []
    for decorator in reversed(function.decorators):
        _click_option(state, decorator, parser, function)
        data = decorator.data
        if isinstance(data, Symbol | Call) and data.path.endswith("pass_context"):
            passed.append(("ctx", unknown("ctx")))
    children = _commands_of(state, function)
    if children:
        return _click_group(state, function, parser, children, argv)
    namespace, _ = argparse.parse(state, parser, argv)
    state.trace.settings.append(Settings(function.name, Value(namespace), "arguments"))
    kwargs = {str(key): value for key, value in namespace.items()}
    site = Site(function.module.file, function.node.lineno)
    return state.call(_plain(function), [value for _, value in passed], kwargs, site)


def _click_option(
    state: State, decorator: Value, parser: argparse.Parser, function: Function
) -> None:
    data = decorator.data
    if not isinstance(data, Call) or classes.last(data.path) not in ("option", "argument"):
        return
    names = [a.data for a in data.args if isinstance(a.data, str)]
    flags: list[str] = []
    off: list[str] = []
    dest = None
    for name in names:
        if name.startswith("-"):
            on, _, negative = name.partition("/")
            flags.append(on.strip())
            if negative:
                off.append(negative.strip())
        else:
            dest = name
    positional = classes.last(data.path) == "argument"
    long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    dest = dest or long.lstrip("-")
    dest = dest.replace("-", "_").lower()
    line = data.args[0].origin.line if data.args and data.args[0].origin else None
    here = Origin("default", function.module.file, line)
    default = data.kwargs.get("default", Value(None, here))
    if default.origin is None or default.origin.source == "code":
        default = Value(default.data, here)
    is_flag = data.kwargs.get("is_flag", Value(False)).data is True or bool(off)
    if is_flag and default.data is None:
        default = Value(False, here)
    kind = data.kwargs.get("type")
    if kind is None and not isinstance(default.data, str) and default.known and not is_flag:
        kind = state.builtin(type(default.data).__name__)
    many = data.kwargs.get("nargs", Value(None)).data
    multiple = data.kwargs.get("multiple", Value(False)).data is True
    nargs = "+" if many == -1 else many if isinstance(many, int) and many > 1 else None
    action = "store_true" if is_flag else "append" if multiple else "store"
    parser.options.append(
        argparse.Option(
            dest, () if positional else tuple(flags), default, kind, action, nargs, Value(True)
        )
    )
    if off:
        parser.options.append(
            argparse.Option(dest, tuple(off), default, None, "store_false", None, Value(False))
        )


def _commands_of(state: State, group: Function) -> dict[str, Value]:
    """Commands attached to a click group by decorators or `add_command`."""
    found: dict[str, Value] = {}
    for module in list(state.sources.modules.values()):
        for name, value in list(module.scope.names.items()):
            function = value.data
            if not isinstance(function, Function) or function is group:
                continue
            for decorator in function.decorators:
                data = decorator.data
                path = data.path if isinstance(data, Call | Symbol) else ""
                if path in (f"?{group.name}.command", f"?{group.name}.group"):
                    given = data.args[0].data if isinstance(data, Call) and data.args else None
                    key = given if isinstance(given, str) else name.replace("_", "-")
                    found[key] = value
    for event in state.trace.calls:
        if event.path == f"?{group.name}.add_command" and event.args:
            function = event.args[0].data
            if isinstance(function, Function):
                given = event.argument(1, "name")
                key = given.data if given is not None else function.name.replace("_", "-")
                found[str(key)] = event.args[0]
    return found


def _click_group(
    state: State,
    function: Function,
    parser: argparse.Parser,
    children: dict[str, Value],
    argv: list[Value],
) -> Value:
    for index, token in enumerate(argv):
        name = str(token.data)
        child = children.get(name) or children.get(name.replace("_", "-"))
        if child is not None and isinstance(child.data, Function):
            namespace, _ = argparse.parse(state, parser, argv[:index])
            kwargs = {str(key): value for key, value in namespace.items()}
            site = Site(function.module.file, function.node.lineno)
            state.call(_plain(function), [], kwargs, site)
            return _click(state, child.data, argv[index + 1 :])
    return unknown()


# -- typer -----------------------------------------------------------------


def typer_app(state: State, call: Invocation) -> Value:
    """`app()`: run the only command, or the one the command line names."""
    commands: dict[str, Value] = {}
    for module in list(state.sources.modules.values()):
        for name, value in list(module.scope.names.items()):
            function = value.data
            if not isinstance(function, Function):
                continue
            for decorator in function.decorators:
                data = decorator.data
                if isinstance(data, Call) and data.path == "typer.Typer().command":
                    given = (
                        data.args[0].data if data.args else data.kwargs.get("name", unknown()).data
                    )
                    commands[given if isinstance(given, str) else name.replace("_", "-")] = value
    argv = state.argv[1:]
    if len(commands) == 1:
        chosen = next(iter(commands.values()))
        if argv and argv[0].data in commands:
            argv = argv[1:]
    else:
        index = next((i for i, token in enumerate(argv) if token.data in commands), None)
        if index is None:
            return unknown()
        chosen, argv = commands[argv[index].data], argv[index + 1 :]
    return _typer_run(state, chosen, argv)


def typer_run(state: State, call: Invocation) -> Value:
    return _typer_run(state, call.args[0], state.argv[1:]) if call.args else unknown()


def _annotated(state: State, node: ast.expr | None, scope: Scope) -> tuple[str, Call | None]:
    """The type's text, and the `typer.Option(...)` of an `Annotated[type, typer.Option(...)]`."""
    if node is None:
        return "", None
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Annotated"):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts[1:]:
            marker = state.evaluate(part, scope).data
            if isinstance(marker, Call) and marker.path in ("typer.Option", "typer.Argument"):
                return ast.unparse(parts[0]), marker
        return ast.unparse(parts[0]), None
    return ast.unparse(node), None


def _typer_run(state: State, function: Value, argv: list[Value]) -> Value:
    """Call a function whose parameters are `typer.Option`s and `typer.Argument`s."""
    data = function.data
    if not isinstance(data, Function):
        return unknown()
    defaults = dict(data.defaults)
    spec = data.node.args
    parser = argparse.Parser()
    for parameter in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
        name = parameter.arg
        annotation, note = _annotated(state, parameter.annotation, data.scope)
        default = defaults.get(name)
        marker = default.data if default is not None else None
        if isinstance(marker, Call) and marker.path in ("typer.Option", "typer.Argument"):
            line = default.origin.line if default is not None and default.origin else None
            given = marker.args[0] if marker.args else marker.kwargs.get("default", Value(None))
            origin = Origin("default", data.module.file, line)
            default = Value(given.data, origin)
            names = [a.data for a in marker.args[1:] if isinstance(a.data, str)]
            positional = marker.path.endswith("Argument")
        elif note is not None:
            names = [a.data for a in note.args if isinstance(a.data, str)]
            positional = note.path.endswith("Argument")
        else:
            names = []
            positional = default is None
        default = default or Value(None)
        flags = [n.partition("/")[0] for n in names if n.startswith("-")]
        flags = flags or [f"--{name.replace('_', '-')}"]
        is_flag = annotation == "bool" or isinstance(default.data, bool)
        kind = state.builtin(annotation if annotation in ("int", "float", "str") else "")
        if kind is None and default.known and isinstance(default.data, int | float) and not is_flag:
            kind = state.builtin(type(default.data).__name__)
        action = "store_true" if is_flag else "store"
        parser.options.append(
            argparse.Option(
                name, () if positional else tuple(flags), default, kind, action, None, Value(True)
            )
        )
        if is_flag:
            off = f"--no-{name.replace('_', '-')}"
            parser.options.append(
                argparse.Option(name, (off,), default, None, "store_false", None, Value(False))
            )
    namespace, _ = argparse.parse(state, parser, argv)
    state.trace.settings.append(Settings(data.name, Value(namespace), "arguments"))
    kwargs = {str(key): value for key, value in namespace.items()}
    site = Site(data.module.file, data.node.lineno)
    return state.call(_plain(data), [], kwargs, site)


# -- fire ------------------------------------------------------------------


def fire(state: State, call: Invocation) -> Value:
    component = call.argument(0, "component")
    argv = state.argv[1:]
    if component is None:
        component = Value(state.frames[-1].scope.module)
    return _fire(state, component, argv)


def _fire(state: State, component: Value, argv: list[Value]) -> Value:
    data = component.data
    if isinstance(data, Function):
        return records.call_with_flags(state, _plain(data), argv)
    if isinstance(data, Bound) and isinstance(data.func.data, Function):
        return records.call_with_flags(state, _plain(data.func.data), argv, data.self)
    if isinstance(data, Class):
        flags, loose = records.parse_flags(argv)
        init = data.lookup("__init__")
        names: set[str] = set()
        if init is not None and isinstance(init.data, Function):
            names = {a.arg for a in (*init.data.node.args.args, *init.data.node.args.kwonlyargs)}
        kwargs = {
            n.replace("-", "_"): _scalar(v[0])
            for n, v, _ in flags
            if v and n.replace("-", "_") in names
        }
        made = state.call(component, [], kwargs, Site(data.module.file, data.node.lineno))
        loose += [token for _, values, _ in flags for token in values[1:]]
        rest = [
            t for t in argv if str(t.data).lstrip("-").split("=")[0].replace("-", "_") not in names
        ]
        return _fire(state, made, rest) if loose else made
    if argv and not str(argv[0].data).startswith("-"):
        name = argv[0].data
        member = (
            state.getitem(component, argv[0])
            if isinstance(data, dict)
            else state.getattr(component, str(name).replace("-", "_"))
        )
        if not isinstance(member.data, Unknown):
            return _fire(state, member, argv[1:])
    return unknown()


def _scalar(token: Value) -> Value:
    if not isinstance(token.data, str):
        return token
    data: Any = parse_scalar(token.data)
    return Value(data, token.origin) if not isinstance(data, dict | list) else token


# -- absl ------------------------------------------------------------------


def flags_object(state: State) -> AttrDict:
    """The program's one `FLAGS`."""
    held = state.shared.get("FLAGS")
    if held is None:
        held = AttrDict(flavour="flags")
        state.shared["FLAGS"] = held
        state.trace.settings.append(Settings("FLAGS", Value(held), "arguments"))
    result: AttrDict = held
    return result


def define_flag(state: State, call: Invocation) -> Value:
    """`flags.DEFINE_integer(name, default, help)`: set at once from the command line."""
    name = call.argument(0, "name")
    if name is None or not isinstance(name.data, str):
        return unknown()
    default = call.argument(1, "default") or Value(None)
    here = Origin("default", call.site.file, call.site.line)
    value = Value(default.data, here) if default.known else default
    kind = classes.last(call.path).removeprefix("DEFINE_")
    several: list[Value] = []
    for token in state.argv[1:]:
        text = token.data
        if not isinstance(text, str) or not text.startswith("-"):
            continue
        flag, equals, given = text.lstrip("-").partition("=")
        if flag == name.data:
            if not equals:
                index = state.argv.index(token) + 1
                following = state.argv[index].data if index < len(state.argv) else None
                given = "true" if kind in ("bool", "boolean") else str(following)
            value = _flag_value(kind, given, token, flag)
            if kind.startswith("multi"):
                several.append(Value(parse_scalar(given) if kind == "multi_integer" else given,
                                     value.origin))  # fmt: skip
                value = Value(list(several), value.origin)
        elif flag == f"no{name.data}" and kind in ("bool", "boolean"):
            value = Value(False, token.origin)
    flags = flags_object(state)
    flags[name.data] = value
    return Value(Call(call.path, call.args, call.kwargs, {"value": value, "default": default}))


def _flag_value(kind: str, text: str, token: Value, flag: str) -> Value:
    origin = token.origin
    if origin is not None:
        origin = Origin(origin.source, origin.file, origin.line, f"--{flag}")
    if kind in ("integer", "float"):
        return Value(parse_scalar(text), origin)
    if kind in ("bool", "boolean"):
        return Value(text.lower() in ("true", "1", "yes", "t"), origin)
    if kind in ("list", "spaceseplist", "multi_string", "multi_enum"):
        return Value([Value(part, origin) for part in text.split(",")], origin)
    return Value(text, origin)


def app_run(state: State, call: Invocation) -> Value:
    main = call.argument(0, "main")
    if main is None:
        main = state.lookup("main", state.frames[-1].scope)
    return state.call(main, [Value(state.argv)], {}, call.site)


def config_file_flag(state: State, call: Invocation) -> Value:
    """`config_flags.DEFINE_config_file`: follow the file's `get_config`, apply dotted flags."""
    name = call.argument(0, "name")
    flag = name.data if name is not None and isinstance(name.data, str) else "config"
    path = call.argument(1, "default") or Value(None)
    for index, token in enumerate(state.argv):
        text = str(token.data)
        if text.lstrip("-") == flag and index + 1 < len(state.argv) and text.startswith("-"):
            path = state.argv[index + 1]
        elif text.startswith("-") and text.lstrip("-").startswith(f"{flag}="):
            path = Value(text.partition("=")[2], token.origin)
    config = unknown(flag)
    if isinstance(path.data, str):
        file, _, argument = path.data.partition(":")
        found = state.sources.locate(file)
        if found is not None and found.suffix == ".py":
            module = state.sources.module(found, found.stem)
            getter = state.module_attr(module, "get_config")
            if getter is not None:
                args = [Value(argument, path.origin)] if argument else []
                config = state.call(getter, args, {}, Site(module.file, 1))
                config = state.library.as_config(config, module.file)
    return _config_flag(state, flag, config)


def config_dict_flag(state: State, call: Invocation) -> Value:
    name = call.argument(0, "name")
    config = call.argument(1, "config")
    if name is None or config is None:
        return unknown()
    return _config_flag(state, str(name.data), config)


def _config_flag(state: State, flag: str, config: Value) -> Value:
    argv = list(state.argv)
    for index, token in enumerate(argv):
        text = str(token.data)
        if not text.startswith("-") or not text.lstrip("-").startswith(f"{flag}."):
            continue
        key, equals, given = text.lstrip("-").partition("=")
        if not equals and index + 1 < len(argv):
            given = str(argv[index + 1].data)
        _set_path(state, config, key.split(".")[1:], _scalar(Value(given, token.origin)))
    flags_object(state)[flag] = config
    state.trace.settings.append(Settings(flag, config, "config"))
    return Value(Call("ml_collections.config_flags.DEFINE", [], {}, {"value": config}))


def _set_path(state: State, config: Value, keys: list[str], value: Value) -> None:
    for key in keys[:-1]:
        config = state.getattr(config, key)
    state.setattr(config, keys[-1], value)


# -- sacred ----------------------------------------------------------------


def sacred_run(state: State, main: Function, module: Module) -> Value:
    """`@ex.automain`: the experiment's config scopes, then the main function with them."""
    config = AttrDict(flavour="sacred")
    for value in list(module.scope.names.values()):
        function = value.data
        if isinstance(function, Function) and _sacred(function, "config"):
            scope = Scope(module, function.scope)
            state.follow(function.node.body, scope) if not isinstance(
                function.node, ast.Lambda
            ) else None
            config.update(scope.names)
    for token in state.argv[1:]:
        key, equals, given = str(token.data).partition("=")
        if equals:
            _set_path(state, Value(config), key.split("."), _scalar(Value(given, token.origin)))
    state.trace.settings.append(Settings("config", Value(config), "config"))
    spec = main.node.args
    kwargs = {a.arg: config[a.arg] for a in (*spec.args, *spec.kwonlyargs) if a.arg in config}
    for name in ("_config", "config"):
        if any(a.arg == name for a in spec.args) and name not in kwargs:
            kwargs[name] = Value(config)
    return state.call(_plain(main), [], kwargs, Site(module.file, main.node.lineno))


def _sacred(function: Function, kind: str) -> bool:
    return any(
        isinstance(d.data, Symbol | Call) and d.data.path.endswith(f"Experiment().{kind}")
        for d in function.decorators
    )


def defined(state: State, function: Function) -> None:
    """A function was just defined: run it if its decorator says so (sacred's automain)."""
    if _sacred(function, "automain") and function.module.name == "__main__":
        sacred_run(state, function, function.module)


_ABSL = ("absl.flags", "tensorflow.flags", "tensorflow.app.flags", "tensorflow.compat.v1.flags",
         "tensorflow.platform.flags", "gflags", "flags")  # fmt: skip
_DEFINES = (
    "DEFINE_string", "DEFINE_integer", "DEFINE_float", "DEFINE_bool", "DEFINE_boolean",
    "DEFINE_enum", "DEFINE_list", "DEFINE_multi_string", "DEFINE_multi_integer",
    "DEFINE_spaceseplist", "DEFINE_enum_class",
)  # fmt: skip

HANDLERS: dict[str, Handler] = {
    **{f"{root}.{name}": define_flag for root in _ABSL for name in _DEFINES},
    "absl.app.run": app_run,
    "tensorflow.app.run": app_run,
    "typer.Typer()": typer_app,
    "typer.run": typer_run,
    "fire.Fire": fire,
    "ml_collections.config_flags.DEFINE_config_file": config_file_flag,
    "ml_collections.config_flags.config_flags.DEFINE_config_file": config_file_flag,
    "ml_collections.config_flags.DEFINE_config_dict": config_dict_flag,
}
FLAGS_PATHS = tuple(f"{root}.FLAGS" for root in _ABSL)
