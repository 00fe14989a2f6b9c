"""Nodes that are drained or down."""

from __future__ import annotations

from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.engine.ledger import Outage
from schedmate.schedulers.sim.engine.record import Outcome, Segment
from schedmate.schedulers.sim.outcome.laws.broken import LawBrokenError


def check_outages(cluster: Cluster, outcome: Outcome) -> None:
    """Check that no job gets GPUs of a drained node, except to share them, or holds GPUs of one
    that is down.

    Raises `LawBrokenError`.
    """
    outages: dict[int, list[Outage]] = {}
    for one in outcome.ledger.outages:
        if not one.closed <= one.down <= one.up:
            # One that was to come after the end of the simulation never did.
            raise LawBrokenError(f"node {cluster.nodes[one.node].name} came back before it went.")
        outages.setdefault(one.node, []).append(one)
    if not outages:
        return
    for held in (*outcome.segments, *outcome.ledger.holds):
        for node, _ in held.allocation:
            for out in outages.get(node, ()):
                joined = isinstance(held, Segment) and held.kind == "packed"
                if (out.down if joined else out.closed) <= held.start < out.up:
                    raise LawBrokenError(
                        f"a job started on node {cluster.nodes[node].name} at {held.start}, which "
                        f"was closed from {out.closed} to {out.up}."
                    )
                if held.start < out.down < held.end:
                    raise LawBrokenError(
                        f"a job held GPUs of node {cluster.nodes[node].name} until {held.end}, "
                        f"which was down from {out.down} on."
                    )
