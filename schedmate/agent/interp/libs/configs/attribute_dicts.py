"""Dictionaries read by attribute: EasyDict, Munch, ConfigDict, yacs and namespaces."""

from __future__ import annotations

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.files import noted
from schedmate.agent.interp.libs.documented import config_defaults
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import AttrDict, as_call, as_instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.interp.values.trees import attr_tree, plain_tree
from schedmate.agent.values import Items, Value, unknown


def attr_dict(flavour: str) -> Handler:
    def build(machine: Machine, call: Invocation) -> Value:
        items: Items = {}
        given = dict(call.kwargs)
        initial = given.pop("initial_dictionary", None)
        for argument in [*call.args, *([initial] if initial is not None else [])]:
            mapping = machine.mapping(argument)
            if mapping is not None:
                items.update(mapping)
            elif argument.sequence is not None:
                for pair in argument.sequence:
                    parts = iterate(pair)
                    if parts is not None and len(parts) == 2 and parts[0].text is not None:
                        items[parts[0].text] = parts[1]
            elif argument.unknown or as_call(argument) is not None:
                return unknown(origin=argument.origin)
        items.update(given)
        made = attr_tree(Value(items), flavour)
        if call.path == "argparse.Namespace" and items:
            machine.observer.settings("namespace", made, "arguments")
        elif call.path.endswith(".HParams") and items:
            return noted(machine, made, "HParams")
        return made

    return build


def placeholder(machine: Machine, call: Invocation) -> Value:
    """A typed hole or reference: the given default, else None."""
    default = call.args[0] if call.args else Value(None)
    return default if default.known else Value(None)


def detectron_defaults(machine: Machine, call: Invocation) -> Value:
    """`get_cfg()`: the library's documented defaults, unless the repository holds its own."""
    config = attr_tree(plain_tree(config_defaults("detectron2")), "yacs")
    return noted(machine, config, "detectron2 config")


_ATTR_DICTS = {
    "easydict.EasyDict": "attr", "munch.Munch": "attr", "munch.munchify": "attr",
    "munch.DefaultMunch.fromDict": "attr", "munch.Munch.fromDict": "attr", "addict.Dict": "attr",
    "box.Box": "attr", "attrdict.AttrDict": "attr", "dotmap.DotMap": "attr", "bunch.Bunch": "attr",
    "*.HParams": "attr",
    "types.SimpleNamespace": "namespace", "argparse.Namespace": "namespace",
    "yacs.config.CfgNode": "yacs", "yacs.config.CN": "yacs", "fvcore.common.config.CfgNode": "yacs",
    "detectron2.config.CfgNode": "yacs",
    "ml_collections.ConfigDict": "ml_collections",
    "ml_collections.FrozenConfigDict": "ml_collections",
    "ml_collections.config_dict.ConfigDict": "ml_collections",
    "ml_collections.config_dict.create": "ml_collections",
    "mmcv.ConfigDict": "mmengine", "mmengine.ConfigDict": "mmengine", "mmcv.Config": "mmengine",
    "mmengine.Config": "mmengine", "mmengine.config.Config": "mmengine",
    "mmengine.config.ConfigDict": "mmengine", "transformers.PretrainedConfig": "attr",
    "prodict.Prodict.from_dict": "attr", "ast_attrdict.AttrDict": "attr",
}  # fmt: skip

YACS_NODES = frozenset(path for path, flavour in _ATTR_DICTS.items() if flavour == "yacs")

_CALLS: dict[str, Handler] = {
    **{path: attr_dict(flavour) for path, flavour in _ATTR_DICTS.items()},
    "detectron2.config.get_cfg": detectron_defaults,
    "ml_collections.config_dict.placeholder": placeholder,
    "ml_collections.config_dict.FieldReference": placeholder,
    "ml_collections.FieldReference": placeholder,
}


def _constructed(machine: Machine, instance: Value, call: Invocation) -> Value | None:
    """An object of a class built on yacs' node is such a node."""
    owner = as_instance(instance)
    if owner is None or YACS_NODES.isdisjoint(owner.cls.external_bases()):
        return None
    return _CALLS["yacs.config.CfgNode"](machine, call)


_TYPES = ("easydict.EasyDict", "munch.Munch", "addict.Dict", "yacs.config.CfgNode")

PLUGIN = Plugin(types=dict.fromkeys(_TYPES, (AttrDict,)), calls=_CALLS, on_constructed=_constructed)
