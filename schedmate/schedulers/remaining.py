"""Total and remaining run times of jobs, by their logs and estimates."""

from __future__ import annotations

from schedmate.schedulers.model import Job
from schedmate.schedulers.terms import NEVER


def predicted_s(job: Job) -> float:
    """The estimated duration, or the user's time limit, or infinity: such jobs go last."""
    if job.forecast is not None:
        return job.forecast.duration_s
    return NEVER if job.time_limit_s is None else job.time_limit_s


def total_s(job: Job, attained_s: float) -> float:
    """The estimated duration, doubled until a job that has run for `attained_s` can be within it:
    of run times with a heavy tail, who has run for long has long to go [s]."""
    total = max(predicted_s(job), 1.0)
    while total <= attained_s * (1 + 1e-9):
        total *= 2
    return total


def remaining_s(job: Job, now: float) -> float:
    """Expected time left of a job, also of one that failed or was stopped [s].

    By its log where that said (`Job.left`), else by its estimate and how long it has run.
    """
    if job.left is not None:
        ran_s = now - max(job.left.at, job.started) if job.allocation else 0.0
        return max(job.left.seconds - ran_s, 0.0)
    attained_s = job.attained_s(now)
    return total_s(job, attained_s) - attained_s


def slack_s(job: Job, now: float) -> float:
    """Time that a job can still wait and meet its deadline; negative: it will miss it; infinity:
    it has none [s]."""
    deadline = NEVER if job.terms is None else job.terms.deadline
    return deadline if deadline == NEVER else deadline - now - remaining_s(job, now)
