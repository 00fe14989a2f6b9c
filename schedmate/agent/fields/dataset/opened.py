"""Datasets that the program opens by calls of libraries."""

from __future__ import annotations

import re
from typing import Any

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, argument, matching, source_bonus, text_of
from schedmate.agent.fields.dataset.names import dataset_name, library_dataset
from schedmate.agent.fields.dataset.own import uses_of_class, uses_of_unread_class
from schedmate.agent.fields.dataset.paths import begins, is_path, written_path
from schedmate.agent.fields.dataset.roles import (
    Use,
    as_written,
    not_for_data,
    role_of_call,
    role_of_class,
)
from schedmate.agent.fields.words import is_known
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Class
from schedmate.agent.interp.trace import CallEvent
from schedmate.agent.values import Value


def uses_of(event: CallEvent) -> list[Use]:
    if event.inside or ".transforms." in event.path:
        return []
    if event.cls is not None and classes.is_environment(event.cls):
        origin = event.result.origin if event.result is not None else None
        return [
            Use(
                Candidate(_class_or_module(event.cls), origin, prior.opened["environment"]),
                role_of_class(event),
            )
        ]
    if event.cls is not None:
        return uses_of_class(event)
    for rule in matching(event, "dataset"):
        last = classes.last(event.path)
        if "only" in rule and not re.search(rule["only"], last):
            continue
        if rule.get("weak") and "()" in event.path:
            continue  # `polars.scan_parquet().sort("x")` goes on with what was opened
        if "only_arg" in rule:
            text = text_of(argument(event, rule["name"]))
            if text is None or not re.search(rule["only_arg"], text, re.IGNORECASE):
                continue
        found = _opened(event, rule, last)
        if found is not None:
            return found
    return uses_of_unread_class(event)


def _class_or_module(cls: Class) -> str:
    """An environment's class; one called Game or Env is named by its module."""
    plain = re.fullmatch(r"_?(My|Custom)?(Game|Env|Environment)(Env|Wrapper)?", cls.name)
    return cls.module.name.rsplit(".", 1)[-1] if plain else cls.name


def _opened(event: CallEvent, rule: dict[str, Any], last: str) -> list[Use] | None:
    score = prior.opened.sure("call", event.certain)
    if rule.get("weak"):
        score += prior.opened["any file"]
    spec = rule["name"]
    origin = event.result.origin if event.result is not None else None
    root = argument(event, rule["root"]) if "root" in rule else None
    name: str | None
    text: str | None = None
    if spec in ("path", "owner"):
        name = last if spec == "path" else classes.last(event.path.rsplit(".", 1)[0])
        if event.path.count("()") > 0 or not (
            name[:1].isupper()
            or spec == "owner"
            or rule.get("any_case")
            or name.startswith(("fetch_", "load_"))
        ):
            return None
        if "from_path" in rule and re.search(rule["from_path"], name):
            text = text_of(root)
            found = dataset_name(text, path=True) if text is not None else None
            if found is None and text is not None:
                found, score = written_path(text), as_written()
            if found is None:
                return None
            name, origin = found, (root.origin if root is not None else None) or origin
            if origin is not None and origin.source == "default" and not is_known(name, "datasets"):
                score += prior.opened["own place"]
        name = library_dataset(name)
    else:
        value = argument(event, spec)
        text, less = _place_in(value, rule)
        score -= less
        if text is None or value is None or _is_other(value, text, rule):
            return None
        second = text_of(argument(event, rule["then"])) if "then" in rule else None
        if second is not None and not text.endswith(second):
            text = f"{text}_{second}"
        built = "subset" in rule and text.lower() in _BUILDERS
        if built:
            text = _built_from(event)
            name = dataset_name(text, path=True) if text is not None else None
        else:
            name = _name_in(text, rule, text_of(root))
        place = built or (rule.get("path") and (not rule.get("weak") or _data_file(text or "")))
        if name is None and place and text is not None:
            name, score = written_path(text), as_written()
        if name is None:
            return None
        origin = value.origin or origin
        name = name if built else _with_subset(event, rule, name)
    if last == "glob":
        score += prior.opened["glob"]
    score += source_bonus(origin) * prior.opened["source"] + _by_name(
        name, text or "", bool(rule.get("weak"))
    )
    candidate = Candidate(name, origin, score)
    if rule.get("both"):
        return [
            Use(candidate, False),
            Use(Candidate(name, origin, score + prior.opened["of both"]), True),
        ]
    file = bool(rule.get("weak") or rule.get("file"))
    return [Use(candidate, role_of_call(event, rule, text), file)]


