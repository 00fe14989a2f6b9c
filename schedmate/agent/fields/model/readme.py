"""Models that a README names, and when it is asked."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.about import About
from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.fields.leaves import normal
from schedmate.agent.fields.model.built import CONSTRUCTED, built
from schedmate.agent.fields.model.relations import wholes
from schedmate.agent.fields.words import is_known, words
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Origin

README = "README"
"""Rule: the model is named by the README."""

_MANY = 5
"""So many different networks are one system, which no single one of them names."""
_TOOLKIT = re.compile(
    r"(\bis|:) an? ([\w-]+[ ,/]+){0,6}"
    r"(library|toolkit|toolbox|platform|codebase|simulator|open[- ]source project|"
    r"(training|simulation) framework)\b",
    re.IGNORECASE,
)
"""What a README says of itself that is about many models."""
_OPENING = 1500
"""Characters of a README in which it says so; further down it is about others."""
_KIND = re.compile(
    r"(GAN|VAE|Diffusion|Transformers?|CNN|RNN|LSTM|GNN|LLM|RL|NLP|Segmentation|Detection|"
    r"Classification)s?",
    re.IGNORECASE,
)
"""Headings that name a kind of model, of which the repository may have many."""
BARE = re.compile(
    r"(\w*(Classification|Segmentation|Detection|Regression|Prediction|Reconstruction|Training))?Task|"
    r"(_?Serial|Noisy)Model|Model\d|Agent|Baseline|Generator[A-Z]\w*|"
    r"(Base|My|Simple|The|Full|Dygraph|Static)?(Auto[eE]ncoder|[Gg]enerator|Model|Net|Network|Module|Backbone|Encoder|"
    r"Decoder|Sequential|NN|Net[GD]|(Un|Self|Semi)Sup(ervised)?Model)"
)
"""Names of classes that could be of any model."""


def says_little(found: Candidate, said: About) -> bool:
    """Whether a name could be of any model, or is less of one than the README's."""
    name = str(found.data)
    if BARE.fullmatch(name):
        return True
    weak = found.score < prior.model["weak"] or (
        found.score <= prior.model["weak unless known"] and not is_known(name, "models")
    )
    return weak and is_known(said.name, "models") and normal(said.name) in normal(said.folder)


def one_of_many(trace: Trace, found: Candidate, said: About) -> bool:
    """Whether a network is one of many of a system that the README and the folder name."""
    if found.rule not in CONSTRUCTED or not said.name:
        return False
    if found.data in wholes(trace):
        return False
    names = {
        candidate.data
        for candidate in built(trace)
        if candidate.score >= prior.model["one of many"]
    }
    return len(names) >= _MANY and normal(said.name) in normal(said.folder)


def from_title(trace: Trace, said: About, found: Candidate | None) -> Candidate | None:
    """The README's name for it, where that is a model's or the program's own names have it."""
    name = said.name
    letters = normal(name)
    if not re.fullmatch(r"[A-Za-z][\w+.-]*", name, re.ASCII) or _KIND.fullmatch(name):
        return None
    opening = f"{said.title}. {said.text}"[:_OPENING]
    if letters in words("script_words") or _TOOLKIT.search(opening):
        return None
    if len(letters) < 3 or not trace.calls:
        return None
    own = {event.cls.name for event in trace.calls if event.cls is not None}
    own |= set(trace.functions)
    mentioned = any(letters in normal(text) for text in own)
    cased = re.search(r"[a-z].*[A-Z]|[A-Z].*[A-Z]|\d", name)
    if not mentioned and not is_known(name, "models") and not (cased and found is not None):
        return None  # nothing that the program makes or calls is named so
    if is_known(name, "datasets") and not is_known(name, "models"):
        return None
    return Candidate(
        name,
        Origin("code", said.file, said.line),
        prior.model["README"],
        "the README's heading",
        README,
    )
