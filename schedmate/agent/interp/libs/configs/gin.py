"""gin: bindings from files and texts to the parameters of functions."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from schedmate.agent.configs import parse_gin
from schedmate.agent.interp.invocation import Handler, Invocation
from schedmate.agent.interp.libs.configs.files import locate
from schedmate.agent.interp.objects import Class, Function, Site
from schedmate.agent.interp.trace import Settings
from schedmate.agent.interp.values_ops import several
from schedmate.agent.values import Unknown, Value
from schedmate.errors import InputError

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


def gin_parse(state: State, call: Invocation) -> Value:
    bindings: dict[str, Value] = state.shared.setdefault("gin", {})
    for name in ("config_files", "config_file", "bindings", "config"):
        given = call.kwargs.get(name)
        if given is not None:
            _gin_apply(state, given, bindings)
    for argument in call.args:
        _gin_apply(state, argument, bindings)
    if not any(s.name == "gin" for s in state.trace.settings):
        state.trace.settings.append(Settings("gin", Value(bindings), "config"))
    return Value(None)


def _gin_apply(state: State, given: Value, bindings: dict[str, Value]) -> None:
    for item in several(given):
        if not isinstance(item.data, str):
            continue
        found = locate(state, item)
        if found is None and item.data.endswith(".gin"):
            # gin looks along search paths of its own: take the only file of that name
            named = list(state.sources.root.rglob(PurePosixPath(item.data).name))
            found = named[0] if len(named) == 1 and state.sources.inside(named[0]) else None
        try:
            if found is not None:
                bindings.update(parse_gin(found, state.sources.root))
            elif "=" in item.data:
                parsed = parse_gin(item.data, state.sources.root)
                bindings.update({k: Value(v.data, item.origin) for k, v in parsed.items()})
        except InputError as error:
            state.trace.warn(str(error))


def gin_arguments(state: State, function: Function) -> dict[str, Value]:
    """Parameters of a function or constructor that gin binds."""
    bindings = state.shared.get("gin")
    if not bindings:
        return {}
    names = {function.name}
    if function.cls is not None:
        names = {function.cls.name} if function.name == "__init__" else set()
    found: dict[str, Value] = {}
    for key, value in bindings.items():
        target, _, parameter = key.rpartition(".")
        if target.rpartition("/")[2].rpartition(".")[2] in names:
            text = value.data.text if isinstance(value.data, Unknown) else None
            if value.known:
                found[parameter] = value
            elif text is not None and text.startswith("@"):
                found[parameter] = _configurable(state, text, value)
    return found


def _configurable(state: State, text: str, value: Value) -> Value:
    """What a gin reference `@scope/name` or `@name()` stands for."""
    name = text.strip("@()").rpartition("/")[2].rpartition(".")[2]
    for module in list(state.sources.modules.values()):
        held = module.scope.names.get(name)
        if held is not None and isinstance(held.data, Class | Function):
            state.trace.looked_up.add(name)
            if text.endswith("()"):
                return state.call(held, [], {}, Site(module.file, 1))
            return Value(held.data, value.origin)
    return value


HANDLERS: dict[str, Handler] = {
    f"gin.{name}": gin_parse
    for name in (
        "parse_config_files_and_bindings",
        "parse_config_file",
        "parse_config",
        "bind_parameter",
    )
}
