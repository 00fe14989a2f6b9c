"""An agent on the stand-in: its files, who it is and what it may do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from api_server import ADMIN, ApiServer
from kube_cluster import TRAIN, Json

from schedmate.cluster.kubernetes import Kubernetes, lease
from schedmate.cluster.kubernetes.adapter import KubernetesAdapter
from schedmate.cluster.record import Record
from schedmate.commands.agents import AgentSetup, opened_agent
from schedmate.jobs import JobRecord, JobSpec, LaunchConfig
from schedmate.mate import SchedMate
from schedmate.settings import load_settings


def knowing(folder: Path) -> SchedMate:
    """One that has seen the code run for 10, 20, 30 and 40 minutes."""
    (folder / "train").mkdir()
    (folder / "train" / "train.py").write_text(TRAIN)
    mate = SchedMate(load_settings(history=str(folder / "history"), mode="static"))
    for number in (1, 2, 3, 4):
        spec = JobSpec(
            job_id=f"past-{number}",
            repo=str(folder / "train"),
            command=f"python train.py --model resnet18 --epochs {number}",
            launch=LaunchConfig(gpus=4, nodes=1, gpu_type=None),
            submit_time=1.7e9,
        )
        ended = {"state": "COMPLETED", "start_time": 1.7e9, "duration_s": 600.0 * number}
        record = mate.analyze(spec).record().model_dump() | ended
        mate.store(JobRecord.model_validate(record | {"end_time": 1.7e9 + 600.0 * number}))
    return mate


@contextmanager
def patient() -> Iterator[None]:
    """A Lease that is held however slow the machine is; how long one holds has tests of its own."""
    before = lease.GIVE_UP_S
    lease.GIVE_UP_S = 600.0
    try:
        yield
    finally:
        lease.GIVE_UP_S = before


class AgentFiles:
    """Where an agent of a test keeps everything, who it is, and what it may do."""

    def __init__(self, server: ApiServer, folder: Path, mate: SchedMate) -> None:
        """`mate` knows past runs of the repository's code, and is ready."""
        self.server, self.folder, self.mate = server, folder, mate
        self.state, self.history, self.code = (
            folder / "state",
            mate.settings.history,
            folder / "code",
        )
        self.bounds, self.recovery, self.stop = (
            folder / "bounds.yaml",
            folder / "recovery.yaml",
            folder / "stop",
        )
        self.record = self.state / "record.db"
        repository = self.code / "team-a" / "train"
        repository.mkdir(parents=True)
        (repository / "train.py").write_text(TRAIN)
        self.repository = repository
        self.allow()
        self.be(ADMIN)

    def be(self, who: str, name: str = "kubeconfig", namespace: str = "default") -> Path:
        """Write a kubeconfig for a service account."""
        path = self.folder / name
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": self.server.url}}],
            "users": [{"name": "it", "user": {"token": who}}],
            "contexts": [{
                "name": "it",
                "context": {"cluster": "it", "user": "it", "namespace": namespace},
            }],
        }  # fmt: skip
        path.write_text(yaml.safe_dump(document))
        return path

    def allow(
        self, *, recover: bool = False, automatic: tuple[str, ...] = (), **sections: Any
    ) -> None:
        kubernetes = {
            "code": {"roots": [str(self.code / "{namespace}")]}, "qps": 500, "isolate": recover,
            **sections.pop("kubernetes", {}),
        }  # fmt: skip
        bounds = {
            "poll": 0.5, "kill_switch": str(self.stop), "learn": {"every": 0.001, "overlap": "1d"},
            "follow": {"every": 0.001}, "advise": {"seconds": 60}, "kubernetes": kubernetes,
            **sections,
        }  # fmt: skip
        if recover:
            bounds["recovery"] = str(self.recovery)
            self._write(self.recovery, {
                "version": 1, "automatic": list(automatic), "record": str(self.record),
                "kill_switch": str(self.stop),
                "isolation": {
                    "at_most": 2, "at_most_percent": 50, "keep_percent": 10, "cool_down": 0,
                },
            })  # fmt: skip
        self._write(self.bounds, bounds)

    def _write(self, path: Path, document: Json) -> None:
        path.write_text(json.dumps(document))  # which is YAML
        path.chmod(0o644)

    @property
    def options(self) -> list[str]:
        pairs = {"bounds": self.bounds, "state": self.state, "history": self.history,
                 "kubeconfig": self.folder / "kubeconfig"}  # fmt: skip
        return [word for name, path in pairs.items() for word in (f"--{name}", str(path))]

    @contextmanager
    def opened(
        self, *, dry_run: bool = False, kubeconfig: Path | None = None, **more: Any
    ) -> Iterator[AgentSetup[KubernetesAdapter]]:
        """The agent in this process, holding the Lease, at a time when it may act."""
        reach = str(kubeconfig or self.folder / "kubeconfig")
        with opened_agent(
            Kubernetes(),
            self.bounds,
            self.state,
            self.history,
            kubeconfig=reach,
            dry_run=dry_run,
            mate=self.mate,
            **more,
        ) as setup:
            setup.adapter._settled_s = 0.0
            if dry_run:
                yield setup
                return
            with patient(), setup.lease():
                yield setup

    @contextmanager
    def kept(self) -> Iterator[Record]:
        with Record(self.record) as record:
            yield record

    def begin_an_hour_ago(self) -> None:
        """What ended before the agent began is not looked into: let it have begun."""
        from schedmate.cluster.ended import BEGUN
        from schedmate.cluster.memory import Memory

        with Memory(self.state / "memory.db") as memory:
            memory.set_mark(BEGUN, time.time() - 3600.0)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "schedmate", "k8s", *words], capture_output=True, text=True,
            timeout=120, env={**os.environ, "HOME": str(self.folder)}, check=False,
        )  # fmt: skip
