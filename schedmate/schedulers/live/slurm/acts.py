"""Slurm as an executor: looking up and taking the actions of `live/actions.py`.

An Operator may do all of it but `drain` and `resume`, which go through a command that the site's
administrators own (examples/slurm/schedmate-drain) and that checks the reason itself. Never
touched: `Priority`, which would be fixed from then on, and `TimeLimit`, which could kill jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from schedmate.schedulers.live.actions import (
    REASON_PREFIX,
    Action,
    Annotate,
    Drain,
    Hold,
    Order,
    Release,
    Requeue,
    Resume,
)
from schedmate.schedulers.live.adapter import EndedRun
from schedmate.schedulers.live.executor import Answer, ExecutorError, Finding
from schedmate.schedulers.live.slurm.commands import CommandError, Commands
from schedmate.schedulers.live.slurm.reading.accounting import delimiter
from schedmate.schedulers.live.slurm.reading.details import details_format, parse_details
from schedmate.schedulers.live.slurm.reading.jobs import Job, parse_jobs
from schedmate.schedulers.live.slurm.reading.nodes import Node, parse_nodes
from schedmate.schedulers.live.slurm.reading.queue import parse_factors
from schedmate.schedulers.live.slurm.reading.shapes import OutageError
from schedmate.terminal import counted

AT_ONCE: Final = 200
"""Jobs in one command at most."""


class SlurmActs:
    """The executor's half of `SlurmAdapter`."""

    name = "slurm"

    def __init__(
        self, commands: Commands, *, drain: Sequence[str] = (), annotate: str = "off"
    ) -> None:
        self.commands = commands
        self._drain = list(drain)
        self._annotate = annotate
        self._version: tuple[int, int] | None = None

    # -- looking up ------------------------------------------------------

    def version(self) -> tuple[int, int]:
        """Year and month of Slurm's release: (22, 5)."""
        if self._version is None:
            printed = self.commands.run("squeue", "--version")
            numbers = printed.split()[-1].split(".")
            if len(numbers) < 2 or not all(one.isdigit() for one in numbers[:2]):
                raise OutageError(f"squeue --version printed {printed.strip()!r}.")
            self._version = int(numbers[0]), int(numbers[1])
        return self._version

    def job(self, job: str) -> Job | None:
        """A job as the controller knows it; None when it has forgotten it."""
        words = ["squeue", "--json"]  # which cannot be asked for one job alone
        if self.version() >= (23, 2):
            words = ["scontrol", "show", "job", job, "--json"]
        try:
            printed = self.commands.run(*words)
        except CommandError as error:
            if "Invalid job id" in error.said:
                return None
            raise
        array, _, task = job.partition("_")
        for one in parse_jobs(printed, " ".join(words)):
            if one.job == job or (task and one.array == array and str(one.task) == task):
                return one
        return None

    def restarts(self, run: EndedRun) -> int | None:
        """See `ClusterAdapter.restarts`. A requeue is another submission of the job."""
        found = self.job(run.job)
        if found is None:
            return None
        again = found.submitted != run.record.submit_time
        return max(0, found.restarts - again)

    def read_nodes(self) -> list[Node]:
        """All nodes."""
        new = self.version() >= (23, 2)  # where `sinfo --json` lists groups of nodes instead
        words = ("scontrol", "show", "nodes", "--json") if new else ("sinfo", "--json")
        return parse_nodes(self.commands.run(*words), " ".join(words))

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """SiteFactor of pending jobs. `sprio` prints nothing at all while nothing is pending."""
        wanted = set(jobs)
        found = parse_factors(self.commands.run("sprio", "-h", "-o", "%i %S"))
        return {job: value for job, value in found.items() if job in wanted}

    def comments(self, jobs: Iterable[str]) -> dict[str, str]:
        """What stands beside jobs that are in the queue, or in accounting, by setting."""
        between, ids = delimiter(), ",".join(jobs)
        if self._annotate == "comment":
            printed = self.commands.run(
                "squeue", "-h", "-a", "-j", ids, "-O", details_format(between)
            )
            return {one.job: one.comment for one in parse_details(printed, between)}
        columns = ("JobIDRaw", "AdminComment")
        printed = self.commands.run(
            *("sacct", "-X", "-n", "-p", f"--delimiter={between}", "-j", ids),
            *("-o", ",".join(columns)),
        )
        cells = printed.split(between)[:-1]
        return {job.strip(): comment for job, comment in zip(cells[::2], cells[1::2], strict=True)}

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
        values = self.order_values(action.values)
        left = {
            job: value
            for job, value in action.values.items()
            if job in values and values[job] != value and values[job] == action.previous.get(job)
        }
        foreign = [job for job in values if job not in left and values[job] != action.values[job]]
        if left:
            return Finding("ready", f"{len(left)} to be set"), left
        if foreign:
            return Finding("changed", f"somebody else ordered job {', '.join(foreign[:5])}"), {}
        return Finding("done", f"{len(values)} pending have their value"), {}

    def _unwritten(self, action: Annotate) -> tuple[Finding, dict[str, str]]:
        present = self.comments(action.texts)
        left = {
            job: text
            for job, text in action.texts.items()
            if job in present
            and present[job] != text
            and (not present[job] or present[job].startswith(REASON_PREFIX))
        }
        if left:
            return Finding("ready", f"{len(left)} to be written"), left
        return Finding("done", "each has its line, its owner's, or is gone"), {}

    def _probe_node(self, action: Drain | Resume) -> Finding:
        node = next((one for one in self.read_nodes() if one.name == action.node), None)
        if node is None:
            return Finding("changed", f"there is no node {action.node}")
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
            return Finding("changed", f"Slurm has forgotten job {action.job}")
        seen = f"job {action.job} is {'+'.join(job.states)}, restarted {job.restarts} times"
        excluded = set(action.exclude) <= set(job.excluded)
        if job.restarts == action.run:
            if "COMPLETING" in job.states:
                raise OutageError(f"{seen}; its run has to end first.")
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
        """See `Executor.act`. Slurm knows no request again: what is left to do is looked up."""
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
        if finding.state == "done":  # what was refused has started or gone meanwhile
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
                if "Invalid job id" not in error.said:  # it has gone: nobody needs the line
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
        """ExcNodeList cannot be set on a job that has ended, so: hold it requeued, set it, let go.

        Each step is taken only if it is still needed, so that an attempt that was cut off in the
        middle is finished by the next one.
        """
        job = self.job(action.job)
        if job is None:
            return Answer("failed", f"Slurm has forgotten job {action.job}")
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
