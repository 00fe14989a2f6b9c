"""Datasets that classes of the repository's own are of: what they are given, or their name."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    Candidate,
    is_launched,
    pattern,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.fields.dataset.names import class_dataset, dataset_name, library_dataset
from schedmate.agent.fields.dataset.paths import begins, is_path, written_path
from schedmate.agent.fields.dataset.roles import (
    CLASS_NAME,
    EVAL,
    Use,
    as_written,
    not_for_data,
    role_of_class,
)
from schedmate.agent.fields.leaves import normal
from schedmate.agent.fields.words import begins_known, is_ambiguous, is_known
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import Class, Function, Instance
from schedmate.agent.interp.trace import CallEvent
from schedmate.agent.values import Origin


def uses_of_class(event: CallEvent) -> list[Use]:
    """A dataset class of the repository: named by a path or name it is given, else by its name."""
    cls = event.cls
    assert cls is not None
    if any(classes.last(base).endswith("DataLoader") for base in cls.external_bases()):
        return []
    known_base = _library_base(cls)
    if (
        known_base is None
        and not classes.is_dataset(cls)
        and not re.search(r"Data(set|sets|Module|Loader|Loaders)$", cls.name)
    ):
        return []
    if re.search(r"Collat|(Storage|Buffer)$", cls.name):  # holds samples, whosever they are
        return []
    origin = event.result.origin if event.result is not None else None
    score = prior.dataset_class.sure("made", event.certain)
    if event.owner is not None and event.owner is not cls and event.function == "__init__":
        if classes.is_dataset(event.owner) and "Module" not in event.owner.name:
            score += prior.dataset_class["inside"]
    if "DataModule" in cls.name or "LightningDataModule" in map(classes.last, cls.external_bases()):
        score += prior.dataset_class["module"]
    name = known_base or _named_by_class(cls)
    if name is not None and _names_the_program(name, event):
        name = None
    told = _given(event, name, score)
    if told is None and name is not None and event.args and not is_known(name, "datasets"):
        first, key = event.args[0].data, next(iter(_parameters(cls)), None) or ""
        wraps = isinstance(first, Instance) and (
            classes.is_dataset(first.cls) or first.cls.name.endswith(("Dataset", "Datasets"))
        )
        if wraps and not re.search("data|set", cls.name, re.IGNORECASE):
            score += prior.dataset_class["transform"]
        elif not re.search("root|dir|path|file|folder", key, re.IGNORECASE):
            score += prior.dataset_class["of read data"]
    own = None if name is None else _of_class(name, cls.name, origin, score)
    if told is not None and own is not None and told.score < score:
        if told.origin is not None and told.source == "code":
            told.score -= score - own.score  # no place for data, but what the code calls it
    found = [candidate for candidate in (own, told) if candidate is not None]
    return [Use(candidate, role_of_class(event)) for candidate in found]


def _of_class(name: str, of: str, origin: Origin | None, score: float) -> Candidate:
    """What the class's own name says; one that nobody knows says less than a path in the launch."""
    if name == of and re.search("Data", of) and not is_known(name, "datasets"):
        least = as_written() + prior.dataset_class["class name at least"]
        little = max(score + prior.dataset_class["class name"], least)
        return Candidate(name, origin, little, CLASS_NAME, CLASS_NAME)
    return Candidate(name, origin, score)


def _named_by_class(cls: Class) -> str | None:
    """The dataset after which a class is named, or the module that holds it."""
    name = class_dataset(cls.name)
    if name is not None and (
        _names_a_model(name) or _names_a_model(re.sub(r"_?Dataset$", "", name))
    ):
        name = None
    if name is not None and is_known(name, "datasets"):
        return name
    stem = cls.module.name.rsplit(".", 1)[-1]
    return stem if begins_known(stem) and not is_ambiguous(stem) else name


_UNREAD = re.compile(r"[A-Z]\w*(Dataset|DataModule)(V?\d+)?")


def uses_of_unread_class(event: CallEvent) -> list[Use]:
    """The same of a dataset class whose source is not in the repository: what it is given."""
    if not _UNREAD.fullmatch(classes.last(event.path)) or "()" in event.path:
        return []
    told = _given(event, None, prior.dataset_class.sure("unread", event.certain))
    return [] if told is None else [Use(told, role_of_class(event))]


