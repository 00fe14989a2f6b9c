"""Recipes: jobs get workloads that recur, and nothing that says how long one of them runs."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from schedmate.base.errors import InputError, UsageError
from schedmate.cli import application
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.assign import GROUP, assign
from schedmate.schedulers.sim.traces.recipe import Recipe, Settings, parse_recipe, recipes
from schedmate.schedulers.sim.workload import Workload

app = application("simulate", "traces")


def jobs(count: int, seed: int = 0) -> Workload:
    rng = np.random.default_rng(seed)
    rows = zip(
        rng.uniform(0, 1e6, count),
        np.exp(rng.normal(6.5, 2.0, count)),
        rng.choice([1, 2, 4, 8, 16], count, p=[0.7, 0.1, 0.08, 0.1, 0.02]),
        strict=True,
    )
    workload = Workload.of([(float(a), float(b), int(c)) for a, b, c in rows])
    workload.vcs = [f"vc{one}" for one in rng.integers(0, 3, count)]
    return workload


def groups(workload: Workload) -> dict[float, list[int]]:
    found = defaultdict(list)
    for position, group in enumerate(workload.columns[GROUP]):
        assert group is not None
        found[group].append(position)
    return found


@pytest.mark.parametrize("recurrence", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("spread", [0.1, 0.4, 0.8])
def test_as_many_resubmissions_and_as_much_spread_as_asked_for(
    recurrence: float, spread: float
) -> None:
    recipe, wanted = parse_recipe(f"lucid:recurrence={recurrence},spread={spread},early=0")
    workload = assign(jobs(20_000), recipe, wanted)
    found = groups(workload)
    assert 1 - len(found) / len(workload) == pytest.approx(recurrence, abs=0.03)
    several = [
        [math.log(max(workload.duration_s[one], 1)) for one in members]
        for members in found.values()
        if len(members) > 1
    ]
    squares = sum(statistics.variance(logs) * (len(logs) - 1) for logs in several)
    freedom = sum(len(logs) - 1 for logs in several)
    assert math.sqrt(squares / freedom) == pytest.approx(spread, rel=0.1)
    assert workload.synthetic
    assert f"({recurrence:.0%} requested)" in workload.notes[-1]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(0, 1e7), st.integers(1, 64), st.sampled_from("abc")),
        min_size=1,
        max_size=60,
    ),
    st.floats(0, 0.99),
    st.floats(0, 3),
    st.sampled_from(recipes()),
)
def test_a_workload_is_of_one_user_and_size_and_the_jobs_stay_as_they_were(
    rows: list[tuple[float, float, int, str]], recurrence: float, spread: float, name: str
) -> None:
    given_ = Workload.of([row[:3] for row in rows])
    given_.jobs = [
        replace(job, user=rows[int(job.id)][3] if spread > 1 else "") for job in given_.jobs
    ]
    wanted = Settings(recurrence=recurrence, spread=spread, seed=3)
    workload = assign(given_, Recipe.read(name), wanted)
    again = assign(given_, Recipe.read(name), wanted)
    assert [job.name for job in workload.jobs] == [job.name for job in again.jobs]
    assert workload.metadata == again.metadata
    assert workload.duration_s == given_.duration_s
    assert [(job.id, job.gpus) for job in workload.jobs] == [
        (job.id, job.gpus) for job in given_.jobs
    ]
    for members in groups(workload).values():
        first = workload.jobs[members[0]]
        for one in members:
            assert workload.jobs[one].gpus == first.gpus
            assert workload.jobs[one].user == first.user
            assert workload.metadata[one] == workload.metadata[members[0]]
    for metadata, profile in zip(workload.metadata, workload.profiles, strict=True):
        assert metadata is not None
        assert not metadata.missing()
        assert profile is not None
        assert 0 < profile.gpu_util <= 100


def test_what_the_code_says_tells_the_length_only_so_well() -> None:
    """Iterations x step time must miss run times by no less than the settings say."""
    workload = assign(
        jobs(20_000), *parse_recipe("lucid:recurrence=0,spread=0.5,early=0,noise=0.4,stated=1")
    )
    recipe = Recipe.read("lucid")
    steps = {
        (c.model, c.batch_size, c.amp): c
        for lists in recipe._choices.values()
        for choices in lists
        for c in choices
    }
    errors = []
    for job, metadata, duration in zip(
        workload.jobs, workload.metadata, workload.duration_s, strict=True
    ):
        assert metadata is not None
        training = metadata.sections()["training_config"]
        model = metadata.model.model_name
        choice = steps[(model, training["batch_size"], training["precision"] == "amp")]
        seconds = training["iters"] * choice.step_s
        if training["iter_type"] == "epoch":
            assert choice.samples is not None
            seconds *= choice.samples / choice.batch_size / job.gpus
        if training["iters"] > 1:
            errors.append(math.log(seconds / max(duration, 1)))
    assert math.hypot(0.5, 0.4) < statistics.pstdev(errors) < 1.0
    assert statistics.fmean(errors) == pytest.approx(0, abs=0.1)


def test_the_run_time_of_a_job_has_no_part_in_what_its_code_states() -> None:
    """Of a job that nobody submits again, everything it states is as likely beside any run time."""

    def related(settings: str) -> float:
        work = assign(
            jobs(20_000), *parse_recipe(f"schedmate:recurrence=0,early=0,noise=0.1,{settings}")
        )
        stated, lasted = [], []
        for job, metadata, duration in zip(work.jobs, work.metadata, work.duration_s, strict=True):
            assert metadata is not None
            training = metadata.sections()["training_config"]
            if job.gpus == 1 and training["iter_type"] == "step":
                stated.append(math.log(training["iters"]))
                lasted.append(math.log(max(duration, 1)))
        assert len(stated) > 3000
        return float(np.corrcoef(stated, lasted)[0, 1])

    assert abs(related("stated=0")) < 0.05
    assert related("stated=1") > 0.7


def test_all_jobs_of_a_workload_are_misread_alike_and_as_many_as_asked_for() -> None:
    plain = assign(jobs(5_000), *parse_recipe("lucid:recurrence=0.8"))
    read = assign(jobs(5_000), *parse_recipe("lucid:recurrence=0.8,misread=0.4"))
    assert groups(plain) == groups(read)
    wrong, missing = 0, 0
    for members in groups(read).values():
        right, got = plain.metadata[members[0]], read.metadata[members[0]]
        assert right is not None
        assert got is not None
        assert all(read.metadata[one] == got for one in members)
        wrong += right != got
        missing += bool(got.missing())
    share = len(groups(read))
    # One pattern in a thousand leaves things as they are: iterations that were 1 before.
    assert wrong / share == pytest.approx(0.4, abs=0.05)
    assert 0.1 < missing / share < 0.3


def test_jobs_that_did_not_complete_are_those_that_end_early() -> None:
    given_ = jobs(5_000)
    given_.states = ["FAILED" if one % 4 == 0 else "COMPLETED" for one in range(5_000)]
    workload = assign(given_, *parse_recipe("lucid:early=0.2,spread=0.1,recurrence=0.9"))
    low = {"FAILED": 0, "COMPLETED": 0}
    for members in groups(workload).values():
        middle = statistics.median(workload.duration_s[one] for one in members)
        for one in members:
            low[workload.states[one]] += workload.duration_s[one] < middle / 3
    assert low["FAILED"] > 5 * low["COMPLETED"]


def test_large_jobs_train_large_models_more_often() -> None:
    workload = assign(jobs(20_000), *parse_recipe("lucid"))

    def mean(large: bool) -> float:
        return statistics.fmean(
            profile.gpu_util
            for job, profile in zip(workload.jobs, workload.profiles, strict=True)
            if profile is not None and (job.gpus >= 8) == large
        )

    assert mean(True) > mean(False) + 15


def test_a_million_jobs_share_their_metadata() -> None:
    workload = assign(jobs(30_000), *parse_recipe("schedmate"))
    assert len({id(one) for one in workload.metadata}) < 8_000


def test_names_and_users_of_the_trace_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "job_id,submit_s,duration_s,gpus,user,name,model,dataset,batchsize,amp,iterations,task\n"
        "a,0,90,1,ann,mine,BERT,SQuAD,32,1,500,NLP\nb,5,90,1,ann,mine,,,,,,\n"
    )
    workload = read_trace(path)
    first, second = workload.metadata
    assert second is None
    assert first is not None
    assert first.sections() == {
        "model_config": {"model_name": "BERT", "task_type": "NLP"},
        "training_config": {
            "iters": 500,
            "iter_type": None,
            "batch_size": 32,
            "precision": "amp",
            "num_gpus": 1,
        },
        "dataset_config": {"train": "SQuAD", "valid": None},
    }
    assert not workload.synthetic
    made_up = assign(workload, *parse_recipe("lucid"))
    assert {(job.user, job.name) for job in made_up.jobs} == {("ann", "mine")}
    assert "replace those of the trace" in made_up.notes[-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope", "no recipe 'nope'; there are lucid, schedmate"),
        ("lucid:recurence=1", "'recurence=1' is not a setting; there are recurrence=0.6"),
        ("lucid:recurrence=lots", "'recurrence=lots' is not a setting"),
        ("lucid:recurrence=1", "recurrence=1 is not a share"),
        ("lucid:spread=nan", "spread=nan is not from 0 to 5"),
        ("lucid:seed=-1", "seed=-1 is negative"),
    ],
)
def test_a_wrong_recipe_is_refused_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_recipe(text)


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: [")
    with pytest.raises(InputError, match="is not a recipe"):
        parse_recipe(str(path))
    path.write_text(
        """
