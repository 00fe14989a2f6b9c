"""SpotGPU: who goes where, who has to leave, and that no job of high priority is hurt by it."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runner import Cli
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError, UsageError
from schedmate.schedulers import Cluster, Constraints, Evict, Job, Node, Start, Terms
from schedmate.schedulers.board import Board
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.policies.spot import Spot
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.parameters import Spanning
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.spot import draw, sources
from schedmate.schedulers.sim.traces.writer import write_trace
from schedmate.schedulers.sim.workload import Phase, Workload
from schedmate.schedulers.sim.world import Maintenance
from tests.schedulers.worlds import CHEAP, of, run

LOW, HIGH = Terms(low=True), Terms()


def jobs(*rows: tuple[float, float, int, Terms | None], pods: dict[int, int] | None = None):  # type: ignore[no-untyped-def]
    """A workload of (submitted, runs for, GPUs, terms), in order of submission."""
    workload = Workload.of([row[:3] for row in rows])
    for index, row in enumerate(rows):
        workload.jobs[index].terms = row[3]
        if pods and index in pods:
            workload.jobs[index].constraints = Constraints(pods=pods[index])
    return workload


def nodes_of(outcome: Outcome, index: int) -> list[int]:
    """Where the job ran last."""
    last = [one for one in outcome.segments if one.job == index][-1]
    return [node for node, _ in last.allocation]


def test_a_job_of_high_priority_evicts_the_cheapest_and_starts_when_it_has_left() -> None:
    # A checkpoint every 7 s: at 20 s the first has lost 6 s, the second, begun at 12 s, 1 s.
    workload = jobs((0, 100, 2, LOW), (12, 100, 2, LOW), (20, 10, 2, HIGH))
    outcome = run(workload, Spot(), "2x2")
    assert of(outcome, 2) == [(23.0, 33.0, "run")]  # it takes 3 s to leave
    assert [one.evictions for one in workload.jobs] == [0, 1, 0]
    assert nodes_of(outcome, 2) == [1]


def test_the_smallest_prefix_of_a_node_is_evicted() -> None:
    # On one node three jobs of one GPU; two of them are enough, and the two cheapest go.
    rows = [(0, 100, 1, LOW), (1, 100, 1, LOW), (2, 100, 1, LOW), (20, 10, 3, HIGH)]
    workload = jobs(*rows)
    run(workload, Spot(), "1x4")  # one GPU is free; lost since the last checkpoint: 6, 5, 4 s
    assert [one.evictions for one in workload.jobs] == [0, 1, 1, 0]


def test_gpus_that_are_being_left_are_nobody_elses() -> None:
    workload = jobs(
        (0, 100, 4, LOW), (20, 10, 4, HIGH), (21, 10, 1, LOW), (22, 10, 1, HIGH)
    )  # fmt: skip
    outcome = run(workload, Spot(), "1x4")
    assert outcome.first_start[:2] == [0.0, 23.0]
    # Both who came while it was leaving wait until the first of high priority has ended; then the
    # one of high priority comes first, although it was submitted later.
    assert outcome.first_start[2:] == [33.0, 33.0]
    assert workload.jobs[0].evictions == 1


def test_what_an_evicted_job_leaves_is_used_before_another_one_is_evicted() -> None:
    workload = jobs(
        (0, 100, 4, LOW), (0, 100, 4, LOW), (20, 10, 1, HIGH), (21, 10, 3, HIGH)
    )  # fmt: skip
    outcome = run(workload, Spot(), "2x4")
    assert outcome.first_start[2:] == [23.0, 23.0]
    assert sum(one.evictions for one in workload.jobs) == 1


def test_a_gang_evicts_on_several_nodes_and_takes_free_ones() -> None:
    workload = jobs(
        (0, 100, 4, LOW), (1, 100, 2, LOW), (2, 100, 4, HIGH), (20, 10, 8, HIGH), pods={3: 4}
    )  # fmt: skip
    outcome = run(workload, Spot(), "3x4")
    assert of(outcome, 3) == [(23.0, 33.0, "run")]
    assert nodes_of(outcome, 3) == [0, 1]
    assert [one.evictions for one in workload.jobs] == [1, 1, 0, 0]


def test_spot_jobs_take_nothing_back_and_high_priority_is_never_evicted() -> None:
    workload = jobs((0, 50, 2, HIGH), (1, 50, 2, LOW), (2, 50, 2, HIGH), (3, 10, 2, LOW))
    outcome = run(workload, Spot(), "1x2")
    assert outcome.first_start[0] == 0.0
    assert outcome.first_start[2] == 50.0
    assert all(one.evictions == 0 for one in workload.jobs)


def test_a_gpu_type_is_kept() -> None:
    cluster = Cluster((Node("a", 2, "H20"), Node("b", 2, "A10")))
    workload = jobs((0, 100, 2, LOW), (0, 100, 2, LOW), (20, 10, 2, HIGH))
    for one, kind in zip(workload.jobs, ("H20", "A10", "A10"), strict=True):
        one.gpu_type = kind
    outcome = run(workload, Spot(), cluster)
    assert nodes_of(outcome, 2) == [1]
    assert [one.evictions for one in workload.jobs] == [0, 1, 0]


def test_processors_are_taken_back_too() -> None:
    cluster = Cluster((Node("a", 4, cpus=8),))
    workload = jobs((0, 100, 1, LOW), (1, 100, 1, LOW), (20, 10, 1, HIGH))
    for one, cpus in zip(workload.jobs, (4, 4, 8), strict=True):
        one.cpus = cpus
    outcome = run(workload, Spot(), cluster)
    assert of(outcome, 2) == [(23.0, 33.0, "run")]
    assert [one.evictions for one in workload.jobs] == [1, 1, 0]


def test_a_job_of_high_priority_joins_others_and_a_spot_job_keeps_away() -> None:
    # Both nodes have one GPU left: the first is a spot job's, the second one of high priority's.
    begun = [(0, 100, 3, LOW), (1, 100, 3, HIGH)]
    for terms, where in ((HIGH, 1), (LOW, 0)):
        workload = jobs(*begun, (10, 5, 1, terms))
        assert nodes_of(run(workload, Spot(), "2x4"), 2) == [where]
    workload = jobs(*begun, (10, 5, 1, HIGH))
    assert nodes_of(run(workload, Spot(colocation=False), "2x4"), 2) == [0]


def test_spot_jobs_go_where_fewest_were_evicted_and_others_where_most_were() -> None:
    script = [
        (0, 500, 4, LOW),   # node 0
        (20, 10, 4, HIGH),  # evicts it, as the other node lacks nothing but is too small
        (100, 5, 1, LOW),
        (200, 5, 1, HIGH),
    ]  # fmt: skip
    cluster = Cluster((Node("a", 4, "big"), Node("b", 4, "big")))
    workload = jobs((0, 1000, 4, HIGH), *script)
    # The first job fills node 0, so that the eviction happens on node 1; then it has ended.
    workload.duration_s[0] = 30.0
    workload.duration_s[1] = 40.0
    outcome = run(workload, Spot(colocation=False), cluster)
    assert workload.jobs[1].evictions == 1
    assert nodes_of(outcome, 3) == [0]
    assert nodes_of(outcome, 4) == [1]
    blind = run(workload, Spot(colocation=False, history=False), cluster)
    assert nodes_of(blind, 4) == [0]


def test_a_tenant_holds_no_more_than_its_quota() -> None:
    one, other = Terms(tenant="ads"), Terms(tenant="search")
    workload = jobs((0, 10, 2, one), (0, 10, 2, one), (1, 10, 2, other), (2, 10, 4, one))
    cluster = replace(Cluster.parse("1x8"), quotas=(("ads", 3),))
    outcome = run(workload, Spot(), cluster)
    assert outcome.first_start[:3] == [0.0, 10.0, 1.0]
    assert outcome.ledger.dropped[3].why == "the quota of ads is 3 GPUs"
    spot = jobs((0, 10, 2, replace(one, low=True)), (0, 10, 2, replace(one, low=True)))
    assert run(spot, Spot(), cluster).first_start == [0.0, 0.0]  # spot is beside the quota


def test_a_spot_job_borrows_and_is_told_to_stop_when_the_window_is_over() -> None:
    workload = jobs((0, 100, 2, HIGH), (20, 50, 2, LOW))
    workload.standby = {0: [(20.0, 40.0)]}
    outcome = run(workload, Spot(), "1x2")
    assert of(outcome, 1)[0] == (20.0, 43.0, "loan")
    assert run(workload, Spot(windows="none"), "1x2").first_start[1] == 100.0


@pytest.mark.parametrize(("left_s", "enters"), [(10.0, True), (60.0, False)])
def test_a_window_that_is_too_short_to_save_anything_is_not_entered(
    left_s: float, enters: bool
) -> None:
    workload = jobs((0, 400, 2, HIGH), (20, left_s, 2, Terms(low=True, checkpoint_s=1000.0)))
    workload.standby = {0: [(20.0, 100.0)]}
    told = Table(workload.duration_s, workload.profiles)
    simulation = Simulation(
        workload, Spot(windows="worth"), Cluster.parse("1x2"), estimator=told, parameters=CHEAP
    )
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    assert (outcome.first_start[1] == 20.0) is enters


def test_who_is_almost_done_is_spared() -> None:
    # By cost the second would go, which has 2 s left.
    workload = jobs((0, 1000, 2, LOW), (0, 24, 2, LOW), (22, 10, 2, HIGH))
    workload.jobs[0].terms = Terms(low=True, checkpoint_s=10.0)
    told = Table(workload.duration_s, workload.profiles)
    for victims, evicted in (("cost", [0, 1, 0]), ("remaining", [1, 0, 0])):
        simulation = Simulation(
            workload, Spot(victims=victims), Cluster.parse("2x2"), estimator=told, parameters=CHEAP
        )
        simulation.run()
        assert [one.evictions for one in workload.jobs] == evicted


def test_a_node_that_is_drained_while_a_job_waits_for_it_is_given_up() -> None:
    workload = jobs((0, 30, 2, HIGH), (0, 100, 2, LOW), (20, 10, 2, HIGH))
    drained = [Maintenance(1, 21.0, 25.0, 500.0)]
    outcome = run(workload, Spot(), "2x2", maintenance=drained)
    assert workload.jobs[1].evictions == 1
    assert of(outcome, 2) == [(30.0, 40.0, "run")]
    assert nodes_of(outcome, 2) == [0]


def test_settings_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UsageError, match=r"victims=costs is none of cost, random"):
        Spot(victims="costs")
    with pytest.raises(UsageError, match=r"windows=some is none of all, worth, none"):
        Spot(windows="some")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Workload, Cluster, int]:
    """Some jobs of both classes on a small cluster."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = random.Random(seed)
    hosts = rng.random() < 0.5
    cluster = Cluster(
        tuple(
            Node(f"n{n}", 4, rng.choice("ab"), cpus=16 * hosts, switch=f"s{n % 2}")
            for n in range(4)
        ),
        quotas=(("t0", 8),),
    )
    kinds = sorted({node.gpu_type for node in cluster.nodes})
    made = []
    at = 0.0
    for index in range(rng.randint(2, 25)):
        at += rng.choice((0.0, 1.0, 5.0, 20.0))
        low = rng.random() < 0.6
        gpus, pods = rng.choice(((1, 0), (2, 0), (4, 0), (4, 2), (4, 4)))
        made.append(
            Job(
                str(index), index, at, gpus,
                share=0.5 if gpus == 1 and rng.random() < 0.3 else 1.0,
                gpu_type=rng.choice(["", kinds[0]]) if gpus < 4 else "",
                cpus=gpus * rng.choice((0, 2, 4)) * hosts,
                constraints=Constraints(pods=pods, within_switch=rng.random() < 0.3)
                if pods else None,
                terms=Terms(low=low, tenant=f"t{index % 2}", saves=rng.random() < 0.3),
            )
        )  # fmt: skip
    workload = Workload("drawn", made, [float(rng.randint(1, 120)) for _ in made],
                        [None] * len(made))  # fmt: skip
    for job in made:
        if rng.random() < 0.3 and job.share == 1.0 and not job.terms.low:
            if rng.random() < 0.4:
                workload.phases[job.index] = (Phase(9.0, job.gpus), Phase(30.0, 1))
                continue
            start = job.submit_time + rng.randint(1, 50)
            workload.standby[job.index] = [(start, start + rng.randint(5, 60))]
    return workload, cluster, rng.choice((0, 10, 60))


