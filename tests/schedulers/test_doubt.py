"""The audit in columns finds what the audit one by one finds, in runs with and without errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers.model import Cluster, Profile
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.outcome import audit as audits
from schedmate.schedulers.sim.outcome import audit as doubt
from schedmate.schedulers.sim.outcome.audit import LawBrokenError, audit
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.record import KINDS, HeldGpus, Outcome, Segment, Segments
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import FailureRates, JobFailures

POLICIES = ("fifo", "sjf", "tiresias:threshold_gpu_s=20", "srtf", "horus", "lucid")
PLAIN, APART = Cluster.parse("3x4"), Cluster.parse("2x4:T4@a,2x4:A100@b")


def recorded(segments: list[Segment]) -> Segments:
    """In columns, as the engine leaves them."""
    found = Segments()
    for one in segments:
        found.jobs.append(one.job)
        found.starts.append(one.start)
        found.ends.append(one.end)
        found.works.append(one.work)
        found.allocations.append(one.allocation)
        found.kinds.append(KINDS.index(one.kind))
    return found


@st.composite
def runs(draw: st.DrawFn) -> tuple[Workload, Cluster, Outcome]:
    """What came of some jobs under some policy, that may fail or share GPUs."""
    apart = draw(st.booleans())
    cluster = APART if apart else PLAIN
    policy = draw(st.sampled_from(POLICIES))
    # Lucid keeps a node for profiles.
    size = st.sampled_from([1, 1, 2, 4, 4 if policy == "lucid" else 6])
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 30).map(float), st.integers(0, 40).map(float), size),
            min_size=1,
            max_size=9,
        )
    )
    use = Profile(40.0, 20.0, 1000.0)
    workload = Workload.of(rows, profiles=[use] * len(rows))
    for job in workload.jobs:
        job.share = 0.5 if job.gpus == 1 and draw(st.integers(0, 5)) == 0 else 1.0
    if apart:
        workload.vcs = [draw(st.sampled_from("ab")) for _ in rows]
        for job, vc in zip(workload.jobs, workload.vcs, strict=True):
            job.gpu_type = draw(st.sampled_from(["", {"a": "T4", "b": "A100"}[vc]]))
    faults = None
    if draw(st.booleans()):
        faults = JobFailures(workload, FailureRates(gpu_mtbf=700.0, bugs=0.2, user=3.0), 1)
    parameters = replace(HONEST, restart_s=2.0, restart_large_s=2.0, checkpoint_s=3.0)
    simulation = Simulation(workload, make(policy), cluster, faults=faults, parameters=parameters)
    return workload, simulation.cluster, simulation.run()


@st.composite
def broken(draw: st.DrawFn) -> tuple[Workload, Cluster, Outcome]:
    """A run in which something was changed, which can make it impossible."""
    workload, cluster, outcome = draw(runs())
    segments = list(outcome.segments)
    at = draw(st.integers(0, len(segments) - 1))
    one, other = segments[at], segments[draw(st.integers(0, len(segments) - 1))]
    shift = draw(st.sampled_from([-7.0, -1.0, -1e-7, 1e-7, 0.5, 3.0, float("nan")]))
    node, mask = one.allocation[0]
    places = [
        other.allocation,
        ((node, mask << 1),),
        ((node, mask | mask << 1),),
        (((node + 1) % len(cluster.nodes), mask),),
        ((node, 1 << 9),),
        (),
    ]
    change = draw(
        st.sampled_from(
            [
                {"start": one.start + shift},
                {"end": one.end + shift},
                {"work": one.work + shift},
                {"job": other.job},
                {"kind": draw(st.sampled_from(KINDS))},
                {"start": one.start + shift, "end": one.end + shift},
                *({"allocation": place} for place in places),
                {"allocation": other.allocation, "start": other.start, "end": other.end},
            ]
        )
    )
    segments[at] = one._replace(**change)  # type: ignore[arg-type]
    how = draw(st.sampled_from(["only", "only", "only", "twice", "less", "swapped"]))
    if how == "twice":
        segments.append(other)
    elif how == "less":
        del segments[at]
    elif how == "swapped":
        segments[at], segments[-1] = segments[-1], segments[at]
    ends = list(outcome.end)
    if draw(st.integers(0, 4)) == 0:
        ends[draw(st.integers(0, len(ends) - 1))] += 1.0
    failures = dict(outcome.failures)
    if failures and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(failures)))
        failure, again = failures[key]
        failures[key] = (failure._replace(done=failure.done + 1.0), again)
    return (
        workload,
        cluster,
        outcome._replace(segments=recorded(segments), end=ends, failures=failures),
    )


def one_by_one(workload: Workload, cluster: Cluster, outcome: Outcome) -> str:
    """What the audit says that takes nothing for granted."""
    every = list(range(len(workload)))
    positions = range(len(outcome.segments))
    try:
        audits._check_jobs(workload, cluster, outcome, every, np.ones(len(positions), bool))
        audits._check_gpus(workload, cluster, outcome, positions)
        audits.check_laws(workload, cluster, outcome)
    except LawBrokenError as error:
        return str(error)
    return ""


def verdict(workload: Workload, cluster: Cluster, outcome: Outcome) -> str:
    try:
        audit(workload, cluster, outcome)
    except LawBrokenError as error:
        return str(error)
    return ""


@settings(max_examples=30)
@given(run=runs())
def test_a_run_is_found_in_order(run: tuple[Workload, Cluster, Outcome]) -> None:
    assert verdict(*run) == one_by_one(*run) == ""


@settings(max_examples=40)
@given(run=broken())
def test_whatever_breaks_a_law_is_found(run: tuple[Workload, Cluster, Outcome]) -> None:
    try:
        expected = one_by_one(*run)
    except (IndexError, KeyError, ValueError):
        return  # nothing that an audit is asked about
    assert bool(verdict(*run)) == bool(expected)


def plain_run(count: int = 400) -> tuple[Workload, Cluster, Outcome]:
    workload = Workload.of([(float(at), 5.0 + at % 7, 1 + at % 3) for at in range(count)])
    cluster = Cluster.parse("3x4")
    return workload, cluster, Simulation(workload, make("sjf"), cluster).run()


def test_a_run_without_sharing_is_proved_in_columns_alone() -> None:
    workload, cluster, outcome = plain_run()
    held = HeldGpus.of(outcome.segments)
    assert not doubt.doubtful_jobs(workload, cluster, outcome, held).any()
    assert not len(doubt.doubtful_segments(cluster, held))


def test_only_what_overlaps_is_swept() -> None:
    _, cluster, outcome = plain_run()
    segments = list(outcome.segments)
    late = segments[-1]
    segments[100] = segments[100]._replace(
        allocation=late.allocation, start=late.start, end=late.end
    )
    held = HeldGpus.of(recorded(segments))
    assert {100, len(segments) - 1} == set(doubt.doubtful_segments(cluster, held).tolist())


def test_a_large_run_is_proved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_AT_ONCE", 50)
    workload, cluster, outcome = plain_run()
    audit(workload, cluster, outcome)
    segments = list(outcome.segments)
    segments[7] = segments[7]._replace(allocation=segments[8].allocation)
    with pytest.raises(LawBrokenError):
        audit(workload, cluster, outcome._replace(segments=recorded(segments)))


def test_what_is_not_known_here_is_looked_at_one_by_one() -> None:
    workload, cluster, outcome = plain_run(20)
    held = HeldGpus.of(outcome.segments)
    strange = outcome._replace(segments=list(outcome.segments))  # type: ignore[arg-type]
    assert doubt.doubtful_jobs(workload, cluster, strange, held).all()
