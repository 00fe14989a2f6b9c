"""An embedder: `SCHEDMATE_EMBEDDER=hashed schedmate history rebuild`."""

from __future__ import annotations

import numpy as np


class Hashed:
    """A bag of words, hashed into 256 dimensions."""

    id = "hashed-words-256-v1"  # backend, model and version
    dim = 256
    threshold = 0.9  # measure it with `schedmate history calibrate`

    def embed(self, texts):
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in text.split():
                vector[sum(word.encode()) % self.dim] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
