"""The operators of a model, and the time of each on a GPU type without measurements.

Work, memory traffic, parameters and what the backward pass keeps are formulas for one micro-batch
on one of the GPUs that share a stage by tensor parallelism as Megatron-LM divides it. The device
model (calibration.yaml) turns them into times: a matrix product runs in waves of tiles over the
GPU's processors. It can be fitted to a table of kernel latencies, as NeuSight (ASPLOS'25) publishes
them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any, Literal, NamedTuple

from schedmate.base import data
from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism.devices import (
    ELEMENT_BYTES,
    PRECISIONS,
    DeviceSpec,
    canonical_name,
)
from schedmate.schedulers.parallelism.models import ModelSpec

LayerRole = Literal["embedding", "block", "head"]


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
    """The quantities that determine the sizes of operators."""

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


def block_operators(spec: ModelSpec, sizes: Sizes, index: int = 0) -> list[Operator]:
    """The operators of transformer block `index`, which matters where only some have experts."""
    t, e, tokens = sizes.tensor, sizes.element, sizes.tokens
    h, s, heads = spec.hidden, sizes.sequence, spec.heads / sizes.tensor
    each = h / spec.heads
    stream = tokens * h
    scores = sizes.micro_batch * heads * s * s
    operators = [
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
        operators.append(Operator("attention", flops, 4 * stream / t * e, products[0], 2.5))
    else:
        operators += [
            _product("scores", products[0], e),
            _pointwise("softmax", scores, e, 3),
            *([_pointwise("scores-dropout", scores, e, 2.25)] if spec.dropout else ()),
            _product("context", products[1], e),
        ]
    operators += [
        _product("dense", Shape(1, tokens, h / t, h), e),
        _pointwise("residual-1", stream, e, 3),
        _pointwise("norm-2", stream, e),
        *_feed_forward(spec, sizes, index),
        _pointwise("residual-2", stream, e, 3),
    ]
    return operators


def _feed_forward(spec: ModelSpec, sizes: Sizes, index: int) -> list[Operator]:
    t, e, f = sizes.tensor, sizes.element, spec.feed_forward
    tokens = sizes.tokens * (spec.top if spec.is_moe(index) else 1)
    up = 2 if spec.gated else 1
    operators = [
        _product("mlp-up", Shape(1, tokens, spec.hidden, up * f / t), e),
        _pointwise("activation", tokens * f / t, e, 1 + up),
        _product("mlp-down", Shape(1, tokens, f / t, spec.hidden), e),
    ]
    if spec.is_moe(index):
        routed = Shape(1, sizes.tokens, spec.hidden, spec.experts)
        operators = [_product("gate", routed, e), *operators]
    return operators


def embedding_operators(spec: ModelSpec, sizes: Sizes) -> list[Operator]:
    """The operators of the embedding: a table look-up, and the table's gradient on the way back."""
    stream = sizes.tokens * spec.hidden
    table = spec.embedding_parameters()[0] / sizes.tensor
    return [
        _pointwise("look-up", stream, sizes.element, 3),
        Operator("table-gradient", 0, 0.5 * table * sizes.element, None, 2),
    ]


def head_operators(spec: ModelSpec, sizes: Sizes) -> list[Operator]:
    """The operators of final norm, head and loss."""
    t, e = sizes.tensor, sizes.element
    logits = sizes.tokens * spec.padded_vocabulary / t
    return [
        _pointwise("final-norm", sizes.tokens * spec.hidden, e),
        _product("head", Shape(1, sizes.tokens, spec.hidden, spec.padded_vocabulary / t), e),
        _pointwise("loss", logits, 4, 4),
    ]


def layer_operators(spec: ModelSpec, sizes: Sizes) -> Iterator[list[Operator]]:
    """The operators of every layer: embedding, blocks and head, or those of a Wide-ResNet."""
    if spec.kind == "wide-resnet":
        for layer in spec.convolution_layers():
            yield [_convolution(*product, sizes) for product in layer.products]
        return
    yield embedding_operators(spec, sizes)
    for index in range(spec.blocks):
        yield block_operators(spec, sizes, index)
    yield head_operators(spec, sizes)


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


def saved_bytes(
    spec: ModelSpec, role: LayerRole, sizes: Sizes, recompute: str, index: int = 0
) -> float:
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
        _whole_streams(spec)
        + (_divided_streams(spec, index) + _score_streams(spec, sizes, recompute)) / sizes.tensor
    )


