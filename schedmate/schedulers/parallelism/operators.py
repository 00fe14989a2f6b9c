"""The operators of a model: work, memory traffic, parameters and what the backward pass keeps.

Formulas are for one micro-batch on one of the GPUs that share a stage by tensor parallelism as
Megatron-LM divides it: attention heads and feed-forward columns are divided, norms and residual
streams are not. Backward passes of matrix products do twice the work of forward passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from schedmate.schedulers.parallelism.devices import ELEMENT_BYTES
from schedmate.schedulers.parallelism.models import ModelSpec

Role = Literal["embedding", "block", "head"]


class Shape(NamedTuple):
    """A matrix product: `batch` products of [rows x inner] by [inner x columns]."""

    batch: float
    rows: float
    inner: float
    columns: float


@dataclass(frozen=True)
class Operator:
    """One operator of a layer, forward, on one GPU and for one micro-batch."""

    name: str
    flops: float
    traffic: float
    """Bytes read and written."""
    shape: Shape | None = None
    """The matrix product; None for other operators."""
    passes: float = 2
    """Backward work as a multiple of forward work."""


class Sizes(NamedTuple):
    """What sizes operators."""

    micro_batch: int
    sequence: int
    precision: str
    tensor: int

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.micro_batch * self.sequence

    @property
    def element(self) -> int:
        """Bytes of an activation."""
        return ELEMENT_BYTES[self.precision]


def _product(name: str, shape: Shape, element: int, passes: float = 2) -> Operator:
    batch, rows, inner, columns = shape
    return Operator(
        name,
        2 * batch * rows * inner * columns,
        element * batch * (rows * inner + inner * columns + rows * columns),
        shape,
        passes,
    )


def _pointwise(name: str, elements: float, element: int, streams: float = 2) -> Operator:
    return Operator(name, 5 * elements, elements * element * streams, None, 1)


def _convolution(pixels: float, inner: float, channels: float, sizes: Sizes) -> Operator:
    """A convolution of a micro-batch of images, divided by output channels, as a product."""
    rows, columns = sizes.micro_batch * pixels, channels / sizes.tensor
    traffic = sizes.element * (rows * inner / 4 + inner * columns + 3 * rows * columns)
    shape = Shape(1, rows, inner, columns)
    return Operator("convolution", 2 * rows * inner * columns, traffic, shape)


def block(spec: ModelSpec, sizes: Sizes, index: int = 0) -> list[Operator]:
    """The operators of transformer block `index`, which matters where only some have experts."""
    t, e, tokens = sizes.tensor, sizes.element, sizes.tokens
    h, s, heads = spec.hidden, sizes.sequence, spec.heads / sizes.tensor
    each = h / spec.heads
    stream = tokens * h
    scores = sizes.micro_batch * heads * s * s
    found = [
        _pointwise("norm-1", stream, e),
        _product("qkv", Shape(1, tokens, h, (h + 2 * spec.keys) / t), e),
    ]
    products = (
        Shape(sizes.micro_batch * heads, s, each, s),
        Shape(sizes.micro_batch * heads, s, s, each),
    )
    if spec.attention == "flash":
        half = 0.5 if spec.causal else 1
        flops = half * sum(2 * b * r * i * c for b, r, i, c in products)
        found.append(Operator("attention", flops, 4 * stream / t * e, products[0], 2.5))
    else:
        found += [
            _product("scores", products[0], e),
            _pointwise("softmax", scores, e, 3),
            *([_pointwise("scores-dropout", scores, e, 2.25)] if spec.dropout else ()),
            _product("context", products[1], e),
        ]
    found += [
        _product("dense", Shape(1, tokens, h / t, h), e),
        _pointwise("residual-1", stream, e, 3),
        _pointwise("norm-2", stream, e),
        *_feed_forward(spec, sizes, index),
        _pointwise("residual-2", stream, e, 3),
    ]
    return found


def _feed_forward(spec: ModelSpec, sizes: Sizes, index: int) -> list[Operator]:
    t, e, f = sizes.tensor, sizes.element, spec.feed_forward
    tokens = sizes.tokens * (spec.top if spec.is_moe(index) else 1)
    up = 2 if spec.gated else 1
    found = [
        _product("mlp-up", Shape(1, tokens, spec.hidden, up * f / t), e),
        _pointwise("activation", tokens * f / t, e, 1 + up),
        _product("mlp-down", Shape(1, tokens, f / t, spec.hidden), e),
    ]
    if spec.is_moe(index):
        routed = Shape(1, sizes.tokens, spec.hidden, spec.experts)
        found = [_product("gate", routed, e), *found]
    return found


def embedding(spec: ModelSpec, sizes: Sizes) -> list[Operator]:
    """The operators of the embedding: a table look-up, and the table's gradient on the way back."""
    stream = sizes.tokens * spec.hidden
    table = spec.embedding_parameters()[0] / sizes.tensor
    return [
        _pointwise("look-up", stream, sizes.element, 3),
        Operator("table-gradient", 0, 0.5 * table * sizes.element, None, 2),
    ]


