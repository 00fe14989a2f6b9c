"""sacred: experiments whose configuration is a function's local names."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from schedmate.agent.interp.attributes import set_path
from schedmate.agent.interp.libs.cli.flags import plain_scalar
from schedmate.agent.interp.objects import AttrDict, Call, Function, Module, Scope, Symbol
from schedmate.agent.interp.trace import Settings
from schedmate.agent.values import Value

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


def _run(state: State, main: Function, module: Module) -> Value:
    """`@ex.automain`: the experiment's config scopes, then the main function with them."""
    config = AttrDict(flavour="sacred")
    for value in list(module.scope.names.values()):
        function = value.data
        if isinstance(function, Function) and _marked(function, "config"):
            scope = Scope(module, function.scope)
            state.follow(function.node.body, scope) if not isinstance(
                function.node, ast.Lambda
            ) else None
            config.update(scope.names)
    for token in state.argv[1:]:
        key, equals, given = str(token.data).partition("=")
        if equals:
            set_path(state, Value(config), key.split("."), plain_scalar(Value(given, token.origin)))
    state.trace.settings.append(Settings("config", Value(config), "config"))
    spec = main.node.args
    kwargs = {a.arg: config[a.arg] for a in (*spec.args, *spec.kwonlyargs) if a.arg in config}
    for name in ("_config", "config"):
        if any(a.arg == name for a in spec.args) and name not in kwargs:
            kwargs[name] = Value(config)
    return state.call(Value(main.undecorated()), [], kwargs, main.site)


def _marked(function: Function, kind: str) -> bool:
    return any(
        isinstance(d.data, Symbol | Call) and d.data.path.endswith(f"Experiment().{kind}")
        for d in function.decorators
    )


def automain(state: State, function: Function) -> None:
    """A function was just defined: run it if `@ex.automain` marks it."""
    if _marked(function, "automain") and function.module.name == "__main__":
        _run(state, function, function.module)
