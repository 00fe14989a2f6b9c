"""The guard rails: rules that forbid actions of recovery even if the plan was approved.

Each rule reads the record and the inventory of nodes and decides in the transaction that records
the intent (`Record.intend`), so that two processes cannot both use up the last of a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from schedmate.base.inputs import format_duration
from schedmate.base.terminal import counted
from schedmate.cluster.actions import REASON_PREFIX, Action, Drain, Notify, Requeue, Resume
from schedmate.cluster.adapter import RefusedError
from schedmate.cluster.bounds import kill_switch_is_on
from schedmate.cluster.record import Attempt, PlanStatus, Record, isolations
from schedmate.cluster.recovery.configuration import Configuration


@dataclass(frozen=True)
class Inventory:
    """All nodes, as last observed. Empty: unknown, and no node may be taken out of service."""

    partitions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The nodes of each partition; a node may be in several."""
    out: Mapping[str, str] = field(default_factory=dict)
    """Nodes out of service, with the scheduler's reason."""
    seen: int = 0
    """The number of the record's last entry at the time of observation: later drains are not
    included."""

    @property
    def nodes(self) -> frozenset[str]:
        """Every node of every partition."""
        return frozenset().union(*self.partitions.values())

    @property
    def ours(self) -> frozenset[str]:
        """The nodes that are out of service for a reason of schedmate's."""
        return frozenset(
            node for node, reason in self.out.items() if reason.startswith(REASON_PREFIX)
        )

    @classmethod
    def of(cls, nodes: Iterable[tuple[str, Iterable[str], str | None]]) -> Inventory:
        """From (node, its partitions, the reason why it is out of service or None)."""
        partitions: dict[str, set[str]] = {}
        out: dict[str, str] = {}
        for node, places, reason in nodes:
            for place in places:
                partitions.setdefault(place, set()).add(node)
            if reason is not None:
                out[node] = reason
        return cls({name: frozenset(one) for name, one in partitions.items()}, out)


class HasInventory(Protocol):
    """An executor that lists the nodes of its cluster."""

    def inventory(self) -> Inventory:
        """The nodes as they are now. Raises `ExecutorError` when they cannot be listed."""
        ...


# The guard rails: rules that forbid actions of recovery even if the plan was approved.
#
# Each rule reads the record and the inventory and decides in the transaction that records the
# intent (`Record.intend`), so that two processes cannot both use up the last of a budget. All
# attempts count unless they certainly had no effect: one without an outcome may have been taken.
# Undone actions count as well, else alternate draining and resuming would be unlimited.


BREAKER = "circuit breaker"
"""The rule that limits how many nodes are isolated (`RefusedError.rule`)."""
TRIPPED, RESET = "breaker tripped", "breaker reset"
"""Entries of the record when the circuit breaker opens, and when a person closes it."""
ALLOWED_TEXT = "text alone, as recovery.yaml allows"
"""`Reason.confirmed_by` of a plan that isolates on text that a rule of the file trusts."""


