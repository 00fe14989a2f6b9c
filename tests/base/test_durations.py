"""Durations in and out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.base.inputs import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("45s", 45),
        ("90m", 5400),
        ("1.5h", 5400),
        ("1d12h", 129_600),
        ("2 h 5 m", 7500),
        ("36:00:00", 129_600),
        ("1-12:00:00", 129_600),
        ("1-12:30", 131_400),
        ("10:30", 630),
    ],
)
def test_parse(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "5x", "nan", "inf", "1:2:3:4", "h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration; write it like"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0.4 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (680, "11 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (172_799, "2 d 0 h"),
        (273_600, "3 d 4 h"),
    ],
)
def test_format(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(min_value=0, max_value=10_000_000))
def test_seconds_survive_slurms_notation(seconds: int) -> None:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    assert parse_duration(f"{hours // 24}-{hours % 24}:{minutes:02}:{rest:02}") == seconds
