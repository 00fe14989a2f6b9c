"""Measured times as tables (operators, kernels, collectives, links), and how operators are
timed.

The format is that published with Sailor (SOSP'25), whose columns `schedmate parallel profile` also
writes. Workers of a stage run identical operators, and layers repeat (Arena, section 3.4), so each
distinct operator is timed once, on a single device.
"""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.base.errors import InputError, reason_of, require
from schedmate.base.reading import open_binary
from schedmate.schedulers.parallelism.devices import ELEMENT_BYTES, canonical_name
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.operators import Sizes

NOT_MEASURED = 1e6
MEGABYTE = 2**20
MOST_BYTES = 512 * MEGABYTE
EMBEDDING = "encoder-embedding"
HEAD = ("final-layernorm", "gpt-post-process")
_QKV = "enc-attention-qkv"
_NORM = "enc-1st-layernorm"
_UP = "enc-MLP-GEMM-1"
_LARGEST_FILE = "is larger than 512 MiB when unpacked: give the tables of fewer GPU types"


class LayerKey(NamedTuple):
    """Under what the operators of a layer were timed."""

    gpu: str
    precision: str
    hidden: int
    micro_batch: int
    tensor: int


@dataclass
class Profiled:
    """The operators of one layer as timed: name -> (forward, backward) [s]."""

    operators: dict[str, tuple[float, float]] = field(default_factory=dict)
    vocabulary: int = 0
    sequence: int = 0
    feed_forward: int = 0
    """0: the table does not say."""


Point = tuple[float, float]


@dataclass
class Tables:
    """All measured tables.

    `collectives` are (GPU, precision, primitive, GPUs) -> [(bytes, seconds)], ascending; `links`
    are ("inter" | "intra", GPU, GPUs) -> (polynomial in log2(MB) of GB/s, peak [bytes/s]).
    """

    layers: dict[LayerKey, Profiled] = field(default_factory=dict)
    collectives: dict[tuple[str, str, str, int], list[Point]] = field(default_factory=dict)
    links: dict[tuple[str, str, int], tuple[tuple[float, ...], float]] = field(default_factory=dict)
    kernels: list[dict[str, str]] = field(default_factory=list)
    """Rows of a table of kernel latencies, which the device model is fitted to."""

    def gpus(self) -> set[str]:
        """Names of the GPU types whose layers were timed."""
        return {key.gpu for key in self.layers}


def read_tables(paths: Iterable[Path]) -> Tables:
    """The tables of files, or of folders with such files.

    Raises `InputError` for a file that cannot be read, is not a table, or holds no numbers.
    """
    tables = Tables()
    for path in paths:
        for file in _table_files(path):
            _add_file(file, tables)
    return tables


def _table_files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    files = [
        file
        for file in sorted(path.iterdir())
        if file.name.endswith((".csv", ".csv.gz")) or file.name == "network.json"
    ]
    if not files:
        raise InputError(
            f"{path}: no profile tables (CSV or network.json) in this folder; `schedmate parallel "
            "profile` writes them"
        )
    for file in files:
        if path.joinpath(file.name).is_file() and _kind_of(file) is not None:
            yield file


def _kind_of(file: Path) -> str | None:
    """The kind of a table by its columns; None: unknown."""
    if file.suffix == ".json":
        return "network"
    header = set(next(csv.reader(io.StringIO(_table_text(file, 4096))), []))
    for kind, columns in _COLUMNS.items():
        if columns <= header:
            return kind
    return None


_COLUMNS = {
    "layers": {"gpu", "operator", "forward_us", "backward_us", "micro_batch", "tensor_parallel"},
    "collectives": {"gpu", "primitive", "gpus", "data_size(mb)", "time(ms)"},
    "kernels": {"op", "device", "latency_ms"},
}


