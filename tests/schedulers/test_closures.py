"""Nodes that are drained, go down and come back, under every policy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers import Cluster, Node, Preempt, Start
from schedmate.schedulers.board import Board
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import Forecast
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import OUTAGES, POLICIES, Outages, apart, run

ROWS = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(1, 300),
        st.sampled_from([1, 1, 2, 3, 4, 8]),
    ),
    min_size=2,
    max_size=14,
).map(sorted)


@pytest.mark.parametrize("name", POLICIES)
@given(rows=ROWS, outages=OUTAGES, vcs=st.booleans())
@settings(max_examples=15)
def test_every_policy_gets_through_closures_by_the_laws(
    name: str, rows: list[tuple[float, float, int]], outages: Outages, vcs: bool
) -> None:
    workload = Workload.of([(float(at), float(length), gpus) for at, length, gpus in rows])
    if vcs:
        workload.vcs = ["ab"[one.index % 2] for one in workload.jobs]

    run(
        workload,
        make(name),
        "3x4@a,3x4@b" if vcs else "3x4",
        estimator=Table(workload.duration_s),
        maintenance=apart(outages),
    )


@pytest.mark.parametrize(
    "name",
    ["srtf", "srtf:quota=true", "tiresias", "tiresias:quota=true", "gittins:preempt=true"],
)
def test_a_running_job_on_a_draining_node_is_not_stopped_for_nothing(name: str) -> None:
    workload = Workload.of([(0.0, 5000.0, 4), (0.0, 5000.0, 4), (10.0, 1.0, 4)])
    board = Board(Cluster((Node("a", 4), Node("b", 4))), make(name))
    for one in workload.jobs:
        one.reset()
        one.forecast = Forecast(workload.duration_s[one.index])
    for one in workload.jobs[:2]:
        board.submit(one, 0.0)
    for decision in board.decide(0.0):
        assert isinstance(decision, Start)
        board.accept(decision, 0.0)
    board.drain(0, 5.0)
    board.drain(1, 5.0)
    board.submit(workload.jobs[2], 4000.0)

    assert not [d for d in board.decide(4000.0) if isinstance(d, Preempt | Start)]
