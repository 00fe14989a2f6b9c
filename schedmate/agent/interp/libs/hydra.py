"""Hydra: composing the config a decorated main function receives, and instantiating targets."""

from __future__ import annotations

import ast
from pathlib import Path

from schedmate.agent.configs.class_keys import argument_keys, built_by, class_keys, is_instruction
from schedmate.agent.configs.hydra.compose import compose_hydra
from schedmate.agent.configs.hydra.overrides import parse_command_line
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.omegaconf import RESOLVERS, omega_structured
from schedmate.agent.interp.libs.importing import class_named
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Function,
    Partial,
    Site,
    Symbol,
    as_call,
    as_function,
    as_instance,
    as_symbol,
    is_own,
    path_of,
)
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.trees import attr_tree, plain_tree
from schedmate.agent.values import Value, unknown
from schedmate.errors import InputError
from schedmate.paths import is_dir


def store(machine: Machine, call: Invocation) -> Value:
    """`ConfigStore.instance().store(name=..., node=..., group=...)`."""
    name, group = call.text(1, "name"), call.text(0, "group")
    node = call.argument(2, "node")
    if name is None or node is None:
        return Value(None)
    tree = omega_structured(
        machine, Invocation("omegaconf.OmegaConf.structured", [node], {}, call.site)
    )
    stored: dict[str, Value] = machine.shared.setdefault("hydra_store", {})
    stored[f"{group}/{name}" if group is not None else name] = plain_tree(tree)
    return Value(None)


def compose_for(machine: Machine, function: Function, said: Call | None) -> Value:
    """The config that `@hydra.main(config_path=..., config_name=...)` passes to `function`."""
    args, kwargs = (said.args, said.kwargs) if said is not None else ([], {})
    decorator = Invocation("hydra.main", args, kwargs, function.site)
    path, name = decorator.text(0, "config_path"), decorator.text(1, "config_name")
    line = parse_command_line(machine.argv[1:])
    path, name = line.config_path or path, line.config_name or name
    if path is not None and path.endswith((".yaml", ".yml")):
        # Hydra before 1.0 named the primary config by a file
        path, _, name = path.rpartition("/")
    folder = _folder(machine, function.module.path, path or ".", bool(args or kwargs))
    _register_resolvers(machine, function)
    more = [line.config_dir] if line.config_dir is not None else []
    return compose(machine, folder, name, list(machine.argv[1:]), more)


def _register_resolvers(machine: Machine, function: Function) -> None:
    """Import what the main function imports first: values are looked up after that."""
    for node in function.node.body if isinstance(function.node, ast.FunctionDef) else []:
        match node:
            case ast.Import(names):
                for alias in names:
                    machine.import_module(alias.name, function.module)
            case ast.ImportFrom(str() as name, level=0):
                machine.import_module(name, function.module)


def _folder(machine: Machine, module: Path, path: str | None, given: bool) -> Path:
    if path is None:
        return module.parent
    if path.startswith("pkg://"):
        path = path.removeprefix("pkg://").replace(".", "/")
    for base in (module.parent, *machine.sources.roots, machine.sources.root):
        candidate = base / path
        if is_dir(candidate) and machine.sources.inside(candidate):
            return candidate.resolve()
    machine.observer.warns(f"{path}: the Hydra config directory is not in the repository")
    return module.parent


def compose(
    machine: Machine, folder: Path, name: str | None, overrides: list[Value], more: list[str]
) -> Value:
    """Compose and note a Hydra config; unknown when it cannot be read.

    Without a name it is an empty one, in which the overrides set what they say.
    """
    extra = [found for text in more if (found := machine.sources.locate(text)) is not None]
    if len(extra) < len(more):
        machine.observer.warns(
            f"{', '.join(more)}: not in the repository, its configurations are left out"
        )
    try:
        composed = compose_hydra(
            folder,
            (name or "").removesuffix(".yaml").removesuffix(".yml"),
            overrides,
            machine.sources.root,
            structured=machine.shared.get("hydra_store"),
            search_path=extra,
            resolvers=machine.shared.get(RESOLVERS),
        )
    except InputError as error:
        machine.observer.warns(str(error))
        return unknown(name or "")
    for warning in composed.warnings:
        machine.observer.warns(warning)
    config = attr_tree(composed.config, "omegaconf")
    choices = Value(dict(composed.choices.items()))
    machine.observer.settings("hydra", config, "config")
    machine.observer.settings("hydra choices", choices, "choices")
    return config


def initialize(machine: Machine, call: Invocation) -> Value:
    machine.shared["hydra_path"] = call.text(1, "config_path", "config_dir")
    return unknown()


def initialize_module(machine: Machine, call: Invocation) -> Value:
    """`hydra.initialize_config_module("package.configs")`."""
    name = call.text(0, "config_module")
    if name is not None:
        machine.shared["hydra_path"] = f"pkg://{name}"
    return unknown()


