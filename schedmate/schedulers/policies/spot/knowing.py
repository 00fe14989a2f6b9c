"""Costs of evictions and values of windows by SchedMate's estimates (ours).

Advisor, log and history estimate the remaining time of a job (`remaining.py`). A job that is almost
done is spared even if it is cheap to evict: it will leave by itself, and waiting again delays it
most in proportion. GPUs that are lent for less time than a job needs to save any work are not used.
"""

from __future__ import annotations

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.remaining import remaining_s
from schedmate.schedulers.terms import NEVER
from schedmate.schedulers.view import View

RESTART_S = 62.0
"""What a restart takes (Tiresias, NSDI'19) [s]."""
UNKNOWN_S = 4 * 3600.0
"""Assumed remaining time of an unknown job [s]."""
CHECKPOINT_S = 1800.0
"""Work between two checkpoints where the user did not say: an assumption [s]."""


def evicting_costs(view: View, job: Job) -> float:
    """Cost of an eviction as a part of the job's remaining time: lost work, and the restart.

    Without an estimate, only lost work counts.
    """
    left_s = remaining_s(job, view.now)
    wasted_s = view.lost_s(job) + RESTART_S
    return wasted_s / (UNKNOWN_S if left_s == NEVER else max(left_s, 60.0))


def window_is_worth(view: View, job: Job, allocation: Allocation) -> bool:
    """Whether a job that borrows these GPUs ends in the window, or keeps at least half of its work
    there: between two checkpoints half an interval is lost on average."""
    window_s = _lent_until(view, allocation) - view.now
    if remaining_s(job, view.now) <= window_s - RESTART_S:
        return True
    every = job.terms.checkpoint_s if job.terms is not None else None
    saves = job.terms is not None and job.terms.saves
    lost_s = 0.0 if saves else (CHECKPOINT_S if every is None else every) / 2
    return window_s - RESTART_S - lost_s >= window_s / 2


def _lent_until(view: View, allocation: Allocation) -> float:
    """The announced time at which the first lender of these GPUs reclaims them [s]."""
    until = NEVER
    for node, mask in allocation:
        for one in view.on(node):
            if one.status is not None and one.status.lends:
                if any(at == node and theirs & mask for at, theirs in one.allocation):
                    until = min(until, one.status.lends_until)
    return until
