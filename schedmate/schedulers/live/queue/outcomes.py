"""Handles the ends of runs: updates the board and the store."""

from __future__ import annotations

import json
from typing import Any

from schedmate.schedulers.decisions import Decision, Evict, Migrate, Pack, Preempt, Profile, Resize
from schedmate.schedulers.live.queue.carrying import (
    CANCEL,
    FINAL,
    LIMIT,
    PROFILED,
    STOPPED,
    Carrying,
    outcome_of,
)
from schedmate.schedulers.live.queue.gangs import Ended, Event, Lost, NotStarted, Started
from schedmate.schedulers.live.queue.jobs import profile_of
from schedmate.schedulers.live.queue.orders import report_of
from schedmate.schedulers.live.queue.requests import StoredRun
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.pools import lowest

LONGEST_PAUSE_S = 300.0
"""Before a start that was refused again and again is tried once more [s]."""
_LOST = {
    "lease": "its runner was not heard of for the time of its lease",
    "runner": "its runner was killed",
    "supervisor": "its supervisor was killed",
}


class Outcomes(Carrying):
    """Handles events from runs and seats."""

    def handle(self, event: Event) -> None:
        """Something has happened to a run."""
        run = self.store.run(event.run)
        if run is None or run.state == "ended" or run.job not in self.runs:
            return
        self._dirty = True
        if isinstance(event, Started):
            self._started(run, event)
        elif isinstance(event, NotStarted):
            self._not_started(run, event.why)
        elif isinstance(event, Ended):
            self._ended(run, event.report)
        else:
            self._lost(run, event)

    def _started(self, run: StoredRun, event: Started) -> None:
        assert self.board is not None
        job = self.jobs[run.job]
        self.store.started(run.id, event.at)
        decision = self._flights.pop(run.id)
        self._failed_starts.pop(job.index, None)
        run = self.runs[job.index] = run._replace(state="running", started=event.at)
        if run.id in self._stops:
            self.carry_out(self.board.accept(decision, self._clock()))
            return
        if isinstance(decision, Pack) and not self._runs_alone(decision.partner):
            # its partner has just left: the GPUs are those of this job alone
            allocation = self._allocation_of(run)
            self.carry_out(self.board.refuse(decision, "the partner has left", self._clock()))
            self.board.withdraw(job, self._clock())
            free = allocation is not None and self.board.resume(
                job, allocation, self._clock(), event.at
            )
            if not free:  # other jobs have them by now; it waits again once it has ended
                self._stop(run, decision, at_once=True)
                return
        else:
            self.carry_out(self.board.accept(decision, self._clock()))
        limit_s = decision.limit_s if isinstance(decision, Profile) else 0.0
        self.watch_over(job, run, limit_s)

    def _runs_alone(self, job: Job) -> bool:
        return bool(job.allocation) and job.partner is None

    def _allocation_of(self, run: StoredRun) -> Allocation | None:
        """This number of GPUs of the nodes of a run; None: not enough are free."""
        assert self.board is not None
        free = self.board.view.space.free
        parts = [(self.places[place.node], max(1, int(place.gpus))) for place in run.places]
        if any(free[node].bit_count() < gpus for node, gpus in parts):
            return None
        return tuple(sorted((node, lowest(free[node], gpus)) for node, gpus in parts))

    def _not_started(self, run: StoredRun, why: str) -> None:
        job, decision = self.jobs[run.job], self._flights[run.id]
        now, board = self._clock(), self.board
        assert board is not None
        if outcome_of(self._stop_of(run) or "") == CANCEL:
            self.store.ended(run.id, CANCEL, now, {}, state="CANCELLED", why="cancelled")
            self._forget_run(run)
            self.carry_out(board.ended(job, now))
            self._forget(job)
            return
        tries = self._failed_starts.get(job.index, 0) + 1
        pause_s = min(self.options.again_s * 2.0 ** (tries - 1), LONGEST_PAUSE_S)
        self.store.ended(run.id, "REFUSED", now, {"why": why}, why=why, not_before=now + pause_s)
        self._failed_starts[job.index] = tries
        self._forget_run(run)
        if isinstance(decision, Migrate | Resize):
            self.carry_out(board.accept(decision, now))
            self.carry_out(board.stopped(job, now))
        else:
            self.carry_out(board.refuse(decision, why, now))
        self.leave_out(job, self._waits_until(job, now + pause_s))

    def _ended(self, run: StoredRun, report: dict[str, Any]) -> None:
        why = report.get("why")
        if why in ("lease", "runner", "supervisor"):
            self._lost(run, Lost(run.id, _LOST[why], 0.0))
            return
        job, stop = self.jobs[run.job], self._stop_of(run)
        at = float(report.get("ended") or self._clock())
        use = profile_of(report.get("use"))
        if use is not None:
            job.profile = use
        if why == "exited" or stop is None:
            self._over(job, run, at, report)
        elif stop == PROFILED:
            self._store_end(job, run, at, report, PROFILED, state="PENDING", profiled=True)
            self._tell_stopped(job)
            job.profiled = True
            if self.board is not None:
                self.carry_out(self.board.profiled(job, job.profile, self._clock()))
            self._keep_held(job)
        elif (outcome := outcome_of(stop)) in FINAL:
            text = {LIMIT: "its time limit was reached", CANCEL: "cancelled"}[outcome]
            self._leave(job, run, at, report, outcome, text)
        else:
            self._stopped(job, run, at, report, stop)

    def _forget_run(self, run: StoredRun) -> None:
        """Remove a run that has ended, as the store has its outcome."""
        self.runs.pop(run.job, None)
        self._limits.pop(run.id, None)
        self._flights.pop(run.id, None)
        self._stops.pop(run.id, None)

    def _over(self, job: Job, run: StoredRun, at: float, report: dict[str, Any]) -> None:
        """The command has ended by itself."""
        if report.get("exit_code") == 0:
            self._leave(job, run, at, report, "COMPLETED", "")
            return
        number = report.get("signal")
        words = f"signal {number}" if number else f"exit code {report.get('exit_code')}"
        self._leave(job, run, at, report, "FAILED", words)

    def _leave(
        self, job: Job, run: StoredRun, at: float, report: dict[str, Any], outcome: str, why: str
    ) -> None:
        """End the job."""
        self._store_end(job, run, at, report, outcome, state=outcome, why=why)
        partner = job.partner
        if self.board is not None:
            self.carry_out(self.board.ended(job, self._clock()))
        for observer in self.observers:
            if outcome == "COMPLETED":
                observer.ended(job)
            else:
                observer.failed(job, again=False)
        self._tell_unpacked(partner)
        self._forget(job)

    def _stopped(
        self, job: Job, run: StoredRun, at: float, report: dict[str, Any], stop: Decision | str
    ) -> None:
        """A decision has taken the job off its GPUs, perhaps one of before a restart."""
        board, outcome = self.board, outcome_of(stop)
        decided = None if board is None or isinstance(stop, str) else stop
        if decided is not None and board is not None and decided not in board.in_flight():
            decided = None
        counts = {
            "preemptions": job.preemptions + (outcome == STOPPED[Preempt]),
            "evictions": job.evictions + (outcome == STOPPED[Evict]),
        }
        self._store_end(job, run, at, report, outcome, state="PENDING", **counts)
        partner = job.partner
        self._tell_stopped(job)
        if board is None:
            pass  # it waits on the board that is to come
        elif decided is None:
            job.preemptions, job.evictions = counts["preemptions"], counts["evictions"]
            self.carry_out(board.stopped(job, self._clock()))
        elif isinstance(decided, Migrate | Resize):
            self._start(job, decided, decided.allocation)
        else:
            self.carry_out(board.accept(decided, self._clock()))
        if job.index not in self.runs:
            self._keep_held(job)
        self._tell_unpacked(partner)

    def _store_end(
        self,
        job: Job,
        run: StoredRun,
        at: float,
        report: dict[str, Any],
        outcome: str,
        **values: Any,
    ) -> None:
        service_s = job.service_s + max(0.0, at - (run.started or at))
        use = (
            None
            if job.profile is None
            else dict(zip(("gpu_util", "memory_util", "memory_mb"), job.profile[:3], strict=True))
        )
        self.store.ended(run.id, outcome, at, report, service_s=service_s, profile=use, **values)
        self._forget_run(run)

    def _lost(self, run: StoredRun, event: Lost) -> None:
        """The cluster has lost a run: it is started again where that is safe."""
        job, now = self.jobs[run.job], self._clock()
        stop, flight = outcome_of(self._stop_of(run) or ""), self._flights.get(run.id)
        stored = self.store.job(job.index)
        losses = 1 + (stored.losses if stored is not None else 0)
        report = {"why": event.why}
        over = stop in FINAL
        outcome = stop if over else "LOST"
        if not over and losses > self.options.most_losses:
            outcome, over = "NODE_FAIL", True
        partner, board = job.partner, self.board
        state = outcome if over else "PENDING"
        self._store_end(
            job,
            run,
            now,
            report,
            outcome,
            state=state,
            losses=losses,
            why=event.why,
            not_before=event.safe_at,
        )
        job.failures += 1
        if board is not None:
            if flight is not None and isinstance(flight, Migrate | Resize):
                self.carry_out(board.accept(flight, now))
            elif flight is not None:
                self.carry_out(board.refuse(flight, event.why, now))
            self.carry_out(board.ended(job, now))
        for observer in self.observers:
            observer.failed(job, again=not over)
        self._tell_unpacked(partner)
        if over:
            self._forget(job)
        elif (until := self._waits_until(job, event.safe_at)) > now:
            self._outside[job.index] = until
        else:
            self.let_in(job)

    def missing(self, run: StoredRun) -> None:
        """Handle a run that is on no seat: its files say whether it has ended."""
        reports = []
        for rank in range(len(run.places)):
            try:
                reports.append(json.loads(report_of(run, rank).read_text()))
            except (OSError, ValueError):
                reports.append(None)
        known = [one for one in reports if isinstance(one, dict)]
        if len(known) == len(reports):
            failed = [one for one in known if one.get("exit_code") != 0]
            started = run.started or known[0].get("started") or run.decided
            self._ended(run._replace(started=started), failed[0] if failed else known[-1])
            return
        safe_at = self._clock() + self.options.lease_s
        self._lost(run, Lost(run.id, "the cluster was restarted", safe_at))

    # -- observers -----------------------------------------------------------------------

    def _tell_stopped(self, job: Job) -> None:
        for observer in self.observers:
            observer.stopped(job)

    def _tell_unpacked(self, partner: Job | None) -> None:
        if partner is not None and partner.allocation:
            for observer in self.observers:
                observer.unpacked(partner)
