"""Words that tell training data from evaluation data, and what is opened in which role."""

from __future__ import annotations

import re
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
        if value is None:
            continue
        if isinstance(value.data, bool):
            return not value.data
        split = text_of(value)
        if split is not None:
            if TRAIN_WORD.search(split):
                return False
            if EVAL.search(split):
                return True
    for word in (event.target, text.rsplit("/", 1)[-1] if text else "", text or "", event.function):
        if not word:
            continue
        if TRAIN_WORD.search(word):
            return False
        if EVAL_WORD.search(word) or (word is not event.function and EVAL.search(word)):
            return True
    return True if _EVAL_FILE.search(event.site.file) else None


def role_of_class(event: CallEvent) -> bool | None:
    for key, value in event.kwargs.items():
        if key in ("train", "is_train", "training", "is_training") and isinstance(value.data, bool):
            return not value.data
        if key in ("split", "mode", "phase", "subset", "set", "stage", "partition", "image_set"):
            text = text_of(value)
            if text is not None and TRAIN_WORD.search(text):
                return False
            if text is not None and (EVAL.search(text) or EVAL_WORD.search(text)):
                return True
    for value in event.args:
        text = value.data if isinstance(value.data, str) else None
        if text in ("train", "training", "trainval"):
            return False
        if text in ("val", "valid", "validation", "test", "eval", "dev", "testing"):
            return True
    for word in (event.target, event.cls.name if event.cls else "", event.function):
        if TRAIN_WORD.search(word):
            return False
        if EVAL_WORD.search(word):
            return True
    paths = [v.data for v in event.args if isinstance(v.data, str) and is_path(v.data)]
    for text in paths:
        tail = text.rstrip("/").rsplit("/", 1)[-1]
        if TRAIN_WORD.search(tail):
            return False
        if EVAL.search(tail):
            return True
    return True if _EVAL_FILE.search(event.site.file) else None
