"""How much of its time a large training makes progress, with failures, checkpoints and spares.

The effective training time ratio (ETTR) is the share of a job's wall time that becomes lasting
progress; goodput here is the same share of all GPUs that the job holds, its hot spares included.
(`schedulers/goodput.py` is another thing: the throughput model of Pollux and Sia.)

Any of a job's nodes stops the whole job, at the constant rate L [1/s] of all its nodes. Training
runs for `interval_s`, then stands still for `write_s` while a checkpoint is taken, which can be
restored from `save_s` later (asynchronous saving). After a failure nothing happens for the
`detect_s` of its cause, then its `restart_s` pass, which further failures can hit, and training
goes on from the last checkpoint that was complete. With these assumptions the expectation is exact:

    ETTR = (1 - B) (1 - q) / (1 + L d) x L t / ((exp(L (t + w)) - 1) exp(L s))

with t, w, s the interval, write and save times, d the mean time to detect, q the chance that a
further failure hits a restart, and B the share of time in which more nodes are in repair than
spares exist: Erlang's loss formula, whatever the distribution of repair times (slightly too much
where detecting takes long, as no node fails then). One cause with d = s = 0 is Daly's complete
model (2006, eq. 13), and to first order the published formula of Meta's clusters (Kokolis et al.,
HPCA 2025).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, islice
from math import ceil, exp, expm1, inf, log1p, sqrt
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.base.data import load
from schedmate.base.errors import InputError, UsageError, did_you_mean
from schedmate.logparse.triage.summary import exact_test, poisson_interval
from schedmate.site.accounting import AccountedJob
from schedmate.site.table import NODE_STATES, job_table

SCHEMA = "schedmate.goodput/v1"
DAY_S = 86_400.0
_STEEPEST = 700.0
"""Exponents from here on are so large that the job never gets from one checkpoint to the next."""


@dataclass(frozen=True)
class Cause:
    """A kind of failure: how often, and what each costs."""

    name: str
    per_node_day: float
    detect_s: float
    """Time until it is noticed [s]."""
    restart_s: float
    """Time from there until training runs again, with the checkpoint loaded [s]."""
    hardware: bool = False
    """Whether the node leaves service, and is replaced by a spare."""
    counted: int | None = None
    """Failures that were counted, where the rate comes from a count."""


@dataclass(frozen=True)
class Training:
    """A job on `nodes` nodes, all of which it needs."""

    nodes: int
    causes: tuple[Cause, ...]
    write_s: float
    save_s: float = 0.0
    spares: int | None = None
    """Hot spares [nodes]; None: a replacement is always at hand, and not paid for by the job."""
    repair_s: float = 0.0
    """Time that a node with a hardware fault is away [s]."""

    @property
    def rate(self) -> float:
        """Failures of the job [1/s]."""
        return self.nodes * sum(cause.per_node_day for cause in self.causes) / DAY_S

    @property
    def mtbf_s(self) -> float:
        """Mean time between failures of the job while it runs [s]."""
        return 1 / self.rate if self.rate else inf

    def scaled(self, factor: float) -> Training:
        """The same with `factor` times the failures."""
        return replace(
            self,
            causes=tuple(
                replace(cause, per_node_day=factor * cause.per_node_day) for cause in self.causes
            ),
        )

    def mean(self, what: Literal["detect_s", "restart_s"]) -> float:
        """A time of the causes, weighted by how often each fails [s]."""
        total = sum(cause.per_node_day for cause in self.causes)
        return (
            sum(cause.per_node_day * getattr(cause, what) for cause in self.causes) / total
            if total
            else 0.0
        )

    @property
    def broken(self) -> float:
        """Nodes in repair on average, were there always a spare."""
        hardware = sum(cause.per_node_day for cause in self.causes if cause.hardware)
        return self.nodes * hardware / DAY_S * self.repair_s

    def waiting(self) -> float:
        """Share of time in which the job waits for a node in repair (Erlang B)."""
        if self.spares is None:
            return 0.0
        return next(islice(erlang_losses(self.broken), self.spares + 1, None))


def erlang_losses(load_: float) -> Iterator[float]:
    """Erlang's loss formula for 0, 1, 2, ... servers."""
    loss = 1.0
    for server in count(1):
        yield loss
        loss = load_ * loss / (server + load_ * loss)


