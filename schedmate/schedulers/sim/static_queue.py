"""Runs by the specialised loops, and their outcomes.

The engine can simulate everything. If a policy only starts jobs in an order that is fixed when they
are submitted (`Policy.static_rank`), and nothing fails, shares, is resized or observed, the loop
here gives the same result in a fifth of the time and memory; `service_loop.py` does so for two
preemptive queues. Anything that is not known here is a reason for the engine, so that additions to
jobs, parameters or policies are safe.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, isfinite, nan
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from schedmate.base.data import LONGEST_S
from schedmate.schedulers.estimators import ABSURD_S, Estimator, Table, TimeLimit, UserMean
from schedmate.schedulers.model import NEVER, Allocation, Cluster, Job
from schedmate.schedulers.policy import Policy, ServiceRank, StaticRank
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.record import Outcome, Segments
from schedmate.schedulers.sim.service_loop import ServedJobs, ServiceLoop
from schedmate.schedulers.sim.service_loop import ServiceRun as RanByService
from schedmate.schedulers.sim.workload import Requests, Workload
from schedmate.schedulers.space import Space

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


def simulate_queue(
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
        served = ServedJobs(submit_s, workload.duration_s, kind, asking, group, restart_s, rank)
        with _no_collection():
            done = ServiceLoop(served, space).run(progress)
        return _served(workload, done, run_times)
    queue = StaticQueue(submit_s, workload.duration_s, kind, asking, lane, lambda job: (job,))
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
        ran = run_static_queue(queue, space, progress)
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


def _holds(policy: Policy, formula: str) -> bool:
    """Whether no class derived from the one with this method overrides more of a policy."""
    kinds = type(policy).__mro__
    defining = next(one for one in kinds if formula in vars(one))
    own = {name for one in kinds[: kinds.index(defining)] for name in vars(one)}
    hooks = {name for name in vars(Policy) if not name.startswith("_")} - {"name"}
    if own & hooks or hasattr(policy, "equip"):
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


def _by_means(
    queue: StaticQueue, rank: StaticRank, requests: Requests, means: UserMeans
) -> StaticQueue:
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


def _outcome(workload: Workload, ran: StaticRun, run_times: RunTimes) -> Outcome:
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
    as_assumed = StaticRun(ran.started, ran.ended, ran.order, [])
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


# The event loop of queues whose order is fixed when a job is submitted: the same events and numbers
# as the engine's, on arrays without job objects.


_TOLD = 1000
_MOST = 1 << 62


class StaticQueue(NamedTuple):
    """Jobs by position in order of submission; those with the same request are of one kind."""

    submit_s: Sequence[float]
    run_s: Sequence[float]
    kind: Sequence[int]
    asking: Sequence[Job]
    """A job of each kind, for the space."""
    lane: Sequence[int]
    """The lane of each kind: jobs behind one that does not fit wait too."""
    key: Callable[[int], tuple[Any, ...]]
    """The place in the queue of a job that has just come: the least is first, the job is last."""
    came: Callable[[int], None] | None = None
    """Called for each job that is submitted, before its rank is computed."""
    went: Callable[[int], None] | None = None
    """Called for each job that ends."""


class StaticRun(NamedTuple):
    """The times of a run."""

    started: array[float]
    """When each job started [s]."""
    ended: array[float]
    """When each ended [s]."""
    order: array[int]
    """The jobs, by position, in the order in which they ended."""
    places: list[Allocation]
    """The GPUs of each job, in the order of `order`."""


def run_static_queue(
    queue: StaticQueue, space: Space, progress: Callable[[int], None] | None = None
) -> StaticRun:
    """Run all jobs; each must fit into the empty space.

    `progress` is called from time to time with the number of submitted jobs.
    """
    submit_s, run_s, kind, asking, lane_of, key_of, came, went = queue
    count, free, place, give = len(submit_s), space.free, space.place, space.give
    sizes = {node.gpus for node in space.cluster.nodes}
    least = [
        0 if job.share < 1 else min(_least(job.gpus, size) for size in sizes) for job in asking
    ]
    lanes: dict[int, list[tuple[Any, ...]]] = {}
    started, ended = array("d", bytes(8 * count)), array("d", bytes(8 * count))
    where: list[Allocation] = [()] * count
    allocation: Allocation | None
    order, places = array("q"), []
    events: list[tuple[float, int]] = []
    position, upcoming, tell = 0, submit_s[0], _TOLD
    lowest = _MOST  # of `least`, among waiting jobs
    while events or position < count:
        room, new = -1, []
        if events and events[0][0] <= upcoming:
            now = events[0][0]
            while events and events[0][0] == now:
                job = heappop(events)[1]
                ended[job] = now
                allocation, where[job] = where[job], ()
                order.append(job)
                places.append(allocation)
                give(asking[kind[job]], allocation)
                if went is not None:
                    went(job)
                if lanes:
                    for node, _ in allocation:
                        left = free[node].bit_count()
                        if left > room:
                            room = left
        else:
            now = upcoming
        while upcoming == now:
            job, position = position, position + 1
            upcoming = submit_s[position] if position < count else NEVER
            asks = kind[job]
            if came is not None:
                came(job)
            if not (lanes or upcoming == now) and (allocation := place(asking[asks])):
                # No job waits: it starts at once.
                started[job], where[job] = now, allocation
                heappush(events, (now + run_s[job], job))
                break
            lane, key = lane_of[asks], key_of(job)
            waiting = lanes.setdefault(lane, [])
            heappush(waiting, key)
            if waiting[0] is key:
                new.append(lane)
        if progress is not None and position >= tell:
            tell = position + _TOLD
            progress(position)
        if room < lowest and not new:
            continue
        # Jobs refused before fit only where GPUs were released.
        heads = [
            (waiting[0], lane)
            for lane, waiting in lanes.items()
            if least[kind[waiting[0][-1]]] <= room or lane in new
        ]
        for job, allocation in _started(heads, lanes, queue, place):
            started[job], where[job] = now, allocation
            heappush(events, (now + run_s[job], job))
        lowest = min([least[kind[waiting[0][-1]]] for waiting in lanes.values()] or [_MOST])
    return StaticRun(started, ended, order, places)


def _started(
    heads: list[tuple[tuple[Any, ...], int]],
    lanes: dict[int, list[tuple[Any, ...]]],
    queue: StaticQueue,
    place: Callable[[Job], Allocation | None],
) -> list[tuple[int, Allocation]]:
    """Take the jobs that fit out of these lanes, given with their first jobs, by rank."""
    kind, asking, started = queue.kind, queue.asking, []
    heapify(heads)
    while heads:
        key, lane = heads[0]
        job = key[-1]
        allocation = place(asking[kind[job]])
        if not allocation:
            heappop(heads)
            continue
        started.append((job, allocation))
        waiting = lanes[lane]
        heappop(waiting)
        if waiting:
            heapreplace(heads, (waiting[0], lane))
        else:
            del lanes[lane]
            heappop(heads)
    return started


def _least(gpus: int, size: int) -> int:
    """Least number of free GPUs on one node of a pool with which that node helps to place a job.

    A job larger than a node takes whole ones and a part of a further one (`Space.find`).
    """
    return gpus if gpus <= size else gpus % size or size


# Run times that a policy assumes, for all jobs at once or as they are learned: the same numbers as
# the estimators of `schedulers/estimators.py` give job by job.


Floats = NDArray[np.float64]


class RunTimes:
    """The estimate of each job at its submission."""

    def __init__(self, estimator: Estimator | None, workload: Workload, requests: Requests) -> None:
        self._requests = requests
        self._bad = 0
        self.means: UserMeans | None = None
        """The object that learns from jobs that end; None: all run times are known in advance."""
        predicted: Sequence[float | None] = ()
        if isinstance(estimator, UserMean):
            self.means = UserMeans(workload, requests)
        elif isinstance(estimator, Table):
            predicted = estimator.durations
        elif isinstance(estimator, TimeLimit):
            predicted = requests.column("time_limit_s")
        self._known = np.full(len(requests), nan)
        if len(predicted):
            is_predicted = np.array([one is not None for one in predicted])
            self._known = np.array(predicted, np.float64)
            least = 0.0 if estimator is not None and estimator.oracle else np.nextafter(0.0, 1.0)
            most = np.inf if estimator is not None and estimator.oracle else ABSURD_S
            useless = ~((self._known >= least) & (self._known <= most))
            self._known[useless] = nan
            self._bad = int((is_predicted & useless).sum())

    def ranked_by(self) -> Floats:
        """The duration that a rank uses for each job, if known in advance [s]."""
        limits = self._requests.values("time_limit_s")
        other = np.inf if limits is None else np.array([np.inf if x is None else x for x in limits])
        return np.where(np.isnan(self._known), other, self._known)

    def estimates(self, ran: StaticRun) -> Sequence[float]:
        """The estimate of each job in this run; infinity without one [s]."""
        if self.means is None:
            return array("d", np.where(np.isnan(self._known), inf, self._known).tobytes())
        return self.means.estimates if self.means.used else LaterEstimates(self.means, ran)

    def bad(self, ran: StaticRun) -> int:
        """The number of unusable estimates."""
        if self.means is None:
            return self._bad
        if not self.means.used and not self.means.can_be_bad():
            return 0
        if not self.means.used:
            self.means.replay(ran)
        return self.means.bad


class UserMeans:
    """`UserMean`, by the numbers of users and sizes."""

    def __init__(self, workload: Workload, requests: Requests) -> None:
        self._submit_s, self._run_s = requests.submit_s, workload.duration_s
        gpus = requests.gpus.tolist()
        users = requests.values("user")
        # Of all jobs, of those of a size, and of those of a user of a size.
        keys: dict[tuple[str, int], int] = {("", 0): 0}
        self._size = [keys.setdefault(("", one), len(keys)) for one in gpus]
        self._own = self._size
        if users is not None:
            pairs = zip(users, gpus, strict=True)
            self._own = [keys.setdefault(pair, len(keys)) for pair in pairs]
        self._sums, self._counts = [0.0] * len(keys), [0] * len(keys)
        limits = requests.column("time_limit_s")
        self.otherwise = [np.inf if one is None else one for one in limits]
        """Run time that a rank uses for a job without an estimate [s]."""
        self.estimates = array("d", [inf]) * len(gpus)
        """Estimate of each job; infinity: none [s]."""
        self.bad = 0
        self.used = False

    def submitted(self, job: int) -> None:
        """Estimate a submitted job by the mean of the user's ended jobs of its size, or of more."""
        for key in (self._own[job], self._size[job], 0):
            if self._counts[key]:
                mean = self._sums[key] / self._counts[key]
                if 0 < mean <= ABSURD_S:
                    self.estimates[job] = mean
                else:
                    self.bad += 1
                return

    def learn(self, job: int) -> None:
        """Learn from a job that has ended."""
        run_s, own, size = self._run_s[job], self._own[job], self._size[job]
        for key in (0, size) if own == size else (0, size, own):
            self._sums[key] += run_s
            self._counts[key] += 1

    def can_be_bad(self) -> bool:
        """Whether a mean of these run times could be no time that a job can take."""
        times = np.array(self._run_s)
        return not (times.min() > 0 and times.max() < ABSURD_S / 2)

    def replay(self, ran: StaticRun) -> None:
        """Fill in the estimates of jobs for which the run needed none."""
        self.used = True
        started, ended, order = ran.started, ran.ended, ran.order
        gone = 0
        for job, now in enumerate(self._submit_s.tolist()):
            while gone < len(order):
                first = order[gone]
                # One that took no time started after all that came at its instant.
                if ended[first] > now or started[first] == now:
                    break
                self.learn(first)
                gone += 1
            self.submitted(job)


class LaterEstimates(Sequence[float]):
    """The estimate of each job, computed on first use."""

    def __init__(self, means: UserMeans, ran: StaticRun) -> None:
        self._means = means
        self._ran = ran

    @cached_property
    def _estimates(self) -> Sequence[float]:
        if not self._means.used:
            self._means.replay(self._ran)
        return self._means.estimates

    def __len__(self) -> int:
        return len(self._ran.ended)

    def __iter__(self) -> Iterator[float]:
        return iter(self._estimates)

    @overload
    def __getitem__(self, at: int) -> float: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[float]: ...
    def __getitem__(self, at: int | slice) -> float | Sequence[float]:
        return self._estimates[at]
