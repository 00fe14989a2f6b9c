"""Names of datasets read out of values, paths, classes and functions, and which of them are for
evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    Candidate,
    begins_known,
    is_ambiguous,
    is_known,
    pattern_of,
    rule_argument,
    says_nothing,
    text_of,
    unresolved_text,
    word_list,
)
from schedmate.agent.interp.trace import CallEvent
from schedmate.agent.values import UNSAID, Origin, Value

_OF_CATALOGUE = pattern_of("dataset_names.of_catalogue")
"""A name behind that of the catalogue it is in: `tfds:aeslc-train`."""


def dataset_name(text: str, path: bool = False) -> str | None:
    """A dataset's name from a setting or argument; None when it does not say."""
    made = re.match(r"(?:[\d_]+ *@ *)?([A-Z]\w+)\(\w+ *=", text.strip())
    if made:  # an expression that makes it: `1000 @ Co3d(split="train", size=224)`
        return class_dataset(made[1])
    called = re.match(r"[A-Za-z_][\w.]*\([\"']([\w\-./]+)[\"']", text.strip())
    text = called[1] if called else text.strip().strip("()[], ").strip("'\"")
    if re.search(r"(\w+ ){4}", text):
        return None  # a sentence
    text = re.sub(r"\.py$", "", text)  # the script that makes it
    text = re.sub(r"(?<=\w):[\d*]+(\.[\d*]+)*$", "", text)  # a version: `mnist:3.*.*`
    text = OPTIONS.sub(r"\1", text)
    text = _OF_CATALOGUE.sub(r"\1", text)
    if not text or len(text) > 300 or "\n" in text or "tfevents" in text:
        return None
    if PLACEHOLDER.match(text) and not re.search(
        r"[a-z]{3}.*[a-z]{3}/[a-z]{3}", text[8:], re.IGNORECASE
    ):
        return dataset_of_path(text) if is_path(text) else None
    if path or is_path(text):
        return dataset_of_path(text)
    if re.fullmatch(r"[A-Z]\w+(Dataset|DataModule)", text) and is_known(text, "datasets"):
        return class_dataset(text)
    if re.search(r"[*<>]", text):
        return None  # a pattern
    if "/" in text:
        owner, _, name = text.partition("/")
        if STANDS_FOR.fullmatch(name):
            return None
        if owner.lower() in word_list("data_folders"):
            return dataset_of_path(text)
        return text if name else owner
    nothing = is_generic(text) or (says_nothing(text) and not is_known(text, "datasets"))
    return None if nothing else text


def class_dataset(name: str) -> str | None:
    """A dataset's name from a dataset class: `CocoDetectionDataset` is CocoDetection."""
    stripped = re.sub(
        r"(Iterable|Map|Torch|Custom|My|Base|Lazy|Supervised|Packed|Train|Val|Test)?"
        r"([dD]ata[sS]ets?|DataModule|DataLoaders?|Loaders?|Data|DS)$",
        "",
        name,
    )
    stripped = re.sub(
        r"(Lit|Lightning)$|(Train|Training|Validation|Val|Valid|Test|Eval)$", "", stripped
    )
    stripped = re.sub(r"(Dataset|Data)$|^(Dataset|Data)_?(?=[A-Z])", "", stripped).strip("_")
    stripped = _bare_name(stripped)
    if stripped in word_list("dataset_classes") or says_nothing(stripped, of_class=True):
        return None
    if len(stripped) < 3 and not is_known(stripped, "datasets"):
        return None
    plain = is_known(stripped, "datasets") or re.search(r"\d\d|\d$|^[A-Z]{3,}$", stripped)
    if plain or re.search(r"(Train|Training|Validation|Val|Valid|Test|Eval)$", name):
        return stripped
    # an unknown name keeps its class's full form, which is what people search for
    return name


def _bare_name(name: str) -> str:
    """A well-known dataset's name without what a class adds: `LibriSpeechAsr`, `MyCelebA`."""
    for shorter in (
        re.sub(r"^(My|Custom|Base|Lit|Our)_?(?=[A-Z])", "", name),
        re.sub(r"(?<=[a-z0-9])_?(Asr|ASR|Tts|TTS|Lit|PL|Pl)$", "", name),
    ):
        if shorter != name and is_known(shorter, "datasets"):
            return shorter
    return name


