"""Configuration libraries: YAML, JSON, OmegaConf, mmengine, yacs, detectron2, gin and others."""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from schedmate.agent.configs import (
    merge,
    parse_gin,
    parse_scalar,
    read_config,
    read_detectron,
    resolve_interpolations,
    set_dotted,
)
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Class,
    FileHandle,
    Function,
    Instance,
    Module,
    Native,
    Site,
)
from schedmate.agent.interp.trace import Settings
from schedmate.agent.interp.values_ops import iterate
from schedmate.agent.values import Origin, Unknown, Value, lifted, unknown
from schedmate.errors import InputError

if TYPE_CHECKING:
    from schedmate.agent.interp.state import Handler, Invocation, State


def attr_tree(value: Value, flavour: str) -> Value:
    """The same tree with every mapping readable by attribute."""
    data = value.data
    if isinstance(data, dict):
        items = {key: attr_tree(item, flavour) for key, item in data.items()}
        return Value(AttrDict(items, flavour), value.origin)
    if isinstance(data, list | tuple):
        return Value(type(data)(attr_tree(item, flavour) for item in data), value.origin)
    return value


def converted(holder: dict[Any, Value], value: Value) -> Value:
    """A value as a configuration node keeps it: mappings become nodes of the same kind."""
    if isinstance(holder, AttrDict) and holder.flavour not in ("namespace", "flags", "record"):
        if type(value.data) is dict:
            return attr_tree(value, holder.flavour)
    return value


def plain_tree(value: Value) -> Value:
    """The same tree with plain mappings; a deep copy of the containers."""
    data = value.data
    if isinstance(data, dict):
        return Value({key: plain_tree(item) for key, item in data.items()}, value.origin)
    if isinstance(data, list | tuple):
        return Value(type(data)(plain_tree(item) for item in data), value.origin)
    return value


def deep_copy(value: Value) -> Value:
    """A copy that shares nothing mutable, whatever kinds of mapping it holds."""
    data = value.data
    if isinstance(data, AttrDict):
        items = {key: deep_copy(item) for key, item in data.items()}
        return Value(AttrDict(items, data.flavour, data.label), value.origin)
    if isinstance(data, dict):
        return Value({key: deep_copy(item) for key, item in data.items()}, value.origin)
    if isinstance(data, list | tuple):
        return Value(type(data)(deep_copy(item) for item in data), value.origin)
    if isinstance(data, Instance):
        items_ = deep_copy(data.items) if data.items is not None else None
        attrs = {key: deep_copy(item) for key, item in data.attrs.items()}
        return Value(Instance(data.cls, attrs, items_, data.args, data.kwargs), value.origin)
    return value


def locate(state: State, path: Value) -> Path | None:
    """The repository's file that a path value means."""
    if isinstance(path.data, FileHandle):
        return path.data.path
    if isinstance(path.data, str):
        near = state.frames[-1].scope.module.path if state.frames else None
        found = state.sources.locate(path.data, near)
        if found is None and path.data in state.texts:
            found = state.texts[path.data]
        return found if found is not None and found.is_file() else None
    return None


def read_file(state: State, path: Value) -> Value | None:
    """A configuration file's content, noted as settings; None when it is not in the repository."""
    found = locate(state, path)
    if found is None:
        if isinstance(path.data, str) and re.fullmatch(
            r"[^\n\0]{0,290}\.[A-Za-z]\w{1,4}", path.data
        ):
            state.trace.warn(f"{path.data}: not in the repository, its settings are not known")
        return None
    try:
        value = plain_tree(read_config(found, state.sources.root))
    except InputError as error:
        state.trace.warn(str(error))
        return None
    file = state.sources.relative(found)
    state.trace.settings.append(Settings(file, value, "config"))
    return value


