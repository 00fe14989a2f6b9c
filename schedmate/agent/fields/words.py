"""What the vocabulary knows, and the words that name nothing."""

from __future__ import annotations

import re
from functools import cache

from schedmate.agent.fields.candidates import rules


@cache
def words(name: str) -> frozenset[str]:
    """One of the word lists of words.yaml; the empty word belongs to each."""
    return frozenset({"", *rules("words")[name].split()})


def is_known(name: str, table: str) -> bool:
    """Whether the vocabulary's `models` or `datasets` have the name."""
    text = re.sub(r"[_ ./]+", "-", name.lower())
    return any(re.search(pattern, text) for pattern in rules("vocabulary")[table].values())


def is_whole(name: str) -> bool:
    """Whether the vocabulary's models have the whole name, not only a part of it."""
    text = re.sub(r"[_ ./]+", "-", name.lower())
    return any(re.fullmatch(pattern, text) for pattern in rules("vocabulary")["models"].values())


def begins_known(stem: str) -> bool:
    """Whether a folder's name is that of a well-known dataset, with no more than a version."""
    text = re.sub(r"[_ .]+", "-", stem.lower())
    return any(
        re.match(rf"({pattern})[-\dv]*$", text)
        for domain, pattern in rules("vocabulary")["datasets"].items()
        if domain != "RL"
    )


def is_ambiguous(word: str) -> bool:
    """Whether a dataset's name is also a word that may stand anywhere: `weather`, `stock`."""
    return re.sub(r"(?<=[a-z])\d$", "", word.lower()) in words("ambiguous")


def says_nothing(stripped: str, of_class: bool = False) -> bool:
    """Whether a name only says what kind of thing it is of: `AudioMel`, `SalObj`, `train_clips`.

    A class's name may also say how it reads: `BucketingData`.
    """
    parts = re.findall(r"MMap|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", stripped)
    return all(
        part.isdigit()
        or part.lower() in words("reader_words")
        or (of_class and part.lower() in words("class_words"))
        or re.match(r"(train|val|test)(val|no)", part)
        for part in parts
    )