def head(spec: ModelSpec, sizes: Sizes) -> list[Operator]:
    """The operators of final norm, head and loss."""
    t, e = sizes.tensor, sizes.element
    logits = sizes.tokens * spec.padded_vocabulary / t
    return [
        _pointwise("final-norm", sizes.tokens * spec.hidden, e),
        _product("head", Shape(1, sizes.tokens, spec.hidden, spec.padded_vocabulary / t), e),
        _pointwise("loss", logits, 4, 4),
    ]


def all_layers(spec: ModelSpec, sizes: Sizes) -> Iterator[list[Operator]]:
    """The operators of every layer: embedding, blocks and head, or those of a Wide-ResNet."""
    if spec.kind == "wide-resnet":
        for layer in spec.convolution_layers():
            yield [_convolution(*product, sizes) for product in layer.products]
        return
    yield embedding(spec, sizes)
    for index in range(spec.blocks):
        yield block(spec, sizes, index)
    yield head(spec, sizes)


def flops_per_sample(spec: ModelSpec, sequence: int) -> float:
    """Work of one training sample, forward and backward, without recomputation [FLOP].

    6 x parameters x tokens + 12 x blocks x hidden x sequence^2 (PaLM, Appendix B) for dense
    transformers, whose experts count as often as a token passes them.
    """
    active = spec.parameters()
    if spec.experts:
        moe = sum(spec.is_moe(index) for index in range(spec.blocks))
        each = (3 if spec.gated else 2) * spec.hidden * spec.feed_forward
        active -= moe * (spec.experts - spec.top) * each
    return 6 * active * sequence + 12 * spec.blocks * spec.hidden * sequence**2


def saved_bytes(spec: ModelSpec, role: Role, sizes: Sizes, recompute: str, index: int = 0) -> float:
    """Memory of a layer's activations, kept from one micro-batch until its backward pass [bytes].

    Coefficients count tensors of tokens x hidden: those that every tensor-parallel GPU keeps whole
    (inputs of norms and products, dropout masks) and those that are divided. They reproduce the
    sizes measured for OPT, GPT-Neo and LLaMA 3 (Sailor, SOSP'25) within a thousandth.
    """
    stream = float(sizes.tokens * spec.hidden * sizes.element)
    if role == "embedding":
        return stream * (1.25 if spec.dropout else 1)
    if role == "head":
        logits = sizes.tokens * spec.padded_vocabulary * sizes.element
        return 2 * stream + 2 * logits / sizes.tensor
    if recompute == "full":
        return stream
    return stream * (
        _whole(spec) + (_divided(spec, index) + _scores(spec, sizes, recompute)) / sizes.tensor
    )


def _whole(spec: ModelSpec) -> float:
    if spec.norm == "rms":
        return 8
    return 4.5 if spec.dropout else 3


def _divided(spec: ModelSpec, index: int) -> float:
    """Queries, keys, values, context and the feed-forward network, in streams of hidden size."""
    wide = spec.feed_forward / spec.hidden * (spec.top if spec.is_moe(index) else 1)
    if spec.gated:
        return 6 + 4 * wide
    return 4 + wide * (2 if spec.activation == "gelu" else 1)


def _scores(spec: ModelSpec, sizes: Sizes, recompute: str) -> float:
    """Attention scores, in streams of hidden size: none with flash attention or recomputed."""
    if spec.attention == "flash" or recompute == "selective":
        return 0
    return spec.heads * sizes.sequence / spec.hidden


def output_bytes(spec: ModelSpec, layer: int, sizes: Sizes) -> float:
    """Size of the output of layer `layer` for a micro-batch [bytes]."""
    if spec.kind == "wide-resnet":
        return spec.convolution_layers()[layer].output * sizes.micro_batch * sizes.element
    return sizes.tokens * spec.hidden * sizes.element


def tensor_reduces(spec: ModelSpec, layer: int) -> tuple[int, int]:
    """All-reduces of a layer's output among tensor-parallel GPUs: (forward, backward).

    Megatron-LM: two each way in a transformer block, one for the embedding and one back from the
    head; a convolution block that is divided by channels needs one each way.
    """
    if spec.kind == "wide-resnet":
        return 1, 1
    if layer == 0:
        return 1, 0
    return (0, 1) if layer == spec.layers - 1 else (2, 2)


def score_bytes(spec: ModelSpec, sizes: Sizes) -> float:
    """One tensor of attention scores of a micro-batch [bytes]."""
    if spec.attention == "flash":
        return 0
    return sizes.micro_batch * spec.heads / sizes.tensor * sizes.sequence**2 * sizes.element
