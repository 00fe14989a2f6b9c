"""Sizes of models: transformers, mixtures of experts, Wide-ResNets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from schedmate import data
from schedmate.errors import InputError, did_you_mean
from schedmate.schedulers.parallelism import resnet

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata

Kind = Literal["transformer", "wide-resnet"]
VOCABULARY_MULTIPLE = 128
"""Embedding tables are padded to a multiple of this (Megatron-LM's default)."""

LARGEST_SIZE = 10**7


@dataclass(frozen=True)
class ModelSpec:
    """A model by its sizes; see models.yaml for what each one means."""

    name: str
    kind: Kind = "transformer"
    hidden: int = 0
    blocks: int = 0
    heads: int = 1
    kv_heads: int = 0
    """Heads of keys and values; 0: as many as `heads`."""
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
        """Layers that stages are made of: embedding, blocks and head, or those of a Wide-ResNet."""
        if self.kind == "wide-resnet":
            return len(self.convolution_layers())
        return self.blocks + 2

    def convolution_layers(self) -> tuple[resnet.Layer, ...]:
        """The layers of a Wide-ResNet, in order."""
        return resnet.layers(self.depth, self.base, self.width)

    def sizes(self) -> dict[str, Any]:
        """What a plan says of a transformer: hidden size, layers, and all that is not usual."""
        usual = ModelSpec("")
        own = {"hidden": self.hidden, "layers": self.blocks, "heads": self.heads}
        own["vocabulary"] = self.vocabulary
        for name in (*_OPTIONAL, *_FLAGS):
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
def models() -> dict[str, ModelSpec]:
    """The bundled models by name."""
    document = data.load("schedulers/parallelism/models.yaml")
    found = {}
    for name, sizes in document["models"].items():
        given = dict(sizes)
        family = document["families"].get(given.pop("family", ""), {})
        found[name] = ModelSpec(name, **{**family, **given})
    return found


def model(name: str) -> ModelSpec:
    """The bundled model of a name.

    Raises `InputError`, naming the nearest ones, where there is none.
    """
    by_name = {_plain(known): known for known in models()}
    short = _plain(name.rsplit("/", 1)[-1])
    if short not in by_name:
        near = did_you_mean(name, models())
        raise InputError(
            f"unknown model {name!r}{near}; `schedmate parallel models` lists the known ones, or "
            "give its sizes as model_sizes: hidden, layers, heads, vocabulary"
        )
    return models()[by_name[short]]


def _plain(name: str) -> str:
    """A model's name without case and separators; the point of 1.3b stays."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


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

_FLAGS: dict[str, type] = {
    **dict.fromkeys(("gated", "biases", "dropout", "tied", "causal"), bool),
    **dict.fromkeys(("activation", "norm", "attention"), str),
    **dict.fromkeys(("top", "every"), int),
}


def from_sizes(sizes: Mapping[str, Any], name: str = "") -> ModelSpec:
    """A transformer of sizes under our names or those of common configurations.

    Raises `InputError` where hidden size or layers are missing, or a size is not a whole number of
    at least 1.
    """
    given: dict[str, Any] = {}
    for ours, names in _SIZES.items():
        for one in names:
            if sizes.get(one) is not None:
                given[ours] = _whole(one, sizes[one], least=0 if ours in _OPTIONAL else 1)
                break
    for flag, kind in _FLAGS.items():
        if sizes.get(flag) is not None:
            given[flag] = kind(sizes[flag])
    missing = [
        what for what, ours in (("hidden", "hidden"), ("layers", "blocks")) if ours not in given
    ]
    if missing:
        raise InputError(f"model_sizes lacks {' and '.join(missing)}: say how large the model is")
    given.setdefault("heads", max(1, given["hidden"] // 64))
    if given["hidden"] % given["heads"]:
        raise InputError(
            f"hidden size {given['hidden']} is not divisible by {given['heads']} heads: "
            "correct model_sizes"
        )
    return ModelSpec(name or "model of given sizes", **given)


_OPTIONAL = frozenset({"kv_heads", "ffn", "positions", "experts"})


def named_or_sized(
    name: str | None, sizes: Mapping[str, Any] | None
) -> tuple[ModelSpec, list[str]]:
    """The model that a plan names or gives the sizes of, and what is to be said of it.

    A known name says more than sizes do (vocabulary as trained, activation, dropout), so that it
    decides where its hidden size and layers are those given; else the sizes do.
    """
    known = None
    if name:
        try:
            known = model(name)
        except InputError:
            if not sizes:
                raise
    if not sizes:
        if known is None:
            raise InputError("the plan names no model: give `model` or `model_sizes`")
        return known, []
    sized = from_sizes(sizes, name or "")
    if known is None or (known.hidden, known.blocks) != (sized.hidden, sized.blocks):
        return sized, []
    notes = [
        f"{name} has {ours} {what}, not {theirs} as model_sizes says: the published number is used"
        for what, ours, theirs, said in (
            ("heads", known.heads, sized.heads, _SIZES["heads"]),
            ("vocabulary", known.vocabulary, sized.vocabulary, _SIZES["vocabulary"]),
        )
        if ours != theirs and any(one in sizes for one in said)
    ]
    return known, notes


def from_metadata(metadata: WorkloadMetadata) -> ModelSpec:
    """The model that a job trains, from what `schedmate analyze` found.

    What sizes leave open (gated or not, norms, attention) is that of the architecture by its name.
    Raises `InputError` where neither sizes nor a known name are there.
    """
    section = dict(metadata.sections()["model_config"])
    name = section.get("model_name") or ""
    wide, hidden = section.get("d_ff"), section.get("d_model")
    if isinstance(wide, int) and isinstance(hidden, int) and wide < hidden / 8:
        del section["d_ff"]  # a placeholder: no feed-forward network is so narrow
    try:
        sized = from_sizes(section, name)
    except InputError as without:
        if not name:
            raise InputError(
                "the source code does not say how large the model is: name it with --model, or "
                "give --hidden, --layers and --heads"
            ) from without
        return model(name)
    known = models().get(name)
    if known and (known.hidden, known.blocks) == (sized.hidden, sized.blocks):
        return known
    usual = ModelSpec("")
    stated = {
        key: value
        for key, value in _architecture(name).items()
        if getattr(sized, key) == getattr(usual, key)
    }
    return replace(sized, **stated)


def _architecture(name: str) -> dict[str, Any]:
    """What is usual of the family that a model is of by its name; empty: it names none."""
    document = data.load("schedulers/parallelism/models.yaml")
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for pattern, family in document["architectures"]:
        if re.search(pattern, plain):
            return dict(document["families"][family])
    return {}


def _whole(what: str, value: Any, least: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number != value or not least <= number <= LARGEST_SIZE:
        raise InputError(f"{what} is {value!r}: it must be a whole number of at least {least}")
    return number
