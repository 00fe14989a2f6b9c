"""Models absl, sacred and gin, which hold a program's settings themselves: flags, local names of
a function, bindings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from schedmate.agent.configs.gin import parse_gin
from schedmate.agent.interp.libs.files import locate_file, read_file
from schedmate.agent.interp.libs.parsers import (
    flag_origin,
    parse_flags,
    plain_scalar,
    spelled_value,
)
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    GROUPS,
    AttrDict,
    Call,
    Class,
    Function,
    Invocation,
    Scope,
    Site,
    as_symbol,
    is_own,
    modelled,
    path_of,
)
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import iterate, set_path, several
from schedmate.agent.interp.values.plain import as_config
from schedmate.agent.values import Items, Origin, Value, unknown
from schedmate.base.errors import InputError
from schedmate.base.files import paths_called


def absl_flags_object(machine: Machine) -> AttrDict:
    """The program's one `FLAGS`."""
    flags = machine.shared.get("FLAGS")
    if flags is None:
        flags = AttrDict(flavour="flags")
        machine.shared["FLAGS"] = flags
        machine.observer.settings("FLAGS", Value(flags), "arguments")
    result: AttrDict = flags
    return result


def define_flag(machine: Machine, call: Invocation) -> Value:
    """`flags.DEFINE_integer(name, default, help)`: set at once from the command line."""
    name = call.need_text(0, "name")
    default = call.argument(1, "default") or Value(None)
    here = Origin("default", call.site.file, call.site.line)
    value = Value(default.data, here) if default.known else default
    kind = classes.last_part(call.path).removeprefix("DEFINE_")
    several: list[Value] = []
    for flag, word, token in _absl_flags(machine):
        if flag == name:
            switch = kind in _BOOLEAN and "=" not in str(token.data)
            given = "true" if switch else str(word.data if word is not None else None)
            value = _flag_value(kind, given, token, flag)
            if kind.startswith("multi"):
                item = Value(given, value.origin)
                several.append(
                    spelled_value(item, item.origin) if kind == "multi_integer" else item
                )
                value = Value(list(several), value.origin)
        elif flag == f"no{name}" and kind in _BOOLEAN:
            value = Value(False, token.origin)
    absl_flags_object(machine)[name] = value
    return Value(Call(call.path, call.args, call.kwargs, {"value": value, "default": default}))


_BOOLEAN = ("bool", "boolean")


def _absl_flags(machine: Machine) -> Iterator[tuple[str, Value | None, Value]]:
    """The flags of the command, each with its value, attached or the next word, and its token."""
    words = machine.argv[1:]
    for token, after in zip(words, [*words[1:], None], strict=True):
        if token.text is not None and token.text.startswith("-"):
            name, equals, given = token.text.lstrip("-").partition("=")
            yield name, Value(given, token.origin) if equals else after, token


def _flag_value(kind: str, text: str, token: Value, flag: str) -> Value:
    origin = flag_origin(token, f"--{flag}")
    if kind in ("integer", "float"):
        return spelled_value(Value(text), origin)
    if kind in _BOOLEAN:
        return Value(text.lower() in ("true", "1", "yes", "t"), origin)
    if kind in ("list", "spaceseplist", "multi_string", "multi_enum"):
        return Value([Value(part, origin) for part in text.split(",")], origin)
    return Value(text, origin)


def app_run(machine: Machine, call: Invocation) -> Value:
    main = call.argument(0, "main")
    if main is None:
        main = machine.lookup("main", machine.frames[-1].scope)
    return machine.call(main, [Value(_without_flags(machine.argv))], {}, call.site)


def _without_flags(argv: list[Value]) -> list[Value]:
    """What absl leaves of the command line to the program."""
    left: list[Value] = []
    after_flag = False
    for number, token in enumerate(argv):
        text = token.text or ""
        if text == "--":
            return left + argv[number + 1 :]
        if not text.startswith("-") and not after_flag:
            left.append(token)
        after_flag = text.startswith("-") and "=" not in text
    return left


