"""What schedmate asks of a cluster, whichever scheduler it has: the interface of its adapter.

An adapter observes (jobs, their descriptions, nodes, ended runs, logs) and is an `Executor`: it
probes and takes the actions of `actions.py`. It decides nothing; a `Guard` is called before every
action, inside the transaction that records its intent, and may forbid it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from schedmate.base.errors import ActionError
from schedmate.base.terminal import clean
from schedmate.cluster.actions import Action
from schedmate.jobs import FAILURE_STATES, JobRecord, JobSpec

if TYPE_CHECKING:
    from schedmate.cluster.record import PlanStatus, Record


LookedUp = Literal[
    "ready",  # the precondition holds and the action has not been taken, or only in part
    "done",  # in effect, by this action's own mark if it leaves one
    "moot",  # its purpose is met already, by somebody else: it is skipped, and never undone
    "changed",  # none of these: the target is gone, or not as the plan expects
]


class Finding(NamedTuple):
    """The state of an action, as observed on the cluster."""

    state: LookedUp
    detail: str = ""
    """The observation, for people."""


class Answer(NamedTuple):
    """The result of an action.

    `unknown`: it cannot be determined, as there was no answer in time, or one that makes no sense.
    A probe follows before anything else.
    """

    outcome: Literal["done", "failed", "unknown"]
    detail: str = ""
    data: dict[str, Any] = {}  # noqa: RUF012 - a NamedTuple's default, which nobody changes


class ExecutorError(ActionError):
    """An executor could not determine or do something: its scheduler does not answer, or a command
    of the site failed.

    Whether an action was taken is unknown.
    """


class RefusedError(ActionError):
    """A guard forbids an action.

    `wait_s`: time after which it would allow it [s]; None: a person has to decide. `observed`: an
    observation to record: what, about, data.
    """

    def __init__(
        self,
        rule: str,
        message: str,
        *,
        wait_s: float | None = None,
        observed: tuple[str, str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(message)
        self.rule = rule
        """Which guard: `kill switch`, `circuit breaker`, `cool-down` ..."""
        self.wait_s = wait_s
        self.observed = observed


class Executor(Protocol):
    """Takes actions on one cluster. Raises `ExecutorError` for a state that it cannot determine.

    It does not decide whether, how often or in which order actions are taken.
    """

    name: str
    """For people and the record: `slurm`, `local`."""

    def probe(self, action: Action) -> Finding:
        """Determine, without a change, whether an action can be taken, is done, or no longer
        applies.

        `done` must mean that this very action is in effect: a node that somebody else drained is
        `moot` for `Drain`. An action of several steps that was interrupted is `ready`, and `act`
        takes the remaining steps.
        """
        ...

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """Take an action whose intent is recorded, within a time limit.

        `key` is the same for every attempt at this step, for schedulers that recognise a repeated
        request. An action without an answer in time is `unknown`.
        """
        ...


class Ran(NamedTuple):
    """Result of a command on nodes.

    `exit_code` is None if it could not be run or did not end in time, which is no evidence about
    the nodes; `detail` has the reason.
    """

    exit_code: int | None
    output: str
    detail: str = ""


class Runner(Protocol):
    """Runs the administrator's diagnostics on nodes without jobs (Slurm: an exclusive step with a
    node list).

    It changes nothing that outlives the command. If it is a job of the scheduler, its name is
    `diagnostic_name(key)`, by which agents know that it is schedmate's own.
    """

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """Run a command once over all of `nodes` together, and end it after `timeout_s`."""
        ...


class NoRunner:
    """A `Runner` for a cluster on which no diagnostics are run; `where` names it for people."""

    def __init__(self, where: str) -> None:
        self._where = where

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """See `Runner.run`; the result of the diagnostics is unknown here."""
        return Ran(None, "", f"schedmate runs no diagnostics on {self._where}")


class Guard(Protocol):
    """Decides whether an action may be taken: `check` allows it or raises."""

    def check(self, record: Record, status: PlanStatus, action: Action, *, undo: bool) -> None:
        """Raise `RefusedError`, or allow the action.

        It runs inside the transaction that records the intent, so the record cannot change before
        that is written. It must be quick and must not query the cluster: its state is passed in
        beforehand.
        """
        ...


class Unguarded:
    """A guard that allows everything, for tests and for actions that change no node or job."""

    def check(self, record: Record, status: PlanStatus, action: Action, *, undo: bool) -> None:
        """Allow the action."""


# What an adapter observes: jobs, their descriptions, nodes, ended runs and logs.


NODE_FAILURES = frozenset({"NODE_FAIL", "BOOT_FAIL"})
"""Those of `FAILURE_STATES` at which the scheduler lost a node of the job."""


class LiveJob(NamedTuple):
    """One pending or running job, or all that is pending of an array: it is ordered as one."""

    id: str
    group: str
    """Id shared by the tasks of an array; that of the job itself if it is not in one."""
    state: Literal["PENDING", "RUNNING"]
    user: str
    queues: tuple[str, ...]
    submitted: float | None
    """[s since epoch]"""
    started: float | None
    """[s since epoch]"""
    nodes: tuple[str, ...]
    held: bool
    reason: str
    """Why it waits, in the scheduler's words."""
    priority: int | None = None
    task: int | None = None
    """Its index in the array; None for a single job."""
    expected: float | None = None
    """When the scheduler itself expects it to start, if it says so [s since epoch]."""

    @property
    def key(self) -> str:
        """A key that is constant while this submission is in the queue."""
        return run_key(self.group, self.submitted)