title: one model
gpu: any
classes: [{name: all, gpus: 0, heavy: 0, medium: 1, light: 0}]
amp: {}
types:
  - {model: M, task: CV, train: D, optimizer: SGD, lr: [0.1], weight: medium, amp: never,
     batch_sizes: [8], gpu_util: [50], memory_util: [20], memory_mb: [1000], step_ms: [10]}
"""
    )
    workload = assign(jobs(50), *parse_recipe(f"{path}:seed=4"))
    assert set(workload.configs) == {"M/D/8/0"}


def test_simulate_and_check_take_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"j{n},{n * 60},{60 + n % 7 * 100},1" for n in range(40)]
    path.write_text("job_id,submit_s,duration_s,gpus\n" + "\n".join(rows) + "\n")
    run = ["simulate", str(path), "--policy", "lucid", "--cluster", "1x4", "--json"]
    result = CliRunner().invoke(app, [*run, "--workloads", "lucid:seed=2"])
    assert result.exit_code == 0, result.output
    assert "synthetic, by recipe lucid (seed 2)" in result.stderr
    assert json.loads(result.stdout)["synthetic"] is True
    result = CliRunner().invoke(app, ["traces", "check", str(path), "--workloads", "lucid:x=1"])
    assert isinstance(result.exception, UsageError)
    assert "--workloads schedmate" in CliRunner().invoke(app, ["traces", "list"]).stdout