def config_file_flag(machine: Machine, call: Invocation) -> Value:
    """`config_flags.DEFINE_config_file`: follow the file's `get_config`, apply dotted flags."""
    name = call.text(0, "name")
    flag = name if name is not None else "config"
    path = call.argument(1, "default") or Value(None)
    for flag_name, word, _ in _absl_flags(machine):
        if flag_name == flag and word is not None:
            path = word
    config = unknown(flag)
    if path.text is not None:
        file, _, argument = path.text.partition(":")
        located = machine.sources.locate(file)
        if located is not None and located.suffix == ".py":
            module = machine.sources.module(located, located.stem)
            getter = machine.module_attr(module, "get_config")
            if getter is not None:
                args = [Value(argument, path.origin)] if argument else []
                config = machine.call(getter, args, {}, Site(module.file, 1))
                config = as_config(config, module.file)
    return _config_flag(machine, flag, config)


def config_dict_flag(machine: Machine, call: Invocation) -> Value:
    return _config_flag(machine, str(call.need(0, "name").data), call.need(1, "config"))


def _config_flag(machine: Machine, flag: str, config: Value) -> Value:
    for key, word, token in _absl_flags(machine):
        if key.startswith(f"{flag}."):
            given = Value(str(word.data) if word is not None else "", token.origin)
            set_path(machine, config, key.split(".")[1:], plain_scalar(given))
    absl_flags_object(machine)[flag] = config
    machine.observer.settings(flag, config, "config")
    return Value(Call("ml_collections.config_flags.DEFINE", [], {}, {"value": config}))


# sacred: experiments whose configuration is a function's local names.
#
# `python run.py with epochs=3 large`: later ones win of config scopes, the named configs of the
# command, and its updates; captured functions take what they are not given from the result.


_SACRED_CONFIG = "sacred config"
_ADDED_CONFIG = "sacred added"


def _run_main(machine: Machine, main: Function, argv: list[Value]) -> Value:
    """The experiment's config scopes, then the main function with them."""
    config = AttrDict(flavour="sacred")
    for source in machine.shared.get(_ADDED_CONFIG, []):
        config.update(source)
    for function in _marked_functions(machine, "config"):
        _config_scope(machine, function, config)
    named = {function.name: function for function in _marked_functions(machine, "named_config")}
    for token in argv:
        if token.data in named:
            _config_scope(machine, named[str(token.data)], config)
    for token in argv:
        key, equals, text = str(token.data).partition("=")
        if equals and not key.startswith("-"):
            origin = token.origin
            if origin is not None:
                origin = Origin(origin.source, origin.file, origin.line, key)
            _update_config(config, key.split("."), plain_scalar(Value(text, origin)))
    machine.shared[_SACRED_CONFIG] = config
    machine.observer.settings("config", Value(config), "config")
    spec = main.node.args
    kwargs = captured_arguments(machine, main) | {
        a.arg: config[a.arg] for a in (*spec.args, *spec.kwonlyargs) if a.arg in config
    }
    return machine.call(Value(main.undecorated()), [], kwargs, main.site)


def _update_config(config: Items, path: list[str], value: Value) -> None:
    """`a.b=c` of the command, which is certain whatever led here."""
    for part in path[:-1]:
        inner = config.setdefault(part, Value(AttrDict(flavour="sacred"))).mapping
        if inner is None:
            return
        config = inner
    config[path[-1]] = value


def _config_scope(machine: Machine, function: Function, config: AttrDict) -> None:
    """What a config scope's names come to; its parameters are entries made before."""
    if isinstance(function.node, ast.Lambda):
        return
    scope = Scope(function.module, function.scope)
    parameters = {a.arg for a in (*function.node.args.args, *function.node.args.kwonlyargs)}
    scope.names.update({name: config[name] for name in parameters if name in config})
    machine.follow(function.node.body, scope)
    config.update({k: v for k, v in scope.names.items() if k not in parameters})


