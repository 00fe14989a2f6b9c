"""Ticks of axes: round values, one unit an axis, few enough to be read."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.report import charts

DAY = 86_400.0


def units(labels: list[str]) -> set[str]:
    return {re.sub(r"[\d,.:]+", "#", label) for label in labels}


@given(st.floats(0, 1e7), st.floats(1, 1e8))
def test_times_on_a_linear_axis_have_one_unit(low: float, width: float) -> None:
    axis = charts.linear_axis("x", low, low + width, "duration")
    assert len(units(list(axis.labels()))) <= 1
    assert len(set(axis.labels())) == len(axis.ticks)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 53, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s"]),
        (0, 400, ["0 min", "1 min", "2 min", "3 min", "4 min", "5 min", "6 min"]),
        (0, 100_000, ["0 h", "6 h", "12 h", "18 h", "24 h"]),
        (
            100 * DAY,
            101 * DAY,
            ["100 d 00 h", "100 d 06 h", "100 d 12 h", "100 d 18 h", "101 d 00 h"],
        ),
        (500, 520, ["8:20 min", "8:25 min", "8:30 min", "8:35 min", "8:40 min"]),
    ],
)
def test_times_are_written_as_people_do(low: float, high: float, labels: list[str]) -> None:
    assert list(charts.linear_axis("x", low, high, "duration").labels()) == labels


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1, 2e5, ["1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d"]),
        (6.39, 402.6, ["10 s", "20 s", "30 s", "1 min", "2 min", "5 min"]),
        (200, 210, ["200 s", "202 s", "204 s", "206 s", "208 s", "210 s"]),
    ],
)
def test_times_on_a_logarithmic_axis_are_round(low: float, high: float, labels: list[str]) -> None:
    assert list(charts.log_duration_axis("x", low, high).labels()) == labels
    scaled = charts.logarithm_axis("x", math.log1p(low), math.log1p(high))
    assert list(scaled.labels()) == labels


@given(st.floats(-6, 6), st.floats(0.01, 12))
def test_factors_are_round_and_few(low: float, width: float) -> None:
    axis = charts.effect_axis("x", low, low + width)
    assert 1 <= len(axis.ticks) <= 9
    assert all(low - 1e-9 <= one <= low + width + 1e-9 for one in axis.ticks)
    assert len(set(axis.labels())) == len(axis.ticks)


@given(st.floats(0, 4e9), st.floats(600, 2e9))
def test_dates_of_an_axis_have_one_form(low: float, width: float) -> None:
    labels = list(charts.linear_axis("x", low, low + width, "time").labels())
    assert len(labels) <= 6
    assert len({len(one) for one in labels}) <= 1
    assert len(set(labels)) == len(labels)


def test_factors_and_their_inverses_are_written_alike() -> None:
    near = list(charts.effect_axis("x", math.log(0.78), math.log(1.12)).labels())
    assert near == [": 1.25", ": 1.2", ": 1.15", ": 1.1", ": 1.05", "x 1", "x 1.05", "x 1.1"]
    assert charts.effect_axis("x", math.log(0.2), math.log(6)).labels() == [
        *(": 5", ": 2", "x 1", "x 2", "x 5")
    ]


def test_dates_are_round() -> None:
    start = 1_760_000_000.0  # 2025-10-09
    assert charts.linear_axis("x", start, start + 1700 * DAY, "time").labels() == [
        *("2026", "2027", "2028", "2029", "2030")
    ]
    assert charts.linear_axis("x", start, start + 20 * DAY, "time").labels() == [
        *("2025-10-11", "2025-10-15", "2025-10-19", "2025-10-23", "2025-10-27")
    ]
