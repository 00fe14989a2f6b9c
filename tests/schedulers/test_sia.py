"""Sia: the program against brute force, placement, and whole runs on made-up tables."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import elastic_tables
import numpy as np
import pytest
from cli_runner import Cli
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import of

from schedmate.base.errors import INPUT, InputError, UsageError
from schedmate.jobs import WorkloadMetadata
from schedmate.schedulers import Cluster, Job, Start
from schedmate.schedulers.goodput import Shape
from schedmate.schedulers.policies import sia
from schedmate.schedulers.policies.elastic import (
    Placement,
    Wish,
    allowed_shapes,
    cluster_shapes,
    decisions_for,
)
from schedmate.schedulers.policies.gavel import Gavel
from schedmate.schedulers.policies.pollux import Pollux
from schedmate.schedulers.policies.sia import Choice, ProgramError, Sia, solve_program
from schedmate.schedulers.policy import Migrate, Preempt, Resize, View
from schedmate.schedulers.sim.elastic import TablePhysics, physics_of
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.parameters import HONEST, PUBLISHED
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space

CLUSTER = Cluster.parse("3x4:slow,2x4:fast")

choices = st.lists(
    st.lists(
        st.builds(Choice, st.integers(0, 1), st.sampled_from([1, 2, 4]), st.floats(-2, 1)),
        max_size=4,
    ),
    min_size=1,
    max_size=5,
)


def cost(rows: list[list[Choice]], chosen: list[int | None]) -> float:
    return sum(row[one].cost for row, one in zip(rows, chosen, strict=True) if one is not None)


def fits(rows: list[list[Choice]], chosen: list[int | None], capacity: list[int]) -> bool:
    used = [0] * len(capacity)
    for row, one in zip(rows, chosen, strict=True):
        if one is not None:
            used[row[one].kind] += row[one].gpus
    return all(a <= b for a, b in zip(used, capacity, strict=True))


@settings(max_examples=40)
@given(choices, st.lists(st.integers(0, 6), min_size=2, max_size=2), st.booleans(), st.booleans())
def test_the_program_finds_the_optimum(
    rows: list[list[Choice]], capacity: list[int], general: bool, alike: bool
) -> None:
    if alike:  # jobs that can be exchanged
        rows = [rows[0]] * 3 + rows[1:2]
    states = sia._STATES
    sia._STATES = 0 if general else states
    try:
        found = solve_program(rows, capacity)
    finally:
        sia._STATES = states
    everything = product(*([None, *range(len(row))] for row in rows))
    best = min(cost(rows, list(one)) for one in everything if fits(rows, list(one), capacity))
    assert fits(rows, found, capacity)
    assert cost(rows, found) == pytest.approx(best, abs=1e-3)


def test_a_solver_without_time_says_so() -> None:
    rows = [[Choice(n % 3, 1 + n % 7, -1 - (n * m % 11) / 9) for m in range(6)] for n in range(400)]
    with pytest.raises(ProgramError):
        solve_program(rows, [100, 100, 100], time_limit_s=0.0)


def test_more_gpus_pinned_than_there_are_is_said() -> None:
    with pytest.raises(ProgramError, match="more GPUs than there are"):
        solve_program([[Choice(0, 1, -1.0)]], [4, -1])


def test_configurations_are_powers_of_two_and_whole_nodes() -> None:
    found = cluster_shapes(Cluster.parse("6x4:aws,2x8:dgx-ext,3x8:rtx"))
    assert len(found) == 19
    assert [one.gpus for one in found if one.gpu_type == "rtx"] == [1, 2, 4, 8, 16, 24]
    asked = allowed_shapes(Job("j", 0, 0.0, 12), Cluster.parse("6x4:aws,2x8:dgx"))
    assert asked == (Shape("aws", 3, 12), Shape("dgx", 2, 12))


sizes = st.sampled_from([1, 2, 4, 8])


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["slow", "fast"]), sizes, sizes), max_size=14))
def test_placement_gives_everyone_gpus_and_moves_few(jobs: list[tuple[str, int, int]]) -> None:
    view = View(Space(CLUSTER), Sia())
    left = {"slow": 12, "fast": 8}
    old = [Job(str(n), n, 0.0, 1, min_gpus=1, max_gpus=8) for n in range(len(jobs))]
    wishes = []
    for job, (gpu_type, gpus, _) in zip(old, jobs, strict=True):
        if gpus <= left[gpu_type]:
            left[gpu_type] -= gpus
            wishes.append(Wish(job, Shape(gpu_type, max(1, gpus // 4), gpus)))
    first = Placement(view, wishes)
    assert not first.unplaced
    for wish in wishes:
        wish.job.allocation = first.placed[wish.job.index]
        assert len(wish.job.allocation) == wish.shape.nodes
        assert view.space.take(wish.job, wish.job.allocation)
        view.running.add(wish.job, 0.0)
    # The same again moves nobody.
    again = Placement(view, wishes)
    assert decisions_for(view, again.placed, [wish.job for wish in wishes]) == []
    # Other sizes: what comes out can be carried out in its order.
    left = {"slow": 12, "fast": 8}
    changed = []
    for wish in wishes:
        gpus = jobs[wish.job.index][2]
        if gpus <= left[wish.shape.gpu_type]:
            left[wish.shape.gpu_type] -= gpus
            shape = Shape(wish.shape.gpu_type, max(1, gpus // 4), gpus)
            changed.append(Wish(wish.job, shape))
    other = Placement(view, changed)
    assert not other.unplaced
    for one in decisions_for(view, other.placed, [wish.job for wish in wishes]):
        if isinstance(one, Preempt | Resize | Migrate):
            view.space.give(one.job, one.job.allocation)
            one.job.allocation = ()
        if isinstance(one, Start | Resize | Migrate):
            assert view.space.take(one.job, one.allocation)
            one.job.allocation = one.allocation
    for wish in changed:
        assert sum(mask.bit_count() for _, mask in wish.job.allocation) == wish.shape.gpus


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    elastic_tables.write(tmp_path / "traces")
    return elastic_tables.workload(tmp_path / "workloads" / "toys.csv")


@pytest.mark.parametrize("category", ["adaptive", "scale-gpus", "rigid"])
@pytest.mark.parametrize("mode", [HONEST, PUBLISHED])
def test_jobs_of_every_kind_end(tmp_path: Path, category: str, mode: object) -> None:
    elastic_tables.write(tmp_path / "traces")
    path = elastic_tables.workload(tmp_path / "toys.csv", category=category)
    plan = Plan(("sia",), CLUSTER, "none", mode)  # type: ignore[arg-type]
    run = run_policy(read_trace(path), plan, "sia")
    # Rigid jobs of three GPUs do not always find a node.
    odd = {what for what in run.numbers["warnings"] if "no nodes had room" in what}
    assert set(run.numbers["warnings"]) == (odd if category == "rigid" else set())
    assert run.numbers["profiled"] == (12 if mode is HONEST else 0)
    sizes = {
        one.job: {sum(mask.bit_count() for _, mask in one.allocation)}
        for one in run.outcome.segments
        if one.kind == "run"
    }
    if category == "rigid":
        assert all(sizes[n] == {1 + n % 4} for n in range(12))


@pytest.mark.parametrize("clock", [lambda k: 60.0 * k, lambda k: math.nextafter(60.0 * k, 0.0)])
@pytest.mark.parametrize("rounds", [1, 7, 64_003])
def test_published_reports_come_after_now(
    toys: Path, clock: Callable[[float], float], rounds: int
) -> None:
    workload = read_trace(toys)
    tables = workload.tables
    assert tables is not None
    physics = physics_of(workload, tables, CLUSTER, PUBLISHED, Sia)
    assert isinstance(physics, TablePhysics)
    physics.attach(SimpleNamespace(now=clock(rounds)))  # type: ignore[arg-type]
    done = 0.9 * physics.work[0]
    speed, until = physics.pace(0, done, ((0, 0b1),), None)
    assert done < until <= done + 60.001 * speed


@pytest.mark.parametrize(
    "policy",
    [
        *("gavel", "gavel:objective=max-sum", "pollux", "pollux:search=greedy"),
        "pollux:search=genetic:population=10:generations=5",
    ],
)
@pytest.mark.parametrize("mode", [HONEST, PUBLISHED])
def test_the_baselines_run_the_same_jobs(toys: Path, policy: str, mode: object) -> None:
    plan = Plan((policy,), CLUSTER, "none", mode)  # type: ignore[arg-type]
    run = run_policy(read_trace(toys), plan, policy)
    assert not run.numbers["warnings"]
    sizes = {n: set() for n in range(12)}  # type: dict[int, set[int]]
    for one in run.outcome.segments:
        sizes[one.job].add(sum(mask.bit_count() for _, mask in one.allocation))
    if policy.startswith("pollux"):
        assert any(len(one) > 1 for one in sizes.values())
    else:
        assert all(one == {1 + n % 4} for n, one in sizes.items())


_LEARNT = """
import sys
from pathlib import Path
from schedmate.schedulers import Cluster
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.traces import read_trace

