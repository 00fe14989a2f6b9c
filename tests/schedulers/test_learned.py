"""Learnt durations: better than a mean where there is something to learn, and never from later."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from schedmate.base.errors import UsageError
from schedmate.schedulers import Cluster, Forecast, Job
from schedmate.schedulers.estimators import Estimator, UserMean
from schedmate.schedulers.learned import Learned, QuasiShortest, Rolling
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.runs import make_trace_free_estimator
from schedmate.schedulers.sim.workload import Workload

DAY = 86_400.0


def recurrent(count: int = 700) -> Workload:
    """Users with jobs of two names: one always short, one always long, with a little noise."""
    draw = random.Random(1)
    jobs, durations = [], []
    for index in range(count):
        user, name = draw.choice("abc"), draw.choice(["eval", "train"])
        base = {"a": 1, "b": 2, "c": 4}[user] * (60.0 if name == "eval" else 3600.0)
        jobs.append(
            Job(str(index), index, index * 300.0, 1, user=user, name=f"{name}_{draw.randrange(99)}")
        )
        durations.append(base * draw.uniform(0.9, 1.1))
    return Workload("recurrent", jobs, durations, [None] * count)


class Kept(Estimator):
    """Keeps what another estimator said."""

    def __init__(self, inner: Estimator) -> None:
        self.inner = inner
        self.said: dict[int, float] = {}

    def estimate(self, job: Job) -> Forecast | None:
        forecast = self.inner.estimate(job)
        if forecast is not None:
            self.said[job.index] = forecast.duration_s
        return forecast

    def observe(self, job: Job, run_time_s: float, completed: bool) -> None:
        self.inner.observe(job, run_time_s, completed)


def error(workload: Workload, estimator: Estimator) -> float:
    """Median factor between estimate and truth over the last third of the jobs."""
    kept = Kept(estimator)
    Simulation(workload, make("sjf"), Cluster.parse("8x8"), estimator=kept).run()
    late = range(len(workload) * 2 // 3, len(workload))
    return statistics.median(
        math.exp(abs(math.log(kept.said[i] / workload.duration_s[i]))) for i in late
    )


@pytest.mark.parametrize("model", ["boosting", "ga2m"])
def test_learns_what_recurs(model: str) -> None:
    workload = recurrent()
    learned = Learned(model, least=200, rounds=200)
    assert error(workload, learned) < 1.5
    assert error(workload, UserMean()) > 1.8
    assert learned.fits == 1
    if model == "ga2m":
        # What an additive model has learnt can be read off it.
        assert "name" in learned.fitted.terms()[0].name


def test_the_future_changes_no_estimate() -> None:
    workload = recurrent(400)
    said = []
    for factor in (1.0, 50.0):
        changed = Workload(
            "changed",
            workload.jobs,
            [d * (factor if i >= 350 else 1.0) for i, d in enumerate(workload.duration_s)],
            workload.profiles,
        )
        kept = Kept(Learned("boosting", update_s=DAY / 4, least=100))
        Simulation(changed, make("fifo"), Cluster.parse("8x8"), estimator=kept).run()
        said.append([kept.said.get(i) for i in range(350)])
    assert said[0] == said[1]


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UsageError, match="no model 'oracle'; there are boosting, ga2m"):
        Learned("oracle")


def test_qssf_learns_from_the_last_jobs_of_a_name_and_from_all() -> None:
    workload = recurrent()
    assert error(workload, QuasiShortest(least=200)) < 1.1 < error(workload, UserMean())


def test_later_jobs_of_a_name_count_more() -> None:
    rolling = Rolling(fading=0.5)
    jobs = [Job(str(n), n, 0.0, 1, user="a", name=f"train_{n}") for n in range(3)]
    assert rolling.estimate(jobs[0]) is None
    rolling.observe(jobs[0], 100.0, completed=True)
    rolling.observe(jobs[1], 200.0, completed=True)
    found = rolling.estimate(jobs[2])
    assert found is not None
    assert found.duration_s == 150.0
    # A name that the user never had: the mean of their jobs of as many GPUs.
    other = rolling.estimate(Job("x", 3, 0.0, 1, user="a", name="serve"))
    assert other is not None
    assert other.method == "user-mean"


def test_how_much_each_half_counts() -> None:
    workload = recurrent(30)
    first, second = workload.jobs[:2]
    for weight in (0.0, 0.5, 1.0):
        one = QuasiShortest(weight=weight)
        one.estimate(first)
        one.observe(first, 100.0, completed=True)
        assert one.estimate(second) is not None
    with pytest.raises(UsageError, match="weight"):
        QuasiShortest(weight=2.0)


def test_users_who_repeat_themselves_are_known_and_strangers_are_not() -> None:
    draw = random.Random(3)
    estimator = make_trace_free_estimator("experts")
    assert estimator is not None
    usual = {"ann": 60.0, "bob": 7_200.0}
    first = Job("0", 0, 0.0, 1, user="ann")
    assert estimator.estimate(first) is None

    for number in range(1, 81):
        user = draw.choice(["ann", "bob"])
        job = Job(str(number), number, 1_000.0 * number, 1, user=user)
        estimator.estimate(job)
        estimator.observe(job, usual[user] * draw.lognormvariate(0, 0.1), completed=True)

    for user, seconds in usual.items():
        said = estimator.estimate(Job("x", 99, 1e6, 1, user=user))
        assert said is not None
        assert seconds / 1.5 < said.duration_s < seconds * 1.5
