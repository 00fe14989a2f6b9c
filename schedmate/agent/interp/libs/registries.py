"""Classes of the repository that a library makes by a name: registered ones, and Dassl's trainers.

Dassl (`--trainer CoOp --dataset-config-file ...`) keeps its configuration in yacs and its trainers
in a registry; the repositories built on it define both and call the library in between.
"""

from __future__ import annotations

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.files import noted
from schedmate.agent.interp.libs.documented import config_defaults
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import as_class, as_instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.trees import attr_tree, plain_tree
from schedmate.agent.values import Value, unknown

_DATA_HOOKS = ("build_data_loader",)


def class_named(machine: Machine, name: str) -> Value | None:
    """The class of this name among the modules that were imported, if there is one only."""
    found: dict[int, Value] = {}
    for module in list(machine.sources.modules.values()):
        if not module.loaded or name not in module.scope.names:
            continue
        value = machine.getattr(Value(module), name)
        if as_class(value) is not None:
            found[id(value.data)] = value
    return next(iter(found.values())) if len(found) == 1 else None


def dassl_defaults(machine: Machine, call: Invocation) -> Value:
    """`get_cfg_default()`: the library's documented defaults."""
    config = attr_tree(plain_tree(config_defaults("dassl")), "yacs")
    return noted(machine, config, "dassl config")


def _at(machine: Machine, config: Value, *path: str) -> Value:
    for part in path:
        config = (machine.mapping(config) or {}).get(part, Value(None))
    return config


def dassl_trainer(machine: Machine, call: Invocation) -> Value:
    """`build_trainer(cfg)`: the registered class, which loads its data and tests in the end."""
    config = call.argument(0, "cfg") or unknown()
    name = _at(machine, config, "TRAINER", "NAME").text
    backbone = _at(machine, config, "MODEL", "BACKBONE", "NAME")
    if backbone.data:
        noted(machine, Value({"backbone_name": backbone}), "dassl model")
    named = class_named(machine, name) if name is not None else None
    cls = as_class(named)
    if named is None or cls is None:
        return unknown()
    made = machine.call(named, [config], {}, call.site)
    trainer = as_instance(made)
    if trainer is not None:
        trainer.attrs.setdefault("cfg", config)
    for hook in _DATA_HOOKS:
        method = cls.method(hook)
        if method is not None:
            machine.call_function(method, [made], {}, call.site)
    machine.record("dassl.engine.TrainerBase().evaluate", [], {}, call.site)
    return made


PLUGIN = Plugin(
    calls={
        "dassl.config.get_cfg_default": dassl_defaults,
        "dassl.engine.build_trainer": dassl_trainer,
    }
)
