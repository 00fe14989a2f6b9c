"""Any server with OpenAI's `/v1/embeddings`: vLLM, llama.cpp, text-embeddings-inference, hosted."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schedmate.retrieval.embedders import UNMEASURED, EmbedderError
from schedmate.retrieval.embedders.vectors import unit
from schedmate.terminal import counted

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

BATCH = 128
TIMEOUT_S = 20.0
"""Bounds one request with its repetitions [s]."""
MAX_BYTES = 32 * 2**20
"""Most bytes of a reply: `BATCH` vectors of 8,192 numbers, written out, are some 20 MB."""


class OpenAIEmbedder:
    """Embeddings from a server.

    The key is read from SCHEDMATE_EMBEDDER_API_KEY or OPENAI_API_KEY.
    """

    threshold = UNMEASURED

    def __init__(
        self, model: str = "BAAI/bge-m3", base_url: str = "http://127.0.0.1:8000/v1"
    ) -> None:
        import openai

        from schedmate.client import base_address, open_client

        key = os.environ.get("SCHEDMATE_EMBEDDER_API_KEY") or os.environ.get("OPENAI_API_KEY")
        self._base_url = base_address(base_url)
        self._client: Any = openai.OpenAI(
            base_url=self._base_url,
            api_key=key or "none",
            max_retries=0,
            http_client=open_client(base_url, [key], limit=MAX_BYTES),
        )
        self._model = model
        self.id = f"openai-{model}"
        try:
            self.dim = int(self._request(["dimension"]).shape[1])
        except EmbedderError:
            self._client.close()
            raise

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """See `Embedder.embed`; long lists are sent in batches."""
        import numpy as np

        rows = [self._request(list(texts[i : i + BATCH])) for i in range(0, len(texts), BATCH)]
        return np.concatenate(rows) if rows else np.zeros((0, self.dim), dtype=np.float32)

    def _request(self, texts: list[str]) -> NDArray[float32]:
        import numpy as np
        import openai

        from schedmate.client import deadline, retrying

        ends = time.monotonic() + TIMEOUT_S
        try:
            for attempt in retrying(ends):
                with attempt, deadline(ends):
                    answer = self._client.embeddings.create(
                        model=self._model, input=texts, encoding_format="float"
                    )
            items = sorted(answer.data or [], key=lambda item: item.index)
            rows = np.asarray([item.embedding for item in items], dtype=np.float32)
        except openai.OpenAIError as error:
            raise EmbedderError(
                f"the embedding server at {self._base_url} did not answer for {self._model}: "
                f"{str(error).splitlines()[0][:200]} Is it running? `schedmate doctor` checks it"
            ) from error
        except Exception as error:  # whatever a client raises on such a reply
            raise EmbedderError(
                f"the server at {self._base_url} answered, but not as /v1/embeddings should; "
                "check `embedder_base_url`"
            ) from error
        if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
            raise EmbedderError(
                f"the embedding server at {self._base_url} returned "
                f"{counted(len(rows), 'vector')} for {counted(len(texts), 'text')}, or empty ones; "
                "name an embedding model with `embedder_model`"
            )
        return unit(rows)
