"""Times that do not say everything: no year, no day, seconds since boot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.logparse.reading.lines import dated, parse_time, seconds_apart

MOMENTS = (
    st.integers(1_451_606_400, 2_082_758_400)
    .map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
    .filter(lambda moment: (moment.month, moment.day) != (2, 29))
)


def at(text: str) -> float:
    found = parse_time(text)
    assert found is not None, text
    return found


@given(MOMENTS, st.timedeltas(timedelta(days=-150), timedelta(days=150)))
def test_a_date_without_a_year_is_that_nearest_to_the_other(
    moment: datetime, later: timedelta
) -> None:
    later = timedelta(seconds=int(later.total_seconds()))
    whole = at(f"{moment:%Y-%m-%d %H:%M:%S} step 1")
    other = moment + later
    if (other.month, other.day) == (2, 29):
        other += timedelta(days=1)
    part = at(f"{other:%b %d %H:%M:%S} gpu-7 kernel: NVRM: Xid")
    gap = (other - moment).total_seconds()
    assert seconds_apart(part, whole) == gap
    assert seconds_apart(whole, part) == -gap
    assert dated(part, [5.0, whole]) == other.timestamp()


def test_new_year_between_two_dates_without_a_year() -> None:
    old, new = at("Dec 31 23:59:50 a kernel: x"), at("Jan  1 00:00:10 a kernel: x")
    assert (seconds_apart(new, old), seconds_apart(old, new)) == (20.0, -20.0)


@pytest.mark.parametrize("line", ["[12345.678901] NVRM: Xid", "[10:11:12] step 4", "10:11:12 | x"])
def test_without_a_day_there_is_nothing_to_compare_with_dates(line: str) -> None:
    for date in ("2024-10-10 10:11:12 x", "Oct 10 10:11:12 a kernel: x"):
        assert seconds_apart(at(line), at(date)) is None
        assert seconds_apart(at(date), at(line)) is None
    assert dated(at(line), [at("2024-10-10 10:11:12 x")]) is None
    assert seconds_apart(at("[10:11:15] y"), at("[10:11:12] x")) == 3.0


def test_a_leap_day_next_to_years_without_one() -> None:
    assert seconds_apart(at("Feb 29 00:00:00 a b"), at("2024-03-01 00:00:00 x")) == -86_400.0
    assert seconds_apart(at("Feb 29 00:00:00 a b"), at("2022-06-01 00:00:00 x")) == 0.0


def test_no_date_is_invented() -> None:
    assert dated(None, [at("2024-03-01 00:00:00 x")]) is None
    assert dated(at("Feb 14 00:00:00 a b"), []) is None
    assert dated(at("2024-03-01 00:00:00 x"), []) == datetime(2024, 3, 1, tzinfo=UTC).timestamp()
