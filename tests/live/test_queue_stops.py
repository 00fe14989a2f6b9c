"""Runs of the queue that are told to stop while something else happens."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from queues import LONG_S, Make, Queue, Told, order, until_news

from schedmate.cluster.ray import supervise
from schedmate.cluster.ray.runner import Runner
from schedmate.cluster.ray.supervise import marked
from schedmate.schedulers.policy import Pack, Preempt

SLOW_TO_END = (
    "trap 'until [ -e {0}.go ]; do sleep 0.02; done; echo ended; exit 0' TERM; "
    "echo began; while :; do sleep 0.02; done"
)
"""Ends well once it was told to, but not before there is a file NAME.go."""


def preempt(queue: Queue, job: int) -> None:
    """Tick until the queue has decided to preempt a job, and no further."""
    Told.next = lambda view: [Preempt(one) for one in view.running]
    queue.queue.changed()
    queue.until(lambda: Told.next is None)
    assert queue.outcomes(job)[-1] == ""


@pytest.mark.parametrize("runners", ["live", "dead", "dead, and the job wrote their report"])
def test_a_preempted_job_is_put_back_by_a_queue_that_was_restarted(
    make: Make, runners: str
) -> None:
    queue = make(Told, 1)
    job = queue.submit_work("w")
    queue.runs(job)
    preempt(queue, job)
    if runners != "live":
        report = Path(queue.store.runs_of(job)[0].folder + ".rank0.json")
        queue.wait(report.exists)
        for runner in list(queue.backend.runners.values()):
            queue.backend.kill(runner)
        if runners != "dead":
            report.write_text('{"exit_code": 0, "started": 9e99, "ended": "x", "use": {"a": 1}}')
    queue.reopen()
    queue.until(lambda: len(queue.outcomes(job)) == 2)
    assert queue.outcomes(job)[0] == "PREEMPTED"
    assert queue.job(job).service_s < LONG_S
    assert queue.job(job).preemptions == queue.queue.jobs[job].preemptions == 1
    queue.runs(job)
    queue.go("w")
    assert queue.over(job) == ["COMPLETED"]


def test_a_stop_that_was_stored_but_not_sent_is_sent_after_a_restart(make: Make) -> None:
    queue = make(Told, 1)
    job = queue.submit_work("w")
    queue.runs(job)
    queue.store.stopping(queue.store.runs_of(job)[0].id, "TIMEOUT")
    queue.reopen()
    assert queue.over(job) == ["TIMEOUT"]
    assert "saved" in queue.text(job)


def test_what_was_cancelled_while_the_queue_was_down_is_cancelled(make: Make) -> None:
    queue = make("fifo", 1)
    running, waiting = queue.submit_work("a"), queue.submit_work("b")
    queue.runs(running)
    for job in (running, waiting):
        queue.store.change(job, asked=True, cancelled=1)
    queue.reopen()
    assert queue.over(running, waiting) == ["CANCELLED"] * 2
    assert queue.outcomes(waiting) == []


def test_a_job_that_is_being_cancelled_is_not_preempted_instead(make: Make) -> None:
    queue = make(Told, 1)
    job = queue.submit(SLOW_TO_END.format("w"), grace_s=600)
    queue.runs(job)
    queue.store.change(job, asked=True, cancelled=1)
    queue.until(lambda: queue.store.runs_of(job)[0].stop == "CANCELLED")
    preempt(queue, job)
    queue.go("w")
    assert queue.over(job) == ["CANCELLED"]
    assert queue.outcomes(job) == ["CANCELLED"]


# while a run is being started


def test_a_job_that_is_cancelled_during_its_start_does_not_run_on(make: Make) -> None:
    queue = make("fifo", 1)
    gate = queue.backend.gates["start"] = Event()
    job = queue.submit("exec sleep 1000")
    queue.until(lambda: bool(queue.store.runs_of(job)))
    queue.until(lambda: queue.queue.seats._gangs[queue.store.runs_of(job)[0].id].sent)
    queue.store.change(job, asked=True, cancelled=1)
    queue.until(lambda: queue.store.runs_of(job)[0].stop == "CANCELLED")
    queue.queue.tick(0.0)
    gate.set()
    assert queue.over(job) == ["CANCELLED"]
    assert not marked(queue.job(job).mark)


def test_a_runner_that_is_starting_a_command_hears_that_it_is_to_stop(tmp_path: Path) -> None:
    runner, answers = Runner(["0"], ()), list[dict[str, Any]]()
    work = order(tmp_path, 1, "exec sleep 1000")
    threads = [
        Thread(target=lambda: answers.append(runner.start(work))),
        Thread(target=runner.stop, args=(1, signal.SIGTERM, 60.0)),
    ]
    with runner._lock:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    if "started" in answers[0]:
        (news,) = until_news(runner)
        assert (news.report["why"], news.report["signal"]) == ("told", signal.SIGTERM)
    assert not marked(work.job)


def test_a_stop_that_overtakes_the_order_is_not_forgotten(tmp_path: Path) -> None:
    runner = Runner(["0"], ())
    runner.stop(1)
    assert "asked to stop" in runner.start(order(tmp_path, 1, "exec sleep 1000"))["refused"]
    assert runner.describe()["runs"] == []


def test_a_job_whose_partner_left_while_it_was_started_has_no_gpus_of_others(make: Make) -> None:
    queue = make(Told, 1)
    first = queue.submit_work("a")
    queue.runs(first)
    gate = queue.backend.gates["start"] = Event()
    second = queue.submit_work("b")
    Told.next = lambda view: [Pack(one, other) for one in view.pending for other in view.running]
    queue.until(lambda: bool(queue.store.runs_of(second)))
    queue.queue.tick(0.0)
    queue.backend.gates.clear()
    queue.go("a")
    assert queue.over(first) == ["COMPLETED"]
    third = queue.submit_work("c")
    queue.runs(third)
    gate.set()
    queue.until(lambda: queue.outcomes(second) == ["EVICTED"])
    assert queue.job(second).state == "PENDING"
    assert queue.job(third).state == "RUNNING"
    for name in "bc":
        queue.go(name)
    assert queue.over(second, third) == ["COMPLETED"] * 2


# until nothing is left

UNKILLABLE = """\
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import supervise
kill = os.kill
def refuse(pid, number):
    if pathlib.Path(sys.argv[2]).exists():
        kill(pid, number)
