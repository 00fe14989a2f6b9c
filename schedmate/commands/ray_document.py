"""The parts of `QueueDocument`: nodes and jobs of a queue, as `schedmate ray queue` shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schedmate.schedulers.live.queue.backend import NodeSeen
from schedmate.schedulers.live.queue.controller import Controller
from schedmate.schedulers.live.queue.requests import StoredJob
from schedmate.schedulers.live.queue.store import Store
from schedmate.schedulers.live.queue.why import reasons, starts


def rows(queue: Controller, nodes: Sequence[NodeSeen], ends: Mapping[int, float]) -> dict[str, Any]:
    """All that waits or runs, and where; `ends` are those that logs tell [s since epoch]."""
    why, begins = reasons(queue), starts(queue, ends)
    drains = queue.store.drains()
    free: dict[str, int] = {}
    if queue.board is not None:
        for id_, place in queue.places.items():
            free[id_] = queue.board.view.space.free[place].bit_count()
    return {
        "decided_s": queue.decided_s,
        "counts": queue.store.counts(),
        "nodes": [
            {
                "name": one.name,
                "gpus": one.gpus,
                "free": free.get(one.id, 0),
                "reason": drains.get(one.name, ""),
            }
            for one in nodes
        ],
        "jobs": [
            _live(queue, stored, why.get(stored.id, ""), begins.get(stored.id), ends.get(stored.id))
            for stored in queue.store.jobs()
        ],
    }


def _live(
    queue: Controller, stored: StoredJob, why: str, begins: float | None, ends: float | None
) -> dict[str, Any]:
    job, run = queue.jobs.get(stored.id), queue.runs.get(stored.id)
    forecast = None if job is None else job.forecast
    started = None if run is None else run.started
    if ends is None and started and forecast is not None:
        ends = started + max(0.0, forecast.duration_s - stored.service_s)
    return _row(stored) | {
        "estimate_s": None if forecast is None else forecast.duration_s,
        "why": why,
        "nodes": [] if run is None else [place.name for place in run.places],
        "started": started,
        "profiling": job is not None and job.profiling,
        "partner": job.partner.index if job is not None and job.partner else None,
        "slowdown": None if job is None else job.slowdown,
        "starts": begins,
        "ends": ends,
    }


def ended_rows(store: Store, count: int) -> list[dict[str, Any]]:
    """So many of the last jobs that are over, with where and when they ran last."""
    found = []
    for stored in store.jobs(over=True, limit=count) if count else ():
        runs = store.runs_of(stored.id)
        last = runs[-1] if runs else None
        found.append(
            _row(stored)
            | {
                "nodes": [] if last is None else [place.name for place in last.places],
                "started": None if last is None else last.started,
                "ends": None if last is None else last.ended,
            }
        )
    return found


def _row(stored: StoredJob) -> dict[str, Any]:
    spec = stored.request.spec
    return {
        "job": stored.id,
        "name": spec.name,
        "user": spec.user,
        "command": spec.command,
        "gpus": stored.request.gpus,
        "state": stored.state,
        "submitted": stored.submitted,
        "restarts": stored.restarts,
        "why": stored.why,
    }
