"""Runs that have ended: those that failed are diagnosed, at once; all are learned from, later.

Files that an epilog writes when a run ends let the agent react before the next poll. Their names
are `JOB.RESTARTS`; nothing else about them is trusted: how the run ended is read from accounting.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from schedmate.base.errors import SchedmateError
from schedmate.base.files import children
from schedmate.cluster.actions import is_diagnostic_name
from schedmate.cluster.adapter import (
    NODE_FAILURES,
    ClusterAdapter,
    Description,
    EndedRun,
    Usage,
    description_of,
)
from schedmate.cluster.advising import CodeReader
from schedmate.cluster.bounds import Bounds, moved_trust
from schedmate.cluster.following import has_text
from schedmate.cluster.memory import KnownJob, Memory
from schedmate.cluster.record import Record
from schedmate.cluster.report import Checked, Failed, Pass
from schedmate.cluster.usage import Stretch, completed, shares_of
from schedmate.jobs import FAILURE_STATES, Diagnosis, Estimate, JobRecord, JobSpec
from schedmate.mate import SchedMate

if TYPE_CHECKING:
    from schedmate.cluster.recovery.recover import ClusterRecovery

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
        failed = [run.run for run in left if run.record.state in FAILURE_STATES]
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
            report.checked += self._learn(some, now, report.problems)
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

    def _learn(self, runs: list[EndedRun], now: float, problems: list[str]) -> list[Checked]:
        known_jobs = {run.key: self._memory.known(run.key) for run in runs}
        late = {run.key: run for run in runs if known_jobs[run.key] is None}
        # they came and went between two passes, or ended before the agent began
        described = [(key, description_of(self._adapter, run)) for key, run in late.items()]
        for known_job in CodeReader(self._mate, self._bounds.advise.each).known_jobs(
            described, now
        ):
            self._memory.remember(known_job)
            known_jobs[known_job.key] = known_job
        records: list[JobRecord] = []
        present = self._memory.trust()
        trust: dict[str, tuple[float, int]] = {}
        checked: list[Checked] = []
        for run in reversed(runs):  # trust moves in the order of the runs' ends
            record, user, job = run.record, run.record.user, known_jobs[run.key]
            assert job is not None
            if run.key not in late and user is not None:
                before, count = trust.get(user, (present.get(user, 1.0), 0))
                trust[user] = moved_trust(before, job.estimate, record), count + 1
            if run.key not in late and record.duration_s and record.ended:
                checked.append(_checked(run, job.estimate, now))
            command = job.spec.command or record.command
            update = {"metadata": job.metadata, "command": command}
            records.append(record.model_copy(update=update))
        if self._record is not None and self._bounds.learn.allowed:
            self._mate.learn(self._measured(runs[::-1], records, problems))
        self._memory.learned([run.run for run in runs], now, trust, checked)
        return checked

    def _measured(
        self, runs: list[EndedRun], records: list[JobRecord], problems: list[str]
    ) -> list[JobRecord]:
        """The records of runs with the use of their GPUs, where Prometheus knows it and the
        scheduler does not."""
        server = self._mate.settings.prometheus
        ran = {
            run.run: Stretch(end - took, end)
            for run in runs
            if (end := run.record.end_time)
            and (took := run.record.duration_s)
            and None in (run.record.gpu_util, run.record.gpu_mem_mb)
        }
        if server is None or not ran:
            return records
        known = {run.raw: run.run for run in runs if run.run in ran}
        named = self._adapter.measured_as(list(known))
        labels = {known[raw]: one for raw, one in named.items()}
        used, problem = completed({}, server, self._adapter.name, labels, ran)
        if problem and problem not in problems:
            problems.append(problem)
        return [
            record.model_copy(update=_use(record, used[run.run])) if run.run in used else record
            for run, record in zip(runs, records, strict=True)
        ]

    def look_into(self, run: EndedRun, now: float) -> tuple[Failed, Failure | None]:
        """The diagnosis of a run's logs, and recovery's plan for it; nothing is recorded.

        The code of a job is not needed for that, and is not read.
        """
        # both have `spec`, `log` and `errors`
        job = self._memory.known(run.key) or description_of(self._adapter, run)
        spec = job.spec.model_copy(update={"job_id": run.job, "node_names": list(run.nodes)})
        paths = self._logs_of(run, job, spec)
        written = [path for path in paths if has_text(path)]
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


def _use(record: JobRecord, used: Usage) -> dict[str, float]:
    """The fields of a record that say what its GPUs did, and are not known yet."""
    fields = {
        "gpu_util": None if used.gpu is None else 100.0 * used.gpu,
        "gpu_mem_mb": shares_of(used)["gpu_memory_mb"],
    }
    return {
        name: value
        for name, value in fields.items()
        if value is not None and getattr(record, name) is None
    }


def _checked(run: EndedRun, estimate: Estimate, now: float) -> Checked:
    """A run that ended beside its estimate, of which nothing is known where it abstained."""
    record = run.record
    quantiles = (estimate.duration_p10_s, estimate.duration_s, estimate.duration_p90_s)
    p10, p50, p90 = (None, None, None) if estimate.abstained else quantiles
    return Checked(
        run=run.run,
        user=record.user,
        ended=record.end_time or now,
        state=record.state,
        took_s=record.duration_s or 0.0,
        limit_s=record.launch.time_limit_s,
        p10_s=p10,
        p50_s=p50,
        p90_s=p90,
    )


# Files that an epilog writes when a run ends.


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
