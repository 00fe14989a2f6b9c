"""What a site's queue would have been: a model of Slurm's, its fidelity, and estimates in it.

The model is the simulator's policy `slurm` (multifactor priority, EASY or conservative backfill)
on as many units as the list shows busy at once, as one pool or by partition. Windows of the
list are simulated from what ran and waited at their begin, with the recorded run times. Half of
the windows choose the settings of the model (`MODELS`), the others tell how faithful it is, and
only there, and only if it is faithful enough, ways to use estimates are compared.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.base.terminal import counted
from schedmate.cluster.bounds import OrderBounds, order_value
from schedmate.jobs import Estimate
from schedmate.schedulers.estimators import Table
from schedmate.schedulers.model import Allocation, Cluster, Job, Node
from schedmate.schedulers.policies.slurm import Slurm
from schedmate.schedulers.policy import View
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.workload import Workload
from schedmate.site.document import Fidelity, Loss, Queue, Scenario
from schedmate.site.table import JobTable, Row

Floats = NDArray[np.float64]

WINDOWS = 6
"""Half of them choose the model's settings, the others test it."""
SUBMITTED = 500
"""Jobs submitted in a window."""
LONGEST_WINDOW = 4
"""A window with more than this many times `SUBMITTED` jobs running or waiting is left out."""
LEAST_JOBS = 1_000
"""With fewer jobs whose wait is known, nothing is modelled."""
LEAST_CORRELATION, MOST_RATIO = 0.5, 2.0
"""The model is faithful if the rank correlation of waits is at least this, and their means differ
by at most this factor."""
DEPTH = 100
"""Waiting jobs that one decision looks at (bf_max_job_test)."""
BUSY_LEVELS, BUSY_SHARE = 2_000, 0.99
"""The machine is as large as what runs at once for all but the last hundredth of the time: a few
moments of most lists show more than there was, as ends are recorded late."""
NEAR_FACTOR, NEAR_S = 2.0, 600.0
STARVED_S = 86_400.0
MOST_UNITS = 4_096
"""Finest division of the machine; a larger one is modelled in larger units."""
LISTED, LEAST_OF_GROUP = 40, 20
SAMPLE = 800
"""Pairs of waits in the document, for the plot."""

MODELS: dict[str, dict[str, Any]] = {
    "first come, EASY backfill": {},
    "first come, no job passes another": {"strict": True},
    "fair share, EASY backfill": {"fair_share": 2000.0},
    "large jobs first, EASY backfill": {"size": 2000.0},
    "small jobs first, EASY backfill": {"size": 2000.0, "small": True},
    "first come, shortest request backfills first": {"shortest": True},
}
"""Settings of the policy `slurm` that are tried."""
UNITS = {"gpus": "GPU", "cpus": "CPU", "nodes": "node"}
"""What one of each resource is called, by its column."""
QOS_WEIGHT = 10_000.0
"""Of the factor of the QOS, beside 1000 for a week of age: it goes first, as on most sites."""
LEAST_OF_QOS, LEAST_AT_LIMIT = 20, 3
"""Jobs of a QOS in the windows that choose the model, and users who reached the same most: fewer
show no rule."""
TODAY = "today, as modelled"
ORDERED = "estimates order within the bounds"
BACKFILL = "backfill by estimates"
BOTH = "both"
PERFECT = "both, with perfect knowledge"


class _Rules(NamedTuple):
    """What accounting shows of a site's rules; jobs carry the rank of their QOS as priority."""

    ranks: Mapping[str, int] = MappingProxyType({})
    """By QOS: the shorter its waits, the higher."""
    most: Mapping[int, float] = MappingProxyType({})
    """By rank of the QOS: units that a user may have at once."""


class Advised(Slurm):
    """Slurm's priority, with the place in the queue that an agent adds within `OrderBounds`."""

    def __init__(
        self, bounds: OrderBounds | None = None, rules: _Rules | None = None, **settings: Any
    ) -> None:
        self.rules = rules or _Rules()
        weight = QOS_WEIGHT if self.rules.ranks else 0.0
        top = max(self.rules.ranks.values(), default=1) or 1
        super().__init__(qos=weight, top_qos=top, limits=False, depth=DEPTH, **settings)
        self._bounds = bounds

    def eligible(self, view: View) -> list[Job]:
        """Without jobs of users who would have more at once than the limit of the QOS."""
        if not self.rules.most:
            return super().eligible(view)
        used: dict[tuple[str, int], int] = defaultdict(int)
        for job in view.running:
            used[job.user, job.priority] += job.gpus
        found = []
        for job in view.pending:
            key = (job.user, job.priority)
            if used[key] + job.gpus <= self.rules.most.get(job.priority, math.inf):
                used[key] += job.gpus
                found.append(job)
        return found

    def priorities(self, view: View, jobs: Sequence[Job]) -> list[float]:
        priorities = super().priorities(view, jobs)
        if self._bounds is None:
            return priorities
        for place, job in enumerate(jobs):
            seconds = None if job.forecast is None else job.forecast.duration_s
            estimate = Estimate(abstained=seconds is None, duration_s=seconds)
            waited = view.now - job.submit_time
            priorities[place] += order_value(self._bounds, estimate, trust=1.0, waited_s=waited)
        return priorities


