"""The numbers of a line, each with its label and unit: the text before and after it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from schedmate.logparse.progress.words import seconds

BEHIND = 40
"""Characters behind a counter that may name what is counted."""
LONGEST = 4000
"""Characters of a line that are examined."""
LARGEST = 1e15
"""Larger counts, rates and times are not those of a job."""

DATE = re.compile(
    r"\d{4}[-/.]\d\d[-/.]\d\d[ T_,-]?\s?(?:\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d\d[-/]\d\d(?:[-/]\d{2,4})? \d\d:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2},? \d\d:\d\d:\d\d(?: \d{4})?"
    r"|\b[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+\]|^\s*\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?=\s)"
    r"|(?<![\w./])[\w./]{1,200}\.py:\d+(?::\w+)?"
)
_CLOCK = (
    r"(?:\d+ days?,? )?\d+:\d\d(?::\d\d)?(?:\.\d+)?|\d+s\d+ms\b"
    r"|(?:\d+d ?)?(?:\d+h ?)?\d+m ?\d+(?:\.\d+)?s\b"
)
_NUMBER = re.compile(
    rf"(?<![\w.@])(?:(?P<clock>{_CLOCK})"
    r"|(?P<value>[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:(?<=\d)\.\d*|\.\d+)?(?<=[\d.])(?:[eE][-+]?\d+)?"
    r"|[-+]?(?:nan|inf(?:inity)?)\b)(?!\w*[_@]))"
    r"(?P<suffix>(?-i:[kKMB])(?![\w.]))?"
    r"(?:\s*/\s*(?P<total>\d{1,3}(?:,\d{3})+|\d+)(?!\w|\.\d|:\d)|\s+of\s+(?P<of>\d{1,3}(?:,\d{3})+|\d+))?"
    r"(?P<percent>\s*%)?"
    r"(?:\s?(?P<unit>(?:[^\W\d_]{1,12}\s?/\s?[^\W\d_]{1,12}(?:\s?/\s?[^\W\d_]{1,6})?(?!\w|\s*[:=]|\s+[\d.])"
    r"|(?:ms|s|secs?|seconds?) per (?:iter|iteration|step|batch)(?!\w)"
    r"|(?:iters?|iterations?|steps?|batches) per (?:sec|second)(?!\w)"
    r"|(?:ms|us|µs|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|秒|毫秒|分钟)(?![\w]))))?",
    re.IGNORECASE,
)
_CUT = re.compile(r"[|,;\t{}\[\])]|(?<=\S)\s+[-\u2013>]+\s|\s{3,}")
_UNIT = re.compile(r"[\[(]\s*([^\W\d_]{1,12}(?:/[^\W\d_]{1,12})?)\s*[\])][\"']?\s*+(?:[:=]\s*+)?$")
_SPEED = re.compile(r"[^\W\d_]{1,12} ?/ ?[^\W\d_]{1,12}")
_WRAPPED = re.compile(
    r"(?:^|(?<=[\s:=(]))(?:(?:np|jnp|numpy|torch|tf|jax)\.)?"
    r"(?:tensor|array|Array|DeviceArray|float(?:16|32|64)?|bfloat16|Tensor)$"
)
"""Wrappers around a printed value: `loss: tensor(2.5, grad_fn=...)`."""
_IS = re.compile(r"(?<=\w) (?:is|was)$")
_TRIM = " \t:=\"'`*#(<>-\u2013\u2192~@|"


_STEPS = r"(?:its?|iters?|iterations?|steps?|batch(?:es)?|updates?|mini-?batches)"
_TIME = r"\d{{1,12}}(?:\.\d{{1,12}})?)\s?(?P<unit{}>ms|s|secs?|seconds?|mins?|minutes?)\b"
_SHARED = re.compile(
    # `(25 iters in 9.5 s)`, `last 25 steps: 9.5s`
    rf"(?<![\w/.,-])(?P<count>\d[\d,]{{0,14}}) ?{_STEPS}\W{{1,3}}"
    r"(?:(?:in|took|takes|time|elapsed)\W{1,3})?"
    rf"(?P<time>{_TIME.format('')}(?! (?:left|remain))"
    # `9.5s/25 iters`, `9.5 sec per 25 steps`
    rf"|(?<![\w/.,-])(?P<time2>{_TIME.format('2')} ?(?:/|per|for|in|to train) ?"
    rf"(?P<count2>\d[\d,]{{0,14}}) ?{_STEPS}\b"
    # `time for the last 25 steps: 9.5`
    r"|\btime\w* (?:taken )?(?:for|per|of|over) (?:the )?(?:last |past )?"
    rf"(?P<count3>\d[\d,]{{0,14}}) ?{_STEPS}"
    r"\W{1,3}(?P<time3>\d{1,12}\.\d{1,12})(?!\w)(?P<unit3>)",
    re.IGNORECASE,
)
_ORDINAL = re.compile(
    r"第\s*+(\d++)\s*+(?:(?:个|次)\s*+)?(步|轮|批|回合|迭代|epoch|step|エポック|ステップ)",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\b(batch|iter|iteration|step)(s? ?\[)\d+-(\d+\])", re.IGNORECASE)
_LOSS_AT = re.compile(r"\bloss (?:at|after|in|for|on|of|epoch|iteration|step)\b", re.IGNORECASE)


_LOSS_AFTER = re.compile(r"\b(loss after) (\d+) ([^\W\d_]+)\b", re.IGNORECASE)
_ARGUMENT = re.compile(r"(?:^|\s)--[a-z][\w-]*[= ]\s*$")
_FILE = re.compile(r"(?<![\w.=+-])[\w.=+-]{1,120}\.(?:ckpt|pth?|tar|h5|hdf5|keras|bin|npz|onnx)\b")
"""Names of checkpoints, whose numbers count what had been saved."""


class Labelled(NamedTuple):
    """A number with the text before and after it."""

    key: str
    value: float
    total: int | None
    unit: str
    clock: bool
    bracketed: bool
    behind: str
    """The beginning of the text after it."""
    grain: float = 1.0
    """Its rounding unit: 1000 if it is written as `49K`."""
    gap: str = ""
    """The text between it and the number before it."""


def labelled(text: str) -> list[Labelled]:
    """All labelled numbers of a line, from left to right."""
    text = _ORDINAL.sub(r" \2 \1 ", DATE.sub(" | ", text[:LONGEST]))
    text = _LOSS_AFTER.sub(r"\1 \3 \2", _FILE.sub(" ", text))
    text = _RANGE.sub(r"\1\2\3", text).replace(" (t):", " time:")
    found: list[Labelled] = []
    end = 0
    for match in _NUMBER.finditer(text):
        before = text[end : match.start()]
        end = match.end()
        gap = before
        clock, number = match["clock"], match["value"]
        total = match["total"] or match["of"]
        try:
            value = clock_s(clock) if clock else float(number.replace(",", ""))
        except (ValueError, OverflowError):
            continue
        if (match["percent"] and not match["total"]) or _ARGUMENT.search(before):
            continue
        grain = 1.0
        if match["suffix"] and number:
            factor = {"k": 1e3, "m": 1e6, "b": 1e9}[match["suffix"].lower()]
            value, grain = value * factor, factor / 10 ** len(number.partition(".")[2])
        if not _is_plausible(value, number, total):
            continue
        named = _UNIT.search(before)
        unit = match["unit"] or (named[1] if named else "")
        if named:
            before = before[: named.start()]
        label = _CUT.split(before.rstrip(_TRIM + "["))[-1] if before.strip() else ""
        key = _IS.sub("", _WRAPPED.sub("", label.strip(_TRIM)))[-60:]
        if not key and found and _LOSS_AT.search(found[-1].key):
            key = "loss"  # `Loss at step 3: 2.5`
        found.append(
            Labelled(
                key,
                value,
                int(total.replace(",", "")) if total else None,
                unit,
                bool(clock),
                before.rstrip().endswith(("[", "(")),
                text[end : end + BEHIND],
                grain,
                gap,
            )
        )
    return _with_units(found)


def _with_units(found: list[Labelled]) -> list[Labelled]:
    """The same, with units between two numbers assigned to the first one.

    In `2.0 steps/s 128 samples/s` the second number has a unit of its own and the first has none.
    """
    for index, (number, following) in enumerate(pairwise(found)):
        between = not (number.unit or number.total or number.clock) and "/" in following.unit
        if between and _SPEED.fullmatch(following.key):
            found[index] = number._replace(unit=following.key)
            found[index + 1] = following._replace(key="")
    return found


def _is_plausible(value: float, written: str | None, total: str | None) -> bool:
    """Whether a job may have such a number: NaN and infinity only if they are spelled out."""
    if total is not None and len(total) > len(f"{LARGEST:,.0f}"):
        return False
    spelt = written is not None and written[-1:].isalpha()
    return spelt or abs(value) <= LARGEST


def clock_s(text: str) -> float:
    """Seconds of `1:02:03`, `02:03`, `1 day, 2:03:04`, `2h 3m 4s` or `1s234ms`."""
    if ":" in text:
        days, _, clock = text.rpartition(" ")
        total = 0.0
        for part in clock.split(":"):
            total = total * 60 + float(part)
        return total + (86_400 * float(days.split()[0]) if days else 0)
    units = {"d": 86_400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
    parts = re.findall(r"(?<![\d.])([\d.]++)(ms|[dhms])", text)
    return sum((float(value) * units[unit] for value, unit in parts), 0.0)


def shared_time(text: str) -> float | None:
    """The time of one iteration on a line that states that of several: `100 steps in 35 s`."""
    match = _SHARED.search(text[:LONGEST])
    if match is None:
        return None
    count, value, unit = (
        match[name] or match[name + "2"] or match[name + "3"] for name in ("count", "time", "unit")
    )
    steps, factor = int(count.replace(",", "")), seconds(unit or "s")
    return float(value) * (factor or 1) / steps if steps else None