def _given(event: CallEvent, class_name: str | None, score: float) -> Candidate | None:
    """What a dataset class is told to read, beside what it is called itself."""
    origin = event.result.origin if event.result is not None else None
    names = _parameters(event.cls) if event.cls is not None else [None] * 4
    given = [*zip(names, event.args[:4], strict=False), *event.kwargs.items()]
    for key, value in sorted(given, key=lambda item: not _OF_TRAINING.fullmatch(item[0] or "")):
        # folders; of files, one is a piece that its own name says little of
        listed = (
            isinstance(value.data, list) and _FOLDER.fullmatch(text_of(value) or "") is not None
        )
        whole = isinstance(value.data, str) or listed
        text = text_of(value) if whole else begins(value)
        if text is None or not _is_data_argument(key, text if whole else f"{text}/x/"):
            continue
        if not_for_data(value.origin):
            continue
        name = dataset_name(text, path=not whole or is_path(text))
        place = value.origin or origin
        if name is None and class_name is None and is_path(text):
            name = written_path(text)
            if name is not None:
                return Candidate(name, place, as_written())
        if name is not None and not EVAL.fullmatch(name):
            score += _by_class(name, text, class_name, place) + (
                0 if whole else prior.dataset["part of a path"]
            )
            return Candidate(
                name, place, score + source_bonus(place) * prior.dataset_class["source"]
            )
    return None


def _by_class(name: str, text: str, class_name: str | None, place: Origin | None) -> float:
    """How much more a name that a class is given says than the class's own."""
    # a data file says more than the class that reads it, a folder less
    if _names_a_model(name):
        return prior.dataset_class["model"]
    file = re.search(r"\.\w{2,8}$", text)
    folder = "folder beside a name" if class_name else "folder"
    bonus = prior.dataset_class["file" if file else folder]
    if is_known(name, "datasets"):
        return bonus + prior.dataset_class["known"]
    if class_name is not None and is_known(class_name, "datasets"):
        return prior.dataset_class["known class"]
    if class_name is not None and is_launched(place):
        return prior.dataset_class["launched"]
    return bonus


_FOLDER = re.compile(r"[^\n]*/[^/.\n]+/?")
_OF_TRAINING = re.compile(r"(train(ing)?_?)?data(set)?(_?(dir|path|root|folder))?", re.IGNORECASE)
"""The argument for the data itself, beside those for templates, labels or an index."""


def _library_base(cls: Class) -> str | None:
    """The library's dataset that a class of the repository derives from."""
    for base in cls.external_bases():
        for rule in rules("calls")["dataset"]:
            last = classes.last(base)
            if rule["name"] != "path" or not pattern(rule["call"]).match(base):
                continue
            if not last[:1].isupper() or ("only" in rule and not re.search(rule["only"], last)):
                continue
            if "from_path" in rule and re.search(rule["from_path"], last):
                continue
            if is_known(last, "datasets"):
                return library_dataset(last)
    return None


def _parameters(cls: Class) -> list[str | None]:
    """Names of the constructor's positional parameters, enough of them for any call."""
    init = cls.lookup("__init__")
    names: list[str | None] = []
    if init is not None and isinstance(init.data, Function):
        names = [a.arg for a in init.data.node.args.args[1:]]
    return [*names, *([None] * 8)]


def _names_a_model(name: str) -> bool:
    return is_known(name, "models") and not is_known(name, "datasets")


def _names_the_program(name: str, event: CallEvent) -> bool:
    """Whether a class is named after its package: `asme.data.AsmeDataModule` says nothing."""
    package = event.path.split(".", 1)[0]
    bare = re.sub(r"_?(Dataset|DataModule|DataLoader|Data)$", "", name)
    return event.path.count(".") > 1 and normal(bare) == normal(package)


def _is_data_argument(key: str | None, text: str) -> bool:
    if key is None:
        return is_path(text)
    if (
        is_path(text)
        and re.search(r"\.\w{2,8}$", text)
        and not re.search(r"vocab|label|class|conf|cfg|lexicon|dict|phone|weight|ckpt|checkp", key)
    ):
        return True
    return bool(
        re.search(r"path|root|dir|data|file|folder|name|url|corpus|env", key, re.IGNORECASE)
    ) and not (
        re.search(
            r"split|mode|phase|tokenizer|vocab|template|model|arch|weight|cache|log|output|save|format|type|key|column|conf|cfg|"
            r"lexicon|dict|phone",
            key,
            re.IGNORECASE,
        )
    )
