"""A run over time: GPUs held, and jobs waiting."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.sim.tables import Table

Floats = NDArray[np.float64]


class Steps(NamedTuple):
    """A function of time that is constant between changes: `value[i]` holds from `time[i]` on."""

    time: Floats
    """Ascending [s]."""
    value: Floats

    def mean(self, edges: Floats) -> Floats:
        """The exact mean between each two of `edges` (ascending, distinct)."""
        whole = np.concatenate(([0.0], np.cumsum(np.diff(self.time) * self.value[:-1])))
        upto = np.interp(edges, self.time, whole)
        # after the last change the value stays; before the first it is zero
        upto += np.maximum(0.0, edges - self.time[-1]) * self.value[-1]
        return np.diff(upto) / np.diff(edges)


def gpus_held(segments: Table) -> Steps:
    """GPUs held by some job; those that two share count once, a part of a GPU as that part."""
    start, end, gpus = segments["start_s"], segments["end_s"], segments["gpus"]
    own = start.copy()
    joined = segments["kind"] == "packed"
    if joined.any():
        # a job that joined holds the very GPUs of its partner, and may outlive it
        place = [segments[name] for name in ("node", "first_gpu", "gpus")]
        shared = set(zip(*(one[joined].tolist() for one in place), strict=True))
        taken: dict[Any, float] = {}
        order = np.argsort(start, kind="stable")
        keys = zip(*(one[order].tolist() for one in place), strict=True)
        for row, key in zip(order.tolist(), keys, strict=True):
            if key in shared and key[2] >= 1:
                until = taken.get(key, own[row])
                own[row] = min(max(own[row], until), end[row])
                taken[key] = max(until, end[row])
    return _running_total(own, end, gpus)


def jobs_waiting(jobs: Table, segments: Table) -> Steps:
    """Jobs that are submitted, not done, and hold no GPU."""
    # over several nodes or runs of GPUs a job still runs once
    held = np.unique(
        np.stack((segments["job"].astype(float), segments["start_s"], segments["end_s"])), axis=1
    )
    ones, others = np.ones(len(jobs["submit_s"])), np.ones(held.shape[1])
    return _steps(
        np.concatenate((jobs["submit_s"], jobs["end_s"], held[1], held[2])),
        np.concatenate((ones, -ones, -others, others)),
    )


def work_kept(segments: Table) -> tuple[Steps, Steps]:
    """GPUs in use over time, by work that was kept and time that was not; of a pair, both jobs
    count.

    The use of a segment is spread evenly over it.
    """
    start, end = segments["start_s"], segments["end_s"]
    length = end - start
    rate = np.divide(segments["useful_s"], length, out=np.ones_like(length), where=length > 0)
    kept = segments["gpus"] * rate
    return _running_total(start, end, kept), _running_total(start, end, segments["gpus"] - kept)


def _running_total(start: Floats, end: Floats, value: Floats) -> Steps:
    return _steps(np.concatenate((start, end)), np.concatenate((value, -value)))


def _steps(time: Floats, change: Floats) -> Steps:
    distinct, where = np.unique(time, return_inverse=True)
    return Steps(distinct, np.cumsum(np.bincount(where, weights=change, minlength=len(distinct))))
