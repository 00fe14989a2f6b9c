"""Words that tell training data from evaluation data, and what is opened in which role."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, argument, text_of
from schedmate.agent.fields.dataset.paths import is_path
from schedmate.agent.interp.trace import CallEvent
from schedmate.agent.values import Origin

EVAL = re.compile(
    r"(^|[^a-z])(cv|tt|dt|val|valid|validation|eval|evaluation|test|testing|dev|heldout|holdout)"
    r"(?![a-z]*(ue|ues|uat))",
    re.IGNORECASE,
)
EVAL_WORD = re.compile(
    r"val(id|idation)?$|^(val(?!u)|valid|test|eval|dev(?!ic|el))|_(val|valid|test|eval|dev)(_|$)|"
    r"((?<!inter)val|valid|(?<!la)test|eval|dev)_?(set|data|dataset|loader|dl|ds|iter|split|env)",
    re.IGNORECASE,
)
_EVAL_FILE = re.compile(r"(^|/)eval(uat(e|or|ion))?(_\w+)?(/|\.py$)", re.IGNORECASE)
CLASS_NAME = "the name of its class"
"""Rule: nothing names the dataset but the class that reads it."""
TRAIN_WORD = re.compile(r"train", re.IGNORECASE)


_NOT_FOR_DATA = re.compile(
    r"((\w+_)?(out|outf|output|log|logs|save|result|results|ckpt|checkpoint|resume|weights?|model|network|"
    r"pretrained|pretrained_model|hyp|hparams?|config|cfg|vocab|tokenizer|exp|work|run|reverb|noise|rirs?|musan)"
    r"(_?(dir|path|file|root|folder|name|prefix|name_or_path|data))?|name|o)",
    re.IGNORECASE,
)


def not_for_data(origin: Origin | None) -> bool:
    """Whether a path was given for something else, `--output_dir`: what lies below is no data."""
    flag = (origin.text or "") if origin is not None else ""
    return _NOT_FOR_DATA.fullmatch(flag.replace("-", "_").lstrip("_")) is not None


def as_written() -> float:
    """The points of a path none of whose parts names a dataset."""
    return prior.dataset["as written"]


@dataclass(slots=True)
class Use:
    """A dataset that the program opens.

    `file` tells a file or folder that was opened as such from a dataset class and a library's
    dataset; it may be any file.
    """

    candidate: Candidate
    evaluates: bool | None
    file: bool = False


def role_of_call(event: CallEvent, rule: dict[str, Any], text: str | None) -> bool | None:
    """Whether this is for evaluation: by its split argument, its path, its variable or function."""
    for key in rule.get("split", []):
        value = argument(event, [key])
        if value is not None and isinstance(value.data, bool):
            return not value.data
        role = _role(text_of(value) or "", EVAL)
        if role is not None:
            return role
    words = (event.target, text.rsplit("/", 1)[-1] if text else "", text or "")
    roles = (*(_role(word, EVAL_WORD, EVAL) for word in words), _role(event.function, EVAL_WORD))
    return _first(event, roles)


def role_of_class(event: CallEvent) -> bool | None:
    """Whether a dataset class is made for evaluation: by its arguments, its name or its place."""
    for key, value in event.kwargs.items():
        if key in ("train", "is_train", "training", "is_training") and isinstance(value.data, bool):
            return not value.data
        if key in ("split", "mode", "phase", "subset", "set", "stage", "partition", "image_set"):
            role = _role(text_of(value) or "", EVAL, EVAL_WORD)
            if role is not None:
                return role
    texts = [value.data for value in event.args if isinstance(value.data, str)]
    for text in texts:
        if text in ("train", "training", "trainval"):
            return False
        if text in ("val", "valid", "validation", "test", "eval", "dev", "testing"):
            return True
    names = (event.target, event.cls.name if event.cls else "", event.function)
    tails = [text.rstrip("/").rsplit("/", 1)[-1] for text in texts if is_path(text)]
    roles = (*(_role(name, EVAL_WORD) for name in names), *(_role(tail, EVAL) for tail in tails))
    return _first(event, roles)


def _role(word: str, *evaluates: re.Pattern[str]) -> bool | None:
    """Whether a word is about evaluation, None where it is about training as little."""
    if TRAIN_WORD.search(word):
        return False
    return True if any(pattern.search(word) for pattern in evaluates) else None


def _first(event: CallEvent, roles: Iterable[bool | None]) -> bool | None:
    """The first role that is known, else that of the file that the call stands in."""
    known = next((role for role in roles if role is not None), None)
    return True if known is None and _EVAL_FILE.search(event.site.file) else known
