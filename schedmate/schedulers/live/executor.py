"""The protocols of executors, which take actions, and guards, which may forbid them.

An executor (Slurm, Kubernetes, Ray, a site's own commands) implements two methods. A guard is asked
before every action, inside the transaction that records its intent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from schedmate.errors import ActionError
from schedmate.schedulers.live.actions import Action

if TYPE_CHECKING:
    from schedmate.schedulers.live.record import PlanStatus, Record

LookedUp = Literal[
    "ready",  # the precondition holds and the action has not been taken, or only in part
    "done",  # what the action brings about is so, by its own mark where it leaves one
    "moot",  # what it is for is so already, by somebody else: it is left out, and never undone
    "changed",  # none of these: the target is gone, or no longer what the plan is about
]


class Finding(NamedTuple):
    """The state of an action, as seen on the cluster."""

    state: LookedUp
    detail: str = ""
    """What was seen, for people."""


class Answer(NamedTuple):
    """The result of an action.

    `unknown` is for an action of which nobody can tell: no answer in time, or one that makes no
    sense. It is looked up before anything else happens.
    """

    outcome: Literal["done", "failed", "unknown"]
    detail: str = ""
    data: dict[str, Any] = {}  # noqa: RUF012 - a NamedTuple's default, which nobody changes


class ExecutorError(ActionError):
    """An executor cannot tell or do something now: its scheduler does not answer, a command of the
    site failed. It says nothing about whether an action was taken."""


class RefusedError(ActionError):
    """A guard forbids an action. `wait_s` where it would allow it later [s], None where it needs
    a person. `observed` is what the record is to keep of it: what, about, data."""

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

    Nothing else about actions is decided here: not whether, not how often, not in which order.
    """

    name: str
    """For people and the record: `slurm`, `local`."""

    def probe(self, action: Action) -> Finding:
        """Look, and change nothing: does the action's precondition hold, is it done already, or is
        the target not as the plan expects it?

        `done` must mean that this action is in effect, not something like it: a node that somebody
        else drained is `moot` for `Drain`. For an action of several steps that was cut off in
        the middle it is `ready`, and `act` takes the rest.
        """
        ...

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """Take an action whose intent is recorded, within a time.

        `key` is the same each time this step is tried: for schedulers that know a request again.
        What happened to an action that did not answer in time is `unknown`.
        """
        ...


class Ran(NamedTuple):
    """What came of a command on nodes. `exit_code` is None when it could not be run or did not end
    in time, which says nothing about the nodes; `detail` then says why."""

    exit_code: int | None
    output: str
    detail: str = ""


class Runner(Protocol):
    """Runs the administrator's diagnostics on nodes that are free of jobs (Slurm: an exclusive step
    with a node list). It changes nothing that outlives the command."""

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
    """A guard that forbids nothing, for tests and for actions that change no node or job."""

    def check(self, record: Record, status: PlanStatus, action: Action, *, undo: bool) -> None:
        """Forbid nothing."""