os.kill = refuse
supervise.kill_marked.__defaults__ = (None, 0.05)
supervise.main()
"""
"""The supervisor, where processes outside the command's group outlive SIGKILL for a while."""


def test_a_run_has_not_ended_while_a_process_of_it_cannot_be_killed(tmp_path: Path) -> None:
    dead = tmp_path / "may die"
    stays = "setsid -f sh -c 'touch there; while :; do sleep 1; done'"
    work = order(tmp_path, 1, f"{stays}; until [ -e there ]; do sleep 0.02; done")
    environment = {**os.environ, supervise.MARK: work.mark}
    place = str(Path(supervise.__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", UNKILLABLE, place, str(dead)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={},
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = {**work._asdict(), "mark": work.mark, "env": environment}
        process.stdin.write(json.dumps(said).encode() + b"\n")
        process.stdout.readline()
        for _ in range(5):  # what is said meanwhile is no trouble
            process.stdin.write(b"beat\n")
            assert not select.select([process.stdout], [], [], 0.2)[0]
        assert marked(work.mark)
        assert not Path(work.report).exists()
        dead.touch()
        assert json.loads(process.stdout.readline())["exit_code"] is not None
    assert not marked(work.mark)
    assert Path(work.report).exists()


# what goes wrong meanwhile


def test_an_end_that_could_not_be_stored_is_stored_later(make: Make) -> None:
    queue = make("fifo", 2)
    jobs = [queue.submit_work(name) for name in "ab"]
    queue.runs(*jobs)
    queue.store._db.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON runs WHEN NEW.state = 'ended' "
        "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    )
    for name in "ab":
        queue.go(name)
    for _ in range(3):
        with pytest.raises(Exception, match="the disk is full"):
            queue.over(*jobs)
    queue.store._db.execute("DROP TRIGGER full")
    late = queue.submit_work("b")
    assert queue.over(*jobs, late) == ["COMPLETED"] * 3


# held jobs


def test_a_job_that_is_released_waits_for_as_long_as_it_had_to(make: Make) -> None:
    queue = make("fifo", 1)
    job = queue.submit("true")
    queue.store.change(job, held=1, not_before=time.time() + 1000)
    queue.queue.tick(0.0)
    assert queue.job(job).held
    queue.store.change(job, asked=True, held=0)
    for _ in range(3):
        queue.queue.tick(0.0)
    assert queue.store.runs_of(job) == []
    assert queue.queue.outside(job) == queue.job(job).not_before


@pytest.mark.parametrize("how", ["preempted", "lost"])
def test_a_job_that_was_held_while_it_ran_is_not_started_again(make: Make, how: str) -> None:
    queue = make(Told, 1)
    job = queue.submit_work("w")
    queue.runs(job)
    queue.store.change(job, asked=True, held=1)
    if how == "preempted":
        preempt(queue, job)
    else:
        for runner in list(queue.backend.runners.values()):
            queue.backend.kill(runner)
    queue.until(lambda: queue.outcomes(job) in (["PREEMPTED"], ["LOST"]))
    for _ in range(3):
        queue.queue.tick(0.0)
    assert len(queue.outcomes(job)) == 1
    queue.store.change(job, asked=True, held=0)
    queue.runs(job)