class _Machine(NamedTuple):
    """The pools that jobs run in, and how many resources are one of their units."""

    pools: dict[str, int]
    """By partition, or one for all under ``""``."""
    unit: float
    resource: str
    """The column of `Row` that says how many a job takes."""

    def cluster(self) -> Cluster:
        return Cluster(
            tuple(
                Node(f"pool{n}", size, vc=name) for n, (name, size) in enumerate(self.pools.items())
            )
        )

    def size(self, row: Row) -> int:
        taken: float = getattr(row, self.resource)
        return max(1, math.ceil(taken / self.unit - 1e-9))

    def pool(self, row: Row) -> str:
        return (row.part or "-") if "" not in self.pools else ""


def _lacking(table: JobTable, resource: str) -> str:
    """A sentence on what the list does not say of its jobs, where it is that."""
    needed = {
        "submission": "submit IS NOT NULL",
        "start": "start IS NOT NULL",
        "end": "end IS NOT NULL",
        f"number of {UNITS[resource]}s": f"{resource} > 0",
    }
    ran = table.one("SELECT count(*) FROM jobs WHERE run > 0")
    stated = {
        what: table.one(f"SELECT count(*) FROM jobs WHERE run > 0 AND {where}")
        for what, where in needed.items()
    }
    few = [f"the {what} of {count:,}" for what, count in stated.items() if count < ran]
    return f" It states {' and '.join(few)} of {counted(ran, 'job')} that ran." if few else ""


@dataclass
class _Window:
    """Jobs that matter from `begin` on: first those that ran, then those that waited or came."""

    begin: float
    running: list[Row]
    coming: list[Row]
    scored: list[int]
    """Places in `coming` of the jobs that were submitted in the window."""


