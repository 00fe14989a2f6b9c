"""A cluster kept in a folder: what happens to it outlives the process that did it.

`nodes/NAME` holds the reason for which a node is drained (empty: in service), `jobs/ID` the run
that a job is in, and `done.log` a line for each action that took effect. Run as a program, it
carries out a plan with itself as the executor and kills itself where it is told to.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from schedmate.cluster.actions import Action, Drain, Notify, Requeue, Resume
from schedmate.cluster.adapter import Answer, Finding, Unguarded
from schedmate.cluster.record import Record, carry_out, take_back


class FolderCluster:
    """An executor over a folder; `die_at` is `probe`, `before` or `after` an action's effect."""

    name = "folder"

    def __init__(self, folder: Path, die_at: str = "", die_on: str = "") -> None:
        self.folder, self.die_at, self.die_on = folder, die_at, die_on
        for place in ("nodes", "jobs"):
            (folder / place).mkdir(parents=True, exist_ok=True)

    def add(self, *, nodes: tuple[str, ...] = (), jobs: tuple[str, ...] = ()) -> FolderCluster:
        for node in nodes:
            (self.folder / "nodes" / node).write_text("")
        for job in jobs:
            (self.folder / "jobs" / job).write_text("0")
        return self

    def reason(self, node: str) -> str:
        return (self.folder / "nodes" / node).read_text()

    def run(self, job: str) -> int:
        return int((self.folder / "jobs" / job).read_text())

    def effects(self) -> list[str]:
        log = self.folder / "done.log"
        return log.read_text().splitlines() if log.exists() else []

    def probe(self, action: Action) -> Finding:
        self._perhaps_die("probe", action)
        if isinstance(action, Drain | Resume):
            file = self.folder / "nodes" / action.node
            if not file.exists():
                return Finding("changed", f"{action.node} is gone")
            now = file.read_text()
            states = ("", action.reason)
            expected, wanted = states if isinstance(action, Drain) else states[::-1]
            if now == wanted:
                return Finding("done")
            if now == expected:
                return Finding("ready")
            # somebody else's drain serves as well as ours, but only ours is taken back
            return Finding("moot" if isinstance(action, Drain) else "changed", f"drained: {now}")
        if isinstance(action, Requeue):
            run = self.run(action.job)
            if run == action.run + 1:
                return Finding("done")
            return Finding("ready") if run == action.run else Finding("changed", f"run {run}")
        return Finding("ready")

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        self._perhaps_die("before", action)
        if isinstance(action, Drain):
            (self.folder / "nodes" / action.node).write_text(action.reason)
        elif isinstance(action, Resume):
            (self.folder / "nodes" / action.node).write_text("")
        elif isinstance(action, Requeue):
            (self.folder / "jobs" / action.job).write_text(str(action.run + 1))
        elif not isinstance(action, Notify):
            return Answer("failed", f"cannot {action.kind}")
        with (self.folder / "done.log").open("a") as log:
            log.write(f"{action.kind} {action.target}\n")
        self._perhaps_die("after", action)
        return Answer("done")

    def _perhaps_die(self, where: str, action: Action) -> None:
        if (where, action.kind) == (self.die_at, self.die_on):
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, plan: str, direction: str, die_at: str, die_on: str) -> None:
    cluster = FolderCluster(Path(folder), die_at, die_on)
    with Record(Path(folder) / "record.db") as record:
        act = carry_out if direction == "forth" else take_back
        print(act(record, plan, cluster, Unguarded(), by="agent").status.state)


if __name__ == "__main__":
    main(*sys.argv[1:])