def _whole_streams(spec: ModelSpec) -> float:
    if spec.norm == "rms":
        return 8
    return 4.5 if spec.dropout else 3


def _divided_streams(spec: ModelSpec, index: int) -> float:
    """Queries, keys, values, context and the feed-forward network, in streams of hidden size."""
    wide = spec.feed_forward / spec.hidden * (spec.top if spec.is_moe(index) else 1)
    if spec.gated:
        return 6 + 4 * wide
    return 4 + wide * (2 if spec.activation == "gelu" else 1)


def _score_streams(spec: ModelSpec, sizes: Sizes, recompute: str) -> float:
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


# The device model: time of an operator on a GPU type without measurements.
#
# A matrix product runs in waves of tiles over the GPU's processors; it takes the longer of its
# work and its memory traffic, smoothly joined, plus a launch. Constants are in calibration.yaml.


@cache
def calibration() -> dict[str, Any]:
    """The constants of calibration.yaml."""
    found: dict[str, Any] = data.load("schedulers/parallelism/calibration.yaml")
    return found


class PeakShares(NamedTuple):
    """The share of its datasheet peak that a GPU type reaches in long kernels."""

    products: Mapping[str, float]
    """Of its peak of matrix products, by precision."""
    memory: float
    """Of its memory bandwidth."""
    kernels: int = 0
    """Measured kernels that this was fitted to; 0: as bundled."""


@cache
def bundled_shares(name: str) -> PeakShares:
    """The shares of calibration.yaml."""
    constants = calibration()["kernels"]
    own = constants["by_type"].get(name, {})
    return PeakShares({**constants["sustained"], **own}, float(constants["memory_share"]))


def product_time(spec: DeviceSpec, shape: Shape, precision: str, share: float) -> float:
    """Time of the work of a matrix product, by the best tile [s]; without its memory traffic."""
    constants = calibration()["kernels"]
    speed = spec.peak(precision) * share
    each = 2 * (shape.inner + constants["inner"]) / speed * spec.processors
    best = math.inf
    for height, width, efficiency in constants["tiles"]:
        for rows, columns in {(height, width), (width, height)}:
            tiles = shape.batch * math.ceil(shape.rows / rows) * math.ceil(shape.columns / columns)
            waves = math.ceil(tiles / spec.processors)
            best = min(best, waves * rows * columns * each / efficiency)
    return best


def operator_time(
    spec: DeviceSpec, operator: Operator, precision: str, shares: PeakShares | None = None
) -> float:
    """Forward time of an operator on a GPU type [s]."""
    constants = calibration()["kernels"]
    reached = shares or bundled_shares(spec.name)
    if operator.flops == 0:
        return 0.0
    memory = operator.traffic / (spec.bandwidth * reached.memory)
    if operator.shape is None:
        return float(constants["launch_s"] + memory)
    share = float(reached.products.get(spec.runs_as(precision), 0.7))
    work = product_time(spec, operator.shape, precision, share)
    if operator.name == "attention":
        work = operator.flops / (spec.peak(precision) * share * 0.6)
    return float(constants["launch_s"] + (work**3 + memory**3) ** (1 / 3))


def operator_times(
    spec: DeviceSpec, operator: Operator, precision: str, shares: PeakShares | None = None
) -> tuple[float, float]:
    """Forward and backward time of an operator [s]."""
    if operator.flops == 0:
        reached = shares or bundled_shares(spec.name)
        traffic = operator.traffic * operator.passes
        return 0.0, traffic / (spec.bandwidth * reached.memory)
    forward = operator_time(spec, operator, precision, shares)
    return forward, forward * operator.passes


# The device model fitted to a table of kernel latencies, as NeuSight (ASPLOS'25) publishes them.
#
# A row is one kernel: `op`, `device`, `latency_ms`, and its sizes: B, M, N, K of `linear` and
# `bmm`, B and H of the others. A column `precision` is optional; without it the kernels are fp32.


LONG_KERNEL = 10
"""Kernels count for a share that take this many times as long as their launch: the rest of their
time is work or traffic."""
FEWEST_KERNELS, MOST_KERNELS = 10, 4000
"""Least number of long kernels for a fit, and the number used, evenly through the table."""