def what_if(
    table: JobTable, resource: str, on_progress: Callable[[int, str], None] = lambda *_: None
) -> Queue:
    """The model, its fidelity and the what-if. `resource`: the column that jobs compete for."""
    known = ("run > 0", "submit IS NOT NULL", "start IS NOT NULL", "end IS NOT NULL")
    chosen = " AND ".join((*known, f"{resource} > 0"))
    count = table.one(f"SELECT count(*) FROM jobs WHERE {chosen}")
    if count < LEAST_JOBS:
        return Queue(
            reason=f"Not modelled: the list states the waits of {count:,} jobs, and it takes "
            f"{LEAST_JOBS:,}.{_lacking(table, resource)}",
            fidelity=None,
            scenarios=[],
            groups=[],
        )
    if not table.one(f"SELECT count(*) FROM jobs WHERE {chosen} AND start > submit"):
        return Queue(
            reason="Not modelled: every job of the list starts when it is submitted, so no waits "
            "are recorded.",
            fidelity=None,
            scenarios=[],
            groups=[],
        )
    windows = list(_windows(table, chosen))
    fitting, testing = windows[::2], windows[1::2]
    if not testing:
        return Queue(
            reason="Not modelled: so many jobs run or wait at one time that no part of the list "
            "is small enough to simulate.",
            fidelity=None,
            scenarios=[],
            groups=[],
        )
    busy = _busiest(table, chosen, resource)
    machines = {"one pool": _machine({"": busy[""]}, resource)}
    if 2 < len(busy) <= 60:
        machines["a pool for each partition"] = _machine(
            {name: size for name, size in busy.items() if name}, resource
        )
    done = 0

    def tried(model: str, division: str, rules: _Rules | None = None) -> float:
        """How well the model fits the windows that choose it: higher is better."""
        nonlocal done
        on_progress(done, f"{model}, {division}")
        done += 1
        pairs = [
            _simulated(
                one, machines[division], Advised(rules=rules, predict=False, **MODELS[model])
            )
            for one in fitting
        ]
        recorded, modelled = (np.concatenate(part) for part in zip(*pairs, strict=True))
        ratio = _ratio(modelled.mean(), recorded.mean())
        return rank_correlation(recorded, modelled) - math.log(ratio)

    simplest = next(iter(MODELS))
    divisions = {name: tried(simplest, name) for name in machines}
    division = max(divisions, key=lambda one: divisions[one])
    scores = {simplest: divisions[division]}
    scores |= {name: tried(name, division) for name in MODELS if name != simplest}
    model = max(scores, key=lambda one: scores[one])
    machine = machines[division]
    rules, best, said = _Rules(), scores[model], ""
    for name, found in _rules(table, chosen, resource, fitting, machine):
        score = tried(model, division, found)
        if score > best:
            rules, best, said = found, score, f", {name}"

    def run(planned: str | None, bounds: OrderBounds | None, *, predict: bool) -> list[Floats]:
        settings = MODELS[model]
        return [
            _simulated(
                one,
                machine,
                Advised(bounds, rules, predict=predict, **settings),
                _planned_times(table, one, planned),
            )[1]
            for one in testing
        ]

    recorded = np.concatenate([_recorded(one) for one in testing])
    today = run(None, None, predict=False)
    fidelity = _fidelity(recorded, np.concatenate(today), len(testing))
    fidelity = fidelity.model_copy(
        update={
            "model": f"{model}; {division}{said}",
            "unit": UNITS[resource],
            "capacity": float(busy[""]),
        }
    )
    if not fidelity.faithful:
        return Queue(
            reason="No what-if: the model of the queue is not faithful enough to this list, so "
            "what it says of other policies would be worth nothing.",
            fidelity=fidelity,
            scenarios=[],
            groups=[],
        )
    bounds = OrderBounds(allowed=True)
    waits = {TODAY: today}
    for name, planned, within, predict in (
        (ORDERED, "estimates", bounds, False),
        (BACKFILL, "estimates", None, True),
        (BOTH, "estimates", bounds, True),
        (PERFECT, "truth", bounds, True),
    ):
        on_progress(done, name)
        done += 1
        waits[name] = run(planned, within, predict=predict)
    rows = [one.coming[place] for one in testing for place in one.scored]
    joined = {name: np.concatenate(parts) for name, parts in waits.items()}
    return Queue(
        reason=f"{len(rows):,} jobs in {len(testing)} windows, with the run times as recorded.",
        fidelity=fidelity,
        scenarios=[_scenario(name, one, joined[TODAY]) for name, one in joined.items()],
        groups=_losses(rows, joined),
    )


STEPS = len(MODELS) + 3 + 4
"""Steps of which `what_if` reports progress at most."""


# Windows of the list, and the machine.


