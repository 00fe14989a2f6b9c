"""Models libraries whose configuration is a tree read by attribute.

EasyDict, Munch, ConfigDict, yacs and the methods of their nodes; mmengine's and detectron2's
configurations written in Python; torchpack's and Dassl's.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePosixPath

from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.reader import read_config
from schedmate.agent.configs.trees import merge, set_dotted
from schedmate.agent.configs.yaml_reader import read_detectron
from schedmate.agent.interp.libs.files import (
    class_named,
    note_settings,
    or_warned,
    read_file,
    required_file,
)
from schedmate.agent.interp.libs.hydra import as_mapping, with_dotlist
from schedmate.agent.interp.libs.libraries import config_defaults
from schedmate.agent.interp.libs.parsers import parse_flags, plain_scalar, spelled_value
from schedmate.agent.interp.machine import ANY, Machine, Plugin
from schedmate.agent.interp.objects import (
    GROUPS,
    AttrDict,
    Function,
    Handler,
    Invocation,
    Module,
    Native,
    as_call,
    as_class,
    as_instance,
    as_node,
    modelled,
    return_owner,  # noqa: F401 (of models.yaml)
)
from schedmate.agent.interp.values.base import copy_shallow, iterate, several
from schedmate.agent.interp.values.plain import (
    as_config,
    attr_tree,
    deep_copy,
    fill_mapping,
    plain_tree,
    replace_items,
)
from schedmate.agent.values import Items, Origin, Value, unknown
from schedmate.base.files import is_file


def attr_dict(flavour: str) -> Handler:
    def build(machine: Machine, call: Invocation) -> Value:
        items, keywords = Items(), dict(call.kwargs)
        initial = keywords.pop("initial_dictionary", None)
        given = [*call.args, *([initial] if initial is not None else [])]
        for argument in given:
            if argument.unknown or (as_call(argument) is not None):
                return unknown(origin=argument.origin)
        fill_mapping(machine, items, given, keywords)
        made = attr_tree(Value(items), flavour)
        if call.path == "argparse.Namespace" and items:
            machine.observer.settings("namespace", made, "arguments")
        elif call.path.endswith(".HParams") and items:
            return note_settings(machine, made, "HParams")
        return made

    return build


def placeholder(machine: Machine, call: Invocation) -> Value:
    """A typed hole or reference: the given default, else None."""
    return call.first if call.first.known else Value(None)


def documented_tree(name: str) -> Handler:
    """`get_cfg()`: a library's documented defaults, unless the repository holds its own."""

    def build(machine: Machine, call: Invocation) -> Value:
        config = attr_tree(plain_tree(config_defaults(name)), "yacs")
        return note_settings(machine, config, f"{name} config")

    return build


def _constructed_node(machine: Machine, instance: Value, call: Invocation) -> Value | None:
    """An object of a class built on yacs' node is such a node."""
    owner = as_instance(instance)
    if owner is None or set(GROUPS["yacs_node"]).isdisjoint(owner.cls.external_bases()):
        return None
    return attr_dict("yacs")(machine, call)


# Methods of configuration nodes: yacs, mmengine, ml_collections, HParams.


def _merge_dotted(machine: Machine, call: Invocation) -> Value:
    mapping = machine.mapping(call.first)
    for key, value in (mapping or {}).items():
        _set_dotted(call.owner, str(key), value, "mmengine")
    if mapping:
        mapping.clear()  # settings from now on of the config alone
    return Value(None)


def _lay(config: Value, tree: Value, flavour: str | None = None) -> None:
    """Make a tree what a configuration node holds, of the flavour that it has or of another."""
    node = as_node(config)
    kept = flavour if flavour is not None else node.flavour if node is not None else ""
    replace_items(config, attr_tree(tree, kept))


def _set_dotted(config: Value, key: str, value: Value, flavour: str | None = None) -> None:
    """Set an item of a configuration node by its dotted name, in place."""
    _lay(config, set_dotted(plain_tree(config), key, value), flavour)


