"""An agent on the private Slurm, run as its command or in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_testbed import AGENT, Testbed
from training_jobs import EPOCH_S

from schedmate.cluster.record import Record
from schedmate.cluster.slurm import Slurm
from schedmate.commands.agents import AgentSetup, opened_agent
from schedmate.jobs import JobRecord, JobSpec, LaunchConfig
from schedmate.mate import SchedMate
from schedmate.settings import load_settings

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"

BOUNDS: dict[str, Any] = {
    "poll": 0.5,
    "order": {"allowed": True, "shortest": 0.5, "longest": 30, "ageing": "1d", "every": 0.001},
    "learn": {"every": 0.001},
    "follow": {"every": 0.001},
    "advise": {"seconds": 60},
}

RECOVERY: dict[str, Any] = {
    "version": 1,
    "automatic": ["notify"],
    "isolation": {"at_most": 2, "at_most_percent": 50, "keep_percent": 10, "cool_down": 0},
    # the fault that these tests inject is in the job's log only
    "rules": [{"when": {"component": "gpu"}, "isolate": "text"}],
}


class AgentFiles:
    """Where an agent of a test keeps everything, and what it may do."""

    def __init__(self, bed: Testbed, folder: Path) -> None:
        self.bed = bed
        self.folder = folder
        self.bounds = folder / "bounds.yaml"
        self.state = folder / "state"
        self.history = folder / "history"
        self.stop = folder / "stop"
        self.recovery = folder / "recovery.yaml"
        self.record = self.state / "record.db"
        self.drain = folder / "schedmate-drain"
        script = (EXAMPLES / "schedmate-drain").read_text()
        place = "SLURM_CONF=/etc/slurm/slurm.conf"
        assert place in script
        self.drain.write_text(script.replace(place, f"SLURM_CONF={bed.conf}"))
        self.drain.chmod(0o755)
        self.allow()

    def allow(self, *, recover: bool = False, through: str = AGENT, **sections: Any) -> None:
        """Write what is allowed."""
        slurm = {"through": ["runuser", "-u", through, "--"], "drain": [str(self.drain)]}
        bounds = {**BOUNDS, "kill_switch": str(self.stop), "slurm": slurm, **sections}
        if recover:
            bounds["recovery"] = str(self.recovery)
            stop = {"record": str(self.record), "kill_switch": str(self.stop)}
            self._write(self.recovery, {**RECOVERY, **stop})
        self._write(self.bounds, bounds)

    def _write(self, path: Path, document: dict[str, Any]) -> None:
        path.write_text(json.dumps(document))  # which is YAML
        path.chmod(0o644)

    @property
    def options(self) -> list[str]:
        """For the command line."""
        pairs = {"bounds": self.bounds, "state": self.state, "history": self.history}
        return [word for name, path in pairs.items() for word in (f"--{name}", str(path))]

    @contextmanager
    def opened(self, *, dry_run: bool = False) -> Iterator[AgentSetup]:
        """The agent in this process."""
        with opened_agent(Slurm(), self.bounds, self.state, self.history, dry_run=dry_run) as setup:
            yield setup

    @contextmanager
    def kept(self) -> Iterator[Record]:
        """The record."""
        with Record(self.record) as record:
            yield record

    def command(self, *words: str) -> list[str]:
        """The agent as a command of its own."""
        return [sys.executable, "-m", "schedmate", "slurm", "agent", *self.options, *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The agent as a process of its own."""
        environment = {**os.environ, **self.bed.environment, "HOME": str(self.folder)}
        return subprocess.Popen(
            self.command(*words),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def know(self, repository: Path, epochs: tuple[int, ...] = (1, 3, 10, 30, 100)) -> None:
        """Put past jobs of each model and length into the history, with what they took."""
        with SchedMate(load_settings(history=self.history)) as mate:
            for model, epoch_s in EPOCH_S.items():
                for number in epochs:
                    command = f"python train.py --model {model} --epochs {number}"
                    analysis = mate.analyze(
                        JobSpec(
                            job_id=f"past-{model}-{number}",
                            repo=str(repository),
                            command=command,
                            launch=LaunchConfig(gpus=4, nodes=1, gpu_type=None),
                            submit_time=1.7e9,
                        )
                    )
                    ended: dict[str, Any] = {
                        "state": "COMPLETED",
                        "start_time": 1.7e9,
                        "duration_s": epoch_s * number,
                        "end_time": 1.7e9 + epoch_s * number,
                    }
                    mate.store(JobRecord.model_validate(analysis.record().model_dump() | ended))