_STREAMS = {"add": 3, "mul": 3, "div": 3, "pow": 3}
"""Tensors that an element-wise kernel reads and writes, where they are not one each."""


class Kernel(NamedTuple):
    """A measured kernel."""

    gpu: str
    """Canonical name of the GPU type."""
    precision: str
    operator: Operator
    seconds: float


def read_kernels(rows: Iterable[Mapping[str, str]]) -> Iterator[Kernel]:
    """The kernels of rows; raises `InputError` for one whose numbers are none."""
    for number, row in enumerate(rows, 2):
        try:
            yield _kernel(row)
        except (KeyError, TypeError, ValueError):
            numbers = {name: row.get(name) for name in ("B", "M", "N", "K", "H", "latency_ms")}
            shown = ", ".join(f"{name}={value!r}" for name, value in numbers.items() if value)
            raise InputError(
                f"the kernel table, line {number}: {row.get('op')!r} needs sizes and a latency "
                f"above 0, and has {shown or 'none'}; correct that line, or leave it out"
            ) from None


def _kernel(row: Mapping[str, str]) -> Kernel:
    name, seconds = row["op"], float(row["latency_ms"]) / 1e3
    precision = row.get("precision") or "fp32"
    if not 0 < seconds < math.inf or precision not in PRECISIONS:
        raise ValueError
    element = ELEMENT_BYTES[precision]
    if name in ("linear", "bmm"):
        b, m, n, k = (float(row[size]) for size in "BMNK")
        if not 0 < b * m * n * k < math.inf:
            raise ValueError
        shape = Shape(b, m, k, n) if name == "bmm" else Shape(1, b * m, n, k)
        batch, rows, inner, columns = shape
        work = 2 * batch * rows * inner * columns
        traffic = element * batch * (rows * inner + inner * columns + rows * columns)
        return Kernel(
            canonical_name(row["device"]), precision, Operator(name, work, traffic, shape), seconds
        )
    elements = float(row["B"]) * float(row["H"])
    if not 0 < elements < math.inf:
        raise ValueError
    traffic = elements * element * _STREAMS.get(name, 2)
    return Kernel(
        canonical_name(row["device"]), precision, Operator(name, 5 * elements, traffic), seconds
    )


def fit_shares(
    rows: Iterable[Mapping[str, str]], devices: Mapping[str, DeviceSpec]
) -> dict[str, PeakShares]:
    """The share of its datasheet peak that each GPU type of a table reaches, by name.

    The shares are medians over long kernels: those of matrix products that are bound by work, and
    of others by traffic. A share that too few kernels show stays as bundled.
    """
    launch = float(calibration()["kernels"]["launch_s"])
    work: dict[tuple[str, str], list[float]] = defaultdict(list)
    traffic: dict[str, list[float]] = defaultdict(list)
    chosen: dict[tuple[str, str, str], list[Kernel]] = defaultdict(list)
    for kernel in read_kernels(rows):
        if kernel.gpu in devices and kernel.seconds > LONG_KERNEL * launch:
            chosen[kernel.gpu, kernel.precision, kernel.operator.name].append(kernel)
    for (gpu, precision, _), kernels in chosen.items():
        spec = devices[gpu]
        for kernel in kernels[:: max(1, len(kernels) // MOST_KERNELS)]:
            operator, seconds = kernel.operator, kernel.seconds - launch
            moved_s = operator.traffic / spec.bandwidth
            if operator.shape is None:
                traffic[gpu].append(moved_s / seconds)
                continue
            worked_s = product_time(spec, operator.shape, precision, 1.0)
            if worked_s > 3 * moved_s:
                work[gpu, spec.runs_as(precision)].append(worked_s / seconds)
    answer = {}
    for gpu in {gpu for gpu, _, _ in chosen}:
        bundled = bundled_shares(devices[gpu].name)
        own = {
            precision: min(median(shares), 1.0)
            for (name, precision), shares in work.items()
            if name == gpu and len(shares) >= FEWEST_KERNELS
        }
        moved = traffic[gpu]
        enough = len(moved) >= FEWEST_KERNELS
        if own or enough:
            answer[gpu] = PeakShares(
                {**bundled.products, **own},
                min(median(moved), 1.0) if enough else bundled.memory,
                len(moved) + sum(len(kernel) for (name, _), kernel in work.items() if name == gpu),
            )
    return answer
