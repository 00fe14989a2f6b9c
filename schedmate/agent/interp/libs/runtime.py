"""Libraries that run what they are given: launchers, trainers, wrappers, registries."""

from __future__ import annotations

from schedmate.agent.configs import merge, parse_scalar, resolve_interpolations, set_dotted
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.libs.hydra import build
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.nodes import plain_tree
from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Call,
    Class,
    Function,
    Instance,
    Site,
    Symbol,
)
from schedmate.agent.interp.trace import Settings
from schedmate.agent.interp.values_ops import iterate
from schedmate.agent.values import Value, unknown

_SETTINGS = ("config", "train_loop_config", "param_space")
_RECORDED = ("model_fn", "train_loop_per_worker", "trainable", "env_fns")
"""Arguments of a constructor, whose object is what the call gives."""


def _takes_one(function: Value) -> bool:
    data = function.data
    return not isinstance(data, Function) or bool(data.node.args.args)


def callback(position: int | None, how: str, keyword: str) -> Handler:
    """A model of a call that runs a function given at `position` or as `keyword`."""

    def run(machine: Machine, call: Invocation) -> Value | None:
        function = call.argument(position, keyword)
        if function is not None and isinstance(function.data, list) and function.data:
            function = function.data[0]  # one of several alike
        kinds = (Function, Class, Bound, Instance) if how == "rest" else (Function, Class)
        if function is None or not isinstance(function.data, kinds):
            return None
        if how == "rest":
            machine.call(function, call.args[1:], dict(call.kwargs), call.site)
            return None  # a handle of the job
        given = call.kwargs.get("args")
        if given is None and how == "rank" and len(call.args) > 1:
            given = call.args[1]
        args = (iterate(given) if given is not None else None) or []
        if how == "rank":
            args = [Value(0), *args]
        elif how == "none":
            args = []
        elif how == "config":
            settings = (call.kwargs[name] for name in _SETTINGS if name in call.kwargs)
            args = [next(settings, unknown())] if _takes_one(function) else []
        result = machine.call(function, args, {}, call.site)
        return None if keyword in _RECORDED else result

    return run


def identity(machine: Machine, call: Invocation) -> Value:
    return call.argument(0, "model", "module", "fun", "cfg") or unknown()


def fluent(machine: Machine, call: Invocation) -> Value | None:
    """`x.to(device)`: x itself, for objects of unknown libraries and for networks."""
    base = call.base
    if base is None or not isinstance(base.data, Instance | Call):
        return None
    name = classes.last(call.path)
    if name != "to" and (call.kwargs or len(call.args) > 1):
        return None  # a library's own `model.train(data, epochs=3)`
    kind = call.argument(0, "dtype") if name == "to" else Value(name)
    if kind is not None and isinstance(kind.data, Symbol | str):
        machine.record("torch.nn.Module.to", [kind], {}, call.site)
    return base


def prepare(machine: Machine, call: Invocation) -> Value:
    """`accelerator.prepare(a, b)` and `fabric.setup(a, b)`: the same objects."""
    return call.args[0] if len(call.args) == 1 else Value(tuple(call.args))


def wandb_init(machine: Machine, call: Invocation) -> Value:
    """`wandb.init(config=...)`: the run's config, which programs read their settings back from."""
    given = call.kwargs.get("config")
    mapping = machine.mapping(given) if given is not None else None
    if given is not None and mapping is None and isinstance(given.data, Instance):
        mapping = given.data.attrs
    config = Value(AttrDict(dict(mapping or {}), "attr"))
    machine.shared["wandb.config"] = config
    if mapping:
        machine.trace.settings.append(Settings("wandb", config, "config"))
    return Value(Call(call.path, call.args, call.kwargs, {"config": config}))


def deepspeed_initialize(machine: Machine, call: Invocation) -> Value:
    config = call.kwargs.get("config") or call.kwargs.get("config_params")
    if config is not None:
        loaded = read_file(machine, config) if isinstance(config.data, str) else config
        if loaded is not None and isinstance(loaded.data, dict):
            machine.trace.settings.append(Settings("deepspeed", loaded, "config"))
    model = call.argument(1, "model") or unknown()
    optimizer = call.argument(2, "optimizer") or unknown()
    return Value((model, optimizer, unknown(), unknown()))


def trainer_fit(machine: Machine, call: Invocation) -> Value | None:
    """A Lightning trainer runs hooks of the module and the data module."""
    path = call.path
    machine.record(path, call.args, call.kwargs, call.site)
    model = call.argument(0, "model")
    data = call.argument(1, "train_dataloaders", "datamodule") or call.kwargs.get("datamodule")
    for target, hooks in ((data, _DATA_HOOKS), (model, _MODULE_HOOKS)):
        if target is None or not isinstance(target.data, Instance):
            continue
        for name, args in hooks:
            method = target.data.cls.lookup(name)
            if method is not None and isinstance(method.data, Function):
                machine.call_function(method.data, [target, *args], {}, call.site)
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


# -- LightningCLI ----------------------------------------------------------


