"""Lightning: trainers that run hooks, and its command line."""

from __future__ import annotations

from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.trees import merge, set_dotted
from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import spelled
from schedmate.agent.interp.libs.cli.jsonargparse import into_arguments, options
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.libs.hydra import build
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import native
from schedmate.agent.interp.objects import Call, Site, as_class, as_instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.interp.values.trees import plain_tree
from schedmate.agent.values import Value, unknown


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
            config = _layer(machine, config, path, subcommand)
    for key, value, token in options(argv):
        given = Value(str(value.data) if value is not None else "true", token.origin)
        if key in ("config", "c"):
            config = _layer(machine, config, given, subcommand)
        elif key in ("model", "data", "trainer.logger") and not str(given.data).startswith("{"):
            config = set_dotted(config, f"{key}.class_path", given)
        elif key:
            setting = spelled(given, token.origin)
            config = set_dotted(config, into_arguments(config, key), setting)
    if mapping is not None and mapping.get("parser_mode", Value(None)).data == "omegaconf":
        config = resolve_interpolations(config)
    machine.observer.settings("lightning", config, "config")
    return _run_cli(machine, call, config)


def _layer(machine: Machine, config: Value, path: Value, subcommand: object) -> Value:
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
        return build(machine, section, [], {}, site)
    if kind is None or as_class(kind) is None:
        return unknown()
    kwargs = {str(key): build(machine, value, [], {}, site) for key, value in mapping.items()}
    return machine.call(kind, [], kwargs, site)


def _constructed(machine: Machine, instance: Value, call: Invocation) -> Value | None:
    """A class built on `LightningCLI` runs all that there is when it is constructed."""
    owner = as_instance(instance)
    bases = owner.cls.external_bases() if owner is not None else []
    if owner is None or {"LightningCLI", "CLI"}.isdisjoint(map(classes.last, bases)):
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

PLUGIN = Plugin(
    calls={
        **{f"{trainer}.fit": trainer_fit for trainer in _LIGHTNING},
        **dict.fromkeys(_CLI, lightning_cli),
    },
    attributes={"load_from_checkpoint": _load_from_checkpoint},
    on_constructed=_constructed,
)
