"""Runs by the specialised loops, and their outcomes.

The engine can simulate everything. If a policy only starts jobs in an order that is fixed when they
are submitted (`Policy.static_rank`), and nothing fails, shares, is resized or observed, the loop of
`static_loop.py` gives the same result in a fifth of the time and memory. Anything that is not known
here is a reason for the engine, so that additions to jobs, parameters or policies are safe.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.plain import LONGEST_S
from schedmate.schedulers.estimators import Estimator, Table, TimeLimit, UserMean
from schedmate.schedulers.model import Cluster, Job
from schedmate.schedulers.policy import Policy, ServiceRank, StaticRank
from schedmate.schedulers.sim.engine.record import Outcome, Segments
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.requests import Requests
from schedmate.schedulers.sim.run_times import Means, RunTimes
from schedmate.schedulers.sim.service_loop import Loop
from schedmate.schedulers.sim.service_loop import Ran as RanByService
from schedmate.schedulers.sim.serving import Served
from schedmate.schedulers.sim.static_loop import Queue, Ran, run
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space
from schedmate.schedulers.terms import NEVER

_ASKED = ("vc", "gpu_type", "share", "cpus", "memory_mb")
"""Requests that the space reads, besides GPUs."""
_HARMLESS = {"name", "user", "priority", "time_limit_s", "preemptible", "migratable", *_ASKED}
"""What jobs may differ in."""
_OF_THE_SPACE = ("share", "cpus", "memory_mb", "preemptible")
"""What a job may not say where others make room for it."""
_OF_TRACES = {
    *("name", "jobs", "duration_s", "profiles", "states", "vcs", "configs", "metadata"),
    *("columns", "made_up", "recorded", "notes"),
}
"""What a workload may have."""
_MOST_COUNTED = 1 << 20
"""GPUs of one job, below which jobs are counted by them."""
_COSTS = {
    *("name", "profiling_is_free", "profile_error", "restart_s", "restart_large_s", "sia_oracle"),
    *("report_s", "scaling", "interference", "repair_s", "checkpoint_s", "harmless", "settings"),
    "oracles",
}
"""Parameters that matter only to jobs that stop, share, fail or are profiled."""


def simulate(
    workload: Workload,
    policy: Policy,
    cluster: Cluster,
    estimator: Estimator | None,
    parameters: Parameters,
    progress: Callable[[int], None] | None = None,
) -> Outcome | None:
    """The result of the engine's `Simulation(...).run(progress)`; None if the engine is needed.

    The estimator must not have observed anything yet; it is neither called nor taught here.
    """
    rank = _rank(policy) or _service_rank(policy)
    if rank is None or not (_is_plain(workload) and _costs_nothing(parameters)):
        return None
    if type(estimator) not in (type(None), Table, TimeLimit, UserMean):
        return None
    requests = workload.requests
    if not (requests.only(_HARMLESS) and _are_times(requests, workload)):
        return None
    space = Space(cluster)
    kind, asking = _kinds(workload, requests, cluster)
    if any(space.find(job) is None for job in asking):
        return None
    lanes: dict[Hashable, int] = {}
    lane = [lanes.setdefault(policy.lane(job), len(lanes)) for job in asking]
    submit_s = array("d", requests.submit_s.tobytes())
    run_times = RunTimes(estimator, workload, requests)
    if isinstance(rank, ServiceRank):
        if any(requests.values(name) is not None for name in _OF_THE_SPACE):
            return None
        groups: dict[Hashable, int] = {}
        group = [groups.setdefault((job.vc, job.gpu_type), len(groups)) for job in asking]
        restart_s = [parameters.restart(job.gpus) for job in asking]
        served = Served(submit_s, workload.duration_s, kind, asking, group, restart_s, rank)
        with _no_collection():
            done = Loop(served, space).run(progress)
        return _served(workload, done, run_times)
    queue = Queue(submit_s, workload.duration_s, kind, asking, lane, lambda job: (job,))
    if not rank.predicted or run_times.means is None:
        value = rank.submit * requests.submit_s
        if rank.predicted:
            value = value + rank.predicted * run_times.ranked_by()
        place = _order(requests, value * requests.gpus if rank.by_gpus else value)
        if place is None:
            return None
        queue = queue._replace(key=lambda job: (place[job], job))
    else:
        run_times.means.used = True
        queue = _by_means(queue, rank, requests, run_times.means)
    with _no_collection():
        ran = run(queue, space, progress)
    return _outcome(workload, ran, run_times)


@contextmanager
def _no_collection() -> Iterator[None]:
    """The loop makes no cyclic garbage, and looking for it takes long."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _rank(policy: Policy) -> StaticRank | None:
    """The policy's static rank, if that holds."""
    rank = policy.static_rank()
    if rank is None or not _holds(policy, "static_rank"):
        return None
    return rank if isfinite(rank.submit) and isfinite(rank.predicted) else None


def _service_rank(policy: Policy) -> ServiceRank | None:
    """The policy's rank by attained service, if that holds."""
    rank = policy.service_rank()
    if rank is None or not _holds(policy, "service_rank"):
        return None
    return rank if 0 <= rank.threshold_gpu_s <= LONGEST_S else None


