"""Throughput models and agents: what is fitted, what is assumed, what is chosen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers.goodput import (
    Agent,
    Limits,
    Observation,
    Shape,
    Throughput,
    _Problem,
    fit_throughput,
)

TRUTH = Throughput(0.05, 0.002, 0.08, 0.006, 0.03, 0.002, 2.5)
SHAPES = [(1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16)]


def observed(truth: Throughput, shapes: list[tuple[int, int]], batches: list[int]) -> tuple:
    return tuple(
        Observation(nodes, replicas, size, *map(float, truth.step_times(nodes, replicas, size)))
        for nodes, replicas in shapes
        for size in batches
    )


def test_a_fit_predicts_what_it_was_fitted_to() -> None:
    generator, wrong = np.random.default_rng(0), []
    for _ in range(25):
        compute, across, within = (float(one) for one in generator.uniform(0.01, 0.5, 3))
        slope, overlap = float(10 ** generator.uniform(-4, -2)), float(generator.uniform(1.2, 4))
        truth = Throughput(compute, slope, across, across / 20, within, within / 20, overlap)
        data = observed(truth, SHAPES, [8, 32, 128])
        model = fit_throughput(data)
        told = [model.step_times(one.nodes, one.replicas, one.batch) for one in data]
        errors = np.log(np.array(told)) - np.log(np.array([one[3:] for one in data]))
        wrong.append(np.sqrt((errors**2).mean(axis=0)))
    # The terms that keep overlap and slopes sober cost some accuracy; compute time has none.
    compute_wrong, step_wrong = np.array(wrong).T
    assert compute_wrong.max() < 0.03
    assert np.median(step_wrong) < 0.05
    assert step_wrong.max() < 0.25


@settings(max_examples=20)
@given(st.lists(st.floats(0.005, 1.0), min_size=6, max_size=6), st.floats(1.05, 6.0))
def test_the_gradient_is_the_slope_of_the_objective(start: list[float], overlap: float) -> None:
    problem = _Problem(np.array(observed(TRUTH, SHAPES, [8, 64])))
    x = np.array([*start, overlap])
    _, gradient = problem(x)
    for one in range(7):
        step = np.zeros(7)
        step[one] = 1e-6 * x[one]
        slope = (problem(x + step)[0] - problem(x - step)[0]) / (2 * step[one])
        assert gradient[one] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_what_was_not_tried_is_taken_to_be_good() -> None:
    model = fit_throughput(observed(TRUTH, [(1, 1)], [8, 64]))
    alone, wide = (float(model.samples_s(n, n, 64, 0)) for n in (1, 16))
    assert wide == pytest.approx(16 * alone, rel=1e-3)
    once = fit_throughput(observed(TRUTH, [(1, 1)], [64]))
    assert once.compute == pytest.approx(float(TRUTH.step_times(1, 1, 64)[0]) / 2)


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_none_are_refused(time: float) -> None:
    with pytest.raises(ValueError):
        fit_throughput((Observation(1, 1, 8, time, 0.1),))
    with pytest.raises(ValueError):
        fit_throughput(())


def agent(**more: object) -> Agent:
    limits = {"a": Limits(4, 64), "b": Limits(4, 128)}
    one = Agent(limits, initial_batch=32, largest_batch=2048, **more)  # type: ignore[arg-type]
    one.set_noise(1.0, 20.0)
    return one


def test_the_best_batch_is_the_best_of_all_by_brute_force() -> None:
    one = agent()
    for each in observed(TRUTH, SHAPES, [8, 32]):
        one.observe("a", each)
    model = one.models["a"]
    for shape in (Shape("a", 1, 4), Shape("a", 2, 8), Shape("a", 4, 16)):
        best = one.goodputs((shape,))[0]
        everything = max(
            float(model.samples_s(shape.nodes, shape.gpus, size, steps))
            * float(one.gain(total))
            / total
            for size in range(4, 65)
            for steps in range(8)
            if 32 <= (total := shape.gpus * size * (steps + 1)) <= 2048
        )
        # Fifty sizes are compared, not all of them.
        assert 0.97 * everything <= best <= everything * (1 + 1e-9)
        chosen = one.batch(shape)
        assert chosen is not None
        assert 4 <= chosen.size <= 64


def test_a_fixed_batch_stays_and_what_does_not_fit_is_worth_nothing() -> None:
    one = agent(fixed_batch=64)
    for each in observed(TRUTH, [(1, 1), (1, 2)], [8, 32]):
        one.observe("a", each)
    assert one.batch(Shape("a", 1, 2)) == (32, 0)
    assert one.batch(Shape("a", 8, 32)) is None
    assert one.goodputs((Shape("nowhere", 1, 1),))[0] == 0


def test_replicas_are_doubled_at_most() -> None:
    one = agent()
    assert one.most_replicas == 1
    one.observe("a", Observation(1, 1, 8, 0.1, 0.1))
    assert one.most_replicas == 2
    one.observe("b", Observation(1, 4, 8, 0.1, 0.1))
    assert one.most_replicas == 8


def test_without_an_oracle_an_unmeasured_type_is_unknown() -> None:
    one = agent()
    one.observe("a", Observation(1, 1, 8, 0.1, 0.1))
    here, there = one.goodputs((Shape("a", 1, 1), Shape("b", 1, 1)))
    assert here > 0
    assert np.isnan(there)
    told = agent(ratios={"a": 1.0, "b": 3.0})
    told.observe("a", Observation(1, 1, 8, 0.1, 0.1))
    here, there = told.goodputs((Shape("a", 1, 1), Shape("b", 1, 1)))
    assert there > here


def test_a_type_tried_alone_scales_as_one_that_was_tried_wide() -> None:
    one = agent()
    for each in observed(TRUTH, SHAPES, [8, 64]):
        one.observe("a", each)
    twice = TRUTH._replace(compute=0.025, compute_slope=0.001)
    for each in observed(twice, [(1, 1)], [8, 64]):
        one.observe("b", each)
    wide = one.goodputs((Shape("a", 2, 8), Shape("b", 2, 8)))
    assert wide[1] / wide[0] == pytest.approx(2.0, rel=0.35)


def test_replicas_of_a_pipeline_are_several_gpus() -> None:
    one = Agent({"a": Limits(1, 2, gpus=8)}, initial_batch=12, largest_batch=384)
    one.observe("a", Observation(1, 1, 1, 0.1, 0.4))
    seven, eight, sixteen = one.goodputs(tuple(Shape("a", 1 + (n > 8), n) for n in (7, 8, 16)))
    assert seven == 0
    assert 0 < eight < sixteen


def test_a_similar_job_hands_on_what_it_learnt() -> None:
    old, new = agent(), agent()
    for each in observed(TRUTH, SHAPES, [8, 32]):
        old.observe("a", each)
    new.adopt(old)
    shape = (Shape("a", 2, 8),)
    assert new.goodputs(shape)[0] == pytest.approx(old.goodputs(shape)[0])
    assert new.knows("a")
    assert not new.knows("b")


def test_the_scheduler_may_count_on_less_than_the_job_then_trains_with() -> None:
    whole, asked = agent(), agent(offered_batch=128)
    for one in (whole, asked):
        for each in observed(TRUTH, SHAPES, [8, 32]):
            one.observe("a", each)
    shapes = (Shape("a", 1, 1), Shape("a", 4, 16))
    # Of both, fifty sizes are compared.
    assert (asked.goodputs(shapes) <= 1.01 * whole.goodputs(shapes)).all()
    assert asked.goodputs(shapes)[1] < 0.9 * whole.goodputs(shapes)[1]
    for shape in shapes:
        assert asked.batch(shape) == whole.batch(shape)


def test_with_an_oracle_the_first_batch_on_a_new_type_is_the_smallest() -> None:
    one = agent(ratios={"a": 100.0, "b": 300.0})
    for each in observed(TRUTH, SHAPES, [8, 32]):
        one.observe("a", each)
    # 32 samples in all; at least four a replica, and two replicas already have them.
    assert one.batch(Shape("b", 1, 2)) == (16, 0)
    assert one.batch(Shape("b", 2, 16)) == (4, 0)
    assert one.batch(Shape("nowhere", 1, 1)) is None
    chosen = one.batch(Shape("a", 1, 2))
    assert chosen is not None
    assert 2 * chosen.size * (chosen.steps + 1) > 32


def test_the_rate_of_a_job_grows_with_its_gpus() -> None:
    one = agent(fixed_batch=64)
    assert math.isnan(one.rate(1))
    assert agent(ratios={"a": 100.0, "b": 300.0}).rate(2) == pytest.approx(600 / 32)
    for each in observed(TRUTH, [(1, 1)], [8, 64]):
        one.observe("a", each)
    assert one.rate(4) == pytest.approx(4 * one.rate(1))
    assert one.rate(1) == pytest.approx(float(one.models["a"].samples_s(1, 1, 64, 0)) / 64)
