"""A live executor and the simulator run the same policy: the same starts where nothing goes wrong,
and GPUs that are never booked twice whatever is refused, late, lost or given elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers import (
    Borrow,
    Capabilities,
    Cluster,
    Decision,
    Drop,
    Evict,
    Forecast,
    Job,
    Migrate,
    Node,
    Pack,
    Policy,
    Preempt,
    Profile,
    Resize,
    Start,
)
from schedmate.schedulers.board import Board
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import NEVER, Allocation, Terms
from schedmate.schedulers.policies.queues import Fifo
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.actions import DecisionError
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import Maintenance
from tests.schedulers.worlds import OUTAGES, POLICIES, Outages, Scripted, apart, job

Rows = list[tuple[float, float, int]]

FREE = replace(HONEST, restart_s=0.0, restart_large_s=0.0)


class Machine:
    """An executor of its own: jobs run as long as they need, answers take as long as they take.

    It knows who really holds which GPU, and notices when one is given away twice.
    """

    def __init__(
        self, workload: Workload, policy: Policy, cluster: Cluster, seed: int = 0, chaos: float = 0
    ) -> None:
        self.workload = workload
        self.board = Board(cluster, policy, late_s=5.0)
        self.draw = random.Random(seed)
        self.chaos = chaos
        self.events: list[tuple[float, int, str, object]] = []
        self.count = 0
        self.held: dict[tuple[int, int], list[Job]] = {}
        self.done = [0.0] * len(workload)
        self.since: dict[int, float] = {}
        self.epoch = [0] * len(workload)
        self.asked: set[float] = set()
        self.round = 0.0
        self.start = [NEVER] * len(workload)
        self.end = [NEVER] * len(workload)

    def at(self, when: float, what: str, about: object) -> None:
        self.count += 1
        heappush(self.events, (when, self.count, what, about))

    def run(self) -> None:
        for one in self.workload.jobs:
            one.reset()
            one.forecast = Forecast(self.workload.duration_s[one.index])
            self.at(one.submit_time, "submit", one)
        for _ in range(200_000):
            if not self.events:
                break
            now = self.events[0][0]
            # At one instant, ends come before submissions, as in the simulator.
            batch = []
            while self.events and self.events[0][0] == now:
                batch.append(heappop(self.events))
            order = {"end": 0, "answer": 1, "submit": 2, "ask": 3}
            order |= {"profiled": 0, "drain": 1, "down": 1, "up": 1}
            # Of a job that was stopped before, the end that was foreseen is none.
            batch = [
                one
                for one in batch
                if one[2] not in ("end", "profiled") or one[3][1] == self.epoch[one[3][0].index]  # type: ignore[index]
            ]
            if not batch:
                continue
            for _, _, what, about in sorted(batch, key=lambda one: (order[one[2]], one[1])):
                self.handle(now, what, about)
            every, view = self.board.policy.interval_s, self.board.view
            if every is not None and now < self.round:
                continue
            self.send(now, self.board.decide(now))
            if every is not None:
                self.round = now + every
                if view.pending.any() or view.running.any() or self.events:
                    self.at(self.round, "ask", None)
            change = self.board.next_change()
            if change < NEVER and change not in self.asked:
                self.asked.add(change)
                self.at(max(change, now), "ask", None)
        else:
            pytest.fail("it never ends")

    def handle(self, now: float, what: str, about: object) -> None:
        board = self.board
        if what == "submit":
            assert isinstance(about, Job)
            board.submit(about, now)
        elif what == "end":
            one, epoch = about  # type: ignore[misc]
            if epoch == self.epoch[one.index]:
                self.leave(one, now)
                self.end[one.index] = now
                self.send(now, board.ended(one, now))
        elif what == "profiled":
            one, epoch = about  # type: ignore[misc]
            if epoch == self.epoch[one.index]:
                self.leave(one, now)
                self.send(now, board.profiled(one, None, now))
        elif what == "answer":
            self.answer(now, about)  # type: ignore[arg-type]
        elif what == "drain":
            board.drain(about, now)  # type: ignore[arg-type]
        elif what == "up":
            board.up(about, now)  # type: ignore[arg-type]
        elif what == "down":
            for one in board.down(about, now):  # type: ignore[arg-type]
                self.leave(one, now)
                self.send(now, board.stopped(one, now))

    def send(self, now: float, decisions: list[Decision]) -> None:
        nodes, closed = self.board.cluster.nodes, self.board.view.space.closed
        for decision in decisions:
            one = decision.job
            if isinstance(decision, Start | Migrate | Resize):
                assert not any(closed(node) for node, _ in decision.allocation)
                assert all(nodes[node].vc in ("", one.vc) for node, _ in decision.allocation)
            elif isinstance(decision, Preempt | Evict):
                assert not all(closed(node) for node, _ in one.allocation), "stopped for nothing"
            elif isinstance(decision, Pack):
                assert one.vc == decision.partner.vc
            wait_s = self.draw.choice([0.0, 1.0, 20.0]) if self.draw.random() < self.chaos else 0.0
            if wait_s:
                self.at(now + wait_s, "answer", decision)
            else:
                self.answer(now, decision)

    def answer(self, now: float, decision: Decision) -> None:
        board, one = self.board, decision.job
        if not any(flight is decision for flight in board.in_flight()):
            return  # the job ended before its answer came
        if self.draw.random() < self.chaos / 2:
            self.send(now, board.refuse(decision, "it would not", now))
            self.at(now + 3.0, "ask", None)
            return
        if isinstance(decision, Start | Borrow | Profile):
            self.hold(one, decision.allocation, now)
            if isinstance(decision, Profile):
                limit = now + decision.limit_s
                self.at(limit, "profiled", (one, self.epoch[one.index]))
        elif isinstance(decision, Pack):
            self.hold(one, decision.partner.allocation, now, beside=decision.partner)
        elif isinstance(decision, Migrate | Resize):
            self.leave(one, now)
            self.hold(one, decision.allocation, now)
        elif isinstance(decision, Preempt | Evict | Drop) and one.allocation:
            self.leave(one, now)
        self.send(now, board.accept(decision, now))

    def hold(self, one: Job, allocation: Allocation, now: float, beside: Job | None = None) -> None:
        for node, mask in allocation:
            for gpu in range(mask.bit_length()):
                if mask >> gpu & 1:
                    others = self.held.setdefault((node, gpu), [])
                    assert others == ([] if beside is None else [beside]), "one GPU for two jobs"
                    others.append(one)
        self.start[one.index] = min(self.start[one.index], now)
        self.since[one.index] = now
        left = self.workload.duration_s[one.index] - self.done[one.index]
        self.at(now + left, "end", (one, self.epoch[one.index]))

    def leave(self, one: Job, now: float) -> None:
        for holders in self.held.values():
            if one in holders:
                holders.remove(one)
        self.done[one.index] += now - self.since[one.index]
        self.epoch[one.index] += 1


rows = st.lists(
    st.tuples(
        st.integers(0, 40).map(float), st.integers(1, 30).map(float), st.sampled_from([1, 2, 3, 8])
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize(
    "policy", ["fifo", "sjf:backfill=true", "srtf", "tiresias:threshold_gpu_s=20"]
)
@settings(max_examples=20)
@given(rows=rows)
def test_a_live_executor_starts_what_the_simulator_does(policy: str, rows: Rows) -> None:
    workload = Workload.of(rows)
    machine = Machine(workload, make(policy), Cluster.parse("2x4"))
    machine.run()
    live = (machine.start, machine.end)
    simulation = Simulation(
        workload,
        make(policy),
        Cluster.parse("2x4"),
        parameters=FREE,
        estimator=Table(workload.duration_s),
    )
    outcome = simulation.run()
    assert live == (outcome.first_start, pytest.approx(outcome.end))


@pytest.mark.parametrize("cluster", ["6x4", "3x4@a,3x4@b"])
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=5)
@given(rows=rows, seed=st.integers(0, 1000), outages=OUTAGES)
def test_whatever_is_refused_late_or_closed_every_job_ends_where_it_may_run(
    policy: str, cluster: str, rows: Rows, seed: int, outages: Outages
) -> None:
    workload = Workload.of(rows)
    machine = Machine(workload, make(policy), Cluster.parse(cluster), seed, chaos=0.4)
    for one in workload.jobs:
        one.vc = "ab"[one.index % 2] if "@" in cluster else ""
        one.terms = Terms(low=True) if policy == "spot" and one.index % 3 else None
    for closure in apart(outages):
        machine.at(closure.drain, "drain", closure.node)
        machine.at(closure.down, "down", closure.node)
        machine.at(closure.up, "up", closure.node)
    machine.run()
    assert max(machine.end) < NEVER
    assert machine.board.view.space.idle == 24
    assert not machine.board.in_flight()
    assert not machine.board.view.running.any()
    assert not machine.board.view.pending.any()


@pytest.fixture
def board() -> Board:
    return Board(Cluster.parse("2x2"), Fifo(), late_s=10.0)


def jobs(*gpus: int) -> list[Job]:
    return [Job(str(n), n, 0.0, size) for n, size in enumerate(gpus)]


def test_a_decision_in_flight_is_not_made_again(board: Board) -> None:
    (one,) = jobs(2)
    board.submit(one, 0.0)
    (start,) = board.decide(0.0)
    assert board.decide(1.0) == []
    assert board.view.space.idle == 2
    assert board.overdue(5.0) == []
    assert board.overdue(10.5) == [start]
    board.accept(start, 11.0)
    assert one.allocation == ((0, 3),)
    assert [(answer.state, answer.why) for answer in board.view.answers] == [
        ("late", "it took 11 s")
    ]


def test_a_refused_start_is_decided_anew(board: Board) -> None:
    (one,) = jobs(2)
    board.submit(one, 0.0)
    (start,) = board.decide(0.0)
    board.refuse(start, "node0 does not answer", 1.0)
    assert board.view.space.idle == 4
    assert board.view.answers[0].why == "node0 does not answer"
    assert board.decide(2.0) == [start]


def test_what_cannot_be_done_is_refused_at_once() -> None:
    board = Board(Cluster.parse("1x2"), Scripted({}), can=Capabilities(pack=False))
    one, two = jobs(2, 2)
    board.submit(one, 0.0)
    board.submit(two, 0.0)
    (start,) = board.decide(0.0)
    board.accept(start, 0.0)
    scripts = {
        1.0: lambda view: [Pack(two, one)],
        2.0: lambda view: [Start(two, ((0, 3),))],
        3.0: lambda view: [Preempt(two), Start(one, ((0, 3),))],
        4.0: lambda view: [Evict(one), Drop(one)],
    }
    board.policy.script = scripts  # type: ignore[attr-defined]
    assert board.decide(1.0) == []
    assert [one.why for one in board.view.answers] == ["the executor cannot pack"]
    assert board.decide(2.0) == []
    assert [one.why for one in board.view.answers] == ["not all of these GPUs are free"]
    assert two in board.view.pending
    assert board.decide(3.0) == []
    assert [one.why for one in board.view.answers] == [
        "the job is not running",
        "the job is not waiting",
    ]
    (evict,) = board.decide(4.0)
    assert [one.why for one in board.view.answers] == [
        "another decision about the job is not answered yet"
    ]
    assert not one.preemptible
    board.accept(evict, 5.0)
    assert (one.evictions, one.preemptible, one in board.view.pending) == (1, True, True)


@pytest.mark.parametrize(
    ("decide", "why"),
    [
        (lambda one, other: Start(one, ((1, 3),)), "node node1 is closed"),
        (lambda one, other: Start(one, ((2, 3),)), "node node2 is of virtual cluster b"),
        (lambda one, other: Start(one, ((3, 3),)), "node node3 has GPUs of type T4"),
        (lambda one, other: Start(one, ((7, 3),)), "there are no such GPUs"),
        (lambda one, other: Start(one, ((-1, 3),)), "there are no such GPUs"),
        (lambda one, other: Start(one, ((0, 24),)), "there are no such GPUs"),
        (lambda one, other: Start(one, ((0, 1), (0, 1))), "one node is named twice"),
        (Pack, "node node2 is of virtual cluster b"),
        (lambda one, other: Migrate(other, ((0, 3),)), "node node0 is of virtual cluster a"),
        (lambda one, other: Resize(other, ((1, 3),)), "node node1 is closed"),
    ],
)
def test_nodes_that_are_not_open_to_a_job_are_refused_even_if_they_are_free(
    decide: Callable[[Job, Job], Decision], why: str
) -> None:
    cluster = Cluster.parse("2x2:A100@a,1x2:A100@b,1x2:T4@a")
    board = Board(cluster, Scripted({1.0: lambda view: [decide(one, other)]}))
    one, other = jobs(2, 2)
    one.vc, one.gpu_type, other.vc = "a", "A100", "b"
    assert board.resume(other, ((2, 3),), 0.0, 0.0)
    board.submit(one, 0.0)
    board.drain(1, 0.0)
    assert board.decide(1.0) == []
    assert [answer.why for answer in board.view.answers] == [why]
    script = {
        0.0: lambda view: [Start(job(view, "1"), ((2, 3),))],
        0.5: lambda view: [],
        1.0: lambda view: [decide(job(view, "0"), job(view, "1"))],
    }
    closed = [Maintenance(1, 0.5, 50.0, 60.0)]
    wakes = Workload.of([(0.0, 9.0, 2), (0.0, 9.0, 2), (1.0, 9.0, 2)])
    wakes.vcs = ["a", "b", "a"]
    wakes.jobs[0].gpu_type = "A100"
    with pytest.raises(DecisionError, match=why):
        Simulation(wakes, Scripted(script), cluster, maintenance=closed).run()


def test_a_start_waits_until_its_victim_has_left() -> None:
    board = Board(Cluster.parse("1x2"), Scripted({}))
    one, two = jobs(2, 2)
    board.submit(one, 0.0)
    (start,) = board.decide(0.0)
    board.accept(start, 0.0)
    board.submit(two, 1.0)
    board.policy.script = {  # type: ignore[attr-defined]
        1.0: lambda view: [Preempt(job(view, "0")), Start(job(view, "1"), ((0, 3),))]
    }
    (preempt,) = board.decide(1.0)
    assert isinstance(preempt, Preempt)
    (start,) = board.accept(preempt, 4.0)
    assert start == Start(two, ((0, 3),))
    board.accept(start, 5.0)
    assert (two.allocation, one.allocation, one.preemptions) == (((0, 3),), (), 1)


def test_a_start_is_given_up_when_its_victim_stays() -> None:
    board = Board(Cluster.parse("1x2"), Scripted({}))
    one, two = jobs(2, 2)
    board.submit(one, 0.0)
    board.accept(board.decide(0.0)[0], 0.0)
    board.submit(two, 1.0)
    board.policy.script = {  # type: ignore[attr-defined]
        1.0: lambda view: [Preempt(job(view, "0")), Start(job(view, "1"), ((0, 3),))]
    }
    (preempt,) = board.decide(1.0)
    assert board.refuse(preempt, "it will not", 2.0) == []
    assert [answer.why for answer in board.view.answers] == [
        "it will not",
        "not all of these GPUs are free",
    ]
    assert one.status is None
    assert two in board.view.pending


def test_an_executor_that_cannot_pin_says_what_a_job_got(board: Board) -> None:
    one, two = jobs(1, 1)
    board.submit(one, 0.0)
    (start,) = board.decide(0.0)
    board.accept(start, 0.0, allocation=((1, 2),))
    assert one.allocation == ((1, 2),)
    assert board.view.space.free == [3, 1]
    board.submit(two, 1.0)
    (start,) = board.decide(1.0)
    board.accept(start, 1.0, allocation=((1, 2),))
    assert board.view.warnings["a job got GPUs that were booked for another"] == 1


def test_both_places_are_booked_while_a_job_moves() -> None:
    board = Board(Cluster.parse("2x2"), Scripted({}))
    (one,) = jobs(2)
    board.submit(one, 0.0)
    board.accept(board.decide(0.0)[0], 0.0)
    for overlap, idle in ((True, 0), (False, 2)):
        target = ((1, 3),) if one.allocation == ((0, 3),) else ((0, 3),)
        board.policy.script = {  # type: ignore[attr-defined]
            1.0: lambda view: [Migrate(job(view, "0"), target, overlap)]  # noqa: B023
        }
        (move,) = board.decide(1.0)
        assert board.view.space.idle == idle
        board.refuse(move, "no", 1.0)
        assert board.view.space.idle == 2
        board.policy.script[1.0] = lambda view: [Migrate(job(view, "0"), target, overlap)]  # type: ignore[attr-defined]  # noqa: B023
        board.accept(board.decide(1.0)[0], 2.0)
        assert (one.allocation, board.view.space.idle) == (target, 2)
    assert one.moves == 2


def test_a_pair_shares_and_parts() -> None:
    board = Board(Cluster.parse("1x2"), Scripted({}))
    one, two = jobs(2, 2)
    board.submit(one, 0.0)
    board.accept(board.decide(0.0)[0], 0.0)
    board.submit(two, 1.0)
    board.policy.script = {  # type: ignore[attr-defined]
        1.0: lambda view: [Pack(job(view, "1"), job(view, "0"))]
    }
    board.accept(board.decide(1.0)[0], 1.0)
    assert (two.allocation, one.partner, two.partner) == (one.allocation, two, one)
    board.ended(one, 5.0)
    assert (two.partner, board.view.space.idle) == (None, 0)
    board.ended(two, 6.0)
    assert board.view.space.idle == 2


def test_nodes_go_and_come_back_and_what_ran_there_is_named(board: Board) -> None:
    heard = []

    class Listening(Fifo):
        def decide(self, view):  # type: ignore[no-untyped-def]
            heard.extend((one.node, one.what, one.stopped) for one in view.news)
            return super().decide(view)

    board = Board(Cluster.parse("2x2"), Listening())
    one, two = jobs(2, 2)
    board.submit(one, 0.0)
    board.accept(board.decide(0.0)[0], 0.0)
    board.drain(1, 1.0, until=9.0)
    board.submit(two, 1.0)
    assert board.decide(1.0) == []
    assert board.down(0, 2.0) == [one]
    board.stopped(one, 2.0)
    assert board.decide(2.0) == []
    board.up(0, 3.0)
    (start,) = board.decide(3.0)
    assert start == Start(one, ((0, 3),))
    assert heard == [(1, "drain", []), (0, "down", ["0"]), (0, "up", [])]


def test_jobs_that_run_already_are_taken_over(board: Board) -> None:
    one, two = jobs(2, 2)
    assert board.resume(one, ((0, 3),), now=100.0, since=40.0)
    assert one.attained_s(110.0) == 70.0
    assert not board.resume(two, ((0, 1),), now=100.0, since=40.0)


def test_a_profile_is_known_once_its_limit_has_stopped_it() -> None:
    policy = make("lucid:profiler_nodes=1")
    nodes = tuple(Node(f"n{n}", 2) for n in range(4))
    board = Board(Cluster(nodes), policy)
    (one,) = jobs(1)
    board.submit(one, 0.0)
    (profile,) = board.decide(0.0)
    assert isinstance(profile, Profile)
    board.accept(profile, 0.0)
    assert one.profiling
    from schedmate.schedulers.model import Profile as Use

    board.profiled(one, Use(50.0, 10.0, 1000.0), 200.0)
    (start,) = board.decide(200.0)
    assert isinstance(start, Start)
    assert (one.profiled, one.profiling) == (True, False)
