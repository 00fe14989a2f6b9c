"""Whether a job has slowed down after a change, such as packing it with another job.

SchedMate paper, sections 3.2 and 4.1: the first iterations after a change are not representative,
so there is no answer before several tens of them; a job that is slower by 35 % or more counts as
slowed down.
"""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs import Progress

WARM_UP = 30
"""Iterations after the change that are needed for an answer."""
THRESHOLD = 0.35
"""Loss of throughput from which a job counts as slowed down."""
NOISE = 0.03
"""Relative noise of step times that no number of readings takes away: mini-batch times of
production jobs vary by 3 to 5 % (Alibaba cluster trace gpu-v2020)."""


class Slowdown(BaseModel):
    """Throughput after a change against throughput before it."""

    model_config = ConfigDict(extra="forbid")

    ratio: float | None = Field(None, description="After / before; 0.8 is 20 % slower")
    slowed: bool | None = Field(None, description="Slower by the threshold or more")
    confidence: float | None = Field(
        None, ge=0.5, le=1, description="Probability that `slowed` is right, from the spread"
    )
    threshold: float = THRESHOLD
    reason: str | None = Field(None, description="Why nothing can be said")


def throughput_ratio(
    before: Progress, after: Progress, *, warm_up: int = WARM_UP, threshold: float = THRESHOLD
) -> Slowdown:
    """Compare two windows of one job's log.

    `after` should hold readings from after the change only: `track(file, since=before.log_bytes)`.
    Abstains until it covers `warm_up` iterations.
    """
    for name, progress in (("before", before), ("after", after)):
        if progress.step_time_s is None:
            reason = f"no step time {name} the change: {progress.reason or 'the log has none'}"
            return Slowdown(threshold=threshold, reason=reason)
    assert before.step_time_s is not None
    assert after.step_time_s is not None
    if after.steps_seen < warm_up:
        return Slowdown(
            threshold=threshold,
            reason=f"only {after.steps_seen} of {warm_up} iterations since the change: warming up",
        )
    ratio = before.step_time_s / after.step_time_s
    error = math.hypot(_error(before), _error(after))
    distance = abs(math.log(ratio) - math.log(1 - threshold)) / error
    confidence = 0.5 * (1 + math.erf(distance / math.sqrt(2)))
    return Slowdown(
        ratio=ratio, slowed=ratio <= 1 - threshold, confidence=confidence, threshold=threshold
    )


def _error(progress: Progress) -> float:
    """Standard error of the logarithm of a median step time."""
    low, high = progress.step_time_p10_s, progress.step_time_p90_s
    # 10th and 90th percentile of a normal distribution lie 2.56 standard deviations apart
    spread = math.log(high / low) / 2.56 if low and high else 0.5
    return math.hypot(1.25 * spread / math.sqrt(max(1, progress.readings)), NOISE)