def _table_text(file: Path, limit: int = MOST_BYTES + 1) -> str:
    try:
        with open_binary(file, unpack=True) as stream:
            read = stream.read(limit)
    except (OSError, EOFError) as error:
        raise InputError(
            f"{file}: cannot be read: {reason_of(error)}; check its name and rights"
        ) from error
    if len(read) > MOST_BYTES:
        raise InputError(f"{file}: {_LARGEST_FILE}")
    return read.decode("utf-8", "replace")


def _add_file(file: Path, tables: Tables) -> None:
    kind = _kind_of(file)
    if kind is None:
        raise InputError(
            f"{file}: neither layer, collective nor kernel times: its first line names none of "
            "their columns; `schedmate parallel profile` writes such tables"
        )
    if kind == "network":
        _read_links(file, tables)
        return
    rows = csv.DictReader(io.StringIO(_table_text(file)))
    if kind == "kernels":
        tables.kernels += rows
    elif kind == "layers":
        _read_layers(_numbered_rows(rows, file), tables)
    else:
        _read_collectives(_numbered_rows(rows, file), tables)


class _Row:
    """A row of a table, whose numbers are checked as they are taken."""

    def __init__(self, values: Mapping[str, str], where: str) -> None:
        self.values, self.where = values, where

    def number(self, name: str) -> float:
        """A column that must hold a number of at least 0."""
        try:
            value = float(self.values[name])
        except (ValueError, TypeError, KeyError):
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise InputError(
                f"{self.where}: {name} is {self.values.get(name)!r}, not a number >= 0; correct "
                "it, or leave that row out"
            )
        return value


def _numbered_rows(rows: Iterable[Mapping[str, str]], file: Path) -> Iterator[_Row]:
    return (_Row(row, f"{file}, line {number}") for number, row in enumerate(rows, 2))


def _read_layers(rows: Iterable[_Row], tables: Tables) -> None:
    """Adds layers; their sizes are those of the weights and inputs that the rows state."""
    layers: dict[tuple[str, str, str, int, int], dict[str, _Row]] = {}
    for row in rows:
        values = row.values
        if values.get("algorithm", "0") != "0":  # another sharding of the same operator
            continue
        key = (
            canonical_name(values["gpu"]),
            values["precision"],
            values.get("model", ""),
            int(row.number("micro_batch")),
            int(row.number("tensor_parallel")),
        )
        layers.setdefault(key, {})[values["operator"]] = row
    for (gpu, precision, _, micro_batch, tensor), operators in layers.items():
        element = ELEMENT_BYTES.get(precision, 2)
        if _QKV not in operators or _NORM not in operators:
            continue
        floats = operators[_QKV].number("weights_mb") * MEGABYTE / element * tensor
        hidden = round(math.sqrt(floats / 3) / 8) * 8
        stream = operators[_NORM].number("input_mb") * MEGABYTE / element
        profiled = Profiled(sequence=round(stream / hidden / micro_batch))
        if HEAD[1] in operators:
            table = operators[HEAD[1]].number("weights_mb") * MEGABYTE / element * tensor
            profiled.vocabulary = round(table / hidden)
        if _UP in operators:
            wide = operators[_UP].number("weights_mb") * MEGABYTE / element * tensor
            profiled.feed_forward = round(wide / hidden / 8) * 8
        for name, row in operators.items():
            times = row.number("forward_us") / 1e6, row.number("backward_us") / 1e6
            if max(times) < NOT_MEASURED / 1e6:
                profiled.operators[name] = times
        if len(profiled.operators) == len(operators):
            tables.layers[LayerKey(gpu, precision, hidden, micro_batch, tensor)] = profiled


def _read_collectives(rows: Iterable[_Row], tables: Tables) -> None:
    for row in rows:
        milliseconds = row.number("time(ms)")
        if milliseconds >= NOT_MEASURED:
            continue
        values = row.values
        key = (
            canonical_name(values["gpu"]),
            values.get("precision", ""),
            values["primitive"],
            int(row.number("gpus")),
        )
        size = row.number("data_size(mb)") * MEGABYTE
        tables.collectives.setdefault(key, []).append((size, milliseconds / 1e3))
    for points in tables.collectives.values():
        points.sort()


