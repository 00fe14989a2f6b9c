"""The queue actor's class in this process: estimates, failures, what clients ask."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_runner import Cli
from thread_seats import ThreadBackend

from schedmate.base.terminal import Screen
from schedmate.cluster.ray.runs import report_of
from schedmate.cluster.ray.store import QueueDocument, Request, new_mark
from schedmate.cluster.record import Record
from schedmate.commands.ray import no_log, show_queue
from schedmate.commands.ray_service import QueueSetup, Service
from schedmate.jobs import JobSpec, LaunchConfig

TRAIN = """\
import os, sys
print("step 1 loss 2.0")
if os.environ["SCHEDMATE_RUN"] == "0":
    print('Traceback (most recent call last):\\n  File "train.py", line 9, in <module>\\n'
          'RuntimeError: CUDA error: uncorrectable ECC error encountered', file=sys.stderr)
    sys.exit(1)
"""

Open = Callable[..., Service]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    made: list[Service] = []

    def open_service(policy: str, *nodes: int, **more: object) -> Service:
        state = str(tmp_path / "state")
        setup = QueueSetup("t", state, policy, state, poll_s=0.2, **more)  # type: ignore[arg-type]
        made.append(Service(setup, ThreadBackend(*nodes)))
        return made[-1]

    yield open_service
    for one in made:
        one.close()


def submit(service: Service, repo: Path, command: str, gpus: int = 1) -> int:
    spec = JobSpec(repo=str(repo), command=command, launch=LaunchConfig(gpus=gpus))
    return service.submit(new_mark(), Request(spec=spec, gpus=gpus).model_dump_json())


def show_text(service: Service, ended: int) -> str:
    text = io.StringIO()
    show_queue(QueueDocument.model_validate(service.look(ended)), Screen(text, plain=True))
    return text.getvalue()


def wait(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def state_of(service: Service, job: int) -> str:
    stored = service.store.job(job)
    assert stored is not None
    return stored.state


@pytest.mark.slow
def test_the_failure_handler_restarts_what_the_node_did(opened: Open, tmp_path: Path) -> None:
    service = opened("sjf", 1, 1, restart=True)
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "train.py").write_text(TRAIN)
    job = submit(service, repo, f"{sys.executable} train.py")
    wait(lambda: state_of(service, job) == "COMPLETED")
    first, second = service.store.runs_of(job)
    assert (first.outcome, second.outcome) == ("FAILED", "COMPLETED")
    assert first.places[0].name != second.places[0].name
    # a bug of the job's own is not restarted
    bug = submit(service, repo, f"{sys.executable} -c 'import nothing_like_it'")
    wait(lambda: state_of(service, bug) == "FAILED")

    def looked_into() -> bool:
        with Record(tmp_path / "state" / "record.db") as record:
            jobs = {one.plan.reason.job for one in record.plans()}
            seen = {one.about.split("@")[0] for one in record.entries(kind="failure")}
        return str(job) in jobs and str(bug) in seen

    wait(looked_into)
    assert len(service.store.runs_of(bug)) == 1
    answer = service.log(job, 0, 0, 0)
    assert b"uncorrectable ECC" in answer["text"]
    assert service.log(99, None, 0, 0)["job"] is False


@pytest.mark.slow
def test_in_the_shadow_nothing_is_restarted_and_files_are_read_anew(
    opened: Open, cli: Cli, tmp_path: Path
) -> None:
    recovery, state = tmp_path / "recovery.yaml", tmp_path / "state"
    text = "version: 1\ncluster: t\nautomatic: [restart, notify]\n"
    recovery.write_text(text)
    recovery.chmod(0o600)
    service = opened("fifo", 1, 1, estimate=False, shadow=True, recovery=str(recovery))
    (tmp_path / "train.py").write_text(TRAIN)
    job = submit(service, tmp_path, f"{sys.executable} train.py")

    def planned() -> bool:
        place = state / "shadow" / "record.db"
        if not place.exists():
            return False
        with Record(place) as record:
            return str(job) in {one.plan.reason.job for one in record.plans()}

    wait(planned)
    assert state_of(service, job) == "FAILED"
    assert len(service.store.runs_of(job)) == 1
    assert not (state / "record.db").exists()
    for change, told in (("automatic: 1\n", "from before"), (text, "read anew")):
        recovery.write_text(change)
        wait(lambda told=told: any(told in one for one in service.problems))  # type: ignore[misc]
    report = cli("ray", "report", "--shadow", "--state", str(state))
    assert report.code == 0, report.err
    assert "What it would have done" in report.out
    assert "1 plan after" in report.out


@pytest.mark.slow
def test_a_job_that_fails_before_the_first_look_is_looked_into(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Service._watch

    def late(service: Service) -> None:
        wait(lambda: set(service.store.counts()) == {"FAILED"})
        ended = time.time()
        wait(lambda: int(time.time()) > ended)  # the agent counts from whole seconds
        looked(service)

    monkeypatch.setattr(Service, "_watch", late)
    service = opened("fifo", 1, 1, estimate=False, restart=True)
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "train.py").write_text(TRAIN)
    job = submit(service, repo, f"{sys.executable} train.py")
    wait(lambda: state_of(service, job) == "COMPLETED")
    assert [one.outcome for one in service.store.runs_of(job)] == ["FAILED", "COMPLETED"]


@pytest.mark.slow
def test_what_clients_see(opened: Open, tmp_path: Path) -> None:
    service = opened("fifo", 1, estimate=False)
    first = submit(service, tmp_path, "echo hello; exec sleep 1000")
    second = submit(service, tmp_path, "true")
    wait(lambda: state_of(service, first) == "RUNNING")
    wait(lambda: len(service.look()["jobs"]) == 2)
    found = QueueDocument.model_validate(service.look(5))
    assert [(one.job, one.state) for one in found.jobs] == [(1, "RUNNING"), (2, "PENDING")]
    assert found.jobs[0].nodes == ["node0"]
    assert "0 free" in found.jobs[1].why
    assert service.change([first, second, 99], "cancel") == [first, second]
    wait(lambda: state_of(service, first) == state_of(service, second) == "CANCELLED")
    found = QueueDocument.model_validate(service.look(5))
    assert not found.jobs
    assert [one.state for one in found.ended] == ["CANCELLED", "CANCELLED"]
    assert [one.nodes for one in found.ended] == [["node0"], []]
    assert found.ended[0].started is not None
    assert found.ended[0].started <= (found.ended[0].ends or 0.0) <= found.time
    part = service.log(first, None, 0, 0)
    assert part["text"] == b"hello\n"
    assert part["over"]


@pytest.mark.slow
def test_jobs_that_are_over_are_found(opened: Open, tmp_path: Path) -> None:
    service = opened("fifo", 1, estimate=False)
    first = submit(service, tmp_path, "echo hello")
    wait(lambda: state_of(service, first) == "COMPLETED")
    hidden, shown = (show_text(service, count) for count in (0, 9))
    assert "0 running, 0 waiting, 1 over" in hidden
    assert "1 job not shown that are over: `schedmate ray queue --all`" not in shown
    assert "`schedmate ray queue --all`" in hidden
    assert "COMPLETED" not in hidden
    assert "COMPLETED" in shown


def test_why_there_is_no_log(opened: Open, tmp_path: Path) -> None:
    service = opened("fifo", 1, estimate=False)
    big = submit(service, tmp_path, "true", gpus=2)
    assert "has not run yet" in no_log(big, service.log(big, None, 0, 0), None)
    service.change([big], "cancel")
    wait(lambda: state_of(service, big) == "CANCELLED")
    said = no_log(big, service.log(big, None, 0, 0), None)
    assert said == f"job {big} never ran; it is CANCELLED."
    ran = submit(service, tmp_path, "true")
    wait(lambda: state_of(service, ran) == "COMPLETED")
    assert "has run 1 time;" in no_log(ran, service.log(ran, 5, 0, 0), 5)
    part = service.log(ran, None, 0, 0)
    Path(part["path"]).unlink()
    said = no_log(ran, service.log(ran, None, 0, 0), None)
    assert said == f"the log {part['path']} cannot be read: No such file or directory."


def test_a_thread_that_fails_says_so_and_the_queue_goes_on(opened: Open, tmp_path: Path) -> None:
    rules = tmp_path / "recovery.yaml"
    rules.write_text("version: 1\ncluster: another\n")
    service = opened("fifo", 1, estimate=False, recovery=str(rules))
    wait(lambda: any("another" in one for one in service.look()["problems"]))
    job = submit(service, tmp_path, "true")
    wait(lambda: state_of(service, job) == "COMPLETED")


def test_a_report_that_is_none_is_a_loss(opened: Open, tmp_path: Path) -> None:
    first = opened("fifo", 1, estimate=False, lease_s=1.0)
    job = submit(first, tmp_path, "[ $SCHEDMATE_RUN = 1 ] || exec sleep 1000")
    wait(lambda: state_of(first, job) == "RUNNING")
    first._ends.set()
    for thread in first._threads:
        thread.join()
    (run,) = first.store.runs_of(job)
    first.queue.seats.close()
    report = report_of(run, 0)
    wait(report.exists)
    report.write_text("[1]")
    second = opened("fifo", 1, estimate=False, lease_s=1.0)
    wait(lambda: state_of(second, job) == "COMPLETED")
    assert [one.outcome for one in second.store.runs_of(job)] == ["LOST", "COMPLETED"]
