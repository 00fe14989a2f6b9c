"""How jobs that share GPUs slow each other down: bounds that hold whatever they use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _colocation import measured
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from schedmate.base.errors import UsageError
from schedmate.cli import application
from schedmate.schedulers.model import Profile
from schedmate.schedulers.sim.interference import GAVEL, NAMES, TimeSlicing, named
from schedmate.schedulers.sim.traces.recipe import Recipe, recipes

app = application("simulate")

UNKNOWN = ("", "")


def use(gpu: float, memory: float = 0.0) -> Profile:
    return Profile(gpu, memory, 1000.0, False)


@given(st.floats(0, 100), st.floats(0, 100))
def test_taking_turns_gives_no_more_than_the_gpu_has(one: float, two: float) -> None:
    first, second = TimeSlicing().speeds(use(one), use(two), UNKNOWN)
    needs = (max(one, 1) / 100, max(two, 1) / 100)
    assert 0 < first <= 1
    assert 0 < second <= 1
    assert first * needs[0] + second * needs[1] <= 1 + 1e-9
    assert TimeSlicing().speeds(use(two), use(one), UNKNOWN) == (second, first)
    if sum(needs) <= 1:
        assert (first, second) == (1, 1)
    # Whoever needs more gets no smaller part of the GPU.
    if one <= two:
        assert first * needs[0] <= second * needs[1] + 1e-9


@pytest.mark.parametrize("use_of", [use(100.0), None])
def test_two_saturated_jobs_run_at_half_speed_or_less(use_of: Profile | None) -> None:
    assert max(TimeSlicing().speeds(use_of, use_of, UNKNOWN)) <= 0.5


def test_a_light_job_is_not_slowed_by_a_heavy_one() -> None:
    assert TimeSlicing().speeds(use(20.0), use(100.0), UNKNOWN) == (1.0, pytest.approx(0.75))


@pytest.mark.parametrize("name", NAMES)
def test_every_workload_of_every_recipe_has_speeds_beside_every_other(name: str) -> None:
    world = named(name)
    configs = {
        choice.config: use(choice.gpu_util, choice.memory_util)
        for recipe in recipes()
        for types in Recipe.read(recipe)._choices.values()
        for choices in types
        for choice in choices
    }
    some = list(configs.items())[::5]
    for one, mine in some:
        for two, theirs in some:
            speeds = world.speeds(mine, theirs, (one, two))
            assert all(0 < speed <= 1 for speed in speeds)
            assert world.speeds(theirs, mine, (two, one)) == pytest.approx(speeds[::-1])


def test_a_pair_that_gavel_measured_has_its_speeds() -> None:
    pair = ("ResNet50/ImageNet/64/1", "DLRM/Criteo/2048/0")
    assert named("gavel-v100").speeds(None, None, pair) == (0.594, 0.205)
    assert named("gavel-v100").speeds(None, None, pair[::-1]) == (0.205, 0.594)
    nearest = ("ResNet50/ImageNet/70/1", "DLRM/Criteo/1900/0")
    assert named("gavel-v100").speeds(None, None, nearest) == (0.594, 0.205)
    # A model that nobody knows, without a batch size, has a stand-in.
    assert max(named("gavel-k80").speeds(None, None, ("?", "?"))) < 0.7


def test_there_is_no_other_interference() -> None:
    with pytest.raises(UsageError, match="gavel-v100, gavel-p100, gavel-k80"):
        named("gavel-a100")
    assert set(GAVEL) < set(NAMES)


PAIRS = """model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2
A,d,1,0,0.9,B,d,1,0,0.5
B,d,1,0,0.4,B,d,1,0,0.6
"""
ALONE = "model,dataset,batchsize,amp,gpu_util,gmem_util\nA,d,1,0,20,10\nB,d,1,0,95,60\n"


def test_a_pair_that_nobody_measured_is_as_fast_as_the_nearest(tmp_path: Path) -> None:
    pairs, alone = tmp_path / "pairs.csv", tmp_path / "alone.csv"
    pairs.write_text(PAIRS)
    alone.write_text(ALONE)
    table = measured(pairs, alone)
    assert table.speeds(None, None, ("A/d/1/0", "B/d/1/0")) == (0.9, 0.5)
    assert table.speeds(use(25, 5), use(99, 70), ("new", "newer")) == pytest.approx((0.9, 0.5))
    assert table.speeds(use(99, 70), use(25, 5), ("new", "newer")) == pytest.approx((0.5, 0.9))
    assert table.speeds(None, None, ("new", "newer")) == pytest.approx((0.5, 0.5))
    alone.write_text("model\nA\n")
    with pytest.raises(UsageError, match="does not say what jobs use alone"):
        measured(pairs, alone)
    alone.write_text(ALONE.splitlines()[0] + "\nZ,d,1,0,20,10\n")
    with pytest.raises(UsageError, match="has none of the jobs"):
        measured(pairs, alone)


def test_simulate_takes_an_interference_by_name(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    rows = [f"{n},{n},10000,1,80,10,1000" for n in range(12)]
    head = "job_id,submit_s,duration_s,gpus,gpu_util_pct,gmem_util_pct,gmem_mb"
    trace.write_text("\n".join([head, *rows, ""]))
    base = ["simulate", str(trace), "--policy", "lucid:lookahead_s=0", "--cluster", "8x1", "--json"]
    curve, slices = (
        json.loads(CliRunner().invoke(app, [*base, *more]).stdout)["runs"][0]
        for more in ([], ["--colocation", "slices"])
    )
    assert curve["packed"] > 0
    assert slices["gpu_time_h"]["slowed"] > 1.2 * curve["gpu_time_h"]["slowed"]
