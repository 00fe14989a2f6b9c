"""Work on foreign input: whatever it does, the caller has an answer or a sentence in time."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from processes import LONG_S, all_ended

from schedmate.base.confine.client import Confinement
from schedmate.base.confine.limits import Limits, bounded
from schedmate.base.errors import InputError, LimitError, SchedmateError

SHORT = Limits(wall_s=0.3)
PLENTY = Limits(wall_s=LONG_S)
ENDLESS = ("hold_the_interpreter", "spin", "sleep_deaf")


@pytest.fixture(params=["template", "own process"])
def confinement(request: pytest.FixtureRequest, confined: Confinement) -> Iterator[Confinement]:
    """With a template; and forking this process, as a command with one thread does."""
    if request.param == "template":
        yield confined
        return
    with Confinement(own_process=True) as one:
        one._forks = lambda: True  # type: ignore[method-assign]
        yield one


def run(confinement: Confinement, work: str, request: Any = None, limits: Limits = PLENTY) -> Any:
    return confinement.run(f"confined_work:{work}", request, limits, "the repository /jobs/17")


@pytest.mark.parametrize(
    "request_", [None, {"a": [1, 2.5, "ä\udcff\ud800", float("inf")]}, "x" * 3_000_000]
)
def test_values_come_back_as_they_are(confinement: Confinement, request_: Any) -> None:
    assert run(confinement, "echo", request_) == request_


@pytest.mark.parametrize("work", ENDLESS)
def test_the_caller_has_its_answer_at_the_deadline(confinement: Confinement, work: str) -> None:
    began = time.monotonic()
    with pytest.raises(LimitError, match="/jobs/17 takes more than 0.3 s to read"):
        run(confinement, work, limits=SHORT)
    assert time.monotonic() - began < 0.5 * LONG_S  # and not for as long as it would take
    assert run(confinement, "echo", 1) == 1


def test_cpu_time_is_bounded_where_wall_time_is_not(confinement: Confinement) -> None:
    with pytest.raises(LimitError, match="more than 1 s of CPU time"):
        run(confinement, "hold_the_interpreter", limits=Limits(cpu_s=1))


def test_memory_is_bounded(confinement: Confinement) -> None:
    with pytest.raises(LimitError, match="more than 1,024 MiB of memory"):
        run(confinement, "eat_memory", limits=Limits(wall_s=LONG_S, memory_mb=1024))


@pytest.mark.parametrize(
    ("work", "request_", "says"),
    [
        ("crash", None, "ended by signal 11"),
        ("recurse", None, "RecursionError"),
        ("fail", "because", r"ZeroDivisionError: because \(confined_work.py:"),
        ("leave", 0, "its answer cannot be read"),
        ("leave", 3, "its answer cannot be read"),
        ("exit_politely", None, "its answer cannot be read"),
        ("unspeakable", None, "TypeError"),
        ("no_such_work", None, "AttributeError"),
    ],
)
def test_what_nobody_foresaw_is_one_sentence(
    confinement: Confinement, work: str, request_: Any, says: str
) -> None:
    with pytest.raises(SchedmateError, match=says) as caught:
        run(confinement, work, request_)
    assert str(caught.value).startswith("the repository /jobs/17 cannot be read: ")
    assert "\n" not in str(caught.value)


def test_a_directory_that_is_its_users_alone_is_an_input_that_cannot_be_read(
    confinement: Confinement, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"cannot read \S*private: Permission denied") as caught:
        run(confinement, "list_as_nobody", str(private_directory(tmp_path)))
    assert "internal error" not in str(caught.value)


def private_directory(folder: Path) -> Path:
    private = folder / "private"
    private.mkdir(mode=0o700)
    private.chmod(0)
    folder.chmod(0o711)
    return private


def test_refusals_stay_what_they_were(confinement: Confinement) -> None:
    with pytest.raises(InputError, match=r"^/jobs/17: no such directory$"):
        run(confinement, "refuse", "/jobs/17: no such directory")


def test_an_answer_that_is_too_long_is_refused(confinement: Confinement) -> None:
    with pytest.raises(InputError, match="of at most"):
        run(confinement, "say_too_much")


def test_no_file_is_written_and_no_core(confinement: Confinement, tmp_path: Path) -> None:
    assert run(confinement, "write_file", str(tmp_path / "file")).startswith("refused")
    wide = Limits(wall_s=LONG_S, disk_mb=1)
    assert run(confinement, "write_file", str(tmp_path / "file"), wide) == "written"


def test_a_reader_has_no_network_no_secrets_and_nothing_of_the_hosts(
    confinement: Confinement, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", "secret")
    found = run(confinement, "look_around")
    assert not [name for name in found["environment"] if "KEY" in name or "TOKEN" in name]
    assert found["directory"] == str(tmp_path)
    if not confinement._own_process:
        assert found["threads"] == 1
        assert found["descriptors"] < 12
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = run(confinement, "connect", server.getsockname()[1])
    may_isolate = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if may_isolate.returncode == 0:
        assert answer.startswith("refused")


def test_children_do_not_print(confinement: Confinement, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(confinement, "print_noise") == "done"
    assert capfd.readouterr() == ("", "")


def test_hostile_jobs_do_not_hold_up_the_others(confined: Confinement) -> None:
    def job(number: int) -> Any:
        if number % 4 == 0:
            with pytest.raises(LimitError):
                run(confined, ENDLESS[number // 4 % 3], limits=SHORT)
            return number
        return run(confined, "echo", number)

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(job, range(48))) == list(range(48))


def test_who_waits_for_a_place_waits_no_longer_than_its_deadline() -> None:
    with Confinement(at_once=1) as one, ThreadPoolExecutor(1) as pool:
        first = pool.submit(run, one, "sleep", 1.0)
        while one._slots._value:  # type: ignore[attr-defined]
            time.sleep(0.01)
        with pytest.raises(LimitError, match="too many other inputs are being read"):
            run(one, "echo", limits=Limits(wall_s=0.05))
        assert first.result() == 1.0


def test_a_template_that_was_killed_is_replaced(confined: Confinement) -> None:
    template = run(confined, "look_around")["parent"]
    os.kill(template, 9)
    for number in range(4):  # more than there were copies of it, which may live on for a moment
        assert run(confined, "echo", number) == number
    assert run(confined, "look_around")["parent"] != template


def test_a_host_without_descriptors_is_told_so_and_others_go_on(confined: Confinement) -> None:
    held: list[int] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    template = run(confined, "look_around")["parent"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        for _ in range(4):  # more than there are copies that wait for work already
            _take_all_descriptors(held)
            with suppress(SchedmateError):
                run(confined, "echo")
        _take_all_descriptors(held)
        with pytest.raises(SchedmateError, match="no process can be started: Too many open files"):
            run(confined, "echo")
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert run(confined, "look_around")["parent"] == template


def _take_all_descriptors(held: list[int]) -> None:
    with suppress(OSError):
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))


HOSTS = {
    "many descriptors": "held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]",
    "no standard streams": "[os.close(number) for number in range(3)]",
    "children are not waited for": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "all signals blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
}


@pytest.mark.parametrize("own_process", [True, False])
@pytest.mark.parametrize("habit", HOSTS.values(), ids=HOSTS.keys())
def test_hosts_of_all_kinds(tmp_path: Path, habit: str, own_process: bool) -> None:
    code = f"""
