"""`model_config.model_name`: the architecture this launch trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedmate.agent.fields import prior
from schedmate.agent.fields.about import About
from schedmate.agent.fields.candidates import EXPLICIT, Candidate, best, by_rule
from schedmate.agent.fields.leaves import Setting, normal
from schedmate.agent.fields.model.built import CONSTRUCTED, built
from schedmate.agent.fields.model.calls import from_calls
from schedmate.agent.fields.model.files import (
    SCRIPT,
    experiment_names,
    file_names,
    folder_names,
    from_entry,
    from_folder,
)
from schedmate.agent.fields.model.names import KIND_OF_PART, PLAIN_FILE
from schedmate.agent.fields.model.readme import BARE, from_title, one_of_many, says_little
from schedmate.agent.fields.model.settings import from_settings
from schedmate.agent.fields.words import is_known, is_whole, words
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Origin


def find(
    trace: Trace, settings: list[Setting], entry: str | None = None, said: Sequence[About] = ()
) -> Candidate | None:
    """The model's name, None when the code does not say.

    `entry` is the program's file. `said` names what the code leaves nameless.
    """
    weighed = _weighed(trace, settings, entry, said)
    found = _chosen(trace, settings, entry, said, weighed)
    return None if found is None else replace(found, considered=weighed.all)


def _chosen(
    trace: Trace,
    settings: list[Setting],
    entry: str | None,
    said: Sequence[About],
    weighed: _Weighed,
) -> Candidate | None:
    found = _from_code(weighed, entry)
    if found is not None and BARE.fullmatch(str(found.data)):
        named = from_settings(trace, settings, [])
        other = best(
            c
            for c in named
            if c.score >= prior.model["known in place of a bare name"]
            and is_known(str(c.data), "models")
        )
        if other is None:
            given = (c for c in named if c.source in _WRITTEN)
            telling = (c for c in given if not BARE.fullmatch(str(c.data)))
            other = best(
                c
                for c in telling
                if c.score >= prior.model["given in place of a bare name"]
                and not KIND_OF_PART.fullmatch(str(c.data))
            )
        if other is None:
            other = best([*experiment_names(settings), *folder_names(settings)])
        if other is None:
            within = [
                c
                for c in built(trace)
                if c.score >= prior.model["network in place of a bare name"]
                and _is_telling(str(c.data))
            ]
            other = best([*within, *from_folder(entry)])
        if other is not None:
            return other
    if found is None:
        found = best(file_names(settings))
    for about in said:
        little = found is None or says_little(found, about) or one_of_many(trace, found, about)
        if about.name and little:
            title = from_title(trace, about, found)
            if title is not None:
                return title
    return found


def _is_telling(name: str) -> bool:
    """Whether the vocabulary knows a name that could not be of any model."""
    return is_known(name, "models") and not BARE.fullmatch(name)


_WRITTEN = (*EXPLICIT, "config")
"""Where a setting is from that somebody wrote for this run."""


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What the code and its settings say: `given` by settings, `named` by experiments, `all`."""

    given: list[Candidate]
    named: list[Candidate]
    all: list[Candidate]


def _weighed(
    trace: Trace, settings: list[Setting], entry: str | None, said: Sequence[About]
) -> _Weighed:
    networks = built(trace)
    for candidate in networks:
        name = normal(str(candidate.data))
        after = any(name == normal(about.name) or name in normal(about.folder) for about in said)
        if len(name) > 5 and after and not is_known(name, "models"):
            candidate.score += prior.network["repository name"]
    given = from_settings(trace, settings, networks)
    named = [c for c in experiment_names(settings) if is_whole(c.data)]
    calls = by_rule("call", from_calls(trace))
    every = [*given, *calls, *networks, *named, *from_entry(trace, entry)]
    return _Weighed(given, named, every)


def _from_code(weighed: _Weighed, entry: str | None) -> Candidate | None:
    given, named = weighed.given, weighed.named
    found = best(weighed.all)
    if found is not None and found.rule in CONSTRUCTED:
        # a variant the user named, yolov7 beside a class found in yolo.py, says more
        stem = normal(str(found.data))
        for other in given:
            longer = normal(str(other.data))
            # and not a run, named after all that it does
            said_more = longer.startswith(stem) and len(stem) < len(longer) < len(stem) + 40
            if other.score >= prior.model["variant"] and said_more:
                return other
        for other in named:
            if stem in normal(str(other.data)):
                return other
    if found is not None:
        # where settings name the same thing, they are the better evidence
        for other in given:
            if normal(str(other.data)) == normal(str(found.data)):
                return replace(other, score=max(found.score, other.score))
    if entry is not None and found is not None and found.data in ("Model", "Sequential"):
        stem = entry.rsplit("/", 1)[-1].removesuffix(".py")
        if not PLAIN_FILE.match(stem) and stem.lower() not in words("not_models"):
            return Candidate(
                stem, Origin("code", entry, 1), prior.model["script"], "the script's name", SCRIPT
            )
    return found
