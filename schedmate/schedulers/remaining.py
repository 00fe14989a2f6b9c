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
    """The estimated duration, doubled until it exceeds the time that the job has run [s].

    With heavy-tailed run times, a job that has run for long is expected to run for long.
    """
    total = max(predicted_s(job), 1.0)
    while total <= attained_s * (1 + 1e-9):
        total *= 2
    return total


def remaining_s(job: Job, now: float) -> float:
    """Expected remaining time of a job, also of one that failed or was stopped [s].

    From its log if that states it (`Job.left`), else from its estimate and its time so far.
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