def _merge_file(machine: Machine, call: Invocation) -> Value:
    file = required_file(machine, call.argument(0, "cfg_filename") or unknown())
    if file is None:
        return Value(None)
    loaded = _cfg_of_module(machine, file) or or_warned(
        machine, lambda: read_detectron(file, machine.sources.root)
    )
    if loaded is not None:
        _lay(call.owner, merge(plain_tree(call.owner), loaded), "yacs")
    return Value(None)


def _cfg_of_module(machine: Machine, path: Path) -> Value | None:
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
        _lay(call.owner, with_dotlist(plain_tree(call.owner), items), "yacs")
        return Value(None)
    for key, value in zip(items[::2], items[1::2], strict=False):
        if key.text is not None:
            _set_dotted(call.owner, key.text, spelled_value(value, value.origin), "yacs")
    return Value(None)


def _merge_flags(machine: Machine, call: Invocation) -> Value:
    """sconf's `config.argv_update(["--lr", "0.1"])`."""
    words = iterate(call.first)
    flags, _ = parse_flags(words or machine.argv[1:])
    for name, values, flag in flags:
        parsed = [spelled_value(value, value.origin) for value in values]
        origin = values[0].origin if values else flag.origin
        value = parsed[0] if len(parsed) == 1 else Value(parsed or True, origin)
        _set_dotted(call.owner, name, value)
    return Value(None)


def _merge_other(machine: Machine, call: Invocation) -> Value:
    mapping = as_mapping(machine, call.first)
    if mapping.mapping is not None:
        _lay(call.owner, merge(plain_tree(call.owner), plain_tree(mapping)))
    return Value(None)


_OVERRIDE = re.compile(r"(?<![\w.])([\w.]++)\s*+=\s*+(\[[^\]]{0,1000}\]|[^,\n]*)")


def _hparams_parse(machine: Machine, call: Invocation) -> Value:
    """`HParams.parse("epochs=800,sizes=[1,2]")`: overrides in one text, by commas."""
    argument = call.argument(0, "values") or unknown()
    for key, text in _OVERRIDE.findall(argument.text or ""):
        value = spelled_value(Value(text.strip().strip("'\"")), argument.origin)
        _set_dotted(call.owner, key, value)
    return call.owner


def _with_changes(machine: Machine, call: Invocation) -> Value:
    changed = copy_shallow(call.owner)
    (changed.mapping or {}).update(call.kwargs)
    return changed


def _set_default(machine: Machine, call: Invocation) -> Value:
    """absl's `FLAGS.set_default("lr", 0.03)`: what holds where the command does not say."""
    name, value, flags = call.text(0, "name"), call.argument(1, "value"), call.owner.mapping
    if name is not None and value is not None and flags is not None:
        flag = flags.get(name)
        if flag is None or flag.origin is None or flag.origin.source != "command":
            origin = Origin("default", call.site.file, call.site.line)
            flags[name] = Value(value.data, origin)
    return Value(None)


def _ignored(_: Machine, call: Invocation) -> Value:
    return Value(None)


def _deep_copy(_: Machine, call: Invocation) -> Value:
    return deep_copy(call.owner)


def _plain(_: Machine, call: Invocation) -> Value:
    return plain_tree(call.owner)


# mmengine and mmcv: Python configuration files laid over their `_base_` files.


def mmengine_from_file(machine: Machine, call: Invocation) -> Value:
    file = required_file(machine, call.argument(0, "filename") or unknown())
    if file is None:
        return unknown()
    config = attr_tree(read_mmengine(machine, file, []), "mmengine")
    return note_settings(machine, config, machine.sources.relative(file))


def read_mmengine(machine: Machine, path: Path, active: list[Path]) -> Value:
    """A Python or data config file merged over its `_base_` files."""
    if path in active:
        machine.observer.warns(f"{machine.sources.relative(path)}: its _base_ leads back to itself")
        return Value({})
    if path.suffix != ".py":
        own = or_warned(machine, lambda: read_config(path, machine.sources.root))
        if own is None:
            return Value({})
        bases = own.mapping.pop("_base_", None) if own.mapping is not None else None
        return merge_mmengine(_read_bases(machine, bases, path, active), own)
    tree = machine.parse(path)
    if tree is None:
        return Value({})
    module = _config_module(machine, path)
    base = Value({})
    body = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_base_":
            bases = machine.evaluate(node.value, module.scope)
            base = _read_bases(machine, bases, path, active)
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
    return merge_mmengine(base, as_config(Value(names), module.file))


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