def library_dataset(name: str) -> str:
    """A dataset by the name of the library's class or function that opens it.

    `CoraGraphDataset` is Cora, `fetch_california_housing` is california_housing.
    """
    plain = re.sub(r"(Dataset|DataModule|Datamodule)$|^(fetch|load|get)_", "", name) or name
    shorter = re.sub(r"(Graph|Node|Data)$", "", plain)
    return shorter if shorter != plain and is_known(shorter, "datasets") else plain


# Names of datasets read out of paths.


_EXTENSIONS = pattern_of("dataset_names.extensions")
_SPLIT_SUFFIX = pattern_of("dataset_names.split_suffix")
PLACEHOLDER = pattern_of("dataset_names.placeholder")


def dataset_of_path(text: str) -> str | None:
    """The dataset a path is of: its last component that says something, without extension.

    `/data/coco/train2017` is coco, `data/alpaca_data.json` is alpaca_data, `/path/to/data` is None.
    A well-known dataset among the folders names what lies below: `coco/trainvalno5k.txt` is coco.
    """
    cleaned = text.strip().replace("\\", "/")
    cleaned = re.sub(r"^(pipe:|file://|gs://|s3://|https?://|hf://)", "", cleaned)
    cleaned = re.sub(r"/[^/*]*\*[^/]*/.*$", "", cleaned)  # what each folder of a pattern has
    cleaned = re.sub(r"(?<=/)(?![A-Za-z]\w{2})[^/]*\*[^/]*$", "", cleaned)  # `*_x.npy`
    cleaned = re.sub(r"(?<!\$)\{[^}]*\}|\*+|%\d*d|::.*$", "", cleaned)
    cleaned = _HOME.sub(r"\1", cleaned)
    stems = list(_stems(cleaned))
    if stems and (says_nothing(stems[0]) or _is_piece(stems[0])):
        # above a folder of the machine anything may be named, within the project's own data less so
        own = not re.match(r"/|~|[A-Za-z]:|\$", cleaned)
        above = stems[1] if own and len(stems) > 1 and not says_nothing(stems[1]) else stems[0]
        return next((stem for stem in stems if begins_known(stem)), above)
    if re.search(r"[^/]\.\w{2,5}$", cleaned) and stems and not begins_known(stems[0]):
        # a list of some of a well-known dataset: `VoxCeleb1/veri_test2.txt`
        well_known = next((stem for stem in stems[1:] if begins_known(stem)), None)
        named_after = well_known is not None and re.match(
            rf"{re.escape(well_known)}.*\d", stems[0], re.IGNORECASE
        )
        if well_known is not None and not is_ambiguous(well_known) and not named_after:
            return well_known
    return _shortened(stems[0]) if stems else None


_HOME = re.compile(r"^((?:/\w+)?/(?:home|Users)|/scratch(?=/[^/]+/[^/]+/))/[^/]+(?=/.)|^~\w+(?=/.)")
"""What belongs to a user: the folder of that name says nothing of the data."""
_PIECE = re.compile(r"(train|training|valid|validation|val|test|dev|eval)[-_.]", re.IGNORECASE)


def _is_piece(stem: str) -> bool:
    """Whether a name is that of a split's files, `train_im`: what lies above names the data."""
    return _PIECE.match(stem) is not None and not is_known(stem, "datasets")


_SWITCHED = re.compile(r"(?<=\w)([-_]\d+)*[-_](True|False)\d*$")
"""Numbers and switches that a program adds to the name of a file that it keeps."""


def _shortened(stem: str) -> str:
    """A prepared file's name without the settings it was prepared with.

    `ml-1m-mp1.0-sw0.5-mlp0.2-msl200` is ml-1m.
    """
    stem = _SWITCHED.sub("", stem)
    parts = re.split(r"([-_.]+)", stem)
    if len(stem) > 24 and len(parts) > 8:
        for end in (5, 3, 1):
            if begins_known("".join(parts[:end])):
                return "".join(parts[:end])
    return stem


_VARIABLE = re.compile(r"^\$\{?([A-Z]+?)_?(DIR|PATH|ROOT|HOME|FOLDER)\}?$")
"""`$IMAGENET_DIR`: a place that only the machine knows, named after what is there."""


