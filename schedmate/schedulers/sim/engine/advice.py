"""What the estimator contributes to a simulation: forecasts at submission, lessons at the end."""

from __future__ import annotations

from schedmate.schedulers.estimators import ABSURD_S, Estimator
from schedmate.schedulers.model import Forecast, Job
from schedmate.schedulers.sim.engine.execution import Execution
from schedmate.schedulers.sim.workload import Workload


class Advice:
    """Asks the estimator about jobs, rejects impossible answers, and lets it learn.

    Args:
        trace_durations: whether the true run time of a job is that of the trace; else it is the
            time for which the job held GPUs.
    """

    __slots__ = (
        "_durations",
        "_estimate",
        "_estimator",
        "_execution",
        "_states",
        "is_late",
        "learns",
        "rejected",
    )

    def __init__(
        self,
        estimator: Estimator,
        workload: Workload,
        execution: Execution,
        *,
        trace_durations: bool,
    ) -> None:
        self._estimator = estimator
        self._estimate = estimator.estimate
        self._execution = execution
        self._durations = workload.duration_s if trace_durations else None
        self._states = workload.states
        self.is_late = type(estimator).latency_s is not Estimator.latency_s
        """Whether estimates take time, so that jobs are submitted later."""
        self.learns = type(estimator).observe is not Estimator.observe
        """Whether the estimator wants to know of jobs that have ended."""
        self.rejected = 0
        """Number of unusable forecasts: durations that no job can have."""

    def forecast(self, job: Job) -> Forecast | None:
        """The estimator's forecast for a job, unless it is an impossible duration.

        A duration of 0 or an absurdly long one is only accepted from an oracle.
        """
        forecast = self._estimate(job)
        if forecast is None or 0 < forecast.duration_s <= ABSURD_S:
            return forecast
        if self._estimator.oracle and forecast.duration_s >= 0:
            return forecast
        self.rejected += 1
        return None

    def latency_s(self, job: Job) -> float:
        """Time that the estimate for this job takes [s]."""
        return self._estimator.latency_s(job)

    def learn(self, job: Job) -> None:
        """Report a job that has ended to the estimator, if that learns."""
        if not self.learns:
            return
        index, execution, states = job.index, self._execution, self._states
        if job.failures and execution.done[index] < execution.physics.work[index]:
            self._estimator.observe(job, job.service_s, completed=False)
            return
        # The run time without the effects of sharing and restarts.
        run_time_s = job.service_s if self._durations is None else self._durations[index]
        self._estimator.observe(job, run_time_s, not states or states[index] == "COMPLETED")