def _marked_functions(machine: Machine, kind: str) -> list[Function]:
    """The functions that `@ex.config` and the like mark, of an experiment of any module."""
    functions = (function for _, _, function in machine.sources.defined(Function))
    return list(dict.fromkeys(function for function in functions if _is_marked(function, kind)))


def _is_marked(function: Function, kind: str) -> bool:
    return any(
        path_of(d).endswith((f"Experiment().{kind}", f"Ingredient().{kind}"))
        for d in function.decorators
    )


def captured_arguments(machine: Machine, function: Function) -> dict[str, Value]:
    """The arguments that a captured function takes from the experiment's configuration."""
    config = machine.shared.get(_SACRED_CONFIG)
    if config is None or not function.decorators:
        return {}
    if not any(_is_marked(function, kind) for kind in ("capture", "main", "automain", "command")):
        return {}
    return {**config, "_config": Value(config)}


def run_automain(machine: Machine, function: Function) -> None:
    """A function was just defined: run it if `@ex.automain` marks it."""
    if _is_marked(function, "automain") and function.module.name == "__main__":
        _run_main(machine, function, machine.argv[1:])


def add_config(machine: Machine, call: Invocation) -> Value:
    """`ex.add_config({...})`, `ex.add_config("base.yaml")`, `ex.add_config(epochs=3)`."""
    added = machine.shared.setdefault(_ADDED_CONFIG, [])
    for value in call.args:
        loaded = read_file(machine, value) if value.text is not None else value
        mapping = machine.mapping(loaded)
        if mapping is not None:
            added.append(mapping)
    if call.kwargs:
        added.append(call.kwargs)
    return Value(None)


def run_experiment(machine: Machine, call: Invocation) -> Value:
    """`ex.run_commandline()` and `ex.run(config_updates={...})`: the `@ex.main` function."""
    main = next(iter(_marked_functions(machine, "main")), None)
    if main is None:
        return unknown()
    argv = call.argument(0, "argv") if call.path.endswith("commandline") else None
    words = iterate(argv)
    updates = call.kwargs.get("config_updates")
    mapping = machine.mapping(updates)
    if mapping is not None:
        machine.shared.setdefault(_ADDED_CONFIG, []).append(mapping)
    return _run_main(machine, main, words if words is not None else machine.argv[1:])


# gin: bindings from files and texts to the parameters of functions.


_GIN_FLAG = re.compile(r"gin_?(config)?_?(files?|params?|bindings?)")


@dataclass(slots=True)
class _Gin:
    """What the program has parsed: files and texts in order, all bindings, scopes it is in."""

    files: list[Path] = field(default_factory=list)
    texts: list[Value] = field(default_factory=list)
    bindings: dict[str, Value] = field(default_factory=dict)
    scopes: list[str] = field(default_factory=list)


def gin_parse(machine: Machine, call: Invocation) -> Value:
    gin: _Gin | None = machine.shared.get("gin")
    if gin is None:
        gin = machine.shared["gin"] = _Gin(texts=_bindings_of_flags(machine))
        machine.observer.settings("gin", Value(gin.bindings), "config")
    arguments = [*(call.kwargs[n] for n in _GIN_GIVEN if n in call.kwargs), *call.args]
    if all(argument.unknown or as_symbol(argument) for argument in arguments):
        arguments = _gin_flags(machine)  # those of a library's own definition
    files = list(gin.files)
    for item in (item for argument in arguments for item in several(argument)):
        file = _gin_file(machine, item)
        if file is not None:
            files.append(file)
        elif item.text is not None and "=" in item.text:
            gin.texts.append(item)
    try:
        parsed = parse_gin(files, machine.sources.root, bindings=gin.texts)
    except InputError as error:
        machine.observer.warns(str(error))
        return Value(None)
    gin.files = files
    gin.bindings.clear()
    gin.bindings.update(parsed)
    for name in parsed:
        if name.startswith("import "):
            machine.import_module(name.removeprefix("import "))
    return Value(None)


def _bindings_of_flags(machine: Machine) -> list[Value]:
    """`--gin.NAME=VALUE` on the command line."""
    return [
        Value(token.text.removeprefix("--gin."), token.origin)
        for token in machine.argv
        if token.text is not None and re.match(r"--gin\.[^=]+=", token.text)
    ]


