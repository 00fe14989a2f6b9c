"""Methods of configuration nodes: yacs, mmengine, ml_collections, HParams."""

from __future__ import annotations

import re
from pathlib import Path

from schedmate.agent.configs.detectron import read_detectron
from schedmate.agent.configs.trees import merge, set_dotted
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import parse_flags, spelled
from schedmate.agent.interp.libs.configs.files import required
from schedmate.agent.interp.libs.configs.omegaconf import as_mapping, with_dotlist
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import itself
from schedmate.agent.interp.objects import AttrDict, as_node
from schedmate.agent.interp.plugins import ANY, Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.interp.values.trees import attr_tree, deep_copy, plain_tree, replace_items
from schedmate.agent.values import Origin, Value, unknown
from schedmate.errors import InputError


def _merge_dotted(machine: Machine, call: Invocation) -> Value:
    mapping = machine.mapping(call.first)
    for key, value in (mapping or {}).items():
        _set(call.owner, str(key), value, "mmengine")
    if mapping:
        mapping.clear()  # settings from now on of the config alone
    return Value(None)


def _set(config: Value, key: str, value: Value, flavour: str | None = None) -> None:
    """Set an item of a configuration node by its dotted name, in place."""
    node = as_node(config)
    kept = flavour if flavour is not None else node.flavour if node is not None else ""
    replace_items(config, attr_tree(set_dotted(plain_tree(config), key, value), kept))


def _merge_file(machine: Machine, call: Invocation) -> Value:
    found = required(machine, call.argument(0, "cfg_filename") or unknown())
    if found is None:
        return Value(None)
    try:
        loaded = _of_module(machine, found) or read_detectron(found, machine.sources.root)
    except InputError as error:
        machine.observer.warns(str(error))
        return Value(None)
    replace_items(call.owner, attr_tree(merge(plain_tree(call.owner), loaded), "yacs"))
    return Value(None)


def _of_module(machine: Machine, path: Path) -> Value | None:
    """The `cfg` of a Python file, which yacs merges as well; None for other files."""
    if path.suffix != ".py":
        return None
    module = machine.sources.module(path, path.stem)
    machine.load(module)
    held = machine.module_attr(module, "cfg")
    return plain_tree(held) if held is not None and held.mapping is not None else Value({})


def _merge_list(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.first) or []
    if any(i.text is not None and "=" in i.text for i in items[::2]):
        replace_items(call.owner, attr_tree(with_dotlist(plain_tree(call.owner), items), "yacs"))
        return Value(None)
    for key, value in zip(items[::2], items[1::2], strict=False):
        if key.text is not None:
            _set(call.owner, key.text, spelled(value, value.origin), "yacs")
    return Value(None)


def _merge_flags(machine: Machine, call: Invocation) -> Value:
    """sconf's `config.argv_update(["--lr", "0.1"])`."""
    given = iterate(call.first)
    flags, _ = parse_flags(given or machine.argv[1:])
    for name, values, flag in flags:
        parsed = [spelled(value, value.origin) for value in values]
        origin = values[0].origin if values else flag.origin
        value = parsed[0] if len(parsed) == 1 else Value(parsed or True, origin)
        _set(call.owner, name, value)
    return Value(None)


def _merge_other(machine: Machine, call: Invocation) -> Value:
    mapping = as_mapping(machine, call.args[0]) if call.args else Value({})
    if mapping.mapping is not None:
        node = as_node(call.owner)
        merged = merge(plain_tree(call.owner), plain_tree(mapping))
        replace_items(call.owner, attr_tree(merged, node.flavour if node is not None else ""))
    return Value(None)


_OVERRIDE = re.compile(r"(?<![\w.])([\w.]++)\s*+=\s*+(\[[^\]]{0,1000}\]|[^,\n]*)")


def _hparams_parse(machine: Machine, call: Invocation) -> Value:
    """`HParams.parse("epochs=800,sizes=[1,2]")`: overrides in one text, by commas."""
    given = call.args[0] if call.args else call.kwargs.get("values", unknown())
    if given.text is not None:
        for key, text in _OVERRIDE.findall(given.text):
            _set(call.owner, key, spelled(Value(text.strip().strip("'\"")), given.origin))
    return call.owner


def _with_changes(machine: Machine, call: Invocation) -> Value:
    node = as_node(call.owner)
    if node is None:
        return unknown()
    return Value(AttrDict({**node, **call.kwargs}, node.flavour), call.owner.origin)


def _set_default(machine: Machine, call: Invocation) -> Value:
    """absl's `FLAGS.set_default("lr", 0.03)`: what holds where the command does not say."""
    name, value, flags = call.text(0, "name"), call.argument(1, "value"), call.owner.mapping
    if name is not None and value is not None and flags is not None:
        flag = flags.get(name)
        if flag is None or flag.origin is None or flag.origin.source != "command":
            origin = Origin("default", call.site.file, call.site.line)
            flags[name] = Value(value.data, origin)
    return Value(None)


_COPIES = ("clone", "copy_and_resolve_references")
_PLAIN = ("_asdict", "to_dict", "flag_values_dict", "toDict", "as_dict")

PLUGIN = Plugin(
    methods={
        ANY: {
            "_replace": _with_changes,
            "parse": _hparams_parse,
            "merge_from_file": _merge_file,
            "merge_from_list": _merge_list,
            "merge_with_dotlist": _merge_list,
            "merge_from_other_cfg": _merge_other,
            "merge_from_dict": _merge_dotted,
            "merge_with": _merge_other,
            "argv_update": _merge_flags,
            "set_default": _set_default,
            **dict.fromkeys(("freeze", "defrost", "set_new_allowed"), lambda *_: Value(None)),
            **dict.fromkeys(("lock", "unlock", "unlocked", "ignore_type"), itself),
            **dict.fromkeys(_COPIES, lambda _, call: deep_copy(call.owner)),
            **dict.fromkeys(_PLAIN, lambda _, call: plain_tree(call.owner)),
        }
    }
)
