"""Models Hydra, OmegaConf, jsonargparse and Lightning, which build a program of its configuration.

Hydra composes the configuration that a decorated main function receives, and instantiates targets.
OmegaConf merges mappings and records, as do functions of other libraries. jsonargparse's `CLI`
makes options of the parameters of functions and classes; Lightning's command line is one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
from schedmate.agent.interp.libs.files import class_named, note_settings, read_file
from schedmate.agent.interp.libs.parsers import flag_origin, spelled_value
from schedmate.agent.interp.libs.records import (
    annotations_of,
    call_with_settings,
    cast_text,
    is_record,
    make_record,
    record_attributes,
    record_from_command_line,
    record_parameters,
    update_record,
)
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Class,
    Function,
    Invocation,
    Partial,
    Site,
    Symbol,
    as_call,
    as_class,
    as_function,
    as_instance,
    as_symbol,
    is_own,
    modelled,
    native,
    path_of,
)
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import iterate, set_path
from schedmate.agent.interp.values.plain import attr_tree, is_bounded, plain_tree
from schedmate.agent.values import Items, Origin, Value, lifted, unknown
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
    config = call.need(0, "cfg")
    for part in call.need_text(1, "key").split("."):
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


def register_resolver(machine: Machine, call: Invocation) -> Value:
    """`OmegaConf.register_new_resolver(name, function)`: called where a configuration uses it."""
    name, resolver = call.argument(0, "name"), call.argument(1, "resolver")
    if name is not None and resolver is not None and as_function(resolver) is not None:

        def resolve(arguments: list[Value]) -> Value:
            return machine.call(resolver, arguments, {}, call.site)

        machine.shared.setdefault(RESOLVERS, {})[str(name.data)] = resolve
    return Value(None)


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
    config = call.need(0, "config")
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


# jsonargparse: functions and classes whose parameters are options.


def jsonargparse_cli(machine: Machine, call: Invocation) -> Value:
    """`CLI(function)`, `CLI({"train": function, ...})` and `CLI([function, ...])`."""
    components = call.argument(0, "components")
    argv = iterate(call.kwargs.get("args")) or machine.argv[1:]
    while components is not None:
        function = as_function(components)
        if function is not None:
            function = function.undecorated()
            settings = _component_settings(machine, function, argv)
            return call_with_settings(machine, function, settings)
        chosen = _chosen_component(components, argv)
        if chosen is None:
            break
        components, argv = chosen
    cls = as_class(components)
    init = cls.method("__init__") if cls is not None else None
    if components is None or cls is None or init is None or is_record(components):
        return record_from_command_line(machine, call)
    return _call_method(machine, components, cls, init, argv)


def _call_method(
    machine: Machine, component: Value, cls: Class, init: Function, argv: list[Value]
) -> Value:
    """An object of a class, and the method of it that a word names, each with its own options."""
    at = next((n for n, word in enumerate(argv) if word.text and cls.method(word.text)), len(argv))
    settings = _component_settings(machine, init, argv[:at])
    machine.observer.settings(cls.name, Value(dict(settings)), "arguments")
    kwargs = {str(key): value for key, value in settings.items()}
    made = machine.call(component, [], kwargs, init.site)
    method = cls.method(argv[at].text or "") if at < len(argv) else None
    if method is None:
        return made
    return call_with_settings(
        machine, method, _component_settings(machine, method, argv[at + 1 :]), [made]
    )


def _chosen_component(components: Value, argv: list[Value]) -> tuple[Value, list[Value]] | None:
    """The function that a word names, and the other words."""
    options = dict(components.mapping or {})
    for component in components.sequence or ():
        function = as_function(component)
        if function is not None:
            options[function.name] = component
    for at, token in enumerate(argv):
        if token.text is not None and token.text in options:
            return options[token.text], [*argv[:at], *argv[at + 1 :]]
    return None


def _component_settings(machine: Machine, function: Function, argv: list[Value]) -> Items:
    """What the words say of a function's parameters, and of a method's but the object's own."""
    notes = annotations_of(function)
    notes.pop("self", None)
    config = _read_arguments(machine, function, notes, argv)
    records = record_parameters(machine, function)
    settings: Items = {}
    for name in notes:
        default = records.get(name, function.defaults.get(name))
        setting = config.mapping.get(name) if config.mapping is not None else None
        value = default if setting is None else _argument(machine, setting, default, function)
        if value is not None:
            settings[name] = value
    return settings


