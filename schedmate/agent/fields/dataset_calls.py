"""Datasets that the program opens by calls: of libraries, or of dataset classes of its own.

A class is of what it is given, or of what its name says.
"""

from __future__ import annotations

import re
from typing import Any

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    Candidate,
    begins_known,
    call_pattern,
    is_ambiguous,
    is_known,
    is_launched,
    matching_rules,
    pattern_of,
    rule_argument,
    rules,
    source_bonus,
    text_of,
    word_list,
)
from schedmate.agent.fields.dataset_names import (
    CLASS_NAME,
    EVAL,
    Use,
    as_written_points,
    class_dataset,
    dataset_name,
    is_not_for_data,
    is_path,
    library_dataset,
    path_beginning,
    role_of_call,
    role_of_class,
    written_path,
)
from schedmate.agent.fields.settings import normal_name
from schedmate.agent.interp.objects import Class, Function, Instance
from schedmate.agent.interp.trace import CallEvent
from schedmate.agent.interp.values import classes
from schedmate.agent.values import Origin, Value


def uses_of_call(event: CallEvent) -> list[Use]:
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
    for rule in matching_rules(event, "dataset"):
        last = classes.last_part(event.path)
        if "only" in rule and not re.search(rule["only"], last):
            continue
        if rule.get("weak") and "()" in event.path:
            continue  # `polars.scan_parquet().sort("x")` goes on with what was opened
        if "only_arg" in rule:
            text = text_of(rule_argument(event, rule["name"]))
            if text is None or not re.search(rule["only_arg"], text, re.IGNORECASE):
                continue
        found = _opened_by_rule(event, rule, last)
        if found is not None:
            return found
    return uses_of_unread_class(event)


def _class_or_module(cls: Class) -> str:
    """An environment's class; one called Game or Env is named by its module."""
    plain = re.fullmatch(r"_?(My|Custom)?(Game|Env|Environment)(Env|Wrapper)?", cls.name)
    return cls.module.name.rsplit(".", 1)[-1] if plain else cls.name


def _opened_by_rule(event: CallEvent, rule: dict[str, Any], last: str) -> list[Use] | None:
    score = prior.opened.sure("call", event.certain)
    if rule.get("weak"):
        score += prior.opened["any file"]
    spec = rule["name"]
    origin = event.result.origin if event.result is not None else None
    root = rule_argument(event, rule["root"]) if "root" in rule else None
    name: str | None
    text: str | None = None
    if spec in ("path", "owner"):
        name = last if spec == "path" else classes.last_part(event.path.rsplit(".", 1)[0])
        if event.path.count("()") > 0 or not (
            name[:1].isupper()
            or spec == "owner"
            or rule.get("any_case")
            or name.startswith(("fetch_", "load_"))
        ):
            return None
        if "from_path" in rule and re.search(rule["from_path"], name):
            text = text_of(root)
            dataset = dataset_name(text, path=True) if text is not None else None
            if dataset is None and text is not None:
                dataset, score = written_path(text), as_written_points()
            if dataset is None:
                return None
            name, origin = dataset, (root.origin if root is not None else None) or origin
            if origin is not None and origin.source == "default" and not is_known(name, "datasets"):
                score += prior.opened["own place"]
        name = library_dataset(name)
    else:
        value = rule_argument(event, spec)
        text, less = _place_in(value, rule)
        score -= less
        if text is None or value is None or _is_other(value, text, rule):
            return None
        second = text_of(rule_argument(event, rule["then"])) if "then" in rule else None
        if second is not None and not text.endswith(second):
            text = f"{text}_{second}"
        built = "subset" in rule and text.lower() in word_list("file_builders")
        if built:
            text = _built_from_file(event)
            name = dataset_name(text, path=True) if text is not None else None
        else:
            name = _name_in(text, rule, text_of(root))
        place = built or (rule.get("path") and (not rule.get("weak") or _is_data_file(text or "")))
        if name is None and place and text is not None:
            name, score = written_path(text), as_written_points()
        if name is None:
            return None
        origin = value.origin or origin
        name = name if built else _with_subset(event, rule, name)
    if last == "glob":
        score += prior.opened["glob"]
    score += source_bonus(origin) * prior.opened["source"] + _name_points(
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
        or (rule.get("path") and is_not_for_data(value.origin))
        or (rule.get("string") and text is not value.data)
    )


def _place_in(value: Value | None, rule: dict[str, Any]) -> tuple[str | None, float]:
    """What a call's argument says, whole or as far as a path is known, and how much less."""
    text = text_of(value)
    start = path_beginning(value) if text is None and rule.get("path") else None
    return (text, 0.0) if start is None else (start, -prior.dataset["part of a path"])


def _name_in(text: str, rule: dict[str, Any], root: str | None) -> str | None:
    """The dataset that a call's argument names, or the folder that it is given beside."""
    name = dataset_name(text, path=bool(rule.get("path")))
    if name is None and root is not None:
        name = dataset_name(root, path=True)
    if rule["call"] in _OPENS and not _is_data_file(text):
        # a well-known dataset's files may have no extension: `cifar-10-batches-py/data_batch_1`
        folder, _, file = text.rpartition("/")
        if not folder or "." in file or name is None or not is_known(name, "datasets"):
            return None
    return name


_BESIDE_DATA = pattern_of("dataset_calls.beside_data")
_OPENS = ("open", "io.open", "codecs.open", "tensorflow.io.gfile.GFile", "tensorflow.gfile.*")


_KEPT_BETWEEN = pattern_of("dataset_calls.kept_between")
"""A place where a program keeps what it made of its data: `tmp_dataset`, `data_cache`."""


