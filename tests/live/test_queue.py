"""The queue of `schedmate ray` over real processes, without Ray."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from processes import ends
from queues import Make, Queue, Told, order, until_news

from schedmate.cluster.ray.adapter import QueueAdapter
from schedmate.cluster.ray.controller import expected_starts, waiting_reasons
from schedmate.cluster.ray.runner import Runner
from schedmate.cluster.ray.supervise import marked
from schedmate.schedulers.model import Job
from schedmate.schedulers.policy import Evict, Observer, Pack, Preempt, Resize


def process_of(queue: Queue, job: int) -> int:
    """The process of a job's command."""
    mark = queue.job(job).mark
    found = []
    for pid in marked(mark):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"work.py" in line and b"sh\0-c" not in line:
            found.append(pid)
    (pid,) = found
    return pid


# what runs


def test_jobs_run_on_gpus_of_their_own_and_leave_logs(make: Make) -> None:
    queue = make("fifo", 2, 2)
    jobs = [queue.submit_work(f"w{n}") for n in range(4)]
    queue.runs(*jobs)
    late = queue.submit_work("late", 1)
    seen = {
        (queue.store.runs_of(job)[0].places[0].name, queue.text(job).split()[-1]) for job in jobs
    }
    assert seen == {(node, gpu) for node in ("node0", "node1") for gpu in "01"}
    queue.until(lambda: bool(waiting_reasons(queue.queue)))
    assert waiting_reasons(queue.queue)[late] == "asks for 1 GPU; 0 free, at most 0 on one node"
    queue.go("w2")
    assert queue.over(jobs[2], late) == ["COMPLETED", "COMPLETED"]
    assert queue.job(jobs[0]).state == "RUNNING"


def test_a_job_on_several_nodes_ends_when_one_of_its_commands_fails(
    make: Make, tmp_path: Path
) -> None:
    queue = make("fifo", 2, 2)
    said = tmp_path / "said"
    job = queue.submit(
        "echo $SCHEDMATE_NODE_RANK of $SCHEDMATE_NNODES\n"
        "if [ $SCHEDMATE_NODE_RANK = 1 ]; then\n"
        f"  until [ -e {said} ]; do sleep 0.05; done; exit 3\n"
        "fi\n"
        f"touch {said}; exec sleep 1000",
        gpus=4,
    )
    assert queue.over(job) == ["FAILED"]
    assert queue.job(job).why == "exit code 3"
    assert [queue.text(job, rank=rank) for rank in (0, 1)] == ["0 of 2\n", "1 of 2\n"]
    assert not marked(queue.job(job).mark)


def test_what_cannot_be_run_fails_with_its_reason(make: Make, tmp_path: Path) -> None:
    queue = make("fifo", 1)
    gone = queue.submit("true")
    wrong = queue.submit("no-such-program-here")
    with queue.store.writing():
        queue.store._db.execute(
            "UPDATE jobs SET request = replace(request, ?, ?) WHERE id = ?",
            (str(tmp_path), str(tmp_path / "gone"), gone),
        )
    assert queue.over(gone, wrong) == ["FAILED", "FAILED"]
    assert "cannot be started" in queue.text(gone)
    assert "not found" in queue.text(wrong)


def test_the_processes_of_a_job_end_with_it(make: Make) -> None:
    queue = make("fifo", 1)
    # what goes into a session of its own, and closes what it has open
    job = queue.submit("setsid sleep 1000 <&- >&- 2>&- & setsid -f sleep 1000; sleep 0.1")
    assert queue.over(job) == ["COMPLETED"]
    assert not marked(queue.job(job).mark)


def test_a_time_limit_counts_all_the_time_with_gpus(make: Make) -> None:
    queue = make("fifo", 1)
    job = queue.submit_work("w", limit_s=0.5, grace_s=10)
    assert queue.over(job) == ["TIMEOUT"]
    assert "saved" in queue.text(job)


def test_cancel_hold_and_release(make: Make) -> None:
    queue = make("fifo", 1)
    first, held, last = (queue.submit_work(name) for name in ("a", "b", "c"))
    queue.store.change(held, asked=True, held=1)
    queue.runs(first)
    queue.queue.tick(0.01)
    assert waiting_reasons(queue.queue)[held] == "held"
    queue.store.change(first, asked=True, cancelled=1)
    queue.runs(last)
    assert queue.job(first).state == "CANCELLED"
    queue.store.change(held, asked=True, held=0)
    queue.go("c")
    queue.runs(held)
    queue.store.change(held, asked=True, cancelled=1)
    assert queue.over(held, last) == ["CANCELLED", "COMPLETED"]