def _read_arguments(
    machine: Machine, function: Function, notes: dict[str, str], argv: list[Value]
) -> Value:
    """What the words say, as a tree by parameter."""
    config = Value({})
    required = [name for name in notes if name not in function.defaults]
    for key, value, token in command_options(argv):
        if not key:
            if required:
                config = set_dotted(config, required.pop(0), token)
            continue
        if key == "config" and value is not None and key not in notes:
            loaded = read_file(machine, value)
            if loaded is not None and loaded.mapping is not None:
                config = merge(config, plain_tree(loaded))
            continue
        head, dot, _ = key.partition(".")
        if head in notes:
            setting = _typed_word(
                machine, value, notes[head] if not dot else "", flag_origin(token)
            )
            config = set_dotted(config, into_init_args(config, key), setting)
    return config


def command_options(argv: list[Value]) -> Iterator[tuple[str, Value | None, Value]]:
    """The options of a command with their values and tokens; other words have no name."""
    words = iter(zip(argv, [*argv[1:], Value("--")], strict=True))
    for token, after in words:
        text = str(token.data)
        if not text.startswith("--") and text != "-c":
            yield "", token, token
            continue
        key, equals, given = text.lstrip("-").partition("=")
        value = Value(given, token.origin) if equals else None
        if value is None and not str(after.data).startswith("--"):
            value, _ = next(words)
        yield key, value, token


def _typed_word(machine: Machine, value: Value | None, note: str, origin: Origin | None) -> Value:
    """A word as its parameter's annotation wants it; the name of a class as the class."""
    if value is None:
        return Value(True, origin)
    text = value.text
    if text is None:
        return Value(value.data, origin)
    if class_named(machine, text.rpartition(".")[2]) is not None:
        return Value({"class_path": value}, value.origin)
    return cast_text(value, Value(None), note, origin) if note else spelled_value(value, origin)


def into_init_args(config: Value, key: str) -> str:
    """`data.path` as `data.init_args.path` where `data` names a class."""
    head, _, rest = key.partition(".")
    section = config.mapping.get(head) if config.mapping is not None else None
    named = section is not None and section.mapping is not None and built_by(section.mapping)
    if not rest or not named or rest.startswith(("init_args", "class_path")):
        return key
    return f"{head}.init_args.{rest}"


def _argument(machine: Machine, setting: Value, default: Value | None, function: Function) -> Value:
    """A parameter's value: an object of the class that is named, a record with fields set."""
    if setting.mapping is None:
        return setting
    if built_by(setting.mapping) is not None:
        return build_target(machine, setting, [], {}, function.site)
    if default is not None and as_instance(default) is not None:
        update_record(default, setting.mapping)
        return default
    return setting if default is None else merge(default, setting)


# Lightning: trainers that run hooks, and its command line.


def trainer_fit(machine: Machine, call: Invocation) -> Value | None:
    """A Lightning trainer runs hooks of the module and the data module."""
    path = call.path
    machine.record(path, call.args, call.kwargs, call.site)
    model = call.argument(0, "model")
    data = call.argument(1, "train_dataloaders", "datamodule") or call.kwargs.get("datamodule")
    for target in (data, model):
        owner = as_instance(target)
        if target is None or owner is None:
            continue
        for name in _HOOKS:
            method = owner.cls.method(name)
            if method is not None:
                args = [target, Value("fit")] if name == "setup" else [target]
                machine.call_function(method, args, {}, call.site)
    return Value(None)


_HOOKS = (
    "prepare_data", "setup", "configure_model", "configure_optimizers", "train_dataloader",
    "val_dataloader",
)  # fmt: skip


