"""Features of texts beside their embedding: spelling, cue words and layout."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from schedmate.data import load

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

PIECES = 2048
"""Dimensions of the hashed spelling of a line."""
LOOKED_AT = 160
"""Characters of a line whose spelling is used."""

_MARK = re.compile(r"<\w+>")
_WORD = re.compile(r"[a-z]+")
# Words of running text, which logs of programs have few of.
_RUNNING = re.compile(
    r"(?:the|of|and|a|to|in|is|that|for|it|with|as|was|on|be|by|this|are|at|from|or|an|you|not|i|he"
    r"|she|they|we|his|her|will|can|have|has)"
)


def spelling(texts: Sequence[str]) -> NDArray[float32]:
    """Unit vectors of the hashed 3- and 4-grams of characters: (texts, `PIECES`)."""
    import numpy as np

    rows = np.zeros((len(texts), PIECES), np.float32)
    for row, text in zip(rows, texts, strict=True):
        padded = f"\x02{text[:LOOKED_AT].lower()}\x03".encode()
        for size in (3, 4):
            for at in range(len(padded) - size + 1):
                row[zlib.crc32(padded[at : at + size]) % PIECES] = 1
    lengths: NDArray[float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.maximum(lengths, 1)).astype(np.float32)


def form(texts: Sequence[str]) -> NDArray[float32]:
    """The cues of `cues.yaml` in each text, and the shares of kinds of characters, 0 to 1."""
    import numpy as np

    matcher, count = _cues()
    rows = []
    for text in texts:
        cues = [0.0] * count
        for number in matcher.Match(text.encode("utf-8", "replace")) or ():
            cues[number] = 1.0
        rows.append(cues + _shares(text))
    return np.array(rows, np.float32)


def _shares(text: str) -> list[float]:
    length, tokens = max(1, len(text)), max(1, len(text.split()))
    bare = _MARK.sub(" ", text)
    words = _WORD.findall(bare.lower())
    running = sum(_RUNNING.fullmatch(word) is not None for word in words)
    letters, numbers = sum(map(str.isalpha, bare)), text.count("<num>")
    return [
        min(tokens, 30) / 30,
        min(length, 200) / 200,
        min(1.0, numbers / tokens),
        min(numbers, 6) / 6,
        min(1.0, text.count("=") / tokens),
        min(1.0, text.count(":") / tokens),
        running / max(1, len(words)),
        min(running, 6) / 6,
        sum(ord(one) > 127 for one in text) / length,
        letters / length,
        sum(map(str.isupper, bare)) / max(1, letters),
        float(not letters),
        *(float(least <= len(words) <= most) for least, most in ((0, 1), (2, 2), (3, 6), (13, 99))),
    ]


@cache
def _cues() -> tuple[Any, int]:
    import re2

    patterns: dict[str, str] = load("logparse/classify/cues.yaml")
    matcher = re2.Set.SearchSet()
    for pattern in patterns.values():
        matcher.Add(f"(?i){pattern}")
    matcher.Compile()
    return matcher, len(patterns)
