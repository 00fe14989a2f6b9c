"""gin: bindings from files and texts to the parameters of functions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from schedmate.agent.configs.gin import parse_gin
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import parse_flags
from schedmate.agent.interp.libs.configs.files import locate
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Class, Function, Site, as_symbol, is_own, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import several
from schedmate.agent.values import Value, unknown
from schedmate.errors import InputError

_FLAG = re.compile(r"gin_?(config)?_?(files?|params?|bindings?)")


@dataclass(slots=True)
class _Gin:
    """What the program has parsed: files and texts in order, all bindings, scopes it is in."""

    files: list[Path] = field(default_factory=list)
    texts: list[Value] = field(default_factory=list)
    bindings: dict[str, Value] = field(default_factory=dict)
    scopes: list[str] = field(default_factory=list)


def gin_parse(machine: Machine, call: Invocation) -> Value:
    held: _Gin | None = machine.shared.get("gin")
    if held is None:
        held = machine.shared["gin"] = _Gin(texts=_from_flags(machine))
        machine.observer.settings("gin", Value(held.bindings), "config")
    given = [*(call.kwargs[n] for n in _GIVEN if n in call.kwargs), *call.args]
    if all(argument.unknown or as_symbol(argument) for argument in given):
        given = _flags(machine)  # those of a library's own definition
    files = list(held.files)
    for item in (item for argument in given for item in several(argument)):
        found = _file(machine, item)
        if found is not None:
            files.append(found)
        elif item.text is not None and "=" in item.text:
            held.texts.append(item)
    try:
        parsed = parse_gin(files, machine.sources.root, bindings=held.texts)
    except InputError as error:
        machine.observer.warns(str(error))
        return Value(None)
    held.files = files
    held.bindings.clear()
    held.bindings.update(parsed)
    for name in parsed:
        if name.startswith("import "):
            machine.import_module(name.removeprefix("import "))
    return Value(None)


def _from_flags(machine: Machine) -> list[Value]:
    """`--gin.NAME=VALUE` on the command line."""
    return [
        Value(token.text.removeprefix("--gin."), token.origin)
        for token in machine.argv
        if token.text is not None and re.match(r"--gin\.[^=]+=", token.text)
    ]


def _flags(machine: Machine) -> list[Value]:
    """`--gin_file`, `--gin_param` and `--gin_bindings` on the command line."""
    found, _ = parse_flags(machine.argv[1:])
    return [value for name, values, _ in found if _FLAG.fullmatch(name) for value in values[:1]]


def _file(machine: Machine, item: Value) -> Path | None:
    found = locate(machine, item)
    if found is None and item.text is not None and item.text.endswith(".gin"):
        # gin looks along search paths of its own: take the only file of that name
        paths = machine.sources.root.rglob(PurePosixPath(item.text).name)
        named = [path for path in paths if f"/{path.as_posix()}".endswith(f"/{item.text}")]
        found = named[0] if len(named) == 1 and machine.sources.inside(named[0]) else None
    return found


def gin_arguments(machine: Machine, target: Function | Class) -> dict[str, Value]:
    """Parameters of a function or class that gin binds; those of a scope it is in first."""
    held: _Gin | None = machine.shared.get("gin")
    if held is None:
        return {}
    name = target.name
    if isinstance(target, Function) and target.cls is not None:
        if name != "__init__" and not _configured(target):
            return {}
        name = target.cls.name if name == "__init__" else name
    elsewhere: dict[str, Value] = {}
    everywhere: dict[str, Value] = {}
    here: dict[str, Value] = {}
    for key, value in held.bindings.items():
        bound_to, _, parameter = key.rpartition(".")
        scope, _, dotted = bound_to.rpartition("/")
        if dotted.rpartition(".")[2] == name:
            bound = here if scope in held.scopes else elsewhere if scope else everywhere
            bound[parameter] = value
    found: dict[str, Value] = {}
    for parameter, value in (elsewhere | everywhere | here).items():
        text = value.unknown.text if value.unknown is not None else None
        if value.known:
            found[parameter] = value
        elif text is not None and text.startswith("@"):
            found[parameter] = _configurable(machine, held, text, value)
    return found


def _configured(function: Function) -> bool:
    """Whether a method is made configurable by itself, under its own name."""
    return any(path_of(decorator) == "gin.configurable" for decorator in function.decorators)


def _configurable(machine: Machine, held: _Gin, text: str, value: Value) -> Value:
    """What a gin reference `@scope/name` or `@name()` stands for."""
    scope, _, dotted = text.strip("@()").rpartition("/")
    name = dotted.rpartition(".")[2]
    for module in list(machine.sources.modules.values()):
        found = module.scope.names.get(name)
        if found is None or not is_own(found):
            continue
        machine.observer.looks_up(name)
        if not text.endswith("()"):
            return Value(found.data, value.origin)
        held.scopes.append(scope)
        try:
            return machine.call(found, [], {}, Site(module.file, 1))
        finally:
            held.scopes.pop()
    return value


_GIVEN = ("config_files", "config_file", "bindings", "config")


def gin_query(machine: Machine, call: Invocation) -> Value:
    """`gin.query_parameter("Class.parameter")`, or `%macro`."""
    held: _Gin | None = machine.shared.get("gin")
    name = call.first.text
    if held is None or name is None:
        return unknown()
    return held.bindings.get(name.removeprefix("%"), unknown(name))


PLUGIN = Plugin(
    arguments=gin_arguments,
    calls={
        "gin.parse_config_files_and_bindings": gin_parse,
        "gin.parse_config_file": gin_parse,
        "gin.parse_config": gin_parse,
        "gin.bind_parameter": gin_parse,
        "gin.query_parameter": gin_query,
        "mesh_tensorflow.transformer.utils.parse_gin_defaults_and_flags": gin_parse,
    },
)