def _gin_flags(machine: Machine) -> list[Value]:
    """`--gin_file`, `--gin_param` and `--gin_bindings` on the command line."""
    found, _ = parse_flags(machine.argv[1:])
    return [value for name, values, _ in found if _GIN_FLAG.fullmatch(name) for value in values[:1]]


def _gin_file(machine: Machine, item: Value) -> Path | None:
    file = locate_file(machine, item)
    if file is None and item.text is not None and item.text.endswith(".gin"):
        # gin looks along search paths of its own: take the only file of that name
        paths = paths_called(machine.sources.root, PurePosixPath(item.text).name)
        named = [path for path in paths if f"/{path.as_posix()}".endswith(f"/{item.text}")]
        file = named[0] if len(named) == 1 and machine.sources.inside(named[0]) else None
    return file


def gin_arguments(machine: Machine, target: Function | Class) -> dict[str, Value]:
    """Parameters of a function or class that gin binds; those of a scope it is in first."""
    gin: _Gin | None = machine.shared.get("gin")
    if gin is None:
        return {}
    name = target.name
    if isinstance(target, Function) and target.cls is not None:
        if name != "__init__" and not _is_configurable_method(target):
            return {}
        name = target.cls.name if name == "__init__" else name
    elsewhere: dict[str, Value] = {}
    everywhere: dict[str, Value] = {}
    here: dict[str, Value] = {}
    for key, value in gin.bindings.items():
        bound_to, _, parameter = key.rpartition(".")
        scope, _, dotted = bound_to.rpartition("/")
        if dotted.rpartition(".")[2] == name:
            bound = here if scope in gin.scopes else elsewhere if scope else everywhere
            bound[parameter] = value
    arguments: dict[str, Value] = {}
    for parameter, value in (elsewhere | everywhere | here).items():
        text = value.unknown.text if value.unknown is not None else None
        if value.known:
            arguments[parameter] = value
        elif text is not None and text.startswith("@"):
            arguments[parameter] = _configurable(machine, gin, text, value)
    return arguments


def _is_configurable_method(function: Function) -> bool:
    """Whether a method is made configurable by itself, under its own name."""
    return any(path_of(decorator) == "gin.configurable" for decorator in function.decorators)


def _configurable(machine: Machine, gin: _Gin, text: str, value: Value) -> Value:
    """What a gin reference `@scope/name` or `@name()` stands for."""
    scope, _, dotted = text.strip("@()").rpartition("/")
    name = dotted.rpartition(".")[2]
    for module in list(machine.sources.modules.values()):
        target = module.scope.names.get(name)
        if target is None or not is_own(target):
            continue
        machine.observer.looks_up(name)
        if not text.endswith("()"):
            return Value(target.data, value.origin)
        gin.scopes.append(scope)
        try:
            return machine.call(target, [], {}, Site(module.file, 1))
        finally:
            gin.scopes.pop()
    return value


_GIN_GIVEN = ("config_files", "config_file", "bindings", "config")


def gin_query(machine: Machine, call: Invocation) -> Value:
    """`gin.query_parameter("Class.parameter")`, or `%macro`."""
    gin: _Gin | None = machine.shared.get("gin")
    name = call.need_text(0)
    if gin is None:
        return unknown()
    return gin.bindings.get(name.removeprefix("%"), unknown(name))


def _arguments(machine: Machine, target: Function | Class) -> dict[str, Value]:
    """What sacred's configuration gives to parameters, and over it gin's bindings."""
    captured = captured_arguments(machine, target) if isinstance(target, Function) else {}
    return captured | gin_arguments(machine, target)


EXPERIMENTS = Plugin(
    names={
        f"{root}.FLAGS": lambda machine: Value(absl_flags_object(machine))
        for root in GROUPS["absl"]
    },
    calls=modelled("experiments", globals()),
    arguments=_arguments,
    on_defined=run_automain,
)
