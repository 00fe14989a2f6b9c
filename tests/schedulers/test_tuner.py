"""The System Tuner: the best of the past, and nothing of what comes later."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schedmate.base.errors import InputError, UsageError
from schedmate.cli import application
from schedmate.schedulers import registry
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.tuner import candidates, compare, search, spelled, split
from schedmate.schedulers.sim.workload import Workload

app = application("tune")

PLAN = Plan(("tiresias",), Cluster.parse("2x4"), "oracle", HONEST)


def workload(count: int = 300, seed: int = 0) -> Workload:
    draw = random.Random(seed)
    return Workload.of(
        [
            (draw.uniform(0, 86_400), draw.lognormvariate(6, 1.5), draw.choice([1, 1, 2, 4]))
            for _ in range(count)
        ]
    )


def test_the_answer_is_the_best_of_what_was_tried() -> None:
    jobs, thresholds = workload(), [100.0, 1000.0, 10_000.0]
    trials = list(search(jobs, PLAN, "tiresias", {"threshold_gpu_s": thresholds}))
    best = [trial for trial in trials if trial.best][-1]
    by_hand = {
        text: run_policy(jobs, PLAN, text).numbers["avg_jct_h"]
        for text in ("tiresias", *(f"tiresias:threshold_gpu_s={t}" for t in thresholds))
    }
    assert best.value == min(by_hand.values()) == by_hand[spelled("tiresias", best.settings)]
    assert trials[0].settings == {}
    assert len(trials) == 4


def test_settings_are_searched_together_and_none_twice() -> None:
    tries = {"threshold_gpu_s": [100.0, 3600.0], "backfill": [True, False]}
    trials = list(search(workload(), PLAN, "tiresias", tries))
    spellings = [spelled("tiresias", trial.settings) for trial in trials]
    assert len(set(spellings)) == len(spellings) <= 6
    assert [trial.value for trial in trials if trial.best] == sorted(
        (trial.value for trial in trials if trial.best), reverse=True
    )
    assert len(list(search(workload(), PLAN, "tiresias", tries, most=2))) == 2


def test_what_comes_later_changes_no_trial() -> None:
    jobs = workload()
    past, later = split(jobs, 43_200.0, 30_000.0)
    assert len(past) + len(later) < len(jobs)
    assert max(job.submit_time for job in past.jobs) < later.jobs[0].submit_time
    assert [job.index for job in later.jobs] == list(range(len(later)))
    jobs.duration_s = [
        d * (10 if job.submit_time >= later.jobs[0].submit_time else 1)
        for d, job in zip(jobs.duration_s, jobs.jobs, strict=True)
    ]
    again, longer = split(jobs, 43_200.0, 30_000.0)
    tries = {"threshold_gpu_s": [100.0]}
    assert list(search(past, PLAN, "tiresias", tries)) == list(
        search(again, PLAN, "tiresias", tries)
    )
    assert sum(longer.duration_s) == pytest.approx(10 * sum(later.duration_s))
    with pytest.raises(InputError, match="after the moment of tuning"):
        split(jobs, 1e9, 1e9)


def test_defaults_are_compared_with_what_was_found() -> None:
    plain, same, difference = compare(workload(), PLAN, "tiresias", {})
    assert difference == (0.0, 0.0, 0.0)
    assert same.numbers["avg_jct_h"] == plain.numbers["avg_jct_h"]


@pytest.mark.parametrize("policy", ["lucid", "tiresias"])
def test_every_candidate_is_a_setting_of_its_policy(policy: str) -> None:
    for name, values in candidates(policy).items():
        assert len(set(map(str, values))) == len(values)
        for value in values:
            registry.make(spelled(policy, {name: value}))


def test_what_cannot_be_tuned_is_said() -> None:
    with pytest.raises(UsageError, match="--try"):
        candidates("fifo")
    with pytest.raises(UsageError, match="no metric 'speed'; there are .*avg_jct_h"):
        next(iter(search(workload(20), PLAN, "tiresias", {}, "speed")))
    with pytest.raises(UsageError, match="no setting"):
        list(search(workload(20), PLAN, "tiresias", {"colour": ["red"]}))


def test_the_command(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    rows = [
        f"{job.id},{job.submit_time:.0f},{duration:.0f},{job.gpus}"
        for w in [workload(120)]
        for job, duration in zip(w.jobs, w.duration_s, strict=True)
    ]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]))
    line = ["tune", str(trace), "--policy", "tiresias", "--cluster", "2x4"]
    done = CliRunner().invoke(app, [*line, "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "schedmate.tune/v1"
    assert document["past"]["tuned"] <= document["past"]["default"]
    assert document["past"]["simulations"] == len(document["trials"]) == 6
    assert document["past"]["jobs"] + document["later"]["jobs"] == 120
    shown = CliRunner().invoke(app, [*line, "--try", "backfill=false", "--at", "12h"])
    assert shown.exit_code == 0
    assert "on the" in shown.stdout.splitlines()[2]
    bad = CliRunner().invoke(app, [*line, "--try", "backfill"])
    assert isinstance(bad.exception, UsageError)
