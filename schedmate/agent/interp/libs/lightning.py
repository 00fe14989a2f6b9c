"""Models Lightning: trainers that run hooks, and its command line, which jsonargparse reads.

jsonargparse's `CLI` makes options of the parameters of functions, nested ones and classes too.
"""

from __future__ import annotations

from collections.abc import Iterator

from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.trees import built_by, merge, set_dotted
from schedmate.agent.interp.libs.config_files import read_file
from schedmate.agent.interp.libs.filesystem import class_named
from schedmate.agent.interp.libs.hydra import build_target
from schedmate.agent.interp.libs.parsers import flag_origin, spelled_value
from schedmate.agent.interp.libs.records import (
    annotations_of,
    call_with_settings,
    cast_text,
    is_record,
    record_from_command_line,
    record_parameters,
    update_record,
)
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    Call,
    Class,
    Function,
    Invocation,
    Site,
    as_class,
    as_function,
    as_instance,
    native,
)
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.interp.values.mappings import plain_tree
from schedmate.agent.values import Items, Origin, Value, unknown


def jsonargparse_cli(machine: Machine, call: Invocation) -> Value:
    """`CLI(function)`, `CLI({"train": function, ...})` and `CLI([function, ...])`."""
    components = call.argument(0, "components")
    argv = iterate(call.kwargs.get("args")) or machine.argv[1:]
    while components is not None:
        function = as_function(components)
        if function is not None:
            return _call_component(machine, function, argv)
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


def _call_component(machine: Machine, function: Function, argv: list[Value]) -> Value:
    function = function.undecorated()
    return call_with_settings(machine, function, _component_settings(machine, function, argv))


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


_NAMES = ("CLI", "auto_cli", "cli.CLI", "_cli.CLI", "_cli.auto_cli")

JSONARGPARSE = Plugin(calls={f"jsonargparse.{name}": jsonargparse_cli for name in _NAMES})


# Lightning: trainers that run hooks, and its command line.


def trainer_fit(machine: Machine, call: Invocation) -> Value | None:
    """A Lightning trainer runs hooks of the module and the data module."""
    path = call.path
    machine.record(path, call.args, call.kwargs, call.site)
    model = call.argument(0, "model")
    data = call.argument(1, "train_dataloaders", "datamodule") or call.kwargs.get("datamodule")
    for target, hooks in ((data, _DATA_HOOKS), (model, _MODULE_HOOKS)):
        owner = as_instance(target)
        if target is None or owner is None:
            continue
        for name, args in hooks:
            method = owner.cls.method(name)
            if method is not None:
                machine.call_function(method, [target, *args], {}, call.site)
    return Value(None)


_DATA_HOOKS: tuple[tuple[str, list[Value]], ...] = (
    ("prepare_data", []),
    ("setup", [Value("fit")]),
    ("train_dataloader", []),
    ("val_dataloader", []),
)
_MODULE_HOOKS: tuple[tuple[str, list[Value]], ...] = (
    ("prepare_data", []),
    ("setup", [Value("fit")]),
    ("configure_model", []),
    ("configure_optimizers", []),
    ("train_dataloader", []),
    ("val_dataloader", []),
)


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


_LIGHTNING = ("pytorch_lightning.Trainer()", "pytorch_lightning.trainer.Trainer()",
              "lightning.Trainer()", "pytorch_lightning.trainer.trainer.Trainer()")  # fmt: skip
_CLI = ("pytorch_lightning.cli.LightningCLI", "pytorch_lightning.utilities.cli.LightningCLI",
        "lightning.cli.LightningCLI", "pytorch_lightning.LightningCLI")  # fmt: skip

LIGHTNING = Plugin(
    calls={
        **{f"{trainer}.fit": trainer_fit for trainer in _LIGHTNING},
        **dict.fromkeys(_CLI, lightning_cli),
    },
    attributes={"load_from_checkpoint": _load_from_checkpoint},
    on_constructed=_constructed_cli,
)