def load_mapping(state: State, call: Invocation) -> Value:
    """`yaml.safe_load(f)`, `json.load(f)`, `toml.load(path)` and the like."""
    source = call.argument(0, "stream", "fp", "f", "s", "path", "filename")
    if source is None:
        return unknown()
    loaded = read_file(state, source)
    if loaded is None:
        if isinstance(source.data, str) and "\n" not in source.data and len(source.data) < 200:
            return wrap(parse_scalar(source.data), source.origin)
        return unknown(origin=source.origin)
    # the program may change what it loaded, and the settings noted are to change with it
    return loaded


def omega_load(state: State, call: Invocation) -> Value:
    loaded = read_file(state, call.argument(0, "file_", "f") or unknown())
    return attr_tree(loaded, "omegaconf") if loaded is not None else unknown()


def omega_create(state: State, call: Invocation) -> Value:
    source = call.argument(0, "obj") or Value({})
    return attr_tree(plain_tree(_as_mapping(state, source)), "omegaconf")


def omega_structured(state: State, call: Invocation) -> Value:
    from schedmate.agent.interp.libs.records import attributes, make_record

    source = call.argument(0, "obj") or Value({})
    if isinstance(source.data, Instance):
        return attr_tree(_as_mapping(state, source), "omegaconf")
    return attr_tree(_as_mapping(state, Value(attributes(make_record(state, source)))), "omegaconf")


def _as_mapping(state: State, value: Value) -> Value:
    """Records become mappings, at any depth."""
    data = value.data
    if isinstance(data, Instance):
        items = state.mapping(value)
        source = items if items is not None else data.attrs
        return Value({k: _as_mapping(state, v) for k, v in source.items()}, value.origin)
    if isinstance(data, dict):
        return Value({k: _as_mapping(state, v) for k, v in data.items()}, value.origin)
    return value


def omega_merge(state: State, call: Invocation) -> Value:
    merged = Value({})
    for argument in call.args:
        layer = _as_mapping(state, argument)
        if isinstance(layer.data, dict):
            merged = merge(merged, plain_tree(layer))
        elif isinstance(layer.data, list):
            merged = _dotlist(merged, layer.data)
    return _noted(state, attr_tree(resolve_interpolations(merged), "omegaconf"), "merged config")


def _noted(state: State, value: Value, name: str) -> Value:
    state.trace.settings.append(Settings(name, value, "config"))
    return value


def _dotlist(config: Value, items: list[Value]) -> Value:
    for item in items:
        if isinstance(item.data, str) and "=" in item.data:
            key, _, text = item.data.partition("=")
            value = wrap(parse_scalar(text), item.origin)
            config = set_dotted(config, key.lstrip("-"), value)
    return config


def omega_cli(state: State, call: Invocation) -> Value:
    given = call.argument(0, "args_list")
    items = (iterate(given) if given is not None else None) or state.argv[1:]
    return attr_tree(_dotlist(Value({}), items), "omegaconf")


def omega_plain(state: State, call: Invocation) -> Value:
    config = call.argument(0, "cfg") or unknown()
    return plain_tree(config) if isinstance(config.data, dict) else config


def omega_select(state: State, call: Invocation) -> Value:
    config, key = call.argument(0, "cfg"), call.argument(1, "key")
    if config is None or key is None or not isinstance(key.data, str):
        return unknown()
    for part in key.data.split("."):
        mapping = state.mapping(config)
        if mapping is None or part not in mapping:
            return call.kwargs.get("default", Value(None))
        config = mapping[part]
    return config


def omega_update(state: State, call: Invocation) -> Value:
    config, key, value = call.argument(0), call.argument(1), call.argument(2)
    if config is None or key is None or value is None or not isinstance(key.data, str):
        return Value(None)
    *parents, last = key.data.split(".")
    for part in parents:
        config = state.getattr(config, part)
    state.setattr(config, last, value)
    return Value(None)


# -- attribute dictionaries ------------------------------------------------