def lightning_cli(machine: Machine, call: Invocation) -> Value:
    """Read the sub-command, `--config` files and dotted options, build and fit what they say."""
    config = Value({})
    argv = machine.argv[1:]
    subcommand = next(
        (a.data for a in argv if a.data in ("fit", "validate", "test", "predict")), None
    )
    defaults = call.kwargs.get("parser_kwargs")
    mapping = machine.mapping(defaults) if defaults is not None else None
    for section in (mapping or {}, (machine.mapping((mapping or {}).get("fit", Value({}))) or {})):
        for path in iterate(section.get("default_config_files", Value([]))) or []:
            config = _layer(machine, config, path, subcommand)
    index = 0
    while index < len(argv):
        text = str(argv[index].data)
        if not text.startswith("--") and text != "-c":
            index += 1
            continue
        key, equals, given = text.lstrip("-").partition("=")
        origin = argv[index].origin
        if not equals and index + 1 < len(argv):
            index += 1
            given = str(argv[index].data)
        index += 1
        if key in ("config", "c"):
            config = _layer(machine, config, Value(given, origin), subcommand)
        elif key in ("model", "data", "trainer.logger") and not given.startswith("{"):
            config = set_dotted(config, f"{key}.class_path", Value(given, origin))
        else:
            config = set_dotted(config, _into_init(config, key), wrap(parse_scalar(given), origin))
    if mapping is not None and mapping.get("parser_mode", Value(None)).data == "omegaconf":
        config = resolve_interpolations(config)
    machine.trace.settings.append(Settings("lightning", config, "config"))
    return _run_cli(machine, call, config)


def _into_init(config: Value, key: str) -> str:
    head, _, rest = key.partition(".")
    section = config.data.get(head) if isinstance(config.data, dict) else None
    if section is not None and isinstance(section.data, dict) and "class_path" in section.data:
        return key if rest.startswith(("init_args", "class_path")) else f"{head}.init_args.{rest}"
    return key


def _layer(machine: Machine, config: Value, path: Value, subcommand: object) -> Value:
    loaded = read_file(machine, path)
    if loaded is None or not isinstance(loaded.data, dict):
        return config
    inner = loaded.data.get(subcommand)
    if inner is not None and isinstance(inner.data, dict) and "model" not in loaded.data:
        loaded = inner
    if not isinstance(loaded.data, dict):
        return config
    return merge(config, plain_tree(loaded))


def _run_cli(machine: Machine, call: Invocation, config: Value) -> Value:
    sections = machine.mapping(config) or {}
    model = _cli_part(machine, call.argument(0, "model_class"), sections.get("model"), call.site)
    data = _cli_part(machine, call.argument(1, "datamodule_class"), sections.get("data"), call.site)
    defaults = call.kwargs.get("trainer_defaults")
    trainer = dict((machine.mapping(defaults) if defaults is not None else None) or {})
    trainer.update(machine.mapping(sections.get("trainer", Value({}))) or {})
    kwargs = {str(key): value for key, value in trainer.items()}
    machine.record("pytorch_lightning.Trainer", [], kwargs, call.site)
    fit = Invocation("pytorch_lightning.Trainer().fit", [model], {"datamodule": data}, call.site)
    trainer_fit(machine, fit)
    parts = {"model": model, "datamodule": data, "trainer": unknown("trainer")}
    return Value(Call("pytorch_lightning.cli.LightningCLI", call.args, call.kwargs, parts))


def _cli_part(machine: Machine, kind: Value | None, section: Value | None, site: Site) -> Value:
    mapping = (machine.mapping(section) if section is not None else None) or {}
    if "class_path" in mapping:
        assert section is not None
        return build(machine, section, [], {}, site)
    if kind is None or not isinstance(kind.data, Class):
        return unknown()
    kwargs = {str(key): build(machine, value, [], {}, site) for key, value in mapping.items()}
    return machine.call(kind, [], kwargs, site)


def constructed(machine: Machine, instance: Value, cls: Class, call: Invocation) -> bool:
    """A class built on a library's was constructed; True when the library took over."""
    bases = {classes.last(base) for base in cls.external_bases()}
    if bases & {"LightningCLI", "CLI"}:
        for name in ("add_arguments_to_parser",):
            method = cls.lookup(name)
            if method is not None and isinstance(method.data, Function):
                machine.call_function(method.data, [instance, unknown("parser")], {}, call.site)
        lightning_cli(machine, call)
        return True
    return False


_LIGHTNING = ("pytorch_lightning.Trainer()", "pytorch_lightning.trainer.Trainer()",
              "lightning.Trainer()", "pytorch_lightning.trainer.trainer.Trainer()")  # fmt: skip
_CLI = ("pytorch_lightning.cli.LightningCLI", "pytorch_lightning.utilities.cli.LightningCLI",
        "lightning.cli.LightningCLI", "pytorch_lightning.LightningCLI")  # fmt: skip

HANDLERS: dict[str, Handler] = {
    **{f"{trainer}.fit": trainer_fit for trainer in _LIGHTNING},
    **dict.fromkeys(_CLI, lightning_cli),
    "accelerate.Accelerator().prepare": prepare,
    "lightning.fabric.Fabric().setup": prepare,
    "lightning.Fabric().setup": prepare,
    "deepspeed.initialize": deepspeed_initialize,
    "wandb.init": wandb_init,
}
