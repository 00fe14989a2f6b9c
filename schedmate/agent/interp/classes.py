"""Objects of the repository's classes: construction, dataclasses, enums, networks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from schedmate.agent.interp.flow import BudgetSpent
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.objects import AttrDict, Call, Class, Function, Instance, Site, Symbol
from schedmate.agent.interp.trace import Settings
from schedmate.agent.interp.values_ops import iterate, plain_key
from schedmate.agent.values import Origin, Unknown, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

_NETWORK_NAMES = frozenset(
    [
        "Module",
        "Model",
        "Layer",
        "Block",
        "HybridBlock",
        "Cell",
        "Chain",
        "PreTrainedModel",
        "Sequential",
        "ModuleList",
        "MessagePassing",
        "BaseModule",
        "BaseModel",
        "ModelMixin",
        "Functional",
        "nnx",
        "Transform",
        "GraphModule",
        "TFPreTrainedModel",
        "FlaxPreTrainedModel",
        "PyTorchModelHubMixin",
    ]
)
_NETWORK_ROOTS = frozenset(
    [
        "torch",
        "tensorflow",
        "keras",
        "flax",
        "haiku",
        "equinox",
        "jax",
        "paddle",
        "mindspore",
        "mxnet",
        "chainer",
        "transformers",
        "torch_geometric",
        "torchvision",
        "timm",
        "diffusers",
        "megatron",
        "fairseq",
        "mmengine",
        "mmcv",
        "sonnet",
        "snt",
        "nn",
        "linen",
        "segmentation_models_pytorch",
        "tflearn",
        "dgl",
    ]
)
_DATACLASS = ("dataclass", "define", "frozen", "s", "attrs", "chz")
_RECORD_BASES = (
    "BaseModel", "NamedTuple", "BaseSettings", "TypedDict", "Tap", "Serializable",
    "TrainingArguments", "Seq2SeqTrainingArguments", "PretrainedConfig", "SFTConfig",
    "Struct", "FlattenedAccess", "BaseArgs",
)  # fmt: skip
_DICT_BASES = frozenset(
    [
        "dict",
        "OrderedDict",
        "defaultdict",
        "UserDict",
        "EasyDict",
        "Munch",
        "AttrDict",
        "Box",
        "ConfigDict",
        "CfgNode",
        "CN",
        "addict.Dict",
        "Dict",
        "Namespace",
    ]
)
_CONFIG = re.compile(
    r"(Config|Configuration|Cfg|Args|Arguments|H[Pp]arams?|Hyper\w*|Options?|Opts?|Settings|Params)$"
)
_ENUM_BASES = ("Enum", "IntEnum", "StrEnum", "Flag")


def symbol(state: State, path: str) -> Value:
    """A third-party name; schedmate's own model of it when there is one."""
    constant = state.library.constant(state, path)
    return constant if constant is not None else Value(Symbol(path))


def last(path: str) -> str:
    """The final component of a dotted path without call marks."""
    return path.replace("()", "").rsplit(".", 1)[-1]


def is_network(cls: Class) -> bool:
    """Whether the class is a neural network layer or model (not a training wrapper)."""
    for base in cls.external_bases():
        name = last(base)
        root = base.replace("?", "").split(".")[0]
        if "Lightning" in name or "DataModule" in name:
            return False
        if name in _NETWORK_NAMES and root in _NETWORK_ROOTS:
            return True
        if name.endswith(("PreTrainedModel", "ForCausalLM", "ForConditionalGeneration")):
            return True
        if root in ("torchvision", "timm", "transformers") and name.endswith(
            ("Model", "Net", "Transformer", "ResNet", "Classification")
        ):
            return True
    return False


def is_training_module(cls: Class) -> bool:
    """Whether the class is a LightningModule."""
    return any(last(base) == "LightningModule" for base in cls.external_bases())


def is_dataset(cls: Class) -> bool:
    """Whether the class is a dataset or a data module."""
    return any(
        last(base) in ("Dataset", "IterableDataset", "LightningDataModule", "Sequence",
                       "InMemoryDataset", "DatasetFolder", "ImageFolder", "VisionDataset",
                       "PyDataset", "GeneratorBasedBuilder")
        or last(base).endswith("Dataset")
        for base in cls.external_bases()
    )  # fmt: skip


def is_record(cls: Class) -> bool:
    """Whether construction assigns annotated fields: dataclasses, attrs, pydantic and the like."""
    for current in cls.mro():
        for decorator in current.decorators:
            data = decorator.data
            if isinstance(data, Symbol | Call) and last(data.path) in _DATACLASS:
                return True
            if isinstance(data, Function) and "dataclass" in data.name:
                return True
    return any(last(base) in _RECORD_BASES for base in cls.external_bases())


def fields(state: State, cls: Class) -> dict[str, Value]:
    """A record class's fields with their default values, inherited ones first."""
    found: dict[str, Value] = {}
    for base in reversed(cls.external_bases()):
        found.update(state.library.record_defaults(base))
    for current in reversed(cls.mro()):
        for name in current.annotations:
            default = current.attrs.get(name)
            line = current.lines.get(name)
            origin = Origin("default", current.module.file, line)
            if default is None:
                found.setdefault(name, Value(Unknown(name), origin))
                continue
            found[name] = _field_default(state, default, origin, current)
        for name, value in current.attrs.items():
            if name in found and name not in current.annotations and value.known:
                found[name] = value
    return found


