"""Fully sharded data parallelism (FSDP, ZeRO-3): fitted to published throughput.

How much of the gathering of weights overlaps with computation depends on the model, the batch and
the number of GPUs in ways that no sum of parts describes. So the utilisation is interpolated
between measured rows: kriging (a Gaussian process) over the features below.
"""

from __future__ import annotations

import csv
import math
from functools import cache
from typing import NamedTuple

from schedmate import data
from schedmate.errors import InputError
from schedmate.schedulers.parallelism.devices import DeviceSpec, device
from schedmate.schedulers.parallelism.models import ModelSpec, model
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import flops_per_sample
from schedmate.schedulers.parallelism.plan import Plan

UNSURE = 0.2
"""Spread of the logarithm of utilisation above which a note is added."""
ROWS = "schedulers/parallelism/sharded.csv"


class Features(NamedTuple):
    """What utilisation depends on, each as a number of about unit scale."""

    hidden: float
    sequence: float
    tokens: float
    gpus: float
    recompute: float
    peak: float
    memory: float
    precision: float


SCALES = Features(1.8, 4.0, 1.75, 37.0, 1.65, 0.92, 0.73, 1.08)
"""Distances over which utilisation changes, by the likelihood of the rows."""
NOISE = 0.037
"""Variance of the rows' own scatter, relative to the variance among them."""


def features(
    spec: ModelSpec,
    gpu: DeviceSpec,
    gpus: int,
    micro_batch: int,
    sequence: int,
    precision: str,
    *,
    recompute: bool,
) -> Features:
    """The features of a plan."""
    return Features(
        math.log(spec.hidden / 2048),
        math.log(sequence / 2048),
        math.log(micro_batch * sequence / 16384),
        math.log(gpus / 8),
        float(recompute),
        math.log(gpu.peak(precision) / 312e12),
        math.log(gpu.memory_bytes / 80e9),
        float(precision == "fp8"),
    )


@cache
def measured_rows() -> tuple[tuple[Features, float], ...]:
    """The measured rows: features, and log of the model FLOP utilisation."""
    found = []
    text = (data.PACKAGE / ROWS).read_text("utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        at = features(
            model(row["model"]),
            device(row["gpu"]),
            int(row["gpus"]),
            int(row["micro_batch"]),
            int(row["sequence"]),
            row["precision"],
            recompute=row["recompute"] == "full",
        )
        found.append((at, math.log(float(row["mfu"]) / 100)))
    return tuple(found)


def _likeness(one: Features, other: Features) -> float:
    distance = sum(((a - b) / scale) ** 2 for a, b, scale in zip(one, other, SCALES, strict=True))
    return math.exp(-distance / 2)


def utilisation(at: Features, without: int | None = None) -> tuple[float, float]:
    """Model FLOP utilisation at features, and the spread (one standard deviation) of its logarithm.

    `without`: a row that is left out, for cross-validation.
    """
    import numpy as np

    rows = [row for place, row in enumerate(measured_rows()) if place != without]
    values = np.array([value for _, value in rows])
    mean, spread = values.mean(), values.std()
    among = np.array([[_likeness(one, other) for other, _ in rows] for one, _ in rows])
    among += NOISE * np.eye(len(rows))
    near = np.array([_likeness(at, other) for other, _ in rows])
    weights = np.linalg.solve(among, near)
    value = mean + float(weights @ (values - mean))
    variance = max(0.0, 1 + NOISE - float(weights @ near))
    return math.exp(value), float(spread * math.sqrt(variance))


def sharded_parts(
    plan: Plan, spec: ModelSpec, network: Network
) -> tuple[dict[str, float], list[str]]:
    """Where the time of an iteration of a fully sharded plan goes [s], and notes on it.

    Weights are gathered twice and gradients scattered once in every micro-batch, which is the least
    that an iteration takes. Raises `InputError` for a plan with stages, or of no transformer.
    """
    if len(plan.stages) > 1:
        raise InputError(
            f"{plan.title()}: sharding zero-3 is over all GPUs of one stage, not {len(plan.stages)}"
        )
    if spec.kind != "transformer":
        raise InputError(f"{plan.title()}: zero-3 is predicted for transformers, not {spec.name}")
    slowest, ideal, notes = 0.0, 0.0, []
    work = flops_per_sample(spec, plan.sequence) * plan.global_batch
    inside = plan.gpus <= plan.gpus_per_node
    at_once = min(plan.gpus, plan.gpus_per_node)
    for replica in plan.stages[0].kinds():
        gpu = network.spec(replica.gpu_type)
        at = features(
            spec,
            gpu,
            plan.gpus,
            plan.micro_batch,
            plan.sequence,
            plan.precision,
            recompute=plan.recompute == "full",
        )
        share, spread = utilisation(at)
        if spread > UNSURE:
            notes.append(
                f"no measured FSDP run is near this plan on {gpu.name}: its time may be wrong by "
                f"{math.expm1(spread):.0%} and more"
            )
        peak = gpu.peak(plan.precision) * plan.gpus
        one = network.ring([gpu.name], plan.gpus, 2 * spec.parameters(), at_once, inside=inside)
        gathering = 1.5 * one / at_once * plan.micro_batches if plan.gpus > 1 else 0.0
        slowest = max(slowest, work / (peak * share), gathering)
        ideal = max(ideal, work / peak)
    return {"work_at_peak_s": ideal, "communication_and_stalls_s": slowest - ideal}, notes