def _windows(table: JobTable, chosen: str) -> Iterator[_Window]:
    """Evenly spread over the part of the list that estimates were replayed on."""
    since = table.one("SELECT min(submit) FROM jobs JOIN estimates USING (number)") or -math.inf
    known = f"{chosen} AND submit >= ?"
    count = table.one(f"SELECT count(*) FROM jobs WHERE {known}", since)
    size = min(SUBMITTED, count // (2 * WINDOWS) or 1)
    for place in np.linspace(count * 0.1, count - size - 1, WINDOWS).astype(int).tolist():
        bounds = [
            table.one(
                f"SELECT submit FROM jobs WHERE {known} ORDER BY submit LIMIT 1 OFFSET ?", since, at
            )
            for at in (place, place + size)
        ]
        begin, end = bounds
        most = LONGEST_WINDOW * SUBMITTED
        rows = list(
            table.rows(
                f"{chosen} AND submit <= ? AND end > ?", end, begin,
                order=f"submit, number LIMIT {most + 1}",
            )
        )  # fmt: skip
        if len(rows) > most:
            continue
        running = [row for row in rows if (row.start or 0.0) < begin]
        coming = [row for row in rows if (row.start or 0.0) >= begin]
        scored = [place for place, row in enumerate(coming) if (row.submit or 0.0) >= begin]
        if scored:
            yield _Window(begin, running, coming, scored)


def _busiest(table: JobTable, chosen: str, resource: str) -> dict[str, float]:
    """What runs at once but for `BUSY_SHARE` of the time, by partition and, under ``""``, in all;
    at least as much as the largest job takes."""
    changes = (
        f"SELECT start AS moment, 1 AS way, {resource}, coalesce(part, '-') FROM jobs "
        f"WHERE {chosen} UNION ALL SELECT end, -1, -{resource}, coalesce(part, '-') FROM jobs "
        f"WHERE {chosen} ORDER BY moment, way"
    )
    now: dict[str, float] = defaultdict(float)
    most: dict[str, float] = defaultdict(float)
    largest: dict[str, float] = defaultdict(float)
    for _, _, change, part in table.select(changes):
        for name in ("", part):
            now[name] += change
            most[name] = max(most[name], now[name])
            largest[name] = max(largest[name], change)
    spent = {name: np.zeros(BUSY_LEVELS + 1) for name in most}
    now.clear()
    since: dict[str, float] = {}
    for moment, _, change, part in table.select(changes):
        for name in ("", part):
            level = math.ceil(BUSY_LEVELS * min(1.0, max(0.0, now[name] / most[name])))
            spent[name][level] += moment - since.get(name, moment)
            since[name] = moment
            now[name] += change
    busy = {}
    for name, times in spent.items():
        reached = np.cumsum(times) >= BUSY_SHARE * times.sum()
        busy[name] = max(largest[name], most[name] * int(np.argmax(reached)) / BUSY_LEVELS)
    return busy


def _rules(
    table: JobTable, chosen: str, resource: str, fitting: Sequence[_Window], machine: _Machine
) -> Iterator[tuple[str, _Rules]]:
    """Rules that accounting shows, each with its name: the order of QOS, and also limits of users.

    The order is that of median waits in the windows that choose the model. A limit is the most that
    a user ever had at once in a QOS, if several users reached exactly that and nobody more.
    """
    waits: dict[str, list[float]] = defaultdict(list)
    for window in fitting:
        for place in window.scored:
            row = window.coming[place]
            waits[row.qos or ""].append((row.start or 0.0) - (row.submit or 0.0))
    common = {name: np.median(one) for name, one in waits.items() if len(one) >= LEAST_OF_QOS}
    longest_first = sorted(common, key=lambda name: -common[name])
    ranks = {name: rank for rank, name in enumerate(longest_first)} if len(common) > 1 else {}
    if ranks:
        yield "the QOS first", _Rules(ranks)
    now: dict[tuple[str, str], float] = defaultdict(float)
    most: dict[tuple[str, str], float] = defaultdict(float)
    named = f"{resource}, coalesce(qos, ''), user FROM jobs WHERE {chosen} AND user IS NOT NULL"
    for _, _, change, qos, user in table.select(
        f"SELECT start AS moment, 1 AS way, {named} UNION ALL "
        f"SELECT end, -1, -{named} ORDER BY moment, way"
    ):
        now[qos, user] += change
        most[qos, user] = max(most[qos, user], now[qos, user])
    reached: dict[str, list[float]] = defaultdict(list)
    for (qos, _), units in most.items():
        reached[qos].append(units)
    limits = {
        ranks.get(qos, 0): math.ceil(max(one) / machine.unit - 1e-9)
        for qos, one in reached.items()
        if one.count(max(one)) >= LEAST_AT_LIMIT and (not ranks or qos in ranks)
    }
    if limits:
        yield "with limits of users", _Rules(ranks, limits)


def _machine(busy: dict[str, float], resource: str) -> _Machine:
    unit = max(1.0, math.ceil(max(busy.values()) / MOST_UNITS))
    pools = {name: math.ceil(size / unit) for name, size in busy.items()}
    return _Machine(pools, unit, resource)


# One simulation.


def _recorded(window: _Window) -> Floats:
    rows = [window.coming[place] for place in window.scored]
    return np.array([max(0.0, (row.start or 0.0) - (row.submit or 0.0)) for row in rows])


def _planned_times(table: JobTable, window: _Window, what: str | None) -> list[float | None]:
    """The run time that backfill plans with for every job of a window [s]."""
    rows = [*window.running, *window.coming]
    if what is None:
        return [None] * len(rows)
    if what == "truth":
        return [row.run for row in rows]
    planned: list[float | None] = []
    for row in rows:
        found = next(
            table.select("SELECT seconds FROM estimates WHERE number = ?", row.number), None
        )
        planned.append(None if found is None else found[0])
    return planned


def _simulated(
    window: _Window,
    machine: _Machine,
    policy: Advised,
    planned: Sequence[float | None] | None = None,
) -> tuple[Floats, Floats]:
    """Recorded and simulated waits [s] of the jobs that were submitted in the window.

    What ran at its begin goes on for the time that it still took; rounding to units of the machine
    may leave too few for the last of them, which then start as soon as they can.
    """
    places = {name: n for n, name in enumerate(machine.pools)}
    free = dict(machine.pools)
    jobs: list[Job] = []
    run_s: list[float] = []
    vcs: list[str] = []
    initial: dict[int, Allocation] = {}
    hours: list[float | None] = []
    for row in window.running:
        elapsed = window.begin - (row.start or 0.0)
        pool, size = machine.pool(row), machine.size(row)
        taken = machine.pools[pool] - free[pool]
        if size <= free[pool]:
            initial[len(jobs)] = ((places[pool], ((1 << size) - 1) << taken),)
            free[pool] -= size
        limit = None if row.lim is None else max(60.0, row.lim - elapsed)
        jobs.append(_job(row, len(jobs), 0.0, size, limit, policy.rules))
        run_s.append(max(1.0, (row.end or 0.0) - window.begin))
        vcs.append(pool)
        hours.append(elapsed)
    for row in window.coming:
        submit = max(0.0, (row.submit or 0.0) - window.begin)
        jobs.append(_job(row, len(jobs), submit, machine.size(row), row.lim, policy.rules))
        run_s.append(row.run or 1.0)
        vcs.append(machine.pool(row))
        hours.append(0.0)
    work = Workload("window", jobs, run_s, [None] * len(jobs), vcs=vcs, initial=initial)
    left = [
        None if one is None else max(60.0, one - (gone or 0.0))
        for one, gone in zip(planned or [None] * len(jobs), hours, strict=True)
    ]
    outcome = Simulation(work, policy, machine.cluster(), estimator=Table(left)).run()
    first = len(window.running)
    modelled = [
        outcome.first_start[first + place] - jobs[first + place].submit_time
        for place in window.scored
    ]
    return _recorded(window), np.maximum(0.0, np.array(modelled))


def _job(row: Row, index: int, submit: float, size: int, limit: float | None, rules: _Rules) -> Job:
    job = Job(str(row.number), index, submit, size)
    job.user = row.user or ""
    job.priority = rules.ranks.get(row.qos or "", 0)
    job.time_limit_s = limit
    return job


# Numbers.


def _ratio(one: float, other: float) -> float:
    """By what factor two means of waits differ, seconds not counted."""
    low, high = sorted((one + 60.0, other + 60.0))
    return high / low


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's, with the mean rank for ties; 0 where either does not vary."""
    ranks = [_ranks(one) for one in (first, second)]
    if min(one.std() for one in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Floats) -> Floats:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2.0)[places]
    return ranks


