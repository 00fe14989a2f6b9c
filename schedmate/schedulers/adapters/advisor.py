"""The Scheduling Advisor as an estimator (SchedMate paper, sections 3.1, 4.1 and 4.3).

It estimates at submission, and its history grows as jobs end: it never uses the future. Where it
abstains, or its estimate is not a possible duration, another estimator is used.
"""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from schedmate.jobs import JobRecord, LaunchConfig
from schedmate.retrieval.advisor import Method, SchedulingAdvisor
from schedmate.retrieval.memory import MemoryHistory
from schedmate.schedulers.estimators import ABSURD_S, Estimator, UserMean
from schedmate.schedulers.model import Forecast, Job
from schedmate.schedulers.observer import Observer

if TYPE_CHECKING:
    from schedmate.jobs import Estimate
    from schedmate.retrieval.advisor import PastJobs
    from schedmate.schedulers.adapters.sources import MetadataSource

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
        if self._error:
            draw = random.Random(f"{self.seed}/{job.id}")  # noqa: S311 - an experiment
            duration_s *= math.exp(draw.gauss(0.0, self._error))
        if not 0 < duration_s <= ABSURD_S:  # NaN too
            self.counts["rejected"] += 1
            self.warnings["the advisor's estimate was not a possible run time"] += 1
            return None
        self.counts["matched"] += 1
        self.matched(job, estimate)
        return forecast._replace(duration_s=duration_s, method=f"advisor/{forecast.method}")

    def _now(self) -> float:
        return self.watch.now if hasattr(self, "watch") else self._clock

    def _fail(self, error: Exception) -> None:
        """Count it; say each reason once."""
        self.counts["failed"] += 1
        reason = f"the advisor had no answer: {error}"
        if not self.warnings[reason]:
            _log.warning(reason)
        self.warnings[reason] += 1


def _launch(job: Job) -> LaunchConfig:
    return LaunchConfig(gpus=job.gpus, gpu_type=job.gpu_type or None)


@cache
def _embedder() -> Any:
    """The bundled embedder, loaded once for many runs."""
    from schedmate.retrieval.embedders import load_embedder

    return load_embedder()
