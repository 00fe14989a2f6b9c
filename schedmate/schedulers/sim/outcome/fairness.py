"""Whether some users or virtual clusters wait for others: how evenly jobs are slowed down."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.schedulers.sim.workload import Workload

Floats = NDArray[np.float64]


def fairness(workload: Workload, jct_s: Floats) -> dict[str, dict[str, Any]]:
    """Fairness among users and virtual clusters, if there are several.

    The slowdown of a group is the sum of its jobs' JCTs over the time that they would take alone.
    Jain's index over the groups' slowdowns (Jain et al., 1984) is 1 if all are equal and 1/n if one
    of n has all of it.
    """
    groups = {"user": workload.requests.values("user"), "vc": workload.vcs}
    found = {}
    for kind, names in groups.items():
        known = sorted(set(names)) if names is not None else []
        if names is None or len(known) < 2:
            continue
        number = {name: position for position, name in enumerate(known)}
        which = np.fromiter(map(number.__getitem__, names), np.int64, len(names))
        jct = np.bincount(which, weights=np.asarray(jct_s))
        alone = np.bincount(which, weights=np.asarray(workload.duration_s))
        some = np.flatnonzero(alone > 0)
        if not len(some):
            continue
        slowdown = jct[some] / alone[some]
        worst = some[int(slowdown.argmax())]
        found[kind] = {
            "groups": len(some),
            "jain": float(slowdown.sum() ** 2 / (len(some) * (slowdown**2).sum())),
            "median_slowdown": float(np.median(slowdown)),
            "max_slowdown": float(slowdown.max()),
            "slowest": known[worst],
            "slowest_jobs": int((which == worst).sum()),
        }
    return found