def _read_bases(machine: Machine, value: Value | None, path: Path, active: list[Path]) -> Value:
    base = Value({})
    if value is None:
        return base
    for item in several(value):
        if item.text is None:
            continue
        text = item.text.rpartition("::")[2]
        candidates = [path.parent / text, machine.sources.root / "configs" / text]
        file = next((c for c in candidates if is_file(c) and machine.sources.inside(c)), None)
        if file is None:
            machine.observer.warns(
                f"{machine.sources.relative(path)}: its _base_ {item.text} is not there"
            )
            continue
        base = merge_mmengine(base, read_mmengine(machine, file.resolve(), [*active, path]))
    return base


def merge_mmengine(base: Value, over: Value) -> Value:
    """mmengine's merge: deep, lists replaced, `_delete_=True` replaces a whole mapping."""
    if base.mapping is None or over.mapping is None:
        return over
    deleting = over.mapping.get("_delete_")
    if deleting is not None and deleting.data is True:
        kept = {key: item for key, item in over.mapping.items() if key != "_delete_"}
        return Value(kept, over.origin)
    merged = dict(base.mapping)
    for key, item in over.mapping.items():
        merged[key] = merge_mmengine(merged[key], item) if key in merged else item
    return Value(merged, over.origin)


def runner_from_cfg(machine: Machine, call: Invocation) -> None:
    """`Runner.from_cfg(config)`: with an `optim_wrapper`, no other optimiser is read."""
    config = call.argument(0, "cfg")
    if config is not None and config.mapping is not None and "optim_wrapper" in config.mapping:
        config.mapping.pop("optimizer", None)


# detectron2's lazy configurations: Python files whose calls are kept until they are wanted.
#
# `LazyConfig` is followed in the copies that repositories carry, too.


MAX_NESTING = 12
"""Files that import each other, one inside the other."""


def load_lazy(machine: Machine, call: Invocation) -> Value:
    """`LazyConfig.load(file, keys)`: the configuration nodes among a file's names."""
    file = required_file(machine, call.argument(0, "filename") or unknown())
    if file is None:
        return unknown()
    names = _lazy_names(machine, file, 0)
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
    return note_settings(machine, config, machine.sources.relative(file))


def _lazy_names(machine: Machine, path: Path, depth: int) -> dict[str, Value]:
    """What a configuration file defines; what it imports relatively comes from files beside it."""
    if path.suffix != ".py":
        loaded = or_warned(machine, lambda: read_config(path, machine.sources.root))
        return dict(attr_tree(loaded or Value({}), "omegaconf").mapping or {})
    tree = machine.parse(path)
    if tree is None or depth > MAX_NESTING:
        return {}
    file = machine.sources.relative(path)
    module = Module(path.stem, path, file, "")
    module.loaded = True
    module.scope.names["__file__"] = Value(str(path))
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or not (
            beside := _file_beside(machine, path, node)
        ):
            machine.follow([node], module.scope)
            continue
        theirs = _lazy_names(machine, beside, depth + 1)
        for alias in node.names:
            if alias.name == "*":
                module.scope.names.update(theirs)
            else:
                value = theirs.get(alias.name, unknown(alias.name))
                module.scope.names[alias.asname or alias.name] = value
    return {
        name: _lazy_node(as_config(value, file))
        for name, value in module.scope.names.items()
        if not isinstance(value.data, Module) and not name.startswith("__")
    }


def _lazy_node(value: Value) -> Value:
    plain = value.mapping is not None and as_node(value) is None
    return attr_tree(value, "omegaconf") if plain else value


def _file_beside(machine: Machine, path: Path, node: ast.ImportFrom) -> Path | None:
    """The file that a relative import means by its place alone."""
    if not node.level or not node.module:
        return None
    folder = path.parents[min(node.level, len(path.parents)) - 1]
    file = folder.joinpath(*node.module.split(".")).with_suffix(".py")
    return file if is_file(file) and machine.sources.inside(file) else None


