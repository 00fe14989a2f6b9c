"""The reconcile loop: observe, advise, follow and diagnose, plan, guard, act, record.

`Agent.once` makes one pass; `watch.py` repeats them. A pass may be interrupted anywhere: its
findings are in the `Memory`, its actions in the `Record`, and the next pass resumes from there. If
the scheduler does not answer, nothing is done, and the cluster runs as without schedmate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from schedmate.durations import format_duration
from schedmate.errors import SchedmateError
from schedmate.jobs import Estimate
from schedmate.mate import SchedMate
from schedmate.paths import exists
from schedmate.schedulers.live.acting import Acting
from schedmate.schedulers.live.actions import REASON_PREFIX, Annotate
from schedmate.schedulers.live.adapter import ClusterAdapter, EndedRun, LiveJob
from schedmate.schedulers.live.advising import Advising
from schedmate.schedulers.live.bounds import Bounds
from schedmate.schedulers.live.ended import EndedRuns, Healer
from schedmate.schedulers.live.executor import ExecutorError
from schedmate.schedulers.live.memory import Memory
from schedmate.schedulers.live.ordering import in_order, to_set, value_of
from schedmate.schedulers.live.plans import Plan
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.report import Failed, Followed, Pass
from schedmate.schedulers.live.spool import remove, waiting


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
        healer: Healer | None = None,
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
        self._advising = Advising(adapter, mate, memory, bounds.advise, clock)
        self._due: dict[str, float] = {}

    def once(self) -> Pass:
        """One pass. Raises `ExecutorError` when the scheduler does not answer."""
        began = time.perf_counter()
        now = self._clock()
        jobs = self.adapter.jobs()
        found = Pass(
            cluster=self.adapter.cluster,
            time=now,
            dry_run=self._record is None,
            stopped=exists(self.bounds.kill_switch),
            pending=sum(job.state == "PENDING" for job in jobs),
            running=sum(job.state == "RUNNING" for job in jobs),
        )
        steps: list[Callable[[list[LiveJob], Pass], None]] = [
            self._go_on,
            self._advise,
            self._order,
            self._annotate,
            self._learn,
            self._follow,
        ]
        for step in steps:
            try:
                step(jobs, found)
            except (SchedmateError, OSError) as error:
                # a step that fails (its database is down) does not stop the others
                found.problems.append(f"{step.__name__.strip('_').replace('_', ' ')}: {error}")
        if self._record is not None:
            waiting = self._record.plans(states={"proposed"})
            found.waiting = [one.plan.id for one in waiting]
        found.took_s = round(time.perf_counter() - began, 3)
        return found

    def look_into(self, run: EndedRun, now: float) -> tuple[Failed, Plan | None]:
        """Diagnosis and plan of a failed run; nothing is stored or carried out."""
        failed, failure = self._ended.look_into(run, now)
        if failure is None or self._healer is None:
            return failed, None
        return failed, self._healer.preview(failure)

    def _go_on(self, _jobs: list[LiveJob], found: Pass) -> None:
        self._acting.go_on(found)

    def _advise(self, jobs: list[LiveJob], found: Pass) -> None:
        self._advising.advise(jobs, found)

    # -- order and notes ---------------------------------------------------

    def _order(self, jobs: list[LiveJob], found: Pass) -> None:
        bounds = self.bounds.order
        if not bounds.allowed or found.stopped or not self._is_due("order", bounds.every):
            return
        trust, given = self._memory.trust(), self._memory.ordering()
        wanted = {
            job.id: value_of(
                bounds,
                self._advising.estimates.get(job.key),
                trust=trust.get(job.user, 1.0),
                waited_s=found.time - (job.submitted or found.time),
            )
            for job in jobs
            if in_order(bounds, job)
        }
        sure = self._memory.surely_given()
        differs = [
            job
            for job, value in wanted.items()
            if sure.get(job, 0) != value or (job in given and job not in sure)
        ]
        if differs:
            present = self.adapter.order_values(differs)
            has = {job: value for job, value in present.items() if value == wanted[job]}
            self._memory.give(has, has, sure=True)  # set by an earlier pass that was interrupted
            action = to_set({job: wanted[job] for job in differs}, present, given)
            if action is not None:
                self._memory.give(action.values, action.previous, sure=False)
                if self._acting.do(
                    "ordering", action, found, "shorter jobs first, by their estimates"
                ):
                    self._memory.give(action.values, action.previous, sure=True)
        self._memory.forget_given(job.id for job in jobs)

    def _annotate(self, jobs: list[LiveJob], found: Pass) -> None:
        bounds = self.bounds.annotate
        if bounds.where == "off" or found.stopped:
            return
        pending = {job.id: job for job in jobs if job.state == "PENDING"}
        noted = self._memory.noted(job.key for job in pending.values())
        estimates = self._advising.estimates
        texts = {
            id_: note_of(estimates[job.key])
            for id_, job in pending.items()
            if job.key in estimates and not estimates[job.key].abstained
        }
        texts = {id_: text for id_, text in texts.items() if noted.get(pending[id_].key) != text}
        texts = dict(list(texts.items())[: bounds.most])
        if texts and self._acting.do(
            "annotation", Annotate(texts=texts), found, "estimates to be seen"
        ):
            self._memory.note({pending[id_].key: text for id_, text in texts.items()}, found.time)

    # -- running and ended jobs --------------------------------------

    def _learn(self, jobs: list[LiveJob], found: Pass) -> None:
        spool = self.bounds.learn.spool
        dropped = [] if spool is None else waiting(spool)
        if not self._is_due("learn", self.bounds.learn.every) and not dropped:
            return
        runs = self._ended.learn(found, self._clock())
        if self._record is not None:
            remove(dropped, {run.raw for run in runs}, self._clock())
        if found.learned:
            self._advising.stale = {job.key for job in jobs if job.state == "PENDING"}

    def _follow(self, jobs: list[LiveJob], found: Pass) -> None:
        bounds = self.bounds.follow
        if not bounds.allowed:
            return
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
            known = self._memory.known(job.key)
            path = self.adapter.log_path(job, known.log, known.spec) if known else None
            if known is None or path is None or not _has_text(path):
                continue
            progress = self._mate.on_progress(known.spec, path)
            if progress is not None:
                self._memory.keep_progress(id_, job.key, self._clock(), progress)
                found.followed.append(Followed(job=id_, log=str(path), progress=progress))
        logs = {f"log of {id_}" for id_ in running}
        self._due = {
            what: at for what, at in self._due.items() if what in logs or " of " not in what
        }

    def take_back_order(self) -> int:
        """Reset the order values of pending jobs to 0, and return the number of jobs.

        Raises `ExecutorError` if this fails.
        """
        given = self._memory.ordering()
        jobs = [job.id for job in self.adapter.jobs() if job.state == "PENDING"]
        present = self.adapter.order_values(job for job in jobs if job in given)
        action = to_set(dict.fromkeys(present, 0), present, given)
        if action is None:
            return 0
        found = Pass(cluster=self.adapter.cluster, time=self._clock())
        if not self._acting.do("ordering", action, found, "the order is reset"):
            raise ExecutorError("; ".join(found.problems))
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
    low, high = estimate.duration_p10_s, estimate.duration_p90_s
    text = f"{REASON_PREFIX} about {format_duration(estimate.duration_s or 0.0)}"
    if low is not None and high is not None:
        text += f" ({format_duration(low)} to {format_duration(high)})"
    count = len(estimate.neighbours)
    return f"{text}, from {count} past run{'s' * (count != 1)}"


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
