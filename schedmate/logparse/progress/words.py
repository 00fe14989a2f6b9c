"""Labels the numbers of a progress line, and knows what the words around them mean.

Each number is taken with the text before and after it; `words.yaml` says what a key, a unit or the
head of a line is about.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from schedmate.base.data import load
from schedmate.logparse.numbers import LARGEST, read_clock, read_count, read_number

BEHIND_NUMBER = 40
"""Characters behind a counter that may name what is counted."""
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
_UNIT_IN_BRACKETS = re.compile(
    r"[\[(]\s*([^\W\d_]{1,12}(?:/[^\W\d_]{1,12})?)\s*[\])][\"']?\s*+(?:[:=]\s*+)?$"
)
_SPEED = re.compile(r"[^\W\d_]{1,12} ?/ ?[^\W\d_]{1,12}")
_WRAPPED = re.compile(
    r"(?:^|(?<=[\s:=(]))(?:(?:np|jnp|numpy|torch|tf|jax)\.)?"
    r"(?:tensor|array|Array|DeviceArray|float(?:16|32|64)?|bfloat16|Tensor)$"
)
"""Wrappers around a printed value: `loss: tensor(2.5, grad_fn=...)`."""
_IS = re.compile(r"(?<=\w) (?:is|was)$")
_TRIM = " \t:=\"'`*#(<>-\u2013\u2192~@|"


_STEPS = r"(?:its?|iters?|iterations?|steps?|batch(?:es)?|updates?|mini-?batches)"
_TIME_WITH_UNIT = r"\d{{1,12}}(?:\.\d{{1,12}})?)\s?(?P<unit{}>ms|s|secs?|seconds?|mins?|minutes?)\b"
_SHARED = re.compile(
    # `(25 iters in 9.5 s)`, `last 25 steps: 9.5s`
    rf"(?<![\w/.,-])(?P<count>\d[\d,]{{0,14}}) ?{_STEPS}\W{{1,3}}"
    r"(?:(?:in|took|takes|time|elapsed)\W{1,3})?"
    rf"(?P<time>{_TIME_WITH_UNIT.format('')}(?! (?:left|remain))"
    # `9.5s/25 iters`, `9.5 sec per 25 steps`
    rf"|(?<![\w/.,-])(?P<time2>{_TIME_WITH_UNIT.format('2')} ?(?:/|per|for|in|to train) ?"
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


def labelled_numbers(text: str) -> list[Labelled]:
    """All labelled numbers of a line, from left to right."""
    text = _ORDINAL.sub(r" \2 \1 ", DATE.sub(" | ", text))
    text = _LOSS_AFTER.sub(r"\1 \3 \2", _FILE.sub(" ", text))
    text = _RANGE.sub(r"\1\2\3", text).replace(" (t):", " time:")
    numbers: list[Labelled] = []
    end = 0
    for match in _NUMBER.finditer(text):
        before = text[end : match.start()]
        end = match.end()
        gap = before
        clock, number = match["clock"], match["value"]
        total = match["total"] or match["of"]
        try:
            value = read_clock(clock) if clock else read_number(number)
        except ValueError:
            continue
        if (match["percent"] and not match["total"]) or _ARGUMENT.search(before):
            continue
        grain = 1.0
        if match["suffix"] and number:
            factor = {"k": 1e3, "m": 1e6, "b": 1e9}[match["suffix"].lower()]
            value, grain = value * factor, factor / 10 ** len(number.partition(".")[2])
        if not _is_plausible(value, number, total):
            continue
        named = _UNIT_IN_BRACKETS.search(before)
        unit = match["unit"] or (named[1] if named else "")
        if named:
            before = before[: named.start()]
        label = _CUT.split(before.rstrip(_TRIM + "["))[-1] if before.strip() else ""
        key = _IS.sub("", _WRAPPED.sub("", label.strip(_TRIM)))[-60:]
        if not key and numbers and _LOSS_AT.search(numbers[-1].key):
            key = "loss"  # `Loss at step 3: 2.5`
        numbers.append(
            Labelled(
                key,
                value,
                read_count(total) if total else None,
                unit,
                bool(clock),
                before.rstrip().endswith(("[", "(")),
                text[end : end + BEHIND_NUMBER],
                grain,
                gap,
            )
        )
    return _with_units(numbers)


def _with_units(numbers: list[Labelled]) -> list[Labelled]:
    """`numbers`, with units between two of them assigned to the first one.

    In `2.0 steps/s 128 samples/s` the second number has a unit of its own and the first has none.
    """
    for index, (number, following) in enumerate(pairwise(numbers)):
        between = not (number.unit or number.total or number.clock) and "/" in following.unit
        if between and _SPEED.fullmatch(following.key):
            numbers[index] = number._replace(unit=following.key)
            numbers[index + 1] = following._replace(key="")
    return numbers


def _is_plausible(value: float, written: str | None, total: str | None) -> bool:
    """Whether a job may have such a number: NaN and infinity only if they are spelled out."""
    if total is not None and len(total) > len(f"{LARGEST:,.0f}"):
        return False
    spelt = written is not None and written[-1:].isalpha()
    return spelt or abs(value) <= LARGEST


def shared_time(text: str) -> float | None:
    """The time of one iteration on a line that states that of several: `100 steps in 35 s`."""
    match = _SHARED.search(text)
    if match is None:
        return None
    count, value, unit = (
        match[name] or match[name + "2"] or match[name + "3"] for name in ("count", "time", "unit")
    )
    steps, factor = read_count(count), unit_seconds(unit or "s")
    try:
        return read_number(value) * (factor or 1) / steps if steps else None
    except ValueError:
        return None


# The vocabulary of progress lines: the meaning of a key, a unit or the head of a line.


_WORD = re.compile(r"[^\W\d_]+")
_JOINED = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]{2,}")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_RATE_IN_KEY = re.compile(
    r"(?<![^\W\d_])([^\W\d_]+)\s*(?:/|[ _-]?per[ _-]|(?<=[a-z])Per(?=[A-Z]))\s*([^\W\d_]+)"
    r"(?P<more>\s*/|[ _-]per)?"
)
_UNIT_IN_KEY = re.compile(r"(?:[_ ]in)?[_ ](ms|s|sec|secs|seconds|us)$", re.IGNORECASE)
LOSS_WORDS = 4
"""Words of the longest loss name that begins with that word."""
_LASTING = frozenset(["ms", "s", "sec", "secs", "second", "seconds"])


@cache
def _vocabulary() -> dict[str, str]:
    keys = load("logparse/progress/words.yaml")["keys"]
    return {str(phrase).lower(): kind for kind, phrases in keys.items() for phrase in phrases}


@cache
def _other_words() -> frozenset[str]:
    return frozenset(str(word) for word in load("logparse/progress/words.yaml")["other"])


@cache
def _unit_kinds() -> dict[str, str]:
    units = load("logparse/progress/words.yaml")["units"]
    return {str(word).lower(): kind for kind, words in units.items() for word in words}


@cache
def _word_list(name: str) -> frozenset[str]:
    return frozenset(str(word).lower() for word in load("logparse/progress/words.yaml")[name])


def unit_seconds(unit: str) -> float | None:
    """The length of a unit of time [s], or None for other units."""
    value = load_times().get(unit.lower())
    return None if value is None else float(value)


@cache
def load_times() -> dict[str, float]:
    """Units of time by name [s]."""
    times = load("logparse/progress/words.yaml")["units"]["time"]
    return {str(name).lower(): float(value) for name, value in times.items() if name != "time"}


@cache
def subject_of(text: str) -> str | None:
    """`training`, `other` or None: the subject named by the head of a line or of a bar."""
    text = _CAMEL.sub(" ", text).lower()
    words = _WORD.findall(text)
    counts = words[:1] and _unit_kinds().get(words[0]) in ("iterations", "epochs")
    if counts and any(word in _word_list("evaluation") for word in words):
        return "other"  # `Epoch 3 [Val]`
    if any(word in _word_list("training") for word in words[:1]):
        # `train: Caching images` prepares
        return (
            "other"
            if any(map(_is_other_work, _WORD.findall(text.partition(":")[2])[:1]))
            else "training"
        )
    if any(map(_is_other_work, words)):
        return "other"
    return "training" if any(word in _word_list("training") for word in words) else None


@cache
def counts_only(text: str) -> bool:
    """Whether the only words of training in a text are counters, which may count other things."""
    words = _WORD.findall(_CAMEL.sub(" ", text).lower())
    return not any(
        word in _word_list("training") and _unit_kinds().get(word) != "iterations" for word in words
    )


def _is_other_work(word: str) -> bool:
    """Whether a word names other work than training.

    Chinese and Japanese have no spaces, so containing such a word is enough.
    """
    listed = _word_list("not_training")
    return word in listed or (
        not word.isascii() and any(part in word for part in listed if _JOINED.fullmatch(part))
    )


@cache
def is_of_data(key: str) -> bool:
    """Whether a key names the data loading time of a step: `Data`, `data_time`, `loading`."""
    words = _WORD.findall(_CAMEL.sub(" ", key).lower())
    return bool(words) and all(word in _word_list("of_data") for word in words)


@cache
def names_a_part(key: str) -> bool:
    """Whether a key names a part of a step, or work beside it: `data`, `forward`, `eval`."""
    return any(word in _other_words() for word in _WORD.findall(_CAMEL.sub(" ", key).lower()))


@cache
def meaning(key: str, unit: str) -> tuple[str, float, bool] | None:
    """The meaning of a number by `key` and `unit`: quantity, factor, whether the unit is stated.

    Quantities are the fields of `Sample`; a rate in iterations a second is `rate`. None if the key
    is unknown or names something else.
    """
    key = _CAMEL.sub(" ", key.strip())
    words = [word for word in _WORD.findall(key.lower()) if word != "metrics"]
    if any(word in _other_words() for word in words):
        return None
    for text in (unit, key):
        if rate := _RATE_IN_KEY.search(text):
            rate_meaning = _rate_meaning(
                rate[1].lower(), rate[2].lower(), bool(rate["more"]), key, unit
            )
            if rate_meaning is not None:
                return rate_meaning
    inside = _UNIT_IN_KEY.search(key)
    stated = unit or (inside[1] if inside else "")
    if inside:
        key = key[: inside.start()]
        words = _WORD.findall(key.lower())
    quantity = _quantity(words)
    if quantity is None:
        return None
    if quantity in ("iteration", "epoch") and stated.lower() in _LASTING:
        # `step_ms`, `bwd 0.5s step 0.9s`
        quantity = "step_time" if quantity == "iteration" else "epoch_time"
    if quantity in ("step_time", "time", "elapsed", "eta", "epoch_time"):
        factor = unit_seconds(stated) if stated else None
        if stated and factor is None and unit:
            return None if _unit_kinds().get(unit.lower()) is not None else (quantity, 1.0, False)
        return quantity, 1.0 if factor is None else factor, factor is not None
    return quantity, 1.0, True


def _quantity(words: list[str]) -> str | None:
    vocabulary = _vocabulary()
    for start in range(max(0, len(words) - 5), len(words)):
        # a prefix may name the run, the rank or the phase: `train/loss`, `rank0 loss`
        quantity = vocabulary.get(" ".join(words[start:]))
        if quantity is not None:
            specific = quantity in ("loss", "time", "iteration", "elapsed", "line_batch")
            of_loss = words[start - 2 : start] == ["loss", "of"]  # `loss of iteration 3: 2.5`
            foreign = start > 0 and words[start - 1] not in _word_list("prefixes")
            return None if specific and foreign and not of_loss else quantity
    return None


@cache
def is_of_returns(key: str) -> bool:
    """Whether a key names an agent's return: `return`, `mean_reward`, `ep_rew_mean`."""
    words = set(_WORD.findall(_CAMEL.sub(" ", key).lower().replace("_", " ")))
    return bool(words & _word_list("returns")) and "code" not in words


