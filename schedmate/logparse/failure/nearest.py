"""A failure without a rule takes the name of the most similar labelled example, by embedding.

The examples of the rules are the labels. At a similarity of `THRESHOLD`, with a rule's own examples
left out, the most similar other example had the right type and name four times in five
(benchmarks/results/failure_nearest.json); below it a failure stays unknown.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.rules import Rule, load_rules
from schedmate.logparse.reading import Line
from schedmate.logparse.signs import signs
from schedmate.logparse.templates import mask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders.bundled import BundledEmbedder

THRESHOLD = 0.8
AROUND = (40, 10)
"""Lines before and after the located one that are compared."""
SHORTEST = 4
"""Minimum number of words in a line to compare, not counting masked numbers and paths."""
_WORD = re.compile(r"<\w+>|([A-Za-z]{2,})")


class Nearest(NamedTuple):
    """The rule whose example is most similar to `line`, and the similarity (cosine)."""

    rule: Rule
    line: Line
    similarity: float


def nearest(event: Event) -> Nearest | None:
    """The labelled example most similar to the lines around an event, if any is similar enough."""
    first, last = max(1, event.number - AROUND[0]), event.number + AROUND[1]
    lines = [
        line
        for line in event.file.lines(first, last)
        if _says(line.text)
        and signs("progress").sign(line.text.encode("utf-8", "replace")) is None
        and load_rules().line(line.text) is None
    ]
    if not lines:
        return None
    rules, known = _examples()
    similar = vectors([mask(line.text) for line in lines]) @ known.T
    row, column = divmod(int(similar.argmax()), similar.shape[1])
    found = float(similar[row, column])
    return Nearest(rules[column], lines[row], found) if found >= THRESHOLD else None


def _says(text: str) -> bool:
    return sum(bool(word[1]) for word in _WORD.finditer(mask(text))) >= SHORTEST


def labelled() -> list[tuple[str, Rule]]:
    """The template of each example of a rule for causes, with its rule."""
    return [
        (mask(example), rule)
        for rule in load_rules().rules
        if rule.role == "cause"
        for example in rule.examples
    ]


def vectors(texts: list[str]) -> NDArray[np.float32]:
    """Unit vectors of the meaning of words, without the spelling features of the embedder."""
    import numpy as np

    from schedmate.retrieval.embedders.bundled import WORDS

    words = _embedder().embed(texts)[:, :WORDS]
    lengths = np.linalg.norm(words, axis=1, keepdims=True)
    return np.asarray(words / np.maximum(lengths, 1e-9), dtype=np.float32)


@cache
def _embedder() -> BundledEmbedder:
    from schedmate.retrieval.embedders.bundled import BundledEmbedder

    return BundledEmbedder()


@cache
def _examples() -> tuple[list[Rule], NDArray[np.float32]]:
    pairs = labelled()
    return [rule for _, rule in pairs], vectors([text for text, _ in pairs])
