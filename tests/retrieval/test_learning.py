"""What ended runs teach the experts on run times, kept in a real history."""

from __future__ import annotations

import math
import random
import sqlite3
from pathlib import Path

import pytest

from schedmate.jobs import Estimate, JobRecord, JobSpec, LaunchConfig, WorkloadMetadata
from schedmate.retrieval.database import HistoryError
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.learning import SETTLED, RunTimes, work_name
from schedmate.retrieval.remaining import remaining_time
from schedmate.settings import load_settings

DAY = 86_400.0


def run(number: int, user: str, minutes: float, **more: object) -> JobRecord:
    """A run of `user` that ended, submitted in order of `number`."""
    begin = 1_700_000_000.0 + number * DAY / 10
    fields = {
        "job_id": f"run-{number}",
        "name": f"train-{number}",
        "user": user,
        "launch": LaunchConfig(gpus=4, time_limit_s=DAY),
        "state": "COMPLETED",
        "submit_time": begin,
        "start_time": begin,
        "end_time": begin + 60 * minutes,
        "duration_s": 60 * minutes,
    }
    return JobRecord.model_validate(fields | more)


def month(users: int = 4, runs: int = 80) -> list[JobRecord]:
    """Each user's jobs take about as long as this user's always do."""
    draw = random.Random(3)
    return [
        run(number, f"user{who}", 10 * 6**who * math.exp(draw.gauss(0, 0.1)))
        for number, who in enumerate(draw.choices(range(users), k=runs))
    ]


def opened(path: Path) -> tuple[JobHistory, RunTimes]:
    history = JobHistory.open(path, load_embedder())
    return history, RunTimes.of(history, load_settings(history=str(path)))


def ask(times: RunTimes, user: str | None, **launch: object) -> Estimate:
    config = LaunchConfig.model_validate({"gpus": 4, "time_limit_s": DAY} | launch)
    job = JobSpec(user=user, name="train-900")
    return times.estimate(WorkloadMetadata(), config, 1_800_000_000.0, job)


def learned(path: Path) -> dict[str, bytes]:
    with sqlite3.connect(path / "history.db") as database:
        return dict(database.execute("SELECT key, state FROM learned").fetchall())


def test_a_users_habit_gives_an_estimate_without_code_and_says_so(tmp_path: Path) -> None:
    history, times = opened(tmp_path)
    with history:
        history.add_many(month())
        assert ask(times, "user1").abstained  # nothing has been learned yet
        assert times.learn() == 80
        short, long = ask(times, "user0"), ask(times, "user3")
        assert short.duration_s == pytest.approx(600, rel=0.3)
        assert long.duration_s == pytest.approx(600 * 216, rel=0.3)
        assert short.duration_p10_s < short.duration_p50_s < short.duration_p90_s
        assert short.quantiles_s is not None
        assert len(short.quantiles_s) == 25
        assert short.likely_short is not None
        assert long.likely_short is not None
        assert short.likely_short > 0.9 > 0.1 > long.likely_short
        assert short.past_jobs == len({run for one in short.experts for run in one.runs}) > 0
        assert any(one.runs and "this" in one.text for one in short.experts)
        assert sum(one.weight for one in short.experts) == pytest.approx(1, abs=0.3)


def test_a_stranger_gets_no_estimate_from_the_runs_of_all(tmp_path: Path) -> None:
    history, times = opened(tmp_path)
    with history:
        history.add_many(month())
        times.learn()
        job = JobSpec(user="stranger", name="other")
        estimate = times.estimate(WorkloadMetadata(), LaunchConfig(gpus=4), None, job)
        assert estimate.abstained
        assert estimate.duration_s is None


def test_who_fails_is_known_by_user_command_and_age_where_enough_runs_tell(tmp_path: Path) -> None:
    """ann's jobs fail in half of the cases, all within ten minutes; bob's never; dan's are new."""
    draw = random.Random(8)
    runs = []
    for number in range(400):
        user = "bob" if number % 2 else "ann"
        fails = user == "ann" and draw.random() < 0.5
        minutes = draw.uniform(2, 9) if fails else draw.uniform(60, 90)
        state = "FAILED" if fails else draw.choice(["COMPLETED", "COMPLETED", "CANCELLED"])
        runs.append(run(number, user, minutes, state=state, name=f"train-{user}-{number}"))
    history, times = opened(tmp_path)
    with history:
        history.add_many(runs)
        assert ask(times, "ann").failure == []
        times.learn()
        job = {user: JobSpec(user=user, name=f"train-{user}-9") for user in ("ann", "bob", "dan")}
        asked = (WorkloadMetadata(), LaunchConfig(gpus=4, time_limit_s=DAY), 1_800_000_000.0)
        ann, bob, dan = (times.estimate(*asked, one) for one in job.values())
        ends = learned(tmp_path)
        times.forget()
        times.learn()
        assert learned(tmp_path) == ends
    assert ann.failing() == pytest.approx(0.5, abs=0.15)
    assert (bob.failing() or 0) < 0.05
    assert ann.failing(1800.0) == pytest.approx(0.0, abs=0.05)
    assert ann.failing(3 * DAY) is None  # nothing ran for so long
    assert dan.failing() is None or 0.1 < dan.failing() < 0.5
    left = remaining_time(1800.0, ann)
    assert left.failure == ann.failing(1800.0)
    assert remaining_time(0.0, Estimate()).failure is None


