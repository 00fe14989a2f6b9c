"""Hashed character n-grams of names: what static word vectors cannot tell apart.

Word vectors put `cifar10` and `cifar100`, or `resnet18` and `resnet50`, almost in one place; their
spelling does not. Spaces do not count, so `resnet 50` and `resnet50` still come out the same.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedmate.retrieval.embedders.vectors import unit

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

SIZES = (3, 4, 5)
WHOLE = 2.0
"""Weight of a whole name beside its parts."""


def embed_ngrams(texts: Sequence[str], dim: int) -> NDArray[float32]:
    """Signed feature hashing of each `;`-separated field's n-grams, rows of length 1."""
    import numpy as np

    rows = np.zeros((len(texts), dim), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for feature, weight in _features(text):
            code = zlib.crc32(feature.encode())
            row[code % dim] += weight if code & 0x80000000 else -weight
    return unit(rows)


def _features(text: str) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for segment in text.split(";"):
        field, _, rest = segment.strip().partition(" ")
        name = "^" + re.sub(r"[^a-z0-9]", "", rest.lower()) + "$"
        found.append((f"{field}={name}", WHOLE))
        for size in SIZES:
            last = max(1, len(name) - size + 1)
            found.extend((f"{field}:{name[i : i + size]}", 1.0) for i in range(last))
    return found