_LIST = re.compile(r"(split|list|ids|index|indices)s?\.\w{2,5}$", re.IGNORECASE)
"""A list of the samples of a part, `got10k_train_split.txt`: the data lies elsewhere."""


def _name_points(name: str, text: str, weak: bool) -> float:
    """How much a name adds to what is opened, or takes from it."""
    if is_known(name, "datasets"):
        return prior.opened["known file"] if weak and not _LIST.search(text) else 0.0
    return prior.opened["kept between"] if _KEPT_BETWEEN.search(text) else 0.0


def _is_data_file(text: str) -> bool:
    return bool(re.search(r"\.(txt|json|jsonl|csv|tsv|pkl|bin|npz|npy)$", text)) and not re.search(
        r"(?<![a-z])maps?\.|config|log|result|metric|arg|param|vocab|label|class|state|history|requirements|readme|"
        r"hparam|setting|option|tokenizer|pred|output|loss|seed|info|meta|lexicon|phone|dictionary|classes",
        text,
        re.IGNORECASE,
    )


def _with_subset(event: CallEvent, rule: dict[str, Any], name: str) -> str:
    if "subset" not in rule:
        return name
    subset = text_of(rule_argument(event, rule["subset"]))
    if subset and not is_path(subset) and subset not in ("default", "main") and subset != name:
        return f"{name}/{subset}"
    return name


def _built_from_file(event: CallEvent) -> str | None:
    """`load_dataset("json", data_files=...)`: the file or folder, the training set's if several."""
    files = event.kwargs.get("data_files") or event.kwargs.get("data_dir")
    if files is not None and isinstance(files.data, dict):
        files_as_text = [text_of(files.data.get(key)) for key in ("train", *files.data)]
        return next((text for text in files_as_text if text is not None), None)
    return text_of(files)


# Datasets that classes of the repository's own are of: what they are given, or their name.


def uses_of_class(event: CallEvent) -> list[Use]:
    """A dataset class of the repository: named by a path or name it is given, else by its name."""
    cls = event.cls
    assert cls is not None
    if any(classes.last_part(base).endswith("DataLoader") for base in cls.external_bases()):
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
    if "DataModule" in cls.name or "LightningDataModule" in map(
        classes.last_part, cls.external_bases()
    ):
        score += prior.dataset_class["module"]
    name = known_base or _named_by_class(cls)
    if name is not None and _names_the_program(name, event):
        name = None
    passed = _given_to_class(event, name, score)
    if passed is None and name is not None and event.args and not is_known(name, "datasets"):
        first, key = event.args[0].data, next(iter(_parameters(cls)), None) or ""
        wraps = isinstance(first, Instance) and (
            classes.is_dataset(first.cls) or first.cls.name.endswith(("Dataset", "Datasets"))
        )
        if wraps and not re.search("data|set", cls.name, re.IGNORECASE):
            score += prior.dataset_class["transform"]
        elif not re.search("root|dir|path|file|folder", key, re.IGNORECASE):
            score += prior.dataset_class["of read data"]
    own = None if name is None else _class_candidate(name, cls.name, origin, score)
    if passed is not None and own is not None and passed.score < score:
        if passed.origin is not None and passed.source == "code":
            passed.score -= score - own.score  # no place for data, but what the code calls it
    candidates = [candidate for candidate in (own, passed) if candidate is not None]
    return [Use(candidate, role_of_class(event)) for candidate in candidates]


def _class_candidate(name: str, of: str, origin: Origin | None, score: float) -> Candidate:
    """The dataset that a class's name says; an unknown name scores below a path in the launch."""
    if name == of and re.search("Data", of) and not is_known(name, "datasets"):
        least = as_written_points() + prior.dataset_class["class name at least"]
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
    """The uses of a dataset class whose source is not in the repository, by its arguments."""
    if not _UNREAD.fullmatch(classes.last_part(event.path)) or "()" in event.path:
        return []
    candidate = _given_to_class(event, None, prior.dataset_class.sure("unread", event.certain))
    return [] if candidate is None else [Use(candidate, role_of_class(event))]


def _given_to_class(event: CallEvent, class_name: str | None, score: float) -> Candidate | None:
    """What a dataset class is told to read, beside what it is called itself."""
    origin = event.result.origin if event.result is not None else None
    names = _parameters(event.cls) if event.cls is not None else [None] * 4
    arguments = [*zip(names, event.args[:4], strict=False), *event.kwargs.items()]
    for key, value in sorted(arguments, key=lambda item: not _OF_TRAINING.fullmatch(item[0] or "")):
        # folders; of files, one is a piece that its own name says little of
        listed = (
            isinstance(value.data, list) and _FOLDER.fullmatch(text_of(value) or "") is not None
        )
        whole = isinstance(value.data, str) or listed
        text = text_of(value) if whole else path_beginning(value)
        if text is None or not _is_data_argument(key, text if whole else f"{text}/x/"):
            continue
        if is_not_for_data(value.origin):
            continue
        name = dataset_name(text, path=not whole or is_path(text))
        place = value.origin or origin
        if name is None and class_name is None and is_path(text):
            name = written_path(text)
            if name is not None:
                return Candidate(name, place, as_written_points())
        if name is not None and not EVAL.fullmatch(name):
            score += _given_name_points(name, text, class_name, place) + (
                0 if whole else prior.dataset["part of a path"]
            )
            return Candidate(
                name, place, score + source_bonus(place) * prior.dataset_class["source"]
            )
    return None


def _given_name_points(name: str, text: str, class_name: str | None, place: Origin | None) -> float:
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
            last = classes.last_part(base)
            if rule["name"] != "path" or not call_pattern(rule["call"]).match(base):
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
    return event.path.count(".") > 1 and normal_name(bare) == normal_name(package)


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
