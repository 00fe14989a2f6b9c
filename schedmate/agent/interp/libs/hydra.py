"""Models Hydra and OmegaConf.

Hydra composes the configuration that a decorated main function receives, and instantiates targets.
OmegaConf merges mappings and records, as do functions of other libraries.
"""

from __future__ import annotations

import ast
from pathlib import Path

from schedmate.agent.configs.hydra import compose_hydra, parse_command_line
from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import (
    argument_keys,
    built_by,
    class_keys,
    is_instruction,
    merge,
    set_dotted,
)
from schedmate.agent.interp.libs.config_files import note_settings, read_file
from schedmate.agent.interp.libs.filesystem import class_named
from schedmate.agent.interp.libs.records import make_record, record_attributes
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Function,
    Handler,
    Invocation,
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
from schedmate.agent.interp.values.base import iterate, set_path
from schedmate.agent.interp.values.mappings import attr_tree, is_bounded, plain_tree
from schedmate.agent.values import Value, lifted, unknown
from schedmate.base.errors import InputError
from schedmate.base.files import is_dir

RESOLVERS = "omegaconf resolvers"
"""Where the program's own resolvers are kept, by name."""


def omega_load(machine: Machine, call: Invocation) -> Value:
    loaded = read_file(machine, call.argument(0, "file_", "f", "default") or unknown())
    return attr_tree(loaded, "omegaconf") if loaded is not None else unknown()


def omega_create(machine: Machine, call: Invocation) -> Value:
    source = call.argument(0, "obj", "content") or Value({})
    return attr_tree(plain_tree(as_mapping(machine, source)), "omegaconf")


def omega_structured(machine: Machine, call: Invocation) -> Value:
    source = call.argument(0, "obj") or Value({})
    if as_instance(source) is not None:
        return attr_tree(as_mapping(machine, source), "omegaconf")
    return attr_tree(
        as_mapping(machine, Value(record_attributes(make_record(machine, source)))), "omegaconf"
    )


def as_mapping(machine: Machine, value: Value) -> Value:
    """Records become mappings, at any depth; unknown where that is too large."""
    return _as_mapping(machine, value) if is_bounded(value) else unknown(origin=value.origin)


def _as_mapping(machine: Machine, value: Value) -> Value:
    record, items = as_instance(value), value.mapping
    if record is not None:
        items = record.mapping if record.mapping is not None else record.attrs
    if items is None:
        return value
    return Value({k: _as_mapping(machine, v) for k, v in items.items()}, value.origin)


def omega_merge(machine: Machine, call: Invocation) -> Value:
    merged = Value({})
    for argument in call.args:
        layer = as_mapping(machine, argument)
        if layer.mapping is not None:
            merged = merge(merged, plain_tree(layer))
        elif layer.elements is not None:
            merged = with_dotlist(merged, layer.elements)
    return note_settings(
        machine,
        attr_tree(
            resolve_interpolations(merged, resolvers=machine.shared.get(RESOLVERS)), "omegaconf"
        ),
        "merged config",
    )


def with_dotlist(config: Value, items: list[Value]) -> Value:
    """The config with `a.b=1` texts laid upon it; other texts are passed over."""
    for item in items:
        if item.text is not None and "=" in item.text:
            key, _, text = item.text.partition("=")
            value = lifted(parse_scalar(text), item.origin)
            config = set_dotted(config, key.lstrip("-"), value)
    return config


def omega_cli(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.argument(0, "args_list")) or machine.argv[1:]
    return attr_tree(with_dotlist(Value({}), items), "omegaconf")


def omega_plain(machine: Machine, call: Invocation) -> Value:
    config = call.argument(0, "cfg") or unknown()
    return plain_tree(config) if config.mapping is not None else config


def omega_select(machine: Machine, call: Invocation) -> Value:
    config, key = call.argument(0, "cfg"), call.argument(1, "key")
    if config is None or key is None or key.text is None:
        return unknown()
    for part in key.text.split("."):
        mapping = machine.mapping(config)
        if mapping is None or part not in mapping:
            return call.kwargs.get("default", Value(None))
        config = mapping[part]
    return config


def omega_update(machine: Machine, call: Invocation) -> Value:
    config, key, value = call.argument(0), call.argument(1), call.argument(2)
    if config is None or key is None or value is None or key.text is None:
        return Value(None)
    set_path(machine, config, key.text.split("."), value)
    return Value(None)


_OMEGACONF_PATH: dict[str, Handler] = {
    "load": omega_load,
    "create": omega_create,
    "structured": omega_structured,
    "merge": omega_merge,
    "unsafe_merge": omega_merge,
    "from_cli": omega_cli,
    "from_dotlist": omega_cli,
    "to_container": omega_plain,
    "to_object": omega_plain,
    "select": omega_select,
    "update": omega_update,
}
_MERGES = (
    "jsonmerge.merge", "mergedeep.merge", "deepmerge.always_merger.merge",
    "*.deepmerge", "*.deep_merge", "*.merge_dicts",
)  # fmt: skip


def register_resolver(machine: Machine, call: Invocation) -> Value:
    """`OmegaConf.register_new_resolver(name, function)`: called where a configuration uses it."""
    name, resolver = call.argument(0, "name"), call.argument(1, "resolver")
    if name is not None and resolver is not None and as_function(resolver) is not None:

        def resolve(arguments: list[Value]) -> Value:
            return machine.call(resolver, arguments, {}, call.site)

        machine.shared.setdefault(RESOLVERS, {})[str(name.data)] = resolve
    return Value(None)