class Guards:
    """The guard of recovery (`executor.Guard`) for one state of the cluster.

    `inventory` is read once before a plan is carried out.
    """

    def __init__(self, configuration: Configuration, inventory: Inventory) -> None:
        self.configuration, self.inventory = configuration, inventory

    def check(self, record: Record, status: PlanStatus, action: Action, *, undo: bool) -> None:
        """Raise `RefusedError` if the action is forbidden.

        Undoing is limited by the kill switch only; notifying people is never forbidden.
        """
        if isinstance(action, Notify):
            return
        self._kill_switch()
        if undo:
            return
        if isinstance(action, Drain):
            for rule in (self._confirmed, self._breaker, self._cool_down, self._last_healthy):
                rule(record, status, action)
        elif isinstance(action, Resume):
            raise RefusedError("undo", "a node returns to service by `recover undo` only.")
        elif isinstance(action, Requeue):
            self._restarts(record, status, action)

    # -- all -------------------------------------------------------------

    def _kill_switch(self) -> None:
        place = self.configuration.kill_switch
        if kill_switch_is_on(place):
            raise RefusedError(
                "kill switch", f"{place} is there; nothing is done until it is removed."
            )

    # -- isolation -------------------------------------------------------

    def _confirmed(self, _record: Record, status: PlanStatus, _action: Drain) -> None:
        by = status.plan.reason.confirmed_by
        rules = self.configuration.rules or ()
        trusted = any(rule.isolate == "text" for rule in rules)
        if not by or (by == ALLOWED_TEXT and not trusted):
            raise RefusedError(
                "confirmation",
                "only the job's log blames the node; a diagnostic has to confirm it.",
            )

    def _breaker(self, record: Record, _status: PlanStatus, action: Drain) -> None:
        if breaker_is_open(record):
            raise RefusedError(
                BREAKER,
                "it is open; look at the nodes that were isolated, then `schedmate recover reset`.",
            )
        limits = self.configuration.isolation
        if not self.inventory.nodes:
            raise RefusedError(BREAKER, "it is not known which nodes the cluster has.")
        if action.node not in self.inventory.nodes:
            raise RefusedError(BREAKER, f"{action.node} is none of the nodes of the cluster.")
        now, reset = record.now(), _latest_observation(record, RESET)
        drains = _drains(record)
        # a person who closes the breaker has reviewed all isolations until then
        reset_nodes = {drained.action.node for drained in drains if drained.id < reset}
        counted_ones = {
            drained.action.node
            for drained in drains
            if drained.id > reset
            and (drained.at.age(now) <= limits.within or self._is_out(record, drained))
        } | (self.inventory.ours - reset_nodes)
        allowed = self.allowed
        if len(counted_ones | {action.node}) > allowed:
            words = (
                f"{counted(len(counted_ones), 'node')} isolated within "
                f"{format_duration(limits.within)} or still out of service by us, "
                f"{allowed} allowed"
            )
            raise RefusedError(
                BREAKER,
                f"{words}; it is open now, `schedmate recover reset` closes it.",
                observed=(TRIPPED, "recovery", {"nodes": sorted(counted_ones), "for": action.node}),
            )

    @property
    def allowed(self) -> int:
        """Nodes that may be out of service by us: the stricter of number and share."""
        limits = self.configuration.isolation
        share = math.floor(len(self.inventory.nodes) * limits.at_most_percent / 100)
        return min(limits.at_most, max(1, share) if limits.at_most_percent else 0)

    def _cool_down(self, record: Record, _status: PlanStatus, action: Drain) -> None:
        now, pause = record.now(), self.configuration.isolation.cool_down
        others = [drain for drain in _drains(record) if drain.action.node != action.node]
        left = pause - min((drain.at.age(now) for drain in others), default=pause)
        if left > 0:
            raise RefusedError(
                "cool-down",
                f"another node was isolated less than {format_duration(pause)} ago.",
                wait_s=left,
            )

    def _last_healthy(self, record: Record, _status: PlanStatus, action: Drain) -> None:
        limits = self.configuration.isolation
        out = set(self.inventory.out) | {
            one.action.node for one in _drains(record) if self._is_out(record, one)
        }
        for name, nodes in self.inventory.partitions.items():
            if action.node not in nodes:
                continue
            left = len(nodes - out - {action.node})
            needed = max(limits.keep, math.floor(len(nodes) * limits.keep_percent / 100))
            if left < needed:
                raise RefusedError(
                    "last healthy nodes",
                    f"partition {name} would have {counted(left, 'node')} of {len(nodes)} in "
                    f"service, {needed} are to stay.",
                )

    def _is_out(self, record: Record, drained: _Drain) -> bool:
        """Whether a node that we drained is out of service, or may be soon."""
        if drained.id <= self.inventory.seen and drained.outcome == "done":
            return drained.action.node in self.inventory.out
        returned = record.attempts(plan=drained.plan, step=drained.step, undo=True)
        return not any(one.outcome == "done" for one in returned)

    # -- restarts --------------------------------------------------------

    def _restarts(self, record: Record, status: PlanStatus, action: Requeue) -> None:
        limits, now = self.configuration.restarts, record.now()
        recent = [
            attempt
            for attempt in record.attempts(kind="requeue", undo=False)
            if attempt.outcome in ("done", None) and attempt.at.age(now) <= limits.within
        ]
        span = format_duration(limits.within)
        if len(recent) >= limits.all_jobs:
            raise RefusedError(
                "restart budget", f"{counted(len(recent), 'restart')} of all jobs within {span}."
            )
        own = [attempt for attempt in recent if _job_of(attempt) == action.job]
        verdict = status.plan.reason.verdict or ""
        same = [
            attempt for attempt in own if record.plan(attempt.plan).plan.reason.verdict == verdict
        ]
        budget = limits.by_verdict.get(verdict)
        if len(own) >= limits.per_job or (budget is not None and len(same) >= budget):
            words = f" after {verdict}" if len(own) < limits.per_job else ""
            number = len(own) if len(own) >= limits.per_job else len(same)
            raise RefusedError(
                "restart budget",
                f"job {action.job} was restarted {counted(number, 'time')}{words} within {span}.",
            )
        if own:
            pause = min(limits.back_off_at_most, limits.back_off * 2.0 ** (len(own) - 1))
            left = pause - min(attempt.at.age(now) for attempt in own)
            if left > 0:
                raise RefusedError(
                    "back-off",
                    f"job {action.job} was restarted less than {format_duration(pause)} ago.",
                    wait_s=left,
                )


