"""SchedMate's three modules as settings of a policy, and the parts that they become in a run.

`Advisor` is an estimator, `PackingTracker` and `RunTracker` are observers, `HandledFailures`
decides restarts. A live cluster gives them the same sources of metadata and logs as a simulation.
"""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from schedmate.base.errors import UsageError
from schedmate.jobs import Estimate, JobRecord, LaunchConfig, Progress
from schedmate.logparse.failure.handler import diagnose
from schedmate.logparse.progress.ratio import WARM_UP, throughput_ratio
from schedmate.logparse.progress.tracker import NOTHING, track
from schedmate.logparse.reading import Log, LogError, open_log
from schedmate.retrieval.advisor import Method, SchedulingAdvisor
from schedmate.retrieval.experts import Submission
from schedmate.retrieval.history import MemoryHistory
from schedmate.retrieval.mixture import Mixture
from schedmate.retrieval.remaining import remaining_time
from schedmate.schedulers.adapters.simulated import SimulatedLogs, log_of_failure
from schedmate.schedulers.estimators import ABSURD_S, Estimator, UserMean
from schedmate.schedulers.model import Forecast, Job, Left
from schedmate.schedulers.policy import Observer, Policy
from schedmate.schedulers.sim.world import Equipment, JobFailures, World

if TYPE_CHECKING:
    from schedmate.jobs import WorkloadMetadata
    from schedmate.retrieval.advisor import PastJobs
    from schedmate.schedulers.sim.workload import Workload
    from schedmate.schedulers.sim.world import Again, Failure, FailureRates


class MetadataSource(Protocol):
    """A source of jobs' metadata."""

    def metadata_of(self, job: Job) -> WorkloadMetadata | None:
        """Metadata of one job; None: unknown."""
        ...

    def known_metadata(self) -> Iterable[WorkloadMetadata]:
        """All metadata that is known beforehand, which is embedded at once. Empty on a live
        cluster."""
        ...


class Window(Protocol):
    """Part of a job's log during which its circumstances did not change."""

    def progress(self) -> Progress:
        """The Metric Tracker's reading of it; the log is read when this is called."""
        ...


class LogSource(Protocol):
    """The logs of jobs while they run."""

    def kind_of(self, job: Job) -> str:
        """The workload that the job is a run of: jobs of one kind are equally fast alone."""
        ...

    def mark(self, job: Job) -> None:
        """The job runs differently from now on: it has started, got company, or is alone again."""
        ...

    def window(self, job: Job) -> Window:
        """What the job has written since the last `mark`, with all before it to compare."""
        ...

    def alone(self, job: Job) -> Window | None:
        """The window of a past job of this workload that ran alone; None: too little to measure its
        speed."""
        ...


class FailureLogs(Protocol):
    """The logs that failed jobs leave."""

    def of_failure(self, job: str, attempt: int) -> Log | None:
        """The log of an attempt, counted from 0, of the job with this id; None: there is none."""
        ...


def track_file(path: Path, since: int) -> Progress:
    """The Metric Tracker's answer about a file from this offset on [bytes].

    Untrusted logs are better read in a confined process (`schedmate.readers`).
    """
    try:
        with open_log(path) as log:
            return track(log.files[0], since=since)
    except LogError as error:
        return Progress(reason=str(error))


@dataclass(frozen=True)
class FileWindow:
    """A file from an offset on [bytes]."""

    path: Path
    since: int
    read: Callable[[Path, int], Progress] = track_file

    def progress(self) -> Progress:
        """See `Window`."""
        return self.read(self.path, self.since)


class LogFiles:
    """The logs of a live cluster: a `LogSource` over growing files.

    Args:
        path_of: the log file of a job; None: unknown.
        kind_of: see `LogSource`; by default each job is a workload of its own.
        read: reads a file from an offset on.
    """

    def __init__(
        self,
        path_of: Callable[[Job], Path | None],
        kind_of: Callable[[Job], str] = lambda job: job.id,
        read: Callable[[Path, int], Progress] = track_file,
    ) -> None:
        self._path_of = path_of
        self._kind_of = kind_of
        self._read = read
        self._marks: dict[str, int] = {}

    def kind_of(self, job: Job) -> str:
        """See `LogSource`."""
        return self._kind_of(job)

    def mark(self, job: Job) -> None:
        """See `LogSource`."""
        path = self._path_of(job)
        try:
            self._marks[job.id] = 0 if path is None else path.stat().st_size
        except OSError:
            # The job has not written anything yet.
            self._marks[job.id] = 0

    def window(self, job: Job) -> Window:
        """See `LogSource`."""
        path = self._path_of(job)
        since = self._marks.get(job.id, 0)
        return _NoWindow() if path is None else FileWindow(path, since, self._read)

    def alone(self, job: Job) -> Window | None:
        """See `LogSource`."""
        window = self.window(job)
        self._marks.pop(job.id, None)
        return window if isinstance(window, FileWindow) and window.path.exists() else None