class Shares(BaseModel):
    """Where the wall time of the job goes; with `ettr` they add up to 1."""

    model_config = ConfigDict(extra="forbid")

    ettr: float = Field(description="Becomes lasting progress")
    writing: float = Field(description="Stands still for checkpoints that are kept")
    lost: float = Field(description="Work and checkpoints that a failure undoes")
    detecting: float = Field(description="Has failed, and that is not noticed yet")
    restarting: float
    waiting: float = Field(description="Waits for a node, as more are broken than spares exist")


def shares(training: Training, interval_s: float) -> Shares:
    """Where the time goes if a checkpoint is taken every `interval_s` of training."""
    rate, step = training.rate, interval_s + training.write_s
    up = 1 - training.waiting()
    steep = rate * (step + training.save_s)
    if steep > _STEEPEST:
        kept = 0.0
    elif rate * step > 1e-12:
        kept = rate * step / (expm1(rate * step) * exp(rate * training.save_s))
    else:
        kept = exp(-rate * training.save_s)
    again = sum(
        training.nodes * cause.per_node_day / DAY_S * -expm1(-rate * cause.restart_s)
        for cause in training.causes
    )
    again = again / rate if rate else 0.0
    slowed = 1 + rate * training.mean("detect_s")
    running = up * (1 - again) / slowed
    part = interval_s / step if step else 1.0
    return Shares(
        ettr=running * kept * part,
        writing=running * kept * (1 - part),
        lost=running * (1 - kept),
        detecting=up * (slowed - 1) / slowed,
        restarting=up * again / slowed,
        waiting=1 - up,
    )


def best_interval(training: Training) -> float:
    """The checkpoint interval with the greatest ETTR [s].

    The root of (1 - L t) exp(L (t + w)) = 1, which no cost of a failure enters; never so short
    that one checkpoint is not complete before the next is due.
    """
    rate, least = training.rate, max(0.0, training.save_s - training.write_s)
    if not rate:
        return inf
    low, high = 0.0, 1 / rate
    for _ in range(100):
        middle = (low + high) / 2
        rises = log1p(-rate * middle) + rate * (middle + training.write_s) > 0
        low, high = (middle, high) if rises else (low, middle)
    return max(low, least)


def young_interval(write_s: float, mtbf_s: float) -> float:
    """Young's interval (1974) [s]."""
    return sqrt(2 * write_s * mtbf_s)


def daly_interval(write_s: float, mtbf_s: float) -> float:
    """Daly's higher-order interval (2006, eq. 37) [s]."""
    if write_s >= 2 * mtbf_s:
        return mtbf_s
    part = sqrt(write_s / (2 * mtbf_s))
    return young_interval(write_s, mtbf_s) * (1 + part / 3 + part * part / 9) - write_s


