"""Reads what people write: durations, names of machines, documents, and what is wrong in them.

Durations such as `90m` and `1-12:00:00`, and how they are shown; which texts name one machine,
which two names are the same one, Slurm's host lists; the faults of a document that pydantic found,
in plain words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from schedmate.base.data import LONGEST_S
from schedmate.base.errors import UsageError, did_you_mean
from schedmate.base.terminal import clean

if TYPE_CHECKING:
    from pydantic import ValidationError


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WITH_UNIT = re.compile(r"(?<![\d.])(\d++(?:\.\d++)?)\s*+([smhd])", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}))?")


def parse_duration(text: str) -> float:
    """Seconds of `90m`, `1d12h`, `36:00:00`, Slurm's `1-12:00:00` or a plain number of seconds.

    Raises `UsageError` for anything else.
    """
    seconds = _seconds(text.strip())
    if not 0 <= seconds <= LONGEST_S:
        raise UsageError(
            f"{clean(text, 60)!r} is not a duration; write it like 90m, 36h, 1d12h or 1-12:00:00."
        )
    return seconds


def _seconds(stripped: str) -> float:
    if clock := _CLOCK.fullmatch(stripped):
        days, first, second, third = (float(part) if part else 0.0 for part in clock.groups())
        if clock[1] or clock[4]:
            # D-HH:MM[:SS] and HH:MM:SS
            return days * 86_400.0 + first * 3600.0 + second * 60.0 + third
        return first * 60.0 + second
    parts = _WITH_UNIT.findall(stripped)
    if parts and not _WITH_UNIT.sub("", stripped).strip():
        return sum(float(number) * _UNITS[unit.lower()] for number, unit in parts)
    try:
        return float(stripped)
    except ValueError:
        return -1.0


def moment_of(seconds: float) -> datetime:
    """The time in UTC at `seconds` since the epoch; the nearest one of the years 2 to 9998 that a
    calendar here has."""
    return datetime.fromtimestamp(min(max(seconds, _FIRST_MOMENT), _LAST_MOMENT), UTC)


_FIRST_MOMENT = datetime(2, 1, 1, tzinfo=UTC).timestamp()
_LAST_MOMENT = datetime(9998, 12, 31, tzinfo=UTC).timestamp()


def format_duration(seconds: float) -> str:
    """Two units a person reads at a glance: `45 s`, `11 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if not abs(seconds) <= LONGEST_S:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if whole or seconds <= 0 else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


# Names of machines: which texts are one, which two are the same machine, and Slurm's lists.


# A name by RFC 1123, with the underscore that Slurm allows besides; no option, no pattern, no list.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\Z")
# `scontrol` takes ALL for every node; the others name the machine that the command runs on.
_NO_NODE = frozenset({"all", "any", "none", "unknown", "localhost", "localhost.localdomain"})
_LOOPBACK = re.compile(r"127(?:\.\d+){3}|0\.0\.0\.0")


def host_name(text: str | None) -> str | None:
    """`text` if it may stand for one machine in a command, else None."""
    if text is None or not text.isascii() or _HOST.match(text) is None:
        return None
    if text.lower() in _NO_NODE or text.isdigit() or _LOOPBACK.fullmatch(text):
        return None
    return text


def same_host(one: str, other: str) -> bool:
    """Whether two names are of one machine: one may lack the domain."""
    one, other = one.lower(), other.lower()
    if one == other:
        return True
    if one.replace(".", "").isdigit() or other.replace(".", "").isdigit():
        return False  # addresses have no domain
    short = one.partition(".")[0] == other.partition(".")[0]
    return short and ("." not in one or "." not in other)


def matching_host(node: str | None, nodes: Iterable[str]) -> str | None:
    """The one of `nodes` that `node` is, as the caller spells it."""
    if node is None:
        return None
    return next((one for one in nodes if same_host(one, node)), None)


_HOSTLIST_NAMES = re.compile(r"(?:[^,\[\]]++|\[[^\[\]]*+\])++")
_BRACKETS = re.compile(r"\[([^\[\]]*+)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand_hostlist(text: str, most: int) -> Iterator[str]:
    """The names of a Slurm host list, `gpu[01-03,07],login`, in order, with the zeros of numbers.

    Several pairs of brackets in one name multiply. Names are made as they are drawn. Raises
    `ValueError` for what is not a list, and where one name of it stands for more than `most`.
    """
    names = _HOSTLIST_NAMES.findall(text)
    if ",".join(names) != text:
        raise ValueError(f"{text[:60]!r} is not a list of hosts")
    for name in names:
        size = 1
        choices: list[list[_NumberRange]] = []
        fixed = _BRACKETS.split(name)
        for part in fixed[1::2]:
            choices.append([_number_range(one, text) for one in part.split(",")])
            size *= sum(len(numbers.span) for numbers in choices[-1])
            if size > most:
                raise ValueError(f"{text[:60]!r} names more than {most:,} hosts")
        yield from _expanded_names(fixed[::2], choices)


class _NumberRange(NamedTuple):
    span: range
    width: int


def _number_range(text: str, whole: str) -> _NumberRange:
    match = _RANGE.fullmatch(text)
    if match is None or int(match[1]) > int(match[2] or match[1]):
        raise ValueError(f"{whole[:60]!r} is not a list of hosts")
    return _NumberRange(range(int(match[1]), int(match[2] or match[1]) + 1), len(match[1]))


def _expanded_names(
    fixed: Sequence[str], choices: Sequence[Sequence[_NumberRange]]
) -> Iterator[str]:
    """Names of fixed parts with numbers between them."""
    if not choices:
        yield fixed[0]
        return
    for numbers in choices[0]:
        for number in numbers.span:
            start = f"{fixed[0]}{number:0{numbers.width}}"
            for rest in _expanded_names(fixed[1:], choices[1:]):
                yield start + rest


# The errors in a document that a person wrote, in plain words.


EXPECTED_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "an object with keys and values",
    "model": "an object with keys and values",
    "model_attributes": "an object with keys and values",
    "date": "a date",
    "datetime": "a time",
    "path": "a path",
}
"""What was expected, by the first words of the type of an error."""
EXPECTED_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_LONGEST_VALUE = 80


def first_fault(error: ValidationError, known: Iterable[str] = (), *, place: str = "") -> str:
    """The first error: its place, and what is expected there instead; no full stop.

    `known` are keys that a misspelt one may mean; `place` is the name of the whole document, if the
    error has no place in it.
    """
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    others = error.error_count() - 1
    more = f" ({others} more)" if others else ""
    if first["type"] == "extra_forbidden":
        meant = did_you_mean(str(first["loc"][-1]), known)
        return f"there is no key {clean(where, 100)}{more}{meant}"
    where = clean(where or place, 100)
    colon = "" if first["type"] in ("missing", "json_invalid") else ":"
    return f"{where}{colon} {fault_meaning(first)}{more}".strip()


def fault_sentence(error: ValidationError, known: Iterable[str] = (), *, place: str = "") -> str:
    """The first error as `first_fault` gives it, with the full stop that ends a sentence."""
    fault = first_fault(error, known, place=place)
    return fault if fault.endswith("?") else f"{fault}."


def fault_meaning(fault: Any) -> str:
    """The meaning of one of the `errors()` of a ValidationError, without its place."""
    kind, context = fault["type"], fault.get("ctx") or {}
    try:
        shown = clean(repr(fault.get("input")), _LONGEST_VALUE)
    except ValueError:  # Python refuses to print a whole number of thousands of digits
        shown = "a number with too many digits"
    if kind == "missing":
        return "is missing"
    if kind == "json_invalid":
        return f"is no JSON: {context.get('error', 'it cannot be read')}"
    if kind in EXPECTED_LIMITS:
        key, words = EXPECTED_LIMITS[kind]
        return f"{shown} is given; it has to be {words} {context[key]}"
    if kind in ("literal_error", "enum"):
        return f"{shown} is given; it has to be {context['expected']}"
    if kind == "finite_number":
        return f"{shown} is given; it has to be a finite number"
    base = kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float")
    if base in EXPECTED_KINDS:
        return f"{shown} is given; it has to be {EXPECTED_KINDS[base]}"
    message: str = fault["msg"]
    if kind == "value_error":
        return clean(message.removeprefix("Value error, "), 400)
    return clean(message[:1].lower() + message[1:].replace("nput should", "t has to"), 400)
