"""The timestamp of a line, in the formats found in logs.

Times without a zone count as UTC. Dates without a year are stored in the year 2000, times without a
date in 1970: `apart` compares such times, `dated` returns only those with a date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

LOOKED_AT = 120
"""A timestamp has to be within this many characters of the start of its line."""
NO_YEAR = 2000
"""The year for formats without one; a leap year, so that each of their dates exists."""
NO_DAY = 1970
"""The year for formats with only the time of day, and for seconds since boot."""

_UNDATED = datetime(1999, 1, 1, tzinfo=UTC).timestamp()
_DATED = datetime(NO_YEAR + 1, 1, 1, tzinfo=UTC).timestamp()
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
_ZONE = r"(?:\s?(Z|UTC|GMT|[+-]\d\d:?\d\d))?"

_SHAPES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], float]], ...]


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of the first timestamp near the start of a line, or None."""
    head = text[:LOOKED_AT]
    if ":" not in head and head[:1] not in ("[", "<", "(", "1"):
        return None
    for pattern, read in _SHAPES:
        if match := pattern.search(head):
            try:
                return read(match)
            except (ValueError, OverflowError):
                continue
    return None


def apart(one: float, other: float) -> float | None:
    """How much later the first of two times is [s], or None if they are not comparable.

    A date without a year is taken as the one nearest to the other time; times of day and seconds
    since boot are not compared with dates.
    """
    if (one < _UNDATED) != (other < _UNDATED):
        return None
    if one < _UNDATED or (one >= _DATED and other >= _DATED):
        return one - other
    if one >= _DATED:
        return -_nearest(other, one)
    return _nearest(one, other)


def _nearest(one: float, other: float) -> float:
    """How much later a time without a year is than another one, at most half a year."""
    moment, near = datetime.fromtimestamp(one, UTC), datetime.fromtimestamp(other, UTC).year
    if other < _DATED:
        return min((one - other + days * 86_400.0 for days in (0, -366, 366)), key=abs)
    gaps = []
    for year in (near, near - 1, near + 1):
        with suppress(ValueError):  # 29 February
            gaps.append(moment.replace(year=year).timestamp() - other)
    return min(gaps, key=abs, default=0.0)


def dated(time: float | None, others: Iterable[float]) -> float | None:
    """A time with its date; one without a year takes that of the first dated one of the others."""
    if time is None or time < _UNDATED:
        return None
    near = time if time >= _DATED else next((one for one in others if one >= _DATED), None)
    return None if near is None else near + (apart(time, near) or 0.0)


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0


def _seconds(
    year: int, month: int, day: int, clock: tuple[str, ...], zone: str | None = None
) -> float:
    hour, minute, second, fraction = clock
    where: timezone = UTC
    if zone and zone[0] in "+-":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        where = timezone(-offset if zone[0] == "-" else offset)
    # a leap second is the last second of its minute
    at = datetime(year, month, day, int(hour), int(minute), min(int(second), 59), tzinfo=where)
    return at.timestamp() + _fraction(fraction)


def _month(name: str) -> int:
    return _MONTHS.index(name.lower()) // 4 + 1


def _year_first(match: re.Match[str]) -> float:
    year, month, day, *clock, zone = match.groups()
    return _seconds(int(year), int(month), int(day), tuple(clock), zone)


def _year_last(match: re.Match[str]) -> float:
    first, second, year, hour, *clock, half = match.groups()
    month, day = (first, second) if int(first) <= 12 else (second, first)
    years = int(year) + (2000 if len(year) == 2 else 0)
    if half:  # 12:05 AM is 00:05
        hour = str(int(hour) % 12 + (12 if half[0] in "Pp" else 0))
    return _seconds(years, int(month), int(day), (hour, *clock))


def _minutes(match: re.Match[str]) -> float:
    year, month, day, hour, minute = match.groups()
    return _seconds(int(year), int(month), int(day), (hour, minute, "0", ""))


def _syslog(match: re.Match[str]) -> float:
    month, day, *clock, year = match.groups()
    return _seconds(int(year or NO_YEAR), _month(month), int(day), tuple(clock))


def _named_month(match: re.Match[str]) -> float:
    day, month, year, *clock = match.groups()
    return _seconds(int(year), _month(month), int(day), tuple(clock))


def _month_day(match: re.Match[str]) -> float:
    month, day, *clock = match.groups()
    return _seconds(NO_YEAR, int(month), int(day), tuple(clock))


def _clock_only(match: re.Match[str]) -> float:
    return _seconds(NO_DAY, 1, 2, match.groups())


def _number(match: re.Match[str]) -> float:
    value = float(match[1])
    return value / 1000 if value >= 1e12 else value


_EPOCH = re.compile(r"(?<![\w.])[\[(]?(1[0-9]{9}(?:\.\d+)?|1[0-9]{12})[\])]?(?=[\s,:|])")
_MONTH_NAME = r"([A-Z][a-z]{2})"
_SHAPES = (
    # 2024-10-10 12:34:56,789   2024-10-10T12:34:56.789Z   2024/10/10 12:34:56
    (re.compile(rf"(\d{{4}})[-/.](\d\d)[-/.](\d\d)[ T_,-]\s?{_CLOCK}{_ZONE}"), _year_first),
    # 20241010 12:34:56   20241010-12:34:56
    (re.compile(rf"(?<!\d)(20\d\d)(\d\d)(\d\d)[ T_-]{_CLOCK}{_ZONE}"), _year_first),
    # 10/28/2024 12:34:56   28-10-2024 12:34:56   24/10/28 would be read as year last: rare
    (
        re.compile(
            rf"(?<!\d)(\d\d?)[-/.](\d\d?)[-/.](\d{{4}}|\d\d)[ T,-]\s?{_CLOCK}(?: ?([AaPp][Mm])\b)?"
        ),
        _year_last,
    ),
    # Thu Oct 10 12:34:56 2024   Oct 10 12:34:56
    (re.compile(rf"\b{_MONTH_NAME} +(\d{{1,2}}),? {_CLOCK}(?: (\d{{4}})\b)?"), _syslog),
    # 10 Oct 2024 12:34:56
    (
        re.compile(rf"(?<!\d)(\d{{1,2}})[ /-]{_MONTH_NAME}[ /-](\d{{4}})[ :]{_CLOCK}"),
        _named_month,
    ),
    # I1010 12:34:56.789012 (glog)
    (re.compile(rf"(?:^|[\s\].])[IWEFD](\d\d)(\d\d) {_CLOCK}"), _month_day),
    # 10-10 12:34:56
    (re.compile(rf"(?<![\d/.-])(\d\d)[-/](\d\d) {_CLOCK}"), _month_day),
    # 1728563696.123
    (_EPOCH, _number),
    # 2024-10-10 12:34
    (
        re.compile(r"(?<!\d)(20\d\d)[-/.](\d\d)[-/.](\d\d)[ T_,-]\s?(\d\d):(\d\d)(?![:\d])"),
        _minutes,
    ),
    # [12:34:56]   12:34:56.789 |
    (re.compile(rf"^(?:[A-Z]+\s)?[\[(]?{_CLOCK}(?=[\]),\s|-])"), _clock_only),
    # the kernel's seconds since boot: [12345.678901]
    (re.compile(r"^(?:<\d+>)?\[\s*(\d{1,10}\.\d{3,6})\]"), _number),
)
