"""The reconcile loop over a cluster: observe, advise, follow and diagnose, plan, guard, act,
record.

`Agent.once` makes one pass and returns what it found and did (`Pass`); `watch` repeats passes. A
pass may be interrupted anywhere: its findings are in the `Memory`, its actions in the `Record`, and
the next pass resumes from there. If the scheduler does not answer, nothing is done, and the cluster
runs as without schedmate.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from schedmate.base.errors import SchedmateError
from schedmate.base.files import children
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import clean
from schedmate.cluster.actions import REASON_PREFIX, Action, Annotate, is_diagnostic_name
from schedmate.cluster.adapter import (
    FAILURES,
    NODE_FAILURES,
    ClusterAdapter,
    Description,
    EndedRun,
    ExecutorError,
    LiveJob,
    RefusedError,
    pause_s,
)
from schedmate.cluster.bounds import (
    Bounds,
    check_band,
    is_ordered,
    kill_switch_is_on,
    moved_trust,
    order_to_set,
    order_value,
)
from schedmate.cluster.memory import KnownJob, Memory
from schedmate.cluster.record import Plan, PlanStatus, Purpose, Reason, Record, Result, carry_out
from schedmate.jobs import (
    Diagnosis,
    Estimate,
    JobRecord,
    JobSpec,
    Progress,
    Remaining,
    WorkloadMetadata,
)
from schedmate.mate import Analysis, SchedMate

if TYPE_CHECKING:
    from schedmate.cluster.recovery.recover import ClusterRecovery

REPORT_SCHEMA = "schedmate.agent-pass/v1"


class _PassPart(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Estimated(_PassPart):
    """An estimate of a job that is new, or for which more runs are known now."""

    job: str
    user: str
    estimate: Estimate
    again: bool = False


class Followed(_PassPart):
    """A running job whose log was read."""

    job: str
    log: str
    progress: Progress
    remaining: Remaining | None = Field(
        None, description="How long it still takes, by its estimate and its log together"
    )


class Failed(_PassPart):
    """A run that failed, and what its logs say."""

    job: str
    run: str
    state: str
    nodes: tuple[str, ...]
    log: str | None
    diagnosis: Diagnosis | None
    plan: str | None = Field(None, description="The id of the plan that was proposed for it")


class Done(_PassPart):
    """An action that was taken, or would be in a dry run."""

    plan: str | None = Field(None, description="Null in a dry run")
    action: Action
    state: str = Field(description="`would` in a dry run, else the state of its plan")
    detail: str = ""


class Pass(_PassPart):
    """The report of one pass over a cluster: what the agent saw, did, and could not do."""

    cluster: str
    time: float = Field(description="When it began [s since epoch]")
    took_s: float = Field(0.0, description="Wall time [s]")
    dry_run: bool = False
    stopped: bool = Field(False, description="The kill switch is set: nothing was changed")
    pending: int = 0
    running: int = 0
    stalled: int = Field(0, description="Running jobs whose logs are silent for too long")
    newly_stalled: list[str] = Field(
        default_factory=list, description="Those that were not stalled in the pass before"
    )
    unread: int = Field(0, description="Jobs whose code is left for the next pass")
    undiagnosed: int = Field(0, description="Failed runs that are left for the next pass")
    unlearned: int = Field(0, description="Ended runs to be learned from in the next passes")
    estimated: list[Estimated] = Field(default_factory=list)
    actions: list[Done] = Field(default_factory=list)
    learned: int = Field(0, description="Ended runs that went into the history")
    followed: list[Followed] = Field(default_factory=list)
    failed: list[Failed] = Field(default_factory=list)
    waiting: list[str] = Field(default_factory=list, description="Plans that wait for approval")
    problems: list[str] = Field(default_factory=list, description="What could not be done, and why")

    @property
    def eventful(self) -> bool:
        """Whether there is anything to report."""
        work = self.estimated or self.actions or self.learned or self.newly_stalled
        return bool(work or self.failed or self.problems)


# Runs that have ended: those that failed are diagnosed, at once; all are learned from, later.


LEARNED_AT_ONCE = 20
"""Runs that go into the history together."""

MOST_FAULTS = 2
"""Runs in one pass that may raise an error before the rest is left for the next."""

GIVEN_UP_S = 3600.0
"""Time after its end from which a run that cannot be taken in is left out [s]."""

LEARNED_UNTIL, BEGUN = "learned until", "begun"


class Failure(NamedTuple):
    """A run that failed: what recovery plans from."""

    cluster: str
    run: EndedRun
    restarts: int
    """Restarts of the job before this run."""
    diagnosis: Diagnosis
    log: str | None


class EndedRuns:
    """Diagnoses and learns from each run exactly once, even if the process is killed.

    A pass reads which runs have ended (`read`), looks into failures (`diagnose`) and learns
    (`learn`), the latest runs first and for a limited time each; what is left comes in the next
    pass. Jobs that were cancelled before they ran are only marked. A run counts as diagnosed or
    learned once everything about it is stored; work repeated after an interruption has the same
    ids and replaces itself.
    """

    def __init__(
        self,
        adapter: ClusterAdapter,
        mate: SchedMate,
        memory: Memory,
        record: Record | None,
        bounds: Bounds,
        healer: ClusterRecovery | None,
    ) -> None:
        self._adapter = adapter
        self._mate = mate
        self._memory = memory
        self._record = record
        self._bounds = bounds
        self._healer = healer
        self.undiagnosed: list[EndedRun] = []
        """Failed runs that are still to be looked into, the latest first."""
        self.unlearned: list[EndedRun] = []
        """Runs that are still to be learned from, the latest first."""
        self._read_at: float | None = None

    def read(self, now: float) -> list[EndedRun]:
        """Read which runs have ended; the first call only sets the time.

        Returns the runs for which accounting is complete, including those learned before.
        """
        begun = self._memory.mark(BEGUN)
        if begun is None:  # what ended before the agent began is for `import`
            begun = float(int(now))  # accounting has whole seconds only
            self._memory.set_mark(BEGUN, begun)
        overlap = self._bounds.learn.overlap
        since = max(begun, (self._memory.mark(LEARNED_UNTIL) or now) - overlap)
        runs = [run for run in self._adapter.ended(since) if (run.record.end_time or 0.0) >= begun]
        new = self._memory.unlearned(run.run for run in runs)
        left = [run for run in runs if run.run in new]
        # a job of schedmate's own is no job of a user, and how it ends is a diagnostic's result
        nothing = {run.run for run in left if run.never_ran or is_diagnostic_name(run.record.name)}
        if nothing:
            self._memory.learned(sorted(nothing), now, {})
        left = [run for run in left if run.run not in nothing]
        left.sort(key=lambda run: -(run.record.end_time or 0.0))
        failed = [run.run for run in left if run.record.state in FAILURES]
        to_diagnose = self._memory.undiagnosed(failed) if self._bounds.diagnose.allowed else set()
        self.undiagnosed = [run for run in left if run.run in to_diagnose]
        self.unlearned = left
        self._read_at = now
        return runs

    def diagnose(self, report: Pass, now: float) -> None:
        """Look into failed runs, and have recovery plan for them."""

        def take_in(some: list[EndedRun]) -> None:
            for run in some:
                failed, failure = self.look_into(run, now)
                if self._record is not None:
                    self._propose(failed, failure)
                report.failed.append(failed)
                self._memory.diagnosed(run.run, now)

        seconds = self._bounds.diagnose.seconds
        self.undiagnosed = self._in_time(self.undiagnosed, 1, seconds, take_in, report)
        report.undiagnosed = len(self.undiagnosed)

    def learn(self, report: Pass, now: float) -> None:
        """Learn from runs whose failure, if they failed, has been looked into."""

        def take_in(some: list[EndedRun]) -> None:
            self._learn(some, now)
            report.learned += len(some)

        waiting = {run.run for run in self.undiagnosed}
        ready = [run for run in self.unlearned if run.run not in waiting]
        seconds = self._bounds.learn.seconds
        left = self._in_time(ready, LEARNED_AT_ONCE, seconds, take_in, report)
        unlearned = {run.run for run in left} | waiting
        self.unlearned = [run for run in self.unlearned if run.run in unlearned]
        report.unlearned = len(self.unlearned)
        if self._read_at is not None and not self.unlearned:
            self._memory.set_mark(LEARNED_UNTIL, self._read_at)
            self._memory.forget(now)
            self._read_at = None

    def _in_time(
        self,
        runs: list[EndedRun],
        at_once: int,
        seconds: float,
        take_in: Callable[[list[EndedRun]], None],
        report: Pass,
    ) -> list[EndedRun]:
        """Take in runs until the time is over; gives what is left, faulty ones last.

        A run that cannot be taken in (its directory is odd, the disk is full) does not hold up the
        others: it is a problem of the pass and comes again, until it is too old.
        """
        deadline = time.monotonic() + seconds
        left = deque(runs[at : at + at_once] for at in range(0, len(runs), at_once))
        faulty: list[EndedRun] = []
        while left and time.monotonic() < deadline and len(faulty) < MOST_FAULTS:
            some = left.popleft()
            try:
                take_in(some)
            except (SchedmateError, OSError) as error:
                if len(some) > 1:
                    left.extendleft([run] for run in reversed(some))
                    continue
                report.problems.append(f"run {some[0].run}: {error}")
                if report.time - (some[0].record.end_time or 0.0) < GIVEN_UP_S:
                    faulty += some
                    continue
                self._memory.diagnosed(some[0].run, report.time)
                self._memory.learned([some[0].run], report.time, {})
        return [run for some in left for run in some] + faulty

    def _learn(self, runs: list[EndedRun], now: float) -> None:
        known_jobs = {run.key: self._memory.known(run.key) for run in runs}
        late = {run.key: run for run in runs if known_jobs[run.key] is None}
        # they came and went between two passes, or ended before the agent began
        described = [(key, self._description(run)) for key, run in late.items()]
        for known_job in CodeReader(self._mate, self._bounds.advise.each).known_jobs(
            described, now
        ):
            self._memory.remember(known_job)
            known_jobs[known_job.key] = known_job
        records: list[JobRecord] = []
        present = self._memory.trust()
        trust: dict[str, tuple[float, int]] = {}
        for run in reversed(runs):  # trust moves in the order of the runs' ends
            record, user, job = run.record, run.record.user, known_jobs[run.key]
            assert job is not None
            if run.key not in late and user is not None:
                before, count = trust.get(user, (present.get(user, 1.0), 0))
                trust[user] = moved_trust(before, job.estimate, record), count + 1
            command = job.spec.command or record.command
            update = {"metadata": job.metadata, "command": command}
            records.append(record.model_copy(update=update))
        if self._record is not None and self._bounds.learn.allowed:
            self._mate.learn(records)
        self._memory.learned([run.run for run in runs], now, trust)

    def _description(self, run: EndedRun) -> Description:
        """A job that is not in the memory, from what the scheduler or its accounting still has."""
        described = self._adapter.describe_ended(run)
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

    def look_into(self, run: EndedRun, now: float) -> tuple[Failed, Failure | None]:
        """The diagnosis of a run's logs, and recovery's plan for it; nothing is recorded.

        The code of a job is not needed for that, and is not read.
        """
        # both have `spec`, `log` and `errors`
        job = self._memory.known(run.key) or self._description(run)
        spec = job.spec.model_copy(update={"job_id": run.job, "node_names": list(run.nodes)})
        paths = self._logs_of(run, job, spec)
        written = [path for path in paths if _has_text(path)]
        diagnosis = self._mate.on_failure(
            spec,
            written,
            node_logs=self._adapter.node_logs(run) if written else (),
            state=run.record.state,
            failed_nodes=self._lost_nodes(run),
            deadline_s=self._bounds.diagnose.each,
        )
        failed = Failed(
            job=run.job,
            run=run.run,
            state=run.record.state,
            nodes=run.nodes,
            log=str((written or paths)[0]) if paths else None,
            diagnosis=diagnosis,
        )
        failure = None
        if diagnosis is not None and self._healer is not None:
            restarts = self._adapter.restarts(run)
            if restarts is not None:  # None: the scheduler has forgotten the job
                failure = Failure(self._adapter.cluster, run, restarts, diagnosis, failed.log)
        return failed, failure

    def _lost_nodes(self, run: EndedRun) -> tuple[str, ...]:
        """The nodes of a run that the scheduler lost, if that ended it: those that it names, else
        those that are out of service now without having been drained."""
        if run.record.state not in NODE_FAILURES or len(run.nodes) < 2:
            return run.nodes if run.record.state in NODE_FAILURES else ()
        if run.failed_nodes:
            return run.failed_nodes
        nodes = {node.name: node for node in self._adapter.nodes()}
        present = [nodes[name] for name in run.nodes if name in nodes]
        return tuple(node.name for node in present if not node.healthy and not node.drained)

    def _logs_of(self, run: EndedRun, job: KnownJob | Description, spec: JobSpec) -> list[Path]:
        """The log of a run, and the file of its errors if it has one."""
        paths = [self._adapter.log_path(run, job.log, spec)]
        if job.errors:
            paths.append(self._adapter.log_path(run, job.errors, spec))
        return [path for path in dict.fromkeys(paths) if path is not None]

    def _propose(self, failed: Failed, failure: Failure | None) -> None:
        assert self._record is not None
        if not any(self._record.entries(kind="failure", about=failed.run)):
            document = failed.model_dump(mode="json", exclude_defaults=True)
            self._record.observe("failure", failed.run, by="schedmate agent", data=document)
        if failure is not None and self._healer is not None:
            status = self._healer.propose(failure)
            failed.plan = status.plan.id if status is not None else None


class CodeReader:
    """Reads the code of jobs, for one pass: metadata and an estimate; without code, an estimate by
    user, name and limits.

    Jobs of one directory with the same script, arguments and resources share one reading: within a
    pass each reading would see the same files. Other variants of a directory are read together in
    one process, which costs a fifth of a process each.
    """

    AT_ONCE = 10
    """Most variants that are read in one process."""

    def __init__(self, mate: SchedMate, budget_s: float) -> None:
        """`budget_s` bounds the reading of each job [s of CPU time]."""
        self._mate, self._budget_s = mate, budget_s
        self._read: dict[tuple[str, ...], Analysis | SchedmateError] = {}
        self._estimates: dict[str, Estimate] = {}
        self._cost_s: dict[str, float] = {}
        """Time that a variant of a directory took [s]."""

    def known_jobs(
        self, jobs: Sequence[tuple[str, Description]], now: float, deadline: float = math.inf
    ) -> Iterator[KnownJob]:
        """The jobs, by key and description; at least the first, not all if the time is over before.

        `now` is in [s since epoch], `deadline` by `time.monotonic` [s].
        """
        variants: dict[tuple[str, ...], list[tuple[str, Description]]] = {}
        for key, description in jobs:
            if description.no_code:
                yield self._without_code(key, description, description.no_code, now)
            else:
                variants.setdefault(_variant_of(description.spec), []).append((key, description))
        first = True
        while variants and (first or time.monotonic() < deadline):
            first = False
            variant = next(iter(variants))
            if variant not in self._read:
                self._read_with_siblings(variant, variants, deadline)
            analysis = self._read[variant]
            for key, description in variants.pop(variant):
                if isinstance(analysis, SchedmateError):
                    # the command derived from the script was typed by no user
                    problem = f"{analysis}".split("...` ", 1)[-1]
                    why = f"its code cannot be read: {problem}"
                    yield self._without_code(key, description, why, now)
                    continue
                spec = description.spec.model_copy(update={"launch": analysis.launch})
                estimate = analysis.estimate
                if (spec.user, spec.name) != (analysis.spec.user, analysis.spec.name):
                    estimate = self._estimate(spec, analysis.metadata, now)
                yield KnownJob(
                    *(key, now, spec, analysis.metadata, estimate),
                    *(description.log, description.errors),
                )

    def _estimate(self, spec: JobSpec, metadata: WorkloadMetadata, now: float) -> Estimate:
        """The estimate of a job; those that differ in nothing share one."""
        question = spec.model_dump_json(exclude={"job_id", "submit_time"})
        if question not in self._estimates:
            self._estimates[question] = self._mate.estimate(metadata, spec.launch, now, spec)
        return self._estimates[question]

    def _without_code(self, key: str, description: Description, why: str, now: float) -> KnownJob:
        """A job of which only user, name, command and launch are known; abstained, `why`."""
        estimate = self._estimate(description.spec, WorkloadMetadata(), now)
        if estimate.abstained and not estimate.quantiles_s:
            estimate = Estimate(reason=why)
        return KnownJob(
            *(key, now, description.spec, WorkloadMetadata(), estimate),
            *(description.log, description.errors),
        )

    def _read_with_siblings(
        self,
        variant: tuple[str, ...],
        variants: Mapping[tuple[str, ...], list[tuple[str, Description]]],
        deadline: float,
    ) -> None:
        """Read a variant, and with it others of its directory if there is time for them."""
        repo = variant[0]
        cost_s, left_s = self._cost_s.get(repo), deadline - time.monotonic()
        count = 1 if cost_s is None else int(max(1, min(self.AT_ONCE, left_s / cost_s)))
        siblings = [one for one in variants if one[0] == repo and one not in self._read][:count]
        specs = [variants[one][0][1].spec for one in siblings]
        began = time.monotonic()
        answers = self._mate.analyze_variants(specs, budget_s=self._budget_s)
        self._cost_s[repo] = max(1e-3, (time.monotonic() - began) / len(siblings))
        self._read.update(zip(siblings, answers, strict=True))


def _variant_of(spec: JobSpec) -> tuple[str, ...]:
    return spec.repo or "", spec.command or "", spec.launch.model_dump_json()


# The agent: one pass, and what it does to order, notes and running jobs.


class Agent:
    """The agent of one cluster. `record` is None in a dry run, which changes nothing."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        mate: SchedMate,
        memory: Memory,
        record: Record | None,
        bounds: Bounds,
        *,
        healer: ClusterRecovery | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.adapter = adapter
        self.bounds = bounds
        self._mate = mate
        self._memory = memory
        self._record = record
        self._healer = healer
        self._clock = clock
        self._acting = Acting(adapter, record, bounds, healer)
        self._ended = EndedRuns(adapter, mate, memory, record, bounds, healer)
        self._advising = Advising(adapter, mate, memory, bounds, clock)
        self._due: dict[str, float] = {}

    def once(self) -> Pass:
        """Make one pass and return its report.

        A step that fails is one of its `problems` and does not stop the others. Raises
        `ExecutorError` if the scheduler does not answer.
        """
        began = time.perf_counter()
        now = self._clock()
        jobs = self.adapter.jobs()
        report = Pass(
            cluster=self.adapter.cluster,
            time=now,
            dry_run=self._record is None,
            stopped=kill_switch_is_on(self.bounds.kill_switch),
            pending=sum(job.state == "PENDING" for job in jobs),
            running=sum(job.state == "RUNNING" for job in jobs),
        )
        steps: list[Callable[[list[LiveJob], Pass], None]] = [
            self._read_ended_runs,
            self._diagnose,
            self._go_on,
            self._advise,
            self._order,
            self._annotate,
            self._learn,
            self._follow,
            self._list_waiting,
        ]
        for step in steps:
            try:
                step(jobs, report)
            except (SchedmateError, OSError) as error:
                # a step that fails (its database is down) does not stop the others
                report.problems.append(f"{step.__name__.strip('_').replace('_', ' ')}: {error}")
            except Exception as error:  # noqa: BLE001 - nor does a value that nobody foresaw
                name = step.__name__.strip("_").replace("_", " ")
                report.problems.append(f"{name}: {unforeseen(error)}")
        report.problems += self.adapter.skipped()
        report.took_s = round(time.perf_counter() - began, 3)
        return report

    def look_into(self, run: EndedRun, now: float) -> tuple[Failed, Plan | None]:
        """Diagnosis and plan of a failed run; nothing is stored or carried out."""
        failed, failure = self._ended.look_into(run, now)
        if failure is None or self._healer is None:
            return failed, None
        return failed, self._healer.preview(failure)

    def _go_on(self, _jobs: list[LiveJob], report: Pass) -> None:
        self._acting.go_on(report)

    def _list_waiting(self, _jobs: list[LiveJob], report: Pass) -> None:
        if self._record is not None:
            waiting = self._record.plans(states={"proposed"})
            report.waiting = [status.plan.id for status in waiting]

    def _advise(self, jobs: list[LiveJob], report: Pass) -> None:
        self._advising.advise(jobs, report)

    # -- order and notes ---------------------------------------------------

    def _order(self, jobs: list[LiveJob], report: Pass) -> None:
        bounds = self.bounds.order
        if not bounds.allowed or report.stopped or not self._is_due("order", bounds.every):
            return
        trust, set_values = self._memory.trust(), self._memory.ordering()
        wanted = {
            job.id: order_value(
                bounds,
                self._advising.estimates.get(job.key),
                trust=trust.get(job.user, 1.0),
                waited_s=report.time - (job.submitted or report.time),
            )
            for job in jobs
            if is_ordered(bounds, job)
        }
        sure = self._memory.surely_given()
        differs = [
            job
            for job, value in wanted.items()
            if sure.get(job, 0) != value or (job in set_values and job not in sure)
        ]
        if differs:
            present = self.adapter.order_values(differs)
            has = {job: value for job, value in present.items() if value == wanted[job]}
            self._memory.give(has, has, sure=True)  # set by an earlier pass that was interrupted
            action = order_to_set({job: wanted[job] for job in differs}, present, set_values)
            if action is not None:
                self._memory.give(action.values, action.previous, sure=False)
                if self._acting.do(
                    "ordering", action, report, "shorter jobs first, by their estimates"
                ):
                    self._memory.give(action.values, action.previous, sure=True)
        self._memory.forget_given(job.id for job in jobs)

    def _annotate(self, jobs: list[LiveJob], report: Pass) -> None:
        bounds = self.bounds.annotate
        if bounds.where == "off" or report.stopped:
            return
        pending = {job.id: job for job in jobs if job.state == "PENDING"}
        noted = self._memory.noted(job.key for job in pending.values())
        estimates = self._advising.estimates
        texts = {
            id_: note_of(estimates[job.key])
            for id_, job in pending.items()
            if job.key in estimates
            and (estimates[job.key].endless or not estimates[job.key].abstained)
        }
        texts = {id_: text for id_, text in texts.items() if noted.get(pending[id_].key) != text}
        texts = dict(list(texts.items())[: bounds.most])
        if texts and self._acting.do(
            "annotation", Annotate(texts=texts), report, "estimates to be seen"
        ):
            self._memory.note({pending[id_].key: text for id_, text in texts.items()}, report.time)

    # -- running and ended jobs --------------------------------------

    def _read_ended_runs(self, _jobs: list[LiveJob], _report: Pass) -> None:
        spool, now = self.bounds.learn.spool, self._clock()
        dropped = [] if spool is None else spooled_files(spool)
        if self._is_due("learn", self.bounds.learn.every) or dropped:
            runs = self._ended.read(now)
            if self._record is not None:
                remove_spooled(dropped, {run.raw for run in runs}, now)

    def _diagnose(self, _jobs: list[LiveJob], report: Pass) -> None:
        self._ended.diagnose(report, self._clock())

    def _learn(self, jobs: list[LiveJob], report: Pass) -> None:
        self._ended.learn(report, self._clock())
        if report.learned:
            self._advising.ask_again(jobs)

    def _follow(self, jobs: list[LiveJob], report: Pass) -> None:
        bounds = self.bounds.follow
        if not bounds.allowed:
            return
        from schedmate.logparse.progress.silence import with_silence
        from schedmate.retrieval.remaining import remaining_time

        running = {job.id: job for job in jobs if job.state == "RUNNING"}
        seen = self._memory.progress()
        if set(seen) - set(running):
            self._memory.only_running(running)
        deadline = time.monotonic() + bounds.seconds
        due = sorted(running, key=lambda id_: self._due.get(f"log of {id_}", 0.0))
        for id_ in due:
            if time.monotonic() >= deadline or not self._is_due(f"log of {id_}", bounds.every):
                break
            job = running[id_]
            known_job = self._memory.known(job.key)
            path = self.adapter.log_path(job, known_job.log, known_job.spec) if known_job else None
            if known_job is None or path is None or not _has_text(path):
                continue
            progress = self._mate.on_progress(known_job.spec, path, deadline_s=bounds.seconds)
            if progress is None:
                continue
            before, now = seen[id_][1] if id_ in seen else None, self._clock()
            written = max(_written_at(path, now), job.started or 0.0)
            progress = with_silence(progress, before, written, now, least_s=bounds.silence)
            left = remaining_time(now - (job.started or now), known_job.estimate, progress)
            followed = Followed(job=id_, log=str(path), progress=progress, remaining=left)
            if progress.stalled and not (before is not None and before.stalled):
                report.newly_stalled.append(id_)
                if self._record is not None:
                    document = followed.model_dump(mode="json", exclude_defaults=True)
                    self._record.observe("stalled", job.key, by=AGENT, data=document)
            self._memory.keep_progress(id_, job.key, now, progress)
            seen[id_] = now, progress
            report.followed.append(followed)
        stalled = {id_ for id_, (_, each) in seen.items() if each.stalled and id_ in running}
        report.stalled = len(stalled)
        self._note_stalled({id_: seen[id_][1] for id_ in stalled}, running, report)
        logs = {f"log of {id_}" for id_ in running}
        self._due = {
            what: at for what, at in self._due.items() if what in logs or " of " not in what
        }

    def _note_stalled(
        self, stalled: Mapping[str, Progress], running: Mapping[str, LiveJob], report: Pass
    ) -> None:
        """Say beside a running job that it seems to hang, and that it goes on if it does."""
        bounds = self.bounds.annotate
        if bounds.where == "off" or report.stopped:
            return
        keys = {f"{job.key} {id_} stalled": id_ for id_, job in running.items()}
        noted = self._memory.noted(keys)
        texts = {}
        for key, id_ in keys.items():
            text = stall_note(stalled[id_]) if id_ in stalled else GOES_ON
            if noted.get(key) != text and (id_ in stalled or key in noted):
                texts[key] = text
        texts = dict(list(texts.items())[: bounds.most])
        by_job = {keys[key]: text for key, text in texts.items()}
        if by_job and self._acting.do(
            "annotation", Annotate(texts=by_job), report, "jobs that seem to hang are to be seen"
        ):
            self._memory.note(texts, report.time)

    def take_back_order(self) -> int:
        """Reset the order values of pending jobs to 0, and return the number of jobs.

        Raises `ExecutorError` if this fails.
        """
        set_values = self._memory.ordering()
        jobs = [job.id for job in self.adapter.jobs() if job.state == "PENDING"]
        present = self.adapter.order_values(job for job in jobs if job in set_values)
        action = order_to_set(dict.fromkeys(present, 0), present, set_values)
        if action is None:
            return 0
        report = Pass(cluster=self.adapter.cluster, time=self._clock())
        if not self._acting.do("ordering", action, report, "the order is reset"):
            raise ExecutorError("; ".join(report.problems))
        self._memory.forget_given([])
        return len(action.values)

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every_s
        return True


