"""sacred: experiments whose configuration is a function's local names.

`python run.py with epochs=3 large`: later ones win of config scopes, the named configs of the
command, and its updates; captured functions take what they are not given from the result.
"""

from __future__ import annotations

import ast

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import plain_scalar
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import AttrDict, Class, Function, Scope, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Items, Origin, Value, unknown

_CONFIG = "sacred config"
_ADDED = "sacred added"


def _run(machine: Machine, main: Function, argv: list[Value]) -> Value:
    """The experiment's config scopes, then the main function with them."""
    config = AttrDict(flavour="sacred")
    for source in machine.shared.get(_ADDED, []):
        config.update(source)
    for function in _functions(machine, "config"):
        _scope(machine, function, config)
    named = {function.name: function for function in _functions(machine, "named_config")}
    for token in argv:
        if token.data in named:
            _scope(machine, named[str(token.data)], config)
    for token in argv:
        key, equals, given = str(token.data).partition("=")
        if equals and not key.startswith("-"):
            origin = token.origin
            if origin is not None:
                origin = Origin(origin.source, origin.file, origin.line, key)
            _update(config, key.split("."), plain_scalar(Value(given, origin)))
    machine.shared[_CONFIG] = config
    machine.observer.settings("config", Value(config), "config")
    spec = main.node.args
    kwargs = captured_arguments(machine, main) | {
        a.arg: config[a.arg] for a in (*spec.args, *spec.kwonlyargs) if a.arg in config
    }
    return machine.call(Value(main.undecorated()), [], kwargs, main.site)


def _update(config: Items, path: list[str], value: Value) -> None:
    """`a.b=c` of the command, which is certain whatever led here."""
    for part in path[:-1]:
        inner = config.setdefault(part, Value(AttrDict(flavour="sacred"))).mapping
        if inner is None:
            return
        config = inner
    config[path[-1]] = value


def _scope(machine: Machine, function: Function, config: AttrDict) -> None:
    """What a config scope's names come to; its parameters are entries made before."""
    if isinstance(function.node, ast.Lambda):
        return
    scope = Scope(function.module, function.scope)
    parameters = {a.arg for a in (*function.node.args.args, *function.node.args.kwonlyargs)}
    scope.names.update({name: config[name] for name in parameters if name in config})
    machine.follow(function.node.body, scope)
    config.update({k: v for k, v in scope.names.items() if k not in parameters})


def _functions(machine: Machine, kind: str) -> list[Function]:
    """The functions that `@ex.config` and the like mark, of an experiment of any module."""
    functions = (function for _, _, function in machine.sources.defined(Function))
    return list(dict.fromkeys(function for function in functions if _marked(function, kind)))


def _marked(function: Function, kind: str) -> bool:
    return any(
        path_of(d).endswith((f"Experiment().{kind}", f"Ingredient().{kind}"))
        for d in function.decorators
    )


def captured_arguments(machine: Machine, function: Function) -> dict[str, Value]:
    """The arguments that a captured function takes from the experiment's configuration."""
    config = machine.shared.get(_CONFIG)
    if config is None or not function.decorators:
        return {}
    if not any(_marked(function, kind) for kind in ("capture", "main", "automain", "command")):
        return {}
    return {**config, "_config": Value(config)}


def _captured(machine: Machine, target: Function | Class) -> dict[str, Value]:
    return captured_arguments(machine, target) if isinstance(target, Function) else {}


def automain(machine: Machine, function: Function) -> None:
    """A function was just defined: run it if `@ex.automain` marks it."""
    if _marked(function, "automain") and function.module.name == "__main__":
        _run(machine, function, machine.argv[1:])


def add_config(machine: Machine, call: Invocation) -> Value:
    """`ex.add_config({...})`, `ex.add_config("base.yaml")`, `ex.add_config(epochs=3)`."""
    added = machine.shared.setdefault(_ADDED, [])
    for value in call.args:
        loaded = read_file(machine, value) if value.text is not None else value
        mapping = machine.mapping(loaded)
        if mapping is not None:
            added.append(mapping)
    if call.kwargs:
        added.append(call.kwargs)
    return Value(None)


def run(machine: Machine, call: Invocation) -> Value:
    """`ex.run_commandline()` and `ex.run(config_updates={...})`: the `@ex.main` function."""
    main = next(iter(_functions(machine, "main")), None)
    if main is None:
        return unknown()
    argv = call.argument(0, "argv") if call.path.endswith("commandline") else None
    given = iterate(argv)
    updates = call.kwargs.get("config_updates")
    mapping = machine.mapping(updates)
    if mapping is not None:
        machine.shared.setdefault(_ADDED, []).append(mapping)
    return _run(machine, main, given if given is not None else machine.argv[1:])


PLUGIN = Plugin(
    arguments=_captured,
    on_defined=automain,
    calls={
        "sacred.Experiment().add_config": add_config,
        "sacred.Experiment().run_commandline": run,
        "sacred.Experiment().run": run,
    },
)
