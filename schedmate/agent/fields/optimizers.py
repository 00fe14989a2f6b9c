"""The optimiser and its learning rate: a pair that one call of the program is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from schedmate.agent.fields import prior
from schedmate.agent.fields.called import LARGEST, place
from schedmate.agent.fields.candidates import EXPLICIT, Candidate, argument, is_number, rules
from schedmate.agent.fields.leaves import normal
from schedmate.agent.fields.proofs import Lines
from schedmate.agent.interp import classes
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin, Place, Unknown, Value

_NAMED = 3
"""Further optimisers that are named."""
_OF_TIME = re.compile(r"step|iter|epoch|warm|sched|decay|anneal|cos|progress", re.IGNORECASE)
"""What a rate that changes while the program trains is computed from."""
_OPTIMIZER = re.compile(
    r"adam|sgd|rmsprop|adagrad|adadelta|adafactor|lamb|lars|lion|muon|momentum|shampoo|sophia|soap|"
    r"novograd|prodigy|ranger|lbfgs|rprop|yogi|adan$|galore|optimi[sz]er$",
    re.IGNORECASE,
)
_ALIKE = {"GradientDescent": "SGD"}
_RATE_FIRST = re.compile(r"(keras|tensorflow|optax|mlx)\.")
"""Optimisers that are not given the parameters when they are made."""
_LIBRARYS_BASE = re.compile(r"torch\.optim\.(\w+\.)*[A-Z]\w*|keras\.(\w+\.)*Optimizer")
"""What optimisers of a repository's own are classes of."""


class Made(NamedTuple):
    """An optimiser that a call makes, with the learning rate that it is given."""

    event: CallEvent
    name: str
    origin: Origin
    score: float
    rate: Value | None
    rate_score: float


def is_optimizer(name: str) -> bool:
    """Whether a class or function is named after an optimiser."""
    plain = name.lower() in ("optimizer", "optimizers", "optim")
    return not plain and bool(_OPTIMIZER.search(name))


def makes_optimizer(event: CallEvent) -> bool:
    """Whether this makes one of a library's optimisers."""
    return re.match(rules("calls")["optimizer"], event.path) is not None


def _makes_own(event: CallEvent) -> bool:
    """Whether this makes an optimiser of the repository's own: by its base, or a name it gets."""
    if event.cls is None:
        return False
    name = event.cls.name
    if not is_optimizer(name) or name.lower().endswith("optimizer"):
        return False
    return any(map(_LIBRARYS_BASE.fullmatch, event.cls.external_bases())) or bool(
        re.search(r"(^|_)optim(izer)?s?\d*$", event.target)
    )


def made(trace: Trace) -> list[Made]:
    """The optimisers that are made, less those that are only put around another one."""
    makers = [one for event in trace.calls if (one := _made(event)) is not None]
    results = {id(one.event.result.data) for one in makers if one.event.result is not None}
    return [
        one
        for one in makers
        if not any(
            id(value.data) in results for value in (*one.event.args, *one.event.kwargs.values())
        )
    ]


def _made(event: CallEvent) -> Made | None:
    here = place(event)
    if makes_optimizer(event):
        name = classes.last(event.path).removesuffix("Optimizer")
        name = event.cls.name if event.cls is not None else _ALIKE.get(name, name)
        origin = event.result.origin if event.result is not None else None
        score = prior.call.sure("optimiser", event.certain)
        return Made(event, name, origin or here, score, _rate(event), score)
    if event.cls is not None:
        score = prior.call.sure("own optimiser", event.certain)
        rate = event.kwargs.get("lr")
        rate_score = prior.call["own optimiser rate"]
        made = Made(event, event.cls.name, here, score, rate, rate_score)
        return made if _makes_own(event) else None
    named = argument(event, ["optimizer", 0]) if event.path.endswith(".compile") else None
    if named is not None and isinstance(named.data, str) and is_optimizer(named.data):
        score = prior.call["compile"]  # `model.compile("adam", lr=1e-3)`
        rate = argument(event, ["lr", "learning_rate"])
        return Made(event, named.data, named.origin or here, score, rate, score)
    return None


def _rate(event: CallEvent) -> Value | None:
    """The learning rate that an optimiser is given, or else its first group of parameters."""
    given = argument(event, ["lr", "learning_rate", 0 if _RATE_FIRST.match(event.path) else 1])
    if given is not None or not event.args:
        return given
    groups = event.args[0].data
    first = groups[0].data if isinstance(groups, list) and groups else None
    return first.get("lr") if isinstance(first, dict) else None


