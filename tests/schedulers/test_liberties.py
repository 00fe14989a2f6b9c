"""The published simulator's liberties: each by itself, and the same backfill for all without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import Job
from schedmate.schedulers.policies.preemptive import Preemptive, Srtf, Tiresias
from schedmate.schedulers.policy import Decision, Preempt, Start, View
from schedmate.schedulers.registry import BUNDLED, PolicySpec, make, parameters, policy_class
from schedmate.schedulers.sim.parameters import HONEST, LIBERTIES, PUBLISHED, world
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import simulate as audited


def simulate(rows: list[tuple[float, float, int]], policy: str, cluster: str) -> Outcome:
    workload = Workload.of(rows)
    return audited(workload, policy, cluster, estimator=Table(workload.duration_s))


@pytest.mark.parametrize("name", sorted(LIBERTIES))
def test_each_liberty_can_be_taken_and_left_by_itself(name: str) -> None:
    taken, left = world(f"honest+{name}"), world(f"published-{name}")
    assert replace(taken, name="") != replace(HONEST, name="")
    assert replace(left, name="") != replace(PUBLISHED, name="")
    back = world(f"published-{name}+{name}")
    assert replace(back, name="") == replace(PUBLISHED, name="")
    assert world(f"honest+{name}-{name}").settings == HONEST.settings


def test_all_liberties_make_the_published_mode() -> None:
    every = world("honest+" + "+".join(reversed(LIBERTIES)))
    assert replace(every, name="published") == PUBLISHED
    assert world("honest") == HONEST


@pytest.mark.parametrize("mode", ["", "honestly", "honest+luck", "honest free-profiling", "+"])
def test_an_unknown_mode_is_refused(mode: str) -> None:
    with pytest.raises(UsageError, match="is none of honest, published"):
        world(mode)


def test_the_honest_mode_gives_every_policy_the_same_backfill() -> None:
    can = [
        name
        for name in BUNDLED
        if any(one.name == "backfill" for one in parameters(policy_class(name)))
    ]
    assert {"fifo", "sjf", "qssf", "tiresias", "horus", "lucid"} <= set(can)
    for name in can:
        honest = make(PolicySpec.parse(name).with_defaults(HONEST.settings_of(name)))
        assert honest.backfill  # type: ignore[attr-defined]
        chosen = make(PolicySpec.parse(name).with_defaults(PUBLISHED.settings_of(name)))
        assert chosen.backfill == name.startswith("lucid")  # type: ignore[attr-defined]


def test_what_is_said_of_a_policy_comes_before_the_mode() -> None:
    asked = PolicySpec.parse("tiresias:backfill=true")
    asked = asked.with_defaults(PUBLISHED.settings_of("tiresias"))
    assert str(asked) == "tiresias:backfill=true:quota=true:interval_s=60"


def test_a_quota_reserves_what_cannot_be_placed() -> None:
    # A GPU is free on each of two nodes. The third job, of two GPUs, is within the count and fits
    # on neither; the fourth would fit.
    rows = [(0.0, 100.0, 3), (0.0, 100.0, 3), (10.0, 10.0, 2), (11.0, 10.0, 1)]
    by_node = simulate(rows, "tiresias:threshold_gpu_s=1e9", "2x4")
    by_count = simulate(rows, "tiresias:threshold_gpu_s=1e9:quota=true", "2x4")
    assert by_node.first_start == [0.0, 0.0, 100.0, 11.0]
    assert by_count.first_start == [0.0, 0.0, 100.0, 100.0]


@pytest.mark.parametrize(
    "policy", ["srtf:quota=true", "tiresias:quota=true:threshold_gpu_s=30:interval_s=7"]
)
@settings(max_examples=30)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 50).map(float), st.integers(0, 30).map(float), st.sampled_from([1, 2, 3])
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_quota_obeys_the_laws(policy: str, rows: list[tuple[float, float, int]]) -> None:
    found = simulate(rows, policy, "2x4")
    name, _, given_ = policy.partition(":")
    plain = simulate(rows, f"{__name__}:{name.title()}OneByOne:{given_}", "2x4")
    assert (found.first_start, found.end) == (plain.first_start, plain.end)


class OneByOne(Preemptive):
    """The published rule as it is told: every job by rank, while the count lasts."""

    def decide(self, view: View) -> Sequence[Decision]:
        left = view.space.cluster.gpus
        starts: list[Job] = []
        decisions: list[Decision] = []
        for job in sorted(
            (*view.running, *view.pending),
            key=lambda job: (self.rank_if_running(job, view.now), job.index),
        ):
            if job.gpus <= left:
                left -= job.gpus
                starts += [] if job.allocation else [job]
            elif job.allocation:
                decisions.append(Preempt(job))
                view.space.give(job, job.allocation)
        for job in starts:
            if allocation := view.space.find(job):
                view.space.take(job, allocation)
                decisions.append(Start(job, allocation))
        return decisions


class SrtfOneByOne(OneByOne, Srtf):
    pass


class TiresiasOneByOne(OneByOne, Tiresias):
    pass
