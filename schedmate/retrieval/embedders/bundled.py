"""The embedder that works offline straight from the package index.

WordLlama's static word vectors carry what names mean, hashed n-grams how they are spelt; the two
stand side by side in one vector.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.retrieval.embedders import EmbedderError
from schedmate.retrieval.embedders.ngrams import embed_ngrams
from schedmate.retrieval.embedders.vectors import unit

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

WEIGHTS = "weights/l2_supercat_256.safetensors"
SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
WORDS = 256
NGRAMS = 256
MEANING = 0.3
"""Share of the word vectors in a similarity; chosen in benchmarks/embedding.py."""


class BundledEmbedder:
    """WordLlama l2_supercat from the files its package ships, beside n-grams of the names.

    They are loaded with the first text: a history knows the vectors of what it has seen before.
    """

    id = f"wordllama-{SHA256[:8]}-{WORDS}+ngrams-{NGRAMS}"
    dim = WORDS + NGRAMS
    threshold = 0.9

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: Any = None

    def prepare(self) -> None:
        """Load the word vectors now, not with the first text; raises `EmbedderError`."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()

    @property
    def _model(self) -> Any:
        self.prepare()
        return self._loaded

    def _load(self) -> Any:
        try:
            wordllama = _import_quietly()
        except ImportError as error:
            raise EmbedderError(
                f"the bundled embedder needs the package wordllama ({error}); reinstall schedmate"
            ) from error
        folder = Path(wordllama.__file__).parent
        verify(folder / WEIGHTS)
        # its own folder as cache: load() looks for the tokenizer on a model hub otherwise
        return wordllama.WordLlama.load(
            config="l2_supercat", cache_dir=folder, dim=WORDS, disable_download=True
        )

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """See `Embedder.embed`."""
        import numpy as np

        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        words = unit(self._model.embed(list(texts), norm=False))
        spelling = embed_ngrams(texts, NGRAMS)
        both = np.concatenate([MEANING**0.5 * words, (1 - MEANING) ** 0.5 * spelling], axis=1)
        return unit(both)


def _import_quietly() -> Any:
    """wordllama, without the log settings that its import forces on the whole process."""
    root = logging.getLogger()
    guard = logging.NullHandler()
    root.addHandler(guard)  # basicConfig() leaves a root logger that has a handler alone
    try:
        import wordllama
    finally:
        root.removeHandler(guard)
    return wordllama


def verify(weights: Path) -> None:
    """Check the weights against the pinned hash; raises `EmbedderError` when they differ."""
    try:
        found = hashlib.sha256(weights.read_bytes()).hexdigest()
    except OSError as error:
        raise EmbedderError(
            f"{weights}: cannot be read ({error.strerror}); reinstall wordllama"
        ) from error
    if found != SHA256:
        raise EmbedderError(
            f"{weights}: not the pinned weights (sha256 {found[:12]}, expected {SHA256[:12]}); "
            "reinstall wordllama in the version schedmate asks for"
        )