class _NoWindow:
    def progress(self) -> Progress:
        return Progress(reason=NOTHING)


# The Scheduling Advisor as an estimator (SchedMate paper, sections 3.1, 4.1 and 4.3).
#
# It estimates at submission, and its history grows as jobs end: it never uses the future. Where it
# abstains, or its estimate is not a possible duration, another estimator is used.


PAPER_LATENCY_S = 9.0
"""Mean latency of the paper's advisor with a language model of 7B (section 5.2) [s]."""

_log = logging.getLogger("schedmate")


class Advisor(Estimator, Observer):
    """Estimates from the jobs that have ended so far.

    Args:
        source: provides the metadata of each job's code; a `Workload` of the simulator is one.
        fallback: estimator used when the advisor abstains; by default the user's mean.
        history: past jobs from before the trace, to which new ones are added; by default none.
        method: `mean` is the paper's mean of the `k` nearest, `weighted` is ours.
        latency_s: time that an estimate takes [s].
        risk: how far the weighted estimate is moved from the median towards the mean of a
            log-normal with the same 10th and 90th percentile, from 0 to 1 (ours).
        error: standard deviation of the logarithm of an artificial error of every estimate.
    """

    name: ClassVar[str] = "advisor"

    def __init__(
        self,
        source: MetadataSource,
        fallback: Estimator | None = None,
        *,
        history: PastJobs | None = None,
        method: Method = "weighted",
        k: int = 3,
        threshold: float | None = None,
        latency_s: float = PAPER_LATENCY_S,
        risk: float = 0.0,
        error: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.fallback = UserMean() if fallback is None else fallback
        self.oracle = self.fallback.oracle
        self._of = source.metadata_of
        self._latency_s = latency_s
        self._risk = risk if method == "weighted" else 0.0
        self._error = error
        self.seed = seed
        self._history = MemoryHistory(_embedder()) if history is None else history
        if isinstance(self._history, MemoryHistory):
            self._history.prepare(source.known_metadata())
        self._advisor = SchedulingAdvisor(self._history, method=method, k=k, threshold=threshold)
        self._clock = 0.0
        self.counts = {"asked": 0, "matched": 0, "abstained": 0, "rejected": 0, "failed": 0}
        self.warnings: Counter[str] = Counter()

    def estimate(self, job: Job) -> Forecast | None:
        """The advisor's forecast, else that of the fallback."""
        fallback = self.fallback.estimate(
            job
        )  # in any case, as it may learn from its own estimates
        self._clock = max(self._clock, job.submit_time)
        forecast = self._ask(job)
        return fallback if forecast is None else forecast

    def latency_s(self, job: Job) -> float:
        """Every job is analysed, matched or not."""
        return self._latency_s if self._of(job) is not None else 0.0

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        """A job has ended: from now on it may be a neighbour."""
        self.fallback.observe(job, run_time_s, completed)
        metadata = self._of(job)
        if metadata is None:
            return
        use = job.profile
        try:
            self._history.add(  # type: ignore[attr-defined]
                JobRecord(
                    job_id=job.id,
                    user=job.user or None,
                    launch=_launch(job),
                    metadata=metadata,
                    state="COMPLETED" if completed else "FAILED",
                    submit_time=job.submit_time,
                    end_time=self._now(),
                    duration_s=run_time_s,
                    gpu_util=None if use is None else use.gpu_util,
                    gpu_mem_mb=None if use is None else use.memory_mb,
                )
            )
        except Exception as error:  # noqa: BLE001 - advice fails open
            self._fail(error)

    def matched(self, job: Job, estimate: Estimate) -> None:
        """The job is like past ones: for adapters that take more than a duration from them."""

    def _ask(self, job: Job) -> Forecast | None:
        metadata = self._of(job)
        if metadata is None:
            return None
        self.counts["asked"] += 1
        try:
            estimate = self._advisor.estimate(metadata, _launch(job), self._now())
        except Exception as error:  # noqa: BLE001 - advice fails open
            self._fail(error)
            return None
        forecast = Forecast.of(estimate)
        if forecast is None:
            self.counts["abstained"] += 1
            return None
        duration_s = forecast.duration_s
        low, high = estimate.duration_p10_s, estimate.duration_p90_s
        if self._risk and low and high:
            sigma = math.log(high / low) / 2.56  # of a normal distribution between them
            duration_s *= math.exp(self._risk * sigma**2 / 2)
        quantiles_s = forecast.quantiles_s
        if self._error:
            draw = random.Random(f"{self.seed}/{job.id}")  # noqa: S311 - an experiment
            factor = math.exp(draw.gauss(0.0, self._error))
            duration_s *= factor
            quantiles_s = quantiles_s and tuple(one * factor for one in quantiles_s)
        if not 0 < duration_s <= ABSURD_S:  # NaN too
            self.counts["rejected"] += 1
            self.warnings["the advisor's estimate was not a possible run time"] += 1
            return None
        self.counts["matched"] += 1
        self.matched(job, estimate)
        return forecast._replace(
            duration_s=duration_s, method=f"advisor/{forecast.method}", quantiles_s=quantiles_s
        )

    def _now(self) -> float:
        return self.watch.now if hasattr(self, "watch") else self._clock

    def _fail(self, error: Exception) -> None:
        """Count it; say each reason once."""
        self.counts["failed"] += 1
        reason = f"the advisor had no answer: {error}"
        if not self.warnings[reason]:
            _log.warning(reason)
        self.warnings[reason] += 1


class ExpertMixture(Estimator):
    """The mixture of experts on run times (docs/estimation.md), learning as jobs end.

    It goes by user, name, GPUs, time limit and virtual cluster of a job, and needs no code. The
    estimate is the time that most probably lies within a factor of two of the truth, with the whole
    distribution.
    """

    name: ClassVar[str] = "experts"

    def __init__(self) -> None:
        self._mixture = Mixture()
        self._now = 0.0

    def estimate(self, job: Job) -> Forecast | None:
        self._now = max(self._now, job.submit_time)
        said = self._mixture.predict(_submission(job, job.submit_time))
        if said is None:
            return None
        point_s = min(math.exp(said.point), ABSURD_S)
        quantiles_s = tuple(map(math.exp, said.quantiles.tolist()))
        return Forecast(point_s, None, None, self.name, quantiles_s)

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        log_s = math.log(max(run_time_s, 1.0))
        # when it ended is not said, only that it has: before whatever is asked for next
        asked = _submission(job, min(job.submit_time, self._now))
        self._mixture.learn(asked, self._now, log_s, cut=not completed)


def _submission(job: Job, at: float) -> Submission:
    return Submission(
        at,
        user=job.user or None,
        name=job.name or None,
        size=job.gpus * job.share,
        request_s=job.time_limit_s,
        kind=job.vc or None,
    )


def _launch(job: Job) -> LaunchConfig:
    return LaunchConfig(gpus=job.gpus, gpu_type=job.gpu_type or None)


@cache
def _embedder() -> Any:
    """The bundled embedder, loaded once for many runs."""
    from schedmate.retrieval.embedders import load_embedder

    return load_embedder()


# The Failure Handler in charge of restarts (SchedMate paper, sections 3.3 and 4.3).
#
# A failed job leaves a log, as real text. The handler's verdict decides, right or wrong: a failure
# of the infrastructure that it misses waits for the job's user, and a bug that it mistakes for one
# is restarted for nothing.


HANDLING_S = 300.0
"""Test of the node and restart: an assumption; the diagnosis itself takes milliseconds [s]."""
MOST_RESTARTS = 1
"""Restarts of one job at about the same progress after which its user is notified: a job that fails
twice at one point will fail there again, whatever its log says."""


class Restarts:
    """Decides by their logs whether failed jobs are restarted unchanged."""

    def __init__(self, logs: FailureLogs) -> None:
        self._logs = logs
        self._restarts: dict[str, tuple[int, float]] = {}

    def says(self, job: str, attempt: int) -> bool:
        """The verdict on the log of this attempt, counted from 0; none: no."""
        log = self._logs.of_failure(job, attempt)
        if log is None:
            return False
        with log:
            plan = diagnose(log).plan
        return plan is not None and plan.restart != "no"

    def may(self, job: str, done: float) -> bool:
        """Whether a job that failed after this much work may be restarted [s]."""
        return self._count(job, done) < MOST_RESTARTS

    def restarted(self, job: str, done: float) -> None:
        """Count a restart of the job after this much work [s]."""
        self._restarts[job] = (self._count(job, done) + 1, done)

    def _count(self, job: str, done: float) -> int:
        count, work = self._restarts.get(job, (0, -1.0))
        return count if abs(work - done) <= 0.01 * done + 60 else 0


class HandledFailures(JobFailures):
    """The same failures, restarted by the handler if its plan is a restart.

    `recall` and `false_alarms` replace its verdict by random draws: the share of infrastructure
    failures that it recognises, and of bugs that it mistakes for one.
    """

    def __init__(
        self,
        workload: Workload,
        rates: FailureRates,
        seed: int = 0,
        *,
        handling_s: float = HANDLING_S,
        recall: float | None = None,
        false_alarms: float | None = None,
    ) -> None:
        super().__init__(workload, rates, seed)
        self._handling_s = handling_s
        self._dice = (recall, false_alarms)
        self._failure: Failure | None = None
        self._restarts = Restarts(self)
        self.counts = {"handled": 0, "missed": 0, "in_vain": 0, "left_to_user": 0}

    def after(self, failure: Failure) -> Again | None:
        """See `Faults.after`."""
        if failure.node is not None:
            return super().after(failure)
        bug, name = self.is_bug(failure), self._workload.jobs[failure.job].id
        if self._restarts.may(name, failure.done) and self.says_restart(failure):
            self.counts["in_vain" if bug else "handled"] += 1
            self._restarts.restarted(name, failure.done)
            return self.restart(failure, self._handling_s)
        self.counts["left_to_user" if bug else "missed"] += 1
        return self.by_user(failure)

    def says_restart(self, failure: Failure) -> bool:
        """Whether the verdict on this failure's log is to restart the job."""
        chance = self._dice[self.is_bug(failure)]
        if chance is not None:
            seed = f"{self.seed}/{failure.job}/{failure.attempt}"
            return random.Random(seed).random() < chance  # noqa: S311 - an experiment
        self._failure = failure
        return self._restarts.says(self._workload.jobs[failure.job].id, failure.attempt)

    def of_failure(self, job: str, attempt: int) -> Log | None:
        """See `FailureLogs`: the logs of the failure that is being handled."""
        failure = self._failure
        if failure is None:
            return None
        return log_of_failure(self._workload, failure, self.seed, bug=self.is_bug(failure))


# SchedMate's three modules as settings of a policy, and the parts that they become in a run.


class WithSchedMate(Policy):
    """Base of policies with SchedMate's modules around them: `class X(WithSchedMate, Policy)`.

    Args:
        advisor: whether the Scheduling Advisor estimates; else the estimator of other policies.
        method: `weighted` (ours), or `mean` (the paper's mean of the k nearest).
        k: neighbours of the mean.
        similarity: least cosine similarity of a neighbour; 0: the embedder's default.
        latency_s: time that the advisor takes for a job [s].
        risk: 0: the median of the advisor's interval, 1: the corresponding mean.
        error: standard deviation of the logarithm of an artificial error of its estimates.
        tracker: whether the Metric Tracker reads the logs of jobs that share GPUs.
        progress: whether it also reads those of jobs that run alone, which say how long they still
            take (ours).
        detection_rate: share of pairs whose slowdown may be detected.
        baseline: whether logs of past jobs of a workload provide its speed alone if a job's own log
            does not (ours).
        handler: whether the Failure Handler restarts jobs, if failures are simulated.
        handling_s: time that this takes [s].
        recall: share of infrastructure failures that it recognises; -1: the real handler decides.
        false_alarms: share of bugs that it mistakes for one; -1: the real handler decides.
    """

    advisor_type: type[Advisor] = Advisor

    def __init__(
        self,
        advisor: bool = True,
        method: str = "weighted",
        k: int = 3,
        similarity: float = 0.0,
        latency_s: float = PAPER_LATENCY_S,
        risk: float = 0.0,
        error: float = 0.0,
        tracker: bool = True,
        progress: bool = False,
        detection_rate: float = 1.0,
        baseline: bool = True,
        handler: bool = True,
        handling_s: float = HANDLING_S,
        recall: float = -1.0,
        false_alarms: float = -1.0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if method not in ("weighted", "mean"):
            raise UsageError(f"method={method}: choose weighted or mean.")
        if k < 1 or latency_s < 0 or error < 0 or not 0 <= detection_rate <= 1:
            raise UsageError(
                "k is at least 1, latency_s and error not negative, detection_rate from 0 to 1."
            )
        self.advisor = advisor
        self.method: Method = "mean" if method == "mean" else "weighted"
        self.k = k
        self.similarity = similarity
        self.latency_s = latency_s
        self.risk = risk
        self.error = error
        self.tracker = tracker
        self.progress = progress
        self.detection_rate = detection_rate
        self.baseline = baseline
        self.handler = handler
        self.handling_s = handling_s
        self.recall = recall
        self.false_alarms = false_alarms

    def equip(self, world: World) -> Equipment:
        """See `Equipped`."""
        parts: dict[str, Any] = {}
        if self.advisor:
            parts["advisor"] = self.advisor_type(
                world.workload,
                world.estimator,
                method=self.method,
                k=self.k,
                threshold=self.similarity or None,
                latency_s=self.latency_s,
                risk=self.risk,
                error=self.error,
                seed=world.seed,
            )
        if self.tracker:
            parts["logs"] = SimulatedLogs(world.workload, world.seed)
            parts["tracker"] = PackingTracker(
                parts["logs"],
                detection_rate=self.detection_rate,
                baseline=self.baseline,
                seed=world.seed,
            )
        if self.tracker and self.progress:
            parts["progress"] = RunTracker(parts["logs"])
        if self.handler and world.failures is not None:
            parts["handler"] = HandledFailures(
                world.workload,
                world.failures,
                world.seed,
                handling_s=self.handling_s,
                recall=None if self.recall < 0 else self.recall,
                false_alarms=None if self.false_alarms < 0 else self.false_alarms,
            )
        return Equipment(
            estimator=parts.get("advisor"),
            faults=parts.get("handler"),
            observers=tuple(
                parts[name] for name in ("advisor", "logs", "tracker", "progress") if name in parts
            ),
            report=lambda: {
                **{name: dict(part.counts) for name, part in parts.items() if name != "logs"},
                "warnings": dict(parts["advisor"].warnings) if "advisor" in parts else {},
            },
        )


# The Metric Tracker beside a policy that shares GPUs (SchedMate paper, section 4.1).
#
# Once a job shares its GPUs, its log from before and after is read, as real text in one of many
# formats. If the log has nothing of the time before, because the job was packed too soon, that of
# the last job of the same workload that ran alone is used (ours). The result becomes
# `Job.slowdown`, which the policy reads; if the tracker abstains, nothing changes.


TRIES = 6
"""Most readings of a log; each waits twice as long as the last."""
LEAST_WAIT_S = 30.0
"""Between two readings of one log [s]."""


@dataclass
class _Watched:
    """A job that shares its GPUs, and its speed alone."""

    before: Progress
    at: float
    partner: Job
    wait_s: float
    tries: int = 0


class PackingTracker(Observer):
    """Measures the slowdown of the first job of a pair from its log.

    `detection_rate`: share of pairs whose slowdown may be detected at all (section 5.5); the number
    actually detected depends on the logs.
    """

    def __init__(
        self,
        logs: LogSource,
        *,
        detection_rate: float = 1.0,
        baseline: bool = True,
        seed: int = 0,
    ) -> None:
        """Args:
        logs: the logs of jobs.
        detection_rate: share of the pairs whose slowdown is detected, 0 to 1.
        baseline: whether logs of past jobs replace what a log lacks.
        seed: of the pairs that are not detected."""
        self._logs = logs
        self._baseline = baseline
        self._rate = detection_rate
        self._seed = seed
        self._is_alone: set[int] = set()
        self._watched: dict[int, _Watched] = {}
        self._past: dict[str, Window | Progress] = {}
        self.counts = {"pairs": 0, "read": 0, "measured": 0, "by_past_job": 0, "untracked": 0}

    def started(self, job: Job) -> None:
        """The job begins to log."""
        if job.partner is None:
            self._is_alone.add(job.index)
            self._logs.mark(job)

    def packed(self, job: Job) -> None:
        """Its log so far is the baseline for later comparison."""
        assert job.partner is not None
        self.counts["pairs"] += 1
        self._is_alone.discard(job.index)
        alone, now = self._logs.window(job), self.watch.now
        self._logs.mark(job)
        draw = random.Random(f"{self._seed}/{job.id}/{job.partner.id}")  # noqa: S311
        if draw.random() >= self._rate:
            return
        own = before = self._measure(alone)
        if own.step_time_s is not None:
            self._past[self._logs.kind_of(job)] = own
        elif (past := self._of_past_job(job)) is not None:
            self.counts["by_past_job"] += 1
            before = past
        if before.step_time_s is None:
            self.counts["untracked"] += 1
            return
        wait_s = max(LEAST_WAIT_S, 2 * WARM_UP * before.step_time_s)
        self._watched[job.index] = _Watched(before, now, job.partner, wait_s)
        self.watch.wake(self, job, now + wait_s)

    def woken(self, job: Job) -> None:
        """Read on; try again later if the log has too little."""
        pair = self._watched.get(job.index)
        if pair is None or job.partner is not pair.partner or self.watch.now < pair.at:
            return
        ratio = throughput_ratio(pair.before, self._measure(self._logs.window(job))).ratio
        if ratio is not None:
            self.counts["measured"] += 1
            del self._watched[job.index]
            job.slowdown = ratio
            self.watch.changed(job)
            return
        pair.tries += 1
        if pair.tries == TRIES:
            self.counts["untracked"] += 1
            del self._watched[job.index]
            return
        pair.wait_s *= 2
        self.watch.wake(self, job, self.watch.now + pair.wait_s)

    def unpacked(self, job: Job) -> None:
        """The job is alone again; the measurement no longer applies."""
        self._watched.pop(job.index, None)
        self._is_alone.add(job.index)
        self._logs.mark(job)
        job.slowdown = None
        # An evicted job may start elsewhere at once.
        self.watch.changed(job)

    def ended(self, job: Job) -> None:
        """Its log is kept as that of a past job, and read when it is needed."""
        if self._baseline and job.index in self._is_alone:
            alone = self._logs.alone(job)
            if alone is not None:
                self._past[self._logs.kind_of(job)] = alone

    def stopped(self, job: Job) -> None:
        """The job does not log any more: forget what was read of it."""
        self._watched.pop(job.index, None)
        self._is_alone.discard(job.index)
        job.slowdown = None

    def _of_past_job(self, job: Job) -> Progress | None:
        """How fast the last job of this workload was alone, by its log."""
        kind = self._logs.kind_of(job)
        past = self._past.get(kind) if self._baseline else None
        if past is None or isinstance(past, Progress):
            return past
        read = self._past[kind] = self._measure(past)
        return read

    def _measure(self, window: Window) -> Progress:
        self.counts["read"] += 1
        return window.progress()


# How long running jobs still take: their estimates, as they still run, and their logs together.


class RunTracker(Observer):
    """Tells the policy the time that jobs which run alone have left, as `Job.left`.

    A job is looked at a minute after it started, and then whenever the time since has doubled. What
    is told is the median of the posterior (`retrieval/remaining.py`). Beside a `PackingTracker`,
    which marks the logs.
    """

    def __init__(self, logs: LogSource) -> None:
        self._logs = logs
        self._due: dict[int, float] = {}
        self.counts = {"read": 0, "told": 0}

    def started(self, job: Job) -> None:
        """The job begins to log."""
        self._wait(job, 2 * LEAST_WAIT_S)

    def woken(self, job: Job) -> None:
        """Read its log."""
        now = self.watch.now
        if self._due.get(job.index) != now or not job.allocation:
            return
        if job.partner is None:
            self.counts["read"] += 1
            progress = self._logs.window(job).progress()
            left = remaining_time(job.attained_s(now), _at_submission(job), progress)
            if "log" in left.sources and left.remaining_s is not None:
                self.counts["told"] += 1
                job.left = Left(left.remaining_s, now)
                self.watch.changed(job)
        self._wait(job, max(now - job.started, 2 * LEAST_WAIT_S))

    def stopped(self, job: Job) -> None:
        """What it has left does not change while it waits."""
        self._due.pop(job.index, None)
        if job.left is not None:
            now = self.watch.now
            job.left = Left(max(job.left.seconds - (now - job.left.at), 0.0), now)

    def ended(self, job: Job) -> None:
        """It is not read any more."""
        self._due.pop(job.index, None)

    def _wait(self, job: Job, wait_s: float) -> None:
        self._due[job.index] = self.watch.now + wait_s
        self.watch.wake(self, job, self._due[job.index])


def _at_submission(job: Job) -> Estimate | None:
    """The distribution of the job's forecast."""
    spread = None if job.forecast is None else job.forecast.quantiles_s
    return None if not spread else Estimate(quantiles_s=list(spread), abstained=False)
