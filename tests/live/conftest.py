"""The private Slurm, one for all tests of a process that need it; queues without Ray."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import AgentFiles
from queues import Make, Queue
from slurm_testbed import Testbed, missing, until
from training_jobs import make_repository

from schedmate.schedulers import registry
from schedmate.schedulers.policy import Policy


@pytest.fixture(scope="session")
def cluster() -> Iterator[Testbed]:
    """A Slurm of four nodes, up for the whole session; skips where it cannot be."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    # not below pytest's folder, which is its user's alone
    root = Path(tempfile.mkdtemp(prefix="schedmate-slurm-"))
    root.rmdir()
    with Testbed(root, slurmd_timeout=60) as bed:
        yield bed
    assert not root.exists()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def slurm(cluster: Testbed, monkeypatch: pytest.MonkeyPatch) -> Testbed:
    """The same, with an empty queue and all nodes in service; this process's commands find it."""
    cluster.clear()
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    monkeypatch.setenv("PATH", f"{cluster.environment['PATH']}")
    return cluster


@pytest.fixture(scope="session")
def repository(cluster: Testbed) -> Path:
    """What all jobs of the session train."""
    return make_repository(cluster.jobs_folder / "training")


@pytest.fixture
def files(slurm: Testbed, tmp_path: Path) -> AgentFiles:
    """Where an agent of the test keeps everything."""
    return AgentFiles(slurm, tmp_path)


@pytest.fixture
def blocker(slurm: Testbed) -> Iterator[str]:
    """A job that has all GPUs, so that others are pending; the test may cancel it."""
    job = slurm.submit("sleep 600", "--job-name=blocker", nodes=4)
    until("the blocker", 30, lambda: [job, "RUNNING"] in slurm.queue("%A %T"))
    yield job
    slurm.run("scancel", job)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Opens queues of a policy on nodes of so many GPUs, and closes them after the test."""
    made: list[Queue] = []

    def open_queue(policy: str | Callable[[], Policy], *nodes: int, **options: Any) -> Queue:
        how = (lambda: registry.make(policy)) if isinstance(policy, str) else policy
        made.append(Queue(tmp_path, how, *nodes, **options))
        return made[-1]

    yield open_queue
    for one in made:
        one.close()
