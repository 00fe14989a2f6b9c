"""How far runs of one job lie apart: learned, or measured elsewhere."""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from schedmate.jobs import JobRecord, JobState, LaunchConfig, WorkloadMetadata
from schedmate.retrieval.advisor import SchedulingAdvisor
from schedmate.retrieval.database import DATABASE
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import JobHistory, MemoryHistory
from schedmate.retrieval.run_time import (
    LEAST_SPREAD,
    SPREAD_JOBS,
    Adjustment,
    grouped_quantile,
    learn_spread,
    measured_spreads,
)


def metadata(model: str, iters: int = 10) -> WorkloadMetadata:
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": model, "task_type": "CV"},
            "training_config": {"iters": iters, "iter_type": "epoch"},
        }
    )


def job(
    number: int, model: str, duration_s: float, state: JobState = "COMPLETED", iters: int = 10
) -> JobRecord:
    return JobRecord(
        job_id=f"{number:05}",
        metadata=metadata(model, iters),
        state=state,
        submit_time=100.0 * number,
        end_time=100.0 * number + 50,
        duration_s=duration_s,
    )


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[JobHistory]:
    with JobHistory.open(tmp_path / "history", load_embedder()) as history:
        yield history


def repeated(factor: float, jobs: int, runs: int = 3) -> list[tuple[str, float]]:
    return [(f"job {n}", 100.0 * factor**run) for n in range(jobs) for run in range(runs)]


def test_without_resubmissions_it_is_what_was_measured_elsewhere() -> None:
    for runs in ([], [("a", 1.0), ("b", 900.0)]):
        spread = learn_spread(runs)
        assert spread.jobs == 0
        assert spread.distance == measured_spreads()["exact"]


def test_a_history_that_repeats_itself_closely_teaches_a_small_distance() -> None:
    distances = [learn_spread(repeated(1.05, jobs)).distance for jobs in (0, 1, 10, 200)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] == pytest.approx(math.log(1.05), rel=0.2)
    assert learn_spread(repeated(9.0, 200)).distance == pytest.approx(math.log(9.0), rel=0.1)


def test_equal_runs_teach_no_certainty() -> None:
    assert learn_spread(repeated(1.0, 500)).distance > LEAST_SPREAD


def test_one_job_that_runs_all_the_time_does_not_speak_for_the_others() -> None:
    busy = [("busy", 100.0)] * 400
    assert learn_spread(busy + repeated(5.0, 20)).distance > math.log(3)


def test_apart() -> None:
    assert grouped_quantile([], 0.8) is None
    assert grouped_quantile([[1, 2, 3, 4, 5]], 0.8) == 4
    assert grouped_quantile([[0.0] * 100, [1.0], [2.0], [3.0]], 0.8) == 3


def test_what_differs_adds_to_the_distance() -> None:
    spread = learn_spread([])
    same = spread.between(True, Adjustment())
    assert same == spread.distance
    for differs in (
        spread.between(False, Adjustment()),
        spread.between(True, Adjustment(gpus_doubt=0.5)),
        spread.between(True, Adjustment(other_gpu=True)),
        spread.between(True, Adjustment(unknown_length=True)),
    ):
        assert differs > same


def test_memory_and_disk_answer_alike(stored: JobHistory) -> None:
    draw = random.Random(3)
    memory = MemoryHistory(load_embedder())
    states: list[JobState] = ["COMPLETED", "COMPLETED", "FAILED", "CANCELLED"]
    models = ("resnet18", "resnet50", "vgg16", "gpt2", "bert-base", "t5")
    jobs = [
        job(n, draw.choice(models), math.exp(draw.gauss(6, 1)), draw.choice(states), n % 7 + 1)
        for n in range(SPREAD_JOBS + 100)
    ]
    memory_says, disk_says = (SchedulingAdvisor(one) for one in (memory, stored))
    for start in range(0, len(jobs), 70):
        for one in jobs[start : start + 70]:
            memory.add(one)
        stored.add_many(jobs[start : start + 70])
        assert memory.spread() == stored.spread()
        for asked in (metadata("resnet50", 3), metadata("vgg16", 40)):
            now = 100.0 * (start + 200)
            one, other = (
                advisor.estimate(asked, LaunchConfig(), now) for advisor in (memory_says, disk_says)
            )
            assert one.abstained == other.abstained == (one.interval_basis is None)
            if one.interval_basis is not None and other.interval_basis is not None:
                assert one.interval_basis.text == other.interval_basis.text
                # similarities are rounded differently
                assert one.duration_p10_s == pytest.approx(other.duration_p10_s)
                assert one.duration_s == pytest.approx(other.duration_s)
                assert one.duration_p90_s == pytest.approx(other.duration_p90_s)


def test_a_history_is_looked_at_again_when_it_has_grown(stored: JobHistory) -> None:
    stored.add_many(job(n, f"model {n}", 100) for n in range(100))
    assert stored.spread().jobs == 0
    stored.add(job(100, "model 1", 105))
    assert stored.spread().jobs == 0
    stored.add_many(job(n, "model 2", 105) for n in range(101, 110))
    assert stored.spread().jobs == 2


def test_runs_without_a_time_of_submission_teach_nothing(stored: JobHistory) -> None:
    untimed = [job(n, "resnet50", 100).model_copy(update={"submit_time": None}) for n in range(9)]
    memory = MemoryHistory(load_embedder())
    stored.add_many(untimed)
    for one in untimed:
        memory.add(one)
    assert memory.spread() == stored.spread() == learn_spread([])


def test_a_damaged_record_teaches_nothing_and_is_in_nobodys_way(stored: JobHistory) -> None:
    stored.add_many(job(n, "resnet50", 100 + n) for n in range(3))
    with closing(sqlite3.connect(stored.path / DATABASE)) as database, database:
        database.execute("UPDATE jobs SET document = '{' WHERE job_id = '00001'")
    assert stored.spread() == learn_spread([("a", 100), ("a", 102)])
