"""Groups, their cost, nodes against chance, new templates."""

from __future__ import annotations

import random
from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.jobs import Diagnosis, ErrorType, EvidenceLine
from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.storage import Memory
from schedmate.logparse.triage import JobVerdict
from schedmate.logparse.triage.document import Group
from schedmate.logparse.triage.summary import (
    compare_nodes,
    deciding_line,
    group_failures,
    holm_adjusted,
    hypergeometric_tail,
    pareto,
    poisson_interval,
)
from schedmate.report.batch import group_title, plan_in_short


def job(
    index: int,
    error_type: ErrorType = "script",
    text: str = "KeyError: 'a'",
    *,
    hours: float | None = None,
    nodes: tuple[str, ...] = (),
    node: str | None = None,
) -> JobVerdict:
    found = Diagnosis(
        error_type=error_type,
        error_name=None if error_type == "none" else text.partition(":")[0],
        line=3,
        file="x",
        node=node,
        evidence=[
            EvidenceLine(file="x", line=3, text="Traceback (most recent call last):"),
            EvidenceLine(file="x", line=9, text=text, note="decided"),
        ],
    )
    return JobVerdict(
        index=index, job_id=f"j{index}", log="x", diagnosis=found, gpu_hours=hours,
        nodes=list(nodes),
    )  # fmt: skip


def test_a_group_is_one_error_with_one_shape_of_line() -> None:
    jobs = [
        job(0, text="RuntimeError: shape [4, 8] is invalid"),
        job(1, text="RuntimeError: shape [16, 32] is invalid"),
        job(2, text="RuntimeError: no kernel image"),
        job(3, "none"),
        JobVerdict(index=4, job_id="j4", log="x", error="it is empty"),
    ]
    groups = group_failures(jobs)
    assert sorted(one.jobs for one in groups) == [[0, 1], [2]]
    assert jobs[0].group == jobs[1].group != jobs[2].group
    assert jobs[3].group is jobs[4].group is None
    assert group_failures(list(reversed(jobs))) == groups  # the order of completion does not matter


def diagnosed(text: str) -> Diagnosis:
    return diagnose(Log("x", [LogFile("x", Memory(text.encode()))]))


def grouped(*texts: str) -> list[Group]:
    found = [
        JobVerdict(index=n, job_id=f"j{n}", log="x", diagnosis=diagnosed(text))
        for n, text in enumerate(texts)
    ]
    return group_failures(found)


WATCHDOG = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=X) ran\n",
    (
        "[rank1]:[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=4) ran for 600 milliseconds\n"
    ),
)
OOM_OF_SLURM = (
    (
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes may "
        "have been killed by the cgroup out-of-memory handler.\n"
    ),
    (
        "slurmstepd: error: Detected 3 oom_kill events in StepId=884.0. Some of the step tasks "
        "have been OOM Killed.\n"
    ),
)


@pytest.mark.parametrize("wordings", [WATCHDOG, OOM_OF_SLURM])
def test_wordings_of_one_rule_are_one_cause(wordings: tuple[str, ...]) -> None:
    assert [len(group.jobs) for group in grouped(*wordings)] == [len(wordings)]


def test_a_message_says_which_cause_where_a_rule_knows_only_the_class() -> None:
    here = "Traceback (most recent call last):\n  File 'a.py', line 1, in f\n"
    groups = grouped(f"{here}KeyError: 'a'\n", f"{here}KeyError: 'b'\n", f"{here}KeyError: 'a'\n")
    assert sorted(len(group.jobs) for group in groups) == [1, 2]
    vague = grouped(f"{here}mylib.errors.OddError: no\n", f"{here}mylib.OddError: no\n")
    assert len(vague) == 1, "versions differ in the module of an exception"
    assert vague[0].general
    assert group_title(vague[0]).startswith("mylib.errors.OddError: no")
    assert plan_in_short(vague[0].plan).startswith("Tell the user; the program")


def test_a_deciding_line_is_no_progress_bar() -> None:
    found = diagnosed("42%|####      | 42/100 [00:10<00:14,  4.1it/s]Killed\n")
    assert deciding_line(found) == "Killed"


@pytest.mark.parametrize(
    ("state", "kind", "silent"),
    [
        ("FAILED", "none", True),
        ("NODE_FAIL", "none", True),
        ("OUT_OF_MEMORY", "none", True),
        ("Error", "none", True),
        ("COMPLETED", "none", False),
        ("TIMEOUT", "none", False),
        (None, "none", False),
        ("FAILED", "script", False),
    ],
)
def test_a_job_that_failed_and_whose_log_says_nothing(
    state: str | None, kind: ErrorType, silent: bool
) -> None:
    assert job(0, kind).model_copy(update={"state": state}).silent is silent


