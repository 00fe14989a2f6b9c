"""Experts on the run time of a job: each gives a distribution, or has nothing to say.

A distribution is 25 quantiles of the logarithm of seconds, at `LEVELS`; each stands for one 25th of
the probability. `mixture.py` combines them. The experts, and where they come from:

- `last`: the last completed run of a like job, with the errors that such guesses made before;
- `last two`: the mean of the user's last two (Tsafrir, Etsion, Feitelson: Backfilling using
  system-generated predictions rather than user runtime estimates, TPDS 2007);
- `typical`: the recency-weighted geometric mean of the finest group that has runs;
- `groups, short` and `groups, long`: the completed runs of nested groups (user, work, size,
  request), each shrunk to its parent, with a short and a long memory (hierarchical shrinkage as in
  context tree weighting: Willems, Shtarkov, Tjalkens, 1995);
- `groups, bounds`: the same with runs that were cut short as lower bounds (Kaplan, Meier, 1958);
- `request`: the share of the requested time that this user's jobs use (Gaussier et al., Improving
  backfilling by using machine learning to predict running times, SC 2015);
- `request, anybody's`: the share of the requested time that all jobs use;
- `global`: the last runs of all;
- any others whose quantiles come with the job: similar jobs by their code, boosted trees, the time
  that the code declares.

A run that was cut short is nowhere taken as complete. A job that completes differs from all that
are started, so experts with and without the lower bounds stand beside each other. Everything is a
function of the ended runs in order of their ends, and of a moment: only runs that had ended by
the moment of submission count, also when the job is looked at again at its end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from schedmate.retrieval import run_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVELS = np.array(run_time.LEVELS)
"""Levels of the quantiles. Numbers 2, 12 and 22 are the 10th, 50th and 90th percentile."""
P10, P50, P90 = 2, 12, 22

OWN_EXPERTS = (
    *("last", "last two", "typical", "groups, short", "groups, long", "groups, bounds"),
    *("request", "request, anybody's", "global"),
)
"""Those that need nothing but the runs; the order is that of the rows of `Opinions.quantiles`."""

RUNS_KEPT = 24
"""Runs of a group that count. Twice as many are kept, for looking back to a submission."""
ERRORS_KEPT = 200
"""Errors of a guess, and runs of all jobs, that their quantiles are those of."""
SHORT, LONG = (1.5, 0.7), (10.0, 2.0)
"""Memories: half-life [runs] within a group, and how many runs the parent counts as."""
TYPICAL_HALF_LIFE = 4.0
FEW = 8.0
"""Errors in a context that its parent context counts as."""
ALL, ALL_SHARES = ("all",), ("all shares",)
"""Keys of the run times of all that completed, and of their shares of the requested times."""
_FADING = {
    half: 0.5 ** (np.arange(RUNS_KEPT)[::-1] / half)
    for half in (SHORT[0], LONG[0], TYPICAL_HALF_LIFE)
}
"""Weights of the runs of a group by half-life, the latest last and worth 1."""
_LAPLACE = np.where(LEVELS < 0.5, np.log(2 * LEVELS), -np.log(2 * (1 - LEVELS)))


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it was submitted: times in seconds since the epoch, the requested limit in seconds.

    `name` is what the same work has in common (command, program or fingerprint), `kind` where it
    was submitted to (queue, partition). `extra` are quantiles [log s] of further experts by name.
    """

    submitted: float
    user: str | None = None
    name: str | None = None
    size: float | None = None
    request_s: float | None = None
    kind: str | None = None
    extra: Mapping[str, Floats] = field(default_factory=dict)

    def groups(self) -> list[tuple[str, tuple[object, ...]]]:
        """The groups that the job belongs to, with their kind, from the finest on."""
        groups: list[tuple[str, tuple[object, ...]]] = []
        asked = (self.size, self.request_s)
        if self.user is not None:
            if self.name is not None:
                groups.append(("this work, size and request", (self.user, self.name, *asked)))
                groups.append(("this work", (self.user, self.name)))
            groups.append(("this user's size and request", (self.user, None, *asked)))
            groups.append(("this user", (self.user,)))
        if self.name is not None:
            if self.user is None:
                groups.append(("such work, size and request", (None, self.name, *asked)))
            groups.append(("such work of anybody", (None, self.name)))
        groups.append(("this kind, size and request", (None, self.kind, *asked, "all")))
        groups.append(("this kind", (None, self.kind, "kind")))
        return groups