def note_of(estimate: Estimate) -> str:
    """An estimate as the note on a job."""
    if estimate.endless:
        return f"{REASON_PREFIX} does not end by itself"
    low, high = estimate.duration_p10_s, estimate.duration_p90_s
    text = f"{REASON_PREFIX} about {format_duration(estimate.duration_s or 0.0)}"
    if low is not None and high is not None:
        text += f" ({format_duration(low)} to {format_duration(high)})"
    count = estimate.past_jobs
    return f"{text}, from {count} past run{'s' * (count != 1)}"


GOES_ON = f"{REASON_PREFIX} its log goes on"
"""The note on a job that was stalled."""


def stall_note(progress: Progress) -> str:
    """The note on a running job whose log is silent for too long."""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(progress.silent_since))
    every = format_duration(progress.line_every_s or 0.0)
    return f"{REASON_PREFIX} stalled? its log is silent since {since}, a line came every {every}"


def _written_at(path: Path, now: float) -> float:
    """When a log, or the newest of the files of a folder, was written [s since epoch]."""
    times = []
    for file in [path, *(children(path) if path.is_dir() else [])]:
        with suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times, default=now)


def _has_text(path: Path) -> bool:
    """Whether a log is not empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


@contextmanager
def only_agent(record: Record, cluster: str) -> Iterator[None]:
    """Hold the lease of a cluster's agent until the process ends, in whatever way.

    Raises `ClaimedError` at once if another agent holds it.
    """
    with record.claim(f"agent of {cluster}"):
        yield


# Repeats an agent's passes: the pauses between them, and the backoff after failures.


def unforeseen(error: Exception) -> str:
    """An error that nobody foresaw, in one line for a report."""
    return f"internal error, {type(error).__name__}: {clean(error, 300)}"


def watch(
    agent: Agent,
    tell: Callable[[Pass], None],
    warn: Callable[[str], None],
    *,
    wait: Callable[[float], object] = time.sleep,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Make passes until `goes_on` is false. An outage is reported when it starts and ends."""
    failures = 0
    while goes_on():
        began = time.monotonic()
        try:
            report = agent.once()
        except ExecutorError as error:
            if not failures:
                warn(f"{error}; nothing is done until it answers again.")
            failures += 1
        except Exception as error:  # noqa: BLE001 - one unexpected value does not end the agent
            if not failures:
                warn(f"a pass was not completed: {unforeseen(error)}.")
            failures += 1
        else:
            if failures:
                warn("the scheduler answers again.")
            failures = 0
            tell(report)
        took = time.monotonic() - began if not failures else 0.0
        # an agent that is slow pauses as long as it worked: it never takes more than half a core
        rest = pause_s(agent.bounds.poll, failures, random.random())  # noqa: S311 - no secret
        if goes_on():
            wait(max(rest - took, min(took, rest)))


