"""mmengine and mmcv: Python configuration files laid over their `_base_` files."""

from __future__ import annotations

import ast
from pathlib import Path

from schedmate.agent.configs.reader import read_config
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.files import noted, required
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import Function, Module, Native
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import several
from schedmate.agent.interp.values.trees import as_config, attr_tree
from schedmate.agent.values import Value, unknown
from schedmate.errors import InputError
from schedmate.paths import is_file


def from_file(machine: Machine, call: Invocation) -> Value:
    found = required(machine, call.argument(0, "filename") or unknown())
    if found is None:
        return unknown()
    config = attr_tree(read(machine, found, []), "mmengine")
    return noted(machine, config, machine.sources.relative(found))


def read(machine: Machine, path: Path, active: list[Path]) -> Value:
    """A Python or data config file merged over its `_base_` files."""
    if path in active:
        machine.observer.warns(f"{machine.sources.relative(path)}: its _base_ leads back to itself")
        return Value({})
    if path.suffix != ".py":
        try:
            own = read_config(path, machine.sources.root)
        except InputError as error:
            machine.observer.warns(str(error))
            return Value({})
        bases = own.mapping.pop("_base_", None) if own.mapping is not None else None
        return merge(_bases(machine, bases, path, active), own)
    tree = machine.parse(path)
    if tree is None:
        return Value({})
    module = _config_module(machine, path)
    base = Value({})
    body = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_base_":
            bases = machine.evaluate(node.value, module.scope)
            base = _bases(machine, bases, path, active)
            module.scope.names["_base_"] = attr_tree(base, "mmengine")
        else:
            body.append(node)
    module.scope.names["__file__"] = Value(str(path))
    machine.follow(body, module.scope)
    names = {
        name: value
        for name, value in {**_star_names(machine, module), **module.scope.names}.items()
        if not name.startswith("_") and not isinstance(value.data, Module | Function | Native)
    }
    return merge(base, as_config(Value(names), module.file))


def _config_module(machine: Machine, path: Path) -> Module:
    parts = path.relative_to(machine.sources.root).with_suffix("").parts
    name = ".".join(parts)
    module = Module(name, path, machine.sources.relative(path), name.rpartition(".")[0])
    module.loaded = True
    return module


def _star_names(machine: Machine, module: Module) -> dict[str, Value]:
    names: dict[str, Value] = {}
    for star in reversed(module.scope.stars):
        machine.load(star)
        names.update(_star_names(machine, star))
        names.update(star.scope.names)
    return names


def _bases(machine: Machine, value: Value | None, path: Path, active: list[Path]) -> Value:
    base = Value({})
    if value is None:
        return base
    for item in several(value):
        if item.text is None:
            continue
        text = item.text.rpartition("::")[2]
        candidates = [path.parent / text, machine.sources.root / "configs" / text]
        found = next((c for c in candidates if is_file(c) and machine.sources.inside(c)), None)
        if found is None:
            machine.observer.warns(
                f"{machine.sources.relative(path)}: its _base_ {item.text} is not there"
            )
            continue
        base = merge(base, read(machine, found.resolve(), [*active, path]))
    return base


def merge(base: Value, over: Value) -> Value:
    """mmengine's merge: deep, lists replaced, `_delete_=True` replaces a whole mapping."""
    if base.mapping is None or over.mapping is None:
        return over
    deleting = over.mapping.get("_delete_")
    if deleting is not None and deleting.data is True:
        kept = {key: item for key, item in over.mapping.items() if key != "_delete_"}
        return Value(kept, over.origin)
    merged = dict(base.mapping)
    for key, item in over.mapping.items():
        merged[key] = merge(merged[key], item) if key in merged else item
    return Value(merged, over.origin)


def runner(machine: Machine, call: Invocation) -> None:
    """`Runner.from_cfg(config)`: with an `optim_wrapper`, no other optimiser is read."""
    config = call.argument(0, "cfg")
    if config is not None and config.mapping is not None and "optim_wrapper" in config.mapping:
        config.mapping.pop("optimizer", None)


_CALLS: dict[str, Handler] = {
    f"{root}.Config.fromfile": from_file
    for root in ("mmcv", "mmengine", "mmcv.utils", "mmengine.config")
} | {"mmengine.runner.Runner.from_cfg": runner, "mmengine.runner.FlexibleRunner.from_cfg": runner}

PLUGIN = Plugin(calls=_CALLS)