workload = read_trace(Path(sys.argv[1]))
plan = Plan(("sia",), Cluster.parse("2x4:slow,2x4:fast"), "none", HONEST)
print(run_policy(workload, plan, "sia").outcome.end)
print([list(job.agent.observations) for job in workload.jobs])
"""


def test_what_agents_learn_does_not_depend_on_the_hash_seed(toys: Path) -> None:
    found = set()
    for seed in ("0", "2"):  # under which a set of the two GPU types has another order
        command = [sys.executable, "-c", _LEARNT, str(toys)]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        found.add(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
    assert len(found) == 1


def test_gavel_gives_each_type_to_those_who_gain_most_from_it() -> None:
    speeds = np.array([[1.0, 0.2], [1.0, 0.9]])
    one_each = np.array([1, 1])
    most = Gavel("max-sum")._shares(speeds, one_each, [1, 1])
    assert most == pytest.approx(np.array([[1.0, 0.0], [0.0, 1.0]]))
    even = Gavel()._shares(np.ones((3, 1)), np.ones(3), [1])
    assert even == pytest.approx(np.full((3, 1), 1 / 3))
    with pytest.raises(UsageError, match="max-min, max-sum"):
        Gavel("most")


def test_gavel_is_fair_in_gpu_time() -> None:
    # One job of three GPUs and three of one on three GPUs: who asks for three has a third of the
    # time that each of the others has, and so as much GPU time.
    rows = [(0.0, 36_000.0, 3), *[(0.0, 36_000.0, 1)] * 3]
    workload = Workload.of(rows)
    outcome = run_policy(
        workload, Plan(("gavel",), Cluster.parse("1x3"), "none", HONEST), "gavel"
    ).outcome
    until = 40 * 360.0
    held = [0.0] * 4
    for one in outcome.segments:
        held[one.job] += max(0.0, min(one.end, until) - one.start)
    assert held[0] == pytest.approx(until / 4, abs=2 * 360.0)
    assert held[1:] == pytest.approx([until * 3 / 4] * 3, abs=2 * 360.0)


powers = st.lists(
    st.dictionaries(st.sampled_from([1, 2, 4, 8]), st.floats(1.0, 20.0), max_size=4),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(powers, st.integers(1, 16))
def test_the_optimum_is_never_worse_than_the_greedy_search(
    speedups: list[dict[int, float]], gpus: int
) -> None:
    pollux = Pollux()

    def value(chosen: dict[int, int]) -> tuple[int, float]:
        assert sum(chosen.values()) <= gpus
        return len(chosen), -sum(speedups[job][size] ** -1.0 for job, size in chosen.items())

    best = value(pollux._optimum(speedups, gpus))
    greedy = value(pollux._greedy(speedups, gpus))
    assert best[0] >= greedy[0]
    assert best[0] > greedy[0] or best[1] >= greedy[1] - 1e-9
    # Against all choices there are.
    every = (
        {job: size for job, size in enumerate(one) if size}
        for one in product(*([0, *row] for row in speedups))
        if sum(one) <= gpus
    )
    most = max(value(one) for one in every)
    assert best[0] == most[0]
    assert best[1] == pytest.approx(most[1])
    with pytest.raises(UsageError, match="optimum, genetic, greedy"):
        Pollux(search="random")


def test_odd_sizes_wait_rather_than_be_spread() -> None:
    # Four jobs of three GPUs on three nodes of four: the program counts GPUs, and they suffice.
    rows = [(0.0, 600.0, 3)] * 4
    spread, wait = (
        run_policy(Workload.of(rows), Plan((policy,), Cluster.parse("3x4"), "none", HONEST), policy)
        for policy in ("sia:split=true", "sia")
    )
    assert sorted(len(one.allocation) for one in spread.outcome.segments) == [1, 1, 1, 3]
    assert {len(one.allocation) for one in wait.outcome.segments} == {1}
    assert sum(one == 0.0 for one in wait.outcome.first_start) == 3
    assert any("no nodes had room" in what for what in wait.numbers["warnings"])


def test_elastic_jobs_end_sooner_than_in_turn(cli: Cli, toys: Path) -> None:
    result = cli(
        *("simulate", str(toys), "--policy", "fifo,sia", "--cluster", "1x4:slow,1x4:fast"),
        *("--estimator", "none", "--json"),
    )
    assert result.code == 0, result.err
    fifo, sia = json.loads(result.out)["runs"]
    assert sia["avg_jct_h"] < fifo["avg_jct_h"]


def test_what_the_solver_cannot_do_in_time_is_counted(toys: Path) -> None:
    states, sia._STATES = sia._STATES, 0
    try:
        workload = read_trace(toys)
        tables = workload.tables
        assert tables is not None
        physics = physics_of(workload, tables, CLUSTER, HONEST, Sia)

        class Hurried(Sia):
            """Its solver has no time in the first minutes."""

            def decide(self, view: View):  # type: ignore[no-untyped-def]
                self.solver_s = 0.0 if view.now < 600 else 5.0
                return super().decide(view)

        simulation = Simulation(workload, Hurried(), CLUSTER, physics=physics, observers=(physics,))
        audit(workload, simulation.cluster, simulation.run())
    finally:
        sia._STATES = states
    assert any("was not solved: Time limit" in what for what in simulation.view.warnings)


def test_jobs_without_a_model_get_what_they_ask_for() -> None:
    workload = Workload.of([(0.0, 100.0, 4), (0.0, 100.0, 8), (5.0, 50.0, 1)])
    run = run_policy(workload, Plan(("sia",), Cluster.parse("2x4"), "none", HONEST), "sia")
    assert any("no performance model" in what for what in run.numbers["warnings"])


def test_jobs_of_a_fixed_size_do_not_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    # 12 equal jobs for two places of two types each: who runs stays, and is decided when one ends.
    asked = []
    decide = Sia.decide
    monkeypatch.setattr(Sia, "decide", lambda *a: asked.append(1) or decide(*a))  # type: ignore[func-returns-value]
    monkeypatch.setattr(sia, "_STATES", 0)
    workload = Workload.of([(0.0, 36_000.0, 4)] * 12)
    simulation = Simulation(workload, Sia(), Cluster.parse("2x4:A,2x4:B"), parameters=HONEST)
    outcome = simulation.run()
    audit(workload, simulation.cluster, outcome)
    assert [len(of(outcome, job)) for job in range(12)] == [1] * 12
    assert max(outcome.end) == pytest.approx(3 * 36_000.0, abs=600)
    assert len(asked) < 20


def test_gradients_of_any_size_are_read(toys: Path) -> None:
    # Those of BERT in Sia's tables have a variance above 1e16.
    (table,) = (toys.parent.parent / "traces" / "toy").glob("validation-64.csv")
    head, *rows = table.read_text().splitlines()
    place = head.split(",").index("grad_var")
    changed = [row.split(",") for row in rows]
    for cells in changed:
        cells[place] = str(float(cells[place]) * 1e17)
    table.write_text("\n".join([head, *(",".join(cells) for cells in changed)]) + "\n")
    tables = read_trace(toys).tables
    assert tables is not None
    assert tables.applications["toy"].variance.max() > 1e16


def test_missing_and_broken_tables_are_named(cli: Cli, tmp_path: Path, toys: Path) -> None:
    alone = elastic_tables.workload(tmp_path / "elsewhere" / "w.csv")
    (tmp_path / "traces" / "toy").rename(tmp_path / "traces" / "hidden")
    result = cli("simulate", str(alone), "--policy", "sia", "--cluster", "1x4:slow")
    assert result.code == INPUT
    assert "--tables" in result.err
    (tmp_path / "traces" / "hidden").rename(tmp_path / "traces" / "toy")
    result = cli("simulate", str(toys), "--policy", "sia", "--cluster", "1x4:other")
    assert result.code == INPUT
    assert "fast, slow" in result.err
    table = tmp_path / "traces" / "toy" / "placements-slow.csv"
    table.write_text(table.read_text().replace("\n1,4,", "\n1,four,", 1))
    with pytest.raises(InputError, match=r"placements-slow.csv, line 2: local_bsz"):
        read_trace(toys)


def test_matched_jobs_start_unprofiled_with_what_others_learnt(toys: Path) -> None:
    plan = Plan(("sia",), CLUSTER, "none", HONEST)
    alone = run_policy(_described(toys), plan, "sia:profile_s=300").numbers
    told = run_policy(
        _described(toys), plan, "sia+schedmate:profile_s=300:similarity=0.5:latency_s=0"
    )
    counts = told.numbers["schedmate"]["advisor"]
    assert 0 < counts["bootstrapped"] < 12
    # A job is profiled or matched, and the first have nobody to be matched with.
    assert told.numbers["profiled"] == 12 - counts["bootstrapped"]
    assert told.numbers["avg_jct_h"] < alone["avg_jct_h"]
    nobody = "sia+schedmate:profile_s=300:similarity=0.5:latency_s=0:match_rate=0"
    assert run_policy(_described(toys), plan, nobody).numbers["profiled"] == 12


def _described(path: Path) -> Workload:
    """The toys, of whom code says what they train; further apart, so that some have ended."""
    workload = read_trace(path)
    for job in workload.jobs:
        job.submit_time *= 40
    about = {
        "model_config": {"model_name": "ToyNet", "task_type": "CV"},
        "training_config": {"iters": 5, "iter_type": "epoch", "batch_size": 64},
        "dataset_config": {"train": "toys"},
    }
    workload.metadata = [WorkloadMetadata.model_validate(about)] * len(workload)
    return workload


# The solver's own messages never reach standard output, where the answer is.


LOUD_SOLVER = """
import functools, json, os, sys
import scipy.optimize

