"""What the learnt models say and why: of all jobs, and of one (Lucid, section 3.5 and figure 7)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

from schedmate.base.errors import InputError
from schedmate.base.inputs import format_duration
from schedmate.schedulers.estimators import BIN_S
from schedmate.schedulers.learned import (
    LOGARITHMIC_FEATURES,
    RUN_TIME_FEATURES,
    Ga2m,
    Learned,
    LearnedLoad,
    Term,
)
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.workload import Workload

LEAST = 20
"""Least number of ended jobs for a fit."""


@dataclass(frozen=True)
class Local:
    """The estimate for one job, divided into the contributions of the model's terms."""

    job: str
    answer_s: float
    true_s: float
    """The run time in the trace [s]."""
    contributions: dict[str, float]
    """By term; they add up to the logarithm of `answer_s` + 1."""
    values: dict[str, float | None]
    """The job's value of each feature, mean run times in [s]; None: unknown."""


@dataclass(frozen=True)
class Explanation:
    """A fitted model, taken apart. The answer is the exponential of the sum of all terms."""

    model: str
    """`run-times` or `submissions`."""
    fitted_on: int
    """Ended jobs, or bins of ten minutes."""
    intercept: float
    terms: list[Term]
    local: Local | None = None


def explain_run_times(workload: Workload, job: str | None = None) -> Explanation:
    """The Workload Estimate Model, fitted on a trace as if every job started at its submission.

    With `job`, an id, it is the model as of that job's submission, and its estimate is broken down.
    Raises `InputError` if there is no such job, or too few jobs before it.
    """
    if job is not None and job not in {ended.id for ended in workload.jobs}:
        raise InputError(
            f"the trace has no job {job!r}; its ids go from {workload.jobs[0].id!r} to "
            f"{workload.jobs[-1].id!r}."
        )
    learned = Learned("ga2m", least=len(workload) + 1)
    target = None
    for ended in replay(workload, learned):
        if ended.id == job:
            target = ended
            break
    row = None if target is None else learned.describe(target)
    if learned.ended < LEAST:
        raise InputError(
            f"only {learned.ended} jobs had ended by then, and a model of run times needs {LEAST}; "
            "name a later job, or give a longer trace."
        )
    learned.fit(0.0)
    fitted: Ga2m = learned.fitted
    local = None
    if target is not None and row is not None:
        (features,) = learned.matrix([row]).tolist()
        local = Local(
            target.id,
            learned.seconds(row),
            workload.duration_s[target.index],
            fitted.contributions(features),
            {
                RUN_TIME_FEATURES[column]: _value(RUN_TIME_FEATURES[column], row[column])
                for column in learned.columns
            },
        )
    return Explanation("run-times", learned.ended, fitted.intercept, fitted.terms(), local)


def explain_submissions(workload: Workload) -> Explanation:
    """The Throughput Predict Model, fitted on all submissions of a trace.

    Raises `InputError` when the trace is too short.
    """
    load = LearnedLoad()
    times = [job.submit_time for job in workload.jobs]
    if times[-1] - times[0] < load.least_s:
        raise InputError(
            "the throughput model needs two weeks of submissions; this trace has "
            f"{format_duration(times[-1] - times[0])}; explain run times instead, or give a longer "
            "trace."
        )
    load.expected(times, times[-1])
    bins = int((times[-1] - times[0]) // BIN_S)
    return Explanation("submissions", bins, load.model.intercept, load.model.terms())


def replay(workload: Workload, learned: Learned) -> Iterator[Job]:
    """Every job at its submission, after `learned` has learned from all jobs that had ended.

    Every job starts when it is submitted, and its GPU use is known, as after profiling.
    """
    running: list[tuple[float, int]] = []
    jobs = workload.jobs
    for index, job in enumerate(jobs):
        while running and running[0][0] <= job.submit_time:
            _, ended = heapq.heappop(running)
            learned.observe(jobs[ended], workload.duration_s[ended], completed=True)
        job.profile = workload.profiles[index]
        yield job
        learned.estimate(job)
        heapq.heappush(running, (job.submit_time + workload.duration_s[index], index))


def _value(feature: str, value: float) -> float | None:
    if math.isnan(value):
        return None
    return math.expm1(value) if feature in LOGARITHMIC_FEATURES else value
