"""OmegaConf, and functions of other names that merge mappings as it does."""

from __future__ import annotations

from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import merge, set_dotted, wrap
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.records import attributes, make_record
from schedmate.agent.interp.libs.configs.files import noted, read_file
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import AttrDict, as_function, as_instance
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate, set_path
from schedmate.agent.interp.values.trees import attr_tree, bounded, plain_tree
from schedmate.agent.values import Value, unknown

RESOLVERS = "omegaconf resolvers"
"""Where the program's own resolvers are kept, by name."""


def omega_load(machine: Machine, call: Invocation) -> Value:
    loaded = read_file(machine, call.argument(0, "file_", "f", "default") or unknown())
    return attr_tree(loaded, "omegaconf") if loaded is not None else unknown()


def omega_create(machine: Machine, call: Invocation) -> Value:
    source = call.argument(0, "obj", "content") or Value({})
    return attr_tree(plain_tree(as_mapping(machine, source)), "omegaconf")


def omega_structured(machine: Machine, call: Invocation) -> Value:
    source = call.argument(0, "obj") or Value({})
    if as_instance(source) is not None:
        return attr_tree(as_mapping(machine, source), "omegaconf")
    return attr_tree(
        as_mapping(machine, Value(attributes(make_record(machine, source)))), "omegaconf"
    )


def as_mapping(machine: Machine, value: Value) -> Value:
    """Records become mappings, at any depth; unknown where that is too large."""
    return _as_mapping(machine, value) if bounded(value) else unknown(origin=value.origin)


def _as_mapping(machine: Machine, value: Value) -> Value:
    record, items = as_instance(value), value.mapping
    if record is not None:
        items = record.mapping if record.mapping is not None else record.attrs
    if items is None:
        return value
    return Value({k: _as_mapping(machine, v) for k, v in items.items()}, value.origin)


def omega_merge(machine: Machine, call: Invocation) -> Value:
    merged = Value({})
    for argument in call.args:
        layer = as_mapping(machine, argument)
        if layer.mapping is not None:
            merged = merge(merged, plain_tree(layer))
        elif layer.elements is not None:
            merged = with_dotlist(merged, layer.elements)
    return noted(
        machine,
        attr_tree(
            resolve_interpolations(merged, resolvers=machine.shared.get(RESOLVERS)), "omegaconf"
        ),
        "merged config",
    )


def with_dotlist(config: Value, items: list[Value]) -> Value:
    """The config with `a.b=1` texts laid upon it; other texts are passed over."""
    for item in items:
        if item.text is not None and "=" in item.text:
            key, _, text = item.text.partition("=")
            value = wrap(parse_scalar(text), item.origin)
            config = set_dotted(config, key.lstrip("-"), value)
    return config


def omega_cli(machine: Machine, call: Invocation) -> Value:
    items = iterate(call.argument(0, "args_list")) or machine.argv[1:]
    return attr_tree(with_dotlist(Value({}), items), "omegaconf")


def omega_plain(machine: Machine, call: Invocation) -> Value:
    config = call.argument(0, "cfg") or unknown()
    return plain_tree(config) if config.mapping is not None else config


def omega_select(machine: Machine, call: Invocation) -> Value:
    config, key = call.argument(0, "cfg"), call.argument(1, "key")
    if config is None or key is None or key.text is None:
        return unknown()
    for part in key.text.split("."):
        mapping = machine.mapping(config)
        if mapping is None or part not in mapping:
            return call.kwargs.get("default", Value(None))
        config = mapping[part]
    return config


def omega_update(machine: Machine, call: Invocation) -> Value:
    config, key, value = call.argument(0), call.argument(1), call.argument(2)
    if config is None or key is None or value is None or key.text is None:
        return Value(None)
    set_path(machine, config, key.text.split("."), value)
    return Value(None)


_OMEGACONF: dict[str, Handler] = {
    "load": omega_load,
    "create": omega_create,
    "structured": omega_structured,
    "merge": omega_merge,
    "unsafe_merge": omega_merge,
    "from_cli": omega_cli,
    "from_dotlist": omega_cli,
    "to_container": omega_plain,
    "to_object": omega_plain,
    "select": omega_select,
    "update": omega_update,
}
_MERGES = (
    "jsonmerge.merge", "mergedeep.merge", "deepmerge.always_merger.merge",
    "*.deepmerge", "*.deep_merge", "*.merge_dicts",
)  # fmt: skip


def register(machine: Machine, call: Invocation) -> Value:
    """`OmegaConf.register_new_resolver(name, function)`: called where a configuration uses it."""
    name, resolver = call.argument(0, "name"), call.argument(1, "resolver")
    if name is not None and resolver is not None and as_function(resolver) is not None:

        def resolve(arguments: list[Value]) -> Value:
            return machine.call(resolver, arguments, {}, call.site)

        machine.shared.setdefault(RESOLVERS, {})[str(name.data)] = resolve
    return Value(None)


PLUGIN = Plugin(
    types={"omegaconf.DictConfig": (AttrDict,), "omegaconf.ListConfig": (list,)},
    calls={
        "omegaconf.DictConfig": omega_create,
        "omegaconf.ListConfig": omega_create,
        "sconf.Config": omega_load,
        "omegaconf.OmegaConf.register_new_resolver": register,
        "omegaconf.OmegaConf.register_resolver": register,
        **{f"omegaconf.OmegaConf.{name}": handler for name, handler in _OMEGACONF.items()},
        **dict.fromkeys(_MERGES, omega_merge),
    },
)
