"""Names of datasets read out of settings, arguments and the names of classes and functions."""

from __future__ import annotations

import re

from schedmate.agent.fields.dataset.paths import (
    OPTIONS,
    PLACEHOLDER,
    STANDS_FOR,
    from_path,
    is_generic,
    is_path,
)
from schedmate.agent.fields.words import is_known, says_nothing, words

_OF_CATALOGUE = re.compile(
    r"^(?:tfds|hf|datasets):(\w[\w-]*?)([-_/](train|valid|validation|val|test))?$"
)
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
        return from_path(text) if is_path(text) else None
    if path or is_path(text):
        return from_path(text)
    if re.fullmatch(r"[A-Z]\w+(Dataset|DataModule)", text) and is_known(text, "datasets"):
        return class_dataset(text)
    if re.search(r"[*<>]", text):
        return None  # a pattern
    if "/" in text:
        owner, _, name = text.partition("/")
        if STANDS_FOR.fullmatch(name):
            return None
        if owner.lower() in words("data_folders"):
            return from_path(text)
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
    stripped = _bare(stripped)
    if stripped in words("dataset_classes") or says_nothing(stripped, of_class=True):
        return None
    if len(stripped) < 3 and not is_known(stripped, "datasets"):
        return None
    plain = is_known(stripped, "datasets") or re.search(r"\d\d|\d$|^[A-Z]{3,}$", stripped)
    if plain or re.search(r"(Train|Training|Validation|Val|Valid|Test|Eval)$", name):
        return stripped
    # an unknown name keeps its class's full form, which is what people search for
    return name


def _bare(name: str) -> str:
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