@dataclass(slots=True)
class Opinions:
    """What the experts say of one job. `quantiles` [experts, levels] in log seconds; rows of those
    that are silent are NaN. `finest` is the place in `groups` of the first with a completed run."""

    names: tuple[str, ...]
    quantiles: Floats
    awake: NDArray[np.bool_]
    points: dict[str, tuple[float, tuple[object, ...]]]
    groups: list[tuple[str, tuple[object, ...]]]
    finest: int
    runs: int
    apart: int


Key = tuple[object, ...]
P = TypeVar("P")


class Part:
    """A part of what ended runs taught: kept in memory here, in a table by `learning.py`.

    `NUMBERS` and `TEXTS` name the attributes that it consists of: single numbers, lists and arrays,
    and at most one list of texts.
    """

    __slots__ = ()
    NUMBERS: ClassVar[tuple[str, ...]] = ()
    TEXTS: ClassVar[tuple[str, ...]] = ()

    def dump(self) -> tuple[list[str], list[Floats]]:
        """Its texts and its numbers, from which `load` makes it again, bit for bit."""
        texts = [text for name in self.TEXTS for text in getattr(self, name)]
        return texts, [np.ravel(np.asarray(getattr(self, name), float)) for name in self.NUMBERS]

    @classmethod
    def load(cls, texts: list[str], numbers: list[Floats]) -> Self:
        """The part that `dump` gave these of; raises `ValueError` if they cannot be."""
        part = cls()
        for name in cls.TEXTS:
            setattr(part, name, texts)
        for name, values in zip(cls.NUMBERS, numbers, strict=True):
            kind = getattr(part, name)
            if isinstance(kind, list):
                setattr(part, name, values.tolist())
            elif isinstance(kind, np.ndarray):
                setattr(part, name, values.reshape(kind.shape) if kind.ndim > 1 else values)
            else:
                (number,) = values
                setattr(part, name, type(kind)(number))
        return part


class Parts(Protocol):
    """Parts by key; a `dict` is one."""

    def get(self, key: Key, /) -> Any:
        """The part of this key, or None."""
        ...

    def __setitem__(self, key: Key, part: Any, /) -> None: ...


class Group(Part):
    """Ended runs of one group, in order of their ends."""

    __slots__ = ("cut", "ends", "jobs", "logs", "shares")
    NUMBERS = ("ends", "logs", "cut", "shares")
    TEXTS = ("jobs",)

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.logs: list[float] = []
        self.cut: list[bool] = []
        self.shares: list[float] = []
        self.jobs: list[str] = []

    def add(self, end: float, log_s: float, cut: bool, share: float, job: str) -> None:
        at = bisect_right(self.ends, end)  # the last place, but for runs that come in late
        self.ends.insert(at, end)
        self.logs.insert(at, log_s)
        self.cut.insert(at, cut)
        self.shares.insert(at, share)
        self.jobs.insert(at, job)
        if len(self.ends) > 3 * RUNS_KEPT:
            for kept in (self.ends, self.logs, self.cut, self.shares, self.jobs):
                del kept[:RUNS_KEPT]

    def span(self, moment: float) -> tuple[int, int]:
        """Bounds of the latest runs that had ended by then."""
        last = bisect_right(self.ends, moment)
        return max(0, last - RUNS_KEPT), last


class Errors(Part):
    """The latest values of one kind, such as the errors [log s] of a guess, in order of the ends of
    their runs, and their quantiles."""

    __slots__ = ("_dropped", "_fresh", "_quantiles", "ends", "values")
    NUMBERS = ("ends", "values", "_quantiles", "_fresh", "_dropped")

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.values: list[float] = []
        self._quantiles = np.zeros(0)
        self._fresh = self._dropped = 0

    def add(self, error: float, end: float) -> None:
        """Take in an error; the quantiles follow when enough have come in."""
        at = bisect_right(self.ends, end)
        self.ends.insert(at, end)
        self.values.insert(at, error)
        if len(self.values) > 3 * ERRORS_KEPT:
            del self.ends[:ERRORS_KEPT], self.values[:ERRORS_KEPT]
            self._dropped += ERRORS_KEPT
        self._fresh += 1
        if self._fresh * 10 > self.count:
            self._quantiles = _even_quantiles(self.values[-ERRORS_KEPT:])
            self._fresh = 0

    @property
    def count(self) -> int:
        return min(len(self.values), ERRORS_KEPT)

    def of(self, moment: float) -> tuple[int, Floats]:
        """How many counted at a moment, and their quantiles at `LEVELS`; of the earliest that are
        kept, where those of that moment are no longer."""
        last = bisect_right(self.ends, moment)
        if last == len(self.ends):
            return self.count, self._quantiles
        if self._dropped:
            last = max(last, ERRORS_KEPT)
        values = self.values[max(0, last - ERRORS_KEPT) : last]
        return len(values), _even_quantiles(values) if values else _NOTHING


