"""What serving a model on one's own GPUs takes, and how many jobs it can read.

Memory follows from published sizes: weights, and for every token in use a key and a value in each
layer. Throughput is an estimate from the GPU's datasheet, not a measurement: prompts are limited by
arithmetic, replies by reading weights and the cache from memory once per token. In a mixture of
experts, a token uses only the active parameters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from schedmate.base.data import load
from schedmate.base.errors import InputError

USABLE = 0.9
"""Share of a GPU's memory that vLLM takes (its --gpu-memory-utilization)."""
WORKSPACE_BYTES = 2e9
"""Reserved on each GPU for activations and CUDA graphs."""
CACHE_BYTES = 2
"""Bytes of a number in the key-value cache."""
EFFICIENCY = 0.4
"""Share of a GPU's peak performance reached for prompts, as served models report it."""
MOST_AT_ONCE = 64
SMALLEST_B = 7.0
"""Billions of parameters below which the SchedMate paper found models of no use (section 4.5)."""
_SIZE = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)b(?![a-z0-9])")


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The size of a model, as known from its name."""

    name: str
    parameters: float
    active: float
    """Parameters that one token uses: fewer than all in a mixture of experts."""
    weight_bytes: float
    """Bytes of one weight."""
    cache_per_token: float
    """Bytes of the key-value cache for each token in use."""
    parser: str | None
    """vLLM's parser of its tool calls; None where it is not known."""
    heads: int | None
    """Attention heads, which the GPUs that share a model have to divide; None: not known."""
    published: bool
    """Whether the sizes are from its config.json; otherwise they are estimated."""

    @property
    def weights(self) -> float:
        """Bytes of all weights."""
        return self.parameters * self.weight_bytes

    def read_by(self, at_once: int) -> float:
        """Bytes of weights that a step reads for so many tokens, each with experts of its own."""
        return min(self.parameters, at_once * self.active) * self.weight_bytes


@dataclass(frozen=True, slots=True)
class Fit:
    """How a model fits on some GPUs of one type; all in bytes but for `readings`."""

    weights: float
    available: float
    """What vLLM may use of all the GPUs together."""
    cache: float
    """What is left for keys and values."""
    per_reading: float
    """What one reading with a full context takes of that."""
    readings: int
    """Concurrent readings with a full context."""


def model_size(name: str) -> ModelSize:
    """The size stated in a model's name. Raises `InputError` if it states none."""
    table = load("llm/serving.yaml")
    plain = name.rpartition("/")[2].lower()
    sizes = _SIZE.findall(plain)
    if not sizes:
        raise InputError(
            f"{name!r} does not say how large the model is; give a name such as "
            "Qwen/Qwen2.5-7B-Instruct, or --parameters 7 for thousands of millions."
        )
    return _sized(name, plain, f"{sizes[0]}b", float(sizes[0]), table)


def given_size(name: str, billions: float) -> ModelSize:
    """The size of a model with so many thousand million parameters."""
    return _sized(name, name.lower(), f"{billions:g}b", billions, load("llm/serving.yaml"))


def _sized(name: str, plain: str, key: str, billions: float, table: Any) -> ModelSize:
    families: list[dict[str, Any]] = table["families"]
    family = next((one for one in families if re.search(one["pattern"], plain)), {})
    published = family.get("sizes", {}).get(key)
    weight = next(
        (size for words, size in table["weights"].items() if re.search(words, plain)), 2.0
    )
    active = billions
    if published is not None:
        billions, layers, heads, width, *some = published
        active = some[0] if some else billions
    else:  # a transformer with grouped queries: 12 L d^2 parameters, d = 128 L, 8 key-value heads
        layers, heads, width = round((billions * 1e9 / (12 * 128**2)) ** (1 / 3)), 8, 128
    return ModelSize(
        name=name,
        parameters=billions * 1e9,
        active=active * 1e9,
        weight_bytes=weight,
        cache_per_token=2.0 * layers * heads * width * CACHE_BYTES,
        parser=family.get("parser"),
        heads=family.get("heads", {}).get(key),
        published=published is not None,
    )


def fit(model: ModelSize, memory_bytes: float, gpus: int, context: int) -> Fit:
    """How `model` fits on `gpus` of so much memory each, `context` tokens a reading."""
    available = gpus * (USABLE * memory_bytes - WORKSPACE_BYTES)
    cache = max(0.0, available - model.weights)
    per_reading = model.cache_per_token * context
    readings = int(cache / per_reading)
    return Fit(model.weights, available, cache, per_reading, readings)


def command(model: ModelSize, gpus: int, context: int) -> list[str]:
    """The words of the `vllm serve` command line."""
    words = ["vllm", "serve", model.name, "--host", "127.0.0.1", "--port", "8000"]
    words += ["--max-model-len", str(context), "--enable-auto-tool-choice"]
    if model.parser is not None:
        words += ["--tool-call-parser", model.parser]
    words += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    if gpus > 1:
        words += ["--tensor-parallel-size", str(gpus)]
    return words


@dataclass(frozen=True, slots=True)
class Reading:
    """What one job's reading takes on average [tokens]; `cached` is part of `prompt`."""

    calls: float
    prompt: float
    cached: float
    reply: float


def jobs_an_hour(
    model: ModelSize, reading: Reading, room: Fit, gpus: int, peak: float, bandwidth: float
) -> float:
    """An estimate of the jobs read per hour, with as many concurrent readings as fit.

    `peak` [FLOP/s] and `bandwidth` [bytes/s] are one GPU's; 0 if not even one reading fits.
    """
    at_once = min(room.readings, MOST_AT_ONCE)
    if at_once < 1:
        return 0.0
    prompts = (reading.prompt - reading.cached) * 2 * model.active / (EFFICIENCY * peak * gpus)
    held = at_once * reading.prompt / max(1.0, reading.calls) * model.cache_per_token
    token = (model.read_by(at_once) + held) / (bandwidth * gpus) / at_once
    return 3600 / (prompts + reading.reply * token)
