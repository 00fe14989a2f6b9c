"""Runs of the queue that are told to stop while something else happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from queues import Make, Queue, Told

from schedmate.schedulers.policy import Preempt

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


@pytest.mark.parametrize("runners", ["live", "dead"])
def test_a_preempted_job_is_put_back_by_a_queue_that_was_restarted(
    make: Make, runners: str
) -> None:
    queue = make(Told, 1)
    job = queue.submit_work("w")
    queue.runs(job)
    preempt(queue, job)
    if runners == "dead":
        report = Path(queue.store.runs_of(job)[0].folder + ".rank0.json")
        queue.wait(report.exists)
        for runner in list(queue.backend.runners.values()):
            queue.backend.kill(runner)
    queue.reopen()
    queue.until(lambda: len(queue.outcomes(job)) == 2)
    assert queue.outcomes(job)[0] == "PREEMPTED"
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
