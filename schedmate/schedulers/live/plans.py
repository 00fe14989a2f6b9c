"""Plans: what schedmate would do to a cluster, why, and how far that has come.

A plan is printed before anything happens (DESIGN rule 4). It is immutable: only its state changes,
and only along `NEXT`::

    proposed ─► approved ─► applying ─► applied ─► undoing ─► undone
        │           │           └─────► failed ──────┘ │
        ├─► rejected┤                     └─► applying ◄┘  (tried again)
        └─► expired ┘

`Record` (`record.py`) keeps plans and makes the moves; `apply.py` carries an approved plan out. ::

    plan = Plan.of("recovery", cluster="alpha", key="job 17 run 0", created=now,
                   reason=Reason(summary="ECC Error on gpu-7", verdict="ECC Error", job="17"),
                   actions=lambda id: [Drain(node="gpu-7", mark=mark("ECC Error", id))])
    record.propose(plan, by="agent")
    record.approve(plan.id, by="alice")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs import EvidenceLine
from schedmate.jobs.bounds import Moment, Text
from schedmate.schedulers.live.actions import Action, Drain, Requeue

Purpose = Literal["ordering", "annotation", "recovery"]
"""What a plan is for; guards and permissions differ by it."""

State = Literal[
    "proposed",  # waits for approval
    "approved",  # may be carried out
    "rejected",  # rejected by a person; it is not proposed again
    "expired",  # not approved in time, or its occasion has passed
    "applying",  # its actions are being taken; after a crash, some may have been
    "applied",  # all actions were taken
    "failed",  # an action was refused, failed, or met a cluster that had changed
    "undoing",  # its actions are being reverted
    "undone",  # its actions were reverted, as far as possible
]

NEXT: dict[State, frozenset[State]] = {
    "proposed": frozenset({"approved", "rejected", "expired"}),
    "approved": frozenset({"applying", "rejected", "expired"}),
    "rejected": frozenset(),
    "expired": frozenset(),
    "applying": frozenset({"applied", "failed"}),
    "applied": frozenset({"undoing"}),
    "failed": frozenset({"applying", "undoing"}),
    "undoing": frozenset({"undone", "failed"}),
    "undone": frozenset(),
}
"""From each state, the states that may follow."""

OPEN: frozenset[State] = frozenset({"proposed", "approved", "applying", "undoing"})
"""States in which more is to come."""


class Reason(BaseModel):
    """Why a plan is proposed: the verdict and the lines that prove it, fit to be shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: Text = Field(description="One sentence for a person")
    verdict: str | None = Field(None, description="`error_name` of the diagnosis")
    error_type: str | None = None
    component: str | None = Field(None, description="`faulty_component` of the diagnosis")
    rule: str | None = Field(None, description="What decided: a rule of the diagnosis")
    job: str | None = None
    run: int | None = Field(None, ge=0, description="Restarts of the job before this run")
    nodes: tuple[str, ...] = ()
    confirmed_by: str | None = Field(
        None, description="The signal besides text that confirmed the fault, if any did"
    )
    evidence: tuple[EvidenceLine, ...] = ()


class Plan(BaseModel):
    """A list of actions and the reason for them.

    Plans with equal `id` are equal: proposing one twice has no effect. `id` is derived from cluster
    and `key`, which names the subject of the plan (`job 17 run 0`), so that two agents, or one that
    was restarted, cannot do the same thing twice.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[0-9a-f]{12}$")
    key: Text
    cluster: Text
    purpose: Purpose
    created: Moment = Field(description="[s since epoch]")
    expires: Moment | None = Field(
        None, description="Not approved by then, it never will be [s since epoch]"
    )
    reason: Reason
    actions: tuple[Action, ...]

    @classmethod
    def of(
        cls,
        purpose: Purpose,
        *,
        cluster: str,
        key: str,
        created: float,
        reason: Reason,
        actions: Callable[[str], Sequence[Action]] | Sequence[Action],
        expires: float | None = None,
    ) -> Self:
        """A plan with its id; `actions` may be a function of the id, for marks that hold it."""
        id_ = plan_id(cluster, key)
        return cls(
            id=id_,
            key=key,
            cluster=cluster,
            purpose=purpose,
            created=created,
            expires=expires,
            reason=reason,
            actions=tuple(actions(id_) if callable(actions) else actions),
        )

    @property
    def isolates(self) -> tuple[str, ...]:
        """The nodes that it takes out of service."""
        return tuple(one.node for one in self.actions if isinstance(one, Drain))

    @property
    def restarts(self) -> tuple[str, ...]:
        """The jobs that it requeues."""
        return tuple(one.job for one in self.actions if isinstance(one, Requeue))


def plan_id(cluster: str, key: str) -> str:
    """The id of the plan about `key` on a cluster: 12 hexadecimal digits."""
    return sha256(f"{cluster}\0{key}".encode("utf-8", "backslashreplace")).hexdigest()[:12]


def mark(verdict: str | None, id_: str) -> str:
    """The mark of a drain: the verdict for people, the plan's id for schedmate."""
    words = re.sub(r"[^a-z0-9]+", "-", (verdict or "recovery").lower()).strip("-")[:40].strip("-")
    return f"{words or 'recovery'}-{id_}"
