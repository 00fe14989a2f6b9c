"""What a class of the repository is: a network, a dataset, a record."""

from __future__ import annotations

from schedmate.agent.interp.objects import Call, Class, Function, Symbol

_NETWORK_NAMES = frozenset((
    "Module", "Model", "Layer", "Block", "HybridBlock", "Cell", "Chain", "PreTrainedModel",
    "Sequential", "ModuleList", "MessagePassing", "BaseModule", "BaseModel", "ModelMixin",
    "Functional", "nnx", "Transform", "GraphModule", "TFPreTrainedModel", "FlaxPreTrainedModel",
    "PyTorchModelHubMixin",
))  # fmt: skip

_NETWORK_ROOTS = frozenset((
    "torch", "tensorflow", "keras", "flax", "haiku", "equinox", "jax", "paddle", "mindspore",
    "mxnet", "chainer", "transformers", "torch_geometric", "torchvision", "timm", "diffusers",
    "megatron", "fairseq", "mmengine", "mmcv", "sonnet", "snt", "nn", "linen",
    "segmentation_models_pytorch", "tflearn", "dgl",
))  # fmt: skip

_DATACLASS = ("dataclass", "define", "frozen", "s", "attrs", "chz")

_RECORD_BASES = (
    "BaseModel", "NamedTuple", "BaseSettings", "TypedDict", "Tap", "Serializable",
    "TrainingArguments", "Seq2SeqTrainingArguments", "PretrainedConfig", "SFTConfig",
    "Struct", "FlattenedAccess", "BaseArgs",
)  # fmt: skip


def last(path: str) -> str:
    """The final component of a dotted path without call marks."""
    return path.replace("()", "").rsplit(".", 1)[-1]


def qualified(cls: Class) -> str:
    """`module.Class` of a repository class."""
    return f"{cls.module.name}.{cls.name}"


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