def override_lazy(machine: Machine, call: Invocation) -> Value:
    """`LazyConfig.apply_overrides(config, ["a.b=1"])`, in place."""
    config, overrides = call.argument(0, "cfg"), call.argument(1, "overrides")
    if config is None or overrides is None or as_node(config) is None:
        return config or unknown()
    _lay(config, with_dotlist(plain_tree(config), several(overrides)), "omegaconf")
    return config


def keep_lazy_call(machine: Machine, call: Invocation) -> Value:
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
    name = call.need_text(0, "config_path")
    if not name.endswith(".py"):
        return unknown()
    path = Value(f"configs/{name}", call.need(0, "config_path").origin)
    return load_lazy(machine, Invocation(call.path, [path], {}, call.site))


# torchpack's one configuration: files, the `default.yaml` of each folder above, options.


TORCHPACK_CONFIGS = "torchpack.utils.config.configs"


def torchpack_configs(machine: Machine) -> Value:
    """The module's own object, in which everything is laid upon what there is."""
    held: Value | None = machine.shared.get(TORCHPACK_CONFIGS)
    if held is None:
        held = machine.shared[TORCHPACK_CONFIGS] = Value(AttrDict({}, "torchpack"))
        machine.observer.settings("torchpack config", held, "config")
    return held


def load_torchpack(machine: Machine, call: Invocation) -> Value:
    """`configs.load(path, recursive=True)`."""
    path, recursive = call.need_text(0, "fpath"), call.argument(1, "recursive")
    files = [path]
    if recursive is not None and recursive.data is True:
        above = [f"{parent}/default.yaml" for parent in PurePosixPath(path).parents]
        found = [file for file in reversed(above) if machine.sources.locate(file) is not None]
        files = [*(file for file in found if file != path), path]
    for file in files:
        value = Value(file, call.need(0, "fpath").origin)
        _lay_upon(call.owner, read_file(machine, value) or unknown())
    return Value(None)


def update_torchpack(machine: Machine, call: Invocation) -> Value:
    """`configs.update(["--a.b", "1"])`, or with a mapping."""
    first = call.first
    words = iterate(first) if first.mapping is None else None
    if words is None:
        _lay_upon(call.owner, first)
    flags, _ = parse_flags(words or [])
    for name, values, flag in flags:
        value = plain_scalar(values[0]) if values else Value(True, flag.origin)
        for part in reversed(name.split(".")):
            value = Value({part: value}, value.origin)
        _lay_upon(call.owner, value)
    return Value(None)


def _lay_upon(base: Value, layer: Value) -> None:
    if layer.mapping is not None and base.mapping is not None:
        _lay(base, resolve_interpolations(merge(plain_tree(base), plain_tree(layer))), "torchpack")


# Dassl, on which prompt learning is built: `--trainer CoOp --dataset-config-file ...`.
#
# It keeps its configuration in yacs and its trainers, which the repository defines, in a registry.


def _config_at(machine: Machine, config: Value, *path: str) -> Value:
    for part in path:
        config = (machine.mapping(config) or {}).get(part, Value(None))
    return config


def dassl_trainer(machine: Machine, call: Invocation) -> Value:
    """`build_trainer(cfg)`: the registered class, which loads its data and tests in the end."""
    config = call.argument(0, "cfg") or unknown()
    name = _config_at(machine, config, "TRAINER", "NAME").text
    backbone = _config_at(machine, config, "MODEL", "BACKBONE", "NAME")
    if backbone.data:
        note_settings(machine, Value({"backbone_name": backbone}), "dassl model")
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


_NODE_TYPES = ("easydict.EasyDict", "munch.Munch", "addict.Dict", "yacs.config.CfgNode")

CONFIGS = Plugin(
    types=dict.fromkeys(_NODE_TYPES, (AttrDict,)),
    calls=modelled("configs", globals()),
    names={TORCHPACK_CONFIGS: torchpack_configs},
    methods={
        ANY: modelled("config_node", globals()),
        "torchpack": modelled("torchpack", globals()),
    },
    on_constructed=_constructed_node,
)
