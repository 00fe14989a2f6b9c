"""What is told of an optimiser besides its name: others beside it, and a rate that is computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from schedmate.agent.fields import called, prior
from schedmate.agent.fields.candidates import Candidate, normal
from schedmate.agent.fields.proofs import Lines
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin, Place, Unknown

_NAMED = 3
"""Further optimisers that are named."""
_OF_TIME = re.compile(r"step|iter|epoch|warm|sched|decay|anneal|cos|progress", re.IGNORECASE)
"""What a rate that changes while the program trains is computed from."""


def add(trace: Trace, found: dict[str, Candidate], lines: Lines) -> None:
    """Say which optimisers there are, and replace a learning rate that another is computed from.

    `lines` is the repository, where the computation is looked up.
    """
    certain = list(_made(trace))
    chosen = found.get("optimizer")
    if chosen is not None:
        found["optimizer"] = _with_others(chosen, certain)
    stated = found.get("lr")
    if stated is not None and certain:
        found["lr"] = _computed(stated, certain[0], lines)


def _made(trace: Trace) -> Iterator[CallEvent]:
    """The calls that certainly make an optimiser, less what another is only put around."""
    made = [
        event
        for event in trace.calls
        if event.certain and (called.makes_optimizer(event) or called.makes_own_optimizer(event))
    ]
    results = {id(event.result.data) for event in made if event.result is not None}
    for event in made:
        given = (*event.args, *event.kwargs.values())
        if not any(id(value.data) in results for value in given):
            yield event


def _with_others(chosen: Candidate, made: list[CallEvent]) -> Candidate:
    """The optimiser, its note naming those of other kinds that the program makes too."""
    names = {normal(str(chosen.data))}
    others = []
    for event in made:
        name = called.optimizer_name(event)
        if normal(name) not in names:
            names.add(normal(name))
            others.append(f"{name} ({event.site.file}:{event.site.line})")
    known = {normal(called.optimizer_name(event)) for event in made}
    if not others or normal(str(chosen.data)) not in known:
        return chosen
    return replace(chosen, note=f"also {', '.join(others[:_NAMED])}")


def _computed(stated: Candidate, event: CallEvent, lines: Lines) -> Candidate:
    """What the optimiser is given, where that is computed from the rate that a setting states.

    Null where a part of the computation is not known, with the line that computes it. A schedule
    starts from the rate that is stated.
    """
    given = called.rate(event)
    origin = given.origin if given is not None else None
    if given is None or origin is None or not isinstance(origin.computed, Place):
        return stated
    if not _same_place(origin, stated.origin):
        return stated
    if given.number is not None:
        if given.number <= 0 or given.number == stated.data:
            return stated
        return replace(stated, data=given.number, origin=origin)
    if not isinstance(given.data, Unknown) or _OF_TIME.search(lines.at(origin.computed) or ""):
        return stated
    place = Origin("code", origin.computed.file, origin.computed.line)
    note = f"computed from {stated.data}, where not all parts are known"
    score = prior.further["rate of unknown parts"]
    return Candidate(None, place, score, note, doubted=True)


def _same_place(one: Origin, other: Origin | None) -> bool:
    return other is not None and (one.source, one.file, one.line, one.text) == (
        other.source, other.file, other.line, other.text
    )  # fmt: skip
