"""Slurm as the reconcile loop observes it, and as an executor of its actions, by Slurm's
commands.

`SlurmAdapter` observes through `squeue`, `sprio`, `sinfo`, `sacct` and `scontrol`; `SlurmActs`
probes and takes actions; `Lookups` reads the present state before one; `Commands` runs the
commands with a time limit and a fixed environment.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from schedmate.base.running import (
    MOST_OUTPUT,
    CutOffError,
    Running,
    complaint,
    lines_of,
    run,
)
from schedmate.base.terminal import clean, counted
from schedmate.cluster.actions import (
    Action,
    Annotate,
    Drain,
    Hold,
    Order,
    Release,
    Requeue,
    Resume,
    diagnostic_name,
    may_annotate,
)
from schedmate.cluster.adapter import (
    Answer,
    Description,
    EndedRun,
    ExecutorError,
    Finding,
    LiveJob,
    LiveNode,
    Ran,
    Skipped,
    Usage,
)
from schedmate.cluster.bounds import Bounds, left_to_set
from schedmate.cluster.slurm.reading import (
    LIVE_COLUMNS,
    QUEUE_FORMAT,
    USAGE_COLUMNS,
    Details,
    Job,
    LogRun,
    Node,
    OutageError,
    Queued,
    Row,
    ShapeError,
    delimiter,
    details_format,
    hosts_of,
    is_complete,
    json_count,
    json_document,
    json_objects,
    known_columns,
    log_path,
    parse_config,
    parse_details,
    parse_factors,
    parse_rows,
    read_job,
    read_node,
    read_queued,
    read_usage,
    submission_of,
    with_steps,
)
from schedmate.jobs import JobSpec, LaunchConfig
from schedmate.retrieval.sacct import gpus_of, parse_duration, parse_time, parse_tres, record_of

TIMEOUT_S = 30.0
"""Time limit of a command [s]. With the controller down, `squeue` gives up after about 9."""

_PASSED_ON = ("PATH", "SLURM_CONF", "TZ")


NOT_FOUND = 127
"""Exit code of `env` and shells if there is no such command."""


class CommandError(OutageError):
    """A command failed: `said` is its error output, `printed` its output."""

    def __init__(self, command: str, code: int, errors: str, printed: str = "") -> None:
        shown = clean(errors or printed, 300) or "no message"
        what = f"{command} ended with {code}: {shown}"
        if code == NOT_FOUND:
            what = (
                f"command not found: {command} here; run this on a host with Slurm's commands, or "
                "put them into PATH"
            )
        super().__init__(what)
        self.code, self.said, self.printed = code, errors, printed


class Commands:
    """Runs commands. `through` is put before each: `sudo -n -u schedmate-agent`, `runuser -u agent
    --`."""

    def __init__(self, through: Sequence[str] = ()) -> None:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}
        # sudo does not pass on our environment
        words = [f"{name}={value}" for name, value in environment.items()]
        self._before = [*through, "env", "-i", *words]

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> str:
        """What a command prints. Raises `CommandError`, or `OutageError` when it does not end."""
        return self._run([*self._before, *words], words[0], timeout_s)

    def run_directly(self, words: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> str:
        """Run a command as the agent's own user, without `through`: for the drain command."""
        return self._run(list(words), words[0], timeout_s)

    def _run(self, words: list[str], name: str, timeout_s: float) -> str:
        try:
            done = run(words, timeout_s=timeout_s)
        except OSError as error:
            raise _cannot_run(words, error) from None
        if done.cut_off:
            raise OutageError(f"{complaint(name, done.cut_off, timeout_s, MOST_OUTPUT)}.")
        if done.code:
            raise CommandError(name, done.code, _error_text(done.errors), done.text())
        return done.text()

    @contextmanager
    def streamed(self, *words: str, timeout_s: float = TIMEOUT_S) -> Iterator[Iterator[str]]:
        """What a command prints, piece by piece, for what may be long. Raises as `run` does, once
        the last piece was read."""
        try:
            running = Running([*self._before, *words], timeout_s=timeout_s)
        except OSError as error:
            raise _cannot_run(words, error) from None
        with running:
            yield self._text(running, words[0])

    def _text(self, running: Running, name: str) -> Iterator[str]:
        try:
            yield from running.text()
        except CutOffError:
            complaint = running.complaint().replace(running.name, name, 1)
            raise OutageError(f"{complaint}.") from None
        if code := running.code():
            raise CommandError(name, code, _error_text(running.errors))


