"""Corrections of a past run time for a new job that trains longer, or on other GPUs.

The exponents are medians over the public step-time traces of the Sia artifact (7 models, 6
machine types); `benchmarks/advisor.py` measures them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from schedmate.jobs import JobRecord, LaunchConfig, WorkloadMetadata

WEAK_SCALING = 0.83
"""Samples per second grow as GPUs ** this when each GPU keeps its batch (10th to 90th percentile
0.45 to 1.0 over 25,255 pairs): an epoch then takes GPUs ** -0.83 of its time."""
WEAK_DOUBT = 0.28
"""Half of that range: how far off the exponent is in eight of ten cases, at most."""

STRONG_SCALING = 0.25
"""The same when the global batch stays and each GPU's share of it shrinks (-0.3 to 0.6 over 583
pairs)."""
STRONG_DOUBT = 0.45
"""Half of that range."""

LENGTH_DOUBT = 0.25
"""How far off the exponent 1 of the training length is: an assumption. Part of a run is the same
whatever its length; of image generation that part is so large that 0.7 was measured
(benchmarks/results/interval_spread.json), and training is mostly its steps."""

MEASURED_GPUS = 16.0
"""The exponents were measured between numbers of GPUs up to this factor apart, for every model of
the traces; beyond it their doubt counts twice."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The factor a past run time is multiplied by, and what could not be corrected for.

    `length_doubt` and `gpus_doubt` [log of a factor]: eight of ten true factors are within
    exp(their absolute values) of it. Positive where the new job trains longer or on more GPUs: an
    exponent that is wrong makes the times of runs on both sides of the new job wrong in opposite
    directions, and those of runs on one side all in the same one.
    """

    factor: float = 1.0
    length_doubt: float = 0.0
    gpus_doubt: float = 0.0
    unknown_length: bool = False
    other_gpu: bool = False

    @property
    def doubt(self) -> float:
        """Eight of ten true factors are within exp(doubt) of `factor`."""
        return abs(self.length_doubt) + abs(self.gpus_doubt)

    def doubt_beside(self, shared: Adjustment) -> float:
        """The doubt that is left without what all corrections have in common."""
        length = abs(self.length_doubt - shared.length_doubt)
        return length + abs(self.gpus_doubt - shared.gpus_doubt)


def adjust(metadata: WorkloadMetadata, launch: LaunchConfig, past: JobRecord) -> Adjustment:
    """How `past` compares with the new job described by `metadata` and `launch`."""
    length = _length_ratio(metadata, past.metadata)
    gpus, exponent, doubt = _gpu_ratio(metadata, launch, past)
    return Adjustment(
        factor=(length or 1.0) * float(gpus**exponent),
        length_doubt=LENGTH_DOUBT * math.log(length or 1.0),
        gpus_doubt=doubt * _distance(gpus),
        unknown_length=length is None,
        other_gpu=_differ(launch.gpu_type, past.launch.gpu_type),
    )


def _distance(gpus: float) -> float:
    """From old to new GPUs [log of their ratio], what lies beyond the measured range twice."""
    distance = -math.log(gpus)
    beyond = max(0.0, abs(distance) - math.log(MEASURED_GPUS))
    return distance + math.copysign(beyond, distance)


def _length_ratio(new: WorkloadMetadata, old: WorkloadMetadata) -> float | None:
    """New over old training length, or None when only one is known or the units differ.

    Epochs of different datasets are compared as they are: their lengths in samples are not known.
    """
    if (
        new.training.iters == old.training.iters
        and new.training.iter_type == old.training.iter_type
    ):
        return 1.0
    if new.training.iter_type is None or new.training.iter_type != old.training.iter_type:
        return None
    length, past_length = new.training.iters, old.training.iters
    if not length or not past_length or min(length, past_length) < 0:
        return None
    return length / past_length


def _gpu_ratio(
    new: WorkloadMetadata, launch: LaunchConfig, past: JobRecord
) -> tuple[float, float, float]:
    """Old over new GPUs, the exponent where the work does not grow with them, and its doubt."""
    if not launch.gpus or not past.launch.gpus or launch.gpus == past.launch.gpus:
        return 1.0, 0.0, 0.0
    ratio: float = past.launch.gpus / launch.gpus
    batches = (_global_batch(new), _global_batch(past.metadata))
    if batches[0] is not None and batches[0] == batches[1]:
        return ratio, STRONG_SCALING, STRONG_DOUBT
    if new.training.iter_type == past.metadata.training.iter_type == "epoch":
        return ratio, WEAK_SCALING, WEAK_DOUBT
    # A step on more GPUs does more work in the same time: nothing to correct. How much of the
    # time the GPUs' talk to each other adds is what the exponent of weak scaling is doubted by.
    return ratio, 0.0, WEAK_DOUBT


def _global_batch(metadata: WorkloadMetadata) -> Any:
    return (metadata.training.model_extra or {}).get("global_batch_size")


def _differ(one: str | None, other: str | None) -> bool:
    return bool(one and other) and str(one).lower() != str(other).lower()
