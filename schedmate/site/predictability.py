"""How predictable the jobs of a site are: the mixture of experts replayed over its accounting.

Jobs come in order of submission; a run is learned at its end, so no estimate knows more than a
scheduler would have. Scored are jobs of the second half that completed: nobody knows how long the
others would have run. Beside the estimates stand the requested time, and the last completed run of
a like job (the finest group that the list allows); where either has nothing to say the running
median stands in. Memory holds what runs or waits at one moment, and one tally a group.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from schedmate.retrieval.experts import P10, P90, Submission
from schedmate.retrieval.mixture import Forecast, Mixture
from schedmate.site.document import Curve, Predictability, Predicted
from schedmate.site.table import JobTable, Row

REPLAYED = 150_000
"""Jobs that are replayed at most, the latest: about a minute of CPU time."""
LEAST = 50
"""With fewer scored jobs nothing is said, and no group is listed with fewer."""
LISTED = 40
"""Groups of one kind that are listed, those of most jobs."""
WITHIN = math.log(2.0)
_BINS, _STEP = 60, math.log(2.0) / 6
"""Of the distances [log] between prediction and run time, for the curve."""
_METHODS = ("estimate", "requested", "last")
_SIZES = ((1.0, "1"), (8.0, "2 to 8"), (64.0, "9 to 64"), (math.inf, "more than 64"))
_PAST = ((0, "none"), (9, "1 to 9"), (99, "10 to 99"), (999, "100 to 999"), (math.inf, "1,000 on"))
BY_PARTITION, BY_SIZE, BY_GROUP, BY_PAST = "partition", "size", "user group", "past jobs of user"


class _Tally:
    """Counts of one group."""

    __slots__ = ("asked", "covered", "jobs", "left", "near", "with_request")

    def __init__(self) -> None:
        self.jobs = self.covered = self.with_request = 0
        self.near = [0, 0, 0]
        self.asked = self.left = 0.0

    def unused(self, row: Row) -> None:
        if row.lim and row.run is not None:
            self.asked += row.lim * row.size
            self.left += max(0.0, row.lim - row.run) * row.size

    def score(self, near: list[bool], covered: bool, requests: bool) -> None:
        self.jobs += 1
        self.covered += covered
        self.with_request += requests
        for place, one in enumerate(near):
            self.near[place] += one

    def result(self, name: str) -> Predicted:
        estimate, requested, last = (one / self.jobs for one in self.near)
        return Predicted(
            name=name,
            jobs=self.jobs,
            estimate=estimate,
            requested=requested,
            last=last,
            covered=self.covered / self.jobs,
            with_request=self.with_request,
            unused=self.left / self.asked if self.asked else None,
        )


def submission_of(row: Row) -> Submission:
    """A job as the experts take it."""
    return Submission(
        row.submit or 0.0,
        user=row.user,
        name=row.name,
        size=row.cpus + 1000 * row.gpus or row.nodes,
        request_s=row.lim,
        kind=row.part,
    )


def replayable(table: JobTable) -> int:
    """How many jobs of the table can be replayed: they ran, and their submission is known."""
    count: int = table.one(f"SELECT count(*) FROM jobs WHERE {_RAN}")
    return count


_RAN = "run > 0 AND submit IS NOT NULL AND state NOT IN ('PENDING', 'RUNNING')"


def replay(
    table: JobTable, most: int = REPLAYED, on_progress: Callable[[int], None] = lambda _: None
) -> Predictability:
    """Replay the latest `most` jobs, and keep their estimates in the table."""
    count = replayable(table)
    begin = max(0, count - most)
    total, tallies = _Tally(), dict[str, dict[str, _Tally]]()
    apart = np.zeros((3, _BINS), np.int64)
    past: dict[str | None, int] = {}
    estimates: list[tuple[int, float]] = []
    rows = table.rows(f"{_RAN} AND 1", order=f"submit, number LIMIT -1 OFFSET {begin}")
    replayed = 0
    for row, forecast, median in _online(rows):
        replayed += 1
        known = past.get(row.user, 0)
        past[row.user] = known + 1
        point = median if forecast is None else forecast.point
        estimates.append((row.number, math.exp(point)))
        if len(estimates) >= 1000:
            table.add_estimates(estimates)
            estimates.clear()
            on_progress(replayed)
        groups = _groups(row, known)
        of_groups = [tallies.setdefault(kind, {}).setdefault(name, _Tally())
                     for kind, name in groups]  # fmt: skip
        for tally in (total, *of_groups):
            tally.unused(row)
        if replayed * 2 <= count - begin or row.state != "COMPLETED" or forecast is None:
            continue
        log_s = math.log(row.run or 1.0)
        last = forecast.opinions.points.get("last")
        said = (
            point,
            math.log(row.lim) if row.lim else median,
            median if last is None else last[0],
        )
        off = [abs(one - log_s) for one in said]
        for place, one in enumerate(off):
            apart[place, min(_BINS - 1, int(one / _STEP))] += 1
        low, high = forecast.quantiles[P10], forecast.quantiles[P90]
        near = [one <= WITHIN + 1e-6 for one in off]
        covered = bool(low - 1e-6 <= log_s <= high + 1e-6)
        for tally in (total, *of_groups):
            tally.score(near, covered, row.lim is not None)
    table.add_estimates(estimates)
    enough = total.jobs >= LEAST
    return Predictability(
        replayed=replayed,
        scored=total.jobs,
        total=total.result("all") if enough else None,
        by={
            kind: _listed(kind, some)
            for kind, some in sorted(tallies.items(), key=lambda one: _ORDER.index(one[0]))
            if enough and len(some) > 1
        },
        curve=_curve(apart) if enough else None,
    )


_ORDER = (BY_PARTITION, BY_SIZE, BY_GROUP, BY_PAST)


def _online(rows: Iterable[Row]) -> Iterator[tuple[Row, Forecast | None, float]]:
    """Each job with its forecast and the running median [log s], by what had ended before."""
    mixture = Mixture()
    running: list[tuple[float, int, Submission, float, bool]] = []
    for row in rows:
        asked, log_s = submission_of(row), math.log(max(row.run or 1.0, 1.0))
        while running and running[0][0] <= asked.submitted:
            ended, _, other, run, cut = heapq.heappop(running)
            mixture.learn(other, ended, run, cut)
        median = mixture.experts.typical_log_s()
        yield row, mixture.predict(asked), math.log(3600.0) if median is None else median
        end = row.end if row.end is not None else asked.submitted + (row.run or 0.0)
        cut = row.state != "COMPLETED"
        heapq.heappush(running, (end, row.number, asked, log_s, cut))


def _groups(row: Row, known: int) -> Iterator[tuple[str, str]]:
    if row.part is not None:
        yield BY_PARTITION, row.part
    yield BY_SIZE, size_class(row)
    if row.grp is not None:
        yield BY_GROUP, row.grp
    if row.user is not None:
        yield BY_PAST, next(name for most, name in _PAST if known <= most)


def size_class(row: Row) -> str:
    """`2 to 8 GPUs`, `1 CPU`."""
    unit = "GPU" if row.gpus else "CPU" if row.cpus else "node"
    size = row.gpus or row.cpus or row.nodes or 1.0
    words = next(name for most, name in _SIZES if size <= most)
    return f"{words} {unit}{'s' * (words != '1')}"


def _listed(kind: str, tallies: dict[str, _Tally]) -> list[Predicted]:
    some = [tally.result(name) for name, tally in tallies.items() if tally.jobs >= LEAST]
    if kind == BY_PAST:
        names = [name for _, name in _PAST]
        return sorted(some, key=lambda one: names.index(one.name))
    return sorted(some, key=lambda one: (-one.jobs, one.name))[:LISTED]


def _curve(apart: np.ndarray) -> Curve:
    shares = np.cumsum(apart, axis=1) / apart.sum(axis=1, keepdims=True)
    factors = [round(math.exp(_STEP * (n + 1)), 4) for n in range(_BINS)]
    kept = [n for n in range(_BINS) if factors[n] <= 1000.0]
    return Curve(
        factors=[factors[n] for n in kept],
        **{
            name: [round(float(shares[at, n]), 4) for n in kept] for at, name in enumerate(_METHODS)
        },
    )
