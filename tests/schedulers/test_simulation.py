"""The simulator's laws, on random traces: conservation, exactness, order, repeatability."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError, UsageError
from schedmate.schedulers import Cluster, Forecast, Job, Pack, Policy, Preempt, Start
from schedmate.schedulers.estimators import Estimator, Table, UserMean, noisy
from schedmate.schedulers.model import Profile
from schedmate.schedulers.policies.horus import Horus
from schedmate.schedulers.policy import Evict, Migrate, Resize
from schedmate.schedulers.registry import BUNDLED, make
from schedmate.schedulers.sim.actions import DecisionError
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import LawBrokenError, audit
from schedmate.schedulers.sim.parameters import HONEST, PUBLISHED
from schedmate.schedulers.sim.record import Outcome, Segment
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import simulate

Rows = list[tuple[float, float, int]]

rows = st.lists(
    st.tuples(
        st.integers(0, 50).map(float), st.integers(0, 30).map(float), st.sampled_from([1, 2, 3, 8])
    ),
    min_size=1,
    max_size=25,
)


def oracle(workload: Workload) -> Table:
    return Table(workload.duration_s, workload.profiles, oracle=True)


@pytest.mark.parametrize("policy", sorted(BUNDLED))
@pytest.mark.parametrize("parameters", [HONEST, PUBLISHED], ids=lambda one: one.name)
@settings(max_examples=30)
@given(rows=rows, seed=st.integers(0, 3))
def test_every_policy_obeys_the_laws_and_repeats_itself(
    policy: str, parameters: object, rows: Rows, seed: int
) -> None:
    profiles = [Profile(20.0 * (n % 6), 10.0, 4000.0 * (n % 5)) for n in range(len(rows))]
    workload = Workload.of(rows, profiles=profiles)
    runs = [
        simulate(
            workload,
            policy,
            "4x8",
            estimator=Table(noisy(workload.duration_s, 1.0, seed), workload.profiles),
            parameters=parameters,
        )
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def reference(rows: Rows, gpus: int, shortest: bool) -> list[float]:
    """Start of each job, second by second: a queue with head-of-line blocking on one node."""
    starts = [-1.0] * len(rows)
    ends: dict[int, float] = {}
    free = gpus
    for now in itertools.count():
        for index in [index for index, end in ends.items() if end <= now]:
            free += rows[index][2]
            del ends[index]
        waiting = [i for i, row in enumerate(rows) if row[0] <= now and starts[i] < 0]
        waiting.sort(key=lambda i: (rows[i][1] if shortest else rows[i][0], i))
        for index in waiting:
            if rows[index][2] > free:
                break
            starts[index] = float(now)
            ends[index] = now + rows[index][1]
            free -= rows[index][2]
        if not ends and all(start >= 0 for start in starts):
            return starts
    raise AssertionError


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 40).map(float), st.integers(1, 20).map(float), st.integers(1, 4)),
        min_size=1,
        max_size=15,
    ),
    shortest=st.booleans(),
)
def test_equals_a_second_by_second_reference(rows: Rows, shortest: bool) -> None:
    rows.sort(key=lambda row: row[0])
    workload = Workload.of(rows)
    outcome = simulate(workload, "sjf" if shortest else "fifo", "1x4", estimator=oracle(workload))
    assert outcome.first_start == reference(rows, 4, shortest)


@given(rows=rows)
def test_one_server_never_idles_while_a_job_waits(rows: Rows) -> None:
    single = [(submit, duration, 1) for submit, duration, _ in rows]
    workload = Workload.of(single)
    for policy in ("fifo", "sjf", "qssf", "sjf-ageing"):
        outcome = simulate(workload, policy, "1x1", estimator=oracle(workload))
        busy_until = 0.0
        for submit, duration, _ in sorted(single):
            busy_until = max(busy_until, submit) + duration
        assert max(outcome.end) == busy_until


def test_tiresias_demotes_at_the_threshold_and_charges_the_restart() -> None:
    workload = Workload.of([(0.0, 1000.0, 1), (10.0, 50.0, 1)])
    outcome = simulate(workload, "tiresias:threshold_gpu_s=100", "1x1")
    # The first runs to 100 s of service, makes room for 50 s, and pays 62 s to go on.
    assert outcome.first_start == [0.0, 100.0]
    assert outcome.end == [100.0 + 50.0 + 62.0 + 900.0, 150.0]
    assert outcome.decisions == {"Start": 3, "Preempt": 1}


def test_tiresias_can_decide_in_rounds() -> None:
    workload = Workload.of([(10.0, 50.0, 1)])
    outcome = simulate(workload, "tiresias:interval_s=60", "1x1")
    assert outcome.first_start == [60.0]


def test_srtf_preempts_only_for_less_remaining_time() -> None:
    workload = Workload.of([(0.0, 100.0, 1), (10.0, 20.0, 1), (60.0, 90.0, 1)])
    outcome = simulate(workload, "srtf", "1x1", estimator=oracle(workload))
    assert outcome.end == [30.0 + 62.0 + 90.0, 30.0, 182.0 + 90.0]


def test_preemption_disturbs_only_the_nodes_that_the_job_gets() -> None:
    workload = Workload.of([(0.0, 100.0, 2), (0.0, 500.0, 2), (0.0, 400.0, 2), (1.0, 10.0, 2)])
    outcome = simulate(workload, "srtf", "3x2", estimator=oracle(workload))
    assert outcome.decisions["Preempt"] == 1
    assert outcome.end[0] == 100.0
    assert outcome.end[2] == 400.0


def test_ageing_lets_a_long_job_start_before_later_short_ones() -> None:
    rows = [(0.0, 10.0, 1), (1.0, 100.0, 1), *((float(n), 10.0, 1) for n in range(2, 60, 5))]
    workload = Workload.of(rows)
    plain = simulate(workload, "sjf", "1x1", estimator=oracle(workload))
    aged = simulate(workload, "sjf-ageing:weight=5", "1x1", estimator=oracle(workload))
    assert plain.first_start[1] == max(plain.first_start)
    assert aged.first_start[1] < max(aged.first_start)


def test_backfill_passes_a_job_that_does_not_fit() -> None:
    workload = Workload.of([(0.0, 100.0, 3), (1.0, 10.0, 4), (2.0, 10.0, 1)])
    assert simulate(workload, "fifo", "1x4").first_start == [0.0, 100.0, 110.0]
    assert simulate(workload, "fifo:backfill=true", "1x4").first_start == [0.0, 100.0, 2.0]


def test_horus_packs_where_utilisation_allows_and_interference_slows_both() -> None:
    light, heavy = Profile(50.0, 10.0, 1000.0), Profile(90.0, 10.0, 1000.0)
    workload = Workload.of(
        [(0.0, 102.0, 1), (10.0, 92.0, 1), (20.0, 10.0, 1)], profiles=[light, light, heavy]
    )
    outcome = simulate(workload, "horus", "1x1", estimator=oracle(workload))
    assert outcome.decisions["Pack"] == 1
    # Alone for 10 s; then both have 92 s of work left, at 0.92 of their speed.
    assert outcome.end[0] == outcome.end[1] == pytest.approx(110.0)
    assert outcome.first_start[2] == outcome.end[0]


def _uses(*utils: float) -> list[Profile]:
    return [Profile(util, 10.0, 1000.0) for util in utils]


def test_horus_serves_the_least_demanding_first_and_looks_past_the_head() -> None:
    # One GPU is taken by a job that leaves room for nobody's memory, then four wait.
    full = Profile(50.0, 10.0, 24_000.0)
    rows = [(0.0, 100.0, 1), *((1.0, 10.0, 1) for _ in range(3))]
    workload = Workload.of(rows, profiles=[full, *_uses(90.0, 30.0, 60.0)])
    alone = simulate(workload, "horus:max_util=50", "1x1", estimator=oracle(workload))
    assert alone.first_start == [0.0, 120.0, 100.0, 110.0]
    in_turn = "horus:max_util=50:order=submission"
    assert simulate(workload, in_turn, "1x1", estimator=oracle(workload)).first_start == [
        *(0.0, 100.0, 110.0, 120.0)
    ]
    # Two that ask for four GPUs are at the head; whether the third is tried is the look-ahead.
    rows = [(0.0, 100.0, 1), (1.0, 10.0, 4), (1.0, 10.0, 4), (2.0, 10.0, 1)]
    workload = Workload.of(rows, profiles=_uses(90.0, 10.0, 10.0, 80.0))
    for lookahead, start in ((2, 120.0), (3, 2.0)):
        policy = f"horus:lookahead={lookahead}"
        outcome = simulate(workload, policy, "1x4", estimator=oracle(workload))
        assert outcome.first_start[3] == start
    waits = simulate(workload, "horus:lookahead=2:backfill=true", "1x4", estimator=oracle(workload))
    assert waits.first_start[3] == 2.0


def test_horus_joins_the_partner_of_least_cost() -> None:
    # Beside 40 %, 58 % leave 2 % idle; 95 % are 35 % too much; 20 % leave 40 % idle.
    rows = [*((0.0, 1000.0, 1) for _ in range(3)), (1.0, 10.0, 1)]
    workload = Workload.of(rows, profiles=_uses(95.0, 58.0, 20.0, 40.0))
    outcome = simulate(workload, "horus", "3x1", estimator=oracle(workload))
    shared = next(one.allocation for one in outcome.segments if one.job == 3)
    assert shared == next(one.allocation for one in outcome.segments if one.job == 1)
    # The memory of a partner costs, too, and what does not fit is no partner.
    busy = Profile(58.0, 10.0, 23_500.0)
    workload.profiles[1] = busy
    outcome = simulate(workload, "horus", "3x1", estimator=oracle(workload))
    shared = next(one.allocation for one in outcome.segments if one.job == 3)
    assert shared == next(one.allocation for one in outcome.segments if one.job == 2)
    assert Horus().cost(110.0, 0.0) > Horus().cost(90.0, 0.0)
    # Where nobody knows what jobs use, each runs alone.
    outcome = simulate(workload, "horus", "3x1")
    assert "Pack" not in outcome.decisions


@pytest.mark.parametrize("setting", ["order=size", "lookahead=0"])
def test_horus_refuses_settings_that_mean_nothing(setting: str) -> None:
    with pytest.raises(UsageError, match=setting.partition("=")[0]):
        make(f"horus:{setting}")


def test_virtual_clusters_do_not_hold_each_other_up() -> None:
    workload = Workload.of([(0.0, 100.0, 1), (1.0, 100.0, 1), (2.0, 100.0, 1)])
    workload.vcs = ["a", "a", "b"]
    assert simulate(workload, "fifo", "1x1@a,1x1@b").first_start == [0.0, 100.0, 2.0]
    # A cluster without any runs the jobs of all.
    assert simulate(workload, "fifo", "1x2").first_start == [0.0, 1.0, 100.0]


def test_an_estimator_learns_only_from_the_past() -> None:
    seen: list[tuple[str, float | None]] = []

    class Spy(UserMean):
        def estimate(self, job: Job) -> Forecast | None:
            forecast = super().estimate(job)
            seen.append((job.id, None if forecast is None else forecast.duration_s))
            return forecast

    simulate(
        Workload.of([(0.0, 30.0, 1), (10.0, 5.0, 1), (40.0, 5.0, 1)]), "sjf", "2x4", estimator=Spy()
    )
    assert seen == [("0", None), ("1", None), ("2", 17.5)]


@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf")])
def test_an_absurd_estimate_counts_as_none(value: float) -> None:
    class Absurd(Estimator):
        def estimate(self, job: Job) -> Forecast | None:
            return Forecast(value)

    outcome = simulate(
        Workload.of([(0.0, 5.0, 1), (1.0, 5.0, 1)]), "sjf", "2x4", estimator=Absurd()
    )
    assert outcome.bad_estimates == 2


class Scripted(Policy):
    """Starts everything, then does once what the test wants."""

    name = "scripted"

    def __init__(self, then: object) -> None:
        self.then = then

    def decide(self, view):  # type: ignore[no-untyped-def]
        if not view.pending.first():
            return []
        decisions = []
        for job in view.pending:
            if allocation := view.space.find(job):
                view.space.take(job, allocation)
                decisions.append(Start(job, allocation))
        if not decisions and len(view.running) == 1:
            return self.then(next(iter(view.running)), view.pending.first())
        return decisions


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (lambda running, waiting: [Preempt(waiting)], "the job is not running"),
        (lambda running, waiting: [Start(running, running.allocation)], "the job is not waiting"),
        (lambda running, waiting: [Start(waiting, ((0, 1),))], "it would get 1 GPU and asks for 2"),
        (lambda running, waiting: [Start(waiting, ((0, 3),))], "not all of these GPUs are free"),
        (lambda running, waiting: [Evict(waiting)], "the job is not running"),
        (lambda running, waiting: [Pack(waiting, waiting)], "the partner does not run alone"),
        (lambda running, waiting: [Resize(running, ((0, 1),))], "cannot run on that many GPUs"),
        (lambda running, waiting: [Migrate(running, ((0, 1),))], "move to the same number of GPUs"),
        (lambda running, waiting: [], "left 1 job waiting forever"),
    ],
)
def test_an_impossible_decision_is_refused_by_name(then: object, reason: str) -> None:
    workload = Workload.of([(0.0, 10.0, 2), (1.0, 10.0, 2)])

    class Never(Scripted):
        def decide(self, view):  # type: ignore[no-untyped-def]
            if view.now >= 10.0:
                return []
            return super().decide(view)

    with pytest.raises(DecisionError, match=reason):
        simulate(workload, Never(then), "1x2")


def test_a_job_moves_grows_and_pays_for_both() -> None:
    class Grow(Policy):
        name = "grow"

        def decide(self, view):  # type: ignore[no-untyped-def]
            if job := view.pending.first():
                if job.gpus == 2:
                    return [Start(job, ((0, 0b11),))]
                return [Start(job, ((1, 0b11),))]
            for job in view.running:
                if view.now == 10.0 and job.min_gpus:
                    return [Resize(job, ((0, 0b1111),))]
            return []

        def rank_until(self, job, now):  # type: ignore[no-untyped-def]
            return 10.0 if now < 10.0 else float("inf")

    workload = Workload.of([(0.0, 100.0, 2)])
    job = workload.jobs[0]
    job.min_gpus, job.max_gpus = 1, 4
    outcome = simulate(workload, Grow(), "1x4")
    assert outcome.end == [10.0 + 62.0 + 90.0 / 2]
    half = replace(HONEST, scaling=0.0, restart_s=0.0)
    assert simulate(workload, Grow(), "1x4", parameters=half).end == [100.0]


def test_a_failed_node_costs_the_work_since_the_last_checkpoint_and_the_restart() -> None:
    workload = Workload.of([(0.0, 100.0, 2)])
    parameters = replace(HONEST, node_mtbf_s=80.0, repair_s=30.0, checkpoint_s=20.0, restart_s=5.0)
    outcome = simulate(workload, "fifo", "1x2", parameters=parameters, seed=1)
    assert len(outcome.failures) == len(outcome.segments) - 1 > 0
    done = 0.0
    for (failure, again), (one, after) in zip(
        outcome.failures.values(), itertools.pairwise(outcome.segments), strict=True
    ):
        # What is kept ends at a checkpoint, and the node is back half a minute later.
        assert failure.done == pytest.approx(done + one.work)
        assert again is not None
        done = again.work
        assert done % 20.0 == pytest.approx(0.0, abs=1e-6)
        assert done <= failure.done
        assert after.start == one.end + 30.0
    last = outcome.segments[-1]
    assert last.end - last.start == pytest.approx(last.work + 5.0)
    assert outcome == simulate(workload, "fifo", "1x2", parameters=parameters, seed=1)
    assert outcome != simulate(workload, "fifo", "1x2", parameters=parameters, seed=2)


def test_a_job_larger_than_its_cluster_is_named() -> None:
    with pytest.raises(InputError, match="job 1 asks for 9 GPUs"):
        simulate(Workload.of([(0.0, 1.0, 1), (0.0, 1.0, 9)]), "fifo", "1x8")


def _broken(**change: object) -> tuple[Workload, Cluster, Outcome]:
    workload = Workload.of([(5.0, 10.0, 1), (5.0, 10.0, 1)])
    cluster = Cluster.parse("1x2")
    outcome = Simulation(workload, make("fifo"), cluster).run()
    segments = list(outcome.segments)
    segments[0] = segments[0]._replace(**change)
    return workload, cluster, outcome._replace(segments=segments)


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"start": 0.0}, "before its submission"),
        ({"work": 9.0}, "needs 10.0 of work and got 9.0"),
        ({"allocation": ((0, 0b10),)}, "used by two jobs"),
        ({"allocation": ((0, 0b100),)}, "has no GPU"),
        ({"end": 16.0}, "do not agree"),
    ],
)
def test_the_audit_finds_what_is_wrong(change: dict[str, object], law: str) -> None:
    with pytest.raises(LawBrokenError, match=law):
        audit(*_broken(**change))


def test_the_audit_finds_a_job_in_two_places() -> None:
    workload, cluster, outcome = _broken()
    twice = [*outcome.segments, Segment(0, 12.0, 15.0, ((0, 0b10),), 0.0, "run")]
    with pytest.raises(LawBrokenError, match="two places"):
        audit(workload, cluster, outcome._replace(segments=twice))


def test_progress_is_told_often_where_jobs_are_few() -> None:
    workload = Workload.of([(60.0 * n, 30.0, 1) for n in range(100)])
    seen: list[int] = []
    Simulation(workload, make("sjf"), Cluster.parse("1x8")).run(seen.append)
    assert seen == sorted(set(seen))
    assert len(seen) == 100
