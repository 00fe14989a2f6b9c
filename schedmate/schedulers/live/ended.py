"""What an agent does with runs that have ended: learn from all, look into those that failed."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from schedmate.errors import SchedmateError
from schedmate.jobs import Diagnosis, Estimate, JobSpec, WorkloadMetadata
from schedmate.mate import SchedMate
from schedmate.paths import exists
from schedmate.schedulers.live.adapter import FAILURES, ClusterAdapter, Description, EndedRun
from schedmate.schedulers.live.apply import Result
from schedmate.schedulers.live.bounds import Bounds
from schedmate.schedulers.live.memory import Known, Memory
from schedmate.schedulers.live.ordering import moved_trust
from schedmate.schedulers.live.plans import Plan
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.report import Failed, Pass
from schedmate.schedulers.live.statuses import PlanStatus

AT_ONCE = 200
"""Runs that are learned from in one pass at most."""

MARK, BEGUN = "learned until", "begun"


class Failure(NamedTuple):
    """A run that failed: what recovery plans from."""

    cluster: str
    run: EndedRun
    restarts: int
    """Restarts of the job before this run."""
    diagnosis: Diagnosis
    log: str | None


class Healer(Protocol):
    """The part of recovery that the loop uses."""

    def preview(self, failure: Failure) -> Plan | None:
        """The plan that would follow a failure, or None; nothing is stored."""
        ...

    def propose(self, failure: Failure) -> PlanStatus | None:
        """The same, stored: as proposed, or as approved if the administrator allows that."""
        ...

    def apply(self, id_: str) -> Result:
        """Carry out an approved plan past recovery's guards, or the rest of it."""
        ...


class EndedRuns:
    """Learns from each run exactly once, even if the process is killed.

    A run counts as learned once everything about it is stored; work repeated after an interruption
    has the same ids and replaces itself.
    """

    def __init__(
        self,
        adapter: ClusterAdapter,
        mate: SchedMate,
        memory: Memory,
        record: Record | None,
        bounds: Bounds,
        healer: Healer | None,
    ) -> None:
        self._adapter = adapter
        self._mate = mate
        self._memory = memory
        self._record = record
        self._bounds = bounds
        self._healer = healer

    def learn(self, found: Pass, now: float) -> list[EndedRun]:
        """Learn from the runs that ended since the last call; the first call only sets the time.

        Returns the runs for which accounting is complete, including those learned before.
        """
        bounds = self._bounds.learn
        begun = self._memory.mark(BEGUN)
        if begun is None:  # what ended before the agent began is for `import`
            begun = float(int(now))  # accounting has whole seconds only
            self._memory.set_mark(BEGUN, begun)
        since = max(begun, (self._memory.mark(MARK) or now) - bounds.overlap)
        runs = [run for run in self._adapter.ended(since) if (run.record.end_time or 0.0) >= begun]
        new = self._memory.new_runs(run.run for run in runs)
        left = [run for run in runs if run.run in new]
        left.sort(key=lambda run: run.record.end_time or 0.0)
        for run in left[:AT_ONCE]:
            self._take_in(run, found, now)
        if len(left) <= AT_ONCE:
            self._memory.set_mark(MARK, now)
            self._memory.forget(now)
        return runs

    def _take_in(self, run: EndedRun, found: Pass, now: float) -> None:
        record, trust, user = run.record, None, run.record.user
        known = self._memory.known(run.key)
        if known is not None and user is not None:
            before = self._memory.trust().get(user, 1.0)
            trust = moved_trust(before, known.estimate, record)
        if known is None:
            known = self._read_late(run, now)
        record = record.model_copy(
            update={"metadata": known.metadata, "command": known.spec.command or record.command}
        )
        if self._record is not None and self._bounds.learn.allowed:
            self._mate.learn([record])
        if record.state in FAILURES and self._bounds.diagnose.allowed:
            failed, failure = self.look_into(run, now, known)
            if self._record is not None:
                self._propose(failed, failure)
            found.failed.append(failed)
        self._memory.learned(run.run, now, user, trust)
        found.learned += 1

    def _read_late(self, run: EndedRun, now: float) -> Known:
        """A job that came and went between two passes, or ended before the agent began."""
        described = self._adapter.describe([run.raw]).get(run.raw)
        if described is None:
            spec = JobSpec(
                repo=run.workdir or None,
                command=run.record.command,
                name=run.record.name,
                user=run.record.user,
                launch=run.record.launch,
            )
            described = Description(spec, run.log)
        known = read_job(self._mate, run.key, described, self._bounds.advise.each, now)
        self._memory.remember(known)
        return known

    def look_into(
        self, run: EndedRun, now: float, known: Known | None = None
    ) -> tuple[Failed, Failure | None]:
        """The diagnosis of a run's logs, and recovery's plan for it; nothing is recorded."""
        known = known or self._memory.known(run.key) or self._read_late(run, now)
        spec = known.spec.model_copy(update={"job_id": run.job, "node_names": list(run.nodes)})
        path = self._adapter.log_path(run, known.log, spec)
        diagnosis = None
        if path is not None and exists(path):
            deadline = self._bounds.diagnose.each
            nodes = self._adapter.node_logs(run)
            diagnosis = self._mate.on_failure(spec, path, node_logs=nodes, deadline_s=deadline)
        failed = Failed(
            job=run.job,
            run=run.run,
            state=run.record.state,
            nodes=run.nodes,
            log=str(path) if path else None,
            diagnosis=diagnosis,
        )
        failure = None
        if diagnosis is not None and self._healer is not None:
            restarts = self._adapter.restarts(run)
            if (
                restarts is not None
            ):  # else the scheduler does not know it any more: nothing can be done
                failure = Failure(self._adapter.cluster, run, restarts, diagnosis, failed.log)
        return failed, failure

    def _propose(self, failed: Failed, failure: Failure | None) -> None:
        assert self._record is not None
        if not any(self._record.entries(kind="failure", about=failed.run)):
            document = failed.model_dump(mode="json", exclude_defaults=True)
            self._record.observe("failure", failed.run, by="schedmate agent", data=document)
        if failure is not None and self._healer is not None:
            status = self._healer.propose(failure)
            failed.plan = status.plan.id if status is not None else None


def read_job(
    mate: SchedMate, key: str, description: Description, budget_s: float, now: float
) -> Known:
    """A job's metadata and estimate from its code; an abstained estimate without metadata.

    `budget_s` bounds the reading [s of CPU time], `now` is in [s since epoch].
    """
    spec = description.spec
    metadata, launch = WorkloadMetadata(), spec.launch
    if description.no_code:
        estimate = Estimate(reason=description.no_code)
        return Known(key, now, spec, metadata, estimate, description.log)
    try:
        analysis = mate.analyze(spec, budget_s=budget_s)
        metadata, estimate, launch = analysis.metadata, analysis.estimate, analysis.launch
    except (SchedmateError, OSError) as error:
        # the command derived from the script was typed by no user
        said = f"{error}".split("...` ", 1)[-1]
        estimate = Estimate(reason=f"its code cannot be read: {said}")
    spec = spec.model_copy(update={"launch": launch})
    return Known(key, now, spec, metadata, estimate, description.log)