# as loud as it can be, from C
for name in ("milp", "linprog"):
    loud = getattr(scipy.optimize, name)
    def louder(*args, loud=loud, options=None, **rest):
        return loud(*args, options={**(options or {}), "disp": True}, **rest)
    setattr(scipy.optimize, name, louder)

from schedmate.schedulers.policies.sia import Choice, ProgramMatrix as Table

choices = [[Choice(0, 1, -1.0), Choice(1, 2, -1.5 - job % 3)] for job in range(60)]
table = Table(choices, [[0, 1]] * 60, [20, 30])
print("[", end="")  # not flushed yet
assert table.relaxed(5.0) is not None
print(1, end="")
chosen = table.optimum(5.0, 1e-4)
print(",", sum(map(len, chosen)), end="]")
if len(sys.argv) > 1:
    os.close(1)
    table.optimum(5.0, 1e-4)
    os._exit(0)
"""


def test_nothing_of_the_solver_is_printed_among_the_answer() -> None:
    done = subprocess.run([sys.executable, "-c", LOUD_SOLVER], capture_output=True, check=True)
    assert json.loads(done.stdout) == [1, 35]
    assert b"HiGHS" in done.stderr  # it did print


def test_it_solves_without_a_standard_output() -> None:
    subprocess.run([sys.executable, "-c", LOUD_SOLVER, "closed"], capture_output=True, check=True)