def attr_dict(flavour: str) -> Handler:
    def build(state: State, call: Invocation) -> Value:
        items: dict[Any, Value] = {}
        given = dict(call.kwargs)
        initial = given.pop("initial_dictionary", None)
        for argument in [*call.args, *([initial] if initial is not None else [])]:
            mapping = state.mapping(argument)
            if mapping is not None:
                items.update(mapping)
            elif isinstance(argument.data, list | tuple):
                for pair in argument.data:
                    parts = iterate(pair)
                    if parts is not None and len(parts) == 2 and isinstance(parts[0].data, str):
                        items[parts[0].data] = parts[1]
            elif isinstance(argument.data, Unknown | Call):
                return unknown(origin=argument.origin)
        items.update(given)
        made = attr_tree(Value(items), flavour)
        if call.path == "argparse.Namespace" and items:
            state.trace.settings.append(Settings("namespace", made, "arguments"))
        return made

    return build


def placeholder(state: State, call: Invocation) -> Value:
    """A typed hole or reference: the given default, else None."""
    default = call.args[0] if call.args else Value(None)
    return default if default.known else Value(None)


# -- mmengine / mmcv -------------------------------------------------------


def mm_from_file(state: State, call: Invocation) -> Value:
    path = call.argument(0, "filename")
    found = locate(state, path) if path is not None else None
    if path is None or found is None:
        if path is not None and isinstance(path.data, str):
            state.trace.warn(f"{path.data}: not in the repository, its settings are not known")
        return unknown()
    config = attr_tree(mm_config(state, found, []), "mmengine")
    state.shared["mm"] = config
    return _noted(state, config, state.sources.relative(found))


def mm_config(state: State, path: Path, active: list[Path]) -> Value:
    """A Python or data config file merged over its `_base_` files."""
    if path in active:
        state.trace.warn(f"{state.sources.relative(path)}: its _base_ leads back to itself")
        return Value({})
    if path.suffix != ".py":
        try:
            own = read_config(path, state.sources.root)
        except InputError as error:
            state.trace.warn(str(error))
            return Value({})
        bases = own.data.pop("_base_", None) if isinstance(own.data, dict) else None
        return mm_merge(_mm_bases(state, bases, path, active), own)
    tree = state.sources.parse(path, state.trace)
    if tree is None:
        return Value({})
    module = _config_module(state, path)
    base = Value({})
    body = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_base_":
            bases = state.evaluate(node.value, module.scope)
            base = _mm_bases(state, bases, path, active)
            module.scope.names["_base_"] = attr_tree(base, "mmengine")
        else:
            body.append(node)
    module.scope.names["__file__"] = Value(str(path))
    state.follow(body, module.scope)
    names = {
        name: value
        for name, value in {**_star_names(state, module), **module.scope.names}.items()
        if not name.startswith("_") and not isinstance(value.data, Module | Function | Native)
    }
    return mm_merge(base, as_config(Value(names), module.file))


def as_config(value: Value, file: str) -> Value:
    """The same tree, its literals of `file` said to come from a configuration file."""
    data = value.data
    if isinstance(data, AttrDict):
        items = {key: as_config(item, file) for key, item in data.items()}
        data = AttrDict(items, data.flavour, data.label)
    elif isinstance(data, dict):
        data = {key: as_config(item, file) for key, item in data.items()}
    elif isinstance(data, list | tuple):
        data = type(data)(as_config(item, file) for item in data)
    origin = value.origin
    if origin is not None and origin.source == "code" and origin.file == file:
        origin = Origin("config", file, origin.line, origin.text)
    return Value(data, origin)


def several(value: Value) -> list[Value]:
    """The items of a sequence, or the one value there is."""
    return list(value.data) if isinstance(value.data, list | tuple) else [value]


def _config_module(state: State, path: Path) -> Module:
    parts = path.relative_to(state.sources.root).with_suffix("").parts
    name = ".".join(parts)
    module = Module(name, path, state.sources.relative(path), name.rpartition(".")[0])
    module.loaded = True
    return module


def _star_names(state: State, module: Module) -> dict[str, Value]:
    names: dict[str, Value] = {}
    for star in reversed(module.scope.stars):
        state.load(star)
        names.update(_star_names(state, star))
        names.update(star.scope.names)
    return names


