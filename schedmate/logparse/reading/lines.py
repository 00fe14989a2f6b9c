"""Parses one line of a log: its text without control sequences, its rank or node, and its time.

The rank, node or process that wrote a line is in its prefix (`prefixes.yaml`) or in the file's
name; timestamps are read in the formats found in logs. `uncoloured` takes colours out of whole
chunks and maps positions back, so that patterns see neighbouring words as neighbours.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import NamedTuple

from schedmate.base.data import load
from schedmate.base.inputs import moment_of
from schedmate.base.terminal import strip_escapes
from schedmate.logparse.numbers import bounded_time

_REDRAW = re.compile(r"[\r\b]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]+")
LONGEST_TEXT = 1 << 14
"""Characters of a line, or of one refresh of a bar. Of a longer one the middle is left out, so that
no pattern gets a text on which its time could grow without bound."""
_KEPT_END = 1 << 12


class Line(NamedTuple):
    """One line of a log, with its place, writer and time.

    `number` counts line feeds from 1. `text` is decoded, without escape sequences, control
    characters and the prefix that said `rank` and `node`; of a line with redraws it is the last
    one that is not blank, and it has at most `LONGEST_TEXT` characters. `time` [s since epoch;
    local times count as UTC] is None where the line has none. Lines of one process share `stream`.
    `raw` is the line as it stands in the file.
    """

    number: int
    text: str
    rank: int | None
    node: str | None
    time: float | None
    stream: str
    raw: bytes

    @property
    def refreshes(self) -> list[str]:
        """All redraws of a progress bar, the first one first; of a plain line just its text."""
        return refreshes(self.raw)


def _decode(raw: bytes) -> str:
    """Decoded as UTF-8, or as Latin-1 if it is not valid UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def plain(raw: bytes) -> str:
    """A piece of a line as text without escape sequences and control characters.

    Of one longer than `LONGEST_TEXT` it is the beginning and the end.
    """
    text = _decode(raw)
    if len(text) > LONGEST_TEXT:
        text = f"{text[: LONGEST_TEXT - _KEPT_END]} {text[1 - _KEPT_END :]}"
    if text.isprintable() or text.replace("\t", " ").isprintable():
        return text
    return _CONTROL.sub("", strip_escapes(text))


def refreshes(raw: bytes) -> list[str]:
    """What a line showed on a terminal, one after the other; blank ones are left out."""
    if b"\r" not in raw and b"\b" not in raw:
        text = plain(raw)
        return [text] if text else []
    texts = (plain(part.encode()) for part in _REDRAW.split(_decode(raw)))
    return [text for text in texts if text.strip()]


def parse_line(raw: bytes, number: int, layout: Layout | None = None) -> Line:
    """One line, given without its line feed; `layout` is that of its file."""
    shown = refreshes(raw)
    if not shown:
        return Line(number, "", None, None, None, "", raw)
    origin, text = split_prefix(shown[0], unambiguous_prefixes() if layout is None else layout)
    time = parse_time(text) if len(text) == len(shown[0]) else parse_time(shown[0])
    if len(shown) > 1:
        text = shown[-1]
    return Line(number, text, origin.rank, origin.node, time, origin.stream, raw)


def sniff_layout(sample: bytes) -> Layout:
    """The prefixes that count in a file of which `sample` is a part."""
    if b"\r" not in sample and b"\b" not in sample:  # as `refreshes`, all at once
        cut = [line[:400] for line in _decode(sample).split("\n")]
        if not _may_be_common(list(map(_plain, cut[::ONE_IN]))):
            return unambiguous_prefixes()
        return layout_of(list(map(_plain, cut)))
    return layout_of([shown[0] for raw in sample.split(b"\n") if (shown := refreshes(raw[:400]))])


def _plain(text: str) -> str:
    return text if text.isprintable() else plain(text.encode())


# The rank, node or process that wrote a line, by its prefix or the file's name.


COMMON_PREFIX = 0.5
"""Share of the lines that must have an ambiguous prefix for it to count."""
ONE_IN = 7
"""One line in so many is asked first whether any ambiguous prefix may be common."""
NESTED_PREFIXES = 3
"""Limit for the prefixes removed from one line (`0: [rank0]: ...`)."""


