"""Policies that order by the whole distribution of a run time, not by one estimate.

- `gittins`: least Gittins index first, in GPU seconds (Aalto, Ayesta, Righter, On the Gittins
  index in the M/G/1 queue, Queueing Systems 2009; by GPU time as in Tiresias, NSDI'19).
- `serpt`: least expected remaining GPU time first.
- `likely-short`: first what most probably ends within a threshold.

A distribution comes from the quantiles of the job's estimate, given that the job has run for as
long as it has. Between two quantiles jobs end at a constant rate, so that the logarithm of the
share still running is linear there.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

from schedmate.base.errors import UsageError
from schedmate.schedulers.estimators import ABSURD_S, remaining_s, total_s
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import NEVER, Job
from schedmate.schedulers.policies.preemptive import RESTART_S, Preemptive
from schedmate.schedulers.policies.queues import Queue

LEAST_S = 1e-3
"""Shortest run time of a distribution [s]."""
NOBODY = 40.0
"""Minus the logarithm of a share that is as good as none."""
FINE = 1 / 8
"""Part of its value by which the expected time of a running job may have fallen before its rank is
computed again."""
SOONEST_S = 30.0
"""Least time between two such computations [s]."""


class Piece(NamedTuple):
    """A span of a run during which jobs end at a constant rate."""

    length_s: float
    """[s]; 0: those that end here end at once."""
    ends: float
    """Share of the jobs running at its beginning that end in it."""
    held_s: float
    """Mean time that these jobs run in it [s]."""


class RunTime:
    """A distribution of run times.

    Args:
        quantiles: n run times, ascending, each of which stands for 1/n of the probability [s].
        limit_s: runs that would take longer end at this time [s].

    Below the first quantile the distribution begins half a step earlier, on the logarithmic scale;
    beyond the last it has a Pareto tail along the line from the median to the last, in steps that
    double. Quantiles that are all the same are a time that is certain; where the upper half is, no
    run takes longer.
    """

    __slots__ = ("logs", "rate", "times")

    def __init__(self, quantiles: Sequence[float], limit_s: float = NEVER) -> None:
        values = list[float]()
        for value in quantiles:
            least = values[-1] if values else LEAST_S
            values.append(max(least, value))  # NaN too is replaced
        count = len(values)
        first = values[0] * math.sqrt(values[0] / values[1]) if count > 1 else values[0]
        self.times = [0.0, first, *values]
        """Ends of the pieces, the first 0 [s]."""
        self.logs = [0.0, 0.0, *(math.log1p(-(n + 0.5) / count) for n in range(count))]
        """Logarithm of the share that runs for longer than each."""
        self.rate = NEVER
        """Rate at which jobs end after the last time [1/s]; infinity: all have ended by then."""
        middle = (count - 1) // 2
        spread = math.log(values[-1] / values[middle])
        if spread > 0.0:
            self._extend((self.logs[middle + 2] - self.logs[-1]) / spread * math.log(2.0))
        if limit_s < NEVER:
            self._cut(limit_s)

    def _extend(self, drop: float) -> None:
        """Add the tail, which falls by `drop` [log] with each doubling of the time."""
        times, logs = self.times, self.logs
        while True:
            times.append(times[-1] * 2)
            logs.append(logs[-1] - drop)
            if times[-1] >= ABSURD_S or logs[-1] <= -NOBODY:
                break
        self.rate = drop / (times[-1] - times[-2])

    def _cut(self, limit_s: float) -> None:
        if self.rate == NEVER and self.times[-1] <= limit_s:
            return
        place = bisect_right(self.times, limit_s)
        last = self._log(limit_s)
        self.times[place:], self.logs[place:], self.rate = [limit_s], [last], NEVER

    def _log(self, time_s: float) -> float:
        """Logarithm of the share that runs for longer; where all have ended, that of the last."""
        times, logs = self.times, self.logs
        place = bisect_right(times, time_s)
        if place == len(times):
            return logs[-1] - (0.0 if self.rate == NEVER else self.rate * (time_s - times[-1]))
        begin, end = times[place - 1], times[place]
        part = (time_s - begin) / (end - begin)
        return logs[place - 1] + (logs[place] - logs[place - 1]) * part

    def outlived(self, ran_s: float) -> bool:
        """Whether no run takes longer than this [s]."""
        return self.rate == NEVER and ran_s >= self.times[-1]

    def longer(self, time_s: float, ran_s: float = 0.0) -> float:
        """Share of the jobs that have run for `ran_s` whose run takes longer than `time_s` [s]."""
        if time_s <= ran_s:
            return 1.0
        return 0.0 if self.outlived(time_s) else math.exp(self._log(time_s) - self._log(ran_s))

    def pieces(self, ran_s: float) -> Iterator[Piece]:
        """What is ahead of a job that has run for `ran_s` [s], which is not outlived."""
        times, logs = self.times, self.logs
        place = bisect_right(times, ran_s)
        if place < len(times):
            yield _piece(times[place] - ran_s, self._log(ran_s) - logs[place])
            for (begin, high), (end, low) in pairwise(
                zip(times[place:], logs[place:], strict=True)
            ):
                yield _piece(end - begin if end > begin else 0.0, high - low)
        yield Piece(0.0, 1.0, 0.0) if self.rate == NEVER else Piece(NEVER, 1.0, 1.0 / self.rate)


def _piece(length_s: float, drop: float) -> Piece:
    ends = -math.expm1(-drop)
    return Piece(length_s, ends, length_s * ends / drop if drop > 0.0 else length_s)


def run_time(job: Job, now: float) -> RunTime:
    """The distribution of a job's run time; a time that is certain where its log states what is
    left, or where its estimate is a single time. That one is doubled until the job has not outlived
    it, as in `estimators.total_s`."""
    ran_s = job.attained_s(now)
    if job.left is not None:
        return RunTime([ran_s + remaining_s(job, now)])
    quantiles = None if job.forecast is None else job.forecast.quantiles_s
    if quantiles:
        limit_s = NEVER if job.time_limit_s is None else job.time_limit_s
        possible = [min(one, ABSURD_S) for one in quantiles]
        made = RunTime(possible, limit_s if limit_s > ran_s else NEVER)
        if not made.outlived(ran_s):
            return made
    return RunTime([total_s(job, ran_s)])


class Ahead(NamedTuple):
    """What a policy expects of a job."""

    seconds: float
    """The lower, the earlier the job should run [s]."""
    until_s: float = NEVER
    """Time for which the job should run on, whatever else there is [s]."""


def gittins(pieces: Iterator[Piece], start_s: float = 0.0) -> Ahead:
    """The inverse of the Gittins index: the least, over all times to stop, of the time that the job
    will have run until then over the probability that it will have ended by then, both expected.

    `start_s` is the time that it takes to start the job (Asawa, Teneketzis, Multi-armed bandits
    with switching penalties, 1996) [s]. Because the rate of ending is constant within a piece, the
    best time to stop is at the end of one.
    """
    best, best_until = NEVER, NEVER
    at_s = run_s = ended = 0.0
    left = 1.0
    for length_s, ends, held_s in pieces:
        at_s += length_s
        run_s += left * held_s
        ended += left * ends
        left *= 1.0 - ends
        if ended > 0.0 and (value := (start_s + run_s) / ended) < best:
            best, best_until = value, at_s
    return Ahead(best, best_until)


def expected(pieces: Iterator[Piece], start_s: float = 0.0) -> Ahead:
    """The expected time ahead, after the `start_s` that it takes to start the job [s]."""
    total, left = start_s, 1.0
    for _, ends, held_s in pieces:
        total += left * held_s
        left *= 1.0 - ends
    return Ahead(total)


class ByDistribution(Preemptive):
    """Base of the policies that order by what is ahead of a job, times its GPUs.

    Args:
        backfill: a job that does not fit lets later ones pass, without a reservation.
        preempt: stop running jobs for waiting ones that should run earlier; otherwise a job that
            was started keeps its GPUs.
        restart_s: what it costs to start a job in the place of another, in which it does no work;
            with `preempt` alone [s].
    """

    def __init__(
        self, backfill: bool = False, preempt: bool = False, restart_s: float = RESTART_S
    ) -> None:
        self.backfill = backfill
        self.stops = preempt
        self.restart_s = restart_s if preempt else 0.0

    def ahead(self, pieces: Iterator[Piece], start_s: float) -> Ahead:
        """What is ahead of a job, with the time that it takes to start it."""
        raise NotImplementedError

    def _ahead(self, job: Job, now: float) -> Ahead:
        # One that waits has to be started, in the place of another or again.
        start_s = 0.0 if job.allocation else self.restart_s
        return self.ahead(run_time(job, now).pieces(max(job.attained_s(now), 0.0)), start_s)

    def rank(self, job: Job, now: float) -> Rank:
        return (-job.priority, self._ahead(job, now).seconds * job.gpus * job.share)

    def rank_until(self, job: Job, now: float) -> float:
        if not self.stops:
            return NEVER
        seconds, until_s = self._ahead(job, now)
        return now + max(min(seconds * FINE, until_s), SOONEST_S)


class GittinsIndex(ByDistribution):
    """Least Gittins index first: expected GPU time over the probability of ending, for the best
    time to stop.

    Optimal for the mean time in a queue of one server whose jobs can be stopped at no cost. Of jobs
    that are ever more likely to end the one that is nearly done goes first, of jobs that are ever
    less likely to the one that has run least.
    """

    name: ClassVar[str] = "gittins"

    def ahead(self, pieces: Iterator[Piece], start_s: float) -> Ahead:
        return gittins(pieces, start_s)


class Serpt(ByDistribution):
    """Shortest expected remaining processing time first, times GPUs.

    Optimal for one server whose jobs cannot be stopped.
    """

    name: ClassVar[str] = "serpt"

    def ahead(self, pieces: Iterator[Piece], start_s: float) -> Ahead:
        return expected(pieces, start_s)


class LikelyShort(Queue):
    """First the job that most probably has no more than `threshold_s` ahead of it.

    Args:
        backfill: a job that does not fit lets later ones pass, without a reservation.
        threshold_s: what is short; best the site's median run time [s].
    """

    name: ClassVar[str] = "likely-short"

    def __init__(self, backfill: bool = False, threshold_s: float = 3600.0) -> None:
        super().__init__(backfill)
        if threshold_s <= 0:
            raise UsageError("policy likely-short: threshold_s must be above 0.")
        self.threshold_s = threshold_s

    def rank(self, job: Job, now: float) -> Rank:
        ran_s = job.attained_s(now)
        # Among equals, as among those whose time is certain, the shortest goes first.
        longer = run_time(job, now).longer(ran_s + self.threshold_s, ran_s)
        return (-job.priority, longer, remaining_s(job, now))
