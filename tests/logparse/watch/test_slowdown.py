"""The change-point detector on step times: what it finds, how soon, and how seldom it is wrong."""

from __future__ import annotations

import math
import random

import pytest

from schedmate.logparse.watch.slowdown import present_slowdown, slowdowns


def step_times(seed: int, count: int, *, spread: float = 0.05, pause: int = 50) -> list[float]:
    """Step times with noise, and a pause of 30 steps after every `pause` lines."""
    draw = random.Random(seed)
    return [
        math.exp(draw.gauss(0.0, spread)) * (30.0 if n % pause == pause - 1 else 1.0)
        for n in range(count)
    ]


def test_an_even_run_with_pauses_has_no_slowdown() -> None:
    assert not [one for seed in range(100) for one in slowdowns(step_times(seed, 1000))]


def test_noise_alone_hardly_ever_is_a_slowdown() -> None:
    found = [one for seed in range(50) for one in slowdowns(step_times(seed, 1000, spread=0.5))]
    assert len(found) <= 2  # of 50,000 readings, as by Siegmund's approximation


@pytest.mark.parametrize("ratio", [1.3, 1.5, 2.0, 10.0])
def test_a_slowdown_is_found_soon_with_its_size_and_its_beginning(ratio: float) -> None:
    delays = []
    for seed in range(50):
        times = step_times(seed, 400)
        times = [each * (ratio if n >= 300 else 1.0) for n, each in enumerate(times)]
        found = [one for one in slowdowns(times) if one.over is None]
        assert len(found) == 1
        assert abs(found[0].first - 300) <= 30
        assert found[0].ratio == pytest.approx(ratio, rel=0.1)
        delays.append(found[0].found - 299)
    assert sorted(delays)[len(delays) // 2] <= 8


def test_the_last_five_slow_steps_of_two_hundred_are_found() -> None:
    times = step_times(3, 200, pause=10_000)
    times[-5:] = [1.5 * each for each in times[-5:]]
    slowdown = present_slowdown(times)
    assert slowdown is not None
    assert slowdown.first == 195
    assert slowdown.ratio == pytest.approx(1.5, rel=0.1)


def test_a_certain_change_that_is_small_is_none() -> None:
    times = [each * (1.1 if n >= 300 else 1.0) for n, each in enumerate(step_times(1, 800))]
    assert not slowdowns(times)
    slower = [each * (1.6 if n >= 600 else 1.0) for n, each in enumerate(times)]
    assert [abs(one.first - 600) < 10 for one in slowdowns(slower)] == [True]


def test_a_slowdown_ends() -> None:
    times = [each * (2.0 if 300 <= n < 400 else 1.0) for n, each in enumerate(step_times(2, 600))]
    (slowdown,) = slowdowns(times)
    assert slowdown.over is not None
    assert 400 <= slowdown.over <= 405
    assert present_slowdown(times) is None
    assert present_slowdown(times[:390]) is not None


def test_a_run_that_becomes_faster_is_judged_by_its_new_speed() -> None:
    times = [each * (0.5 if n >= 300 else 1.0) for n, each in enumerate(step_times(4, 900))]
    assert not slowdowns(times)