def run_key(group: str, submitted: float | None) -> str:
    """Key of a submission of a job or array: ids are reused some day, and a requeue is a new
    submission."""
    return f"{group}@{int(submitted or 0)}"


class Description(NamedTuple):
    """The owner's description of a job: the advisor's input, and the path of its log."""

    spec: JobSpec
    log: str
    """The pattern of its log, in the scheduler's notation."""
    problems: tuple[str, ...] = ()
    """Why it is incomplete, if it is."""
    no_code: str = ""
    """Why the location of its code is unknown, if it is."""
    errors: str = ""
    """The pattern of a second file that its errors go to, if they do not go to its log."""


class LiveNode(NamedTuple):
    """A node as the scheduler reports it."""

    name: str
    healthy: bool
    """Whether it takes jobs, or would when those on it have ended."""
    drained: bool
    busy: bool
    reason: str
    queues: tuple[str, ...]
    gpus: int = 0
    gpus_used: int = 0


class EndedRun(NamedTuple):
    """One run of a job that is over, as accounting has it; `record` has no metadata."""

    job: str
    """The id that people and the scheduler's commands use: `17`, `12_3`."""
    raw: str
    """The scheduler's internal id: for a task of an array a separate number."""
    group: str
    record: JobRecord
    nodes: tuple[str, ...]
    workdir: str
    log: str
    """The pattern of its log path, if accounting has it."""
    task: int | None = None
    attempt: int | None = None
    """Which run this is of the job, where the scheduler starts it again; None or 0: the first."""
    errors: str = ""
    """The pattern of a second file that its errors go to, if accounting has it."""
    failed_nodes: tuple[str, ...] = ()
    """The nodes whose loss ended it, where the scheduler says which."""

    @property
    def key(self) -> str:
        """The key of the submission, equal to `LiveJob.key` while the job was in the queue."""
        return run_key(self.group, self.record.submit_time)

    @property
    def run(self) -> str:
        """The unique key of this run."""
        key = run_key(self.job, self.record.submit_time)
        return key if self.attempt is None else f"{key}#{self.attempt}"

    @property
    def never_ran(self) -> bool:
        """Whether it ended before it began: cancelled in the queue. Nothing is to be learned."""
        took = bool(self.nodes or self.record.duration_s)
        return not took and self.record.state not in (*FAILURE_STATES, "COMPLETED")


