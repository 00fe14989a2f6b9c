"""Turns decisions into runs on seats; `outcomes.py` handles how runs end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from schedmate.schedulers.board import Board
from schedmate.schedulers.decisions import (
    Decision,
    Drop,
    Evict,
    Migrate,
    Pack,
    Preempt,
    Profile,
    Resize,
)
from schedmate.schedulers.live.queue.options import Options
from schedmate.schedulers.live.queue.orders import orders_of
from schedmate.schedulers.live.queue.requests import SIGNALS, Place, StoredJob, StoredRun
from schedmate.schedulers.live.queue.runner import Order
from schedmate.schedulers.live.queue.seats import (
    SIGKILL,
    Seats,
)
from schedmate.schedulers.live.queue.store import Store
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.observer import Observer
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.terms import NEVER

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
FINAL = (CANCEL, LIMIT)
"""Outcomes after which a job is not requeued."""


class Carrying:
    """Starts and stops runs on seats as the policy decides."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        seats: Seats,
        options: Options,
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
        if outcome_of(self._stops.get(run.id, "")) not in FINAL:  # else it keeps its outcome
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
        """It does from now on."""
        self._dirty = True
        if self.board is not None:
            self.board.rejoin(job, self._clock())

    def _forget(self, job: Job) -> None:
        self.jobs.pop(job.index, None)
        self._outside.pop(job.index, None)
        self._unadvised.discard(job.index)
        self._failed_starts.pop(job.index, None)


def outcome_of(stop: Decision | str) -> str:
    """The outcome of a run that was stopped for this reason."""
    return stop if isinstance(stop, str) else STOPPED[type(stop)]
