"""Tiresias by the short loop: the engine's result to the last digit, or the engine itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policies.preemptive import Tiresias
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim import static_queue
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.parameters import HONEST, Parameters
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.runs import make_estimator
from schedmate.schedulers.sim.workload import Workload

CLUSTERS = ("1x8", "4x4", "3x8", "2x4:T4,3x8:A100", "2x8@a,3x4@b", "2x4:T4@a,2x8:A100@b,1x8:T4")
FREE = replace(HONEST, name="free", restart_s=0.0, restart_large_s=0.0)


@st.composite
def workloads(draw: st.DrawFn, cluster: str) -> Workload:
    """Jobs that fit the cluster, many at the same instants, some of them of no length."""
    nodes = Cluster.parse(cluster).nodes
    spread = draw(st.sampled_from([3, 40, 400]))
    long = draw(st.sampled_from([60, 600]))
    jobs, vcs = [], []
    for _ in range(draw(st.integers(1, 40))):
        vc = draw(st.sampled_from(sorted({node.vc for node in nodes if node.vc}) or [""]))
        room = [node for node in nodes if node.vc in ("", vc)]
        kind = draw(st.sampled_from(["", *sorted({node.gpu_type for node in room})]))
        room = [node for node in room if kind in ("", node.gpu_type)]
        size = max(node.gpus for node in room)
        gpus = draw(st.integers(1, size + size * (sum(node.gpus == size for node in room) > 1)))
        jobs.append(Job("", 0, draw(st.integers(0, spread)) / 2, gpus, gpu_type=kind, vc=vc))
        vcs.append(vc)
    jobs.sort(key=lambda job: job.submit_time)
    runs = st.one_of(st.just(0.0), st.integers(0, long).map(lambda n: n / 4))
    return Workload(
        "drawn",
        [replace(job, id=f"j{index}", index=index) for index, job in enumerate(jobs)],
        [draw(runs) for _ in jobs],
        [None] * len(jobs),
        vcs=[job.vc for job in jobs],
    )


def both(
    workload: Workload,
    policy: str,
    cluster: Cluster,
    told: str = "user-mean",
    parameters: Parameters = HONEST,
) -> tuple[Outcome, Outcome]:
    """By the loop and by the engine."""
    estimator = make_estimator(told, workload)
    short = static_queue.simulate_queue(workload, make(policy), cluster, estimator, parameters)
    assert short is not None
    estimator = make_estimator(told, workload)
    engine = Simulation(workload, make(policy), cluster, estimator=estimator, parameters=parameters)
    return short, engine.run()


def assert_same(short: Outcome, engine: Outcome) -> None:
    for name in ("first_start", "end", "held_s", "assumed_s"):
        assert list(getattr(short, name)) == list(getattr(engine, name)), name
    assert short.segments == engine.segments
    for name in ("events", "decisions", "failures", "work", "bad_estimates"):
        assert getattr(short, name) == getattr(engine, name), name
    for name, values in engine.counts.items():
        assert list(short.counts[name]) == list(values), name


@settings(max_examples=40)
@given(
    data=st.data(),
    threshold=st.sampled_from([1, 10, 60, 300]),
    parameters=st.sampled_from([HONEST, FREE]),
    told=st.sampled_from(["user-mean", "none"]),
    cluster=st.sampled_from(CLUSTERS),
)
def test_equals_the_engine(
    data: st.DataObject, threshold: int, parameters: Parameters, told: str, cluster: str
) -> None:
    workload = data.draw(workloads(cluster))
    policy, nodes = f"tiresias:threshold_gpu_s={threshold}", Cluster.parse(cluster)
    short, engine = both(workload, policy, nodes, told, parameters)
    assert_same(short, engine)
    audit(workload, nodes, short)


@pytest.mark.parametrize(("nodes", "seed"), [("3x8", 0), ("30x8", 1), ("20x4,10x8", 2)])
def test_a_long_queue_equals_the_engine(nodes: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    cluster = Cluster.parse(nodes)
    sizes = draw.choice([1, 1, 1, 2, 3, 4, 8, 12, 16, 24], 2000).tolist()
    lengths = np.minimum(draw.lognormal(6, 2, 2000), 1e5)
    rate = 1.1 * cluster.gpus / (lengths * sizes).mean()
    times = np.cumsum(draw.exponential(1 / rate, 2000)).round(-1)
    rows = zip(times.tolist(), lengths.tolist(), sizes, strict=True)
    workload = Workload.of([(at, run, gpus) for at, run, gpus in rows])
    short, engine = both(workload, "tiresias:threshold_gpu_s=3000", cluster)
    assert engine.decisions["Preempt"] > 200
    assert_same(short, engine)


class Patient(Tiresias):
    """Ranks otherwise than the class that says what its rank is."""

    def rank(self, job: Job, now: float) -> tuple[float, float]:
        return (0.0, job.submit_time)


def test_the_engine_runs_what_the_loop_does_not_know() -> None:
    workload = Workload.of([(0.0, 5.0, 2), (1.0, 5.0, 4)])

    def by_loop(policy: Tiresias, jobs: Workload = workload) -> bool:
        cluster = Cluster.parse("2x4")
        return static_queue.simulate_queue(jobs, policy, cluster, None, HONEST) is not None

    assert by_loop(Tiresias())
    assert not by_loop(Tiresias(backfill=False))
    assert not by_loop(Tiresias(quota=True))
    assert not by_loop(Tiresias(promote=2.0))
    assert not by_loop(Tiresias(interval_s=60.0))
    assert not by_loop(Tiresias(consolidate="vgg"))
    assert not by_loop(Patient())
    for setting in ({"share": 0.5}, {"cpus": 2.0}, {"preemptible": False}):
        jobs = [replace(job, gpus=1, **setting) for job in workload.jobs]
        assert not by_loop(Tiresias(), replace(workload, jobs=jobs))
