"""The mixture of experts as an estimator of a simulation."""

from __future__ import annotations

import random

from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.runs import make_trace_free_estimator


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