def compose_call(machine: Machine, call: Invocation) -> Value:
    """`hydra.compose(config_name=..., overrides=[...])` after `hydra.initialize`."""
    given = call.argument(1, "overrides")
    overrides = list((given.elements if given is not None else None) or [])
    path = machine.shared.get("hydra_path")
    folder = _folder(machine, machine.frames[-1].scope.module.path, path, True)
    return compose(machine, folder, call.text(0, "config_name"), overrides, [])


def run(machine: Machine, call: Invocation) -> Value:
    """`hydra._internal.utils._run_hydra(task_function=main, ...)`, for decorators built on it."""
    task = as_function(call.kwargs.get("task_function"))
    if task is None:
        return unknown()
    said = {key: value for key, value in call.kwargs.items() if key.startswith("config_")}
    config = compose_for(machine, task, Call("hydra.main", [], said))
    return machine.call(Value(task.undecorated()), [config], {}, call.site)


# -- instantiate -----------------------------------------------------------


def instantiate(machine: Machine, call: Invocation) -> Value:
    """`hydra.utils.instantiate(config, *args, **kwargs)`."""
    config = call.argument(0, "config")
    if config is None:
        return unknown()
    rest = call.args[1:] if "config" not in call.kwargs else call.args
    kwargs = {k: v for k, v in call.kwargs.items() if k != "config"}
    return build(machine, config, list(rest), kwargs, call.site)


def build(
    machine: Machine, config: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """Make what a config with a `_target_` or `class_path` describes; leave other values."""
    if config.sequence is not None:
        items = [build(machine, item, [], {}, site) for item in config.sequence]
        return Value(items, config.origin)
    settings, record = config.mapping, as_instance(config)
    if settings is None:
        if record is not None:
            mapping = machine.mapping(config) or record.attrs
            if any(key in mapping for key in class_keys("path")):
                return build(machine, Value(dict(mapping), config.origin), args, kwargs, site)
        return config
    named_by = built_by(settings)
    if named_by is None:
        made = {key: build(machine, item, [], {}, site) for key, item in settings.items()}
        return Value(AttrDict(made, "omegaconf"), config.origin)
    target = settings[named_by]
    apart = (settings[key] for key in argument_keys(named_by) if key in settings)
    given = next(apart, config).mapping or {}
    follow = settings.get("_recursive_", unknown()).data is not False
    merged = {
        str(key): build(machine, item, [], {}, site) if follow else item
        for key, item in given.items()
        if not is_instruction(key)
    }
    merged.update(kwargs)
    positional = settings.get("_args_", unknown()).elements
    if positional is not None and not args:
        args = [build(machine, item, [], {}, site) for item in positional]
    func = resolve(machine, target)
    if settings.get("_partial_", unknown()).data is True:
        return Value(Partial(func, args, merged), config.origin)
    if func.unknown:
        return unknown(origin=config.origin)
    place = Site(target.origin.file or "", target.origin.line or 1) if target.origin else site
    return machine.call(func, args, merged, place)


def resolve(machine: Machine, target: Value) -> Value:
    """The class or function a dotted name means."""
    if is_own(target) or as_symbol(target) is not None or isinstance(target.data, Partial):
        return target
    if target.text is None:
        return unknown()
    parts = target.text.replace(":", ".").split(".")
    for count in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:count])
        module = machine.sources.find(name, None, machine.search_path())
        if module is None:
            continue
        value = Value(module)
        for part in parts[count:]:
            value = machine.getattr(value, part)
        if not value.unknown:
            return value
    if len(parts) == 1:  # jsonargparse knows classes by their bare names once they are imported
        imported = class_named(machine, parts[0])
        if imported is not None:
            return imported
    return Value(Symbol(machine.sources.canonical(target.text)), target.origin)


def get_class(machine: Machine, call: Invocation) -> Value:
    return resolve(machine, call.args[0]) if call.args else unknown()


_MAIN = ("hydra.main", "nemo.core.config.hydra_runner", "hydra_zen.main", "dora.hydra_main")


def _enter(machine: Machine, function: Function, decorator: Value) -> Value | None:
    """`@hydra.main()`: the main function, given the configuration."""
    if path_of(decorator) not in _MAIN:
        return None
    config = compose_for(machine, function, as_call(decorator))
    return machine.call(Value(function.undecorated()), [config], {}, function.site)


PLUGIN = Plugin(
    on_enter=_enter,
    calls={
        "hydra.utils.instantiate": instantiate,
        "hydra.utils.call": instantiate,
        "hydra_zen.instantiate": instantiate,
        "hydra.utils.get_class": get_class,
        "hydra.utils.get_method": get_class,
        "hydra.utils.get_object": get_class,
        "pydoc.locate": get_class,
        "hydra.initialize": initialize,
        "hydra.initialize_config_dir": initialize,
        "hydra.initialize_config_module": initialize_module,
        "hydra.compose": compose_call,
        "hydra._internal.utils._run_hydra": run,
        "hydra.core.config_store.ConfigStore.instance().store": store,
    },
)