class PrefixForm(NamedTuple):
    """One format of a prefix by which launchers and loggers name the writer of a line."""

    name: str
    pattern: re.Pattern[str]
    sniff: bool


class Origin(NamedTuple):
    """The writer of a line. `stream` is equal for all lines of one process, or empty."""

    rank: int | None = None
    node: str | None = None
    stream: str = ""


Layout = tuple[PrefixForm, ...]
"""The prefix forms that count in one file."""


@cache
def prefix_forms() -> Layout:
    """All known forms, from prefixes.yaml."""
    return tuple(
        PrefixForm(entry["name"], re.compile(entry["pattern"]), entry.get("sniff", False))
        for entry in load("logparse/reading/prefixes.yaml")
    )


@cache
def unambiguous_prefixes() -> Layout:
    """The forms that are recognised from a single line."""
    return tuple(form for form in prefix_forms() if not form.sniff)


def layout_of(lines: list[str]) -> Layout:
    """The forms that count among these lines of one file."""
    lines = [line for line in lines if line.strip()]
    common = []
    for form in prefix_forms():
        if form.sniff:
            prefixes = [match[0] for line in lines if (match := form.pattern.match(line))]
            # a timestamp or a counter would be different on every line
            if (
                len(prefixes) > COMMON_PREFIX * len(lines)
                and len(set(prefixes)) <= len(prefixes) // 2
            ):
                common.append(form)
    return (*unambiguous_prefixes(), *common)


def _may_be_common(some: list[str]) -> bool:
    """Whether an ambiguous form is on so many of some lines that all are worth a look."""
    lines = [line for line in some if line.strip()]
    least = COMMON_PREFIX / 2 * len(lines)
    return any(
        len([line for line in lines if form.pattern.match(line)]) >= least
        for form in prefix_forms()
        if form.sniff
    )


_STAMP = re.compile(
    r"[\[(]?"
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ]|\d\d[-/]\d\d(?:[-/]\d{2,4})? |[A-Z][a-z]{2} {1,2}\d{1,2} )?"
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|UTC| ?[+-]\d\d:?\d\d)?[\])]?:?[ \t]+(?:[-|][ \t]+)?"
)
_LEVEL = re.compile(
    r"[\[(]?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)[\])]?[ \t]*[-:|]?[ \t]+", re.IGNORECASE
)


def split_prefix(text: str, layout: Layout) -> tuple[Origin, str]:
    """The writer of a line, and the line without the prefix that named it.

    A timestamp before a rank or a host is removed with it; a level between the two stays.
    """
    origin, rest = _split_form(text, layout)
    if len(rest) < len(text) or not (stamp := _STAMP.match(text)):
        return origin, rest
    level = _LEVEL.match(text, stamp.end())
    start = level.end() if level else stamp.end()
    origin, rest = _split_form(text[start:], layout)
    if not origin.stream:
        return Origin(), text
    return origin, (level[0] if level else "") + rest


def _split_form(text: str, layout: Layout) -> tuple[Origin, str]:
    """The writer of a line by the prefixes at its beginning, and the rest of it."""
    rank, node, streams = None, None, []
    for _ in range(NESTED_PREFIXES):
        if not text or (text[0] not in _FIRST and not text[0].isalnum()):
            break
        match = next((m for form in layout if (m := form.pattern.match(text))), None)
        if match is None:
            break
        groups = match.groupdict()
        stated_rank = groups.get("rank") or groups.get("rank2")
        rank = rank if stated_rank is None else int(stated_rank)
        node = groups.get("node") or node
        if stated_rank or groups.get("node") or groups.get("pid"):
            streams.append(match[0].strip())
        text = text[match.end() :]
    return Origin(rank, node, " ".join(streams)), text


_FIRST = frozenset("[( ")