MOST_USE = 1.05
"""Use of GPUs or CPUs above which it is not believed: samples of short steps are beside the
point."""


class Usage(NamedTuple):
    """What a job used of what it asked for, as far as the scheduler knows; None: it does not."""

    cpus: int | None = None
    cpu: float | None = None
    """CPU time over the CPUs' time [0 to 1]."""
    memory_bytes: float | None = None
    """The most memory that it used; of several tasks on a node, as if each used the most."""
    memory_asked_bytes: float | None = None
    gpu: float | None = None
    """Mean utilisation of its GPUs [0 to 1]."""
    gpu_memory_bytes: float | None = None
    """The most memory that it used of one GPU."""

    @property
    def memory(self) -> float | None:
        """Memory used over memory asked for."""
        if self.memory_bytes is None or not self.memory_asked_bytes:
            return None
        return self.memory_bytes / self.memory_asked_bytes


class ClusterAdapter(Executor, Protocol):
    """One cluster. Every method raises `ExecutorError` if its scheduler does not answer, so that an
    empty result means that there is nothing."""

    cluster: str
    """The cluster's name: part of the ids of plans and of jobs in the history."""

    def jobs(self) -> list[LiveJob]:
        """Pending and running jobs. Called every few seconds, so it must be cheap."""
        ...

    def describe(self, jobs: Sequence[str], *, scripts: bool = True) -> dict[str, Description]:
        """Descriptions of these jobs, by id, without jobs that the scheduler does not know.

        Jobs that have ended are known for some minutes. Without `scripts` commands may be missing.
        """
        ...

    def describe_ended(self, run: EndedRun) -> Description | None:
        """What can still be known of a job that has ended; None: only what `run` says."""
        ...

    def skipped(self) -> list[str]:
        """The scheduler's records that were skipped since the last call, and what is wrong with
        each, as sentences."""
        ...

    def nodes(self) -> list[LiveNode]:
        """All nodes."""
        ...

    def ended(self, since: float) -> list[EndedRun]:
        """Runs that ended at `since` [s since epoch] or later, once accounting is complete for
        them."""
        ...

    def restarts(self, run: EndedRun) -> int | None:
        """How often the job was restarted before this run; None when the scheduler has forgotten
        the job."""
        ...

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """The place in the queue (`Order`'s unit) that pending jobs have now."""
        ...

    def log_path(self, job: LiveJob | EndedRun, pattern: str, spec: JobSpec) -> Path | None:
        """The path of a run's log; None: unknown."""
        ...

    def node_logs(self, run: EndedRun) -> list[Path]:
        """Logs of the nodes of a run, as files that no job can write."""
        ...

    def measured_as(self, jobs: Sequence[str]) -> dict[str, dict[str, str]]:
        """What `cluster/usage.yaml` calls these jobs at a Prometheus server, by id, without those
        that no exporter names."""
        ...


def description_of(adapter: ClusterAdapter, run: EndedRun) -> Description:
    """An ended job from what the scheduler or its accounting still has, else from its run."""
    described = adapter.describe_ended(run)
    if described is not None:
        return described
    spec = JobSpec(
        repo=run.workdir or None,
        command=run.record.command,
        name=run.record.name,
        user=run.record.user,
        launch=run.record.launch,
    )
    return Description(spec, run.log, errors=run.errors)


MOST_SKIPPED = 1000
"""Skipped records that are remembered one by one."""

T = TypeVar("T")
R = TypeVar("R")


