"""Large models by their sizes: transformers, mixtures of experts, Wide-ResNets.

The bundled ones are in models.yaml; others come from the sizes in a plan, a configuration or a
job's metadata. Wide-ResNets are convolutions as matrix products (Alpa, OSDI'22, Table 8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from schedmate.base import data
from schedmate.base.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata


RESNET_IMAGE = 224
RESNET_CLASSES = 1024
_RESNET_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class ResNetLayer(NamedTuple):
    """A bottleneck block, the stem or the classifier."""

    name: str
    products: tuple[tuple[float, float, float], ...]
    """Its convolutions as (output pixels of an image, inner size, output channels)."""
    parameters: float
    saved: float
    """Elements of an image kept for the backward pass."""

    @property
    def output(self) -> float:
        """Elements of an image that the next layer takes."""
        pixels, _, channels = self.products[min(2, len(self.products) - 1)]
        return pixels * channels


@cache
def resnet_layers(depth: int, base: int, width: int) -> tuple[ResNetLayer, ...]:
    """Stem, bottleneck blocks and classifier of a Wide-ResNet, in order.

    `depth` is 50 or 101, `base` the channels of the stem, `width` the factor of the wide ones. The
    first block of each group but the first halves the image; the first of each has a projection.
    """
    side = RESNET_IMAGE // 2
    stem = (side**2, 7 * 7 * 3, base)
    layers = [ResNetLayer("stem", (stem,), stem[1] * stem[2], 2 * side**2 * base)]
    side, channels = side // 2, base
    for group, count in enumerate(_RESNET_BLOCKS[depth]):
        narrow = base * 2**group
        inner, out = narrow * width, 4 * narrow
        for index in range(count):
            if index == 0 and group:
                side //= 2
            products = [
                (side**2, channels, narrow),
                (side**2, 9 * narrow, inner),
                (side**2, inner, out),
            ]
            if index == 0:
                products.append((side**2, channels, out))
            parameters = sum(inside * outside for _, inside, outside in products)
            saved = 2 * sum(pixels * outside for pixels, _, outside in products)
            layers.append(
                ResNetLayer(f"block-{group + 1}.{index + 1}", tuple(products), parameters, saved)
            )
            channels = out
    classifier = (1, channels, RESNET_CLASSES)
    return (
        *layers,
        ResNetLayer(
            "classifier", (classifier,), channels * RESNET_CLASSES, channels + RESNET_CLASSES
        ),
    )


# Sizes of models: transformers, mixtures of experts, Wide-ResNets.


ModelKind = Literal["transformer", "wide-resnet"]
VOCABULARY_MULTIPLE = 128
"""Embedding tables are padded to a multiple of this (Megatron-LM's default)."""


@dataclass(frozen=True)
class ModelSpec:
    """A model by its sizes; models.yaml explains each."""

    name: str
    kind: ModelKind = "transformer"
    hidden: int = 0
    blocks: int = 0
    heads: int = 1
    kv_heads: int = 0
    """Heads of keys and values; 0: the same number as `heads`."""
    ffn: int = 0
    """Width of the feed-forward network; 0: 4 x hidden."""
    gated: bool = False
    vocabulary: int = 50257
    positions: int = 0
    activation: str = "gelu"
    norm: str = "layer"
    biases: bool = True
    dropout: bool = False
    attention: str = "scores"
    causal: bool = True
    tied: bool = True
    """The head uses the embedding's table."""
    experts: int = 0
    every: int = 1
    top: int = 1
    depth: int = 0
    base: int = 0
    width: int = 0

    @property
    def feed_forward(self) -> int:
        """Width of the feed-forward network."""
        return self.ffn or 4 * self.hidden

    @property
    def keys(self) -> int:
        """Width of the keys (and of the values)."""
        return self.hidden * (self.kv_heads or self.heads) // self.heads

    @property
    def padded_vocabulary(self) -> int:
        """Rows of the embedding table."""
        return -(-self.vocabulary // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    @property
    def layers(self) -> int:
        """Layers that stages consist of: embedding, blocks and head, or those of a Wide-ResNet."""
        if self.kind == "wide-resnet":
            return len(self.convolution_layers())
        return self.blocks + 2

    def convolution_layers(self) -> tuple[ResNetLayer, ...]:
        """The layers of a Wide-ResNet, in order."""
        return resnet_layers(self.depth, self.base, self.width)

    def sizes(self) -> dict[str, Any]:
        """The sizes of a transformer for a plan, with every setting that is not the default."""
        usual = ModelSpec("")
        own = {"hidden": self.hidden, "layers": self.blocks, "heads": self.heads}
        own["vocabulary"] = self.vocabulary
        for name in (*SPEC_OPTIONAL, *SPEC_FLAGS):
            value = getattr(self, name)
            if value != getattr(usual, name):
                own[name] = value
        return own

    def is_moe(self, block: int) -> bool:
        """Whether block `block`, from 0, has experts: the last of every `every` blocks."""
        return bool(self.experts) and block % self.every == self.every - 1

    def block_parameters(self, block: int = 0) -> tuple[float, float]:
        """Parameters of a block: (those that tensor parallelism divides, those it copies)."""
        h, f = self.hidden, self.feed_forward
        attention = h * (h + 2 * self.keys) + h * h
        mlp = (3 if self.gated else 2) * h * f
        divided: float = attention + mlp
        copied: float = h * (4 if self.norm == "layer" else 2)
        if self.biases:
            divided += h + 2 * self.keys + f
            copied += 2 * h
        if self.is_moe(block):
            divided += (self.experts - 1) * (mlp + (f + h if self.biases else 0))
            copied += h * self.experts
        return divided, copied

    def embedding_parameters(self) -> tuple[float, float]:
        """Parameters of the embedding: (divided by tensor parallelism, copied)."""
        return self.padded_vocabulary * self.hidden, self.positions * self.hidden

    def head_parameters(self) -> tuple[float, float]:
        """Parameters of final norm and head (a copy of the embedding where that is tied)."""
        norms = 2 if self.norm == "layer" else 1
        return self.padded_vocabulary * self.hidden, norms * self.hidden

    def parameters(self) -> float:
        """All parameters; a tied head is the embedding's table and counts once."""
        if self.kind == "wide-resnet":
            return sum(layer.parameters for layer in self.convolution_layers())
        blocks = sum(sum(self.block_parameters(block)) for block in range(self.blocks))
        table, norm = self.head_parameters()
        return blocks + sum(self.embedding_parameters()) + norm + (0 if self.tied else table)


@cache
def bundled_models() -> dict[str, ModelSpec]:
    """The bundled models by name."""
    document = data.load("schedulers/parallelism/models.yaml")
    models = {}
    for name, sizes in document["models"].items():
        fields = dict(sizes)
        family = document["families"].get(fields.pop("family", ""), {})
        models[name] = ModelSpec(name, **{**family, **fields})
    return models


def find_model(name: str) -> ModelSpec:
    """The bundled model with this name.

    Raises `InputError` with the nearest names if there is none.
    """
    by_name = {_plain_name(model_name): model_name for model_name in bundled_models()}
    short = _plain_name(name.rsplit("/", 1)[-1])
    if short not in by_name:
        near = did_you_mean(name, bundled_models())
        raise InputError(
            f"unknown model {name!r}{near}; `schedmate parallel models` lists the known ones, or "
            "give its sizes as model_sizes: hidden, layers, heads, vocabulary"
        )
    return bundled_models()[by_name[short]]


def _plain_name(name: str) -> str:
    """A model's name without case and separators; the point of 1.3b stays."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


SPEC_FLAGS: dict[str, type] = {
    **dict.fromkeys(("gated", "biases", "dropout", "tied", "causal"), bool),
    **dict.fromkeys(("activation", "norm", "attention"), str),
    **dict.fromkeys(("top", "every"), int),
}
"""Settings of the architecture, with the types of their values."""

SPEC_OPTIONAL = frozenset({"kv_heads", "ffn", "positions", "experts"})
"""Sizes that may be 0."""


# The model that a plan, a configuration or a job's metadata describes by name and sizes.


LARGEST_SIZE = 10**7

_SIZES = {
    "hidden": ("hidden", "hidden_size", "d_model", "n_embd", "dim"),
    "blocks": ("layers", "num_layers", "n_layer", "num_hidden_layers", "n_layers", "blocks"),
    "heads": ("heads", "num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": (
        *("kv_heads", "n_kv_head", "num_key_value_heads", "num_query_groups", "n_kv_heads"),
    ),
    "ffn": ("ffn", "intermediate_size", "ffn_hidden_size", "d_ff", "n_inner"),
    "vocabulary": ("vocabulary", "vocab_size", "padded_vocab_size"),
    "positions": ("positions", "max_position_embeddings", "n_positions"),
    "experts": ("experts", "num_experts", "num_local_experts", "n_experts"),
}
"""What sizes are called, first our own name."""


def model_from_sizes(sizes: Mapping[str, Any], name: str = "") -> ModelSpec:
    """A transformer of sizes under our names or those of common configurations.

    Raises `InputError` where hidden size or layers are missing, or a size is not a whole number of
    at least 1.
    """
    fields: dict[str, Any] = {}
    for ours, names in _SIZES.items():
        for key in names:
            if sizes.get(key) is not None:
                fields[ours] = _whole_number(
                    key, sizes[key], least=0 if ours in SPEC_OPTIONAL else 1
                )
                break
    for flag, kind in SPEC_FLAGS.items():
        if sizes.get(flag) is not None:
            fields[flag] = kind(sizes[flag])
    missing = [
        what for what, ours in (("hidden", "hidden"), ("layers", "blocks")) if ours not in fields
    ]
    if missing:
        raise InputError(f"model_sizes lacks {' and '.join(missing)}: state the size of the model")
    fields.setdefault("heads", max(1, fields["hidden"] // 64))
    if fields["hidden"] % fields["heads"]:
        raise InputError(
            f"hidden size {fields['hidden']} is not divisible by {fields['heads']} heads: "
            "correct model_sizes"
        )
    return ModelSpec(name or "custom model", **fields)


def named_or_sized(
    name: str | None, sizes: Mapping[str, Any] | None
) -> tuple[ModelSpec, list[str]]:
    """The model of a plan by name or sizes, and notes on it.

    A known name has more information than sizes (vocabulary as trained, activation, dropout), so it
    takes precedence if hidden size and layers agree; else the sizes do.
    """
    bundled = None
    if name:
        try:
            bundled = find_model(name)
        except InputError:
            if not sizes:
                raise
    if not sizes:
        if bundled is None:
            raise InputError("the plan names no model: give `model` or `model_sizes`")
        return bundled, []
    sized = model_from_sizes(sizes, name or "")
    if bundled is None or (bundled.hidden, bundled.blocks) != (sized.hidden, sized.blocks):
        return sized, []
    notes = [
        f"{name} has {ours} {what}, not {theirs} as model_sizes says: the published number is used"
        for what, ours, theirs, size_names in (
            ("heads", bundled.heads, sized.heads, _SIZES["heads"]),
            ("vocabulary", bundled.vocabulary, sized.vocabulary, _SIZES["vocabulary"]),
        )
        if ours != theirs and any(one in sizes for one in size_names)
    ]
    return bundled, notes


def model_from_metadata(metadata: WorkloadMetadata) -> ModelSpec:
    """The model that a job trains, from the metadata of `schedmate analyze`.

    What sizes leave open (gated or not, norms, attention) follows from the architecture in its
    name. Raises `InputError` if there are neither sizes nor a known name.
    """
    section = dict(metadata.sections()["model_config"])
    name = section.get("model_name") or ""
    wide, hidden = section.get("d_ff"), section.get("d_model")
    if isinstance(wide, int) and isinstance(hidden, int) and wide < hidden / 8:
        del section["d_ff"]  # a placeholder: no feed-forward network is so narrow
    try:
        sized = model_from_sizes(section, name)
    except InputError as without:
        if not name:
            raise InputError(
                "the source code does not say how large the model is: name it with --model, or "
                "give --hidden, --layers and --heads"
            ) from without
        return find_model(name)
    bundled = bundled_models().get(name)
    if bundled and (bundled.hidden, bundled.blocks) == (sized.hidden, sized.blocks):
        return bundled
    usual = ModelSpec("")
    stated = {
        key: value
        for key, value in _family_defaults(name).items()
        if getattr(sized, key) == getattr(usual, key)
    }
    return replace(sized, **stated)


def _family_defaults(name: str) -> dict[str, Any]:
    """Defaults of the model family in a name; empty: the name has none."""
    document = data.load("schedulers/parallelism/models.yaml")
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for pattern, family in document["architectures"]:
        if re.search(pattern, plain):
            return dict(document["families"][family])
    return {}


def _whole_number(what: str, value: Any, least: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number != value or not least <= number <= LARGEST_SIZE:
        raise InputError(f"{what} is {value!r}: it must be a whole number of at least {least}")
    return number
