"""The content of the dashboard's page, from the board, the plans and the clock."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from schedmate.durations import format_duration
from schedmate.schedulers.live.actions import Drain, Requeue
from schedmate.schedulers.live.statuses import PlanStatus
from schedmate.serve.board import Board, Checked, Job
from schedmate.serve.plans import Plans

NODE_FAILURES = 1_000
"""Latest failures that nodes are counted over."""
BINS = (0.0, 0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 4.0, float("inf"))
"""Edges of the histogram of run time over estimate."""


def view(board: Board, plans: Plans, now: float) -> dict[str, Any]:
    """Values of the template; times are texts relative to `now` [s since epoch]."""
    failures = board.failures(NODE_FAILURES)
    statuses = plans.list(limit=100)
    counts = board.counts()
    return {
        "now": now,
        "pending": counts.get("PENDING", 0),
        "active": counts.get("RUNNING", 0),
        "queue": [_waiting(job, now) for job in board.queue()],
        "running": [_running(job, now) for job in board.running()],
        "failures": [_failed(job, now) for job in failures[:50]],
        "plans": [_plan(one, now) for one in statuses if one.state == "proposed"],
        "decided": [_plan(one, now) for one in statuses if one.state != "proposed"][:20],
        "nodes": _nodes(failures, statuses, now),
        "accuracy": _accuracy(board.checked()),
    }


def ago(then: float | None, now: float) -> str:
    """`5 min 00 s ago`; empty for an unknown time."""
    if then is None:
        return ""
    return f"{format_duration(max(0.0, now - then))} ago"


def _lasting(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def _interval(job: Job) -> str:
    if job["p10_s"] is None or job["p90_s"] is None:
        return ""
    return f"{format_duration(job['p10_s'])} to {format_duration(job['p90_s'])}"


def _waiting(job: Job, now: float) -> dict[str, Any]:
    waited = None if job["submit_time"] is None else max(0.0, now - job["submit_time"])
    return {
        **_named(job),
        "waited": _lasting(waited),
        "estimate": _lasting(job["estimate_s"]),
        "interval": _interval(job),
        "runs": job["runs"] if job["estimate_s"] is not None else None,
        "reason": job["reason"],
    }


def _running(job: Job, now: float) -> dict[str, Any]:
    progress = job["progress"] or {}
    total, at = progress.get("total_iterations"), progress.get("iteration")
    since = now - job["tracked"] if job["tracked"] else 0.0
    eta = progress.get("eta_s")
    left = None if eta is None else max(0.0, eta - since)
    source = "from its log"
    if left is None and job["estimate_s"] is not None and job["start_time"] is not None:
        left, source = max(0.0, job["start_time"] + job["estimate_s"] - now), "by its estimate"
    return {
        **_named(job),
        "ran": ago(job["start_time"], now).removesuffix(" ago"),
        "step_time": progress.get("step_time_s"),
        "at": at,
        "total": total if total and at is not None and total >= at else None,
        "loss": progress.get("loss_state") or progress.get("loss"),
        "left": _lasting(left),
        "source": source,
        "read": ago(job["tracked"], now),
        "reason": progress.get("reason"),
    }


def _failed(job: Job, now: float) -> dict[str, Any]:
    found = job["diagnosis"]
    plan = found.get("plan") or {}
    return {
        **_named(job),
        "state": job["state"],
        "when": ago(job["diagnosed"], now),
        "error_type": found["error_type"],
        "error_name": found.get("error_name"),
        "component": found.get("faulty_component"),
        "file": found.get("file"),
        "line": found.get("line"),
        "rank": found.get("rank"),
        "node": found.get("node"),
        "reason": found.get("reason", ""),
        "rule": found.get("rule"),
        "evidence": [{"note": None, **line} for line in found.get("evidence", [])[:12]],
        "advice": plan.get("summary"),
    }


def _named(job: Job) -> dict[str, Any]:
    return {key: job[key] for key in ("job_id", "name", "user", "gpus")}


def _plan(one: PlanStatus, now: float) -> dict[str, Any]:
    plan = one.plan
    return {
        "id": plan.id,
        "state": one.state,
        "since": ago(one.since.time, now),
        "by": one.by,
        "note": one.note,
        "cluster": plan.cluster,
        "purpose": plan.purpose,
        "summary": plan.reason.summary,
        "job": plan.reason.job,
        "confirmed_by": plan.reason.confirmed_by,
        "evidence": [line.model_dump() for line in plan.reason.evidence[:12]],
        "actions": [_action(action) for action in plan.actions],
        "expires": None if plan.expires is None else format_duration(max(0.0, plan.expires - now)),
    }


def _action(action: Any) -> str:
    if isinstance(action, Drain):
        return f"take node {action.node} out of service"
    if isinstance(action, Requeue):
        return f"put job {action.job} back into the queue"
    said = action.model_dump(exclude_defaults=True)
    said.pop("kind", None)
    words = ", ".join(f"{key} {value}" for key, value in said.items())
    return f"{action.kind.replace('_', ' ')} {words}".strip()


def _nodes(
    failures: Sequence[Job], plans: Sequence[PlanStatus], now: float
) -> list[dict[str, Any]]:
    """Nodes named by failures, the most often named first, and the plans for them."""
    times: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    latest: dict[str, float] = {}
    blamed: Counter[str] = Counter()
    for job in failures:
        found = job["diagnosis"]
        named = found.get("node")
        for node in dict.fromkeys([*([named] if named else []), *(job["nodes"] or [])]):
            times[node] += 1
            blamed[node] += node == named
            kinds.setdefault(node, Counter())[found.get("error_name") or found["error_type"]] += 1
            latest[node] = max(latest.get(node, 0.0), job["diagnosed"])
    planned: dict[str, str] = {}
    for one in reversed(plans):
        for node in one.plan.isolates:
            planned[node] = f"{one.state} {ago(one.since.time, now)}"
            times.setdefault(node, 0)
    order = sorted(times, key=lambda node: (-blamed[node], -times[node], node))
    return [
        {
            "node": node,
            "failures": times[node],
            "blamed": blamed[node],
            "kinds": [f"{kind} ({count})" for kind, count in kinds[node].most_common(3)]
            if node in kinds
            else [],
            "latest": ago(latest.get(node), now),
            "planned": planned.get(node, ""),
        }
        for node in order[:100]
    ]


def _accuracy(checked: Sequence[Checked]) -> dict[str, Any] | None:
    """How run times compare with the estimates; None before any job has ended."""
    if not checked:
        return None
    ratios = [one.duration_s / one.estimate_s for one in checked]
    places = Counter(one.place for one in checked)
    errors = [abs(ratio - 1) for ratio in ratios]
    counts = [sum(low <= ratio < high for ratio in ratios) for low, high in pairwise(BINS)]
    bars = [
        {
            "label": f"over {low:g}" if high == BINS[-1] else f"{low:g} to {high:g}",
            "count": count,
            "part": 100 * count / max(counts),
        }
        for (low, high), count in zip(pairwise(BINS), counts, strict=True)
    ]
    return {
        "jobs": len(checked),
        "median_error": 100 * statistics.median(errors),
        "median_ratio": statistics.median(ratios),
        "within": 100 * places["within"] / len(checked),
        "below": 100 * places["below"] / len(checked),
        "above": 100 * places["above"] / len(checked),
        "bars": bars,
    }