OMEGACONF = Plugin(
    types={"omegaconf.DictConfig": (AttrDict,), "omegaconf.ListConfig": (list,)},
    calls={
        "omegaconf.DictConfig": omega_create,
        "omegaconf.ListConfig": omega_create,
        "sconf.Config": omega_load,
        "omegaconf.OmegaConf.register_new_resolver": register_resolver,
        "omegaconf.OmegaConf.register_resolver": register_resolver,
        **{f"omegaconf.OmegaConf.{name}": handler for name, handler in _OMEGACONF_PATH.items()},
        **dict.fromkeys(_MERGES, omega_merge),
    },
)


# Hydra: composing the config a decorated main function receives, and instantiating targets.


def store_config(machine: Machine, call: Invocation) -> Value:
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
    folder = _config_folder(machine, function.module.path, path or ".", bool(args or kwargs))
    _register_resolvers(machine, function)
    more = [line.config_dir] if line.config_dir is not None else []
    return compose_config(machine, folder, name, list(machine.argv[1:]), more)


def _register_resolvers(machine: Machine, function: Function) -> None:
    """Import what the main function imports first: values are looked up after that."""
    for node in function.node.body if isinstance(function.node, ast.FunctionDef) else []:
        match node:
            case ast.Import(names):
                for alias in names:
                    machine.import_module(alias.name, function.module)
            case ast.ImportFrom(str() as name, level=0):
                machine.import_module(name, function.module)


def _config_folder(machine: Machine, module: Path, path: str | None, given: bool) -> Path:
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


def compose_config(
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


def initialize_hydra(machine: Machine, call: Invocation) -> Value:
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
    folder = _config_folder(machine, machine.frames[-1].scope.module.path, path, True)
    return compose_config(machine, folder, call.text(0, "config_name"), overrides, [])


def run_hydra(machine: Machine, call: Invocation) -> Value:
    """`hydra._internal.utils._run_hydra(task_function=main, ...)`, for decorators built on it."""
    task = as_function(call.kwargs.get("task_function"))
    if task is None:
        return unknown()
    config_options = {key: value for key, value in call.kwargs.items() if key.startswith("config_")}
    config = compose_for(machine, task, Call("hydra.main", [], config_options))
    return machine.call(Value(task.undecorated()), [config], {}, call.site)


# -- instantiate -----------------------------------------------------------


def instantiate(machine: Machine, call: Invocation) -> Value:
    """`hydra.utils.instantiate(config, *args, **kwargs)`."""
    config = call.argument(0, "config")
    if config is None:
        return unknown()
    rest = call.args[1:] if "config" not in call.kwargs else call.args
    kwargs = {k: v for k, v in call.kwargs.items() if k != "config"}
    return build_target(machine, config, list(rest), kwargs, call.site)


def build_target(
    machine: Machine, config: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """Make what a config with a `_target_` or `class_path` describes; leave other values."""
    if config.sequence is not None:
        items = [build_target(machine, item, [], {}, site) for item in config.sequence]
        return Value(items, config.origin)
    settings, record = config.mapping, as_instance(config)
    if settings is None:
        if record is not None:
            mapping = machine.mapping(config) or record.attrs
            if any(key in mapping for key in class_keys("path")):
                return build_target(
                    machine, Value(dict(mapping), config.origin), args, kwargs, site
                )
        return config
    named_by = built_by(settings)
    if named_by is None:
        made = {key: build_target(machine, item, [], {}, site) for key, item in settings.items()}
        return Value(AttrDict(made, "omegaconf"), config.origin)
    target = settings[named_by]
    apart = (settings[key] for key in argument_keys(named_by) if key in settings)
    fields = next(apart, config).mapping or {}
    follow = settings.get("_recursive_", unknown()).data is not False
    merged = {
        str(key): build_target(machine, item, [], {}, site) if follow else item
        for key, item in fields.items()
        if not is_instruction(key)
    }
    merged.update(kwargs)
    positional = settings.get("_args_", unknown()).elements
    if positional is not None and not args:
        args = [build_target(machine, item, [], {}, site) for item in positional]
    func = resolve_target(machine, target)
    if settings.get("_partial_", unknown()).data is True:
        return Value(Partial(func, args, merged), config.origin)
    if func.unknown:
        return unknown(origin=config.origin)
    place = Site(target.origin.file or "", target.origin.line or 1) if target.origin else site
    return machine.call(func, args, merged, place)


def resolve_target(machine: Machine, target: Value) -> Value:
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
    return resolve_target(machine, call.args[0]) if call.args else unknown()


_HYDRA_MAIN = ("hydra.main", "nemo.core.config.hydra_runner", "hydra_zen.main", "dora.hydra_main")


def _enter_main(machine: Machine, function: Function, decorator: Value) -> Value | None:
    """`@hydra.main()`: the main function, given the configuration."""
    if path_of(decorator) not in _HYDRA_MAIN:
        return None
    config = compose_for(machine, function, as_call(decorator))
    return machine.call(Value(function.undecorated()), [config], {}, function.site)


HYDRA = Plugin(
    on_enter=_enter_main,
    calls={
        "hydra.utils.instantiate": instantiate,
        "hydra.utils.call": instantiate,
        "hydra_zen.instantiate": instantiate,
        "hydra.utils.get_class": get_class,
        "hydra.utils.get_method": get_class,
        "hydra.utils.get_object": get_class,
        "pydoc.locate": get_class,
        "hydra.initialize": initialize_hydra,
        "hydra.initialize_config_dir": initialize_hydra,
        "hydra.initialize_config_module": initialize_module,
        "hydra.compose": compose_call,
        "hydra._internal.utils._run_hydra": run_hydra,
        "hydra.core.config_store.ConfigStore.instance().store": store_config,
    },
)
