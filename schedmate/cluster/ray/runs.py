"""Decisions become runs on seats, and runs end: what the queue does for each.

`Carrying` starts and stops runs as the policy decides, `Outcomes` updates the board and the store
when they end; the commands, environment and options of runs are here, too.
"""

from __future__ import annotations

import math
import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.base.errors import InputError
from schedmate.base.reading import MOST_SETTINGS, parse_json, read_text
from schedmate.cluster.ray.runner import Order
from schedmate.cluster.ray.seats import (
    SIGKILL,
    Event,
    GangEnded,
    GangLost,
    GangNotStarted,
    GangStarted,
    Seats,
)
from schedmate.cluster.ray.store import SIGNALS, Place, Store, StoredJob, StoredRun
from schedmate.schedulers.board import Board
from schedmate.schedulers.free import lowest_gpus
from schedmate.schedulers.model import NEVER, Allocation, Capabilities, Constraints, Job
from schedmate.schedulers.model import Profile as ModelProfile
from schedmate.schedulers.policy import (
    Decision,
    Drop,
    Evict,
    Migrate,
    Observer,
    Pack,
    Policy,
    Preempt,
    Profile,
    Resize,
)

QUEUE_CAPABILITIES = Capabilities(pin=False, overlap=False, borrow=False)
"""GPUs of a node are equal, jobs move by stopping, and there are no virtual clusters to borrow
from."""


def unchanged_command(stored: StoredJob) -> str:
    """The command as it was submitted: it finds its newest checkpoint by itself."""
    return stored.request.spec.command or ""


class QueueOptions(NamedTuple):
    """Settings of a queue; times in [s]."""

    folder: Path
    """Logs, and how commands ended; on a file system that all nodes share."""
    lease_s: float = 60.0
    """Lease of a command: without contact to its runner for this time it ends, and if its node is
    lost, it is not started elsewhere before [s]."""
    keep_s: float = 30.0
    """How long a runner is kept for the next job."""
    start_s: float = 120.0
    """Time within which Ray must provide GPUs that should be free."""
    advise_s: float = 10.0
    """How long a new job waits for its estimate."""
    again_s: float = 5.0
    """Pause before a start that failed is tried again, doubled each time."""
    most_losses: int = 10
    """Times a job is started again after the cluster has lost it."""
    late_s: float = 180.0
    """After which a decision that has not been carried out counts as late."""
    can: Capabilities = QUEUE_CAPABILITIES
    resume: Callable[[StoredJob], str] = unchanged_command
    """The command that resumes a job that has run before."""

    @property
    def logs(self) -> Path:
        """A folder for each job."""
        return self.folder / "logs"

    @property
    def claims(self) -> Path:
        """The folder of the locks by which only one process runs a job."""
        return self.folder / "claims"


# Turns decisions into runs on seats; `Outcomes` handles how runs end.


CANCEL, LIMIT, PROFILED = "CANCELLED", "TIMEOUT", "PROFILED"
STOPPED = {
    Preempt: "PREEMPTED",
    Evict: "EVICTED",
    Migrate: "MOVED",
    Resize: "RESIZED",
    Pack: "EVICTED",
    Drop: CANCEL,
}
"""Outcome of a run that a decision has stopped, by its kind."""
FINAL_OUTCOMES = (CANCEL, LIMIT)
"""Outcomes after which a job is not requeued."""