def test_a_job_submitted_twice_with_one_mark_is_one_job(make: Make) -> None:
    queue = make("fifo", 1)
    job = queue.submit("true")
    stored = queue.job(job)
    assert queue.store.submit(stored.mark, stored.request, time.time()) == job


def test_waiting_jobs_are_told_when_they_begin(make: Make) -> None:
    queue = make("fifo", 2)
    running = queue.submit_work("a", gpus=2, limit_s=1000)
    queue.runs(running)
    waiting = [queue.submit_work(name, gpus=2, limit_s=500) for name in "bc"]
    queue.until(lambda: len(waiting_reasons(queue.queue)) == 2)
    found, now = expected_starts(queue.queue, {running: time.time() + 300}), time.time()
    assert 290 < found[waiting[0]] - now <= 300
    assert 790 < found[waiting[1]] - now <= 800
    large = queue.submit("true", gpus=9)
    queue.until(lambda: large in waiting_reasons(queue.queue))
    assert waiting_reasons(queue.queue)[large] == "asks for 9 GPUs, the cluster has 2"


# what policies decide


def test_a_preempted_job_saves_and_goes_on_from_there(make: Make) -> None:
    queue = make(Told, 1)
    job = queue.submit_work("w")
    queue.runs(job)
    place = queue.folder / "w"
    queue.until(lambda: place.exists() and int(place.read_text()) > 5)
    Told.next = lambda view: [Preempt(one) for one in view.running]
    queue.queue.changed()
    queue.until(lambda: queue.outcomes(job)[0] == "PREEMPTED")
    saved = int(queue.text(job, 0).split("saved ")[1].split()[0])
    queue.until(lambda: len(queue.outcomes(job)) == 2 and "began" in queue.text(job))
    assert int(queue.text(job).split("began at ")[1].split()[0]) == saved > 5
    assert queue.job(job).preemptions == 1
    queue.go("w")
    assert queue.over(job) == ["COMPLETED"]


def test_an_elastic_job_is_started_anew_with_more_gpus(make: Make) -> None:
    queue = make(Told, 2)
    job = queue.submit_work("w", gpus=1, min_gpus=1, max_gpus=2)
    queue.runs(job)
    Told.next = lambda view: [Resize(one, ((0, 0b11),)) for one in view.running]
    queue.queue.changed()
    queue.until(lambda: "RESIZED" in queue.outcomes(job))
    queue.until(lambda: len(queue.outcomes(job)) == 2 and "0,1" in queue.text(job))
    queue.go("w")
    assert queue.over(job) == ["COMPLETED"]


