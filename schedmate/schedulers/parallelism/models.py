"""Sizes of models: transformers, mixtures of experts, Wide-ResNets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from schedmate import data
from schedmate.errors import InputError, did_you_mean
from schedmate.schedulers.parallelism import resnet

Kind = Literal["transformer", "wide-resnet"]
VOCABULARY_MULTIPLE = 128
"""Embedding tables are padded to a multiple of this (Megatron-LM's default)."""


@dataclass(frozen=True)
class ModelSpec:
    """A model by its sizes; models.yaml explains each."""

    name: str
    kind: Kind = "transformer"
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

    def convolution_layers(self) -> tuple[resnet.Layer, ...]:
        """The layers of a Wide-ResNet, in order."""
        return resnet.layers(self.depth, self.base, self.width)

    def sizes(self) -> dict[str, Any]:
        """The sizes of a transformer for a plan, with every setting that is not the default."""
        usual = ModelSpec("")
        own = {"hidden": self.hidden, "layers": self.blocks, "heads": self.heads}
        own["vocabulary"] = self.vocabulary
        for name in (*OPTIONAL, *FLAGS):
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
    """The bundled model with this name.

    Raises `InputError` with the nearest names if there is none.
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


FLAGS: dict[str, type] = {
    **dict.fromkeys(("gated", "biases", "dropout", "tied", "causal"), bool),
    **dict.fromkeys(("activation", "norm", "attention"), str),
    **dict.fromkeys(("top", "every"), int),
}
"""Settings of the architecture, with the types of their values."""

OPTIONAL = frozenset({"kv_heads", "ffn", "positions", "experts"})
"""Sizes that may be 0."""
