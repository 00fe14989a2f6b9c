"""`schedmate ray` on a real Ray cluster of this machine: what is killed, and what is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import pytest
from queues import WORK

from schedmate.cluster.ray.store import (
    QUEUE_SCHEMA,
    QueueDocument,
    Request,
    Store,
    StoredRun,
    new_mark,
)
from schedmate.jobs import JobSpec, LaunchConfig

pytestmark = [pytest.mark.live, pytest.mark.slow]

LONG_S = 300.0
"""How long to wait for what is sure to come, on a machine that is busy elsewhere [s]."""
OURS = "SCHEDMATE_TEST_CLUSTER"


class RayQueue:
    """`schedmate ray up --local` in a process of its own; the test looks into the queue's file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.token = folder, uuid4().hex
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "RAY_TMPDIR": "/tmp",
            OURS: self.token,
        }
        (folder / "work.py").write_text(WORK)
        self.up()
        self.store = Store(folder / "state" / "queue.db")

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "schedmate", "ray", *words]

    def up(self) -> None:
        # on a machine that is busy elsewhere a lease may end: then a job runs again, never twice
        words = ("--local", "2x2", "--policy", "fifo", "--no-estimate", "--lease", "15s")
        said = self.folder / "up.err"
        with said.open("w") as stream:
            self.process = subprocess.Popen(
                self.command("up", *words, "--state", str(self.folder / "state")),
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                start_new_session=True,
            )
        wait(lambda: "Ctrl-C ends them" in said.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, said.read_text()

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, name: str, gpus: int = 1) -> int:
        command = f"exec {sys.executable} -I -S work.py {name} 100000"
        spec = JobSpec(
            repo=str(self.folder), command=command, launch=LaunchConfig(gpus=gpus), name=name
        )
        return self.store.submit(new_mark(), Request(spec=spec, gpus=gpus), time.time())

    def running(self, job: int, runs: int = 1) -> StoredRun:
        """The run of a job, once it has begun to count."""

        def counts() -> bool:
            found = self.store.runs_of(job)
            if len(found) < runs or found[-1].state != "running":
                return False
            log = Path(found[-1].folder) / "rank0.log"
            return log.exists() and "began" in log.read_text()

        wait(counts)
        return self.store.runs_of(job)[-1]

    def over(self, job: int) -> str:
        stored = self.store.job(job)
        assert stored is not None
        (self.folder / f"{stored.request.spec.name}.go").touch()
        wait(lambda: self.state(job) not in ("PENDING", "RUNNING"))
        return self.state(job)

    def state(self, job: int) -> str:
        stored = self.store.job(job)
        assert stored is not None
        return stored.state

    def ours(self, title: str = "") -> list[int]:
        """Processes of this cluster, those with a title or a word of their command line."""
        found = []
        for place in Path("/proc").glob("[1-9]*"):
            try:
                if f"{OURS}={self.token}".encode() not in (place / "environ").read_bytes():
                    continue
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                gone = (place / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            except OSError:
                continue
            if title in line and not gone:
                found.append(int(place.name))
        return found

    def command_of(self, name: str) -> int:
        (pid,) = self.ours(f"work.py {name} ")
        return pid

    def runner_of(self, name: str) -> int:
        """The actor's process: the parent of the supervisor."""
        return parent(parent(self.command_of(name)))

    def raylet_of(self, runner: int) -> int:
        return parent(runner)

    def down(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)  # its children too, as `timeout` and systemd do
        self.gone()
        self.store.close()

    def gone(self) -> None:
        assert self.process.wait(LONG_S) == 0
        wait(lambda: not self.ours())
        assert not list(self.folder.glob("*.twice"))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait(what: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def ray_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayQueue]:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed (extra `ray`)")
    queue = RayQueue(tmp_path_factory.mktemp("ray"))
    try:
        yield queue
        queue.down()
    finally:
        for pid in queue.ours():
            os.kill(pid, signal.SIGKILL)


def test_a_job_is_submitted_shown_and_its_log_followed(ray_queue: RayQueue) -> None:
    code = "import os; print('on', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"
    (ray_queue.folder / "train.py").write_text(code)
    folder = str(ray_queue.folder)
    shown = ray_queue.run(
        *("submit", "-f", "--gpus", "2", "--working-dir", folder, "--", sys.executable, "train.py")
    )
    assert shown == "on 0,1\n"
    document = json.loads(ray_queue.run("queue", "--ended", "1", "--json"))
    assert document.pop("schema") == QUEUE_SCHEMA
    found = QueueDocument.model_validate(document)
    assert [node.gpus for node in found.nodes] == [2, 2]
    assert found.ended[-1].state == "COMPLETED"
    assert ray_queue.run("logs", str(found.ended[-1].job)) == shown


def test_the_queue_dies_and_comes_back(ray_queue: RayQueue) -> None:
    job = ray_queue.submit("queue")
    ray_queue.running(job)
    (actor,) = ray_queue.ours("ray::QueueActor")
    os.kill(actor, signal.SIGKILL)
    late = ray_queue.submit("late")
    ray_queue.running(late)
    assert (ray_queue.over(job), ray_queue.over(late)) == ("COMPLETED", "COMPLETED")
    for name in ("queue", "late"):
        assert (ray_queue.folder / f"{name}.ends").read_text() == "end\n"


def test_a_runner_dies_with_its_job_which_is_run_again(ray_queue: RayQueue) -> None:
    job = ray_queue.submit("runner")
    ray_queue.running(job)
    command = ray_queue.command_of("runner")
    os.kill(ray_queue.runner_of("runner"), signal.SIGKILL)
    ray_queue.running(job, runs=2)
    assert command not in ray_queue.ours("work.py")
    assert ray_queue.over(job) == "COMPLETED"
    assert ray_queue.store.runs_of(job)[0].outcome == "LOST"


def test_a_killed_command_has_failed(ray_queue: RayQueue) -> None:
    job = ray_queue.submit("command")
    ray_queue.running(job)
    os.kill(ray_queue.command_of("command"), signal.SIGKILL)
    wait(lambda: ray_queue.state(job) == "FAILED")
    assert len(ray_queue.store.runs_of(job)) == 1


def test_a_node_dies_and_its_job_goes_on_elsewhere(ray_queue: RayQueue) -> None:
    job = ray_queue.submit("node")
    first = ray_queue.running(job).places[0].name
    os.kill(ray_queue.raylet_of(ray_queue.runner_of("node")), signal.SIGKILL)
    wait(lambda: ray_queue.store.runs_of(job)[-1].places[0].name != first)
    ray_queue.running(job, runs=2)
    assert ray_queue.over(job) == "COMPLETED"


def test_the_whole_cluster_dies_and_another_goes_on(ray_queue: RayQueue) -> None:
    job, waiting = ray_queue.submit("head", gpus=2), ray_queue.submit("waiting", gpus=2)
    ray_queue.running(job)
    commands = {pid for word in ("work.py", "supervise.py") for pid in ray_queue.ours(word)}
    for pid in set(ray_queue.ours()) - commands:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait(lambda: not ray_queue.ours())  # the job, too, which nobody watches over any more
    ray_queue.process.wait()
    ray_queue.up()
    assert ray_queue.over(job) == "COMPLETED"
    assert (ray_queue.folder / "head.ends").read_text() == "end\n"
    assert ray_queue.store.runs_of(job)[0].outcome == "LOST"
    ray_queue.running(waiting)
    assert ray_queue.over(waiting) == "COMPLETED"


def test_down_ends_a_local_cluster_too(ray_queue: RayQueue) -> None:
    job = ray_queue.submit("down")
    ray_queue.running(job)
    words = ray_queue.command("down")
    refused = subprocess.run(words, env=ray_queue.environment, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "1 job would be stopped" in refused.stderr
    ray_queue.run("down", "--force")
    ray_queue.gone()
    ray_queue.up()
    assert ray_queue.over(job) == "COMPLETED"


def test_a_local_cluster_ends_with_whoever_is_killed(ray_queue: RayQueue) -> None:
    ray_queue.process.kill()
    ray_queue.process.wait()
    wait(lambda: not ray_queue.ours())
    ray_queue.up()
