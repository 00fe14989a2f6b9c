"""Lucid's parts, each by what it changes: profiler, binder, orchestrator, dynamic strategy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.schedulers.estimators import Load, Table
from schedmate.schedulers.lanes import Lanes
from schedmate.schedulers.model import Cluster, Job, Profile
from schedmate.schedulers.policies.lucid import Thresholds, Tree
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.parameters import HONEST, PUBLISHED, ColocationTable
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space
from tests.schedulers.worlds import simulate as audited

TINY = Profile(10.0, 5.0, 2000.0)
MEDIUM = Profile(60.0, 20.0, 8000.0)
JUMBO = Profile(95.0, 50.0, 8000.0)
LARGE = Profile(10.0, 5.0, 20_000.0)


def simulate(
    rows: list[tuple[float, float, int]],
    settings: str = "",
    cluster: str = "4x2",
    profiles: list[Profile | None] | None = None,
    parameters: object = HONEST,
) -> Outcome:
    """Without the dynamic strategy, unless `settings` say `lookahead_s`."""
    workload = Workload.of(rows, profiles=profiles or [None] * len(rows))
    settings = settings if "lookahead_s" in settings else f"lookahead_s=0;{settings}".rstrip(";")
    estimator = Table(workload.duration_s)
    return audited(
        workload, f"lucid:{settings}", cluster, estimator=estimator, parameters=parameters
    )


def test_profiling_takes_its_time_and_the_job_starts_anew() -> None:
    outcome = simulate([(0.0, 1000.0, 1)])
    assert [(one.start, one.end, one.kind) for one in outcome.segments] == [
        (0.0, 200.0, "profile"),
        (200.0, 1200.0, "run"),
    ]


def test_a_job_that_ends_while_profiled_leaves() -> None:
    outcome = simulate([(0.0, 150.0, 1)])
    assert outcome.end == [150.0]
    assert outcome.decisions == {"Profile": 1}


def test_profiles_are_free_in_the_published_mode() -> None:
    outcome = simulate([(0.0, 1000.0, 1)], parameters=PUBLISHED)
    assert outcome.end == [1000.0]


def test_large_jobs_are_not_profiled() -> None:
    outcome = simulate([(0.0, 1000.0, 2)], "profile_gpus=1")
    assert outcome.end == [1000.0]


def test_the_profiler_takes_the_fewest_gpus_first() -> None:
    rows = [(0.0, 150.0, 2), (1.0, 100.0, 2), (2.0, 100.0, 1)]
    assert simulate(rows).first_start == [0.0, 250.0, 150.0]
    assert simulate(rows, "space_aware=false").first_start == [0.0, 150.0, 250.0]


def test_a_burst_halves_the_limit_and_borrows_nodes() -> None:
    rows = [(0.0, 1000.0, 1) for _ in range(6)]
    outcome = simulate(rows, "burst=3")
    profiled = [one for one in outcome.segments if one.kind == "profile"]
    assert {one.end - one.start for one in profiled} == {100.0}
    # Two on the profiler's own node, four on the three others.
    assert [one.start for one in profiled] == [0.0] * 6


def test_a_burst_halves_the_limit_on_gpus_too() -> None:
    # Profiled only while there is no burst: the job of two GPUs is above half of N_prof.
    rows = [(0.0, 1000.0, 1) for _ in range(4)] + [(0.0, 1000.0, 2)]
    kinds = {one.job: one.kind for one in simulate(rows, "profile_gpus=2:burst=3").segments[::-1]}
    assert kinds == {0: "profile", 1: "profile", 2: "profile", 3: "profile", 4: "run"}
    for setting in ("profile_gpus=2:burst=4", "profile_gpus=2:burst=3:time_aware=false"):
        outcome = simulate(rows, setting)
        assert {one.job for one in outcome.segments if one.kind == "profile"} == {0, 1, 2, 3, 4}


def test_what_waits_for_the_end_of_a_burst_is_profiled_after_it() -> None:
    # All GPUs are held by small profiles of the burst, so the large one is still there after it.
    rows = [(0.0, 300.0, 1) for _ in range(8)] + [(0.0, 1000.0, 2)]
    segments = simulate(rows, "profile_gpus=2:burst=3").segments
    assert next((one.start, one.kind) for one in segments if one.job == 8) == (100.0, "profile")


@pytest.mark.parametrize(
    ("first", "second", "packed"),
    [
        (TINY, TINY, True),
        (MEDIUM, MEDIUM, True),
        (TINY, JUMBO, True),
        (MEDIUM, JUMBO, False),
        (JUMBO, JUMBO, False),
        (LARGE, MEDIUM, False),
    ],
)
def test_packs_by_scores_and_memory(first: Profile, second: Profile, packed: bool) -> None:
    rows = [(0.0, 5000.0, 2), (1.0, 4000.0, 2)]
    outcome = simulate(rows, "", "4x2", [first, second])
    assert ("Pack" in outcome.decisions) == packed


def test_packs_only_equal_demands_on_one_node_and_never_a_third() -> None:
    rows = [(0.0, 5000.0, 2), (1.0, 4000.0, 1)]
    outcome = simulate(rows, "", "4x2", [TINY] * 2)
    assert "Pack" not in outcome.decisions
    rows = [(0.0, 5000.0, 4), (1.0, 4000.0, 4)]
    assert "Pack" not in simulate(rows, "", "3x2", [TINY] * 2).decisions
    rows = [(float(n), 4000.0, 2) for n in range(3)]
    outcome = simulate(rows, "", "4x2", [TINY] * 3)
    assert outcome.decisions["Pack"] == 1


def test_does_not_pack_a_long_job_with_one_of_little_work() -> None:
    rows = [(0.0, 1000.0, 2), (1.0, 9000.0, 2)]
    profiles: list[Profile | None] = [TINY, TINY]
    assert "Pack" not in simulate(rows, "", "4x2", profiles).decisions
    assert "Pack" in simulate(rows, "patience=100", "4x2", profiles).decisions


def test_patience_is_by_what_remains() -> None:
    # Of the first 500 s are left when the second comes, which takes 4000 s.
    rows = [(0.0, 5000.0, 2), (4500.0, 4000.0, 2)]
    profiles: list[Profile | None] = [TINY, TINY]
    for setting, packs in (("", False), ("remaining=false", True)):
        outcome = simulate(rows, setting, "4x2", profiles, PUBLISHED)
        assert ("Pack" in outcome.decisions) is packs


def test_a_job_that_starts_takes_one_along_that_waits() -> None:
    # On one node, held by the first until 100 s. Of the three that then wait and use much, little
    # and little, the first two by rank go together, and the third waits for a partner that is free.
    rows = [(0.0, 100.0, 2), (1.0, 1000.0, 2), (2.0, 1500.0, 2), (3.0, 1600.0, 2)]
    profiles: list[Profile | None] = [JUMBO, MEDIUM, JUMBO, MEDIUM]
    settings = "capacity=2"
    parameters = PUBLISHED
    outcome = simulate(rows, settings, "1x2", profiles, parameters)
    assert outcome.first_start[1] == outcome.first_start[3] == 100.0
    assert outcome.decisions["Pack"] == 1
    alone = simulate(rows, f"{settings}:pair_waiting=false", "1x2", profiles, parameters)
    assert alone.first_start[1] == 100.0
    assert alone.first_start[3] > 100.0


def test_a_job_is_taken_along_only_by_one_that_runs_long_enough() -> None:
    rows = [(0.0, 100.0, 2), (1.0, 1000.0, 2), (2.0, 2500.0, 2)]
    profiles: list[Profile | None] = [JUMBO, TINY, TINY]
    parameters = PUBLISHED
    outcome = simulate(rows, "", "1x2", profiles, parameters)
    assert outcome.first_start == [0.0, 100.0, 1100.0]
    outcome = simulate(rows, "patience=2.5", "1x2", profiles, parameters)
    assert outcome.first_start == [0.0, 100.0, 100.0]


def burst_in_two_vcs(settings: str, other: int = 0) -> list[float]:
    """When six jobs of one virtual cluster first run, with long ones of three GPUs in the other.

    Of eight nodes each has four; two of the first one's are the profiler's.
    """
    rows = [(0.0, 90_000.0, 3)] * other + [(1.0, 5000.0, 1)] * 6
    workload = Workload.of(rows, profiles=[None] * len(rows))
    workload.vcs = ["other"] * other + ["one"] * 6
    simulation = Simulation(
        workload,
        make(f"lucid:lookahead_s=0:burst=2:profile_gpus=2:{settings}"),
        Cluster.parse("4x1@one,4x1@other"),
        estimator=Table(workload.duration_s),
    )
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    return outcome.first_start[other:]


def test_a_burst_borrows_from_the_other_virtual_cluster() -> None:
    # Two on the profiler's nodes, two on those of their own virtual cluster, two on the other's.
    assert burst_in_two_vcs("loans=true") == [1.0] * 6
    assert burst_in_two_vcs("loans=false") == [1.0] * 4 + [101.0] * 2


def test_nodes_are_lent_only_where_nobody_waits() -> None:
    # One job of three GPUs leaves a node of the other virtual cluster free; a second waits for it.
    assert burst_in_two_vcs("loans=true", other=1) == [1.0] * 5 + [101.0]
    assert burst_in_two_vcs("loans=true", other=2) == [1.0] * 4 + [101.0] * 2


def test_marked_jobs_are_profiled_for_longer() -> None:
    workload = Workload.of([(0.0, 5000.0, 1), (0.0, 5000.0, 1)], profiles=[None] * 2)
    workload.jobs[0].name, workload.jobs[1].name = "llm [slow start]", "llm"
    policy = make(r"lucid:lookahead_s=0:cold_start=\[slow start\]:cold_start_s=900")
    outcome = Simulation(workload, policy, Cluster.parse("4x2")).run()
    profiled = {one.job: one.end for one in outcome.segments if one.kind == "profile"}
    assert profiled == {0: 900.0, 1: 200.0}
    with pytest.raises(UsageError, match="regular expression"):
        make("lucid:cold_start=[")


def test_sharing_stops_while_gpus_are_idle_and_few_jobs_are_to_come() -> None:
    # The second would leave two GPUs idle. Two jobs in the last hour, and those that run have two
    # GPUs each: a forecast of 2/3 of a GPU in ten minutes.
    rows = [(0.0, 5000.0, 2), (1000.0, 4000.0, 2)]

    def packs(lookahead_s: float, *profiles: Profile) -> bool:
        outcome = simulate(rows, f"lookahead_s={lookahead_s}", "4x2", list(profiles))
        return "Pack" in outcome.decisions

    assert not packs(600, MEDIUM, MEDIUM)
    # Apathetic: a sum of 1 is allowed, one of 2 is not.
    assert not packs(1500, MEDIUM, MEDIUM)
    assert packs(1500, TINY, MEDIUM)
    assert packs(3600, MEDIUM, MEDIUM)


def test_a_full_cluster_is_shared_whatever_is_to_come() -> None:
    rows = [(0.0, 90_000.0, 1), (1000.0, 90_000.0, 1), (2000.0, 5000.0, 1), (50_000.0, 4000.0, 1)]
    profiles: list[Profile | None] = [JUMBO, JUMBO, MEDIUM, MEDIUM]
    assert "Pack" not in simulate(rows, "lookahead_s=600", "4x1", profiles).decisions
    rows[2] = (2000.0, 90_000.0, 1)
    assert "Pack" in simulate(rows, "lookahead_s=600", "4x1", profiles).decisions


def test_a_measured_pair_replaces_the_curve(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(
        "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n"
        "A,d,1,0,0.5,B,d,1,0,1.02\n"
    )
    table = ColocationTable.read(path)
    assert table.speeds(TINY, TINY, ("A/d/1/0", "B/d/1/0")) == (0.5, 1.0)
    assert table.speeds(TINY, TINY, ("B/d/1/0", "A/d/1/0")) == (1.0, 0.5)
    one, _ = table.speeds(TINY, TINY, ("B/d/1/0", "B/d/1/0"))
    assert 0.99 < one < 1.0
    assert ColocationTable.read(path, frozenset({"A"})).speeds(
        TINY, TINY, ("A/d/1/0", "B/d/1/0")
    ) == (1.0, 1.0)


def test_a_tree_learns_scores_from_labelled_jobs(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    rows = [f"{util},10,2000,0,{0 if util < 30 else 1 if util < 70 else 2}" for util in range(100)]
    path.write_text("\n".join(["gpu_util,gmem_util,gmem,amp,label", *rows]) + "\n")
    tree = Tree.read(path)
    assert [tree.score(one) for one in (TINY, MEDIUM, JUMBO)] == [0, 1, 2]
    assert "gpu_util <= 29.5" in str(tree)
    assert "gpu_util <= 31 %: tiny" in str(Thresholds())
    path.write_text("gpu_util\n3\n")
    with pytest.raises(UsageError, match="not a table of labelled jobs"):
        Tree.read(path)


# What makes Lucid's decisions quick changes nothing about them.


USES = [None, None, Profile(10.0, 5.0, 2000.0), Profile(60.0, 20.0, 8000.0)]
ROWS = st.tuples(
    st.integers(0, 60).map(lambda n: n * 40.0),
    st.integers(0, 200).map(lambda n: n * 10.0),
    st.sampled_from([1, 1, 1, 2, 3, 4, 8, 12]),
    st.sampled_from(USES),
)


def run(rows: list[Any], policy: str) -> Outcome:
    workload = Workload.of([row[:3] for row in rows], profiles=[row[3] for row in rows])
    return audited(workload, policy, "6x4", estimator=Table(workload.duration_s))


@settings(max_examples=30)
@given(
    rows=st.lists(ROWS, min_size=1, max_size=40),
    policy=st.sampled_from(["lucid", "lucid:capacity=-1", "lucid:backfill=false", "lucid:burst=2"]),
)
def test_who_is_not_offered_would_not_have_been_accepted(rows: list[Any], policy: str) -> None:
    quick = run(rows, policy)
    walk = Lanes.walk
    with pytest.MonkeyPatch.context() as patched:

        def whole(self: Lanes, accept: Callable[[Job], object], _hopeless: object = None) -> Any:
            return walk(self, accept)

        patched.setattr(Lanes, "walk", whole)
        slow = run(rows, policy)
    assert quick.segments == slow.segments
    assert quick.decisions == slow.decisions


@settings(max_examples=40)
@given(
    taken=st.lists(st.integers(1, 13), max_size=12),
    gpus=st.integers(1, 24),
    share=st.sampled_from([1.0, 1.0, 0.5]),
    cluster=st.sampled_from(["3x8", "2x4,2x8", "2x4:T4,1x8:A100", "1x8@a,2x4@b"]),
)
def test_where_space_is_full_nothing_is_found(
    taken: list[int], gpus: int, share: float, cluster: str
) -> None:
    space = Space(Cluster.parse(cluster))
    for index, size in enumerate(taken):
        space.place(Job(str(index), index, 0.0, size, vc="a" if "@" in cluster else ""))
    job = Job("new", 99, 0.0, gpus if share == 1.0 else 1, share=share)
    space.find(job)  # from here on its pool is known
    if space.full(job):
        assert space.find(job) is None


def counted(times: list[float], asked: list[int], now: float) -> float:
    """The forecast by counting: the last hour, and the same hour of the seven days before."""
    sums = [sum(gpus for at, gpus in zip(times, asked, strict=True) if now - 3600 <= at < now)]
    for day in range(1, 8):
        begin = now - day * 86_400
        if not times or begin < times[0]:
            break
        hour = (begin, begin + 3600)
        sums.append(
            sum(gpus for at, gpus in zip(times, asked, strict=True) if hour[0] <= at < hour[1])
        )
    return max(sums[0], sum(sums) / len(sums)) / 6


@settings(max_examples=30)
@given(
    gaps=st.lists(st.integers(0, 40).map(lambda n: n * 1800.0), min_size=1, max_size=80),
    sizes=st.lists(st.integers(1, 8), min_size=80, max_size=80),
)
def test_the_forecast_counts_the_same_hours(gaps: list[float], sizes: list[int]) -> None:
    load, came, asked = Load(), list[float](), [0]
    for now, gpus in zip(accumulate(gaps), sizes, strict=False):
        came.append(now)
        asked.append(asked[-1] + gpus)
        each = [after - before for before, after in pairwise(asked)]
        for later in (now, now + 0.5):
            assert load.expected(came, later) == pytest.approx(
                counted(came, [1] * len(came), later)
            )
            assert load.expected_gpus(came, asked, later) == pytest.approx(
                counted(came, each, later)
            )