def _is_other(value: Value, text: str, rule: dict[str, Any]) -> bool:
    """Whether what a call opens is no data: labels, checkpoints, what was given for the output."""
    return bool(
        (rule.get("weak") and _BESIDE_DATA.search(text))
        or (rule.get("path") and not_for_data(value.origin))
        or (rule.get("string") and text is not value.data)
    )


def _place_in(value: Value | None, rule: dict[str, Any]) -> tuple[str | None, float]:
    """What a call's argument says, whole or as far as a path is known, and how much less."""
    text = text_of(value)
    start = begins(value) if text is None and rule.get("path") else None
    return (text, 0.0) if start is None else (start, -prior.dataset["part of a path"])


def _name_in(text: str, rule: dict[str, Any], root: str | None) -> str | None:
    """The dataset that a call's argument names, or the folder that it is given beside."""
    name = dataset_name(text, path=bool(rule.get("path")))
    if name is None and root is not None:
        name = dataset_name(root, path=True)
    if rule["call"] in _OPENS and not _data_file(text):
        # a well-known dataset's files may have no extension: `cifar-10-batches-py/data_batch_1`
        folder, _, file = text.rpartition("/")
        if not folder or "." in file or name is None or not is_known(name, "datasets"):
            return None
    return name


_BESIDE_DATA = re.compile(
    r"(?<![a-z])vocab(?![a-z])[^/]*$|(^|/)(checkpoints?|ckpts?|pretrained\w*|weights|saved_models?)/|"
    r"[-_](labels?|vocab|dict|stats|mean|std|classes|mapping)\.(npy|npz|pkl|pickle|pth?)$",
    re.IGNORECASE,
)
_OPENS = ("open", "io.open", "codecs.open", "tensorflow.io.gfile.GFile", "tensorflow.gfile.*")


_KEPT_BETWEEN = re.compile(
    r"(^|[/_-])(tmp|temp|temporary|cached?)([_-][^/]+)?/*$|[^/][_-](tmp|temp|cached?)/*$",
    re.IGNORECASE,
)
"""A place where a program keeps what it made of its data: `tmp_dataset`, `data_cache`."""


_LIST = re.compile(r"(split|list|ids|index|indices)s?\.\w{2,5}$", re.IGNORECASE)
"""A list of the samples of a part, `got10k_train_split.txt`: the data lies elsewhere."""


def _by_name(name: str, text: str, weak: bool) -> float:
    """How much a name adds to what is opened, or takes from it."""
    if is_known(name, "datasets"):
        return prior.opened["known file"] if weak and not _LIST.search(text) else 0.0
    return prior.opened["kept between"] if _KEPT_BETWEEN.search(text) else 0.0


def _data_file(text: str) -> bool:
    return bool(re.search(r"\.(txt|json|jsonl|csv|tsv|pkl|bin|npz|npy)$", text)) and not re.search(
        r"(?<![a-z])maps?\.|config|log|result|metric|arg|param|vocab|label|class|state|history|requirements|readme|"
        r"hparam|setting|option|tokenizer|pred|output|loss|seed|info|meta|lexicon|phone|dictionary|classes",
        text,
        re.IGNORECASE,
    )


_BUILDERS = ("json", "csv", "text", "parquet", "imagefolder", "audiofolder", "webdataset", "arrow",
             "pandas")  # fmt: skip


def _with_subset(event: CallEvent, rule: dict[str, Any], name: str) -> str:
    if "subset" not in rule:
        return name
    subset = text_of(argument(event, rule["subset"]))
    if subset and not is_path(subset) and subset not in ("default", "main") and subset != name:
        return f"{name}/{subset}"
    return name


def _built_from(event: CallEvent) -> str | None:
    """`load_dataset("json", data_files=...)`: the file or folder, the training set's if several."""
    files = event.kwargs.get("data_files") or event.kwargs.get("data_dir")
    if files is not None and isinstance(files.data, dict):
        found = [text_of(files.data.get(key)) for key in ("train", *files.data)]
        return next((text for text in found if text is not None), None)
    return text_of(files)
