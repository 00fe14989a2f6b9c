"""Dassl, on which prompt learning is built: `--trainer CoOp --dataset-config-file ...`.

It keeps its configuration in yacs and its trainers, which the repository defines, in a registry.
"""

from __future__ import annotations

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.files import noted
from schedmate.agent.interp.libs.documented import config_defaults
from schedmate.agent.interp.libs.importing import class_named
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import as_class, as_instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.trees import attr_tree, plain_tree
from schedmate.agent.values import Value, unknown


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
    loader = cls.method("build_data_loader")
    if loader is not None:
        machine.call_function(loader, [made], {}, call.site)
    machine.record("dassl.engine.TrainerBase().evaluate", [], {}, call.site)
    return made


PLUGIN = Plugin(
    calls={
        "dassl.config.get_cfg_default": dassl_defaults,
        "dassl.engine.build_trainer": dassl_trainer,
    }
)