class Skipped:
    """A scheduler's records that were not taken, and why: the last `MOST_SKIPPED` one by one, all
    as a number."""

    def __init__(self) -> None:
        self.count = 0
        """How often a record was skipped."""
        self._lock = threading.Lock()
        self._why: dict[tuple[str, str], str] = {}
        self._new: deque[str] = deque(maxlen=20)

    def add(self, what: str, identity: str, problem: str) -> None:
        """Remember a record that was skipped: `what` as in "a row of sacct"."""
        with self._lock:
            self.count += 1
            if self._why.get((what, identity)) != problem:
                if len(self._why) >= MOST_SKIPPED:
                    del self._why[next(iter(self._why))]
                self._why[what, identity] = problem
                self._new.append(f"{what} is skipped: {problem}")

    def drop(self, what: str, identity: str) -> None:
        """Forget a record that is taken now."""
        if self._why:
            with self._lock:
                self._why.pop((what, identity), None)

    def news(self) -> list[str]:
        """Why records were skipped since the last call, each once."""
        with self._lock:
            news = list(dict.fromkeys(self._new))
            self._new.clear()
        return news

    def sound(
        self,
        records: Iterable[T],
        read: Callable[[T], R],
        what: str,
        identity: Callable[[T], str],
        *,
        none_is_an_error: bool = False,
    ) -> Iterator[R]:
        """The records as `read` reads them, without those that it cannot read.

        `none_is_an_error`: where there are some and none can be read, this is no output of a known
        version, and what `read` raised of the last one is raised.
        """
        taken, last = 0, None
        for record in records:
            try:
                one = read(record)
            except (ActionError, ValueError, TypeError, KeyError, ArithmeticError) as error:
                last = error
                self.add(what, clean(identity(record), 200), clean(str(error).split("\n")[0], 200))
            else:
                taken += 1
                self.drop(what, clean(identity(record), 200))
                yield one
        if none_is_an_error and last is not None and not taken:
            raise last


class Observer:
    """An adapter to derive one's own from: it sees nothing and does nothing until methods say
    more."""

    name = "observer"
    cluster = "cluster"

    def jobs(self) -> list[LiveJob]:
        """See `ClusterAdapter.jobs`."""
        return []

    def describe(self, jobs: Sequence[str], *, scripts: bool = True) -> dict[str, Description]:
        """See `ClusterAdapter.describe`."""
        return {}

    def describe_ended(self, run: EndedRun) -> Description | None:
        """See `ClusterAdapter.describe_ended`."""
        return self.describe([run.raw]).get(run.raw)

    def skipped(self) -> list[str]:
        """See `ClusterAdapter.skipped`."""
        return []

    def nodes(self) -> list[LiveNode]:
        """See `ClusterAdapter.nodes`."""
        return []

    def ended(self, since: float) -> list[EndedRun]:
        """See `ClusterAdapter.ended`."""
        return []

    def restarts(self, run: EndedRun) -> int | None:
        """See `ClusterAdapter.restarts`."""
        return None

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """See `ClusterAdapter.order_values`."""
        return {}

    def log_path(self, job: LiveJob | EndedRun, pattern: str, spec: JobSpec) -> Path | None:
        """See `ClusterAdapter.log_path`: the pattern is the path."""
        return Path(pattern) if pattern else None

    def node_logs(self, run: EndedRun) -> list[Path]:
        """See `ClusterAdapter.node_logs`."""
        return []

    def measured_as(self, jobs: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `ClusterAdapter.measured_as`."""
        return {}

    def probe(self, action: Action) -> Finding:
        """See `Executor.probe`."""
        raise ExecutorError(f"the adapter {self.name} takes no action {action.kind!r}.")

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """See `Executor.act`."""
        raise ExecutorError(f"the adapter {self.name} takes no action {action.kind!r}.")


# How long to wait before a scheduler that did not answer is asked again.


LONGEST_WAIT_S = 60.0
"""The longest pause while the scheduler does not answer [s]: failures are to be seen soon after."""


def pause_s(poll_s: float, failures: int, chance: float) -> float:
    """The pause after this number of failed passes in a row [s].

    It doubles, up to `LONGEST_WAIT_S`. `chance`, from 0 to 1, shortens it by up to a quarter, so
    that agents that lost one controller do not all return at once.
    """
    if not failures:
        return poll_s
    longest = max(poll_s, LONGEST_WAIT_S)
    return float(min(longest, poll_s * 2.0 ** min(failures, 30)) * (1.0 - 0.25 * chance))