class _Drain(Attempt):
    action: Drain


def _drains(record: Record) -> list[_Drain]:
    """Drains that were taken, or may have been."""
    attempts = record.attempts(kind="drain", undo=False)
    return [
        _Drain(*attempt)
        for attempt in attempts
        if attempt.outcome in ("done", None) and isinstance(attempt.action, Drain)
    ]


def _job_of(attempt: Attempt) -> str | None:
    return attempt.action.job if isinstance(attempt.action, Requeue) else None


def breaker_is_open(record: Record) -> bool:
    """Whether the circuit breaker has tripped and no person has closed it since."""
    return _latest_observation(record, TRIPPED) > _latest_observation(record, RESET)


def _latest_observation(record: Record, kind: str) -> int:
    return max((one.seq for one in record.entries(kind=kind)), default=0)


LEAST_KEPT_S = 30 * 86_400.0
"""Limits on restarts and isolations look back for as long as this at least [s]."""


def least_kept_s(limits: Configuration) -> float:
    """How long entries of the record are needed for its limits [s]."""
    return max(LEAST_KEPT_S, limits.restarts.within, limits.isolation.within)


def needed_from(record: Record) -> int:
    """The number of the first entry that guards still need, however old it is: of nodes that we
    hold out of service, and of a breaker that no person has closed."""
    needed = [record.plan(one.plan).number for one in isolations(record).values()]
    if breaker_is_open(record):
        needed.append(_latest_observation(record, TRIPPED))
    return min(needed, default=record.head()[0])


def reset_breaker(record: Record, *, by: str, note: str) -> list[str]:
    """Close the circuit breaker, and approve again the plans that it had stopped; their ids.

    Isolations until now do not count any more: the person who closes it has reviewed them.
    """
    with record.writing():
        record.ensure_intact()
        record.observe(RESET, "recovery", by=by, data={"note": note})
        stopped = [
            status.plan.id
            for status in reversed(record.plans(states={"failed"}, purpose="recovery", limit=1000))
            if status.note.startswith(f"refused: {BREAKER}:")
        ]
        for id_ in stopped:
            record.move(id_, "approved", by=by, note=f"the circuit breaker was closed: {note}")
    return stopped