_NOTHING = np.full(len(LEVELS), np.nan)


def _even_quantiles(values: list[float]) -> Floats:
    """Quantiles at `LEVELS` of values that count the same."""
    at = (np.arange(len(values)) + 0.5) / len(values)
    quantiles: Floats = np.interp(LEVELS, at, np.sort(values))
    return quantiles


class Experts:
    """The experts of one history; see the module. `parts` is where what they learned is kept."""

    def __init__(self, parts: Parts | None = None) -> None:
        self._parts: Parts = {} if parts is None else parts

    def opinions(self, job: Submission) -> Opinions:
        """What each says of a job, from the runs that had ended when it was submitted."""
        groups = job.groups()
        found: list[_Found] = []
        for place, (kind, key) in enumerate(groups):
            group: Group | None = self._parts.get(("group", *key))
            if group is not None:
                first, last = group.span(job.submitted)
                if last > first:
                    found.append((place, kind, group, first, last))
        names = (*OWN_EXPERTS, *job.extra)
        quantiles = np.full((len(names), len(LEVELS)), np.nan)
        said = Opinions(names, quantiles, np.zeros(len(names), bool), {}, groups, len(groups), 0, 0)
        self._points(job, found, said)
        self._nested(job, found, said)
        everything: Errors | None = self._parts.get(ALL)
        if everything is not None:
            quantiles[OWN_EXPERTS.index("global")] = everything.of(job.submitted)[1]
        for row, extra in enumerate(job.extra.values(), len(OWN_EXPERTS)):
            quantiles[row] = extra
        said.awake = ~np.isnan(quantiles[:, 0])
        return said

    def learn(
        self, job: Submission, said: Opinions, ended: float, log_s: float, cut: bool, job_id: str
    ) -> None:
        """Take in a run that ended: what `said` of it, and its time (`cut`: at least that)."""
        for name, (point, context) in said.points.items():
            if not cut or log_s > point:
                for depth in range(len(context) + 1):
                    self._of(("errors", name, *context[:depth]), Errors).add(log_s - point, ended)
        share = log_s - math.log(job.request_s) if job.request_s else math.nan
        for _, key in said.groups:
            self._of(("group", *key), Group).add(ended, log_s, cut, share, job_id)
        if not cut:
            self._of(ALL, Errors).add(log_s, ended)
            if share == share:
                self._of(ALL_SHARES, Errors).add(share, ended)

    def runs_behind(self, job: Submission, place: int, most: int = 16) -> list[str]:
        """Ids of the latest runs of the group at this place of `Submission.groups`."""
        groups = job.groups()
        if place >= len(groups):
            return []
        group: Group | None = self._parts.get(("group", *groups[place][1]))
        if group is None:
            return []
        first, last = group.span(job.submitted)
        return group.jobs[first:last][-most:][::-1]

    def typical_log_s(self) -> float | None:
        """The median of the last runs of all [log s]."""
        everything: Errors | None = self._parts.get(ALL)
        return None if everything is None else float(everything.of(math.inf)[1][P50])

    def _of(self, key: Key, kind: type[P]) -> P:
        part: P | None = self._parts.get(key)
        if part is None:
            part = self._parts[key] = kind()
        return part

    def _with_errors(
        self, said: Opinions, moment: float, name: str, point: float, *context: object
    ) -> None:
        """A guess with the errors that such guesses made: of this context, shrunk to its parents"""
        said.points[name] = (point, context)
        spread = _LAPLACE
        for depth in range(len(context) + 1):
            errors: Errors | None = self._parts.get(("errors", name, *context[:depth]))
            if errors is None:
                break
            count, quantiles = errors.of(moment)
            if not count:
                break
            share = count / (count + FEW)
            spread = share * quantiles + (1 - share) * spread
        said.quantiles[OWN_EXPERTS.index(name)] = point + spread

    def _points(self, job: Submission, found: list[_Found], said: Opinions) -> None:
        for place, kind, group, first, last in found:
            if said.points and kind != "this user":
                continue
            done = [
                log_s
                for log_s, cut in zip(group.logs[first:last], group.cut[first:last], strict=True)
                if not cut
            ]
            if not done:
                continue
            if place < said.finest:
                said.finest, said.runs = place, len(done)
                said.apart = _apart(done)
                several = min(len(done), 3)
                self._with_errors(said, job.submitted, "last", done[-1], kind, said.apart, several)
                weights = _FADING[TYPICAL_HALF_LIFE][-len(done) :]
                mean = float(np.dot(weights, done) / weights.sum())
                self._with_errors(said, job.submitted, "typical", mean, kind, said.apart, several)
            if kind == "this user":
                two = math.log((math.exp(done[-1]) + math.exp(done[-2:][0])) / 2)
                self._with_errors(said, job.submitted, "last two", two, _apart(done[-4:]))

    def _nested(self, job: Submission, found: list[_Found], said: Opinions) -> None:
        of_all: Errors | None = self._parts.get(ALL)
        if of_all is None:
            return
        kept: list[_Kept] = []
        everything: list[_Kept] = []
        for _, _, group, first, last in found:
            part = _Kept(
                np.array(group.logs[first:last]),
                np.array(group.cut[first:last], bool),
                np.array(group.shares[first:last]),
            )
            everything.append(part)
            kept.append(part.completed())
        count, base = of_all.of(job.submitted)
        if not count:
            return
        for name, memory in (("groups, short", SHORT), ("groups, long", LONG)):
            quantiles = _nested_quantiles(kept, "logs", base, memory)
            said.quantiles[OWN_EXPERTS.index(name)] = quantiles
        if any(part.cut.any() for part in everything):  # else it would be the same
            bounds = _nested_quantiles(everything, "logs", base, LONG)
            said.quantiles[OWN_EXPERTS.index("groups, bounds")] = bounds
        shares: Errors | None = self._parts.get(ALL_SHARES)
        count, anybody = (0, base) if shares is None else shares.of(job.submitted)
        if job.request_s and count:
            shape = _nested_quantiles(kept, "shares", anybody, LONG)
            asked = math.log(job.request_s)
            said.quantiles[OWN_EXPERTS.index("request")] = asked + shape
            said.quantiles[OWN_EXPERTS.index("request, anybody's")] = asked + anybody


