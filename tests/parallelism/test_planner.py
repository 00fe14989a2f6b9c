"""Plans for models: Equations 2 to 4, the frontier, and how near proxies come to the best."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from _exhaustive import keeps, search_exhaustively
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism.models import find_model
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.planner import (
    Candidate,
    Grid,
    Planner,
    PlanRequest,
    Pruning,
    assign_gpus,
    cluster_layers,
    frontier,
    power_sums,
    stage_partitions,
    to_plan,
)
from schedmate.schedulers.parallelism.predict import Predictor
from schedmate.schedulers.parallelism.profile import Tables

NETWORK = Network(Tables())


def request(
    name: str = "gpt-1.3b", gpu: str = "A40", gpus: int = 4, per_node: int = 2, batch: int = 128
) -> PlanRequest:
    return PlanRequest(find_model(name), gpu, gpus, per_node, batch, 1024, "bf16")


@given(total=st.sampled_from([1, 2, 4, 8, 16, 32]), parts=st.integers(1, 8))
def test_power_sums_are_all_the_ways_there_are(total: int, parts: int) -> None:
    found = power_sums(total, parts)
    assert len(set(found)) == len(found)
    for one in found:
        assert sum(one) == total
        assert len(one) == parts
        assert list(one) == sorted(one)
        assert all(power & (power - 1) == 0 for power in one)
    assert bool(found) == (parts <= total)


@settings(max_examples=30)
@given(
    shares=st.lists(st.floats(0.05, 1), min_size=2, max_size=4),
    gpus=st.sampled_from([4, 8, 16]),
)
def test_assignments_are_the_nearest_of_all_orders(shares: list[float], gpus: int) -> None:
    ideal = np.array([shares]) / sum(shares) * gpus
    found, bias = assign_gpus(ideal, gpus)
    least = min(
        float(np.linalg.norm(np.array(order) - ideal[0]))
        for powers in power_sums(gpus, len(shares))
        for order in permutations(powers)
    )
    assert bias[0] == pytest.approx(least)
    assert found.sum() == gpus
    assert float(np.linalg.norm(found[0] - ideal[0])) == pytest.approx(least)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=40), st.integers(1, 16))
def test_clusters_cover_all_layers(weights: list[float], count: int) -> None:
    ends = cluster_layers(weights, count)
    assert ends == sorted(set(ends))
    assert ends[-1] == len(weights)
    assert len(ends) == min(count, len(weights))


def test_partitions_are_all_there_are() -> None:
    found = stage_partitions(6, 3)
    assert len(found) == 10  # C(5, 2)
    assert (np.diff(found, axis=1) > 0).all()
    assert (found[:, -1] == 6).all()
    assert stage_partitions(4, 1).tolist() == [[4]]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=40
    ),
    st.integers(2, 6),
)
def test_a_frontier_has_no_dominated_plan(points: list[tuple[int, int, int]], most: int) -> None:
    plans = [Candidate((n, 10 - n), (1, 1), 1, 4, bias, load) for bias, load, n in points]
    kept = frontier(plans, most)
    assert 1 <= len(kept) <= most
    for one in kept:
        assert not any(
            other.bias <= one.bias
            and other.communication <= one.communication
            and (other.bias, other.communication) != (one.bias, one.communication)
            for other in plans
        )


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_candidates_use_all_gpus_and_fit(stages: int) -> None:
    one = request("gpt-1.3b", "A100-80", 8, 4, 256)
    found = Grid(one, stages, NETWORK).candidates()
    assert found
    for candidate in found:
        assert sum(candidate.gpus) == 8
        assert sum(candidate.layers) == one.spec.layers
        assert all(gpus % candidate.data == 0 for gpus in candidate.gpus)
    assert any(Predictor(NETWORK).predict(to_plan(one, plan)).fits for plan in found)


CASES = [
    ("gpt-1.3b", "A40", 4, 2, 128),
    ("gpt-1.3b", "A100-40", 8, 4, 128),
    ("gpt-2.6b", "H100-80", 4, 8, 256),
    ("moe-1.3b", "A40", 8, 2, 256),
    ("moe-2.4b", "A10", 8, 2, 256),
    ("wide-resnet-1b", "A40", 4, 2, 256),
    ("wide-resnet-2b", "A100-40", 4, 4, 512),
]


def test_proxy_plans_come_near_the_best_plans() -> None:
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for case in CASES:
        for published, reached in ratios.items():
            planner = Planner(NETWORK, published=published, clusters=5)
            found = planner.plan(request(*case))
            best, priced = search_exhaustively(found.request, planner.predictor, 5)
            assert best is not None
            assert priced > len(found.grids)
            reached.append(best.iteration_s / found.best.proxy.iteration_s)
    assert max(map(max, ratios.values())) <= 1 + 1e-9  # nothing beats an exhaustive search
    assert np.mean(ratios[True]) > 0.93  # the paper's 93.4 %
    assert np.mean(ratios[False]) >= np.mean(ratios[True])


def test_pruning_searches_less_and_loses_little() -> None:
    planner = Planner(NETWORK, clusters=6)
    found = planner.plan(request("gpt-1.3b", "A100-40", 8, 4))
    whole, priced = search_exhaustively(found.request, planner.predictor, 6)
    pruning = Pruning.of(found.best.frontier)
    pruned, fewer = search_exhaustively(found.request, planner.predictor, 6, pruning)
    assert all(keeps(pruning, candidate) for candidate in found.best.frontier)
    assert whole is not None
    assert pruned is not None
    assert fewer * 5 < priced
    assert pruned.iteration_s <= 1.1 * whole.iteration_s


def test_uniform_plans_give_every_stage_the_same_gpus() -> None:
    one = request("gpt-2.7b", "A100-40", 16, 4, 256)._replace(uniform=True)
    for grid in Planner(NETWORK).plan(one).grids:
        assert len({stage.gpus for stage in grid.proxy.plan.stages}) == 1
        assert grid.stages in {1, 2, 4, 8, 16}


def test_what_does_not_fit_is_sharded_then_recomputed() -> None:
    found = Planner(NETWORK).plan(request("gpt-2.6b", "A10", 4, 2, 128)._replace(sequence=4096))
    assert (found.request.sharding, found.request.recompute) == ("zero-1", "full")
    assert len(found.notes) == 2
    assert found.best.proxy.fits


def test_a_model_that_fits_nowhere_is_refused_with_what_would_do() -> None:
    with pytest.raises(InputError, match=r"fits on no plan for 4 A10.*8 of them would have"):
        Planner(NETWORK).plan(request("gpt-6.7b", "A10", 4, 2))


@pytest.mark.parametrize("gpus", [0, 3, 12])
def test_gpus_must_be_a_power_of_two(gpus: int) -> None:
    with pytest.raises(InputError, match="powers of two"):
        Planner(NETWORK).plan(request(gpus=gpus))


def test_a_batch_that_nothing_divides_is_refused_or_planned() -> None:
    found = Planner(NETWORK).plan(request(batch=7))
    assert found.best.proxy.plan.global_batch == 7
    assert found.best.proxy.plan.data == 1
