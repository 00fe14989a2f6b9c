"""detectron2's lazy configurations: Python files whose calls are kept until they are wanted.

`LazyConfig` is followed in the copies that repositories carry, too.
"""

from __future__ import annotations

import ast
from pathlib import Path

from schedmate.agent.configs.reader import read_config
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.files import noted, required
from schedmate.agent.interp.libs.configs.omegaconf import with_dotlist
from schedmate.agent.interp.libs.hydra import instantiate
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import AttrDict, Module, as_call, as_node
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import several
from schedmate.agent.interp.values.trees import as_config, attr_tree, plain_tree, replace_items
from schedmate.agent.values import Origin, Value, unknown
from schedmate.errors import InputError
from schedmate.paths import is_file

MAX_NESTING = 12
"""Files that import each other, one inside the other."""


def load(machine: Machine, call: Invocation) -> Value:
    """`LazyConfig.load(file, keys)`: the configuration nodes among a file's names."""
    found = required(machine, call.argument(0, "filename") or unknown())
    if found is None:
        return unknown()
    names = _names(machine, found, 0)
    keys = call.argument(1, "keys")
    if keys is not None and keys.text is not None:
        return names.get(keys.text, unknown())
    if keys is not None and keys.sequence is not None:
        return Value(tuple(names.get(str(key.data), unknown()) for key in keys.sequence))
    nodes = {
        name: value
        for name, value in names.items()
        if not name.startswith("_") and (value.mapping is not None or value.elements is not None)
    }
    config = Value(AttrDict(nodes, "omegaconf"))
    return noted(machine, config, machine.sources.relative(found))


def load_beside(machine: Machine, call: Invocation) -> Value:
    """`LazyConfig.load_rel(file)`: a file named from the folder of the one that loads it."""
    given = call.argument(0, "filename")
    here = machine.frames[-1].scope.module.path.parent if machine.frames else machine.sources.root
    if given is None or given.text is None:
        return unknown()
    path = Value(str(here / given.text), given.origin)
    return load(machine, Invocation(call.path, [path, *call.args[1:]], call.kwargs, call.site))


def _names(machine: Machine, path: Path, depth: int) -> dict[str, Value]:
    """What a configuration file defines; what it imports relatively comes from files beside it."""
    if path.suffix != ".py":
        try:
            config = attr_tree(read_config(path, machine.sources.root), "omegaconf")
        except InputError as error:
            machine.observer.warns(str(error))
            return {}
        return dict(config.mapping) if config.mapping is not None else {}
    tree = machine.parse(path)
    if tree is None or depth > MAX_NESTING:
        return {}
    file = machine.sources.relative(path)
    module = Module(path.stem, path, file, "")
    module.loaded = True
    module.scope.names["__file__"] = Value(str(path))
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or not (beside := _beside(machine, path, node)):
            machine.follow([node], module.scope)
            continue
        theirs = _names(machine, beside, depth + 1)
        for alias in node.names:
            if alias.name == "*":
                module.scope.names.update(theirs)
            else:
                value = theirs.get(alias.name, unknown(alias.name))
                module.scope.names[alias.asname or alias.name] = value
    return {
        name: _node(as_config(value, file))
        for name, value in module.scope.names.items()
        if not isinstance(value.data, Module) and not name.startswith("__")
    }


def _node(value: Value) -> Value:
    plain = value.mapping is not None and as_node(value) is None
    return attr_tree(value, "omegaconf") if plain else value


def _beside(machine: Machine, path: Path, node: ast.ImportFrom) -> Path | None:
    """The file that a relative import means by its place alone."""
    if not node.level or not node.module:
        return None
    folder = path.parents[min(node.level, len(path.parents)) - 1]
    found = folder.joinpath(*node.module.split(".")).with_suffix(".py")
    return found if is_file(found) and machine.sources.inside(found) else None


def override(machine: Machine, call: Invocation) -> Value:
    """`LazyConfig.apply_overrides(config, ["a.b=1"])`, in place."""
    config, given = call.argument(0, "cfg"), call.argument(1, "overrides")
    if config is None or given is None or as_node(config) is None:
        return config or unknown()
    changed = with_dotlist(plain_tree(config), several(given))
    replace_items(config, attr_tree(changed, "omegaconf"))
    return config


def keep(machine: Machine, call: Invocation) -> Value:
    """`LazyCall(target)(key=value)`: a node that holds the target and its arguments."""
    made = as_call(call.base)
    if made is None or not made.args:
        return unknown()
    target = made.args[0]
    place = target.origin or Origin("config", call.site.file, call.site.line)
    items = {**call.kwargs, "_target_": Value(target.data, place)}
    return attr_tree(Value(items), "omegaconf")


def zoo_config(machine: Machine, call: Invocation) -> Value:
    """`model_zoo.get_config(name)`: a lazy configuration of the folder `configs`."""
    name = call.argument(0, "config_path")
    if name is None or name.text is None or not name.text.endswith(".py"):
        return unknown()
    path = Value(f"configs/{name.text}", name.origin)
    return load(machine, Invocation(call.path, [path], {}, call.site))


_PACKAGES = ("detectron2.config", "detectron2.config.lazy")

PLUGIN = Plugin(
    calls={
        **{f"{package}.LazyConfig.load": load for package in _PACKAGES},
        **{f"{package}.LazyConfig.load_rel": load_beside for package in _PACKAGES},
        **{f"{package}.LazyConfig.apply_overrides": override for package in _PACKAGES},
        **{f"{package}.LazyCall()": keep for package in _PACKAGES},
        **{f"{package}.instantiate": instantiate for package in _PACKAGES},
        "detectron2.model_zoo.get_config": zoo_config,
    }
)