# Estimates of queued jobs: from their code once, within a time budget, and again as runs end.


DESCRIBED = 20
"""Most new jobs described by one call of the adapter, which costs a command for each script."""


def newest_first(jobs: Iterable[LiveJob]) -> list[LiveJob]:
    """Jobs in the order in which their code is read.

    Each user's newest job comes before anybody's second, and so on, so that neither an old backlog
    nor another user's thousand jobs keep a newcomer waiting. Running jobs come last: they cannot be
    reordered any more.
    """
    ranks: Counter[tuple[str, str]] = Counter()
    ordered: list[tuple[bool, int, int, LiveJob]] = []
    for job in sorted(jobs, key=lambda job: -(job.submitted or 0.0)):
        ranks[job.state, job.user] += 1
        ordered.append((job.state != "PENDING", ranks[job.state, job.user], len(ordered), job))
    return [job for *_, job in sorted(ordered, key=lambda one: one[:3])]


class Advising:
    """The Scheduling Advisor's part of the loop."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        mate: SchedMate,
        memory: Memory,
        bounds: Bounds,
        clock: Callable[[], float],
    ) -> None:
        self._adapter, self._mate, self._memory = adapter, mate, memory
        self._bounds, self._clock = bounds.advise, clock
        self._every_s, self._look_at = bounds.learn.every, 0.0
        self._history: tuple[int, int] | None = None
        self.estimates: dict[str, Estimate] = {}
        """Estimates of the jobs in the queue, by key."""
        self._stale: dict[str, None] = {}
        """Keys of waiting jobs whose estimates are older than the history, the longest first."""

    def ask_again(self, jobs: Iterable[LiveJob]) -> None:
        """The history has grown: the estimates of those jobs that wait are to be made again."""
        self._stale |= {job.key: None for job in jobs if job.state == "PENDING"}

    def _look_at_history(self, jobs: Sequence[LiveJob]) -> None:
        """Notice what others wrote into the history (an import, the service, another cluster).

        The first time, after a start, nobody knows what was written meanwhile.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + self._every_s
        version = self._mate.history_version()
        if version != self._history:
            self._history = version
            self.ask_again(job for job in jobs if job.key in self.estimates)

    def advise(self, jobs_now: list[LiveJob], report: Pass) -> None:
        """Estimate the jobs that have no estimate yet, in the order of `newest_first`."""
        deadline = time.monotonic() + self._bounds.seconds
        keys = {job.key for job in jobs_now}
        self.estimates = {key: estimate for key, estimate in self.estimates.items() if key in keys}
        missing = [key for key in keys if key not in self.estimates]
        self.estimates |= self._memory.estimates(missing)
        self._look_at_history(jobs_now)
        new = {job.key: job for job in jobs_now if job.key not in self.estimates}
        queue = newest_first(new.values())
        reader = CodeReader(self._mate, self._bounds.each)
        done = 0
        while done < len(queue) and time.monotonic() < deadline:
            some = {job.key: job for job in queue[done : done + DESCRIBED]}
            described = self._adapter.describe([job.id for job in some.values()])
            jobs = [(job.key, described[job.id]) for job in some.values() if job.id in described]
            estimated = 0
            for known_job in reader.known_jobs(jobs, self._clock(), deadline):
                estimated += 1
                job = some[known_job.key]
                report.problems += described[job.id].problems  # once, as the job is remembered
                self._keep(known_job, job, report)
            done += len(some) - (len(jobs) - estimated)
        report.unread = len(queue) - done
        self._advise_again([job for job in jobs_now if job.state == "PENDING"], deadline, report)

    def _keep(self, known_job: KnownJob, job: LiveJob, report: Pass) -> None:
        self._memory.remember(known_job)
        self.estimates[job.key] = known_job.estimate
        report.estimated.append(Estimated(job=job.id, user=job.user, estimate=known_job.estimate))

    def _advise_again(self, pending: Sequence[LiveJob], deadline: float, report: Pass) -> None:
        """Update estimates of waiting jobs when more runs are known; code is not read again.

        That includes jobs without an estimate so far. Those that differ in nothing are asked for
        once.
        """
        jobs = {job.key: job for job in pending}
        answers: dict[tuple[str, str], Estimate] = {}
        for key in list(self._stale):
            if time.monotonic() >= deadline:
                return
            del self._stale[key]
            job, known_job = jobs.get(key), self._memory.known(key)
            if job is None or known_job is None:
                continue
            metadata, launch = known_job.metadata, known_job.spec.launch
            spec = known_job.spec
            alike = spec.model_dump_json(exclude={"job_id", "submit_time"})
            question = alike, metadata.model_dump_json()
            estimate = answers.get(question)
            if estimate is None:
                estimate = self._mate.estimate(metadata, launch, self._clock(), spec)
                answers[question] = estimate
            if estimate.duration_s != known_job.estimate.duration_s:
                self._memory.remember(known_job._replace(estimate=estimate))
                self.estimates[key] = estimate
                report.estimated.append(
                    Estimated(job=job.id, user=job.user, estimate=estimate, again=True)
                )