_Found = tuple[int, str, Group, int, int]
"""The place of a group among the job's groups, its kind, the group, bounds of its runs."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Runs of a group: times [log s], whether cut short, shares of the requested time [log]."""

    logs: Floats
    cut: NDArray[np.bool_]
    shares: Floats

    def completed(self) -> _Kept:
        if not self.cut.any():
            return self
        done = ~self.cut
        return _Kept(self.logs[done], self.cut[done], self.shares[done])


def _nested_quantiles(
    parts: list[_Kept], what: str, base: Floats, memory: tuple[float, float]
) -> Floats:
    """Quantiles of nested groups, the finest first, each shrunk to the next, the last to `base`."""
    values = np.concatenate([*(getattr(part, what) for part in parts), base])
    masses = _shrunk([len(part.logs) for part in parts], *memory)
    cut = np.concatenate([*(part.cut for part in parts), np.zeros(len(base), bool)])
    if np.isnan(values).any():
        stated = ~np.isnan(values)
        values, masses, cut = values[stated], masses[stated], cut[stated]
    order = np.argsort(values, kind="stable")
    return _quantiles(values[order], masses[order], cut[order])


def _shrunk(sizes: list[int], half: float, parent: float) -> Floats:
    """Masses of the runs of nested groups of these sizes, the finest first, and of 25 quantiles
    of all runs, which get what is left."""
    left, masses = 1.0, []
    for size in sizes:
        if not size:
            continue
        weights = _FADING[half][-size:]
        total = float(weights.sum())
        masses.append(weights * (left / (total + parent)))
        left *= parent / (total + parent)
    masses.append(np.full(len(LEVELS), left / len(LEVELS)))
    return np.concatenate(masses)


def _quantiles(values: Floats, masses: Floats, cut: NDArray[np.bool_]) -> Floats:
    """Quantiles at `LEVELS` of ascending values; those `cut` are lower bounds (Kaplan-Meier)."""
    if cut.any():
        remaining = np.maximum(np.cumsum(masses[::-1])[::-1], 1e-300)
        lost = np.where(cut, 0.0, np.minimum(masses / remaining, 1.0))
        lost[-1] = 1.0
        survival = np.cumprod(1.0 - lost)
        masses = -np.diff(survival, prepend=1.0)
        done = masses > 0
        values, masses = values[done], masses[done]
    reached = np.cumsum(masses)
    quantiles: Floats = np.interp(LEVELS * reached[-1], reached - masses / 2, values)
    return quantiles


def _apart(done: list[float]) -> int:
    """How far runs of a group lie apart, as one of a dozen classes: -1 where there is but one."""
    if len(done) < 2:
        return -1
    latest = done[-9:]
    gaps = [abs(one - other) for one, other in pairwise(latest)]
    mean = sum(gaps) / len(gaps)
    return min(max(round(math.log2(mean / 0.01)), 0), 10) if mean > 0 else 0
