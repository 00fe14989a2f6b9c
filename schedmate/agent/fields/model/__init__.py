"""`model_config.model_name`: the architecture this launch trains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedmate.agent.fields import prior
from schedmate.agent.fields.about import About
from schedmate.agent.fields.candidates import EXPLICIT, Candidate, best, by_rule, rules
from schedmate.agent.fields.leaves import Setting, normal
from schedmate.agent.fields.model.built import CONSTRUCTED, built, wholes
from schedmate.agent.fields.model.calls import from_calls
from schedmate.agent.fields.model.names import BUILT_WITH, KIND_OF_PART, PLAIN_FILE
from schedmate.agent.fields.model.settings import from_settings
from schedmate.agent.fields.words import is_known, is_whole, words
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Origin

FILE_NAME, SCRIPT, README = "file name", "script", "README"
"""Rules: the model is named by a configuration file, by the program's file, by the README."""


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
    if found is not None and _BARE.fullmatch(str(found.data)):
        named = from_settings(trace, settings, [])
        other = best(
            c
            for c in named
            if c.score >= prior.model["known in place of a bare name"]
            and is_known(str(c.data), "models")
        )
        if other is None:
            given = (c for c in named if c.origin is not None and c.origin.source in _WRITTEN)
            telling = (c for c in given if not _BARE.fullmatch(str(c.data)))
            other = best(
                c
                for c in telling
                if c.score >= prior.model["given in place of a bare name"]
                and not KIND_OF_PART.fullmatch(str(c.data))
            )
        if other is None:
            other = best(_experiment_names(settings))
        if other is None:
            other = best(
                c
                for c in built(trace)
                if c.score >= prior.model["network in place of a bare name"]
                and _is_telling(str(c.data))
            )
        if other is not None:
            return other
    if found is None:
        found = best(_file_names(settings))
    for about in said:
        little = found is None or _says_little(found, about) or _one_of_many(trace, found, about)
        if about.name and little:
            title = _from_title(trace, about, found)
            if title is not None:
                return title
    return found


def _file_names(settings: list[Setting]) -> list[Candidate]:
    """Models after which the configuration files are named that the launch gives."""
    given = [s for s in settings if s.explicit and isinstance(s.value.data, str)]
    found = []
    for setting in given:
        file = re.search(r"([^/]+)\.(ya?ml|py|jsonn?e?t?|toml|gin|conf)$", str(setting.value.data))
        named = _known_in(file[1]) if file is not None else None
        if named is not None and len(normal(named[0])) > 2:
            note = "the configuration's name"
            score = prior.model["configuration file"] + (
                prior.model["whole file name"] if named[1] else 0
            )
            found.append(Candidate(named[0], setting.value.origin, score, note, FILE_NAME))
    return found


def _is_telling(name: str) -> bool:
    """Whether the vocabulary knows a name that could not be of any model."""
    return is_known(name, "models") and not _BARE.fullmatch(name)


def _experiment_names(settings: list[Setting]) -> list[Candidate]:
    """Known models among the names that configuration files give themselves."""
    return [
        Candidate(
            setting.value.data,
            setting.value.origin,
            prior.model["experiment name"],
            "the configuration's name",
            FILE_NAME,
        )
        for setting in settings
        if setting.path == ("name",) and setting.kind == "config"
        if isinstance(setting.value.data, str) and is_known(setting.value.data, "models")
    ]


def _says_little(found: Candidate, said: About) -> bool:
    """Whether a name could be of any model, or is less of one than the README's."""
    name = str(found.data)
    if _BARE.fullmatch(name):
        return True
    weak = found.score < prior.model["weak"] or (
        found.score <= prior.model["weak unless known"] and not is_known(name, "models")
    )
    return weak and is_known(said.name, "models") and normal(said.name) in normal(said.folder)


_MANY = 5
"""So many different networks are one system, which no single one of them names."""


def _one_of_many(trace: Trace, found: Candidate, said: About) -> bool:
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


def _from_title(trace: Trace, said: About, found: Candidate | None) -> Candidate | None:
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

_WRITTEN = (*EXPLICIT, "config")
"""Where a setting is from that somebody wrote for this run."""

_BARE = re.compile(
    r"(\w*(Classification|Segmentation|Detection|Regression|Prediction|Reconstruction|Training))?Task|"
    r"(_?Serial|Noisy)Model|Model\d|Agent|Baseline|Generator[A-Z]\w*|"
    r"(Base|My|Simple|The|Full|Dygraph|Static)?(Auto[eE]ncoder|[Gg]enerator|Model|Net|Network|Module|Backbone|Encoder|"
    r"Decoder|Sequential|NN|Net[GD]|(Un|Self|Semi)Sup(ervised)?Model)"
)
"""Names of classes that could be of any model."""


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
    named = [c for c in _experiment_names(settings) if is_whole(c.data)]
    calls = by_rule("call", from_calls(trace))
    every = [*given, *calls, *networks, *named, *_from_entry(trace, entry)]
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


def _from_entry(trace: Trace, entry: str | None) -> list[Candidate]:
    """A script named after what it trains, where it builds a nameless model or an agent."""
    if entry is None or not trace.calls:
        return []
    stem = entry.rsplit("/", 1)[-1].removesuffix(".py")
    stem = re.sub(
        r"^(train|run|main|pretrain|finetune)_|_(train|main|run|training|trainer)$", "", stem
    )
    stem = re.sub(r"^[a-z]?\d+_(?=[A-Za-z])", "", stem)
    stem = BUILT_WITH.sub("", stem)
    named = _known_in(stem)
    if named is None:
        return []
    score = prior.model["script of a model"] if named[1] else prior.model["script with a model"]
    return [Candidate(named[0], Origin("code", entry, 1), score, "the script's name", SCRIPT)]


def _known_in(stem: str) -> tuple[str, bool] | None:
    """The known model, and which of its kind, in a file's name; whether that begins with it."""
    known = re.compile("|".join(rules("vocabulary")["models"].values()))
    spelled = re.sub(r"[_ .]", "-", stem.lower())
    found = [
        (spelled.rfind("-", 0, match.start() + 1) + 1, variant.end())
        for match in known.finditer(spelled)
        if (variant := _VARIANT.match(spelled, match.end())) is not None
        if f"-{spelled}"[match.start()] == "-" or match[0] in ("gan", "bert", "gpt", "vae")
        if match[0].strip("-") not in words("script_words") - {"gan"}
        if not is_known(match[0].strip("-"), "datasets")
    ]
    start, end = max(found, key=lambda place: place[1] - place[0], default=(0, 0))
    name = stem[start:end].strip("-_. ")
    return (name, not start) if name and normal(name) not in words("script_words") else None


_VARIANT = re.compile(
    r"-?\d*+(-?(v?\d\w*+|rnn|gru|lstm|cnn|mlp|small|base|large|tiny|mini|huge|nano|medium|lite|xl|"
    r"bc|her|per))*(?=-|$)"
)
"""What says of a known model which one it is, up to the end of a word."""
