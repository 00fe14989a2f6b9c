"""The faulty nodes are found in few runs, and nobody is accused without proof."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.cluster.recovery.diagnosing import SearchResult, Tested, find_faulty


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def search(nodes: list[str], bad: set[str], *, network: bool = False) -> SearchResult:
    """`network`: a faulty node passes alone, since it does not use its network then."""

    def test(group: tuple[str, ...]) -> Tested:
        if network and len(group) == 1:
            return "healthy"
        return "faulty" if bad & set(group) else "healthy"

    return find_faulty(nodes, test, most_runs=10_000)


@pytest.mark.parametrize("count", [2, 3, 7, 8, 64, 1000])
@pytest.mark.parametrize("network", [False, True])
def test_one_faulty_node_takes_o_of_log_n_runs(count: int, network: bool) -> None:
    nodes = names(count)
    for bad in random.Random(count).sample(nodes, min(count, 20)):
        found = search(nodes, {bad}, network=network)
        assert found.runs <= 2 * math.ceil(math.log2(count)) + 4
        if network and count == 2:  # each passes alone: there is nobody to test them with
            assert found.faulty == ()
        else:
            assert found.faulty == (bad,)
            assert count == 2 or set(found.sound) == set(nodes) - {bad}


def test_all_pass() -> None:
    found = search(names(9), set())
    assert (found.faulty, found.runs, len(found.sound)) == ((), 1, 9)


@given(count=st.integers(3, 40), data=st.data())
def test_several_faulty_nodes(count: int, data: st.DataObject) -> None:
    nodes = names(count)
    bad = data.draw(st.sets(st.sampled_from(nodes), min_size=1, max_size=min(4, count - 2)))
    found = search(nodes, bad)
    assert set(found.faulty) == bad
    assert set(found.sound) == set(nodes) - bad
    assert found.runs <= len(bad) * (2 * math.ceil(math.log2(count)) + 3) + 3


@given(count=st.integers(1, 20), seed=st.integers(), data=st.data())
def test_nobody_sound_is_ever_accused(count: int, seed: int, data: st.DataObject) -> None:
    """Whatever the runs say, a node is accused only if a run with it and sound ones failed."""
    nodes = names(count)
    bad = data.draw(st.sets(st.sampled_from(nodes)))
    dice = random.Random(seed)

    def test(group: tuple[str, ...]) -> Tested:
        if dice.random() < 0.1:
            return "unclear"
        return "faulty" if bad & set(group) else "healthy"

    found = find_faulty(nodes, test)
    assert set(found.faulty) <= bad
    assert not set(found.sound) & bad


def test_a_link_between_two_halves_accuses_nobody() -> None:
    def test(group: tuple[str, ...]) -> Tested:
        return "faulty" if {"n0", "n7"} <= set(group) else "healthy"

    found = find_faulty(names(8), test)
    assert found.faulty == ()
    assert "network" in found.detail or "pass" in found.detail


def test_too_many_runs_end_it() -> None:
    found = find_faulty(names(1000), lambda _group: "faulty", most_runs=20)
    assert (found.faulty, found.runs) == ((), 20)
    assert "20 runs" in found.detail
