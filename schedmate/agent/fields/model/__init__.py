"""`model_config.model_name`: the architecture this launch trains."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import Candidate, Setting, best, normal, rules
from schedmate.agent.fields.model.built import built
from schedmate.agent.fields.model.calls import from_calls
from schedmate.agent.fields.model.names import PLAIN_FILE
from schedmate.agent.fields.model.settings import from_settings
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Origin


def find(trace: Trace, settings: list[Setting], entry: str | None = None) -> Candidate | None:
    """The model's name, None when the code does not say. `entry` is the program's file."""
    networks = built(trace)
    given = from_settings(trace, settings, networks)
    found = best([*given, *from_calls(trace), *networks, *_from_entry(trace, entry)])
    if found is not None and found.note == "class constructed":
        # a variant the user named, yolov7 beside a class found in yolo.py, says more
        stem = normal(str(found.data))
        for other in given:
            longer = normal(str(other.data))
            if other.score >= 60 and longer.startswith(stem) and longer != stem:
                return other
    if found is not None:
        # where settings name the same thing, they are the better evidence
        for other in given:
            if normal(str(other.data)) == normal(str(found.data)):
                return Candidate(
                    other.data, other.origin, max(found.score, other.score), other.note
                )
    if entry is not None and found is not None and found.data in ("Model", "Sequential"):
        stem = entry.rsplit("/", 1)[-1].removesuffix(".py")
        if not PLAIN_FILE.match(stem):
            return Candidate(stem, Origin("code", entry, 1), 50, "the script's name")
    return found


def _from_entry(trace: Trace, entry: str | None) -> list[Candidate]:
    """A script named after what it trains, where it builds a nameless model or an agent."""
    if entry is None or not trace.calls:
        return []
    stem = entry.rsplit("/", 1)[-1].removesuffix(".py")
    stem = re.sub(
        r"^(train|run|main|pretrain|finetune)_|_(train|main|run|training|trainer)$", "", stem
    )
    known = re.compile("|".join(rules("vocabulary")["models"].values()))
    found = max(
        (m.group() for m in known.finditer(re.sub(r"[_ .]+", "-", stem.lower()))),
        key=len,
        default="",
    )
    if not found:
        return []
    whole = len(found) >= 0.6 * len(stem) or stem.lower().replace("_", "-").startswith(found)
    name = stem if whole else found.strip("-")
    score = 66 if name == stem else 58
    return [Candidate(name, Origin("code", entry, 1), score, "the script's name")]