def test_too_wide_an_interval_abstains_with_its_distribution(tmp_path: Path) -> None:
    draw = random.Random(5)
    runs = [run(number, "ann", 10 ** draw.uniform(-1, 3.5)) for number in range(60)]
    history, times = opened(tmp_path)
    with history:
        history.add_many(runs)
        times.learn()
        estimate = ask(times, "ann")
    assert estimate.abstained
    assert estimate.duration_s is None
    assert estimate.reason is not None
    assert estimate.reason.startswith("too uncertain: p90 is ")
    assert estimate.quantiles_s
    assert 0 < (estimate.likely_short or 0) < 1


def test_fewer_runs_than_tell_which_expert_is_good_leave_it_to_similar_jobs(
    tmp_path: Path,
) -> None:
    history, times = opened(tmp_path)
    with history:
        history.add_many(month(runs=SETTLED - 1))
        times.learn()
        assert not ask(times, "user0").experts
        history.add(run(900, "user0", 10))
        times.learn()
        assert ask(times, "user0").experts


def test_each_run_is_learned_once_and_in_parts_as_at_once(tmp_path: Path) -> None:
    """Whatever is read in between, in whatever batches, by several processes in turn."""
    runs = sorted(month(), key=lambda one: one.end_time or 0.0)
    whole, whole_times = opened(tmp_path / "whole")
    with whole:
        whole.add_many(runs)
        whole_times.learn()
        assert whole_times.learn() == 0
        whole.add_many(runs)  # replaced by themselves: nothing new
        assert whole_times.learn() == 0
    for start in range(0, len(runs), 7):
        part, times = opened(tmp_path / "parts")
        with part:
            part.add_many(runs[start : start + 7])
            times.learn()
            ask(times, "user2")
    assert learned(tmp_path / "parts") == learned(tmp_path / "whole")


def test_rebuilding_gives_the_same_bit_for_bit(tmp_path: Path) -> None:
    history, times = opened(tmp_path)
    with history:
        history.add_many(month())
        times.learn()
        before = learned(tmp_path)
        times.forget()
        assert not learned(tmp_path)
        assert times.learn() == 80
    assert learned(tmp_path) == before


def test_what_another_process_learned_counts_at_once(tmp_path: Path) -> None:
    (history, times), (other, others) = opened(tmp_path), opened(tmp_path)
    with history, other:
        assert ask(times, "user0").abstained
        other.add_many(month())
        others.learn()
        assert ask(times, "user0").duration_s == ask(others, "user0").duration_s
        assert not ask(times, "user0").abstained


def test_runs_cut_short_and_jobs_that_never_ran_teach_no_run_time(tmp_path: Path) -> None:
    history, times = opened(tmp_path)
    with history:
        history.add_many(month())
        times.learn()
        before = ask(times, "user0").duration_p50_s
        waited = [run(200 + n, "user0", 0, state="CANCELLED", duration_s=None) for n in range(50)]
        history.add_many(waited)
        times.learn()
        assert ask(times, "user0").duration_p50_s == before


@pytest.mark.parametrize(
    "earlier",
    [
        (
            "DROP TRIGGER ended_now; DROP TRIGGER ended_anew; DROP TABLE learned;"
            "DROP TABLE unlearned; PRAGMA user_version = 1;"
        ),
        "UPDATE learned SET state = 'of another form'; PRAGMA user_version = 2;",
    ],
)
def test_a_history_of_an_earlier_version_is_learned_whole_and_can_be_read_before(
    tmp_path: Path, earlier: str
) -> None:
    history, times = opened(tmp_path)
    with history:
        history.add_many(month())
        times.learn()
    with sqlite3.connect(tmp_path / "history.db") as database:
        database.executescript(earlier)
    with JobHistory.open(tmp_path, load_embedder(), read_only=True) as reader:
        settings = load_settings(history=str(tmp_path))
        assert ask(RunTimes.of(reader, settings), "user0").abstained
    history, times = opened(tmp_path)
    with history:
        assert times.learn() == 80
        assert not ask(times, "user0").abstained


def test_damaged_parts_are_named_with_what_to_do(tmp_path: Path) -> None:
    history, times = opened(tmp_path)
    with history:
        history.add_many(month())
        times.learn()
    with sqlite3.connect(tmp_path / "history.db") as database:
        database.execute("UPDATE learned SET state = x'00ff' WHERE key LIKE '[\"weights%'")
    history, times = opened(tmp_path)
    with history, pytest.raises(HistoryError, match="schedmate history rebuild"):
        ask(times, "user0")


def test_the_settings_choose_similar_jobs_alone(tmp_path: Path) -> None:
    history, times = opened(tmp_path)
    with history:
        history.add_many(month())
        times.learn()
        alone = load_settings(history=str(tmp_path), method="weighted")
        assert ask(RunTimes.of(history, alone), "user0").abstained


@pytest.mark.parametrize(
    ("name", "command", "same_as"),
    [
        ("train-17", "python train.py --lr 1", ("train-18", "python train.py --lr 2")),
        (None, "torchrun --nproc 4 run.py", (None, "torchrun --nproc 8 run.py")),
        ("a", None, ("a", None)),
    ],
)
def test_the_same_work_has_one_name(
    name: str | None, command: str | None, same_as: tuple[str | None, str | None]
) -> None:
    assert work_name(WorkloadMetadata(), name, command) == work_name(WorkloadMetadata(), *same_as)
    assert work_name(WorkloadMetadata(), name, command) != work_name(
        WorkloadMetadata(), "another", "python other.py"
    )


def test_work_without_a_name_has_none_and_odd_commands_are_read() -> None:
    assert work_name(WorkloadMetadata(), None, None) is None
    assert work_name(WorkloadMetadata(), None, "") is None
    assert work_name(WorkloadMetadata(), None, "python 'train.py") is not None
