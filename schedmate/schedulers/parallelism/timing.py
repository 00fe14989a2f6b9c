"""Times the operators of a model on one device: what `schedmate parallel profile` does.

Arena, section 3.4: workers of a stage run identical operators, and layers repeat, so that each
distinct operator is timed once, on a single device, with the shapes that it has under tensor
parallelism. The table has the columns of `profile.py`; collectives are not timed here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from schedmate.errors import InputError, require
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.operators import Sizes
from schedmate.schedulers.parallelism.profile import MEGABYTE

COLUMNS = (
    "gpu,precision,model,micro_batch,tensor_parallel,algorithm,operator,forward_us,backward_us,"
    "input_mb,output_mb,weights_mb,noise"
)
WARM_UP = 3


@dataclass(frozen=True)
class Timing:
    """One operator as timed."""

    operator: str
    forward_s: float
    backward_s: float
    noise: float
    """Interquartile range of the forward time over its median."""
    input_bytes: float
    output_bytes: float
    weight_bytes: float


def timed(
    spec: ModelSpec, sizes: Sizes, device: str = "cuda", repeats: int = 20
) -> Iterator[Timing]:
    """Time every operator of one layer, and of embedding and head, on a device of torch.

    Raises `MissingExtraError` without torch, `InputError` for a device that torch has not.
    """
    require("timing operators", "profile", "torch")
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device here: run on a GPU node, or say --on cpu")
    types = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16}
    kind = types.get(sizes.precision, torch.bfloat16)
    torch.backends.cuda.matmul.allow_tf32 = sizes.precision == "tf32"
    for name, inputs, weights, run in _operators(torch, spec, sizes):
        yield _time(torch, name, inputs, weights, run, (device, kind, repeats))


Inputs = tuple[tuple[int, ...], ...]
Listed = tuple[str, Inputs, Inputs, Callable[..., Any]]


def _operators(torch: Any, spec: ModelSpec, sizes: Sizes) -> Iterator[Listed]:
    """Name, shapes of inputs and weights, and the function of each operator."""
    functional = torch.nn.functional
    b, s, h, t = sizes.micro_batch, sizes.sequence, spec.hidden, sizes.tensor
    heads, each, f = max(1, spec.heads // t), h // spec.heads, spec.feed_forward // t
    v = spec.padded_vocabulary // t
    stream, scores = (s, b, h), (b * heads, s, s)
    head, wide = (b * heads, s, each), (s, b, f)

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        return functional.layer_norm(x, (h,), scale, shift)

    def dropped(x: Any) -> Any:
        return functional.dropout(x, 0.1)

    def added(x: Any, residual: Any) -> Any:
        return residual + functional.dropout(x, 0.1)

    def loss(x: Any, table: Any) -> Any:
        logits = functional.linear(x, table).float()
        return functional.cross_entropy(
            logits.view(-1, v), torch.zeros(s * b, dtype=torch.long, device=x.device)
        )

    def looked_up(table: Any) -> Any:
        ids = torch.arange(s * b, device=table.device).remainder(v).view(s, b)
        return functional.embedding(ids, table)

    yield "encoder-embedding", (), ((v, h),), looked_up
    yield "enc-1st-layernorm", (stream,), ((h,), (h,)), norm
    yield "enc-attention-qkv", (stream,), ((3 * heads * each, h),), functional.linear
    yield "enc-attention-score", (head, head), (), lambda q, k: q @ k.transpose(1, 2)
    yield "enc-attention-softmax", (scores,), (), lambda x: x.softmax(-1)
    yield "enc-attention-dropout", (scores,), (), dropped
    yield "enc-attention-context", (scores, head), (), lambda p, values: p @ values
    yield "enc-attention-dense", ((s, b, heads * each),), ((h, heads * each),), functional.linear
    yield "enc-post-attention-dropout", (stream, stream), (), added
    yield "enc-2nd-layernorm", (stream,), ((h,), (h,)), norm
    yield "enc-MLP-GEMM-1", (stream,), ((f, h),), functional.linear
    yield "enc-MLP-gelu", (wide,), (), functional.gelu
    yield "enc-MLP-GEMM-2", (wide,), ((h, f),), functional.linear
    yield "enc-post-MLP-dropout", (stream, stream), (), added
    yield "final-layernorm", (stream,), ((h,), (h,)), norm
    yield "gpt-post-process", (stream,), ((v, h),), loss


def _time(
    torch: Any,
    name: str,
    inputs: Inputs,
    weights: Inputs,
    run: Callable[..., Any],
    where: tuple[str, Any, int],
) -> Timing:
    device, kind, repeats = where
    given = [
        torch.randn(shape, device=device, dtype=kind, requires_grad=True)
        for shape in (*inputs, *weights)
    ]

    def wait() -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()

    forwards, backwards, size = [], [], 0
    for number in range(WARM_UP + repeats):
        start = wait()
        found = run(*given)
        between = wait()
        found.backward(torch.ones_like(found))
        end = wait()
        size = found.numel() * found.element_size()
        for one in given:
            one.grad = None
        if number >= WARM_UP:
            forwards.append(between - start)
            backwards.append(end - between)
    low, middle, high = statistics.quantiles(forwards, n=4)
    element = given[0].element_size()
    return Timing(
        name,
        middle,
        statistics.median(backwards),
        (high - low) / middle,
        element * sum(one.numel() for one in given[: len(inputs)]),
        size,
        element * sum(one.numel() for one in given[len(inputs) :]),
    )


def row(timing: Timing, gpu: str, spec: ModelSpec, sizes: Sizes) -> str:
    """A timing as a line of the table of layers."""
    return (
        f"{gpu},{sizes.precision},{spec.name},{sizes.micro_batch},{sizes.tensor},0,"
        f"{timing.operator},{timing.forward_s * 1e6:.3f},{timing.backward_s * 1e6:.3f},"
        f"{timing.input_bytes / MEGABYTE:.6f},{timing.output_bytes / MEGABYTE:.6f},"
        f"{timing.weight_bytes / MEGABYTE:.6f},{timing.noise:.3f}"
    )
