"""Adapters on the files of a live cluster: the same tracker and handler, real logs that grow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedmate.jobs import Progress, WorkloadMetadata
from schedmate.logparse.reading import Log, open_log
from schedmate.schedulers.adapters.modules import Advisor, LogFiles, PackingTracker, Restarts
from schedmate.schedulers.adapters.simulated import draw_ending
from schedmate.schedulers.model import Job


class Clock:
    """A live cluster's side of an observer: a clock, alarms, and a policy that would decide."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alarms: list[tuple[float, Job]] = []
        self.decided: list[Job | None] = []

    def wake(self, observer: Any, job: Job, at: float) -> None:
        self.alarms.append((at, job))

    def changed(self, job: Job | None = None) -> None:
        self.decided.append(job)


def trains(path: Path, first: int, last: int, step_s: float) -> None:
    """A job writes a line for each of its steps."""
    with path.open("a") as log:
        for step in range(first, last + 1):
            log.write(f"step {step}/100000 loss 1.{step} step_time {step_s:.3f} s\n")


@pytest.fixture
def pair() -> tuple[Job, Job]:
    first, second = Job("first", 0, 0.0, 1), Job("second", 1, 0.0, 1)
    first.allocation = second.allocation = ((0, 1),)
    return first, second


def tracker_of(tmp_path: Path, **settings: Any) -> tuple[PackingTracker, Clock]:
    tracker = PackingTracker(LogFiles(lambda job: tmp_path / f"{job.id}.log"), **settings)
    clock = Clock()
    tracker.attach(clock)
    return tracker, clock


def test_a_slowdown_is_read_from_the_file_that_a_job_writes(
    tmp_path: Path, pair: tuple[Job, Job]
) -> None:
    first, second = pair
    tracker, clock = tracker_of(tmp_path)
    tracker.started(first)
    trains(tmp_path / "first.log", 1, 200, 0.5)
    clock.now = 100.0
    first.partner, second.partner = second, first
    tracker.packed(first)
    ((at, job),) = clock.alarms
    assert job is first
    # Too little has been written since: it is read again later.
    trains(tmp_path / "first.log", 201, 205, 1.0)
    clock.now = at
    tracker.woken(first)
    assert first.slowdown is None
    trains(tmp_path / "first.log", 206, 300, 1.0)
    clock.now = clock.alarms[-1][0]
    tracker.woken(first)
    assert first.slowdown == pytest.approx(0.5, abs=0.02)
    assert clock.decided == [first]
    first.partner = None
    tracker.unpacked(first)
    assert first.slowdown is None


def test_the_log_of_a_past_job_of_the_same_kind_says_how_fast_it_is_alone(
    tmp_path: Path, pair: tuple[Job, Job]
) -> None:
    first, second = pair
    tracker = PackingTracker(
        LogFiles(lambda job: tmp_path / f"{job.id}.log", kind_of=lambda job: "resnet")
    )
    clock = Clock()
    tracker.attach(clock)
    past = Job("past", 7, 0.0, 1)
    tracker.started(past)
    trains(tmp_path / "past.log", 1, 100, 0.4)
    tracker.ended(past)
    tracker.started(first)
    first.partner = second
    tracker.packed(first)
    assert tracker.counts["by_past_job"] == 1
    trains(tmp_path / "first.log", 1, 100, 0.8)
    clock.now = 1000.0
    tracker.woken(first)
    assert first.slowdown == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("write", [lambda path: None, lambda path: path.write_bytes(b"\0\1" * 99)])
def test_a_log_that_is_gone_or_no_text_says_nothing(
    tmp_path: Path, pair: tuple[Job, Job], write: Callable[[Path], Any]
) -> None:
    first, second = pair
    tracker, clock = tracker_of(tmp_path)
    tracker.started(first)
    write(tmp_path / "first.log")
    first.partner = second
    tracker.packed(first)
    assert tracker.counts["untracked"] == 1
    assert clock.alarms == []


def test_logs_can_be_read_by_somebody_else(tmp_path: Path, pair: tuple[Job, Job]) -> None:
    asked = []

    def read(path: Path, since: int) -> Progress:
        asked.append((path.name, since))
        return Progress(source="none", reason="elsewhere")

    logs = LogFiles(lambda job: tmp_path / f"{job.id}.log", read=read)
    trains(tmp_path / "first.log", 1, 3, 1.0)
    logs.mark(pair[0])
    logs.window(pair[0]).progress()
    assert asked == [("first.log", (tmp_path / "first.log").stat().st_size)]
    assert LogFiles(lambda job: None).window(pair[0]).progress().step_time_s is None


def test_the_handler_reads_the_logs_of_a_cluster(tmp_path: Path) -> None:
    texts = {
        "broken": draw_ending(True, "ending").write("ending", 7),
        "bug": "Traceback (most recent call last):\n"
        '  File "train.py", line 3, in <module>\n    main()\n'
        "NameError: name 'optimiser' is not defined\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.0.log").write_text(text)

    class Files:
        def of_failure(self, job: str, attempt: int) -> Log | None:
            path = tmp_path / f"{job}.{attempt}.log"
            return open_log(path) if path.exists() else None

    restarts = Restarts(Files())
    assert restarts.says("broken", 0)
    assert not restarts.says("bug", 0)
    assert not restarts.says("broken", 1)
    # Who fails at about the same point again is not restarted a second time.
    assert restarts.may("broken", 1000.0)
    restarts.restarted("broken", 1000.0)
    assert not restarts.may("broken", 1010.0)
    assert restarts.may("broken", 5000.0)


def test_the_advisor_asks_the_cluster_for_metadata() -> None:
    class Cluster:
        def metadata_of(self, job: Job) -> WorkloadMetadata | None:
            return WorkloadMetadata.model_validate(
                {
                    "model_config": {"model_name": job.name, "task_type": "CV"},
                    "training_config": {"iters": 10, "iter_type": "epoch"},
                    "dataset_config": {"train": "data", "valid": "data"},
                }
            )

        def known_metadata(self) -> tuple[()]:
            return ()

    advisor = Advisor(Cluster(), latency_s=0.0)
    jobs = [Job(str(n), n, float(n), 1, name="resnet50") for n in range(2)]
    assert advisor.estimate(jobs[0]) is None
    advisor.observe(jobs[0], 50.0, completed=True)
    forecast = advisor.estimate(jobs[1])
    assert forecast is not None
    assert forecast.duration_s == pytest.approx(50.0)