def _read_links(file: Path, tables: Tables) -> None:
    """Adds fitted bandwidths: `{..., "inter"|"intra": {GPU: {GPUs: [polynomial, peak]}}}`."""
    try:
        document = json.loads(_table_text(file))
        for scope, by_gpu in _scopes(document):
            for gpu, by_count in by_gpu.items():
                for count, (polynomial, peak) in by_count.items():
                    key = (scope, canonical_name(gpu), int(count))
                    coefficients = tuple(float(one) for one in polynomial)
                    if not all(map(math.isfinite, (*coefficients, float(peak)))):
                        raise ValueError(f"{gpu}: not a finite number")
                    tables.links[key] = coefficients, float(peak)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{file}: not a file of fitted bandwidths: {error}; leave it out of --profile"
        ) from error


def _scopes(document: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, inner in document.items():
        if name in {"inter", "intra"}:
            yield name, inner
        elif isinstance(inner, dict) and {"inter", "intra"} & set(inner):
            yield from _scopes(inner)


# Times the operators of a model on one device: what `schedmate parallel profile` does.
#
# Arena, section 3.4: workers of a stage run identical operators, and layers repeat, so that each
# distinct operator is timed once, on a single device, with the shapes that it has under tensor
# parallelism. Collectives are timed by `network.py`.


TIMING_COLUMNS = (
    "gpu,precision,model,micro_batch,tensor_parallel,algorithm,operator,forward_us,backward_us,"
    "input_mb,output_mb,weights_mb,noise"
)
WARM_UP = 3


@dataclass(frozen=True)
class OperatorTiming:
    """The measured times and sizes of one operator."""

    operator: str
    forward_s: float
    backward_s: float
    noise: float
    """Interquartile range of the forward time over its median."""
    input_bytes: float
    output_bytes: float
    weight_bytes: float


def time_operators(
    spec: ModelSpec, sizes: Sizes, device: str = "cuda", repeats: int = 20
) -> Iterator[OperatorTiming]:
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
    for name, inputs, weights, run in _timed_operators(torch, spec, sizes):
        yield _time_operator(torch, name, inputs, weights, run, (device, kind, repeats))


Inputs = tuple[tuple[int, ...], ...]
ListedOperator = tuple[str, Inputs, Inputs, Callable[..., Any]]


def _timed_operators(torch: Any, spec: ModelSpec, sizes: Sizes) -> Iterator[ListedOperator]:
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


def _time_operator(
    torch: Any,
    name: str,
    inputs: Inputs,
    weights: Inputs,
    run: Callable[..., Any],
    where: tuple[str, Any, int],
) -> OperatorTiming:
    device, kind, repeats = where
    tensors = [
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
        output = run(*tensors)
        between = wait()
        output.backward(torch.ones_like(output))
        end = wait()
        size = output.numel() * output.element_size()
        for tensor in tensors:
            tensor.grad = None
        if number >= WARM_UP:
            forwards.append(between - start)
            backwards.append(end - between)
    low, middle, high = statistics.quantiles(forwards, n=4)
    element = tensors[0].element_size()
    return OperatorTiming(
        name,
        middle,
        statistics.median(backwards),
        (high - low) / middle,
        element * sum(tensor.numel() for tensor in tensors[: len(inputs)]),
        size,
        element * sum(tensor.numel() for tensor in tensors[len(inputs) :]),
    )


def timing_row(timing: OperatorTiming, gpu: str, spec: ModelSpec, sizes: Sizes) -> str:
    """A timing as a line of the table of layers."""
    return (
        f"{gpu},{sizes.precision},{spec.name},{sizes.micro_batch},{sizes.tensor},0,"
        f"{timing.operator},{timing.forward_s * 1e6:.3f},{timing.backward_s * 1e6:.3f},"
        f"{timing.input_bytes / MEGABYTE:.6f},{timing.output_bytes / MEGABYTE:.6f},"
        f"{timing.weight_bytes / MEGABYTE:.6f},{timing.noise:.3f}"
    )
