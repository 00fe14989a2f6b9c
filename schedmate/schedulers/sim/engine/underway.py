"""Transitions of jobs that hold GPUs: leaving, moving and lending them (see `Status`).

They cost nothing for jobs without a status.
"""

from __future__ import annotations

from heapq import heappush

from schedmate.schedulers.model import Allocation, Job, Status, gpus_in
from schedmate.schedulers.sim.engine.events import LEND, LOAN, MOVED, RECLAIM
from schedmate.schedulers.sim.engine.execution import Execution
from schedmate.schedulers.sim.engine.ledger import Eviction, Hold, Loan
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.terms import NEVER


class Underway:
    """Jobs that were asked to stop, are being started elsewhere, or lend their GPUs."""

    def __init__(self, execution: Execution, workload: Workload) -> None:
        self._execution = execution
        self._ledger = execution.ledger
        self._halted = execution.halted
        execution.departures = self
        self._windows = workload.standby
        self._requests: dict[
            int, tuple[float, float, bool]
        ] = {}  # when, grace [s], whether it saves
        self._moves: dict[int, tuple[int, float]] = {}  # serial number, when it began
        self._loans: dict[int, tuple[int, float, float]] = {}  # serial number, begun, called back
        self._borrowers: dict[int, set[int]] = {}  # borrowers of a job that reclaims its GPUs
        self._awaited: dict[
            int, set[int]
        ] = {}  # jobs that have yet to leave, by the job about to start
        self._serial = 0

    def begin(self) -> None:
        """Schedule the windows in which jobs lend their GPUs."""
        for index, windows in self._windows.items():
            for number, (start, _) in enumerate(windows):
                heappush(self._execution.events, (start, LEND, index, number))

    # Leaving.

    def evict(self, job: Job, grace_s: float = 0.0) -> None:
        """Take the job off its GPUs (SchedMate, section 4.1).

        Without a grace time it is not asked to save its work first.
        """
        if grace_s > 0:
            self.ask_to_stop(job, grace_s)
        else:
            self.leave(job)

    def ask_to_stop(self, job: Job, grace_s: float) -> None:
        """It does no more work, and leaves when its handler is through or the time is over."""
        execution, index, now = self._execution, job.index, self._execution.view.now
        takes_s = execution.parameters.shutdown.takes_s(job.id, job.evictions)
        saves = job.terms is not None and job.terms.saves and takes_s <= grace_s
        self._requests[index] = (now, grace_s, saves)
        execution.advance(job)
        execution.withdraw(job)
        job.put_under_way(Status(leaves_by=now + grace_s))
        execution.view.leaving[index] = job
        self._halted[index] = now + min(takes_s, grace_s)
        execution.run(job)

    def leave(self, job: Job) -> None:
        """The job leaves, with what its last checkpoint holds, and waits again."""
        execution, index = self._execution, job.index
        asked, grace_s, saves = self._requests.pop(index, (execution.view.now, 0.0, False))
        execution.advance(job)
        done = execution.done[index]
        before = execution.done_before[index]
        kept = done if saves else execution.physics.saved(index, done, before)
        execution.done[index] = kept
        execution.view.evicted.add(job)
        execution.interrupt(job)
        self._ledger.evictions[len(execution.segments) - 1] = Eviction(
            index, asked, execution.view.now, grace_s, done, kept, saves
        )

    # Starting where others leave.

    def start_later(self, job: Job, allocation: Allocation) -> bool:
        """Start the job when the present users have left these GPUs; False if some stay."""
        execution, leavers = self._execution, set[int]()
        space = execution.space
        for node, mask in allocation:
            missing = mask & ~space.free[node]
            # Whose CPUs and memory these are is not known: it waits for all of the jobs.
            poor = not space.affords(node, job, mask.bit_count())
            for one in execution.view.on(node) if missing or poor else ():
                held = next(theirs for at, theirs in one.allocation if at == node) & mask
                leaves = one.status is not None and one.status.leaving
                if leaves and (held or poor):
                    leavers.add(one.index)
                    missing &= ~held
                elif held:
                    return False
            if missing or mask & space.owed(node):
                return False
        execution.space.claim(job, allocation)
        execution.view.starting[job.index] = (job, allocation)
        self._awaited[job.index] = leavers
        return True

    def _start(self, index: int) -> None:
        """The job starts, as all jobs that it waited for have left its GPUs."""
        job, allocation = self._end_wait(index)
        space = self._execution.space
        if space.ready(job, allocation) and space.take(job, allocation):
            self._execution.begin(job, allocation)
        else:
            self._execution.wait(job)

    def _end_wait(self, index: int) -> tuple[Job, Allocation]:
        del self._awaited[index]
        job, allocation = self._execution.view.starting.pop(index)
        self._execution.space.end_claim(job, allocation)
        return job, allocation

    def cancel_starts(self, node: int | None = None) -> None:
        """Those about to start on this node, or on any, wait for another place."""
        for index, (_, allocation) in list(self._execution.view.starting.items()):
            if node is None or any(at == node for at, _ in allocation):
                job, _ = self._end_wait(index)
                self._execution.wait(job)
                self._execution.dirty = True

    # Moving.

    def bring_up(self, job: Job, allocation: Allocation) -> None:
        """The job also holds these booked GPUs, on which it is started before it moves there."""
        execution, now = self._execution, self._execution.view.now
        self._serial += 1
        self._moves[job.index] = (self._serial, now)
        job.put_under_way(Status(moves_to=allocation))
        at = now + execution.parameters.restart(gpus_in(allocation))
        heappush(execution.events, (at, MOVED, job.index, self._serial))

    def moved(self, job: Job, serial: int) -> bool:
        """The job is up elsewhere and moves there, unless the move was cancelled; return whether it
        moves."""
        if job.index not in self._moves or self._moves[job.index][0] != serial:
            return False
        assert job.status is not None
        execution, allocation = self._execution, job.status.moves_to
        self._hold_ends(job, moved=True)
        job.settle()
        execution.stop(job)
        self.settle(job)
        job.moves += 1
        execution.begin(job, allocation, most_s=execution.parameters.handover_s)
        return True

    def lose(self, node: int) -> None:
        """Cancel moves to this node; the jobs keep running where they are."""
        execution = self._execution
        self.cancel_starts(node)
        for index in list(self._moves):
            job = execution.jobs[index]
            assert job.status is not None
            if any(at == node for at, _ in job.status.moves_to):
                execution.space.give(job, job.status.moves_to)
                self._hold_ends(job, moved=False)
                job.settle()

    def _hold_ends(self, job: Job, *, moved: bool) -> None:
        assert job.status is not None
        _, began = self._moves.pop(job.index)
        now = self._execution.view.now
        self._ledger.holds.append(Hold(job.index, began, now, job.status.moves_to, moved))

    # Lending.

    def lend(self, job: Job, number: int) -> bool:
        """One of its windows opens: the job lends its GPUs if it can; return whether it does."""
        execution, now = self._execution, self._execution.view.now
        alone = job.allocation and job.partner is None and not job.profiling
        until = self._windows[job.index][number][1]
        borrows = execution.kind.get(job.index) == LOAN
        if not alone or borrows or job.status is not None or job.share != 1.0 or until <= now:
            return False
        self._serial += 1
        self._loans[job.index] = (self._serial, now, NEVER)
        job.put_under_way(Status(lends=True, lends_until=until))
        execution.space.lend(job, job.allocation)
        heappush(execution.events, (until, RECLAIM, job.index, self._serial))
        return True

    def reclaim(self, job: Job, serial: int) -> bool:
        """The job reclaims its GPUs: the borrowers are asked to stop, and it waits for them."""
        execution, index, now = self._execution, job.index, self._execution.view.now
        if index not in self._loans or self._loans[index][0] != serial:
            return False
        self._loans[index] = (*self._loans[index][:2], now)
        execution.space.call_back(job.allocation)
        borrowers = self.borrowers(job)
        if not borrowers:
            self._back(job)
            return True
        self._borrowers[index] = {one.index for one in borrowers}
        execution.advance(job)
        execution.withdraw(job)
        self._halted[index] = NEVER
        execution.run(job)
        for one in borrowers:
            if one.status is None:
                one.evictions += 1
                self.ask_to_stop(one, execution.parameters.reclaim_grace_s)
        return True

    def borrowers(self, lender: Job) -> list[Job]:
        """Jobs on GPUs that the job lends."""
        held, found = dict(lender.allocation), {}
        for node in held:
            for one in self._execution.view.on(node):
                if one is not lender and any(held.get(at, 0) & mask for at, mask in one.allocation):
                    found[one.index] = one
        return list(found.values())

    def _back(self, job: Job) -> None:
        """It uses its GPUs again."""
        execution = self._execution
        execution.space.end_loan(job, job.allocation, left=False)
        self._record_loan(job, job.allocation)
        job.settle()
        if self._halted.pop(job.index, None) is not None:
            execution.advance(job)
            execution.withdraw(job)
            execution.run(job)

    def _record_loan(self, job: Job, allocation: Allocation) -> None:
        now = self._execution.view.now
        _, start, called = self._loans.pop(job.index)
        self._ledger.loans.append(Loan(job.index, start, min(called, now), now, allocation))

    # Whatever ends it.

    def give(self, job: Job, allocation: Allocation) -> None:
        """Release what a job with a status holds."""
        assert job.status is not None
        space = self._execution.space
        if job.status.lends:
            space.end_loan(job, allocation, left=True)
            self._record_loan(job, allocation)
            self._borrowers.pop(job.index, None)
            return
        space.give(job, allocation)
        if job.status.moves_to:
            space.give(job, job.status.moves_to)
            self._hold_ends(job, moved=False)

    def settle(self, job: Job) -> None:
        """The job has left its GPUs: its transition is over."""
        job.settle()
        self._execution.view.leaving.pop(job.index, None)
        self._halted.pop(job.index, None)
        self._requests.pop(job.index, None)
        for lender, left in list(self._borrowers.items()):
            left.discard(job.index)
            if not left:
                del self._borrowers[lender]
                self._back(self._execution.jobs[lender])
        for index, awaited in list(self._awaited.items()):
            awaited.discard(job.index)
            if not awaited:
                self._start(index)
