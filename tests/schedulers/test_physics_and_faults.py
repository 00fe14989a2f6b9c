"""What can be put in the simulator's place of: progress, failures, rounds, observers, latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers import Allocation, Cluster, Job, Policy, Resize, Start
from schedmate.schedulers.estimators import Estimator, Table
from schedmate.schedulers.model import Forecast, Profile
from schedmate.schedulers.policies.horus import Horus
from schedmate.schedulers.policy import Evict, View
from schedmate.schedulers.registry import BUNDLED, make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.execution import PhysicsError
from schedmate.schedulers.sim.outcome.audit import LawBrokenError, audit
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import Again, Failure, Faults, SimulationObserver, TracePhysics
from tests.schedulers.worlds import simulate

Rows = list[tuple[float, float, int]]


class Steps:
    """A job does `steps[k][0]` of work a second until `steps[k][1]` is done; slower when shared."""

    def __init__(
        self, work: Sequence[float], steps: Sequence[tuple[float, float]], restart_s: float = 0.0
    ) -> None:
        self.work = work
        self.steps = steps
        self.restart = restart_s

    def pace(
        self, job: int, done: float, allocation: Allocation, partner: int | None
    ) -> tuple[float, float]:
        gpus = sum(mask.bit_count() for _, mask in allocation) * (1.0 if partner is None else 0.5)
        for speed, until in self.steps:
            if done < until:
                return speed * gpus, until
        return gpus, float("inf")

    def restart_s(self, job: int, allocation: Allocation, previous: Allocation) -> float:
        return self.restart

    def saved(self, job: int, done: float, since: float) -> float:
        return done // 10 * 10


def test_speed_changes_with_progress_exactly_and_the_first_start_can_cost() -> None:
    workload = Workload.of([(0.0, 1.0, 1)])
    outcome = simulate(workload, physics=Steps([50.0], [(1.0, 10.0), (2.0, 30.0)], restart_s=5.0))
    # 5 s to start, 10 s at 1, 10 s at 2, 20 s at 1.
    assert outcome.end == [45.0]
    assert outcome.segments[0].work == 50.0


def test_the_rest_of_the_work_is_done_at_the_speeds_of_what_was_not_done_yet() -> None:
    workload = Workload.of([(0.0, 60.0, 1), (15.0, 5.0, 1)])
    physics = Steps([60.0, 5.0], [(1.0, 10.0), (4.0, 50.0)], restart_s=2.0)
    durations = Table([60.0, 5.0])
    outcome = simulate(workload, "srtf", physics=physics, estimator=durations)
    # By 15 s, 2 are restart, 10 at 1, 3 at 4: 22 done. The other takes 2 + 5 s. Then 2 + 28/4 + 10.
    assert outcome.end == [22.0 + 2.0 + 7.0 + 10.0, 22.0]


def test_a_physics_that_makes_no_sense_is_refused() -> None:
    for steps, reason in (
        ([(-1.0, 5.0)], "speed -1.0"),
        ([(float("nan"), 5.0)], "speed nan"),
    ):
        with pytest.raises(PhysicsError, match=reason):
            simulate(Workload.of([(0.0, 1.0, 1)]), physics=Steps([1.0], steps))
    with pytest.raises(Exception, match="job 0 runs at speed 0 forever"):
        simulate(Workload.of([(0.0, 1.0, 1)]), physics=Steps([1.0], [(0.0, 5.0)]))


class Elastic(Policy):
    """Starts on one GPU of the slow type, in rounds; from 60 s on uses two fast ones."""

    name = "elastic"
    rounds = True
    interval_s = 20.0

    def __init__(self) -> None:
        self.asked: list[float] = []

    def decide(self, view: View) -> list[Start | Resize]:
        self.asked.append(view.now)
        if job := view.pending.first():
            allocation = view.space.find(job, gpus=1, gpu_type="slow")
            assert allocation is not None
            return [Start(job, allocation)]
        for job in view.running:
            if view.now == 60.0:
                allocation = view.space.find(job, gpus=2, gpu_type="fast")
                assert allocation is not None
                return [Resize(job, allocation)]
        return []


def test_an_elastic_job_changes_size_and_type_in_rounds() -> None:
    class Types(TracePhysics):
        def pace(
            self, job: int, done: float, allocation: Allocation, partner: int | None
        ) -> tuple[float, float]:
            ((node, mask),) = allocation
            return (1.0, 5.0)[node] * mask.bit_count(), float("inf")

    workload = Workload.of([(10.0, 500.0, 4)])
    workload.jobs[0].min_gpus, workload.jobs[0].max_gpus = 1, 8
    policy = Elastic()
    outcome = simulate(workload, policy, "1x1:slow,1x8:fast", physics=Types(workload, HONEST))
    # Started at 20 s; 40 done by 60 s; 62 s of restart; 460 at ten a second.
    assert outcome.first_start == [20.0]
    assert outcome.end == [60.0 + 62.0 + 46.0]
    assert policy.asked == [20.0 * n for n in range(1, 9)]
    assert workload.jobs[0].moves == 1


def test_a_policy_that_never_starts_a_job_is_given_up_in_rounds_too() -> None:
    class Idle(Policy):
        name = "idle"
        rounds = True
        interval_s = 60.0

        def decide(self, view: View) -> list[Start]:
            return []

    with pytest.raises(Exception, match="policy idle left 1 job waiting"):
        simulate(Workload.of([(0.0, 1.0, 1)]), Idle())


class Buggy(Faults):
    """Job 0 fails with 25 done, twice; then it takes an hour to mend it. Job 1 is given up."""

    def __init__(self) -> None:
        self.told: list[Failure] = []

    def fails_at(self, job: int, attempt: int) -> float:
        return 25.0 if attempt < 2 and job < 2 else float("inf")

    def after(self, failure: Failure) -> Again | None:
        self.told.append(failure)
        if failure.job == 1:
            return None
        return Again(0.0 if failure.attempt == 0 else 3600.0, failure.saved)


def test_a_job_fails_by_itself_is_restarted_mended_or_given_up() -> None:
    workload = Workload.of([(0.0, 40.0, 1), (0.0, 30.0, 1), (0.0, 30.0, 1)])
    parameters = replace(HONEST, checkpoint_s=10.0, restart_s=2.0)
    faults, seen = Buggy(), Recorder()
    outcome = simulate(
        workload, cluster="3x1", parameters=parameters, faults=faults, observers=[seen]
    )
    # 25 s; again from 20 with 2 s of restart: 7 s; after the hour 2 s and the last 20.
    assert outcome.end == [25.0 + 7.0 + 3600.0 + 2.0 + 20.0, 25.0, 30.0]
    assert [(one.job, one.attempt, one.done, one.saved) for one in faults.told] == [
        (0, 0, 25.0, 20.0),
        (1, 0, 25.0, 20.0),
        (0, 1, 25.0, 20.0),
    ]
    assert [again for _, again in outcome.failures.values()] == [
        Again(0.0, 20.0),
        None,
        Again(3600.0, 20.0),
    ]
    assert seen.of("1") == [(0.0, "submitted"), (0.0, "started"), (25.0, "failed for good")]
    assert seen.of("0")[-3:] == [(3632.0, "submitted"), (3632.0, "started"), (3654.0, "ended")]


def test_a_job_that_is_restarted_in_vain_without_end_is_a_broken_world() -> None:
    class Vain(Faults):
        def fails_at(self, job: int, attempt: int) -> float:
            return 0.0

    with pytest.raises(PhysicsError, match="job 0 failed 10000 times"):
        simulate(Workload.of([(0.0, 1.0, 1)]), faults=Vain())


def test_work_cannot_be_gained_by_a_failure() -> None:
    class Gift(Buggy):
        def after(self, failure: Failure) -> Again | None:
            return Again(0.0, failure.done + 1.0)

    with pytest.raises(PhysicsError, match=r"cannot resume from 26\.0"):
        simulate(Workload.of([(0.0, 40.0, 1)]), faults=Gift())


class Recorder(SimulationObserver):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[float, str, str]] = []

    def of(self, job: str) -> list[tuple[float, str]]:
        return [(at, what) for at, one, what in self.told if one == job]

    def _note(self, job: Job, what: str) -> None:
        self.told.append((self.watch.now, job.id, what))

    def submitted(self, job: Job) -> None:
        self._note(job, "submitted")

    def started(self, job: Job) -> None:
        self._note(job, "started" if job.partner is None else "joined")

    def packed(self, job: Job) -> None:
        self._note(job, "packed")

    def unpacked(self, job: Job) -> None:
        self._note(job, "unpacked")

    def stopped(self, job: Job) -> None:
        self._note(job, "stopped")

    def failed(self, job: Job, *, again: bool) -> None:
        self._note(job, "failed" if again else "failed for good")

    def ended(self, job: Job) -> None:
        self._note(job, "ended")


class Tracker(Recorder):
    """Measures a packed job after ten seconds, and tells the policy through `slowdown`."""

    def packed(self, job: Job) -> None:
        super().packed(job)
        self.before = self.watch.work_done(job)
        self.watch.wake(self, job, self.watch.now + 10.0)

    def woken(self, job: Job) -> None:
        done = self.watch.work_done(job) - self.before
        assert done / 10.0 == pytest.approx(self.watch.speed(job))
        job.slowdown = done / 10.0
        self.watch.changed()


class Undoing(Horus):
    """Parts a pair that runs at less than 0.95 of its speed, and never shares with it again."""

    name = "undoing"

    def decide(self, view):  # type: ignore[no-untyped-def]
        for job in view.running:
            if job.slowdown is not None and job.slowdown < 0.95 and job.partner is not None:
                return [Evict(job.partner)]
        first = view.pending.first()
        if first is None or (first.evictions and len(view.running)):
            return []
        return super().decide(view)


def test_an_observer_measures_a_pair_and_the_policy_parts_it() -> None:
    use = Profile(50.0, 10.0, 1000.0)
    workload = Workload.of([(0.0, 92.0, 1), (1.0, 92.0, 1)], profiles=[use, use])
    tracker = Tracker()
    estimator = Table(workload.duration_s, workload.profiles)
    outcome = simulate(workload, Undoing(), estimator=estimator, observers=[tracker])
    # Ten seconds at 0.92 each, then one alone, then the other with its restart, and all over again.
    alone = 11.0 + (92.0 - 1.0 - 9.2)
    assert outcome.end == pytest.approx([alone, alone + 62.0 + 92.0])
    assert [what for _, what in tracker.of("1")] == [
        *("submitted", "joined", "stopped", "started", "ended")
    ]
    assert [what for _, what in tracker.of("0")] == [
        *("submitted", "started", "packed", "unpacked", "ended")
    ]


def test_a_changed_forecast_changes_the_order_of_the_queue() -> None:
    class Reviser(SimulationObserver):
        def submitted(self, job: Job) -> None:
            if job.id == "2":
                self.watch.wake(self, job, 5.0)

        def woken(self, job: Job) -> None:
            job.forecast = Forecast(1.0)
            self.watch.changed(job)

    workload = Workload.of([(0.0, 10.0, 1), (0.0, 20.0, 1), (0.0, 30.0, 1)])
    outcome = simulate(workload, "sjf", estimator=Table(workload.duration_s), observers=[Reviser()])
    assert outcome.first_start == [0.0, 40.0, 10.0]


def test_no_policy_sees_a_job_before_the_advisor_has_answered() -> None:
    class Slow(Estimator):
        def estimate(self, job: Job) -> Forecast | None:
            return Forecast(1.0)

        def latency_s(self, job: Job) -> float:
            return 7.0 if job.id == "0" else 0.0

    outcome = simulate(Workload.of([(0.0, 10.0, 1), (1.0, 2.0, 1)]), estimator=Slow())
    assert outcome.first_start == [7.0, 1.0]


class Dice(Faults):
    """Fails jobs by their number, and takes a different way on each time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fails_at(self, job: int, attempt: int) -> float:
        draw = (job * 7 + attempt * 3 + self.seed) % 5
        return float(draw * 4) if draw < 3 and attempt < 4 else float("inf")

    def after(self, failure: Failure) -> Again | None:
        draw = (failure.job + failure.attempt + self.seed) % 4
        return None if draw == 3 else Again(draw * 5.0, failure.saved if draw else 0.0)


