"""Models that configuration files and the program's own file are named after."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, rules
from schedmate.agent.fields.leaves import Setting, normal
from schedmate.agent.fields.model.names import BUILT_WITH
from schedmate.agent.fields.words import is_known, is_whole, words
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Origin

FILE_NAME, SCRIPT = "file name", "script"
"""Rules: the model is named by a configuration file, by the program's file."""

_VARIANT = re.compile(
    r"-?\d*+(-?(v?\d\w*+|rnn|gru|lstm|cnn|mlp|small|base|large|tiny|mini|huge|nano|medium|lite|xl|"
    r"bc|her|per))*(?=-|$)"
)
"""What says of a known model which one it is, up to the end of a word."""


def file_names(settings: list[Setting]) -> list[Candidate]:
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


def experiment_names(settings: list[Setting]) -> list[Candidate]:
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


def from_entry(trace: Trace, entry: str | None) -> list[Candidate]:
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
    score = prior.model["script of a model" if named[1] else "script with a model"]
    return [Candidate(named[0], Origin("code", entry, 1), score, "the script's name", SCRIPT)]


def folder_names(settings: list[Setting]) -> list[Candidate]:
    """Models after which configuration files or the folders that hold them are named."""
    files = {setting.owner for setting in settings if setting.kind == "config"}
    return [
        Candidate(
            part,
            Origin("config", file, 1),
            prior.model["configuration place"],
            "the configuration's place",
            FILE_NAME,
        )
        for file in sorted(files)
        for part in file.rsplit(".", 1)[0].split("/")
        if is_whole(part) and not is_known(part, "datasets")
    ]


def from_folder(entry: str | None) -> list[Candidate]:
    """Folders named after a model that the program is in: `dreamerv3/main.py`."""
    named = [_known_in(folder) for folder in (entry or "").split("/")[:-1]]
    place = Origin("code", entry, 1)
    note = "the script's folder"
    return [
        Candidate(found[0], place, prior.model["script"], note, SCRIPT) for found in named if found
    ]


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