class Notes(Observer):
    """What it was told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []

    def started(self, job: Job) -> None:
        self.said.append(("started", job.index))

    def packed(self, job: Job) -> None:
        self.said.append(("packed", job.index))

    def unpacked(self, job: Job) -> None:
        self.said.append(("unpacked", job.index))

    def ended(self, job: Job) -> None:
        self.said.append(("ended", job.index))

    def stopped(self, job: Job) -> None:
        self.said.append(("stopped", job.index))


def test_a_pair_shares_gpus_and_is_parted(make: Make) -> None:
    notes = Notes()
    queue = make(Told, 1, observers=[notes])
    first, second = queue.submit_work("a"), 0
    queue.runs(first)
    second = queue.submit_work("b")
    Told.next = lambda view: [Pack(one, other) for one in view.pending for other in view.running]
    queue.runs(second)
    assert queue.text(first).split()[-1] == queue.text(second).split()[-1] == "0"
    assert queue.backend.created == 1
    assert notes.said == [("started", first), ("started", second), ("packed", first)]
    Told.next = lambda view: [Evict(job) for job in view.running if job.index == second]
    queue.queue.changed()
    queue.until(lambda: queue.outcomes(second) == ["EVICTED"])
    queue.until(lambda: ("unpacked", first) in notes.said)
    assert queue.job(second).evictions == 1
    # the one that was there first leaves, and its GPUs are the other's alone
    Told.next = lambda view: [Pack(one, other) for one in view.pending for other in view.running]
    queue.queue.changed()
    queue.until(lambda: len(queue.outcomes(second)) == 2 and "began" in queue.text(second))
    queue.go("a")
    assert queue.over(first) == ["COMPLETED"]
    assert queue.job(second).state == "RUNNING"
    waiting = queue.submit_work("c")
    queue.until(lambda: waiting in waiting_reasons(queue.queue))
    assert "0 free" in waiting_reasons(queue.queue)[waiting]
    queue.go("b")
    queue.runs(waiting)


def test_lucid_profiles_a_job_with_what_measures_it(make: Make) -> None:
    queue = make(
        "lucid:profiler_nodes=1:profile_limit_s=4", 1, 1, 1, 1, meter=("echo", "40, 20, 3000")
    )
    job = queue.submit_work("w")
    queue.until(lambda: queue.outcomes(job)[:1] == ["PROFILED"])
    profiled = queue.store.runs_of(job)[0]
    assert profiled.places[0].name == "node3"
    queue.runs(job)
    assert queue.store.runs_of(job)[1].places[0].name != "node3"
    assert queue.job(job).profile == {"gpu_util": 40, "memory_util": 20, "memory_mb": 3000}


# what goes wrong


def test_a_queue_that_was_killed_takes_its_jobs_up_again(make: Make) -> None:
    queue = make("fifo", 2)
    jobs = [queue.submit_work(name) for name in "abc"]
    queue.runs(*jobs[:2])
    late = queue.submit_work("d", 1)
    ending = process_of(queue, jobs[1])
    queue.go("b")
    assert ends(ending)  # while nobody looks
    queue.reopen()
    queue.runs(jobs[2])
    for name in "ac":
        queue.go(name)
    assert queue.over(*jobs, late) == ["COMPLETED"] * 4
    assert [queue.outcomes(job) for job in (*jobs, late)] == [["COMPLETED"]] * 4
    assert all((queue.folder / f"{name}.ends").read_text() == "end\n" for name in "abcd")


def test_a_queue_that_was_killed_between_decision_and_start(make: Make) -> None:
    queue = make("fifo", 1)
    job = queue.submit_work("w")
    stored = queue.job(job)
    # all that is left of it is the intent
    from schedmate.cluster.ray.store import Place

    queue.store.begin(stored, "run", [Place("id0", "node0", 1)], str(queue.folder / "logs"), 0.0)
    queue.options = queue.options._replace(lease_s=1.0)
    queue.reopen()
    queue.runs(job)
    assert queue.outcomes(job)[0] == "LOST"


def test_a_lost_node_and_its_lease(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the clock is set forward meanwhile."""
    queue = make("fifo", 1, 1, lease_s=2.0)
    job = queue.submit_work("w")
    queue.runs(job)
    (place,) = queue.store.runs_of(job)[0].places
    before = process_of(queue, job)
    lost_at = time.monotonic()
    queue.backend.lose(place.node)
    queue.until(lambda: queue.outcomes(job)[0] == "LOST")
    monkeypatch.setattr(queue.queue, "_clock", lambda: time.time() + 3600)
    queue.until(lambda: len(queue.outcomes(job)) >= 2)
    assert time.monotonic() - lost_at >= 2.0  # a node that is gone may still run it until then
    assert ends(before)
    first, second, *_ = queue.store.runs_of(job)
    assert first.outcome == "LOST"
    assert second.places[0].node != place.node
    queue.runs(job)
    queue.backend.alive.append(queue.backend.alive[0]._replace(id="id9", name="node9"))
    other = queue.submit_work("x")
    queue.runs(other)
    assert queue.store.runs_of(other)[0].places[0].name == "node9"


def test_a_restarted_queue_waits_for_the_lease_of_a_lost_run_again(make: Make) -> None:
    """The clock, by which the rest of the lease was stored, may have been set since."""
    queue = make("fifo", 1, 1, lease_s=2.0)
    job = queue.submit_work("w")
    queue.runs(job)
    queue.backend.lose(queue.store.runs_of(job)[0].places[0].node)
    queue.until(lambda: queue.outcomes(job)[0] == "LOST")
    queue.reopen(clock=lambda: time.time() + 3600)
    began = time.monotonic()
    queue.until(lambda: len(queue.outcomes(job)) >= 2)
    assert time.monotonic() - began >= 2.0


def test_a_killed_supervisor_takes_the_command_along(make: Make) -> None:
    queue = make("fifo", 1)
    job = queue.submit_work("w")
    queue.runs(job)
    pid = process_of(queue, job)
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"supervise" in Path(f"/proc/{parent}/cmdline").read_bytes()
    os.kill(parent, signal.SIGKILL)
    assert ends(pid)
    queue.until(lambda: len(queue.outcomes(job)) == 2)
    assert queue.outcomes(job)[0] == "LOST"
    queue.runs(job)