class Carrying:
    """Starts and stops runs on seats as the policy decides."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        seats: Seats,
        options: QueueOptions,
        observers: Sequence[Observer],
        clock: Callable[[], float],
    ) -> None:
        self.store, self.policy, self.seats, self.options = store, policy, seats, options
        self.observers = tuple(observers)
        self._clock = clock
        self.board: Board | None = None
        self.places: dict[str, int] = {}
        """Positions of nodes on the board, by id."""
        self.jobs: dict[int, Job] = {}
        """All that wait or run, by id."""
        self.runs: dict[int, StoredRun] = {}
        """What has GPUs, or is about to, by the job's id."""
        self._gone: set[str] = set()
        self._drains: set[str] = set()
        self._counted = 0  # the number of the last submission that the board's view has
        self._alive_until: dict[int, float] = {}
        """When what a lost run may have left behind has ended, by job, by the monotonic clock [s]:
        the other one may be set forward."""
        self._outside: dict[int, float] = {}
        """Jobs that the policy does not see at present, and until when [s since epoch]."""
        self._unadvised: set[int] = set()
        self._flights: dict[int, Decision] = {}
        """Decisions to start something, by run."""
        self._stops: dict[int, Decision | str] = {}
        """Why runs were asked to stop, by run; after a restart, the stored outcome."""
        self._limits: dict[int, tuple[float, str]] = {}
        self._failed_starts: dict[int, int] = {}
        self._dirty = True

    # -- decisions ---------------------------------------------------------------

    @property
    def now(self) -> float:
        """The clock [s since epoch]."""
        return self._clock()

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Begin to carry out decisions, and those that follow."""
        waiting = deque(decisions)
        while waiting:
            waiting.extend(self._carry_out(waiting.popleft()))

    def _carry_out(self, decision: Decision) -> Sequence[Decision]:
        job, board = decision.job, self.board
        assert board is not None
        run = self.runs.get(job.index)
        if isinstance(decision, Preempt | Evict | Migrate | Resize):
            assert run is not None
            self._stop(run, decision, isinstance(decision, Evict) and not decision.grace_s)
            return ()
        if isinstance(decision, Drop):
            if run is not None:
                self._stop(run, decision)
                return ()
            self.store.change(job.index, state="CANCELLED", why=decision.why or "dropped")
            self._forget(job)
            return board.accept(decision, self._clock())
        if isinstance(decision, Pack):
            host = self.runs.get(decision.partner.index)
            if host is None or host.id in self._stops:
                return board.refuse(decision, "the partner has left", self._clock())
            self._start(job, decision, decision.partner.allocation, host)
        else:
            self._start(job, decision, decision.allocation)
        return ()

    def _start(
        self, job: Job, decision: Decision, allocation: Allocation, host: StoredRun | None = None
    ) -> None:
        stored = self.store.job(job.index)
        assert stored is not None
        assert self.board is not None
        ids = {position: id_ for id_, position in self.places.items()}
        nodes = self.board.cluster.nodes
        share = job.share if job.share < 1.0 else None
        places = (
            host.places
            if host is not None
            else tuple(
                Place(ids[node], nodes[node].name, share or mask.bit_count())
                for node, mask in allocation
            )
        )
        kind = "profile" if isinstance(decision, Profile) else "run"
        folder = str(self.options.logs / str(job.index))
        beside = None if host is None else host.id
        run = self.store.begin(stored, kind, places, folder, self._clock(), beside)
        self.runs[job.index] = run
        self._flights[run.id] = decision
        self.seats.launch(
            run.id,
            [(place.node, place.gpus) for place in places],
            self.orders(stored, run),
            beside,
        )

    def orders(self, stored: StoredJob, run: StoredRun) -> list[Order]:
        """The commands of a run, by rank."""
        return orders_of(stored, run, self.options)

    def _stop(self, run: StoredRun, why: Decision | str, at_once: bool = False) -> None:
        stored = self.store.job(run.job)
        assert stored is not None
        if (
            outcome_of(self._stops.get(run.id, "")) not in FINAL_OUTCOMES
        ):  # else it keeps its outcome
            self.store.stopping(run.id, outcome_of(why))
            self._stops[run.id] = why
        request = stored.request
        number, grace_s = SIGNALS[request.signal], request.grace_s
        self.seats.stop(run.id, *((SIGKILL, 0.0) if at_once else (number, grace_s)))

    def stop_again(self, run: StoredRun) -> None:
        """Repeat a request to stop that was made before the queue was killed, as it may not have
        arrived."""
        self._stop(run, run.stop)

    def _stop_of(self, run: StoredRun) -> Decision | str | None:
        """Why a run was asked to stop; None: it was not. A job that was cancelled since is not
        requeued."""
        stop = self._stops.get(run.id) or run.stop or None
        stored = self.store.job(run.job)
        cancelled = stored is not None and stored.cancelled
        return CANCEL if cancelled and outcome_of(stop or "") != LIMIT else stop

    def cancel(self, stored: StoredJob) -> None:
        """A user has cancelled a job."""
        run, job = self.runs.get(stored.id), self.jobs[stored.id]
        if run is not None:
            self._stop(run, CANCEL)
            return
        self.store.change(stored.id, state="CANCELLED", why="cancelled")
        if self.board is not None and stored.id not in self._outside:
            self.carry_out(self.board.ended(job, self._clock()))
        self._forget(job)

    def enforce_limits(self) -> None:
        """Stop what has had its time."""
        now = self._clock()
        for run_id in [one for one, (at, _) in self._limits.items() if at <= now]:
            _, why = self._limits.pop(run_id)
            for run in self.runs.values():
                if run.id == run_id and run_id not in self._stops:
                    self._stop(run, why)

    def watch_over(self, job: Job, run: StoredRun, profile_s: float = 0.0) -> None:
        """Start watching a run that has started: its time limit applies, and observers are
        notified."""
        started = run.started or self._clock()
        if profile_s:
            self._limits[run.id] = (started + profile_s, PROFILED)
        elif job.time_limit_s is not None:
            self._limits[run.id] = (started + job.time_limit_s - job.service_s, LIMIT)
        for observer in self.observers:
            observer.started(job)
        if job.partner is not None:
            for observer in self.observers:
                observer.packed(job.partner)

    # -- the board and those that are not on it --------------------------------------

    def leave_out(self, job: Job, until: float) -> None:
        """Hide a waiting job from the policy until then."""
        self._outside[job.index] = until
        if self.board is not None:
            self.carry_out(self.board.withdraw(job, self._clock()))

    def _waits_until(self, job: Job, until: float) -> float:
        """When a requeued job may start: never, if it was held while it ran."""
        stored = self.store.job(job.index)
        return NEVER if stored is not None and stored.held else until

    def _keep_held(self, job: Job) -> None:
        """A job that waits again stays out if it was held while it ran."""
        if self._waits_until(job, 0.0) == NEVER:
            self.leave_out(job, NEVER)

    def let_in(self, job: Job) -> None:
        """Offer a job to the policy again that was left out, unless its last run may be alive."""
        left = self._alive_until.get(job.index, 0.0) - time.monotonic()
        if left > 0:
            self._outside[job.index] = self._clock() + left
            return
        self._dirty = True
        if self.board is not None:
            self.board.rejoin(job, self._clock())

    def _forget(self, job: Job) -> None:
        self.jobs.pop(job.index, None)
        self._outside.pop(job.index, None)
        self._alive_until.pop(job.index, None)
        self._unadvised.discard(job.index)
        self._failed_starts.pop(job.index, None)


def outcome_of(stop: Decision | str) -> str:
    """The outcome of a run that was stopped for this reason."""
    return stop if isinstance(stop, str) else STOPPED[type(stop)]


# The commands of a run, with their nodes and environment.


FIRST_PORT, PORTS = 20_000, 10_000


def orders_of(stored: StoredJob, run: StoredRun, options: QueueOptions) -> list[Order]:
    """One command for each node, by rank; all the same but for `SCHEDMATE_NODE_RANK`."""
    spec = stored.request.spec
    assert spec.command is not None
    assert spec.repo is not None
    command = options.resume(stored) if run.number else spec.command
    count = len(run.places)
    gpus = sum(place.gpus for place in run.places)
    names = ",".join(place.name for place in run.places)
    common = {
        **stored.request.env,
        "SCHEDMATE_JOB": str(stored.id),
        "SCHEDMATE_RUN": str(run.number),
        "SCHEDMATE_GPUS": f"{gpus:g}",
        "SCHEDMATE_NODES": names,
        "SCHEDMATE_NNODES": str(count),
        "PYTHONUNBUFFERED": "1",
    }
    if count > 1:
        common |= {
            "MASTER_ADDR": run.places[0].name,
            "MASTER_PORT": str(FIRST_PORT + run.id % PORTS),
        }
    return [
        Order(
            run=run.id,
            rank=rank,
            job=stored.mark,
            command=command,
            cwd=spec.repo,
            env={**common, "SCHEDMATE_NODE_RANK": str(rank)},
            log=str(log_of(run, rank)),
            report=str(report_of(run, rank)),
            claims=str(options.claims),
            lease_s=options.lease_s,
        )
        for rank in range(count)
    ]


def log_of(run: StoredRun, rank: int = 0) -> Path:
    """The log of one node of a run."""
    return Path(run.folder) / f"rank{rank}.log"


def report_of(run: StoredRun, rank: int) -> Path:
    """The file that records how a command of a run ended."""
    return Path(f"{run.folder}.rank{rank}.json")


def sound_report(report: Any, decided: float, now: float) -> dict[str, Any] | None:
    """A report from a file, which the job itself may have written; None where it tells no end.

    Its times lie between when its run was decided and now [s since epoch]; a use of GPUs that
    lacks one of its numbers is left out.
    """
    if not isinstance(report, dict) or not isinstance(report.get("exit_code", ""), int | None):
        return None
    sound = {**report}
    for name in ("started", "ended"):
        if name in sound:
            stated = sound[name] if _is_number(sound[name]) else now
            sound[name] = min(max(stated, decided), now)
    use = sound.get("use")
    parts = ("gpu_util", "memory_util", "memory_mb")
    if not isinstance(use, dict) or not all(_is_number(use.get(part)) for part in parts):
        sound.pop("use", None)
    return sound


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def shell_words(command: list[str]) -> str:
    """A command line of words that were split already."""
    return command[0] if len(command) == 1 else shlex.join(command)


# Handles the ends of runs: updates the board and the store.


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
        if isinstance(event, GangStarted):
            self._started(run, event)
        elif isinstance(event, GangNotStarted):
            self._not_started(run, event.why)
        elif isinstance(event, GangEnded):
            self._ended(run, event.report)
        else:
            self._lost(run, event)

    def _started(self, run: StoredRun, event: GangStarted) -> None:
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
        return tuple(sorted((node, lowest_gpus(free[node], gpus)) for node, gpus in parts))

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
            self._lost(run, GangLost(run.id, _LOST[why], 0.0))
            return
        job, stop = self.jobs[run.job], self._stop_of(run)
        at = report.get("ended") or self._clock()
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
        elif (outcome := outcome_of(stop)) in FINAL_OUTCOMES:
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
        """Store the end of a run and of its job, and notify board and observers."""
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

    def _lost(self, run: StoredRun, event: GangLost) -> None:
        """The cluster has lost a run: it is started again where that is safe."""
        job, now = self.jobs[run.job], self._clock()
        stop, flight = outcome_of(self._stop_of(run) or ""), self._flights.get(run.id)
        stored = self.store.job(job.index)
        losses = 1 + (stored.losses if stored is not None else 0)
        report = {"why": event.why}
        over = stop in FINAL_OUTCOMES
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
            self._alive_until[job.index] = time.monotonic() + event.safe_at - now
            self._outside[job.index] = until
        else:
            self.let_in(job)

    def missing(self, run: StoredRun) -> None:
        """Handle a run that is on no seat: its files say whether it has ended."""
        reports = []
        for rank in range(len(run.places)):
            try:
                report = parse_json(read_text(report_of(run, rank), most=MOST_SETTINGS), "it")
                reports.append(sound_report(report, run.decided, self._clock()))
            except (OSError, ValueError, InputError):
                reports.append(None)
        usable = [report for report in reports if report is not None]
        if len(usable) == len(reports):
            failed = [report for report in usable if report.get("exit_code") != 0]
            started = run.started or usable[0].get("started") or run.decided
            self._ended(run._replace(started=started), failed[0] if failed else usable[-1])
            return
        safe_at = self._clock() + self.options.lease_s
        self._lost(run, GangLost(run.id, "the cluster was restarted", safe_at))

    # -- observers -----------------------------------------------------------------------

    def _tell_stopped(self, job: Job) -> None:
        for observer in self.observers:
            observer.stopped(job)

    def _tell_unpacked(self, partner: Job | None) -> None:
        if partner is not None and partner.allocation:
            for observer in self.observers:
                observer.unpacked(partner)


# Converts jobs of the store to jobs as policies see them.


def job_of(stored: StoredJob) -> Job:
    """A job, with its past runs."""
    request, spec = stored.request, stored.request.spec
    return Job(
        id=str(stored.id),
        index=stored.id,
        submit_time=stored.submitted,
        gpus=max(1, int(request.gpus)),
        share=min(request.gpus, 1.0),
        name=spec.name or "",
        user=spec.user or "",
        vc=request.queue,
        gpu_type=spec.launch.gpu_type or "",
        priority=request.priority,
        min_gpus=request.min_gpus,
        max_gpus=request.max_gpus,
        time_limit_s=spec.launch.time_limit_s,
        constraints=Constraints(without=frozenset(stored.exclude)) if stored.exclude else None,
        profile=profile_of(stored.profile),
        profiled=stored.profiled,
        evictions=stored.evictions,
        preemptions=stored.preemptions,
        failures=stored.restarts + stored.losses,
        service_s=stored.service_s,
    )


def profile_of(use: dict[str, float] | None) -> ModelProfile | None:
    """The profile that a meter has measured."""
    if use is None:
        return None
    return ModelProfile(use["gpu_util"], use["memory_util"], use["memory_mb"])