def add(makers: Sequence[Made], found: dict[str, Candidate]) -> None:
    """Add the optimiser, which one that is certainly made says before a default does, and its rate.

    Of several optimisers the first that is surely made is named.
    """
    first = max(makers, key=lambda one: one.score, default=None)
    if first is None:
        return
    held = found.get("optimizer")
    if held is None or (
        held.score < first.score and makes_optimizer(first.event) and not _chosen(held)
    ):
        found["optimizer"] = Candidate(first.name, first.origin, first.score)
    pair = _pair(makers, found)
    rate = pair.rate if pair is not None else None
    if pair is not None and "lr" not in found and is_number(rate) and 0 < rate.data <= LARGEST:
        found["lr"] = Candidate(rate.data, rate.origin or pair.origin, pair.rate_score)


def _chosen(held: Candidate) -> bool:
    """Whether a configuration or the command names the optimiser, whatever else is made."""
    return held.source in (*EXPLICIT, "config") and is_optimizer(str(held.data))


def _pair(makers: Sequence[Made], found: dict[str, Candidate]) -> Made | None:
    """The call that makes the optimiser that is named: of several, with the rate that is stated.

    One by another name is that if the program makes no more than one kind.
    """
    chosen, stated = found.get("optimizer"), found.get("lr")
    name = normal(str(chosen.data)) if chosen is not None else ""
    alike = [one for one in makers if normal(one.name) == name]
    if not alike and len({one.name for one in makers}) == 1:
        alike = list(makers)
    so_given = (one for one in alike if stated is not None and _has_rate(one, stated))
    return next(so_given, max(alike, key=lambda one: one.score, default=None))


def compare(makers: Sequence[Made], found: dict[str, Candidate], lines: Lines) -> None:
    """Say which other optimisers there are, and put the rate that the named one is given.

    `lines` is the repository, where the computation of a rate is looked up.
    """
    certain = [one for one in makers if one.event.certain]
    chosen, stated = found.get("optimizer"), found.get("lr")
    if chosen is not None:
        found["optimizer"] = _with_others(chosen, certain)
    pair = _pair(certain, found)
    if stated is not None and pair is not None:
        found["lr"] = _computed(_of_the_same(stated, pair, certain), pair, lines)


def _with_others(chosen: Candidate, makers: list[Made]) -> Candidate:
    """The optimiser, its note naming those of other kinds that the program makes too."""
    names = {normal(str(chosen.data))}
    others = []
    for one in makers:
        if normal(one.name) not in names:
            names.add(normal(one.name))
            others.append(f"{one.name} ({one.event.site.file}:{one.event.site.line})")
    if not others or normal(str(chosen.data)) not in {normal(one.name) for one in makers}:
        return chosen
    return replace(chosen, note=f"also {', '.join(others[:_NAMED])}")


def _of_the_same(stated: Candidate, pair: Made, makers: list[Made]) -> Candidate:
    """The stated rate, or that of the named optimiser if another one is given what is stated."""
    if pair.rate is None or _has_rate(pair, stated):
        return stated
    other = next((one for one in makers if one is not pair and _has_rate(one, stated)), None)
    if other is None and stated.source != "default":
        return stated
    if is_number(pair.rate) and 0 < pair.rate.data <= LARGEST:
        return Candidate(pair.rate.data, pair.rate.origin or pair.origin, pair.rate_score)
    if other is None:
        return stated
    return _unknown(pair.origin, f"{stated.data} is the learning rate of {other.name}")


def _computed(stated: Candidate, pair: Made, lines: Lines) -> Candidate:
    """What the optimiser is given, where that is computed from the rate that a setting states.

    Null where a part of the computation is not known, with the line that computes it. A schedule
    starts from the rate that is stated.
    """
    given = pair.rate
    origin = given.origin if given is not None else None
    if given is None or origin is None or not isinstance(origin.computed, Place):
        return stated
    if not _has_rate(pair, stated):
        return stated
    if given.number is not None:
        if given.number <= 0 or given.number == stated.data:
            return stated
        return replace(stated, data=given.number, origin=origin)
    if not isinstance(given.data, Unknown) or _OF_TIME.search(lines.at(origin.computed) or ""):
        return stated
    line = Origin("code", origin.computed.file, origin.computed.line)
    return _unknown(line, f"computed from {stated.data}, where not all parts are known")


def _unknown(origin: Origin, note: str) -> Candidate:
    return Candidate(None, origin, prior.further["rate of unknown parts"], note, doubted=True)


def _has_rate(one: Made, stated: Candidate) -> bool:
    """Whether an optimiser is given the stated rate, or what is computed from it."""
    given = one.rate.origin if one.rate is not None else None
    place = stated.origin
    return (
        given is not None
        and place is not None
        and (
            (given.source, given.file, given.line, given.text)
            == (place.source, place.file, place.line, place.text)
        )
    )