def lightning_cli(machine: Machine, call: Invocation) -> Value:
    """Read the sub-command, `--config` files and dotted options, build and fit what they say."""
    config = Value({})
    argv = machine.argv[1:]
    subcommand = next(
        (a.data for a in argv if a.data in ("fit", "validate", "test", "predict")), None
    )
    defaults = call.kwargs.get("parser_kwargs")
    mapping = machine.mapping(defaults)
    for section in (mapping or {}, (machine.mapping((mapping or {}).get("fit", Value({}))) or {})):
        for path in iterate(section.get("default_config_files", Value([]))) or []:
            config = _lay_config_file(machine, config, path, subcommand)
    for key, value, token in command_options(argv):
        argument = Value(str(value.data) if value is not None else "true", token.origin)
        if key in ("config", "c"):
            config = _lay_config_file(machine, config, argument, subcommand)
        elif key in ("model", "data", "trainer.logger") and not str(argument.data).startswith("{"):
            config = set_dotted(config, f"{key}.class_path", argument)
        elif key:
            setting = spelled_value(argument, token.origin)
            config = set_dotted(config, into_init_args(config, key), setting)
    if mapping is not None and mapping.get("parser_mode", Value(None)).data == "omegaconf":
        config = resolve_interpolations(config)
    machine.observer.settings("lightning", config, "config")
    return _run_cli(machine, call, config)


def _lay_config_file(machine: Machine, config: Value, path: Value, subcommand: object) -> Value:
    loaded = read_file(machine, path)
    if loaded is None or loaded.mapping is None:
        return config
    inner = loaded.mapping.get(subcommand)
    if inner is not None and inner.mapping is not None and "model" not in loaded.mapping:
        loaded = inner
    if loaded.mapping is None:
        return config
    return merge(config, plain_tree(loaded))


def _run_cli(machine: Machine, call: Invocation, config: Value) -> Value:
    sections = machine.mapping(config) or {}
    model = _cli_part(machine, call.argument(0, "model_class"), sections.get("model"), call.site)
    data = _cli_part(machine, call.argument(1, "datamodule_class"), sections.get("data"), call.site)
    defaults = call.kwargs.get("trainer_defaults")
    trainer = dict(machine.mapping(defaults) or {})
    trainer.update(machine.mapping(sections.get("trainer", Value({}))) or {})
    kwargs = {str(key): value for key, value in trainer.items()}
    machine.record("pytorch_lightning.Trainer", [], kwargs, call.site)
    fit = Invocation("pytorch_lightning.Trainer().fit", [model], {"datamodule": data}, call.site)
    trainer_fit(machine, fit)
    parts = {"model": model, "datamodule": data, "trainer": unknown("trainer")}
    return Value(Call("pytorch_lightning.cli.LightningCLI", call.args, call.kwargs, parts))


def _cli_part(machine: Machine, kind: Value | None, section: Value | None, site: Site) -> Value:
    mapping = machine.mapping(section) or {}
    if "class_path" in mapping:
        assert section is not None
        return build_target(machine, section, [], {}, site)
    if kind is None or as_class(kind) is None:
        return unknown()
    kwargs = {
        str(key): build_target(machine, value, [], {}, site) for key, value in mapping.items()
    }
    return machine.call(kind, [], kwargs, site)


def _constructed_cli(machine: Machine, instance: Value, call: Invocation) -> Value | None:
    """A class built on `LightningCLI` runs all that there is when it is constructed."""
    owner = as_instance(instance)
    bases = owner.cls.external_bases() if owner is not None else []
    if owner is None or {"LightningCLI", "CLI"}.isdisjoint(map(classes.last_part, bases)):
        return None
    method = owner.cls.method("add_arguments_to_parser")
    if method is not None:
        machine.call_function(method, [instance, unknown("parser")], {}, call.site)
    lightning_cli(machine, call)
    return instance


def _load_from_checkpoint(machine: Machine, base: Value) -> Value | None:
    """`Module.load_from_checkpoint(path)` of a class that does not define it: a new object."""
    name = "load_from_checkpoint"
    cls = as_class(base)
    if cls is None or cls.lookup(name) is not None:
        return None
    if not classes.is_training_module(cls):
        return None
    return native(name, lambda machine, call: machine.call(base, [], {}, call.site))


HYDRA = Plugin(
    types={"omegaconf.DictConfig": (AttrDict,), "omegaconf.ListConfig": (list,)},
    calls=modelled("hydra", globals()),
    attributes={"load_from_checkpoint": _load_from_checkpoint},
    on_enter=_enter_main,
    on_constructed=_constructed_cli,
)