def _fidelity(recorded: Floats, modelled: Floats, windows: int) -> Fidelity:
    correlation = rank_correlation(recorded, modelled)
    ratio = _ratio(recorded.mean(), modelled.mean())
    low, high = np.minimum(recorded, modelled), np.maximum(recorded, modelled)
    near = (high <= NEAR_FACTOR * low) | (high - low <= NEAR_S)
    shown = np.random.default_rng(0).permutation(len(recorded))[:SAMPLE]
    return Fidelity(
        jobs=len(recorded),
        windows=windows,
        model="",
        unit="",
        capacity=0.0,
        recorded_mean_s=float(recorded.mean()),
        modelled_mean_s=float(modelled.mean()),
        correlation=correlation,
        near=float(near.mean()),
        faithful=correlation >= LEAST_CORRELATION and ratio <= MOST_RATIO,
        bound=f"rank correlation of at least {LEAST_CORRELATION}, and mean waits that differ by at "
        f"most a factor of {MOST_RATIO:g}",
        recorded_s=recorded[shown].tolist(),
        modelled_s=modelled[shown].tolist(),
    )


def _scenario(name: str, waits: Floats, today: Floats) -> Scenario:
    return Scenario(
        name=name,
        mean_wait_s=float(waits.mean()),
        p95_wait_s=float(np.quantile(waits, 0.95)),
        starved=int((waits > today + STARVED_S).sum()),
        jobs=len(waits),
    )


def _losses(rows: Sequence[Row], waits: dict[str, Floats]) -> list[Loss]:
    """By user group, or by user where the list has none; the greatest loss by `ORDERED` first."""
    members: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        name = row.grp or row.user
        if name is not None:
            members[name].append(place)
    losses = []
    for name, places in members.items():
        if len(places) < LEAST_OF_GROUP:
            continue
        today = float(waits[TODAY][places].mean())
        change = {
            scenario: float(one[places].mean()) - today
            for scenario, one in waits.items()
            if scenario != TODAY
        }
        losses.append(Loss(group=name, jobs=len(places), today_s=today, change_s=change))
    losses.sort(key=lambda one: (-one.change_s[ORDERED], one.group))
    return losses[: LISTED // 2] + losses[LISTED // 2 :][-LISTED // 2 :]
