"""Nodes from Slurm's JSON: `sinfo --json` (22.05), `scontrol show nodes --json`, slurmrestd."""

from __future__ import annotations

from typing import Any, NamedTuple

from schedmate.hosts import host_name
from schedmate.schedulers.live.slurm.reading.shapes import (
    ShapeError,
    document,
    members,
    moment,
    names,
    text,
)

OUT = frozenset(
    {"DOWN", "DRAIN", "FAIL", "ERROR", "FUTURE", "UNKNOWN", "NOT_RESPONDING", "POWERED_DOWN"}
    | {"POWERING_DOWN", "MAINTENANCE", "REBOOT_ISSUED", "INVALID_REG", "INVALID"}
)
"""States and flags of a node that takes no jobs."""


class Node(NamedTuple):
    """One node; `states` are its base state and flags, in capitals."""

    name: str
    states: frozenset[str]
    reason: str
    reason_by: str
    reason_at: float | None
    partitions: tuple[str, ...]
    gpus: int
    gpus_used: int

    @property
    def drained(self) -> bool:
        """Whether somebody took it out of service; jobs may still run on it."""
        return "DRAIN" in self.states

    @property
    def healthy(self) -> bool:
        """Whether it takes jobs, or would when those on it have ended."""
        return not self.states & OUT

    @property
    def busy(self) -> bool:
        """Whether a job runs on it, or is ending there."""
        return bool(self.states & {"ALLOCATED", "MIXED", "COMPLETING"})


def parse_nodes(printed: str, what: str = "sinfo --json") -> list[Node]:
    """Every node of a document; raises `OutageError` if it reports errors."""
    return [_node(one) for one in members(document(printed, what), "nodes", what)]


def _node(one: dict[str, Any]) -> Node:
    name = text(one.get("name"), "name")
    if host_name(name) is None:
        raise ShapeError("a node has no name.")
    states = names(one.get("state"), "state")
    if not states:
        raise ShapeError(f"node {name} has no state.")
    return Node(
        name=name,
        states=frozenset(
            state.upper() for state in (*states, *names(one.get("state_flags"), "state_flags"))
        ),
        reason=text(one.get("reason"), "reason"),
        reason_by=text(one.get("reason_set_by_user"), "reason_set_by_user"),
        reason_at=moment(one.get("reason_changed_at"), "reason_changed_at"),
        partitions=names(one.get("partitions"), "partitions"),
        gpus=_gpus(text(one.get("tres"), "tres")),
        gpus_used=_gpus(text(one.get("tres_used"), "tres_used")),
    )


def _gpus(tres: str) -> int:
    """The GPUs among trackable resources: `cpu=64,mem=4000M,gres/gpu=4`."""
    for part in tres.split(","):
        name, _, amount = part.partition("=")
        if name == "gres/gpu" and amount.isdigit() and len(amount) < 10:
            return int(amount)
    return 0