def _cannot_run(words: Sequence[str], error: OSError) -> OutageError:
    return OutageError(f"cannot run {words[0]}: {error.strerror}; is it installed?")


def _error_text(errors: bytes | bytearray) -> str:
    return errors.decode("utf-8", "surrogateescape")


# Present state of jobs, nodes, order and notes by Slurm's commands, before actions.


class Lookups:
    """Slurm's present state; `annotate` is where notes are written (`annotate.where` of the
    bounds)."""

    def __init__(self, commands: Commands, *, annotate: str = "off") -> None:
        self.commands = commands
        self._annotate = annotate
        self._version: tuple[int, int] | None = None
        self.unread = Skipped()
        """Records that could not be read."""

    def version(self) -> tuple[int, int]:
        """Year and month of Slurm's release: (22, 5)."""
        if self._version is None:
            printed = self.commands.run("squeue", "--version")
            numbers = printed.split()[-1].split(".")
            if len(numbers) < 2 or not all(number.isdigit() for number in numbers[:2]):
                raise OutageError(f"squeue --version printed {printed.strip()!r}.")
            self._version = int(numbers[0]), int(numbers[1])
        return self._version

    def job(self, job: str) -> Job | None:
        """A job as the controller knows it; None if it does not know it any more."""
        words = ["squeue", "--json"]  # which cannot be restricted to one job
        if self.version() >= (23, 2):
            words = ["scontrol", "show", "job", job, "--json"]
        try:
            printed = self.commands.run(*words)
        except CommandError as error:
            if "Invalid job id" in error.said:
                return None
            raise
        what = " ".join(words)
        rows = json_objects(json_document(printed, what), "jobs", what)
        # what is wrong with another job does not matter here
        return next((read_job(row) for row in rows if _is_job(row, job)), None)

    def restarts(self, run: EndedRun) -> int | None:
        """See `ClusterAdapter.restarts`. A requeue is a new submission of the job."""
        fields = ("-O", "RestartCnt:20,SubmitTime:24")  # nothing that a user writes
        try:
            printed = self.commands.run("squeue", "-h", "-a", "-t", "all", "-j", run.raw, *fields)
        except CommandError as error:
            if "Invalid job id" in error.said:
                return None
            raise
        for line in printed.splitlines():
            cells = line.split()
            if len(cells) != 2 or not cells[0].isdigit():
                raise ShapeError(f"squeue printed {clean(line, 80)!r}, which are not restarts.")
            return max(0, int(cells[0]) - (parse_time(cells[1]) != run.record.submit_time))
        return None

    def read_nodes(self) -> list[Node]:
        """All nodes."""
        new = self.version() >= (23, 2)  # where `sinfo --json` lists groups of nodes instead
        words = ("scontrol", "show", "nodes", "--json") if new else ("sinfo", "--json")
        what = " ".join(words)
        rows = json_objects(json_document(self.commands.run(*words), what), "nodes", what)
        nodes = self.unread.sound(
            rows, read_node, f"a node of {what}", _name_of, none_is_an_error=True
        )
        return list(nodes)

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """SiteFactor of pending jobs. `sprio` prints nothing at all if nothing is pending."""
        wanted = set(jobs)
        factors = parse_factors(self.commands.run("sprio", "-h", "-o", "%i %S"))
        return {job: value for job, value in factors.items() if job in wanted}

    def comments(self, jobs: Iterable[str]) -> dict[str, str]:
        """Notes on jobs that are in the queue, or in accounting, depending on the setting."""
        between, ids = delimiter(), ",".join(jobs)
        if self._annotate == "comment":
            printed = self.commands.run(
                "squeue", "-h", "-a", "-j", ids, "-O", details_format(between)
            )
            return {details.job: details.comment for details in parse_details(printed, between)}
        columns = ("JobIDRaw", "AdminComment")
        printed = self.commands.run(
            *("sacct", "-X", "-n", "-p", f"--delimiter={between}", "-j", ids),
            *("-o", ",".join(columns)),
        )
        cells = printed.split(between)[:-1]
        return {job.strip(): comment for job, comment in zip(cells[::2], cells[1::2], strict=True)}