def _holds(policy: Policy, says: str) -> bool:
    """Whether no class derived from the one with this method overrides more of a policy."""
    kinds = type(policy).__mro__
    said = next(one for one in kinds if says in vars(one))
    own = {name for one in kinds[: kinds.index(said)] for name in vars(one)}
    known = {name for name in vars(Policy) if not name.startswith("_")} - {"name"}
    if own & known or hasattr(policy, "equip"):
        return False
    return policy.interval_s is None and policy.steady and not policy.rounds


def _is_plain(workload: Workload) -> bool:
    """Whether the jobs have no property that the loop does not support."""
    others = (one.name for one in fields(workload) if one.name not in _OF_TRACES)
    return len(workload) > 0 and not any(getattr(workload, name) for name in others)


def _costs_nothing(parameters: Parameters) -> bool:
    usual = Parameters()
    others = (one.name for one in fields(parameters) if one.name not in _COSTS)
    return all(getattr(parameters, name) == getattr(usual, name) for name in others)


def _are_times(requests: Requests, workload: Workload) -> bool:
    durations = np.array(workload.duration_s)
    fine = (durations >= 0) & (durations <= LONGEST_S) & (np.abs(requests.submit_s) <= LONGEST_S)
    return bool(fine.all() and (np.diff(requests.submit_s) >= 0).all())


def _kinds(
    workload: Workload, requests: Requests, cluster: Cluster
) -> tuple[Sequence[int], list[Job]]:
    """The request of each job as a number, and one job for each number."""
    columns: dict[str, Sequence[Any]] = {}
    for name in _ASKED:
        if name != "vc" and (values := requests.values(name)) is not None:
            columns[name] = values
    if workload.vcs and any(node.vc for node in cluster.nodes):
        columns["vc"] = workload.vcs
    if not columns and requests.gpus.max() < _MOST_COUNTED:
        sizes = np.flatnonzero(np.bincount(requests.gpus))
        asking = [Job("", code, 0.0, gpus) for code, gpus in enumerate(sizes.tolist())]
        kinds = np.zeros(sizes[-1] + 1, np.int64)
        kinds[sizes] = np.arange(len(sizes))
        each = kinds[requests.gpus]
        if len(sizes) <= 1 << 8:
            return each.astype(np.uint8).tobytes(), asking
        return array("q", each.tobytes()), asking
    asked = list(zip(requests.gpus.tolist(), *columns.values(), strict=True))
    number = {one: code for code, one in enumerate(dict.fromkeys(asked))}
    asking = [
        Job("", code, 0.0, gpus, **dict(zip(columns, more, strict=True)))
        for (gpus, *more), code in number.items()
    ]
    codes = map(number.__getitem__, asked)
    return bytes(codes) if len(asking) <= 1 << 8 else array("q", codes), asking


def _order(requests: Requests, value: NDArray[np.float64]) -> array[int] | None:
    """The place of each job among all by priority and this value; None if one is not a number."""
    if np.isnan(value).any():
        return None
    priority = np.array(requests.column("priority"), np.float64)
    order = np.lexsort((value, -priority))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return array("q", place.tobytes())


def _by_means(queue: Queue, rank: StaticRank, requests: Requests, means: Means) -> Queue:
    """A queue whose order depends on the jobs that have ended."""
    priority = requests.column("priority")
    submit_s, gpus = queue.submit_s, requests.gpus.tolist()
    estimates, counted = means.estimates, means.otherwise

    def key(job: int) -> tuple[Any, ...]:
        predicted = estimates[job]
        if predicted == NEVER:
            predicted = counted[job]
        value = rank.submit * submit_s[job] + rank.predicted * predicted
        return (-priority[job], value * gpus[job] if rank.by_gpus else value, job)

    return queue._replace(key=key, came=means.submitted, went=means.learn)


def _outcome(workload: Workload, ran: Ran, run_times: RunTimes) -> Outcome:
    count = len(workload)
    which = np.frombuffer(ran.order, np.int64)
    started, ended = np.frombuffer(ran.started), np.frombuffer(ran.ended)
    segments = Segments()
    segments.jobs, segments.allocations = ran.order, ran.places
    segments.starts, segments.ends = (array("d", one[which].tobytes()) for one in (started, ended))
    segments.works = array("d", np.array(workload.duration_s)[which].tobytes())
    segments.kinds = bytearray(count)
    return Outcome(
        ran.started,
        ran.ended,
        array("d", (ended - started).tobytes()),
        segments,
        2 * count,
        {"Start": count},
        {},
        workload.duration_s,
        run_times.bad(ran),
        assumed_s=run_times.estimates(ran),
    )


def _served(workload: Workload, ran: RanByService, run_times: RunTimes) -> Outcome:
    as_assumed = Ran(ran.started, ran.ended, ran.order, [])
    nothing = array("q", bytes(8 * len(workload)))
    decisions = {"Start": len(ran.segments), "Preempt": sum(ran.stops)}
    return Outcome(
        ran.first,
        ran.ended,
        ran.held_s,
        ran.segments,
        ran.events,
        {name: number for name, number in decisions.items() if number},
        {},
        workload.duration_s,
        run_times.bad(as_assumed),
        assumed_s=run_times.estimates(as_assumed),
        counts={"preemptions": ran.stops, "evictions": nothing, "failures": nothing},
    )
