"""torchpack's one configuration: files, the `default.yaml` of each folder above, options."""

from __future__ import annotations

from pathlib import PurePosixPath

from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.trees import merge
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import parse_flags, plain_scalar
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import AttrDict
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.interp.values.trees import attr_tree, plain_tree, replace_items
from schedmate.agent.values import Value, unknown

CONFIGS = "torchpack.utils.config.configs"
FLAVOUR = "torchpack"


def configs(machine: Machine) -> Value:
    """The module's own object, in which everything is laid upon what there is."""
    if CONFIGS not in machine.shared:
        machine.shared[CONFIGS] = Value(AttrDict({}, FLAVOUR))
        machine.observer.settings("torchpack config", machine.shared[CONFIGS], "config")
    held: Value = machine.shared[CONFIGS]
    return held


def load(machine: Machine, call: Invocation) -> Value:
    """`configs.load(path, recursive=True)`."""
    given, recursive = call.argument(0, "fpath"), call.argument(1, "recursive")
    if given is None or given.text is None:
        return Value(None)
    files = [given]
    if recursive is not None and recursive.data is True:
        above = [f"{parent}/default.yaml" for parent in PurePosixPath(given.text).parents]
        found = [path for path in reversed(above) if machine.sources.locate(path) is not None]
        files = [*(Value(path, given.origin) for path in found if path != given.text), given]
    for file in files:
        _lay(machine, call.owner, read_file(machine, file) or unknown())
    return Value(None)


def update(machine: Machine, call: Invocation) -> Value:
    """`configs.update(["--a.b", "1"])`, or with a mapping."""
    given = call.first
    words = iterate(given) if given.mapping is None else None
    if words is None:
        _lay(machine, call.owner, given)
        return Value(None)
    flags, _ = parse_flags(words)
    for name, values, flag in flags:
        value = plain_scalar(values[0]) if values else Value(True, flag.origin)
        for part in reversed(name.split(".")):
            value = Value({part: value}, value.origin)
        _lay(machine, call.owner, value)
    return Value(None)


def _lay(machine: Machine, base: Value, layer: Value) -> None:
    if layer.mapping is None or base.mapping is None:
        return
    merged = resolve_interpolations(merge(plain_tree(base), plain_tree(layer)))
    replace_items(base, attr_tree(merged, FLAVOUR))


PLUGIN = Plugin(names={CONFIGS: configs}, methods={FLAVOUR: {"load": load, "update": update}})
