"""Queues and Tiresias by the short loops: the engine's result to the last digit, or the engine
itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Cli
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.schedulers.estimators import Estimator
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.preemptive import Tiresias
from schedmate.schedulers.policies.queues import Fifo, Sjf, SjfAgeing
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim import static_queue
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.parameters import HONEST, Parameters
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.runs import make_estimator
from schedmate.schedulers.sim.workload import Jobs, RequestsOf, Workload

POLICIES = ("fifo", "sjf", "qssf", "sjf-ageing", "sjf-ageing:weight=3")
ESTIMATORS = ("user-mean", "none", "limit", "oracle", "noisy:1", "column:guess")
CLUSTERS = ("1x8", "4x4", "2x4:T4,3x8:A100", "2x8@a,3x4@b", "2x4:T4@a,2x8:A100@b,1x8:T4", "70x2")
FITTING = {cluster: Cluster.parse(cluster) for cluster in CLUSTERS}
FREE = replace(HONEST, name="free", restart_s=0.0, restart_large_s=0.0)


@st.composite
def workloads(draw: st.DrawFn, cluster: str, *, whole_gpus: bool = False) -> Workload:
    """Jobs that fit the cluster, in bursts and at the same instants, some of them of no length."""
    nodes = FITTING[cluster].nodes
    spread = draw(st.sampled_from([3, 40, 400]))
    longest = draw(st.sampled_from([60, 600]))
    count = draw(st.integers(1, 40))
    jobs, durations, guesses, vcs = [], [], [], []
    for _ in range(count):
        vc = draw(st.sampled_from(sorted({node.vc for node in nodes if node.vc}) or [""]))
        room = [node for node in nodes if node.vc in ("", vc)]
        kind = draw(st.sampled_from(["", *sorted({node.gpu_type for node in room})]))
        room = [node for node in room if kind in ("", node.gpu_type)]
        size = max(node.gpus for node in room)
        gpus = draw(st.integers(1, size + size * (sum(node.gpus == size for node in room) > 1)))
        whole = whole_gpus or draw(st.booleans()) or gpus > 1
        job = Job("", 0, draw(st.integers(0, spread)) / 2, gpus, gpu_type=kind, vc=vc)
        job.share = 1.0 if whole else draw(st.sampled_from([0.25, 0.5, 1.0]))
        job.user = draw(st.sampled_from(["", "ann", "bob"]))
        job.priority = draw(st.sampled_from([0, 0, 0, 2]))
        job.cpus = 0.0 if whole_gpus else draw(st.sampled_from([0.0, 0.0, 6.0]))
        job.time_limit_s = draw(st.sampled_from([None, None, 30.0]))
        jobs.append(job)
        vcs.append(vc)
        runs = st.integers(0, longest).map(lambda n: n / 4)
        durations.append(draw(st.one_of(st.just(0.0), runs)))
        guesses.append(draw(st.sampled_from([None, 0.0, -1.0, float("nan"), 5.0, 20.0, 1e9])))
    order = sorted(range(count), key=lambda at: jobs[at].submit_time)
    return Workload(
        "drawn",
        [replace(jobs[at], id=f"j{at}", index=index) for index, at in enumerate(order)],
        [durations[at] for at in order],
        [None] * count,
        vcs=[vcs[at] for at in order],
        columns={"guess": [guesses[at] for at in order]},
    )


def assert_same(
    workload: Workload,
    policy: str,
    cluster: Cluster,
    told: str = "user-mean",
    parameters: Parameters = HONEST,
    columns: Workload | None = None,
) -> Outcome:
    """The outcome by the engine, which is that of the short loop (over `columns`)."""
    estimator = make_estimator(told, workload)
    short = static_queue.simulate_queue(
        columns or workload, make(policy), cluster, estimator, parameters
    )
    assert short is not None
    audit(workload, cluster, short)
    estimator = make_estimator(told, workload)
    simulation = Simulation(
        workload, make(policy), cluster, estimator=estimator, parameters=parameters
    )
    engine = simulation.run()
    for name in ("first_start", "end", "held_s", "assumed_s"):
        assert list(getattr(short, name)) == list(getattr(engine, name)), name
    assert short.segments == engine.segments
    for name in ("events", "decisions", "failures", "work", "bad_estimates"):
        assert getattr(short, name) == getattr(engine, name), name
    for name, values in engine.counts.items():
        assert list(short.counts.get(name, [0] * len(workload))) == list(values), name
    return engine


@settings(max_examples=40)
@given(
    data=st.data(),
    policy=st.sampled_from(POLICIES),
    backfill=st.booleans(),
    told=st.sampled_from(ESTIMATORS),
    cluster=st.sampled_from(CLUSTERS),
)
def test_equals_the_engine(
    data: st.DataObject, policy: str, backfill: bool, told: str, cluster: str
) -> None:
    name = f"{policy}:backfill={str(backfill).lower()}"
    assert_same(data.draw(workloads(cluster)), name, FITTING[cluster], told)


@settings(max_examples=40)
@given(
    data=st.data(),
    threshold=st.sampled_from([1, 10, 60, 300]),
    parameters=st.sampled_from([HONEST, FREE]),
    told=st.sampled_from(["user-mean", "none"]),
    cluster=st.sampled_from(CLUSTERS),
)
def test_tiresias_equals_the_engine(
    data: st.DataObject, threshold: int, parameters: Parameters, told: str, cluster: str
) -> None:
    policy = f"tiresias:threshold_gpu_s={threshold}"
    workload = data.draw(workloads(cluster, whole_gpus=True))
    assert_same(workload, policy, FITTING[cluster], told, parameters)


@settings(max_examples=20)
@given(data=st.data(), cluster=st.sampled_from(CLUSTERS))
def test_jobs_that_are_still_columns_run_the_same(data: st.DataObject, cluster: str) -> None:
    workload = data.draw(workloads(cluster))
    every = range(len(workload))
    lazy = replace(workload, jobs=Jobs(RequestsOf(workload.jobs).select(list(every))))
    assert_same(workload, "sjf", FITTING[cluster], columns=lazy)


def test_a_long_queue_on_many_nodes_equals_the_engine() -> None:
    draw = np.random.default_rng(1)
    sizes = draw.choice([1, 1, 1, 2, 4, 8, 16, 24], 3000).tolist()
    rows = zip(draw.uniform(0, 4e4, 3000), draw.lognormal(7, 2, 3000), sizes, strict=True)
    workload = Workload.of([(float(at), float(run), gpus) for at, run, gpus in rows])
    for policy in ("fifo:backfill=true", "sjf", "qssf:backfill=true"):
        for told in ("user-mean", "oracle"):
            assert_same(workload, policy, Cluster.parse("30x8"), told)


@pytest.mark.parametrize(("nodes", "seed"), [("3x8", 0), ("30x8", 1), ("20x4,10x8", 2)])
def test_a_long_queue_under_tiresias_equals_the_engine(nodes: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    cluster = Cluster.parse(nodes)
    sizes = draw.choice([1, 1, 1, 2, 3, 4, 8, 12, 16, 24], 2000).tolist()
    lengths = np.minimum(draw.lognormal(6, 2, 2000), 1e5)
    rate = 1.1 * cluster.gpus / (lengths * sizes).mean()
    times = np.cumsum(draw.exponential(1 / rate, 2000)).round(-1)
    workload = Workload.of(list(zip(times.tolist(), lengths.tolist(), sizes, strict=True)))
    engine = assert_same(workload, "tiresias:threshold_gpu_s=3000", cluster)
    assert engine.decisions["Preempt"] > 200


class Reversed(Fifo):
    """Ranks otherwise than the class that says what its rank is."""

    def rank(self, job: Job, now: float) -> float:
        return -job.submit_time


class Careful(Sjf):
    """Decides otherwise."""

    def decide(self, view: Any) -> Any:
        return super().decide(view)


class Patient(Tiresias):
    """Ranks otherwise than the class that says what its rank is."""

    def rank(self, job: Job, now: float) -> tuple[float, float]:
        return (0.0, job.submit_time)


class Doubling(Estimator):
    """Somebody's own estimator."""