def simulated(training: Training, interval_s: float, run_s: float, rng: random.Random) -> float:
    """The ETTR of one run of `run_s` seconds, failure by failure.

    Shares nothing with the formulas but their assumptions; repair times are exponential here.
    """
    rate, step = training.rate, interval_s + training.write_s
    weights = [cause.per_node_day for cause in training.causes]
    now, done, repairs = 0.0, 0.0, list[float]()

    def fails_within(length: float) -> float:
        """Time to the next failure, or `length`."""
        return min(rng.expovariate(rate) if rate else inf, length)

    def fail() -> float:
        """A failure: passes its time to detect and wait for a node, and gives its restart time."""
        nonlocal now
        (cause,) = rng.choices(training.causes, weights)
        now += cause.detect_s
        if cause.hardware and training.spares is not None:
            while repairs and repairs[0] <= now:
                heapq.heappop(repairs)
            heapq.heappush(repairs, now + rng.expovariate(1 / training.repair_s))
            while len(repairs) > training.spares:
                now = max(now, heapq.heappop(repairs))
        return cause.restart_s

    while now < run_s:
        begun, length = now, fails_within(run_s - now)
        now += length
        if now >= run_s:  # what is under way at the end is not lost
            whole, rest = divmod(run_s - begun, step)
            return (done + whole * interval_s + min(rest, interval_s)) / run_s
        done += interval_s * max(0, (length - training.save_s) // step)
        restart = fail()
        while now < run_s and (length := fails_within(restart)) < restart:
            now += length
            restart = fail()
        now += restart
    return done / run_s


def run_interval(
    training: Training, interval_s: float, run_s: float, seed: int = 0, draws: int = 40_000
) -> tuple[float, float]:
    """The ETTR of a run of this length: 80 % of runs lie between, by simulation."""
    rng = random.Random(seed)  # noqa: S311 - an experiment, not a secret
    events = run_s / (training.mtbf_s + training.mean("detect_s"))
    if events > draws:  # so many that runs hardly differ
        return (shares(training, interval_s).ettr,) * 2
    runs = int(min(400, max(40, draws / (1 + events))))
    found = sorted(simulated(training, interval_s, run_s, rng) for _ in range(runs))
    return found[runs // 10], found[runs - 1 - runs // 10]


# Where rates come from.


class Rates(BaseModel):
    """A set of failure rates: of a published study, or of a site."""

    model_config = ConfigDict(extra="forbid")

    class Counted(BaseModel):
        """Failures of one cause."""

        model_config = ConfigDict(extra="forbid")

        name: str
        count: int = Field(ge=0)
        hardware: bool = False

    name: str
    stated: str
    sources: list[str]
    gpus_per_node: int = Field(gt=0)
    errors: bool = Field(False, description="Errors of GPUs; not every one ends a job")
    node_days: float | None = Field(None, gt=0)
    causes: list[Counted] = []
    per_1000_node_days: float = Field(0.0, ge=0)

    @property
    def failures(self) -> int:
        """Failures counted."""
        return sum(cause.count for cause in self.causes)

    def per_node_day(self) -> tuple[float, float, float]:
        """The rate, and its exact 95 % interval; without a count the rate three times."""
        if self.node_days is None:
            return (self.per_1000_node_days / 1000,) * 3
        low, high = poisson_interval(self.failures)
        return self.failures / self.node_days, low / self.node_days, high / self.node_days

    def for_nodes_of(self, gpus: int) -> Rates:
        """The same failures per GPU, on nodes with this number of GPUs."""
        factor = gpus / self.gpus_per_node
        return self.model_copy(
            update={
                "gpus_per_node": gpus,
                "node_days": self.node_days and self.node_days / factor,
                "per_1000_node_days": self.per_1000_node_days * factor,
            }
        )

    def as_causes(self, detect_s: float, restart_s: float) -> tuple[Cause, ...]:
        """The causes with what each failure costs."""
        if self.node_days is None:
            rate = self.per_1000_node_days / 1000
            return (Cause("any", rate, detect_s, restart_s, hardware=True),)
        return tuple(
            Cause(
                *(one.name, one.count / self.node_days, detect_s, restart_s),
                hardware=one.hardware,
                counted=one.count,
            )
            for one in self.causes
        )


@cache
def published_rates() -> Mapping[str, Rates]:
    """The bundled sets by name."""
    document: dict[str, dict[str, Any]] = load("site/failure_rates.yaml")
    return {
        name: Rates(name=name, sources=entry["from"], **{k: entry[k] for k in entry if k != "from"})
        for name, entry in document.items()
    }


def published(name: str) -> Rates:
    """A bundled set; raises `UsageError` for an unknown name."""
    known = published_rates()
    if name not in known:
        raise UsageError(
            f"no published failure rates are named {name!r}{did_you_mean(name, known)}; known: "
            f"{', '.join(known)}."
        )
    return known[name]


def stated_rate(mtbf_s: float, nodes: int, gpus_per_node: int) -> Rates:
    """The rate of a user's own mean time between failures of `nodes` nodes together [s]."""
    return Rates(
        name="stated",
        stated="the mean time between failures that was given",
        sources=[],
        gpus_per_node=gpus_per_node,
        per_1000_node_days=1000 * DAY_S / mtbf_s / nodes,
    )


class StateRate(BaseModel):
    """Jobs that ended in a state of the scheduler."""

    model_config = ConfigDict(extra="forbid")

    state: str
    jobs: int
    per_1000_node_days: float
    low: float = Field(description="Exact 95 % interval of the rate (Poisson)")
    high: float


class Lemons(BaseModel):
    """Nodes with far more failures than others, and what the rate is without them."""

    model_config = ConfigDict(extra="forbid")

    nodes: list[str] = Field(description="Names, where they were found in accounting")
    why: str
    per_1000_node_days: float = Field(description="The rate without them")


@dataclass(frozen=True)
class SiteRates:
    """What a site's own accounting says."""

    rates: Rates
    states: list[StateRate]
    lemons: Lemons | None


def site_rates(
    jobs: Iterable[AccountedJob],
    source: str,
    gpus_per_node: int,
    on_progress: Callable[[int], None] = lambda _: None,
) -> SiteRates:
    """Failures of nodes per node-day in a list of jobs; of GPU jobs only, if there are such.

    Counted are jobs that ended in `NODE_STATES`, in which the scheduler says that a node failed.
    Raises `InputError` without run times, or without any such failure.
    """
    with job_table() as table:
        for read in table.fill(jobs):
            on_progress(read)
        of_gpus = table.one("SELECT count(*) FROM jobs WHERE gpus > 0 AND run > 0")
        size = f"CASE WHEN nodes > 0 THEN nodes ELSE max(1, gpus / {gpus_per_node}) END"
        found = [
            (state, jobs_, hours or 0.0)
            for state, jobs_, hours in table.select(
                f"SELECT state, count(*), sum(run * ({size})) / 86400 FROM jobs "
                "WHERE run > 0 AND state NOT IN ('PENDING', 'RUNNING') "
                f"{'AND gpus > 0' if of_gpus else ''} GROUP BY state ORDER BY state"
            )
        ]
        node_days = sum(days for _, _, days in found)
        failed = {state: jobs_ for state, jobs_, _ in found if state in NODE_STATES}
        test = exact_test(table.nodes, table.on_nodes, table.node_failures, unknown="", doubt="")
    if not node_days:
        raise InputError(f"{source}: no ended job with a run time; give --node-mtbf or --rates.")
    total = sum(failed.values())
    if not total:
        raise InputError(
            f"{source}: no job ended in {' or '.join(sorted(NODE_STATES))} in {node_days:,.0f} "
            f"node-days, so fewer than {1000 * poisson_interval(0)[1] / node_days:.3g} failures "
            "per 1,000 node-days (95 %); give --node-mtbf, or more jobs."
        )
    states = [
        StateRate(
            state=state, jobs=jobs_, per_1000_node_days=1000 * jobs_ / node_days, low=low, high=high
        )
        for state, jobs_, _ in found
        if state != "COMPLETED"
        for low, high in [tuple(1000 * end / node_days for end in poisson_interval(jobs_))]
    ]
    suspects = [node for node in test.nodes if node.suspect]
    days = node_days - sum(node.node_hours or 0 for node in suspects) / 24
    left = max(0, total - sum(node.failures for node in suspects))
    return SiteRates(
        Rates(
            name="site",
            stated=f"{total:,} failures of nodes in {node_days:,.0f} node-days of {source}",
            sources=[source],
            gpus_per_node=gpus_per_node,
            node_days=node_days,
            causes=[
                Rates.Counted(name=state, count=count, hardware=True)
                for state, count in failed.items()
            ],
        ),
        states,
        Lemons(
            nodes=[node.node for node in suspects],
            why=test.reason,
            per_1000_node_days=1000 * left / days if days > 0 else 0.0,
        )
        if suspects
        else None,
    )


# The report of `schedmate goodput`.


class Level(BaseModel):
    """A value with its interval; both ends are the value where the rate is not a count."""

    model_config = ConfigDict(extra="forbid")

    value: float
    low: float
    high: float


class AtInterval(BaseModel):
    """What a checkpoint interval gives."""

    model_config = ConfigDict(extra="forbid")

    interval_s: float
    ettr: Level = Field(description="With the ends of the failure rate's 95 % interval")
    goodput: float = Field(description="Share of all GPUs' time, hot spares included")
    run: list[float] = Field(description="80 % of runs of `run_s` have an ETTR between, simulated")
    shares: Shares


class CurvePoint(BaseModel):
    """The ETTR at another checkpoint interval."""

    model_config = ConfigDict(extra="forbid")

    interval_s: float
    ettr: float


class AtSize(BaseModel):
    """The same job on another number of GPUs."""

    model_config = ConfigDict(extra="forbid")

    gpus: int
    mtbf_s: float
    best_interval_s: float
    ettr: float = Field(description="At the best interval of this size")
    as_asked: float = Field(description="At the interval that was asked for, or is best at --gpus")


class AtSpares(BaseModel):
    """The same job with another number of spare nodes."""

    model_config = ConfigDict(extra="forbid")

    spares: int
    waiting: float
    ettr: float
    goodput: float


class CauseShare(BaseModel):
    """A cause of failures."""

    model_config = ConfigDict(extra="forbid")

    name: str
    share: float
    per_1000_node_days: Level
    hardware: bool


class GoodputReport(BaseModel):
    """Output of `schedmate goodput --json`: the share of time in which a training progresses."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    gpus: int
    nodes: int
    run_s: float
    rates: Rates
    per_1000_node_days: Level
    mtbf_s: Level = Field(description="Of the whole job")
    causes: list[CauseShare]
    states: list[StateRate] = Field(description="States of a site's own jobs")
    young_s: float
    daly_s: float
    best: AtInterval
    asked: AtInterval | None
    naive: float = Field(description="1 - (detect + restart) / MTBF: no checkpoint is counted")
    intervals: list[CurvePoint]
    sizes: list[AtSize]
    spares: list[AtSpares] = Field(description="Empty without --repair")
    best_spares: int | None
    lemons: Lemons | None
    without_lemons: AtInterval | None
    notes: list[str]


@dataclass(frozen=True)
class Question:
    """What `goodput_report` is asked."""

    gpus: int
    rates: Rates
    detect_s: float
    restart_s: float
    write_s: float
    save_s: float = 0.0
    interval_s: float | None = None
    spares: int | None = None
    repair_s: float | None = None
    run_s: float = 30 * DAY_S
    states: Sequence[StateRate] = ()
    lemons: Lemons | None = None
    notes: Sequence[str] = ()


def goodput_report(question: Question) -> GoodputReport:
    """Answer for one training; raises `UsageError` for costs with which no interval is best."""
    if not question.write_s + question.save_s:
        raise UsageError(
            "checkpoints that cost nothing should be taken all the time; give --write or --save."
        )
    rates = question.rates
    nodes = ceil(question.gpus / rates.gpus_per_node)
    training = Training(
        nodes,
        rates.as_causes(question.detect_s, question.restart_s),
        question.write_s,
        question.save_s,
        question.spares if question.repair_s is not None else None,
        question.repair_s or 0.0,
    )
    if question.spares is None and question.repair_s is not None:
        training = replace(training, spares=_best_spares(training))
    value, low, high = rates.per_node_day()
    best = best_interval(training)
    asked = question.interval_s

    def at(one: Training, interval_s: float) -> AtInterval:
        found = shares(one, interval_s)
        ends = [shares(one.scaled(end / value), interval_s).ettr for end in (high, low)]
        return AtInterval(
            interval_s=interval_s,
            ettr=Level(value=found.ettr, low=ends[0], high=ends[1]),
            goodput=found.ettr * nodes / (nodes + (one.spares or 0)),
            run=list(run_interval(one, interval_s, question.run_s)),
            shares=found,
        )

    lemons = question.lemons
    fewer = (
        training.scaled(lemons.per_1000_node_days / 1000 / value)
        if lemons is not None and lemons.per_1000_node_days
        else None
    )
    curve_of_spares = list(_by_spares(training)) if question.repair_s is not None else []
    return GoodputReport(
        gpus=question.gpus,
        nodes=nodes,
        run_s=question.run_s,
        rates=rates,
        per_1000_node_days=Level(value=1000 * value, low=1000 * low, high=1000 * high),
        mtbf_s=Level(
            value=training.mtbf_s,
            low=DAY_S / nodes / high,
            high=DAY_S / nodes / low if low else training.mtbf_s,
        ),
        causes=list(_cause_shares(training, rates)),
        states=list(question.states),
        young_s=young_interval(question.write_s, training.mtbf_s),
        daly_s=daly_interval(question.write_s, training.mtbf_s),
        best=at(training, best),
        asked=None if asked is None else at(training, asked),
        naive=max(0.0, 1 - (question.detect_s + question.restart_s) / training.mtbf_s),
        intervals=[
            CurvePoint(interval_s=one, ettr=shares(training, one).ettr)
            for one in _around(best, asked, max(1.0, question.save_s - question.write_s))
        ],
        sizes=list(
            _by_size(
                training,
                question.gpus,
                rates.gpus_per_node,
                asked or best,
                freely=question.spares is None,
            )
        ),
        spares=curve_of_spares,
        best_spares=_best_spares(training) if curve_of_spares else None,
        lemons=lemons,
        without_lemons=None if fewer is None else at(fewer, asked or best_interval(fewer)),
        notes=list(question.notes),
    )


def _cause_shares(training: Training, rates: Rates) -> Iterator[CauseShare]:
    total = sum(cause.per_node_day for cause in training.causes)
    for cause in sorted(training.causes, key=lambda one: -one.per_node_day):
        rate = 1000 * cause.per_node_day
        ends = [rate, rate]
        if cause.counted is not None and rates.node_days:
            ends = [1000 * end / rates.node_days for end in poisson_interval(cause.counted)]
        yield CauseShare(
            name=cause.name,
            share=cause.per_node_day / total if total else 0.0,
            per_1000_node_days=Level(value=rate, low=ends[0], high=ends[1]),
            hardware=cause.hardware,
        )


def _around(best: float, asked: float | None, least: float) -> list[float]:
    """Intervals of a curve: eighths to eightfold of the best, and the one asked for."""
    found = {best * 2 ** (step / 2) for step in range(-6, 7)} | ({asked} if asked else set())
    return sorted(one for one in found if one >= least or one == asked) or [best]


def _by_size(
    training: Training, gpus: int, per_node: int, interval_s: float, *, freely: bool
) -> Iterator[AtSize]:
    """An eighth to eight times the GPUs, with the same share of spares, or `freely` the best."""
    for step in range(-3, 4):
        size = max(1, round(gpus * 2.0**step))
        one = replace(training, nodes=ceil(size / per_node))
        if training.spares is not None:
            one = replace(
                one,
                spares=_best_spares(one)
                if freely
                else round(training.spares * one.nodes / training.nodes),
            )
        best = best_interval(one)
        yield AtSize(
            gpus=size,
            mtbf_s=one.mtbf_s,
            best_interval_s=best,
            ettr=shares(one, best).ettr,
            as_asked=shares(one, interval_s).ettr,
        )


def _by_spares(training: Training) -> Iterator[AtSpares]:
    """From none to twice as many as are best, at the best interval."""
    best, interval = _best_spares(training), best_interval(training)
    most = max(2 * best, best + 2, training.spares or 0)
    step = max(1, ceil(most / 16))
    for spares in sorted({*range(0, most + 1, step), best, training.spares or 0}):
        yield _with_spares(training, spares, interval)


def _with_spares(training: Training, spares: int, interval_s: float) -> AtSpares:
    found = shares(replace(training, spares=spares), interval_s)
    return AtSpares(
        spares=spares,
        waiting=found.waiting,
        ettr=found.ettr,
        goodput=found.ettr * training.nodes / (training.nodes + spares),
    )


def _best_spares(training: Training) -> int:
    """The number of spares with the greatest goodput."""
    best, most = 0, 0.0
    for spares, loss in enumerate(islice(erlang_losses(training.broken), 1, None)):
        goodput = (1 - loss) / (training.nodes + spares)
        if goodput < most:
            break
        best, most = spares, goodput
    return best
