"""What each kind of event does to jobs and nodes."""

from __future__ import annotations

from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.engine.advice import Advice
from schedmate.schedulers.sim.engine.events import (
    DOWN,
    DRAIN,
    END,
    FAIL,
    HORIZON,
    LEFT,
    LEND,
    MOVED,
    PACE,
    PROFILED,
    RECLAIM,
    REORDER,
    RERANK,
    SUBMIT,
    TICK,
    UP,
    WAKE,
)
from schedmate.schedulers.sim.engine.execution import ASKED, Execution
from schedmate.schedulers.sim.engine.nodes import Nodes
from schedmate.schedulers.sim.engine.underway import Underway

_TRANSITIONS = frozenset((LEFT, MOVED, LEND, RECLAIM, REORDER))
"""Events that may be void by the time they happen."""


class Handlers:
    """Handles events, the most frequent kinds first."""

    def __init__(
        self, execution: Execution, underway: Underway, nodes: Nodes, advice: Advice | None
    ) -> None:
        self._execution = execution
        self._underway = underway
        self._nodes = nodes
        self._advice = advice
        self._learns = advice is not None and advice.learns

    def handle(self, kind: int, index: int, which: int) -> None:
        """Handle one event: its kind, the position of its job or node, and its last part."""
        execution = self._execution
        if kind == END:
            job = execution.jobs[index]
            execution.end(job)
            if self._learns:
                self._learn(job)
        elif kind == PACE:
            execution.pace(execution.jobs[index])
        elif kind == WAKE:
            execution.woken(execution.jobs[index], which)
        elif kind in _TRANSITIONS:
            if self._transition(kind, execution.jobs[index], which):
                execution.dirty = True
        else:
            execution.dirty = True
            self._change(kind, index, which)

    def close(self) -> None:
        """Stop the simulation: no job starts any more, and running ones are recorded so far."""
        self._underway.cancel_starts()
        self._execution.close()

    def _transition(self, kind: int, job: Job, which: int) -> bool:
        """A step of a job's transition, or of its rank; False if the event is void."""
        if kind == LEFT:
            self._underway.leave(job)
            return True
        if kind == MOVED:
            return self._underway.moved(job, which)
        if kind == LEND:
            return self._underway.lend(job, which)
        if kind == RECLAIM:
            return self._underway.reclaim(job, which)
        return self._execution.reorder(job)

    def _change(self, kind: int, index: int, which: int) -> None:
        """An event after which the policy always decides."""
        execution = self._execution
        if kind == RERANK:
            execution.rerank(execution.jobs[index])
        elif kind == SUBMIT:
            execution.coming -= 1
            execution.submit(execution.jobs[index])
        elif kind == FAIL:
            if not execution.fail(execution.jobs[index]):
                self._learn(execution.jobs[index])
        elif kind == PROFILED:
            self._stop_profiling(execution.jobs[index])
        elif kind == TICK:
            execution.coming -= which == ASKED
        elif kind == UP:
            self._nodes.back(index, execution.now, which)
        elif kind == DRAIN:
            self._nodes.drain(index, which)
        elif kind == DOWN:
            for job in self._nodes.fail(index, execution.now, which):
                self._learn(job)
        elif kind == HORIZON:
            self.close()
            execution.unfinished = 0
            execution.dirty = False

    def _stop_profiling(self, job: Job) -> None:
        self._execution.stop_profiling(job)
        if self._advice is not None:
            job.forecast = self._advice.forecast(job)
        self._execution.wait(job)

    def _learn(self, job: Job) -> None:
        if self._advice is not None:
            self._advice.learn(job)