# Slurm as an executor: probes and takes the actions of `cluster/actions.py`.
#
# A Slurm Operator may do everything but `drain` and `resume`, which use a command that the site's
# administrators own (examples/slurm/schedmate-drain) and that checks the reason itself. Never
# changed: `Priority`, which would then be fixed, and `TimeLimit`, which could kill jobs.


JOBS_AT_ONCE: Final = 200
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
        node = next(
            (candidate for candidate in self.read_nodes() if candidate.name == action.node), None
        )
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
            # Slurm has taken it out of service itself
            return Finding("ready" if node.healthy else "moot", seen)
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
            return _failure_answer(error)
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
                    return _failure_answer(error)
        return Answer("done", f"{len(left)} written")

    def _set_node(self, action: Drain | Resume, timeout_s: float) -> Answer:
        if not self._drain:
            return Answer("failed", "no command is set that may drain nodes (slurm: drain)")
        words = [*self._drain, action.kind, action.node, action.mark]
        try:
            printed = self.commands.run_directly(words, timeout_s=timeout_s)
        except CommandError as error:
            return _failure_answer(error)
        return Answer("done", printed.strip())

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
            return _failure_answer(error, f"after {', '.join(done)}: " if done else "")
        return Answer("done", ", ".join(done))


def by_value(values: Mapping[str, int]) -> list[tuple[int, list[str]]]:
    """Jobs of equal value together, highest first, so that a few commands set many."""
    groups: dict[int, list[str]] = {}
    for job, value in values.items():
        groups.setdefault(value, []).append(job)
    return [
        (value, jobs[at : at + JOBS_AT_ONCE])
        for value, jobs in sorted(groups.items(), reverse=True)
        for at in range(0, len(jobs), JOBS_AT_ONCE)
    ]


def _is_outage(error: CommandError) -> bool:
    words = ("Unable to contact", "Connection refused", "connect failure", "timed out")
    return any(word in error.said for word in words)


def _failure_answer(error: CommandError, before: str = "") -> Answer:
    """A refusal is an answer; without an answer the result is unknown."""
    return Answer("unknown" if _is_outage(error) else "failed", f"{before}{error}")


# Slurm as the reconcile loop observes it.


LONGEST_SCRIPT = 1 << 16
"""Batch scripts are read up to this length [characters]; a longer one is left to the file."""

SACCT_STATES: Final = "CD,F,TO,CA,NF,OOM,BF,PR,RQ,DL"
"""States in which a run is over, for `sacct -s`."""

_RUNNING = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "RESIZING"})


