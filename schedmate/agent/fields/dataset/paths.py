"""Names of datasets read out of paths."""

from __future__ import annotations

import re
from collections.abc import Iterator

from schedmate.agent.fields.candidates import unresolved
from schedmate.agent.fields.words import begins_known, is_ambiguous, is_known, says_nothing, words
from schedmate.agent.values import UNSAID, Value

_EXTENSIONS = re.compile(
    r"\.(json|jsonl|csv|tsv|txt|parquet|arrow|pkl|pickle|pt|pth|npy|npz|h5|hdf5|bin|yaml|yml|tar|gz|"
    r"zip|lmdb|tfrecord|tfrecords|mat|xlsx|feather|db|zst|mdb|rec|list|lst|idx|vec|xml|data|dat|content|"
    r"cites|allx|graph|xyz|extxyz|sdf|smi|smiles|mol2|lmdbs|pos|neg|rating|ratings|inter|tgz|bz2|xz|gzip|"
    r"hdf|nc|zarr|h5ad|beton|mds|wds|avro|orc|ftr|sqlite|wav|scp|conllx?|conllu|bio|iob|tok|bpe|ids|"
    r"svm|libsvm|libffm|edges?|edgelist|triples|manifest|memmap|npk|msgpack|records?)$",
    re.IGNORECASE,
)
_SPLIT_SUFFIX = re.compile(
    r"([-_./]?(training|train|validation|valid|val|test|eval|devel|dev)([-_]?(set|data|split|ing))?"
    r"(?:19|20)?\d{0,4}([-_](files|list|filelist|labels?|annotations?|images?|ids?|manifest|meta|metadata|pairs))?)$",
    re.IGNORECASE,
)
PLACEHOLDER = re.compile(
    r"^(/?(path|your|my|some)[-_/ ]|<|\$|\{|\.\.\.|todo|xxx|/path|path/to|none$|null$|\?\?\?)",
    re.IGNORECASE,
)


def from_path(text: str) -> str | None:
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
        known = next((stem for stem in stems[1:] if begins_known(stem)), None)
        named_after = known is not None and re.match(
            rf"{re.escape(known)}.*\d", stems[0], re.IGNORECASE
        )
        if known is not None and not is_ambiguous(known) and not named_after:
            return known
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
    return cleaned if split or not (last in words("bare_folders") or last.isdigit()) else None


_ANNOTATIONS = re.compile(
    r"(instances|captions|person_keypoints|panoptic|stuff|image_info|annotations)"
    r"[-_](train|val|test|minival|trainval)\w*"
)
"""Files in COCO's format, whatever data they annotate."""


_PIECES = r"[\d.\-_]+|feat(ure)?s?[-_].+"
"""Numbers, and features that a model made of the data."""


def is_generic(stem: str) -> bool:
    lowered = stem.lower()
    if STANDS_FOR.fullmatch(stem) and not is_known(stem, "datasets"):
        return True
    if _ANNOTATIONS.fullmatch(lowered):
        return True
    if not lowered or lowered in words("generic") or re.fullmatch(_PIECES, lowered):
        return True
    if re.fullmatch(r"(data|datasets?|disk|ssd|nvme|hdd|mnt|nas|vol|raid)\d+", lowered):
        return True
    parts = re.split(r"[-_.]", lowered)
    if len(parts) > 1 and all(part in words("generic") or part.isdigit() for part in parts):
        return True  # `processed_data`, `example.train`
    split = (
        r"(train|val|valid|test|eval|dev(el)?)(ing|set|data(set)?)?"
        r"([-_]?\d*|[-_]v\d[\d.]*|[-_]no[-_]?dev|([-_.]([a-z]{2}|src|tgt|source|target)){1,3})"
    )
    return bool(re.fullmatch(rf"{split}|(part|shard|chunk|split)([-_]?\d+)+", lowered))


STANDS_FOR = re.compile(
    r"(?=.*(NAME|PATH|DIR|DATA|FILE|FOLDER|WHICH|YOUR))[A-Z]+(_[A-Z]+)+|your[-_ ]?\w*|"
    r"__\w+__|.*[-_]here"
)
"""What a reader is to replace: `DATASET_NAME`, `your_data`, `__name__`."""


OPTIONS = re.compile(r"^([A-Za-z][\w-]*)(:\w+=[^:=]*)+$")
"""A name with the options to open it with: `ImageNet:split=TRAIN:root=/data`."""


def begins(value: Value | None) -> str | None:
    """The folder that a path begins with whose end is not known: `data/coco` of `data/coco/x_…`."""
    text = unresolved(value)
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
