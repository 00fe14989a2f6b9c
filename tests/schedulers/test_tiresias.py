"""Tiresias beyond its two queues: promotion, the Gittins index, models that may be spread."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers.policies.preemptive import Gittins
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import simulate as audited


def simulate(workload: Workload, settings: str, cluster: str) -> Outcome:
    return audited(workload, f"tiresias:{settings}", cluster)


def crowded() -> Workload:
    """A long job, and others that come one after the other and pass it once it has gone down."""
    rows = [(0.0, 2000.0, 1)] + [(10.0 + 90.0 * n, 90.0, 1) for n in range(40)]
    return Workload.of(rows)


def test_who_has_waited_for_long_goes_up_again() -> None:
    # Stopped after 100 s, the long job waits for all the others unless it is promoted.
    never = simulate(crowded(), "threshold_gpu_s=100", "1x1")
    twice = simulate(crowded(), "threshold_gpu_s=100:promote=2", "1x1")
    starts = {
        outcome is twice: [one.start for one in outcome.segments if one.job == 0]
        for outcome in (never, twice)
    }
    assert starts[False] == [0.0, 3700.0]
    # It waits for twice the 100 s that it ran, is stopped again, and waits for twice what it ran.
    assert starts[True][1] == 300.0
    assert len(starts[True]) > 2
    assert simulate(crowded(), "threshold_gpu_s=100:promote=0", "1x1").end == never.end


def test_a_promoted_job_keeps_its_place_until_it_has_had_its_share() -> None:
    outcome = simulate(crowded(), "threshold_gpu_s=100:promote=2", "1x1")
    second = [one for one in outcome.segments if one.job == 0][1]
    assert second.end - second.start == pytest.approx(100.0)


def test_no_promotion_that_is_no_multiple_of_a_time() -> None:
    with pytest.raises(UsageError, match="promote"):
        make("tiresias:promote=inf")


# Gittins.


@given(
    st.lists(st.integers(1, 1000).map(float), min_size=1, max_size=60),
    st.integers(1, 500).map(float),
    st.integers(0, 1200).map(float),
)
def test_the_index_is_what_its_definition_says(
    taken: list[float], quantum: float, attained: float
) -> None:
    gittins = Gittins(taken, quantum)
    # Where the index was last brought up to date.
    at = max(one for one in [0.0, *taken] if one <= attained)
    longer = [one - at for one in taken if one > at]
    ends = sum(one <= quantum for one in longer)
    means = sum(min(one, quantum) for one in longer)
    assert gittins.index(attained) == pytest.approx(ends / means if means else 0.0)
    later = gittins.next(attained)
    assert later > attained
    assert gittins.index(min(later, attained + 1e6) - 1e-6) == gittins.index(attained)


def test_by_gittins_who_is_likely_to_end_goes_first(tmp_path: Path) -> None:
    # Jobs take 100 or 10,000: one that has passed 100 has long to go, a new one most likely not.
    history = tmp_path / "history.csv"
    with history.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["gpu_s"])
        writer.writerows([[100.0]] * 9 + [[10_000.0]])
    workload = Workload.of([(0.0, 10_000.0, 1), (500.0, 100.0, 1)])
    settings = "threshold_gpu_s=20000"
    assert simulate(workload, settings, "1x1").first_start == [0.0, 10_000.0]
    found = simulate(workload, f"{settings}:history={history}", "1x1")
    assert found.first_start == [0.0, 500.0]
    history.write_text("seconds\n3\n")
    with pytest.raises(UsageError, match="gpu_s"):
        make(f"tiresias:history={history}")


def test_an_index_learnt_from_the_past_helps(tmp_path: Path) -> None:
    draw = random.Random(3)
    seconds = [draw.choice([60.0, 60.0, 60.0, 20_000.0]) for _ in range(400)]
    history = tmp_path / "history.csv"
    history.write_text("\n".join(["gpu_s", *map(str, seconds[:200])]) + "\n")
    rows = [(300.0 * n, one, 1) for n, one in enumerate(seconds[200:])]
    mean = {
        text: sum(simulate(Workload.of(rows), f"threshold_gpu_s=1e6{text}", "4x4").end)
        for text in ("", f":history={history}")
    }
    assert min(mean, key=mean.__getitem__) != ""


# Placement.


def test_models_without_large_tensors_take_what_is_left_over() -> None:
    # On each of two nodes one GPU is free; the third job asks for two.
    workload = Workload.of([(0.0, 500.0, 3), (0.0, 600.0, 3), (10.0, 100.0, 2)])
    for job, name in zip(workload.jobs, ("vgg", "vgg", "resnet"), strict=True):
        job.name = name
    together = simulate(workload, "threshold_gpu_s=1e9", "2x4")
    assert together.first_start[2] == 500.0
    spread = simulate(workload, "threshold_gpu_s=1e9:consolidate=vgg|alexnet", "2x4")
    assert spread.first_start[2] == 10.0
    (of_third,) = (one for one in spread.segments if one.job == 2)
    assert len(of_third.allocation) == 2
    # Whose name says that it needs its GPUs together waits for them, and holds up no other.
    workload.jobs[2].name = "vgg16"
    assert simulate(workload, "threshold_gpu_s=1e9:consolidate=vgg", "2x4").first_start[2] == 500.0
    with pytest.raises(UsageError, match="consolidate"):
        make("tiresias:consolidate=(")


def test_one_that_needs_its_gpus_together_does_not_hide_one_that_does_not() -> None:
    workload = Workload.of([(0.0, 500.0, 3), (0.0, 600.0, 3), (10.0, 100.0, 2), (11.0, 100.0, 2)])
    for job, name in zip(workload.jobs, ("vgg", "vgg", "vgg", "resnet"), strict=True):
        job.name = name
    spread = simulate(workload, "threshold_gpu_s=1e9:consolidate=vgg", "2x4")
    assert spread.first_start[2:] == [500.0, 11.0]
