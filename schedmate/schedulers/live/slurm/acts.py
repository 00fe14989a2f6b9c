"""Slurm as an executor: probes and takes the actions of `live/actions.py`.

A Slurm Operator may do everything but `drain` and `resume`, which use a command that the site's
administrators own (examples/slurm/schedmate-drain) and that checks the reason itself. Never
changed: `Priority`, which would then be fixed, and `TimeLimit`, which could kill jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from schedmate.schedulers.live.actions import (
    Action,
    Annotate,
    Drain,
    Hold,
    Order,
    Release,
    Requeue,
    Resume,
    may_annotate,
)
from schedmate.schedulers.live.executor import Answer, ExecutorError, Finding
from schedmate.schedulers.live.ordering import left_to_set
from schedmate.schedulers.live.slurm.commands import CommandError, Commands
from schedmate.schedulers.live.slurm.lookups import Lookups
from schedmate.schedulers.live.slurm.reading.shapes import OutageError
from schedmate.terminal import counted

AT_ONCE: Final = 200
"""Jobs in one command at most."""


class SlurmActs(Lookups):
    """The executor's half of `SlurmAdapter`."""

    name = "slurm"

    def __init__(
        self, commands: Commands, *, drain: Sequence[str] = (), annotate: str = "off"
    ) -> None:
        super().__init__(commands, annotate=annotate)
        self._drain = list(drain)

    # -- looking up ------------------------------------------------------

    def probe(self, action: Action) -> Finding:
        """See `Executor.probe`."""
        match action:
            case Order():
                return self._sorted_out(action)[0]
            case Annotate():
                return self._unwritten(action)[0]
            case Drain() | Resume():
                return self._probe_node(action)
            case Requeue():
                return self._probe_requeue(action)
            case Hold() | Release():
                return self._probe_hold(action)
            case _:
                raise ExecutorError(f"Slurm's adapter takes no action {action.kind!r}.")

    def _sorted_out(self, action: Order) -> tuple[Finding, dict[str, int]]:
        """The finding, and the values of the jobs that are still to be set."""
        return left_to_set(action, self.order_values(action.values))

    def _unwritten(self, action: Annotate) -> tuple[Finding, dict[str, str]]:
        present = self.comments(action.texts)
        left = {
            job: text
            for job, text in action.texts.items()
            if job in present and may_annotate(present[job], text)
        }
        if left:
            return Finding("ready", f"{len(left)} to be written"), left
        return Finding("done", "each has its line, its owner's, or is gone"), {}

    def _probe_node(self, action: Drain | Resume) -> Finding:
        node = next((one for one in self.read_nodes() if one.name == action.node), None)
        if node is None:
            return Finding("changed", f"no node {action.node}")
        seen = f"{action.node} is {'+'.join(sorted(node.states)).lower()}"
        if node.drained:
            seen += f", for '{node.reason}'"
        ours = node.drained and node.reason == action.reason
        if isinstance(action, Drain):
            if ours:
                return Finding("done", seen)
            if node.drained:
                return Finding("moot", seen)
            return Finding("ready" if node.healthy else "changed", seen)
        if ours:
            return Finding("ready", seen)
        return Finding("changed" if node.drained else "moot", seen)

    def _probe_requeue(self, action: Requeue) -> Finding:
        job = self.job(action.job)
        if job is None:
            return Finding("changed", f"Slurm does not know job {action.job}")
        seen = f"job {action.job} is {'+'.join(job.states)}, restarted {job.restarts} times"
        excluded = set(action.exclude) <= set(job.excluded)
        if job.restarts == action.run:
            if "COMPLETING" in job.states:
                raise OutageError(f"{seen}; its run must end first.")
            return Finding("moot" if job.state == "PENDING" else "ready", seen)
        if job.restarts > action.run + 1:
            return Finding("changed", seen)
        if job.state == "PENDING":
            return Finding("done" if excluded and not job.held else "ready", seen)
        elsewhere = excluded or not set(action.exclude) & set(job.nodes)
        return Finding("done" if elsewhere else "changed", f"{seen}, on {','.join(job.nodes)}")

    def _probe_hold(self, action: Hold | Release) -> Finding:
        job = self.job(action.job)
        if job is None or job.state != "PENDING":
            return Finding("changed", f"job {action.job} is not pending")
        wanted = isinstance(action, Hold)
        return Finding("done" if job.held == wanted else "ready", job.reason)

    # -- acting ----------------------------------------------------------

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """See `Executor.act`. Slurm does not recognise a repeated request: the remaining work is
        looked up."""
        match action:
            case Order():
                return self._order(action, timeout_s)
            case Annotate():
                return self._write(action, timeout_s)
            case Drain() | Resume():
                return self._set_node(action, timeout_s)
            case Requeue():
                return self._requeue(action, timeout_s)
            case Hold() | Release():
                return self._scontrol(timeout_s, action.kind, action.job)
            case _:
                raise ExecutorError(f"Slurm's adapter takes no action {action.kind!r}.")

    def _scontrol(self, timeout_s: float, *words: str) -> Answer:
        try:
            self.commands.run("scontrol", *words, timeout_s=timeout_s)
        except CommandError as error:
            return _failed(error)
        return Answer("done", " ".join(words))

    def _order(self, action: Order, timeout_s: float) -> Answer:
        _, left = self._sorted_out(action)
        refused: list[str] = []
        for value, some in by_value(left):
            words = ("update", f"JobId={','.join(some)}", f"SiteFactor={value}")
            try:
                self.commands.run("scontrol", *words, timeout_s=timeout_s)
            except CommandError as error:
                if _is_outage(error):
                    raise
                refused.append(error.said.strip())
        finding, still = self._sorted_out(action)
        if finding.state == "done":  # refused jobs have started or ended meanwhile
            return Answer("done", finding.detail)
        why = refused[0] if refused else finding.detail
        return Answer("failed", f"{counted(len(still), 'job')} kept the old value: {why}")

    def _write(self, action: Annotate, timeout_s: float) -> Answer:
        _, left = self._unwritten(action)
        for job, text in left.items():
            if self._annotate == "comment":
                words = ["scontrol", "update", f"JobId={job}", f"Comment={text}"]
            else:
                where = ("modify", "job", "where", f"jobid={job}", "set", f"AdminComment={text}")
                words = ["sacctmgr", "-i", *where]
            try:
                self.commands.run(*words, timeout_s=timeout_s)
            except CommandError as error:
                if _is_outage(error):
                    raise
                if "Invalid job id" not in error.said:  # it has ended and needs no note
                    return _failed(error)
        return Answer("done", f"{len(left)} written")

    def _set_node(self, action: Drain | Resume, timeout_s: float) -> Answer:
        if not self._drain:
            return Answer("failed", "no command is set that may drain nodes (slurm: drain)")
        words = [*self._drain, action.kind, action.node, action.mark]
        try:
            said = self.commands.run_directly(words, timeout_s=timeout_s)
        except CommandError as error:
            return _failed(error)
        return Answer("done", said.strip())

    def _requeue(self, action: Requeue, timeout_s: float) -> Answer:
        """ExcNodeList cannot be set on a job that has ended: requeue and hold it, set it, release
        it.

        Each step is taken only if it is still needed, so that the next attempt completes one that
        was interrupted.
        """
        job = self.job(action.job)
        if job is None:
            return Answer("failed", f"Slurm does not know job {action.job}")
        missing = [node for node in action.exclude if node not in job.excluded]
        done = []
        try:
            if job.restarts == action.run:
                how = "requeuehold" if missing else "requeue"
                self.commands.run("scontrol", how, action.job, timeout_s=timeout_s)
                done.append(how)
            if missing:
                nodes = ",".join([*job.excluded, *missing])
                words = ("update", f"JobId={action.job}", f"ExcNodeList={nodes}")
                self.commands.run("scontrol", *words, timeout_s=timeout_s)
                done.append(f"not on {nodes}")
            if missing or job.held:
                self.commands.run("scontrol", "release", action.job, timeout_s=timeout_s)
                done.append("released")
        except CommandError as error:
            return _failed(error, f"after {', '.join(done)}: " if done else "")
        return Answer("done", ", ".join(done))


def by_value(values: Mapping[str, int]) -> list[tuple[int, list[str]]]:
    """Jobs of equal value together, highest first, so that a few commands set many."""
    groups: dict[int, list[str]] = {}
    for job, value in values.items():
        groups.setdefault(value, []).append(job)
    return [
        (value, jobs[at : at + AT_ONCE])
        for value, jobs in sorted(groups.items(), reverse=True)
        for at in range(0, len(jobs), AT_ONCE)
    ]


def _is_outage(error: CommandError) -> bool:
    words = ("Unable to contact", "Connection refused", "connect failure", "timed out")
    return any(word in error.said for word in words)


def _failed(error: CommandError, before: str = "") -> Answer:
    """A refusal is an answer; without an answer the result is unknown."""
    return Answer("unknown" if _is_outage(error) else "failed", f"{before}{error}")
