"""Queues by lane and rank: against a sorted list; and that asking a policy less changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers import Cluster, Job
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.lanes import Lanes
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 60), st.integers(0, 3), st.integers(-2, 5), st.sampled_from("arwiahf")
        ),
        max_size=200,
    ),
    nested=st.booleans(),
)
def test_lanes_agree_with_a_sorted_list(
    steps: list[tuple[int, int, int, str]], nested: bool
) -> None:
    keys: dict[int, tuple[int, int]] = {}

    def rank(index: int) -> tuple[int, int] | int:
        return (-1, keys[index][1]) if nested else keys[index][1]

    lanes = Lanes(lambda job: keys[job.index][0], lambda job, now: rank(job.index))
    model: dict[int, Job] = {}

    def ordered(lane: int | None = None) -> list[Job]:
        found = [job for job in model.values() if lane is None or keys[job.index][0] == lane]
        return sorted(found, key=lambda job: (rank(job.index), job.index))

    for index, lane, value, what in steps:
        if what == "a" and index not in model:
            keys[index] = (lane, value)
            model[index] = Job(str(index), index, 0.0, 1)
            lanes.add(model[index], 0.0)
        elif what == "r":
            job = model.pop(index, None)
            assert lanes.remove(job or Job("", index, 0.0, 1)) == (job is not None)
        elif what == "w":
            offered: list[Job] = []

            def accept(job: Job, offered: list[Job] = offered, lane: int = lane) -> bool:
                offered.append(job)
                return keys[job.index][0] != lane

            accepted = lanes.walk(accept)
            refused = ordered(lane)[1:]
            assert offered == [job for job in ordered() if job not in refused]
            assert accepted == [(job, True) for job in offered if keys[job.index][0] != lane]
        elif what == "i":
            assert list(lanes) == ordered()
            assert list(lanes.lane(lane)) == ordered(lane)
            assert lanes.count(lane) == len(ordered(lane))
        elif what == "f":
            assert lanes.first() == (ordered() or [None])[0]
        elif what == "h" and index in model:
            later = ordered(keys[index][0])
            later = [job for job in later if rank(job.index) > rank(index)]  # type: ignore[operator]
            assert list(lanes.after(rank(index), keys[index][0])) == later[::-1]
        assert len(lanes) == len(model)
        assert lanes.any() == bool(model)


@pytest.mark.parametrize(
    "policy",
    [
        *("fifo", "sjf:backfill=true", "qssf", "sjf-ageing", "srtf", "tiresias"),
        *("gittins", "serpt:backfill=true", "gittins:preempt=true", "likely-short"),
    ],
)
@settings(max_examples=30)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 60).map(float),
            st.integers(0, 40).map(float),
            st.sampled_from([1, 2, 4, 8, 12]),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_a_steady_policy_decides_the_same_when_it_is_always_asked(
    policy: str, rows: list[tuple[float, float, int]]
) -> None:
    workload = Workload.of(rows)
    outcomes = []
    for steady in (True, False):
        chosen = make(policy)
        assert chosen.steady
        chosen.steady = steady
        estimator = Table(workload.duration_s)
        outcomes.append(
            Simulation(workload, chosen, Cluster.parse("3x8"), estimator=estimator).run()
        )
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].segments[:] == list(outcomes[1].segments)


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=40))
def test_finding_and_booking_at_once_is_finding_and_booking(steps: list[tuple[bool, int]]) -> None:
    one, two = Space(Cluster.parse("2x4,2x8")), Space(Cluster.parse("2x4,2x8"))
    held = []
    for index, (release, gpus) in enumerate(steps):
        if release and held:
            job, allocation = held.pop(gpus % len(held))
            one.give(job, allocation)
            two.give(job, allocation)
            continue
        job = Job(str(index), index, 0.0, gpus)
        found = one.find(job)
        assert two.place(job) == found
        if found is not None:
            assert one.take(job, found)
            held.append((job, found))
        assert (one.free, one.idle) == (two.free, two.idle)