@cache
def is_watched_metric(key: str) -> bool:
    """Whether a key names a gradient norm or a validation loss."""
    words = set(_WORD.findall(_CAMEL.sub(" ", key).lower().replace("_", " ")))
    of_validation = bool(words & _word_list("evaluation")) and bool(words & {"loss", "losses"})
    return of_validation or bool(words & _word_list("gradients"))


@cache
def is_some_loss(key: str) -> bool:
    """Whether a key names a separate loss, like `per_token_loss`, `G_loss` or `loss_box_reg`."""
    words = _WORD.findall(_CAMEL.sub(" ", key).lower())
    if not words or any(word in _other_words() for word in words):
        return False
    first = words[0] == "loss" and len(words) <= LOSS_WORDS
    return words[-1] == "loss" or (first and not _word_list("no_loss").intersection(words))


@cache
def loss_rank(key: str, *, named: bool) -> int:
    """How complete a loss a key names: 3 the sum, 2 the loss, 1 a specific one, 0 a part.

    `named` is whether `meaning` knows the key as that of a loss.
    """
    words = set(_WORD.findall(_CAMEL.sub(" ", key).lower()))
    bare = words - _word_list("prefixes") - _word_list("loss_words")
    if words & _word_list("whole_loss") and not bare - _word_list("whole_loss"):
        return 3
    return (2 if not bare or len(words) == 1 else 1) if named else 0