# Actions of an agent: each is a plan, recorded before it is carried out.


EXPIRY_S = 300.0
"""After this time a change of order that was not begun is not begun any more [s]."""

AGENT = "schedmate agent"
"""The agent's name in the record."""


class Acting:
    """Carries out plans, its own and those of recovery; in a dry run (no record) only reports
    them."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        record: Record | None,
        bounds: Bounds,
        healer: ClusterRecovery | None,
    ) -> None:
        self._adapter = adapter
        self._record = record
        self._bounds = bounds
        self._healer = healer

    def go_on(self, report: Pass) -> None:
        """Carry out approved plans, and finish those of an interrupted agent."""
        if self._record is None or report.stopped:
            return
        self._record.ensure_intact()
        if self._healer is not None:
            self._healer.reconcile()
        self._record.expire()
        for status in reversed(self._record.plans(states={"approved", "applying"}, limit=1000)):
            if status.plan.cluster == self._adapter.cluster:
                self._carry_out(status.plan, report)

    def do(self, purpose: Purpose, action: Action, report: Pass, why: str) -> bool:
        """Plan an action, approve it by the bounds, carry it out; whether it was done."""
        if self._record is None:
            report.actions.append(Done(action=action, state="would"))
            return False
        text = action.model_dump_json()
        key = f"{purpose} at {report.time:.3f} {sha256(text.encode()).hexdigest()[:16]}"
        plan = Plan.of(
            purpose,
            cluster=self._adapter.cluster,
            key=key,
            created=report.time,
            expires=report.time + EXPIRY_S,
            reason=Reason(summary=why),
            actions=[action],
        )
        with (
            self._record.writing()
        ):  # in one transaction, so that no other approval can come between
            self._record.propose(plan, by=AGENT)
            self._record.approve(plan.id, by="policy: bounds.yaml")
        return self._carry_out(plan, report)

    def _carry_out(self, plan: Plan, report: Pass) -> bool:
        assert self._record is not None
        if plan.purpose != "recovery":
            result = carry_out(self._record, plan.id, self._adapter, self, by=AGENT)
        elif self._healer is not None:
            result = self._healer.apply(plan.id)
        else:  # approved elsewhere: the agent with recovery.yaml carries it out
            return False
        report.actions += self._taken(plan, result)
        if result.stopped:
            report.problems.append(f"plan {plan.id}: {result.stopped}: {result.detail}")
        return result.stopped is None

    def _taken(self, plan: Plan, result: Result) -> list[Done]:
        """What came of each action of a plan: some may be done although another was refused."""
        assert self._record is not None
        last = {attempt.step: attempt for attempt in self._record.attempts(plan=plan.id)}
        skipped = {
            entry.body["step"]: str(entry.body["detail"])
            for entry in self._record.entries(kind="moot", about=plan.id)
        }
        taken = []
        for step, action in enumerate(plan.actions):
            state, detail = str(result.status.state), result.detail
            if step in last and last[step].outcome == "done":
                state, detail = "applied", last[step].detail
            elif step in skipped:
                state, detail = "skipped", skipped[step]
            taken.append(Done(plan=plan.id, action=action, state=state, detail=detail))
        return taken

    def check(self, record: Record, status: PlanStatus, action: Action, *, undo: bool) -> None:
        """As a `Guard` of the agent's own plans: the kill switch and the band."""
        if kill_switch_is_on(self._bounds.kill_switch):
            place, wait_s = self._bounds.kill_switch, self._bounds.poll
            raise RefusedError("kill switch", f"{place} is there.", wait_s=wait_s)
        check_band(self._bounds.order, action, undo=undo)


# Files that an epilog writes when a run ends, so that the agent reacts before the next poll.
#
# Their names are `JOB.RESTARTS`; nothing else about them is trusted: how the run ended is read
# from accounting.


OLDEST_SPOOLED_S = 600.0
"""Age at which a file is removed if accounting does not know its run [s]."""


def spooled_files(spool: Path) -> list[Path]:
    """The complete files; names that begin with a dot are still being written."""
    return [path for path in children(spool) if not path.name.startswith(".")]


def remove_spooled(dropped: Iterable[Path], ended_jobs: set[str], now: float) -> None:
    """Remove the files of jobs that are known to have ended, and old ones."""
    for path in dropped:
        with suppress(OSError):
            job = path.name.partition(".")[0]
            if job in ended_jobs or now - path.lstat().st_mtime > OLDEST_SPOOLED_S:
                path.unlink()