@pytest.mark.parametrize("victims", ["cost", "random", "remaining"])
@given(worlds())
@settings(max_examples=30)
def test_every_run_obeys_the_laws_and_spares_high_priority(
    victims: str, world: tuple[Workload, Cluster, int]
) -> None:
    workload, cluster, grace_s = world
    policy = Spot(victims=victims, windows="worth", grace_s=float(grace_s))
    simulation = Simulation(workload, policy, cluster, parameters=CHEAP)
    outcome = simulation.run()
    audit(workload, cluster, outcome)
    for job in workload.jobs:
        assert job.terms is not None
        assert job.evictions == 0 or job.terms.low
        assert outcome.ledger.dropped.get(job.index) is None
    assert not simulation.view.starting
    assert not simulation.view.leaving


def test_a_live_start_waits_and_nobody_else_gets_its_gpus() -> None:
    """On a board, as in the simulator: half of the GPUs are free already, half are being left."""
    board = Board(Cluster.parse("1x4"), Spot())
    spot, other = (Job(name, n, 0.0, 2, terms=LOW) for n, name in enumerate(("spot", "other")))
    high = Job("high", 2, 0.0, 4, terms=HIGH)
    board.submit(spot, 0.0)
    for decision in board.decide(0.0):
        board.accept(decision, 0.0)
    board.submit(high, 10.0)
    (told,) = board.decide(10.0)
    assert isinstance(told, Evict)
    assert board.view.starting[high.index][0] is high
    board.submit(other, 11.0)
    assert board.decide(11.0) == []  # two GPUs are free, and kept
    (start,) = board.accept(told, 20.0)
    assert start == Start(high, ((0, 15),))
    board.accept(start, 20.0)
    assert high.allocation == ((0, 15),)
    assert not board.view.starting
    assert not board.view.leaving
    assert board.view.evicted[0] == 1


