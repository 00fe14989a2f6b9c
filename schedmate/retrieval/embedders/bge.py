"""FlagEmbedding models (`pip install 'schedmate[bge]'`): BAAI/bge-m3 or a local directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.errors import installing
from schedmate.retrieval.embedders import UNMEASURED, EmbedderError
from schedmate.retrieval.embedders.vectors import unit

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


BATCH = 128
"""Texts encoded at once; from 256 on FlagEmbedding draws progress bars."""


class BgeEmbedder:
    """A FlagEmbedding encoder on the CPU, the SchedMate paper's choice (section 5.1).

    `model` is a hub name, or a directory with the model's files for use offline. Vectors have the
    model's own dimension, 1024 for bge-m3.
    """

    threshold = UNMEASURED

    def __init__(self, model: str = "BAAI/bge-m3") -> None:
        try:
            from FlagEmbedding import BGEM3FlagModel, FlagModel
            from transformers.utils import logging
        except ImportError as error:
            raise EmbedderError(
                f"the bge embedder needs FlagEmbedding ({error}): {installing('bge')}"
            ) from error
        logging.disable_progress_bar()
        self._m3 = "m3" in Path(model).name.lower()
        try:
            self._model: Any = (
                BGEM3FlagModel(model, use_fp16=False, devices="cpu")
                if self._m3
                else FlagModel(
                    model,
                    pooling_method=_pooling(model),
                    normalize_embeddings=True,
                    use_fp16=False,
                    devices="cpu",
                )
            )
            self.id = f"flag-{Path(model).name}{_digest(Path(model))}"
        except (OSError, ValueError) as error:
            raise EmbedderError(
                f"{model}: cannot be loaded ({str(error).splitlines()[0][:200]}); give a local "
                "directory with `embedder_model` where the model hub cannot be reached"
            ) from error
        self.dim = int(self._encode(["dimension"]).shape[1])

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """See `Embedder.embed`."""
        import numpy as np

        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        batches = [list(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        return unit(np.concatenate([self._encode(batch) for batch in batches]))

    def _encode(self, texts: list[str]) -> Any:
        found = self._model.encode(texts)
        return found["dense_vecs"] if self._m3 else found


def _pooling(model: str) -> str:
    """How the model makes one vector of a text's tokens, as its files say: cls or mean."""
    config = Path(model) / "1_Pooling" / "config.json"
    if config.is_file():
        says = json.loads(config.read_text(encoding="utf-8"))
        return "mean" if says.get("pooling_mode_mean_tokens") else "cls"
    return "cls"  # what the BAAI models on the hub use


def _digest(folder: Path) -> str:
    """Tells local models apart that have the same directory name; nothing for a hub name."""
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".json", ".safetensors", ".bin", ".pt"):
            digest.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode())
            with path.open("rb") as file:
                digest.update(file.read(1 << 20))
    return f"-{digest.hexdigest()[:8]}"
