"""The experts on run times and their online mixture."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from schedmate.retrieval.experts import LEVELS, OWN_EXPERTS, P10, P50, P90, Experts, Submission
from schedmate.retrieval.mixture import Forecast, Mixture


def submission(at: float, user: str | None = "ann", **more: object) -> Submission:
    return replace(Submission(at, user=user, name="train", size=4.0, request_s=86_400.0), **more)


def taught(runs: list[tuple[Submission, float, bool]]) -> Mixture:
    """A mixture that has seen runs: submission, run time [s], cut short. In order of their ends."""
    mixture = Mixture()
    for job, run_s, cut in sorted(runs, key=lambda run: run[0].submitted + run[1]):
        mixture.learn(job, job.submitted + run_s, math.log(run_s), cut, f"at {job.submitted:.0f}")
    return mixture


def forecast(mixture: Mixture, job: Submission) -> Forecast:
    result = mixture.predict(job)
    assert result is not None
    return result


def loss(quantiles: np.ndarray, log_s: float) -> float:
    off = log_s - quantiles
    return float(np.maximum(LEVELS * off, (LEVELS - 1) * off).mean())


def test_no_forecast_before_the_first_run_has_ended() -> None:
    mixture = Mixture()
    assert mixture.predict(submission(0.0)) is None
    mixture.learn(submission(0.0), 100.0, math.log(100.0))
    assert mixture.predict(submission(200.0)) is not None


def test_levels_of_the_named_percentiles() -> None:
    assert [round(float(LEVELS[at]), 9) for at in (P10, P50, P90)] == [0.1, 0.5, 0.9]


def test_repeated_work_is_predicted_sharply_and_other_users_do_not_matter() -> None:
    draw = random.Random(1)
    runs = []
    for number in range(400):
        at = number * 1000.0
        runs.append((submission(at), 600.0 * math.exp(draw.gauss(0, 0.02)), False))
        other = submission(at + 1, user=f"user {number % 7}", name=f"job {number % 13}")
        runs.append((other, math.exp(draw.uniform(3, 9)), False))
    result = forecast(taught(runs), submission(1e6))
    assert result.point == pytest.approx(math.log(600), abs=0.1)
    assert result.quantiles[P90] - result.quantiles[P10] < 0.5
    assert np.all(np.diff(result.quantiles) >= 0)
    assert result.weights.sum() == pytest.approx(1.0)


def test_a_run_counts_from_its_end_and_not_from_its_start() -> None:
    """At its end a job is looked at with what was known at its submission."""
    experts = Experts()
    first, second = submission(0.0), submission(10.0)
    experts.learn(first, experts.opinions(first), 50.0, math.log(50.0), False, "first")
    assert not experts.opinions(second).points  # the first one had not ended
    assert experts.opinions(submission(51.0)).points["last"][0] == pytest.approx(math.log(50.0))
    assert experts.runs_behind(submission(51.0), 0) == ["first"]
    assert experts.runs_behind(second, 0) == []
    third = submission(60.0)
    said = experts.opinions(third)
    for number in range(8):  # errors of guesses and the runs of all count from then on, too
        late = submission(55.0 + number / 10)
        experts.learn(late, experts.opinions(late), 100.0 + number, math.log(9.0), False, "late")
    assert np.array_equal(experts.opinions(third).quantiles, said.quantiles, equal_nan=True)
    assert not np.array_equal(experts.opinions(submission(200.0)).quantiles, said.quantiles)


def test_runs_cut_short_are_bounds_and_not_run_times() -> None:
    runs = [(submission(n * 1e4), 5000.0, False) for n in range(6)]
    cut = [(submission(n * 1e4 + 6e4), 100.0, True) for n in range(6)]
    experts = taught([*runs, *cut]).experts
    said = experts.opinions(submission(1e6))
    for name in ("groups, short", "groups, long", "groups, bounds", "last"):
        median = said.quantiles[OWN_EXPERTS.index(name)][P50]
        assert median == pytest.approx(math.log(5000.0), abs=0.2), name
    longer = [(submission(n * 1e5 + 2e5), 50_000.0, True) for n in range(6)]
    said = taught([*runs, *longer]).experts.opinions(submission(1e7))
    bounds, without = (
        said.quantiles[OWN_EXPERTS.index(name)] for name in ("groups, bounds", "groups, long")
    )
    assert bounds[P90] > without[P90] + 1.0


def test_the_state_is_rebuilt_bit_for_bit() -> None:
    draw = random.Random(2)
    runs = [
        (
            submission(n * 50.0, user=f"u{n % 5}", name=draw.choice(["a", "b", None])),
            math.exp(draw.gauss(6, 1)),
            draw.random() < 0.2,
        )
        for n in range(300)
    ]
    one, other = taught(runs), taught(runs)
    asked = submission(1e6, user="u3", name="a")
    assert forecast(one, asked).quantiles.tobytes() == forecast(other, asked).quantiles.tobytes()
    assert forecast(one, asked).point == forecast(other, asked).point
    # asking changes nothing
    assert forecast(one, asked).quantiles.tobytes() == forecast(other, asked).quantiles.tobytes()


def test_an_extra_expert_that_knows_wins_and_one_that_is_silent_costs_nothing() -> None:
    draw = random.Random(3)
    mixture, plain = Mixture(), Mixture()
    shape = np.linspace(-0.02, 0.02, len(LEVELS))
    silent = np.full(len(LEVELS), np.nan)
    informed = losses = 0.0
    for number in range(600):
        log_s = draw.uniform(3, 9)
        job = submission(number * 1e5, name=f"n{number}")
        told = replace(job, extra={"oracle": log_s + shape, "silent": silent})
        if number >= 300:
            informed += loss(forecast(mixture, told).quantiles, log_s)
            losses += loss(forecast(plain, job).quantiles, log_s)
        mixture.learn(told, told.submitted + math.exp(log_s), log_s)
        plain.learn(job, job.submitted + math.exp(log_s), log_s)
    assert informed < 0.2 * losses
    asked = submission(1e9, extra={"oracle": 5.0 + shape, "silent": silent})
    result = forecast(mixture, asked)
    weights = dict(zip(result.names, result.weights, strict=True))
    assert weights["silent"] == 0.0
    assert max(weights, key=lambda name: weights[name]) == "oracle"


@pytest.mark.parametrize("drift", [0.0, 2.0])
def test_the_interval_covers_what_it_says_also_when_run_times_change(drift: float) -> None:
    draw = random.Random(4)
    mixture, inside = Mixture(), []
    for number in range(1500):
        user = f"u{number % 4}"
        job = submission(number * 1e4, user=user, name=None)
        log_s = draw.gauss(6 + number % 4 + (drift if number > 800 else 0), 0.7)
        if number > 500:
            quantiles = forecast(mixture, job).quantiles
            inside.append(quantiles[P10] <= log_s <= quantiles[P90])
        mixture.learn(job, job.submitted + 1.0 + number, log_s)
    assert 0.74 < sum(inside) / len(inside) < 0.86


def test_the_mixture_is_about_as_good_as_its_best_expert() -> None:
    """Nothing drifts and one expert is right: what weights and calibration cost to learn."""
    draw = random.Random(5)
    mixture, total, experts, count = Mixture(), 0.0, np.zeros(len(OWN_EXPERTS)), 0
    habits = {f"u{n}": draw.uniform(4, 9) for n in range(12)}
    for number in range(1200):
        user = draw.choice(list(habits))
        job = submission(number * 1e5, user=user, name=None)
        log_s = habits[user] + draw.gauss(0, 0.8)
        if number > 400:
            result = forecast(mixture, job)
            total += loss(result.quantiles, log_s)
            rows = result.opinions.quantiles
            rows = np.where(np.isnan(rows), rows[OWN_EXPERTS.index("global")], rows)
            experts += [loss(row, log_s) for row in rows]
            count += 1
        mixture.learn(job, job.submitted + math.exp(log_s), log_s)
    assert total / count < 1.04 * experts.min() / count