def _field_default(state: State, default: Value, origin: Origin, cls: Class) -> Value:
    data = default.data
    if isinstance(data, Call) and last(data.path) in ("field", "Field", "attrib", "ib", "Factory",
                                                       "mutable_field", "list_field", "HfArg",
                                                       "arg", "flag", "subparsers"):  # fmt: skip
        given = data.kwargs.get("default")
        if given is None and data.args and last(data.path) != "subparsers":
            given = data.args[0]
        factory = data.kwargs.get("default_factory") or data.kwargs.get("factory")
        if given is None and factory is not None:
            made = state.call(factory, [], {}, Site(cls.module.file, origin.line or 1))
            return Value(made.data, origin)
        if given is None and last(data.path) in ("list_field", "mutable_field"):
            return Value(list(data.args), origin)
        if given is None or (isinstance(given.data, Symbol) and "MISSING" in given.data.path):
            return Value(Unknown(), origin)
        return Value(given.data, origin)
    if isinstance(data, Instance | AttrDict | Call):
        return default
    if isinstance(data, Symbol) and "MISSING" in data.path:
        return Value(Unknown(), origin)
    return Value(data, origin)


def instantiate(
    state: State,
    cls: Class,
    args: list[Value],
    kwargs: dict[str, Value],
    site: Site,
) -> Value:
    """Construct an object as far as that can be followed."""
    externals = [last(base) for base in cls.external_bases()]
    if any(name in _ENUM_BASES for name in externals):
        return _enum_member(cls, args)
    metaclass_call = cls.lookup("__new__")
    instance = Instance(cls, args=args, kwargs=kwargs)
    if any(name in _DICT_BASES for name in externals):
        items: dict[Any, Value] = {}
        instance.items = Value(items)
    elif "list" in externals or "UserList" in externals:
        instance.items = Value([])
    value = Value(instance, Origin("code", site.file, site.line))
    state.record(qualified(cls), args, kwargs, site, value, cls)
    call = Invocation(qualified(cls), args, kwargs, site)
    if externals:
        made = state.library.constructed(state, value, cls, call)
        if made is not None:
            return made
    if _CONFIG.search(cls.name) and not is_network(cls):
        held = instance.items if instance.items is not None else Value(instance.attrs)
        state.trace.settings.append(Settings(cls.name, held, "dataclass"))
    init = cls.lookup("__init__")
    if is_record(cls) and (init is None or not isinstance(init.data, Function)):
        instance.attrs.update(_record_arguments(state, cls, args, kwargs))
        _run(state, cls, "__post_init__", value, [], {}, site)
        return value
    if instance.items is not None and init is None and isinstance(instance.items.data, dict):
        fill_mapping(state, instance.items.data, args, kwargs)
    if init is not None and isinstance(init.data, Function):
        if is_network(cls):
            _run_network(state, cls, init.data, [value, *args], kwargs, site)
        else:
            state.call_function(init.data, [value, *args], kwargs, site)
    elif metaclass_call is not None and isinstance(metaclass_call.data, Function):
        made = state.call_function(metaclass_call.data, [Value(cls), *args], kwargs, site)
        if isinstance(made.data, Instance):
            return made
    return value


def qualified(cls: Class) -> str:
    """`module.Class` of a repository class."""
    return f"{cls.module.name}.{cls.name}"


def _run(
    state: State,
    cls: Class,
    method: str,
    self: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    site: Site,
) -> None:
    found = cls.lookup(method)
    if found is not None and isinstance(found.data, Function):
        state.call_function(found.data, [self, *args], kwargs, site)


def _run_network(
    state: State,
    cls: Class,
    init: Function,
    args: list[Value],
    kwargs: dict[str, Value],
    site: Site,
) -> None:
    """Follow a network's constructor a little way: its parts matter less than its name."""
    if len(state.networks) >= 2:
        return
    state.networks.append(cls.name)
    limit = state.step_limit
    state.step_limit = min(limit, state.steps + state.limits.network_steps)
    try:
        state.call_function(init, args, kwargs, site)
    except BudgetSpent:
        if state.steps > limit or state.out_of_time():
            raise
    finally:
        state.step_limit = limit
        state.networks.pop()


def _record_arguments(
    state: State, cls: Class, args: list[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    values = fields(state, cls)
    names = list(values)
    for name, value in zip(names, args, strict=False):
        values[name] = value
    values.update(kwargs)
    return values


def fill_mapping(
    state: State, items: dict[Any, Value], args: list[Value], kwargs: dict[str, Value]
) -> None:
    for value in args:
        mapping = state.mapping(value)
        if mapping is not None:
            items.update(mapping)
            continue
        for pair in iterate(value) or []:
            parts = iterate(pair)
            if parts is not None and len(parts) == 2:
                key = plain_key(parts[0])
                if key is not None:
                    items[key] = parts[1]
    items.update(kwargs)


def _enum_member(cls: Class, args: list[Value]) -> Value:
    wanted = args[0] if args else unknown()
    for name, value in cls.attrs.items():
        if value.known and not name.startswith("_") and value.plain() == wanted.plain():
            return enum_member(cls, name, value)
    return wanted


def enum_member(cls: Class, name: str, value: Value) -> Value:
    """`Class.MEMBER` of an enum: an object with `name` and `value`."""
    attrs = {"name": Value(name, value.origin), "value": value, "_value_": value}
    return Value(Instance(cls, attrs), value.origin)
