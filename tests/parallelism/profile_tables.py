"""Small profile tables, in the columns of published ones, whose times follow from their sizes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

OPERATORS = (
    "encoder-embedding",
    "enc-1st-layernorm",
    "enc-attention-qkv",
    "enc-attention-score",
    "enc-attention-softmax",
    "enc-attention-dropout",
    "enc-attention-context",
    "enc-attention-dense",
    "enc-post-attention-dropout",
    "enc-2nd-layernorm",
    "enc-MLP-GEMM-1",
    "enc-MLP-gelu",
    "enc-MLP-GEMM-2",
    "enc-post-MLP-dropout",
    "final-layernorm",
    "gpt-post-process",
)
HIDDEN, SEQUENCE, VOCABULARY = 1024, 2048, 50304
FORWARD_US, BACKWARD_US = 1000.0, 2000.0
COLUMNS = (
    "gpu,precision,model,micro_batch,tensor_parallel,algorithm,operator,forward_us,backward_us,"
    "input_mb,output_mb,weights_mb"
)


def layers(
    gpu: str = "GH-96",
    precision: str = "fp32",
    micro_batches: tuple[int, ...] = (1, 2),
    tensors: tuple[int, ...] = (1, 2),
    forward_us: float | str = FORWARD_US,
) -> str:
    """Every operator takes 1 ms forward and 2 ms back, for each sample, divided by the degree."""
    element = 4 if precision == "fp32" else 2
    rows = [COLUMNS]
    for batch in micro_batches:
        for tensor in tensors:
            for name in OPERATORS:
                weights = {
                    "enc-attention-qkv": 3 * HIDDEN * HIDDEN,
                    "gpt-post-process": HIDDEN * VOCABULARY,
                }.get(name, 0)
                one = forward_us if isinstance(forward_us, str) else forward_us * batch / tensor
                rows.append(
                    f"{gpu},{precision},ours,{batch},{tensor},0,{name},{one},"
                    f"{BACKWARD_US * batch / tensor},{batch * SEQUENCE * HIDDEN * element / 2**20},"
                    f"0,{weights * element / tensor / 2**20}"
                )
    return "\n".join(rows) + "\n"


def write(folder: Path, text: str, name: str = "layers.csv.gz") -> Path:
    """The table as a file."""
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def links(folder: Path, gpu: str = "GH-96", each: float = 20.0) -> Path:
    """A network in which `each` GB/s leave a node for each GPU that sends."""
    counts = {str(n): [[0.0, 0.0, each * n], each * n * 1e9] for n in (1, 2, 4)}
    inside = {str(n): [[0.0, 0.0, 150.0], 150e9] for n in (2, 4)}
    path = folder / "network.json"
    path.write_text(json.dumps({"coeffs": {"inter": {gpu: counts}, "intra": {gpu: inside}}}))
    return path