def test_a_killed_command_is_a_failure_of_the_job(make: Make) -> None:
    queue = make("fifo", 1)
    job = queue.submit_work("w")
    queue.runs(job)
    os.kill(process_of(queue, job), signal.SIGKILL)
    assert queue.over(job) == ["FAILED"]
    assert queue.job(job).why == "signal 9"


def test_a_log_that_is_gone_hurts_nobody(make: Make) -> None:
    queue = make("fifo", 1)
    job = queue.submit_work("w")
    queue.runs(job)
    (Path(queue.store.runs_of(job)[0].folder) / "rank0.log").unlink()
    queue.go("w")
    assert queue.over(job) == ["COMPLETED"]


def test_a_command_ends_when_nobody_asks_after_it(tmp_path: Path) -> None:
    runner = Runner(["0"], ())
    runner.start(order(tmp_path, 1, "exec sleep 1000", lease_s=0.5))
    (news,) = until_news(runner, beat=False)
    assert news.report["why"] == "lease"
    assert runner.wait(0.0, [1]) == []


def test_a_command_lives_for_as_long_as_somebody_asks(tmp_path: Path) -> None:
    runner = Runner(["0"], ())
    runner.start(order(tmp_path, 1, "sleep 3", lease_s=2.0))
    (news,) = until_news(runner)
    assert news.report["exit_code"] == 0
    assert runner.wait(0.0) == [news]  # said again until it was heard


def test_a_second_copy_of_a_job_ends_the_first_or_is_refused(tmp_path: Path) -> None:
    first, second = Runner(["0"], ()), Runner(["1"], ())
    first.start(order(tmp_path, 2, "exec sleep 1000"))
    # an order of earlier than what runs is refused, and what runs goes on
    assert "still live" in second.start(order(tmp_path, 1, "true"))["refused"]
    assert first.describe()["runs"] == [2]
    # a later one ends what is left over of the earlier
    # (it is refused while the first is not yet the command, or still holds the lock)
    for _ in range(600):
        if "started" in (answer := second.start(order(tmp_path, 3, "exec sleep 1000"))):
            break
        time.sleep(0.1)
    assert "started" in answer
    (news,) = until_news(first)
    assert news.report["signal"] == signal.SIGKILL
    second.stop(3, signal.SIGKILL)
    assert until_news(second)


# for the reconcile loop


def test_the_adapter_drains_and_puts_back(make: Make) -> None:
    from schedmate.cluster.actions import Drain, Requeue, Resume

    queue = make("fifo", 1, 1)
    adapter = QueueAdapter(queue.store, "alpha", queue.backend.nodes)
    job = queue.submit("exit 4")
    assert queue.over(job) == ["FAILED"]
    (ended,) = adapter.ended(0.0)
    assert (ended.record.state, adapter.restarts(ended)) == ("FAILED", 0)
    assert adapter.log_path(ended, "", queue.job(job).request.spec) == Path(ended.log)
    (node,) = ended.nodes
    again = Requeue(job=str(job), run=0, exclude=(node,))
    assert adapter.probe(again).state == "ready"
    assert adapter.act(again, key="k", timeout_s=1).outcome == "done"
    assert adapter.probe(again).state in ("done", "moot")
    queue.until(lambda: len(queue.outcomes(job)) == 2 and queue.outcomes(job)[1] == "FAILED")
    assert queue.store.runs_of(job)[1].places[0].name != node
    assert len({run.run for run in adapter.ended(0.0)}) == 2
    drain = Drain(node=node, mark="ecc-error-0123456789ab")
    assert adapter.probe(drain).state == "ready"
    adapter.act(drain, key="k", timeout_s=1)
    assert adapter.probe(drain).state == "done"
    queue.until(lambda: bool(queue.queue.board and queue.queue.board.view.draining))
    first, second = queue.submit_work("a"), queue.submit_work("b")
    queue.runs(first)
    assert queue.store.runs_of(first)[0].places[0].name != node
    assert queue.job(second).state == "PENDING"
    resume = Resume(node=node, mark="ecc-error-0123456789ab")
    assert adapter.probe(resume).state == "ready"
    adapter.act(resume, key="k", timeout_s=1)
    queue.runs(second)
    assert adapter.probe(resume).state == "moot"