@cache
def counted_by(word: str) -> str | None:
    """`samples`, `tokens`, `iterations` or `epochs` if a word names one of them, else None."""
    kind = _unit_kinds().get(word.lower())
    return None if kind == "time" else kind


def _rate_meaning(
    left: str, right: str, more: bool, key: str, unit: str
) -> tuple[str, float, bool] | None:
    kinds = _unit_kinds()
    over, under = kinds.get(left), kinds.get(right)
    if over == "time" and under in ("iterations", "epochs", "samples"):
        factor = unit_seconds(left)
        if factor is None:  # `time per iteration (ms)`
            factor = unit_seconds(
                unit or (inside[1] if (inside := _UNIT_IN_KEY.search(key)) else "")
            )
        quantities = {"iterations": "step_time", "samples": "sample_time", "epochs": "epoch_time"}
        quantity = quantities[under]
        return quantity, 1.0 if factor is None else factor, factor is not None
    if under == "iterations" and over in ("samples", "tokens"):
        return ("batch" if over == "samples" else "step_tokens"), 1.0, True
    if under == "time" and not more:
        factor = unit_seconds(right)
        if factor is not None and over in ("iterations", "samples", "tokens"):
            names = {"iterations": "rate", "samples": "samples_per_s", "tokens": "tokens_per_s"}
            return names[over], 1 / factor, True
    return None
