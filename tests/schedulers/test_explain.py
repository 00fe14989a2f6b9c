"""Explanations: what is shown is what answered."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schedmate.base.errors import InputError, UsageError
from schedmate.cli import application
from schedmate.schedulers.estimators import DAY_S
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.explain import explain_run_times, explain_submissions, replay
from schedmate.schedulers.sim.workload import Workload

app = application("explain")


def workload(count: int = 300) -> Workload:
    """Two users: one's jobs take a minute, the other's an hour."""
    draw = random.Random(2)
    jobs, durations = [], []
    for index in range(count):
        user = draw.choice("ab")
        jobs.append(Job(f"j{index}", index, index * 7200.0, draw.choice([1, 2]), user=user))
        durations.append((60.0 if user == "a" else 3600.0) * draw.uniform(0.8, 1.2))
    return Workload("two users", jobs, durations, [None] * count)


def test_an_estimate_is_the_product_of_its_terms() -> None:
    jobs = workload()
    found = explain_run_times(jobs, "j250")
    assert found.local is not None
    local = found.local
    assert math.isclose(
        math.exp(sum(local.contributions.values())), local.answer_s + 1, rel_tol=1e-6
    )
    assert local.true_s == jobs.duration_s[250]
    assert 0.5 < local.answer_s / local.true_s < 2
    # What tells the two apart comes first, and is given in seconds.
    assert "user" in found.terms[0].name
    mean = local.values["user_mean"]
    assert mean is not None
    assert 0.7 < mean / local.true_s < 1.4


def test_a_job_is_explained_by_what_was_over_when_it_came() -> None:
    jobs = workload()
    before = explain_run_times(jobs, "j150")
    for index in range(150, 300):
        jobs.duration_s[index] *= 100
    again = explain_run_times(jobs, "j150")
    assert before.fitted_on == again.fitted_on <= 150
    assert before.terms == again.terms
    assert explain_run_times(jobs).fitted_on > before.fitted_on


def test_the_replay_tells_of_nothing_that_still_runs() -> None:
    class Told:
        def __init__(self) -> None:
            self.ended: list[str] = []

        def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
            self.ended.append(job.id)

        def estimate(self, job: Job) -> None:
            return None

    jobs = Workload.of([(0.0, 50.0, 1), (10.0, 5.0, 1), (20.0, 1.0, 1), (60.0, 1.0, 1)])
    told = Told()
    seen = [(job.id, list(told.ended)) for job in replay(jobs, told)]  # type: ignore[arg-type]
    assert seen == [("0", []), ("1", []), ("2", ["1"]), ("3", ["1", "2", "0"])]


def test_submissions_by_the_hour() -> None:
    draw = random.Random(4)
    times = sorted(day * DAY_S + draw.uniform(9, 17) * 3600 for day in range(30) for _ in range(60))
    found = explain_submissions(Workload.of([(time, 60.0, 1) for time in times]))
    assert found.model == "submissions"
    names = " ".join(term.name for term in found.terms[:4])
    assert "hour" in names or "yesterday" in names or "mean" in names
    assert found.fitted_on == int((times[-1] - times[0]) // 600)
    with pytest.raises(InputError, match="two weeks"):
        explain_submissions(workload(20))


def test_too_little_and_the_unknown_are_said() -> None:
    with pytest.raises(InputError, match="no job 'x'"):
        explain_run_times(workload(), "x")
    with pytest.raises(InputError, match="only 0 jobs had ended"):
        explain_run_times(workload(), "j0")


def test_the_command(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    jobs = workload(120)
    rows = [
        f"{job.id},{job.submit_time:.0f},{duration:.0f},{job.gpus},{job.user}"
        for job, duration in zip(jobs.jobs, jobs.duration_s, strict=True)
    ]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus,user", *rows]))
    run = CliRunner().invoke
    done = run(app, ["explain", str(trace), "--job", "j100", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "schedmate.explain/v1"
    total = sum(document["job"]["contributions"].values())
    assert math.isclose(math.expm1(total), document["job"]["estimate_s"], rel_tol=1e-6)
    shown = run(app, ["explain", str(trace), "--job", "j100"]).stdout.splitlines()
    assert "ended jobs" in shown[0]
    assert "in the trace" in shown[1]
    assert isinstance(run(app, ["explain", str(trace), "--model", "x"]).exception, UsageError)
    both = run(app, ["explain", str(trace), "--model", "submissions", "--job", "j1"])
    assert isinstance(both.exception, UsageError)
