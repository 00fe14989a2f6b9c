"""Classes of the repository that a library makes by a name: registered ones, and Dassl's trainers.

Dassl (`--trainer CoOp --dataset-config-file ...`) keeps its configuration in yacs and its trainers
in a registry; the repositories built on it define both and call the library in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedmate.agent.interp.invocation import Handler, Invocation
from schedmate.agent.interp.libs.configs.files import noted
from schedmate.agent.interp.nodes import attr_tree, plain_tree
from schedmate.agent.interp.objects import Class, Function, Instance
from schedmate.agent.values import Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

_DATA_HOOKS = ("build_data_loader",)


def class_named(state: State, name: str) -> Value | None:
    """The class of this name among the modules that were imported, if there is one only."""
    found: dict[int, Value] = {}
    for module in list(state.sources.modules.values()):
        if not module.loaded or name not in module.scope.names:
            continue
        value = state.getattr(Value(module), name)
        if isinstance(value.data, Class):
            found[id(value.data)] = value
    return next(iter(found.values())) if len(found) == 1 else None


def dassl_defaults(state: State, call: Invocation) -> Value:
    """`get_cfg_default()`: the library's documented defaults."""
    config = attr_tree(plain_tree(state.library.config_defaults("dassl")), "yacs")
    return noted(state, config, "dassl config")


def _at(state: State, config: Value, *path: str) -> Value:
    for part in path:
        config = (state.mapping(config) or {}).get(part, Value(None))
    return config


def dassl_trainer(state: State, call: Invocation) -> Value:
    """`build_trainer(cfg)`: the registered class, which loads its data and tests in the end."""
    config = call.argument(0, "cfg") or unknown()
    name = _at(state, config, "TRAINER", "NAME").data
    backbone = _at(state, config, "MODEL", "BACKBONE", "NAME")
    if backbone.data:
        noted(state, Value({"backbone_name": backbone}), "dassl model")
    cls = class_named(state, name) if isinstance(name, str) else None
    if cls is None:
        return unknown()
    made = state.call(cls, [config], {}, call.site)
    if isinstance(made.data, Instance):
        made.data.attrs.setdefault("cfg", config)
    for hook in _DATA_HOOKS:
        method = cls.data.lookup(hook)
        if method is not None and isinstance(method.data, Function):
            state.call_function(method.data, [made], {}, call.site)
    state.record("dassl.engine.TrainerBase().evaluate", [], {}, call.site)
    return made


HANDLERS: dict[str, Handler] = {
    "dassl.config.get_cfg_default": dassl_defaults,
    "dassl.engine.build_trainer": dassl_trainer,
}