class Elsewhere(Fifo):
    """Says again what its rank is, beside what it overrides."""

    def lane(self, job: Job) -> tuple[str, int]:
        return (job.vc, job.gpus)

    def static_rank(self) -> Any:
        return super().static_rank()


def loop_of(
    workload: Workload,
    policy: Policy,
    cluster: str = "2x4",
    estimator: Estimator | None = None,
    parameters: Parameters = HONEST,
) -> bool:
    run = static_queue.simulate_queue(
        workload, policy, Cluster.parse(cluster), estimator, parameters
    )
    return run is not None


def test_the_engine_runs_what_the_loop_does_not_know() -> None:
    workload = Workload.of([(0.0, 5.0, 2), (1.0, 5.0, 4)])
    assert loop_of(workload, Fifo())
    assert loop_of(workload, Elsewhere())
    assert not loop_of(workload, Reversed())
    assert not loop_of(workload, Careful())
    assert loop_of(workload, make("tiresias"))
    assert not loop_of(workload, make("srtf"))
    assert not loop_of(workload, make("lucid"))
    assert not loop_of(workload, make("sjf+schedmate"))
    assert not loop_of(workload, Fifo(), estimator=Doubling())
    assert not loop_of(workload, Fifo(), parameters=replace(HONEST, node_mtbf_s=1e6))
    assert not loop_of(replace(workload, categories=["rigid"] * 2), Fifo())
    grows = replace(workload, jobs=[replace(job, min_gpus=1, max_gpus=8) for job in workload.jobs])
    assert not loop_of(grows, Fifo())
    for other in ("backfill=false", "quota=true", "promote=2", "interval_s=60", "consolidate=vgg"):
        assert not loop_of(workload, make(f"tiresias:{other}"))
    assert not loop_of(workload, Patient())
    for setting in ({"share": 0.5}, {"cpus": 2.0}, {"preemptible": False}):
        jobs = [replace(job, gpus=1, **setting) for job in workload.jobs]
        assert not loop_of(replace(workload, jobs=jobs), Tiresias())