_RANK_IN_NAME = re.compile(
    r"(?:rank|worker|task|proc|process|local_rank|replica|pod|gpu)[-_. ]?(\d{1,6})(?!\d)",
    re.IGNORECASE,
)
_NUMBER_AT_END = re.compile(
    r"^(?!.*(?:job|slurm|run|exp|version|seed|epoch|attempt|v)[-_.]?\d+$)(?:.*[-_.])?(\d{1,5})$",
    re.IGNORECASE,
)
_TASK_OF_JOB = re.compile(r"[^\d.][^.]{0,80}-(\d{1,12})\.(\d{1,5})\.(?:out|err)")
"""NAME-JOB.TASK.out"""
_NODE_IN_NAME = re.compile(r"(?:node|host)[-_]?[A-Za-z]*\d+[\w-]*")
_STANDARD = re.compile(r"std(?:out|err)(?:\.log|\.txt)?", re.IGNORECASE)


def origin_of_file(path: Path, root: Path) -> Origin:
    """Rank and node in the name of a file in the log directory `root`."""
    relative = path.relative_to(root)
    name = relative.name
    stem = name.split(".")[0]
    parents = list(relative.parts[:-1])
    rank: int | None = None
    if match := _RANK_IN_NAME.search(name):
        rank = int(match[1])
    elif match := _TASK_OF_JOB.fullmatch(name):
        rank = int(match[2])
    elif match := _NUMBER_AT_END.search(stem):
        rank = int(match[1])
    elif _STANDARD.fullmatch(name) or stem in ("error", "stdout", "stderr"):
        # as torchelastic names them, RUN_ID/attempt_0/3/stderr.log
        if parents and (match := re.fullmatch(r"(?:rank[-_]?)?(\d{1,6})", parents[-1])):
            rank = int(match[1])
    elif named := [one for part in parents if (one := _RANK_IN_NAME.fullmatch(part))]:
        rank = int(named[-1][1])
    node = _NODE_IN_NAME.search(stem)
    return Origin(rank, node[0] if node else None, str(relative))


# The timestamp of a line, in the formats found in logs.
#
# Times without a zone count as UTC. Dates without a year are stored in the year 2000, times
# without a date in 1970: `seconds_apart` compares such times, `dated` returns only those with a
# date.


STAMP_WITHIN = 120
"""A timestamp has to be within this many characters of the start of its line."""
NO_YEAR = 2000
"""The year for formats without one; a leap year, so that each of their dates exists."""
NO_DAY = 1970
"""The year for formats with only the time of day, and for seconds since boot."""

_UNDATED = datetime(1999, 1, 1, tzinfo=UTC).timestamp()
_DATED = datetime(NO_YEAR + 1, 1, 1, tzinfo=UTC).timestamp()
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
_CLOCKED = re.compile(r"\d:\d")
_ZONE = r"(?:\s?(Z|UTC|GMT|[+-]\d\d:?\d\d))?"

_SHAPES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], float]], ...]


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of the first timestamp near the start of a line, or None."""
    head = text[:STAMP_WITHIN]
    if ":" not in head and head[:1] not in ("[", "<", "(", "1"):
        return None
    for pattern, read in _SHAPES if _CLOCKED.search(head) else _COUNTS:
        if match := pattern.search(head):
            with suppress(ValueError, OverflowError):
                if (time := bounded_time(read(match))) is not None:
                    return time
    return None


def seconds_apart(one: float, other: float) -> float | None:
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
    moment, near = moment_of(one), moment_of(other).year
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
    return None if near is None else near + (seconds_apart(time, near) or 0.0)


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
_COUNTS = tuple(shape for shape in _SHAPES if shape[1] is _number)
"""The shapes without a time of day."""


# Removes colour escape sequences from the bytes of a log, and maps positions back.
#
# Without this, patterns that look at the beginning of a line or at neighbouring words would miss
# coloured ones.


# As in `schedmate.base.terminal`, within a line.
_SEQUENCE = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
)


def uncoloured(data: bytes) -> tuple[bytes, Callable[[int], int]]:
    """`data` without escape sequences, and the index in `data` of each index in that."""
    if b"\x1b" not in data:
        return data, _unchanged
    starts: list[int] = []  # index in the result of what follows each sequence
    taken: list[int] = [0]  # bytes left out before it
    for match in _SEQUENCE.finditer(data):
        starts.append(match.start() - taken[-1])
        taken.append(taken[-1] + match.end() - match.start())

    def origin(index: int) -> int:
        return index + taken[bisect_right(starts, index)]

    return _SEQUENCE.sub(b"", data), origin


def _unchanged(index: int) -> int:
    return index