def _stems(cleaned: str) -> Iterator[str]:
    """The parts of a path that say something, from its end, without extensions and splits."""
    parts = [_VARIABLE.sub(r"\1", part) for part in cleaned.split("/")]
    for component in reversed([part for part in parts if part not in ("", ".", "..", "~")]):
        if component.startswith("$"):
            continue
        stem = re.sub(r"(?<=\w)\.(train|training|valid|val|test|dev)(\.\w+)+$", "", component)
        while _EXTENSIONS.search(stem):
            stem = _EXTENSIONS.sub("", stem)
        stem = re.sub(r"(?<=\w)\.(train|training|valid|val|test|dev)$", "", stem)
        stem = re.sub(r"[-_]\d+[-_]of[-_]\d+$", "", stem.strip("-_. "))
        if is_generic(stem):
            continue
        shorter = _without_split(stem)
        bare = re.sub(
            r"[-_](data|dataset|files|cuts|recordings|supervisions)$",
            "",
            shorter,
            flags=re.IGNORECASE,
        )
        shorter = bare if bare and begins_known(bare) else shorter
        if shorter and not is_generic(shorter):
            yield shorter
        elif shorter:
            yield stem


def _without_split(stem: str) -> str:
    """A name without the split that it ends in: `coco_val` and `cocoval2017`, not `retrieval`."""
    shorter = _SPLIT_SUFFIX.sub("", stem)
    joined = stem[len(shorter) :][:1].isalpha() and shorter[-1:].islower()
    if joined and not is_known(shorter, "datasets"):
        return stem
    return shorter.strip("-_. ")


def written_path(text: str) -> str | None:
    """A path none of whose parts names a dataset, as its owner wrote it, less what leads up to it.

    `../data/train.csv` is `data/train.csv`. None for placeholders and for a bare `data/`.
    """
    cleaned = re.sub(r"^(\.{0,2}/)+|/+$", "", text.strip())
    if (
        not cleaned.strip("./")
        or len(cleaned) > 120
        or PLACEHOLDER.match(text)
        or re.search(r"[<>{}$*\[\]\s]|path[-_/]to|(^|/)your", cleaned, re.IGNORECASE)
    ):
        return None
    last = cleaned.rsplit("/", 1)[-1].lower()
    split = "/" in cleaned and re.fullmatch(r"(train|val|valid|test|dev)(ing)?", last)
    return cleaned if split or not (last in word_list("bare_folders") or last.isdigit()) else None


_ANNOTATIONS = pattern_of("dataset_names.annotations")
"""Files in COCO's format, whatever data they annotate."""


_PIECES = r"[\d.\-_]+|feat(ure)?s?[-_].+"
"""Numbers, and features that a model made of the data."""


def is_generic(stem: str) -> bool:
    lowered = stem.lower()
    if STANDS_FOR.fullmatch(stem) and not is_known(stem, "datasets"):
        return True
    if _ANNOTATIONS.fullmatch(lowered):
        return True
    if not lowered or lowered in word_list("generic") or re.fullmatch(_PIECES, lowered):
        return True
    if re.fullmatch(r"(data|datasets?|disk|ssd|nvme|hdd|mnt|nas|vol|raid)\d+", lowered):
        return True
    parts = re.split(r"[-_.]", lowered)
    if len(parts) > 1 and all(part in word_list("generic") or part.isdigit() for part in parts):
        return True  # `processed_data`, `example.train`
    split = (
        r"(train|val|valid|test|eval|dev(el)?)(ing|set|data(set)?)?"
        r"([-_]?\d*|[-_]v\d[\d.]*|[-_]no[-_]?dev|([-_.]([a-z]{2}|src|tgt|source|target)){1,3})"
    )
    return bool(re.fullmatch(rf"{split}|(part|shard|chunk|split)(?:[-_]?\d)+", lowered))


STANDS_FOR = pattern_of("dataset_names.stands_for")
"""What a reader is to replace: `DATASET_NAME`, `your_data`, `__name__`."""


OPTIONS = re.compile(r"^([A-Za-z][\w-]*)(:\w+=[^:=]*)+$")
"""A name with the options to open it with: `ImageNet:split=TRAIN:root=/data`."""