def _mm_bases(state: State, value: Value | None, path: Path, active: list[Path]) -> Value:
    base = Value({})
    if value is None:
        return base
    for item in several(value):
        if not isinstance(item.data, str):
            continue
        text = item.data.rpartition("::")[2]
        candidates = [path.parent / text, state.sources.root / "configs" / text]
        found = next((c for c in candidates if c.is_file() and state.sources.inside(c)), None)
        if found is None:
            state.trace.warn(f"{state.sources.relative(path)}: its _base_ {item.data} is not there")
            continue
        base = mm_merge(base, mm_config(state, found.resolve(), [*active, path]))
    return base


def mm_merge(base: Value, over: Value) -> Value:
    """mmengine's merge: deep, lists replaced, `_delete_=True` replaces a whole mapping."""
    if not isinstance(base.data, dict) or not isinstance(over.data, dict):
        return over
    deleting = over.data.get("_delete_")
    if deleting is not None and deleting.data is True:
        kept = {key: item for key, item in over.data.items() if key != "_delete_"}
        return Value(kept, over.origin)
    merged = dict(base.data)
    for key, item in over.data.items():
        merged[key] = mm_merge(merged[key], item) if key in merged else item
    return Value(merged, over.origin)


def _merge_dotted(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    mapping = state.mapping(args[0]) if args else None
    target = base
    for key, value in (mapping or {}).items():
        changed = set_dotted(plain_tree(target), str(key), value)
        _replace(target, attr_tree(changed, "mmengine"))
    return Value(None)


def _replace(target: Value, source: Value) -> None:
    if isinstance(target.data, dict) and isinstance(source.data, dict):
        target.data.clear()
        target.data.update(source.data)


# -- yacs and detectron2 ---------------------------------------------------


def _merge_file(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    path = args[0] if args else kwargs.get("cfg_filename", unknown())
    found = locate(state, path)
    if found is None:
        if isinstance(path.data, str) and path.data:
            state.trace.warn(f"{path.data}: not in the repository, its settings are not known")
        return Value(None)
    try:
        loaded = read_detectron(found, state.sources.root)
    except InputError as error:
        state.trace.warn(str(error))
        return Value(None)
    _replace(base, attr_tree(merge(plain_tree(base), loaded), "yacs"))
    return Value(None)


def _merge_list(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    items = iterate(args[0]) if args else None
    items = items or []
    if any(isinstance(i.data, str) and "=" in i.data for i in items[::2]):
        _replace(base, attr_tree(_dotlist(plain_tree(base), items), "yacs"))
        return Value(None)
    for key, value in zip(items[::2], items[1::2], strict=False):
        if isinstance(key.data, str):
            parsed = value
            if isinstance(value.data, str):
                parsed = wrap(parse_scalar(value.data), value.origin)
            changed = set_dotted(plain_tree(base), key.data, parsed)
            _replace(base, attr_tree(changed, "yacs"))
    return Value(None)


def _merge_other(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    mapping = _as_mapping(state, args[0]) if args else Value({})
    if isinstance(mapping.data, dict):
        flavour = base.data.flavour
        _replace(base, attr_tree(merge(plain_tree(base), plain_tree(mapping)), flavour))
    return Value(None)


def _clone(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return deep_copy(base)


def _to_plain(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return plain_tree(base)


def _nothing(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return Value(None)


def _itself(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return base


def _hparams_parse(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """`HParams.parse("epochs=800,sizes=[1,2]")`: overrides in one text, by commas."""
    given = args[0] if args else kwargs.get("values", unknown())
    if isinstance(given.data, str):
        for key, text in re.findall(r"([\w.]+)\s*=\s*(\[[^\]]*\]|[^,\n]*)", given.data):
            parsed = wrap(parse_scalar(text.strip().strip("'\"")), given.origin)
            _replace(base, attr_tree(set_dotted(plain_tree(base), key, parsed), base.data.flavour))
    return base


def _with_changes(
    state: State, base: Value, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    return Value(AttrDict({**base.data, **kwargs}, base.data.flavour), base.origin)


METHODS: dict[str, Any] = {
    "_asdict": _to_plain,
    "_replace": _with_changes,
    "parse": _hparams_parse,
    "merge_from_file": _merge_file,
    "merge_from_list": _merge_list,
    "merge_from_other_cfg": _merge_other,
    "merge_from_dict": _merge_dotted,
    "merge_with": _merge_other,
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
    "toDict": _to_plain,
    "as_dict": _to_plain,
}


def detectron_defaults(state: State, call: Invocation) -> Value:
    """`get_cfg()`: the library's documented defaults, unless the repository holds its own."""
    config = attr_tree(plain_tree(state.library.config_defaults("detectron2")), "yacs")
    return _noted(state, config, "detectron2 config")


# -- gin -------------------------------------------------------------------


def gin_parse(state: State, call: Invocation) -> Value:
    bindings: dict[str, Value] = state.shared.setdefault("gin", {})
    for name in ("config_files", "config_file", "bindings", "config"):
        given = call.kwargs.get(name)
        if given is not None:
            _gin_apply(state, given, bindings)
    for argument in call.args:
        _gin_apply(state, argument, bindings)
    if not any(s.name == "gin" for s in state.trace.settings):
        state.trace.settings.append(Settings("gin", Value(bindings), "config"))
    return Value(None)


def _gin_apply(state: State, given: Value, bindings: dict[str, Value]) -> None:
    for item in several(given):
        if not isinstance(item.data, str):
            continue
        found = locate(state, item)
        if found is None and item.data.endswith(".gin"):
            # gin looks along search paths of its own: take the only file of that name
            named = list(state.sources.root.rglob(PurePosixPath(item.data).name))
            found = named[0] if len(named) == 1 and state.sources.inside(named[0]) else None
        try:
            if found is not None:
                bindings.update(parse_gin(found, state.sources.root))
            elif "=" in item.data:
                parsed = parse_gin(item.data, state.sources.root)
                bindings.update({k: Value(v.data, item.origin) for k, v in parsed.items()})
        except InputError as error:
            state.trace.warn(str(error))


def gin_arguments(state: State, function: Function) -> dict[str, Value]:
    """Parameters of a function or constructor that gin binds."""
    bindings = state.shared.get("gin")
    if not bindings:
        return {}
    names = {function.name}
    if function.cls is not None:
        names = {function.cls.name} if function.name == "__init__" else set()
    found: dict[str, Value] = {}
    for key, value in bindings.items():
        target, _, parameter = key.rpartition(".")
        if target.rpartition("/")[2].rpartition(".")[2] in names:
            text = value.data.text if isinstance(value.data, Unknown) else None
            if value.known:
                found[parameter] = value
            elif text is not None and text.startswith("@"):
                found[parameter] = _configurable(state, text, value)
    return found


def _configurable(state: State, text: str, value: Value) -> Value:
    """What a gin reference `@scope/name` or `@name()` stands for."""
    name = text.strip("@()").rpartition("/")[2].rpartition(".")[2]
    for module in list(state.sources.modules.values()):
        held = module.scope.names.get(name)
        if held is not None and isinstance(held.data, Class | Function):
            state.trace.looked_up.add(name)
            if text.endswith("()"):
                return state.call(held, [], {}, Site(module.file, 1))
            return Value(held.data, value.origin)
    return value


def read_ini(state: State, call: Invocation) -> Value:
    """`ConfigParser.read(path)`: the sections become the parser's items."""
    loaded = read_file(state, call.args[0]) if call.args else None
    if loaded is not None and call.base is not None and isinstance(call.base.data, Call):
        for key, value in (state.mapping(loaded) or {}).items():
            call.base.data.attrs[str(key)] = value
        call.base.data.attrs["__items__"] = loaded
    return Value([])


def ini_get(state: State, call: Invocation) -> Value:
    base = call.base.data if call.base is not None else None
    items = base.attrs.get("__items__") if isinstance(base, Call) else None
    value = items
    for key in call.args[:2]:
        mapping = state.mapping(value) if value is not None else None
        value = mapping.get(key.data) if mapping is not None else None
    return value if value is not None else call.kwargs.get("fallback", unknown())


def ini_items(state: State, call: Invocation) -> Value:
    base = call.base.data if call.base is not None else None
    items = base.attrs.get("__items__") if isinstance(base, Call) else None
    section = call.args[0].data if call.args else None
    mapping = state.mapping(items) if items is not None else None
    if mapping is None:
        return unknown()
    inner = state.mapping(mapping.get(section, Value({}))) if section is not None else mapping
    return Value([Value((lifted(key), value)) for key, value in (inner or {}).items()])


_LOADERS = (
    "yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "yaml.YAML().load",
    "json.load", "json.loads", "toml.load", "toml.loads", "yaml.safe_load_all", "pyhocon.parse",
    "hyperpyyaml.load_hyperpyyaml", "mmcv.load", "mmengine.load", "rtoml.load", "hjson.load",
    "anyconfig.load", "pyjson5.load", "oyaml.safe_load", "yamlinclude.load",
)  # fmt: skip
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

YACS_NODES = tuple(path for path, flavour in _ATTR_DICTS.items() if flavour == "yacs")

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_LOADERS, load_mapping),
    **{path: attr_dict(flavour) for path, flavour in _ATTR_DICTS.items()},
    **{
        f"{root}.Config.fromfile": mm_from_file
        for root in ("mmcv", "mmengine", "mmcv.utils", "mmengine.config")
    },
    "omegaconf.OmegaConf.load": omega_load,
    "omegaconf.OmegaConf.create": omega_create,
    "omegaconf.DictConfig": omega_create,
    "omegaconf.OmegaConf.structured": omega_structured,
    "omegaconf.OmegaConf.merge": omega_merge,
    "omegaconf.OmegaConf.unsafe_merge": omega_merge,
    "omegaconf.OmegaConf.from_cli": omega_cli,
    "omegaconf.OmegaConf.from_dotlist": omega_cli,
    "omegaconf.OmegaConf.to_container": omega_plain,
    "omegaconf.OmegaConf.to_object": omega_plain,
    "omegaconf.OmegaConf.select": omega_select,
    "omegaconf.OmegaConf.update": omega_update,
    "detectron2.config.get_cfg": detectron_defaults,
    "gin.parse_config_files_and_bindings": gin_parse,
    "gin.parse_config_file": gin_parse,
    "gin.parse_config": gin_parse,
    "gin.bind_parameter": gin_parse,
    "configparser.ConfigParser().read": read_ini,
    "configparser.RawConfigParser().read": read_ini,
    "configparser.SafeConfigParser().read": read_ini,
    **{
        f"configparser.{kind}().{method}": ini_get
        for kind in ("ConfigParser", "RawConfigParser", "SafeConfigParser")
        for method in ("get", "getint", "getfloat", "getboolean")
    },
    **{
        f"configparser.{kind}().items": ini_items
        for kind in ("ConfigParser", "RawConfigParser", "SafeConfigParser")
    },
    "jsonmerge.merge": omega_merge,
    "mergedeep.merge": omega_merge,
    "deepmerge.always_merger.merge": omega_merge,
    "*.deepmerge": omega_merge,
    "*.deep_merge": omega_merge,
    "*.merge_dicts": omega_merge,
    "ml_collections.config_dict.placeholder": placeholder,
    "ml_collections.config_dict.FieldReference": placeholder,
    "ml_collections.FieldReference": placeholder,
}


def config_method(state: State, base: Value, name: str) -> Value | None:
    """A method of a configuration node."""
    data = base.data
    method = METHODS.get(name)
    if method is None or not isinstance(data, AttrDict):
        return None
    if data.flavour == "namespace" and not name.startswith("_"):
        return None
    return Value(Native(name, lambda s, a, k, at: method(s, base, a, k, at)))
