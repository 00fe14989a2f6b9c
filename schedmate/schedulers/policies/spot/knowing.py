"""What SchedMate's estimates say of an eviction and of a window (ours).

`Advisor`, log and history say how long a job has left to run (`remaining.py`). One that is almost
done is spared even where it is cheap to evict: it would leave by itself, and loses the most by having
to wait again. GPUs that are lent for less time than a job needs to save anything are left alone.
"""

from __future__ import annotations

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.policy import View
from schedmate.schedulers.remaining import remaining_s
from schedmate.schedulers.terms import NEVER

RESTART_S = 62.0
"""What a restart takes (Tiresias, NSDI'19) [s]."""
CHECKPOINT_S = 1800.0
"""Work between two checkpoints where the user did not say: an assumption [s]."""


def evicting_costs(view: View, job: Job) -> float:
    """GPU time that an eviction wastes, times the whole of the job over what is left of it."""
    left_s = remaining_s(job, view.now)
    wasted = job.gpus * job.share * (view.lost_s(job) + RESTART_S)
    if left_s == NEVER:
        return wasted
    return wasted * (1.0 + job.attained_s(view.now) / max(left_s, 1.0))


def window_is_worth(view: View, job: Job, allocation: Allocation) -> bool:
    """Whether a job that borrows these GPUs ends in the window, or keeps at least half of what it
    does there: between two checkpoints half an interval is lost on average."""
    window_s = _lent_until(view, allocation) - view.now
    if remaining_s(job, view.now) <= window_s - RESTART_S:
        return True
    every = job.terms.checkpoint_s if job.terms is not None else None
    saves = job.terms is not None and job.terms.saves
    lost_s = 0.0 if saves else (CHECKPOINT_S if every is None else every) / 2
    return window_s - RESTART_S - lost_s >= window_s / 2


def _lent_until(view: View, allocation: Allocation) -> float:
    """When the first of those who lend these GPUs wants them back, as announced [s]."""
    until = NEVER
    for node, mask in allocation:
        for one in view.on(node):
            if one.status is not None and one.status.lends:
                if any(at == node and theirs & mask for at, theirs in one.allocation):
                    until = min(until, one.status.lends_until)
    return until
