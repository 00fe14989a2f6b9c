"""From estimates to places in the queue, within the administrator's bounds.

Shorter jobs first (shortest job first by estimated run time), as a value between `lowest` and
`highest` on a logarithmic scale of duration. There are only a few levels, so that one command sets
many jobs and small changes move no job. A waiting job rises, whatever its estimate, until it has
the highest value after `ageing`: from then on only the scheduler's own order counts, so that a
stream of short jobs cannot starve it. Users whose jobs run much longer than estimated gain less and
less by short estimates, but are never placed lower than without an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from schedmate.jobs import Estimate, JobRecord
from schedmate.schedulers.live.actions import Action, Order
from schedmate.schedulers.live.adapter import LiveJob
from schedmate.schedulers.live.bounds import OrderBounds
from schedmate.schedulers.live.executor import Finding, RefusedError

TOO_LONG = 1.5
"""A run that took this many times the 90th percentile of its estimate counts against the user."""

FALL = 0.8
"""What trust is multiplied with then."""

RISE = 0.1
"""Which share of lost trust comes back with every job that ends within its estimate."""


def value_of(
    bounds: OrderBounds, estimate: Estimate | None, *, trust: float, waited_s: float
) -> int:
    """The place of a pending job: one of the levels between `lowest` and `highest`.

    `trust` is from 0 to 1, `waited_s` the time since submission [s]. Without an estimate a job
    begins at 0, where the scheduler alone would have it.
    """
    low, high = bounds.lowest, bounds.highest
    start = 0.0
    if estimate is not None and not estimate.abstained and estimate.duration_s:
        span = math.log(bounds.longest / bounds.shortest)
        length = math.log(max(estimate.duration_s, 1e-9) / bounds.shortest) / span
        start = high - min(1.0, max(0.0, length)) * (high - low)
        if start > 0:
            start *= min(1.0, max(0.0, trust))
    aged = start + (high - start) * min(1.0, max(0.0, waited_s / bounds.ageing))
    step = (high - low) / (bounds.levels - 1)
    level = math.floor((aged - low) / step + 1e-9)
    return max(low, min(high, round(low + level * step)))


def moved_trust(trust: float, estimate: Estimate, run: JobRecord) -> float:
    """A user's trust after a run that had an estimate.

    A run that did not complete only shows that it takes at least as long as it ran.
    """
    p90, took = estimate.duration_p90_s, run.duration_s
    if estimate.abstained or p90 is None or took is None:
        return trust
    if took > TOO_LONG * p90:
        return trust * FALL
    if run.state == "COMPLETED":
        return trust + (1.0 - trust) * RISE
    return trust


def to_set(
    wanted: Mapping[str, int],
    present: Mapping[str, int],
    ours: Mapping[str, tuple[int, int]],
) -> Order | None:
    """The action that sets the wanted values of pending jobs; None if all have theirs.

    `present` are the values of jobs, `ours` the last and previous ones that schedmate set: a job
    with any other value, except 0, was ordered by somebody else and is left alone.
    """
    values = {
        job: value
        for job, value in wanted.items()
        if job in present
        and present[job] != value
        and (present[job] == 0 or present[job] in ours.get(job, ()))
    }
    return Order(values=values, previous={job: present[job] for job in values}) if values else None


def left_to_set(action: Order, present: Mapping[str, int | None]) -> tuple[Finding, dict[str, int]]:
    """What is left of an order to carry out: the finding, and the values still to be set.

    `present` are the values of the jobs that are still pending. A job whose value is neither the
    wanted nor the previous one was ordered by somebody else and is left alone.
    """
    values = action.values
    left = {
        job: value
        for job, value in values.items()
        if job in present and present[job] != value and present[job] == action.previous.get(job)
    }
    foreign = [job for job in present if job not in left and present[job] != values[job]]
    if left:
        return Finding("ready", f"{len(left)} to be set"), left
    if foreign:
        return Finding(
            "changed", f"somebody else changed the order of job {', '.join(foreign[:5])}"
        ), {}
    return Finding("done", f"{len(present)} pending have their value"), {}


def in_order(bounds: OrderBounds, job: LiveJob) -> bool:
    """Whether a job is one of those that are ordered."""
    if job.state != "PENDING" or job.held:
        return False
    return not bounds.queues or bool(set(bounds.queues) & set(job.queues))


def check_band(bounds: OrderBounds, action: Action, *, undo: bool) -> None:
    """Raise `RefusedError` for an order that the bounds do not allow."""
    if not isinstance(action, Order):
        return
    if undo or not any(action.values.values()):  # back to what the scheduler alone would do
        return
    if not bounds.allowed:
        raise RefusedError("bounds", "the bounds allow no change of the order (order: allowed).")
    for job, value in action.values.items():
        if not bounds.lowest <= value <= bounds.highest:
            raise RefusedError("bounds", f"job {job} would get {value}, outside of the band.")
