"""The protocols of executors, which take actions, and guards, which may forbid them.

An executor (Slurm, Kubernetes, Ray, a site's own commands) implements two methods. A guard is
called before every action, inside the transaction that records its intent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from schedmate.errors import ActionError
from schedmate.schedulers.live.actions import Action

if TYPE_CHECKING:
    from schedmate.schedulers.live.record import PlanStatus, Record

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

    It changes nothing that outlives the command.
    """

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """Run a command once over all of `nodes` together, and end it after `timeout_s`."""
        ...


class Guard(Protocol):
    """Forbids actions."""

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