def test_the_engine_says_what_is_wrong_with_jobs() -> None:
    assert not loop_of(Workload.of([(0.0, 5.0, 9)]), Fifo())
    assert not loop_of(Workload.of([(0.0, -5.0, 1)]), Fifo())
    assert not loop_of(Workload.of([(float("nan"), 5.0, 1)]), Fifo())
    with pytest.raises(InputError, match="asks for 9 GPUs"):
        Simulation(Workload.of([(0.0, 5.0, 9)]), Fifo(), Cluster.parse("2x4")).run()


def test_a_setting_that_is_no_number_to_sort_by_is_left_to_the_engine() -> None:
    workload = Workload.of([(0.0, 5.0, 2), (1.0, 5.0, 4)])
    assert not loop_of(workload, SjfAgeing(weight=math.inf))


def test_progress_is_told_as_jobs_come() -> None:
    workload = Workload.of([(float(at), 1.0, 1) for at in range(3500)])
    seen: list[int] = []
    static_queue.simulate_queue(workload, Fifo(), Cluster.parse("1x8"), None, HONEST, seen.append)
    assert seen == sorted(seen)
    assert len(seen) == 3


def test_the_command_says_which_loop_it_was_and_both_agree(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    trace = tmp_path / "jobs.csv"
    rows = [f"j{n},{n % 70},{100 + n % 17},{1 + n % 4},u{n % 3}" for n in range(300)]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus,user", *rows]) + "\n")
    (tmp_path / "queue_of_mine.py").write_text(
        "from schedmate.schedulers.policies.queues import Sjf\n"
        "class Mine(Sjf):\n"
        "    name = 'mine'\n"
        "    def rank(self, job, now):\n"
        "        return super().rank(job, now)\n"
    )
    base = ("simulate", str(trace), "--cluster", "2x4", "--seed", "0")
    done = cli(
        *base, "--policy", "sjf,queue_of_mine:Mine:backfill=true", "--out", str(tmp_path / "out")
    )
    assert done.code == 0, done.err
    folders = sorted(path for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert len(folders) == 2
    for name in ("jobs.csv", "segments.csv"):
        one, other = (folder / name for folder in folders)
        assert one.read_text() == other.read_text()
    loops = {
        path.parent.name: path.read_text() for path in (tmp_path / "out").rglob("summary.json")
    }
    assert sum('"loop": "queue"' in text for text in loops.values()) == 1
    assert sum('"loop": "events"' in text for text in loops.values()) == 1