class SlurmAdapter(SlurmActs):
    """One Slurm cluster through its commands: `squeue`, `sprio`, `sinfo`, `sacct`, `scontrol`."""

    def __init__(
        self,
        commands: Commands,
        *,
        cluster: str,
        drain: Sequence[str] = (),
        annotate: str = "off",
    ) -> None:
        """`drain` is the command that takes nodes out of service (examples/slurm/); without one
        none is. `annotate` is where estimates are written: `comment` or `admin_comment`."""
        super().__init__(commands, drain=drain, annotate=annotate)
        self.cluster = cluster
        self._columns: tuple[str, ...] | None = None

    # -- the queue -------------------------------------------------------

    def jobs(self) -> list[LiveJob]:
        """See `ClusterAdapter.jobs`."""
        with self.commands.streamed("squeue", "-h", "-a", "-o", QUEUE_FORMAT) as text:
            lines = (line for line in lines_of(text) if line.strip())
            queue = self.unread.sound(
                lines, read_queued, "a job of squeue", _first_cell, none_is_an_error=True
            )
            return [
                _live_job(queued)
                for queued in queue
                if queued.state == "PENDING" or queued.state in _RUNNING
            ]

    def describe(self, jobs: Sequence[str], *, scripts: bool = True) -> dict[str, Description]:
        """See `ClusterAdapter.describe`: from the queue, and the script that Slurm stores."""
        descriptions: dict[str, Description] = {}
        texts: dict[str, str | None] = {}
        for some in _batches(jobs):
            between = delimiter()
            words = ("-h", "-a", "-t", "all", "-j", ",".join(some))
            try:
                printed = self.commands.run("squeue", *words, "-O", details_format(between))
            except CommandError as error:
                if "Invalid job id" in error.said:  # all of them have gone
                    continue
                raise
            wanted = [one for one in parse_details(printed, between) if one.job in some]
            for group in {one.array or one.job for one in wanted} - texts.keys():
                texts[group] = self.script(group) if scripts else None
            described = self.unread.sound(
                wanted,
                lambda one: (one.job, _description(one, texts[one.array or one.job])),
                "a job of squeue",
                lambda one: one.job,
            )
            descriptions |= dict(described)
        return descriptions

    def script(self, job: str) -> str | None:
        """A job's batch script as submitted; None if it has none or it may not be read."""
        try:
            text = self.commands.run("scontrol", "write", "batch_script", job, "-")
        except CommandError:
            return None
        return text if len(text) <= LONGEST_SCRIPT else None

    def skipped(self) -> list[str]:
        """See `ClusterAdapter.skipped`."""
        return self.unread.news()

    def describe_ended(self, run: EndedRun) -> Description | None:
        """See `ClusterAdapter.describe_ended`: by accounting, once the controller has forgotten."""
        described = self.describe([run.raw]).get(run.raw)
        if described is not None:
            return described
        script = self._stored_script(run)
        submission = submission_of(run.record.command or "", script)
        nodes = run.record.launch.nodes
        spec = JobSpec(
            repo=run.workdir or None,
            command=launch_command(submission.command, script, run.workdir, nodes)
            or run.record.command,
            name=run.record.name,
            user=run.record.user,
            launch=run.record.launch,
            submit_time=run.record.submit_time,
        )
        return Description(
            spec, run.log or submission.stdout, errors=run.errors or submission.stderr
        )

    def _stored_script(self, run: EndedRun) -> str | None:
        """The batch script that accounting keeps, where the site lets it (`job_script`)."""
        try:
            printed = self.commands.run("sacct", "-B", "-j", run.group)
        except CommandError:
            return None
        head, _, text = printed.partition("\n" + "-" * 80 + "\n")
        known = head.startswith("Batch Script for") and text.startswith("#!")
        return text if known and len(text) <= LONGEST_SCRIPT else None

    def log_path(self, job: LiveJob | EndedRun, pattern: str, spec: JobSpec) -> Path | None:
        """See `ClusterAdapter.log_path`. Accounting may have lost the directory that a pattern is
        relative to."""
        if not job.nodes or not (spec.repo or pattern.startswith("/")):
            return None
        run = LogRun(
            job=job.id if isinstance(job, LiveJob) else job.raw,
            name=spec.name or "",
            user=spec.user or "",
            node=job.nodes[0],
            array=job.group if job.task is not None else None,
            task=job.task,
        )
        return Path(log_path(pattern, spec.repo or "/", run))

    def node_logs(self, run: EndedRun) -> list[Path]:
        """See `ClusterAdapter.node_logs`: Slurm has none."""
        return []

    # -- nodes -----------------------------------------------------------

    def nodes(self) -> list[LiveNode]:
        """See `ClusterAdapter.nodes`."""
        return [
            LiveNode(
                name=node.name,
                healthy=node.healthy,
                drained=node.drained,
                busy=node.busy,
                reason=node.reason,
                queues=node.partitions,
                gpus=node.gpus,
                gpus_used=node.gpus_used,
            )
            for node in self.read_nodes()
        ]

    # -- accounting ------------------------------------------------------

    def ended(self, since: float, until: float | None = None) -> list[EndedRun]:
        """See `ClusterAdapter.ended`: from accounting, which lags some seconds behind.

        `until` [s since epoch] is for reading a long time in parts.
        """
        end = "now" if until is None else f"uts{int(until)}"
        words = ("-S", f"uts{max(1, int(since))}", "-E", end, "-s", SACCT_STATES)
        with self._rows(*words) as rows:
            runs = (run for run in with_steps(rows) if is_complete(run[0], time.time()))
            read = self.unread.sound(
                runs, lambda run: self._ended(*run), "a row of sacct", lambda run: run[0]["jobid"]
            )
            return list(read)

    def usage(self, jobs: Sequence[str], *, running: bool) -> dict[str, Usage]:
        """See `ClusterKind.usage`: by `sacct`, and by `sstat` of running steps, which their
        owner and Operators may ask; what Slurm does not gather is unknown."""
        if not jobs:
            return {}
        ids = ",".join(jobs)
        asked = self.commands.run("sacct", "-n", "-P", "-j", ids, "-o", ",".join(USAGE_COLUMNS))
        live = ""
        if running:
            words = ("-a", "-n", "-P", "-j", ids, "-o", ",".join(LIVE_COLUMNS))
            with suppress(ExecutorError):
                live = self.commands.run("sstat", *words)
        return {job: used for job, used in read_usage(asked, live).items() if any(used)}

    def measured_as(self, jobs: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `ClusterAdapter.measured_as`: by number; each task of an array has one of its own."""
        numbers = {job: job for job in jobs if job.isdecimal()}
        tasks = [job for job in jobs if re.fullmatch(r"\d+_\d+", job)]
        if tasks:
            listed = self.commands.run("squeue", "-h", "-r", "-j", ",".join(tasks), "-o", "%i|%A")
            pairs = (line.strip().partition("|") for line in listed.splitlines())
            numbers |= {job: raw for job, _, raw in pairs if job in tasks and raw.isdecimal()}
        return {job: {"job": number} for job, number in numbers.items()}

    @contextmanager
    def _rows(self, *words: str) -> Iterator[Iterator[Row]]:
        if self._columns is None:
            self._columns = known_columns(self.commands.run("sacct", "-e"))
        between = delimiter()
        with self.commands.streamed(
            *("sacct", "-a", "-D", "-n", "-p", f"--delimiter={between}"),
            *("-o", ",".join(self._columns), *words),
            timeout_s=300.0,
        ) as text:
            yield parse_rows(text, self._columns, between)

    def _ended(self, row: Row, steps: list[Row]) -> EndedRun:
        record = record_of(row, steps)
        group, _, task = row["jobid"].partition("_")
        key = f"{self.cluster}/{row['jobid']}@{int(record.submit_time or 0)}"
        submission = submission_of(row["submitline"], None)
        return EndedRun(
            job=row["jobid"],
            raw=row["jobidraw"],
            group=group.partition("+")[0],
            record=record.model_copy(update={"job_id": key}),
            nodes=hosts_of(row["nodelist"]),
            workdir=row["workdir"],
            log=row.get("stdout") or submission.stdout,
            task=int(task) if task.isdigit() else None,
            errors=row.get("stderr") or submission.stderr,
            failed_nodes=hosts_of(row.get("failednode", "")),
        )


def _is_job(row: dict[str, Any], job: str) -> bool:
    """Whether a row of JSON is this job, `12`, or this task of an array, `12_3`."""
    array, _, task = job.partition("_")
    try:
        if str(json_count(row.get("job_id"), "job_id")) == job:
            return True
        found = json_count(row.get("array_job_id"), ""), json_count(row.get("array_task_id"), "")
    except ShapeError:
        return False
    return bool(task) and tuple(map(str, found)) == (array, task)


def _name_of(row: dict[str, Any]) -> str:
    return str(row.get("name"))


def _first_cell(line: str) -> str:
    return line.partition("|")[0]


def _live_job(queued: Queued) -> LiveJob:
    return LiveJob(
        id=queued.job,
        group=queued.array,
        state="PENDING" if queued.state == "PENDING" else "RUNNING",
        user=queued.user,
        queues=queued.partitions,
        submitted=queued.submitted,
        started=queued.started,
        nodes=queued.nodes,
        held=queued.held,
        reason=queued.reason,
        priority=queued.priority,
        task=queued.task,
        expected=queued.expected,
    )


def _description(details: Details, script: str | None) -> Description:
    gpus, gpu_type = gpus_of(parse_tres(details.tres))
    nodes = int(details.nodes) if details.nodes.isdigit() else None
    try:
        limit, submitted = parse_duration(details.time_limit), parse_time(details.submitted)
    except ValueError as error:
        raise ShapeError(f"squeue: {error}") from None
    spec = JobSpec(
        job_id=details.job,
        name=details.name or None,
        user=details.user,
        repo=details.workdir,
        command=launch_command(details.command, script, details.workdir, nodes),
        launch=LaunchConfig(gpus=gpus, nodes=nodes, gpu_type=gpu_type, time_limit_s=limit),
        submit_time=submitted,
    )
    errors = "" if details.stderr in (details.stdout, "N/A") else details.stderr
    return Description(spec, details.stdout, errors=errors)


def launch_command(
    command: str, script: str | None, workdir: str, nodes: int | None = None
) -> str | None:
    """The command that starts a batch job, as typed in its directory.

    The script is the text that Slurm keeps, since the file may have changed or be out of reach.
    `command` is its name and its arguments, whose quotes are lost.
    """
    name, *arguments = command.split()[:200] or ["sbatch"]
    if script is None or not script.startswith("#!"):
        return command or None
    knows = f"export SLURM_SUBMIT_DIR={shlex.quote(workdir)}"
    if nodes:
        knows += f" SLURM_NNODES={nodes} SLURM_JOB_NUM_NODES={nodes}"
    # before the first line, which then is a comment, so that lines keep their numbers
    return shlex.join(["bash", "-c", f"{knows}; {script}", name, *arguments])


def _batches(jobs: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(jobs), JOBS_AT_ONCE):
        yield jobs[at : at + JOBS_AT_ONCE]


def connect_slurm(bounds: Bounds) -> SlurmAdapter:
    """The cluster that Slurm's commands on this machine belong to.

    Raises `OutageError` when its controller does not answer.
    """
    commands = Commands(bounds.slurm.through)
    config = parse_config(commands.run("scontrol", "show", "config"))
    return SlurmAdapter(
        commands,
        cluster=config.get("ClusterName", "slurm"),
        drain=bounds.slurm.drain,
        annotate=bounds.annotate.where,
    )


# Diagnostics of recovery.yaml as Slurm jobs.


ALLOCATION_S = 60.0
"""How long a diagnostic may wait for its nodes to be free [s]."""


class SlurmRunner:
    """Runs a diagnostic as a separate Slurm job with exclusive use of its nodes."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """See `Runner.run`."""
        name = diagnostic_name(key)
        words = (
            *("srun", f"--job-name={name}", f"--nodelist={','.join(nodes)}"),
            *(f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--exclusive", "--quiet"),
            *(f"--immediate={math.ceil(ALLOCATION_S)}", f"--time={math.ceil(timeout_s / 60.0)}"),
            *("--chdir=/", "--", *command),
        )
        run = self._commands.run
        try:
            return Ran(0, run(*words, timeout_s=timeout_s + ALLOCATION_S))
        except CommandError as error:
            if "srun: error: Unable to allocate" in error.said or "Immediate" in error.said:
                return Ran(None, error.said, f"{','.join(nodes)} could not be had for a test")
            return Ran(error.code, f"{error.printed}\n{error.said}")
        except ExecutorError as error:
            with suppress(ExecutorError):
                run("scancel", f"--name={name}")
            return Ran(None, "", f"{error}")