def test_pareto_by_gpu_hours_when_nearly_all_say() -> None:
    groups = group_failures(
        [job(i, text="A: x", hours=1.0) for i in range(9)] + [job(9, hours=90.0)]
    )
    found = pareto(groups)
    assert found.basis == "gpu_hours"
    assert [round(bar.share, 3) for bar in found.bars] == [0.909, 0.091]
    assert found.bars[-1].cumulative == pytest.approx(1)
    assert found.bars[0].group == next(one.id for one in groups if one.jobs == [9])


def test_pareto_by_count_otherwise_and_it_says_so() -> None:
    found = pareto(group_failures([job(i, text="A: x") for i in range(9)] + [job(9, hours=90.0)]))
    assert found.basis == "jobs"
    assert "known for 1 of 10" in found.reason
    assert [bar.value for bar in found.bars] == [9, 1]
    assert pareto([]).bars == []


@given(st.integers(1, 40), st.data())
def test_the_tail_is_exact(total: int, data: st.DataObject) -> None:
    marked = data.draw(st.integers(0, total))
    drawn = data.draw(st.integers(0, total))
    least = data.draw(st.integers(0, total))
    exact = Fraction(
        sum(
            comb(marked, k) * comb(total - marked, drawn - k)
            for k in range(least, min(marked, drawn) + 1)
        ),
        comb(total, drawn),
    )
    assert hypergeometric_tail(least, drawn, marked, total) == pytest.approx(float(exact), abs=1e-9)


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_and_keeps_the_order(p_values: dict[str, float]) -> None:
    adjusted = holm_adjusted(p_values)
    names = sorted(p_values, key=lambda name: p_values[name])
    assert all(p_values[name] <= adjusted[name] <= 1 for name in names)
    assert [adjusted[name] for name in names] == sorted(adjusted.values())
    assert adjusted[names[0]] == min(1, len(names) * p_values[names[0]])


def test_a_bad_node_is_named_and_only_that_one() -> None:
    rng = random.Random(5)
    jobs = []
    for index in range(300):
        nodes = tuple(sorted(rng.sample([f"gpu{n:02d}" for n in range(20)], 2)))
        bad = ("gpu07" in nodes and rng.random() < 0.6) or rng.random() < 0.03
        text = "ECC Error: uncorrectable"
        jobs.append(job(index, "infrastructure" if bad else "none", text, nodes=nodes))
    found = compare_nodes(jobs)
    assert found.tested
    assert [one.node for one in found.nodes if one.suspect] == ["gpu07"]
    assert found.reason.endswith(
        "Test a suspect node before draining it: these logs were written by jobs."
    )
    assert f"{found.failures} failures in 300 jobs" in found.reason


def test_chance_alone_names_a_node_no_more_often_than_it_may() -> None:
    rng = random.Random(11)
    named = 0
    for _ in range(200):
        jobs = []
        for index in range(120):
            nodes = tuple(rng.sample([f"n{n}" for n in range(10)], rng.choice([1, 2, 4])))
            kind: ErrorType = "infrastructure" if rng.random() < 0.2 else "none"
            jobs.append(job(index, kind, nodes=nodes))
        named += any(one.suspect for one in compare_nodes(jobs).nodes)
    assert named <= 20  # 5 % of 200 and three standard deviations


def test_a_failure_whose_node_is_known_counts_against_that_node_alone() -> None:
    jobs = [
        job(i, "infrastructure", nodes=("a.cluster", "b.cluster"), node="b") for i in range(6)
    ] + [job(i, "none", nodes=("a.cluster", "c")) for i in range(6, 40)]
    found = {one.node: one for one in compare_nodes(jobs).nodes}
    assert (found["a.cluster"].failures, found["b.cluster"].failures) == (0, 6)
    assert found["b.cluster"].suspect
    assert not found["a.cluster"].suspect


def test_failures_of_programs_say_nothing_of_nodes() -> None:
    jobs = [job(i, "script" if i < 10 else "none", nodes=(f"n{i // 10}",)) for i in range(40)]
    found = compare_nodes(jobs)
    assert found.failures == 0
    assert not found.tested


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        ([job(i, "infrastructure") for i in range(50)], "nodes of the jobs are unknown"),
        ([job(i, "infrastructure", nodes=("a",)) for i in range(4)], "Nothing is claimed"),
        ([job(i, "infrastructure", nodes=(f"n{i % 3}",)) for i in range(40)], "every job failed"),
    ],
)
def test_too_little_to_claim_anything(jobs: list[JobVerdict], reason: str) -> None:
    found = compare_nodes(jobs)
    assert not found.tested
    assert reason in found.reason
    assert not any(one.suspect for one in found.nodes)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (5, 1.6235, 11.6683), (50, 37.1110, 65.9187)],
)
def test_the_poisson_interval_is_that_of_the_tables(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == pytest.approx((low, high), abs=2e-4)