import os, resource, signal, sys
from schedmate.base.confine.client import Confinement
from schedmate.base.confine.limits import Limits

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
{habit}
with Confinement(own_process={own_process}) as one:
    answer = one.run("builtins:len", [1, 2, 3], Limits(60.0))
open({str(tmp_path / "answer")!r}, "w").write(str(answer))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "answer").read_text() == "3"


def test_a_template_that_has_stopped_listening_keeps_nobody() -> None:
    """As while it imports from a disk that hangs; it is replaced when it takes no more jobs."""
    with Confinement() as one:
        _stop_template(one)
        for _ in range(400):
            with suppress(SchedmateError):
                run(one, "echo", limits=Limits(wall_s=0.002))
        assert run(one, "echo", 1) == 1


def _stop_template(one: Confinement) -> None:
    code = f"import os; os.kill({run(one, 'look_around')['parent']}, {int(signal.SIGSTOP)})"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_late_answer_that_nobody_reads_stops_no_other(confined: Confinement) -> None:
    """A child that the host forks holds the ends of jobs that were running."""
    waiting = threading.Thread(target=lambda: run(confined, "sleep", 0.3))
    waiting.start()
    time.sleep(0.1)
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        for _ in range(5):
            with suppress(LimitError):
                run(confined, "late_and_long", 0.11, limits=Limits(wall_s=0.1))
        waiting.join()
        assert run(confined, "echo", 1) == 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_what_runs_is_given_up_when_its_confinement_closes() -> None:
    code = """
import threading, time
from schedmate.base.confine.client import Confinement
from schedmate.base.confine.limits import Limits
from schedmate.base.errors import SchedmateError

def job():
    try:
        one.run("time:sleep", 300, Limits(), "the log")
    except SchedmateError as error:
        print(error)

one = Confinement()
one.run("builtins:bool", 1, Limits(60.0))
thread = threading.Thread(target=job)
thread.start()
time.sleep(2)
one.close()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "reading was given up: this SchedMate is closed.\n"


def test_a_closed_confinement_leaves_no_process_and_no_thread() -> None:
    code = """