HEADER = "job_id,submit_s,duration_s,gpus,class,tenant,checkpoint_s,saves,pods,standby,phases\n"


def test_a_trace_says_classes_and_windows_and_is_written_back(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        HEADER + "a,0,100,16,hp,ads,,,2,10-20;30-40,\nb,5,50,1,LP,,600,1,,,\n"
        "c,6,7,2,,,,,,,300x1;60.5x2\n"
    )
    workload = read_trace(path)
    a, b, c = workload.jobs
    assert (a.terms, a.constraints) == (Terms(tenant="ads"), Constraints(pods=2))
    assert (b.terms, b.constraints) == (Terms(low=True, checkpoint_s=600.0, saves=True), None)
    assert (c.terms, c.constraints) == (None, None)
    assert workload.standby == {0: [(10.0, 20.0), (30.0, 40.0)]}
    write_trace(workload, tmp_path / "again.csv")
    again = read_trace(tmp_path / "again.csv")
    assert [(job.terms, job.constraints) for job in again.jobs] == [
        (job.terms, job.constraints) for job in workload.jobs
    ]
    assert workload.phases == {2: (Phase(300.0, 1), Phase(60.5, 2))}
    assert (again.standby, again.phases) == (workload.standby, workload.phases)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("a,0,1,1,middle,,,,,,", "class is 'middle', neither hp nor lp"),
        ("a,0,1,3,hp,,,,2,,", "3 GPUs cannot be divided among 2 equal pods"),
        ("a,0,1,1,lp,,0,,,,", "a checkpoint every 0 s is not an interval"),
        ("a,0,1,1,hp,,,,,20-10,", "standby is '20-10', not windows"),
        ("a,0,1,1,hp,,,,,10-20;15-30,", "not windows START-END in their order"),
        ("a,0,1,2,hp,,,,,,5x3", "phases is '5x3', not SECONDSxGPUS of at most its GPUs"),
        ("a,0,1,2,hp,,,,,,5", "GPUs of phases is '', not a number"),
    ],
)
def test_what_a_trace_cannot_say_is_named_by_its_line(tmp_path: Path, row: str, why: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(HEADER + row + "\n")
    with pytest.raises(InputError, match="line 2: .*" + re.escape(why)):
        read_trace(path)


def test_drawn_streams_meet_what_they_say() -> None:
    workload, cluster = draw(256, 7.0, seed=3)
    assert draw(256, 7.0, seed=3).workload.duration_s == workload.duration_s
    end = 7 * 86_400.0
    held = sum(
        (min(job.submit_time + length, end) - job.submit_time) * job.gpus
        for job, length in zip(workload.jobs, workload.duration_s, strict=True)
        if job.terms is not None and not job.terms.low
    )
    assert held / (cluster.gpus * end) == pytest.approx(0.68, abs=0.08)
    assert all(not workload.jobs[index].terms.low for index in workload.standby)  # type: ignore[union-attr]
    midnight = sum(
        workload.jobs[index].gpus
        for index, windows in workload.standby.items()
        if any(start <= 2 * 86_400.0 + 3600 <= until for start, until in windows)
    )
    assert 0.03 < midnight / cluster.gpus < 0.0643
    assert len(sources()) > 20


def test_spot_jobs_leave_those_of_high_priority_as_they_were() -> None:
    """With `protect`, they go where they would go alone, and wait for who leaves alone."""
    workload, cluster = draw(32, 3.0, seed=1, lp=0.5)
    alone = workload.select(n for n, job in enumerate(workload.jobs) if not job.terms.low)  # type: ignore[union-attr]
    queue = []
    for some in (alone, workload):
        outcome = Simulation(some, Spot(protect=True), cluster).run()
        waits = [
            outcome.first_start[job.index] - job.submit_time
            for job in some.jobs
            if not job.terms.low  # type: ignore[union-attr]
        ]
        queue.append(sum(waits) / len(waits))
    assert queue[1] <= queue[0] + 60.0


def test_from_a_drawn_trace_to_a_comparison(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "spot.csv")
    drawn = cli("traces", "spot", "--nodes", "16", "--days", "1", "-o", path)
    assert "--policy spot --cluster 8x8:H20,4x8:XPU-A,4x8:A800 --quota tenant0=" in drawn.err
    assert "Figure 16" in cli("traces", "spot", "--sources").out
    options = ("--policy", "spot,spot:victims=random", "--cluster", "8x8:H20,4x8:XPU-A,4x8:A800")
    more = ("--switch-nodes", "2", "--cross-switch", "communication=0.5", "--placement", "fgd")
    done = cli("simulate", path, *options, *more, "--quota", "tenant0=64", "--json")
    first = json.loads(done.out)["runs"][0]
    assert {"high", "low"} == set(first["by_class"])
    assert "HP:" in cli("simulate", path, *options).out
    assert cli("simulate", path, *options, "--quota", "tenant0").code == 2
    # Jobs that are dropped never end: what is told and drawn is of the others.
    dropping = ("--quota", "tenant0=1", "--report", str(tmp_path / "page.html"), "--json")
    first, second = json.loads(cli("simulate", path, *options, *dropping).out)["runs"]
    assert first["dropped"] == second["dropped"] > 0
    assert all(abs(hours) < 100 for hours in second["jct_less_first_h"])
    unknown = cli("simulate", path, *options, "--quota", "tenat0=64")
    assert unknown.code == 2
    assert "did you mean tenant0" in unknown.err
    assert cli("simulate", path, *options, "--cross-switch", "").code == 2
    assert cli("simulate", path, *options, "--placement", "worst").code == 2


@pytest.mark.parametrize(("communication", "speed"), [(None, 1 / 1.054), (0.5, 1 / 1.135), (0, 1)])
def test_a_job_that_spans_switches_is_slower(communication: float | None, speed: float) -> None:
    workload = Workload.of([(0.0, 100.0, 4), (0.0, 100.0, 4)])
    workload.columns = {"communication": [communication, communication]}
    cluster = Cluster(tuple(Node(f"n{n}", 2, switch=f"s{n // 2}") for n in range(4)))
    parameters = replace(CHEAP, spanning=Spanning())
    under = run(workload, Spot(), cluster, parameters)
    assert under.end == [100.0, 100.0]
    across = Cluster(tuple(Node(f"n{n}", 2, switch=f"s{n}") for n in range(4)))
    assert run(workload, Spot(), across, parameters).end == pytest.approx([100 / speed] * 2)
    assert run(workload, Spot(), across).end == [100.0, 100.0]  # off, unless asked for


def test_settings_of_switches_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UsageError, match="'slower=2' is not a setting; there are longer=0.27"):
        Spanning.parse("slower=2")
    with pytest.raises(UsageError, match="communication from 0 to 1"):
        Spanning.parse("communication=2")


@pytest.mark.parametrize("seed", range(6))
def test_parts_of_gpus_are_shared_and_taken_back(seed: int) -> None:
    """Fractions of both classes on few GPUs: nobody joins a GPU that is promised to another."""
    rng = random.Random(seed)
    rows = [(20.0 * n, rng.uniform(50, 4000), 1) for n in range(150)]
    workload = Workload.of(rows)
    for job in workload.jobs:
        job.share = rng.choice((0.2, 0.3, 0.6, 1.0))
        job.cpus = rng.choice((0.0, 2.0, 6.0))
        job.terms = Terms(low=rng.random() < 0.6, checkpoint_s=300.0)
    cluster = Cluster(tuple(Node(f"n{n}", 2, cpus=12) for n in range(3)))
    for policy in (Spot(), Spot(victims="random"), Spot(protect=True)):
        simulation = Simulation(workload, policy, cluster, seed=seed)
        outcome = simulation.run()
        audit(workload, simulation.cluster, outcome)
        assert sum(job.evictions for job in workload.jobs) > 0