def path_beginning(value: Value | None) -> str | None:
    """The folder that a path begins with whose end is not known: `data/coco` of `data/coco/x_…`."""
    text = unresolved_text(value)
    if text is None or UNSAID not in text:
        return None
    folder = text.partition(UNSAID)[0].rpartition("/")[0]
    return folder if re.search(r"[A-Za-z]{2}", folder) else None


def is_path(text: str) -> bool:
    """Whether a dataset string is a place rather than a name."""
    text = OPTIONS.sub(r"\1", text)
    if re.match(r"^(/|\./|\.\./|~|[A-Za-z]:\\|s3://|gs://|pipe:|https?://|file://)", text):
        return True
    if _EXTENSIONS.search(text):
        return True
    return text.count("/") > 1


# Words that tell training data from evaluation data, and what is opened in which role.


EVAL = pattern_of("dataset_names.eval")
EVAL_WORD = pattern_of("dataset_names.eval_word")
_EVAL_FILE = re.compile(r"(^|/)eval(uat(e|or|ion))?(_\w+)?(/|\.py$)", re.IGNORECASE)
CLASS_NAME = "the name of its class"
"""Rule: nothing names the dataset but the class that reads it."""
TRAIN_WORD = re.compile(r"train", re.IGNORECASE)


_NOT_FOR_DATA = pattern_of("dataset_names.not_for_data")


def is_not_for_data(origin: Origin | None) -> bool:
    """Whether a path was given for something else, `--output_dir`: what lies below is no data."""
    flag = (origin.text or "") if origin is not None else ""
    return _NOT_FOR_DATA.fullmatch(flag.replace("-", "_").lstrip("_")) is not None


def as_written_points() -> float:
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
        value = rule_argument(event, [key])
        if value is not None and isinstance(value.data, bool):
            return not value.data
        role = _role_of_word(text_of(value) or "", EVAL)
        if role is not None:
            return role
    words = (event.target, text.rsplit("/", 1)[-1] if text else "", text or "")
    roles = (
        *(_role_of_word(word, EVAL_WORD, EVAL) for word in words),
        _role_of_word(event.function, EVAL_WORD),
    )
    return _first_role(event, roles)


def role_of_class(event: CallEvent) -> bool | None:
    """Whether a dataset class is made for evaluation: by its arguments, its name or its place."""
    told = role_of_arguments(event.kwargs)
    if told is not None:
        return told
    texts = [value.data for value in event.args if isinstance(value.data, str)]
    for text in texts:
        if text in ("train", "training", "trainval"):
            return False
        if text in ("val", "valid", "validation", "test", "eval", "dev", "testing"):
            return True
    names = (event.target, event.cls.name if event.cls else "", event.function)
    tails = [text.rstrip("/").rsplit("/", 1)[-1] for text in texts if is_path(text)]
    roles = (
        *(_role_of_word(name, EVAL_WORD) for name in names),
        *(_role_of_word(tail, EVAL) for tail in tails),
    )
    return _first_role(event, roles)


_SWITCHES = ("train", "is_train", "training", "is_training")
_SPLITS = frozenset(
    ("split", "mode", "phase", "subset", "set", "stage", "partition", "image_set", "flag")
)


def role_of_arguments(arguments: Mapping[str, Value]) -> bool | None:
    """Whether data is for evaluation by what it was made with: `train=False`, `split="val"`."""
    for key, value in arguments.items():
        if key in _SWITCHES and isinstance(value.data, bool):
            return not value.data
        if key in _SPLITS:
            role = _role_of_word(text_of(value) or "", EVAL, EVAL_WORD)
            if role is not None:
                return role
    return None


def _role_of_word(word: str, *evaluates: re.Pattern[str]) -> bool | None:
    """Whether a word is about evaluation, None where it is about training as little."""
    if TRAIN_WORD.search(word):
        return False
    return True if any(pattern.search(word) for pattern in evaluates) else None


def _first_role(event: CallEvent, roles: Iterable[bool | None]) -> bool | None:
    """The first role that is known, else that of the file that the call stands in."""
    first = next((role for role in roles if role is not None), None)
    return True if first is None and _EVAL_FILE.search(event.site.file) else first