import os, pathlib, threading
from schedmate.base.confine.client import Confinement
from schedmate.base.confine.limits import Limits

def children():
    return pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()

with Confinement() as one:
    assert one.run("builtins:bool", 1, Limits(60.0)) is True
    assert len(children()) == 1
assert children() == []
assert threading.active_count() == 1
left_open = Confinement()  # which ends with the process
left_open.run("builtins:bool", 1, Limits(60.0))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("own_process", [True, False])
def test_nothing_outlives_a_host_that_is_killed(own_process: bool) -> None:
    code = f"""
import os, signal, threading, time
from schedmate.base.confine.client import Confinement
from schedmate.base.confine.limits import Limits
from schedmate.base.confine.limits import bounded

one = Confinement(own_process={own_process})
if {own_process}:  # the job itself kills its parent
    one.run("builtins:eval", "__import__('os').kill(__import__('os').getppid(), 9)", Limits(60.0))
else:
    work = "time:sleep", 300, Limits()
    threading.Thread(target=one.run, args=work, daemon=True).start()
    time.sleep(1)
    os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as host:
        assert host.wait(LONG_S) == -9
    assert all_ended(host.pid)


def test_a_child_that_the_host_forks_reads_by_itself(confined: Confinement) -> None:
    """While other threads of the host use the same object, and hold what locks they do."""
    host = run(confined, "look_around")["parent"]
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            run(confined, "echo", "busy")

    busy = [threading.Thread(target=keep_busy) for _ in range(4)]
    for one in busy:
        one.start()
    try:
        for _ in range(3):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = int(run(confined, "look_around")["parent"] == host)
                    confined.close()
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for one in busy:
            one.join()
    assert run(confined, "look_around")["parent"] == host


def test_a_process_can_bound_itself_for_a_while() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with (
        pytest.raises(LimitError, match="the log takes more than 300 MiB of memory"),
        bounded("the log", 300),
    ):
        bytes(400 << 20)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(bytes(400 << 20)) == 400 << 20


def test_a_process_that_somebody_waits_for_ends_at_its_cpu_time() -> None:
    code = """
from schedmate.base.confine.limits import bounded

with bounded("a quick log", cpu_s=60.0):
    pass
with bounded("a slow log", cpu_s=0.2):
    while True:
        pass
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGPROF
