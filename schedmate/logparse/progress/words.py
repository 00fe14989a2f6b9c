"""The vocabulary of progress lines: the meaning of a key, a unit or the head of a line."""

from __future__ import annotations

import re
from functools import cache

from schedmate.data import load

_WORD = re.compile(r"[^\W\d_]+")
_JOINED = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]{2,}")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_RATE = re.compile(
    r"(?<![^\W\d_])([^\W\d_]+)\s*(?:/|[ _-]?per[ _-]|(?<=[a-z])Per(?=[A-Z]))\s*([^\W\d_]+)"
    r"(?P<more>\s*/|[ _-]per)?"
)
_UNIT = re.compile(r"(?:[_ ]in)?[_ ](ms|s|sec|secs|seconds|us)$", re.IGNORECASE)
LOSS_WORDS = 4
"""Words of the longest loss name that begins with that word."""
_LASTING = frozenset(["ms", "s", "sec", "secs", "second", "seconds"])


@cache
def _vocabulary() -> dict[str, str]:
    keys = load("logparse/progress/words.yaml")["keys"]
    return {str(phrase).lower(): kind for kind, phrases in keys.items() for phrase in phrases}


@cache
def _other() -> frozenset[str]:
    return frozenset(str(word) for word in load("logparse/progress/words.yaml")["other"])


@cache
def _kinds() -> dict[str, str]:
    units = load("logparse/progress/words.yaml")["units"]
    return {str(word).lower(): kind for kind, words in units.items() for word in words}


@cache
def _listed(name: str) -> frozenset[str]:
    return frozenset(str(word).lower() for word in load("logparse/progress/words.yaml")[name])


def seconds(unit: str) -> float | None:
    """The length of a unit of time [s], or None for other units."""
    value = load_times().get(unit.lower())
    return None if value is None else float(value)


@cache
def load_times() -> dict[str, float]:
    """Units of time by name [s]."""
    times = load("logparse/progress/words.yaml")["units"]["time"]
    return {str(name).lower(): float(value) for name, value in times.items() if name != "time"}


@cache
def about(text: str) -> str | None:
    """`training`, `other` or None: the subject named by the head of a line or of a bar."""
    text = _CAMEL.sub(" ", text).lower()
    words = _WORD.findall(text)
    counts = words[:1] and _kinds().get(words[0]) in ("iterations", "epochs")
    if counts and any(word in _listed("evaluation") for word in words):
        return "other"  # `Epoch 3 [Val]`
    if any(word in _listed("training") for word in words[:1]):
        # `train: Caching images` prepares
        return (
            "other"
            if any(map(_is_other, _WORD.findall(text.partition(":")[2])[:1]))
            else "training"
        )
    if any(map(_is_other, words)):
        return "other"
    return "training" if any(word in _listed("training") for word in words) else None


@cache
def counts_only(text: str) -> bool:
    """Whether the only words of training in a text are counters, which may count other things."""
    words = _WORD.findall(_CAMEL.sub(" ", text).lower())
    return not any(
        word in _listed("training") and _kinds().get(word) != "iterations" for word in words
    )


def _is_other(word: str) -> bool:
    """Whether a word names other work than training.

    Chinese and Japanese have no spaces, so containing such a word is enough.
    """
    listed = _listed("not_training")
    return word in listed or (
        not word.isascii() and any(part in word for part in listed if _JOINED.fullmatch(part))
    )


@cache
def is_of_data(key: str) -> bool:
    """Whether a key names the data loading time of a step: `Data`, `data_time`, `loading`."""
    words = _WORD.findall(_CAMEL.sub(" ", key).lower())
    return bool(words) and all(word in _listed("of_data") for word in words)


@cache
def names_a_part(key: str) -> bool:
    """Whether a key names a part of a step, or work beside it: `data`, `forward`, `eval`."""
    return any(word in _other() for word in _WORD.findall(_CAMEL.sub(" ", key).lower()))


@cache
def meaning(key: str, unit: str) -> tuple[str, float, bool] | None:
    """The meaning of a number by `key` and `unit`: quantity, factor, whether the unit is stated.

    Quantities are the fields of `Sample`; a rate in iterations a second is `rate`. None if the key
    is unknown or names something else.
    """
    key = _CAMEL.sub(" ", key.strip())
    words = [word for word in _WORD.findall(key.lower()) if word != "metrics"]
    if any(word in _other() for word in words):
        return None
    for text in (unit, key):
        if rate := _RATE.search(text):
            found = _rate(rate[1].lower(), rate[2].lower(), bool(rate["more"]), key, unit)
            if found is not None:
                return found
    inside = _UNIT.search(key)
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
        factor = seconds(stated) if stated else None
        if stated and factor is None and unit:
            return None if _kinds().get(unit.lower()) is not None else (quantity, 1.0, False)
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
            foreign = start > 0 and words[start - 1] not in _listed("prefixes")
            return None if specific and foreign and not of_loss else quantity
    return None


@cache
def is_of_returns(key: str) -> bool:
    """Whether a key names an agent's return: `return`, `mean_reward`, `ep_rew_mean`."""
    words = set(_WORD.findall(_CAMEL.sub(" ", key).lower().replace("_", " ")))
    return bool(words & _listed("returns")) and "code" not in words


@cache
def is_watched(key: str) -> bool:
    """Whether a key names a gradient norm or a validation loss."""
    words = set(_WORD.findall(_CAMEL.sub(" ", key).lower().replace("_", " ")))
    of_validation = bool(words & _listed("evaluation")) and bool(words & {"loss", "losses"})
    return of_validation or bool(words & _listed("gradients"))


@cache
def is_some_loss(key: str) -> bool:
    """Whether a key names a separate loss, like `per_token_loss`, `G_loss` or `loss_box_reg`."""
    words = _WORD.findall(_CAMEL.sub(" ", key).lower())
    if not words or any(word in _other() for word in words):
        return False
    first = words[0] == "loss" and len(words) <= LOSS_WORDS
    return words[-1] == "loss" or (first and not _listed("no_loss").intersection(words))


@cache
def loss_rank(key: str, *, named: bool) -> int:
    """How complete a loss a key names: 3 the sum, 2 the loss, 1 a specific one, 0 a part.

    `named` is whether `meaning` knows the key as that of a loss.
    """
    words = set(_WORD.findall(_CAMEL.sub(" ", key).lower()))
    bare = words - _listed("prefixes") - _listed("loss_words")
    if words & _listed("whole_loss") and not bare - _listed("whole_loss"):
        return 3
    return (2 if not bare or len(words) == 1 else 1) if named else 0


@cache
def counted_by(word: str) -> str | None:
    """`samples`, `tokens`, `iterations` or `epochs` if a word names one of them, else None."""
    kind = _kinds().get(word.lower())
    return None if kind == "time" else kind


def _rate(left: str, right: str, more: bool, key: str, unit: str) -> tuple[str, float, bool] | None:
    kinds = _kinds()
    over, under = kinds.get(left), kinds.get(right)
    if over == "time" and under in ("iterations", "epochs", "samples"):
        factor = seconds(left)
        if factor is None:  # `time per iteration (ms)`
            factor = seconds(unit or (inside[1] if (inside := _UNIT.search(key)) else ""))
        quantities = {"iterations": "step_time", "samples": "sample_time", "epochs": "epoch_time"}
        quantity = quantities[under]
        return quantity, 1.0 if factor is None else factor, factor is not None
    if under == "iterations" and over in ("samples", "tokens"):
        return ("batch" if over == "samples" else "step_tokens"), 1.0, True
    if under == "time" and not more:
        factor = seconds(right)
        if factor is not None and over in ("iterations", "samples", "tokens"):
            names = {"iterations": "rate", "samples": "samples_per_s", "tokens": "tokens_per_s"}
            return names[over], 1 / factor, True
    return None
