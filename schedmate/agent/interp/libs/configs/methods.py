"""Methods of configuration nodes: yacs, mmengine, ml_collections, HParams."""

from __future__ import annotations

import re
from pathlib import Path

from schedmate.agent.configs import merge, parse_scalar, read_detectron, set_dotted
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import parse_flags
from schedmate.agent.interp.libs.configs.files import required
from schedmate.agent.interp.libs.configs.omegaconf import as_mapping, with_dotlist
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import AttrDict
from schedmate.agent.interp.plugins import ANY, Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.interp.values.trees import attr_tree, deep_copy, plain_tree
from schedmate.agent.values import Origin, Value, unknown
from schedmate.errors import InputError


def _merge_dotted(machine: Machine, call: Invocation) -> Value:
    mapping = machine.mapping(call.args[0]) if call.args else None
    for key, value in (mapping or {}).items():
        changed = set_dotted(plain_tree(call.owner), str(key), value)
        _replace(call.owner, attr_tree(changed, "mmengine"))
    if mapping:
        mapping.clear()  # settings from now on of the config alone
    return Value(None)


def _replace(target: Value, source: Value) -> None:
    if target.mapping is not None and source.mapping is not None:
        target.data.clear()
        target.data.update(source.data)


def _merge_file(machine: Machine, call: Invocation) -> Value:
    found = required(machine, call.argument(0, "cfg_filename") or unknown())
    if found is None:
        return Value(None)
    try:
        loaded = _of_module(machine, found) or read_detectron(found, machine.sources.root)
    except InputError as error:
        machine.observer.warns(str(error))
        return Value(None)
    _replace(call.owner, attr_tree(merge(plain_tree(call.owner), loaded), "yacs"))
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
    items = iterate(call.args[0]) if call.args else None
    items = items or []
    if any(i.text is not None and "=" in i.text for i in items[::2]):
        _replace(call.owner, attr_tree(with_dotlist(plain_tree(call.owner), items), "yacs"))
        return Value(None)
    for key, value in zip(items[::2], items[1::2], strict=False):
        if key.text is not None:
            parsed = value
            if value.text is not None:
                parsed = wrap(parse_scalar(value.data), value.origin)
            changed = set_dotted(plain_tree(call.owner), key.data, parsed)
            _replace(call.owner, attr_tree(changed, "yacs"))
    return Value(None)


def _merge_flags(machine: Machine, call: Invocation) -> Value:
    """sconf's `config.argv_update(["--lr", "0.1"])`."""
    given = iterate(call.args[0]) if call.args else None
    flags, _ = parse_flags(given or machine.argv[1:])
    for name, values, flag in flags:
        parsed = [wrap(parse_scalar(v.text), v.origin) if v.text is not None else v for v in values]
        origin = values[0].origin if values else flag.origin
        value = parsed[0] if len(parsed) == 1 else Value(parsed or True, origin)
        _replace(
            call.owner,
            attr_tree(set_dotted(plain_tree(call.owner), name, value), call.owner.data.flavour),
        )
    return Value(None)


def _merge_other(machine: Machine, call: Invocation) -> Value:
    mapping = as_mapping(machine, call.args[0]) if call.args else Value({})
    if mapping.mapping is not None:
        flavour = call.owner.data.flavour
        _replace(call.owner, attr_tree(merge(plain_tree(call.owner), plain_tree(mapping)), flavour))
    return Value(None)


def _clone(machine: Machine, call: Invocation) -> Value:
    return deep_copy(call.owner)


def _to_plain(machine: Machine, call: Invocation) -> Value:
    return plain_tree(call.owner)


def _nothing(machine: Machine, call: Invocation) -> Value:
    return Value(None)


def _itself(machine: Machine, call: Invocation) -> Value:
    return call.owner


_OVERRIDE = re.compile(r"(?<![\w.])([\w.]++)\s*+=\s*+(\[[^\]]{0,1000}\]|[^,\n]*)")


def _hparams_parse(machine: Machine, call: Invocation) -> Value:
    """`HParams.parse("epochs=800,sizes=[1,2]")`: overrides in one text, by commas."""
    given = call.args[0] if call.args else call.kwargs.get("values", unknown())
    if given.text is not None:
        for key, text in _OVERRIDE.findall(given.data):
            parsed = wrap(parse_scalar(text.strip().strip("'\"")), given.origin)
            _replace(
                call.owner,
                attr_tree(set_dotted(plain_tree(call.owner), key, parsed), call.owner.data.flavour),
            )
    return call.owner


def _with_changes(machine: Machine, call: Invocation) -> Value:
    return Value(
        AttrDict({**call.owner.data, **call.kwargs}, call.owner.data.flavour), call.owner.origin
    )


def _set_default(machine: Machine, call: Invocation) -> Value:
    """absl's `FLAGS.set_default("lr", 0.03)`: what holds where the command does not say."""
    name, value = call.argument(0, "name"), call.argument(1, "value")
    if name is not None and value is not None and call.owner.mapping is not None:
        held = call.owner.data.get(name.data)
        if held is None or held.origin is None or held.origin.source != "command":
            origin = Origin("default", call.site.file, call.site.line)
            call.owner.data[name.data] = Value(value.data, origin)
    return Value(None)


PLUGIN = Plugin(
    methods={
        ANY: {
            "_asdict": _to_plain,
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
            "freeze": _nothing,
            "defrost": _nothing,
            "lock": _itself,
            "unlock": _itself,
            "unlocked": _itself,
            "ignore_type": _itself,
            "set_new_allowed": _nothing,
            "clone": _clone,
            "copy_and_resolve_references": _clone,
            "to_dict": _to_plain,
            "flag_values_dict": _to_plain,
            "toDict": _to_plain,
            "as_dict": _to_plain,
        }
    }
)
