"""FlagEmbedding models (`pip install 'schedmate[bge]'`): BAAI/bge-m3 or a local directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.retrieval.embedders import EmbedderError
from schedmate.retrieval.embedders.vectors import unit

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


class BgeEmbedder:
    """A FlagEmbedding encoder on the CPU, the SchedMate paper's choice (section 5.1).

    `model` is a hub name, or a directory with the model's files for use offline.
    """

    threshold = 0.85

    def __init__(self, model: str = "BAAI/bge-m3") -> None:
        try:
            from FlagEmbedding import BGEM3FlagModel, FlagModel
        except ImportError as error:
            raise EmbedderError(
                f"the bge embedder needs FlagEmbedding ({error}): pip install 'schedmate[bge]'"
            ) from error
        self._m3 = "m3" in Path(model).name.lower()
        try:
            self._model: Any = (
                BGEM3FlagModel(model, use_fp16=False, devices="cpu")
                if self._m3
                else FlagModel(
                    model,
                    # bge models pool by their first token, MiniLM-like ones by the mean
                    pooling_method="cls" if "bge" in model.lower() else "mean",
                    normalize_embeddings=True,
                    use_fp16=False,
                    devices="cpu",
                )
            )
        except (OSError, ValueError) as error:
            raise EmbedderError(
                f"{model}: cannot be loaded ({str(error).splitlines()[0][:200]}); give a local "
                "directory with `embedder_model` where the model hub cannot be reached"
            ) from error
        self.id = f"flag-{Path(model).name}"
        self.dim = int(self._encode(["dimension"]).shape[1])

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """See `Embedder.embed`."""
        import numpy as np

        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        return unit(self._encode(list(texts)))

    def _encode(self, texts: list[str]) -> Any:
        found = self._model.encode(texts)
        return found["dense_vecs"] if self._m3 else found
