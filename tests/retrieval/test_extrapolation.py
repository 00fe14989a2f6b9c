"""Estimates for jobs that lie outside of what the history holds."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.jobs import Estimate, JobRecord, LaunchConfig, WorkloadMetadata
from schedmate.retrieval.advisor import SchedulingAdvisor
from schedmate.retrieval.embedders import Embedder, load_embedder
from schedmate.retrieval.history import MemoryHistory


@cache
def _embedder() -> Embedder:
    return load_embedder()


def _metadata(iters: float = 10, unit: str = "epoch") -> WorkloadMetadata:
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": "resnet50", "task_type": "CV"},
            "training_config": {"iters": iters, "iter_type": unit},
            "dataset_config": {"train": "imagenet"},
        }
    )


def _history(gpus: list[int], iters: float = 10) -> MemoryHistory:
    history = MemoryHistory(_embedder())
    for place, count in enumerate(gpus):
        history.add(
            JobRecord(
                job_id=f"{place}",
                metadata=_metadata(iters),
                launch=LaunchConfig(gpus=count),
                state="COMPLETED",
                start_time=1000.0 * place,
                end_time=1000.0 * place + 3600.0 / count**0.83,
                duration_s=3600.0 / count**0.83,
            )
        )
    return history


def _estimate(gpus: int, seen: list[int], iters: float = 10, past: float = 10) -> Estimate:
    advisor = SchedulingAdvisor(_history(seen, past))
    return advisor.estimate(_metadata(iters), LaunchConfig(gpus=gpus))


def _width(estimate: Estimate) -> float:
    assert estimate.duration_p10_s is not None
    assert estimate.duration_p90_s is not None
    return estimate.duration_p90_s / estimate.duration_p10_s


def test_the_interval_widens_with_the_distance_from_what_was_seen() -> None:
    widths = [_width(_estimate(gpus, [1, 2, 4] * 5)) for gpus in (4, 8, 16, 64, 256)]
    assert widths == sorted(widths)
    assert widths[-1] > 5 * widths[0]


def test_runs_that_agree_say_nothing_of_what_their_correction_gets_wrong() -> None:
    few, many = _estimate(64, [4] * 2), _estimate(64, [4] * 30)
    assert many.duration_p10_s is not None
    assert many.duration_p50_s is not None
    assert many.duration_p50_s / many.duration_p10_s > 16**0.28
    assert _width(few) >= _width(many)


def test_between_what_was_seen_errors_cancel() -> None:
    inside, outside = _estimate(4, [1, 16] * 8), _estimate(64, [1, 16] * 8)
    assert inside.extrapolated == []
    assert _width(inside) < _width(outside) / 1.5


def test_it_says_how_far() -> None:
    (beyond,) = _estimate(32, [1, 2, 4]).extrapolated
    assert (beyond.quantity, beyond.least, beyond.most, beyond.factor) == ("GPUs", 1, 4, 8)
    assert beyond.text == "neighbours ran on 1 to 4 GPUs, this job asks for 32: 8 times as many"
    (fewer,) = _estimate(1, [8]).extrapolated
    assert fewer.text == "neighbours ran on 8 GPUs, this job asks for 1: 1/8 as many"
    (longer,) = _estimate(4, [4], iters=300, past=1).extrapolated
    assert longer.text == "neighbours ran for 1 epoch, this job asks for 300: 300 times as many"


@pytest.mark.parametrize("method", ["weighted", "mean"])
def test_too_far_is_no_estimate(method: Any) -> None:
    advisor = SchedulingAdvisor(_history([1, 2, 4]), method=method)
    found = advisor.estimate(_metadata(), LaunchConfig(gpus=1024))
    assert found.abstained
    assert found.duration_s is None
    assert found.reason is not None
    assert "neighbours ran on 1 to 4 GPUs, this job asks for 1,024" in found.reason
    assert len(found.neighbours) == 3
    assert advisor.estimate(_metadata(2e4), LaunchConfig(gpus=4)).abstained


@settings(max_examples=25)
@given(st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=12), st.integers(1, 2048))
def test_never_narrower_further_out(seen: list[int], gpus: int) -> None:
    here, further = _estimate(gpus, seen), _estimate(gpus * 2, seen)
    if further.abstained or gpus < max(seen):
        return
    assert not here.abstained
    assert math.log(_width(further)) >= math.log(_width(here)) - 1e-9