@pytest.mark.parametrize("policy", sorted(BUNDLED))
@settings(max_examples=20)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 50).map(float),
            st.integers(0, 30).map(float),
            st.sampled_from([1, 2, 3, 8]),
        ),
        min_size=1,
        max_size=15,
    ),
    steps=st.lists(st.tuples(st.sampled_from([0.5, 1.0, 3.0]), st.integers(1, 15)), max_size=4),
    seed=st.integers(0, 4),
    nodes_fail=st.booleans(),
)
def test_the_laws_hold_whatever_the_physics_and_the_faults(
    policy: str, rows: Rows, steps: list[tuple[float, int]], seed: int, nodes_fail: bool
) -> None:
    until, told = 0.0, []
    for speed, length in steps:
        until += length
        told.append((speed, until))
    profiles = [Profile(20.0 * (n % 6), 10.0, 4000.0 * (n % 5)) for n in range(len(rows))]
    workload = Workload.of(rows, profiles=profiles)
    parameters = replace(HONEST, node_mtbf_s=200.0 if nodes_fail else None, repair_s=20.0)
    runs = [
        simulate(
            workload,
            policy,
            "4x8",
            estimator=Table(workload.duration_s, workload.profiles),
            parameters=parameters,
            physics=Steps(workload.duration_s, told, restart_s=float(seed)),
            faults=Dice(seed),
            observers=[Recorder()],
        )
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"done": 24.0}, "did 25.0, not 24.0"),
        ({"time": 24.0}, "while it did not run"),
        ({"job": 1}, "while it did not run"),
    ],
)
def test_the_audit_finds_a_failure_that_cannot_be(change: dict[str, float], law: str) -> None:
    workload = Workload.of([(0.0, 40.0, 1)])
    cluster = Cluster.parse("1x1")
    outcome = Simulation(workload, make("fifo"), cluster, faults=Buggy()).run()
    audit(workload, cluster, outcome)
    failure, again = outcome.failures[0]
    broken = {**outcome.failures, 0: (failure._replace(**change), again)}  # type: ignore[arg-type]
    with pytest.raises(LawBrokenError, match=law):
        audit(workload, cluster, outcome._replace(failures=broken))
    with pytest.raises(LawBrokenError, match="before its submission"):
        audit(workload, cluster, outcome._replace(failures={0: (failure, None)}))
    gained = {0: (failure, Again(0.0, 30.0))}
    with pytest.raises(LawBrokenError, match="gained work"):
        audit(workload, cluster, outcome._replace(failures=gained))
