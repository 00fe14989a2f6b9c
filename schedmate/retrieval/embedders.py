"""Text embedders: the protocol they share, the backends by name, and `load_embedder`.

`bundled` works offline straight from the package index: WordLlama's static word vectors carry
what names mean, hashed n-grams how they are spelt, side by side in one vector. `bge` loads
FlagEmbedding models (`pip install 'schedmate[bge]'`), BAAI/bge-m3 or a local directory. `openai`
asks any server with OpenAI's `/v1/embeddings`: vLLM, llama.cpp, text-embeddings-inference,
hosted. Their packages are imported by the embedder that needs them, when it is made or used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from schedmate.base.errors import (
    InputError,
    SchedmateError,
    UsageError,
    ends_the_program,
    installing,
    require,
)
from schedmate.base.files import paths_called
from schedmate.base.plugins import EMBEDDERS as GROUP
from schedmate.base.plugins import load_plugin, plugins
from schedmate.base.reading import ANY_SIZE, open_binary, parse_json, read_text
from schedmate.base.terminal import counted

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


EMBEDDERS: dict[str, str] = {
    "bundled": "schedmate.retrieval.embedders.BundledEmbedder",
    "bge": "schedmate.retrieval.embedders.BgeEmbedder",
    "openai": "schedmate.retrieval.embedders.OpenAIEmbedder",
}
"""Backends by name; those that packages register, and any other dotted path of a class with the
same shape, work as well."""


UNMEASURED = 0.99
"""The threshold of a backend that can hold any model: models differ too much for one number, so it
lets through hardly more than equal renderings. `schedmate history calibrate` measures a better one;
for all-MiniLM-L6-v2 it is 0.995 (embedding_peers_threshold in benchmarks/results)."""


class EmbedderError(InputError):
    """The embedder cannot be loaded or did not answer."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors.

    `id` names backend, model and version: vectors of different ids do not mix. `dim` is the
    vectors' length. `threshold` is the cosine similarity from which two renderings count as the
    same kind of job with this embedder.
    """

    id: str
    dim: int
    threshold: float

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """Vectors of shape (len(texts), dim), each of length 1. Raises `EmbedderError`."""
        ...


def check_embedder(name: str) -> None:
    """Raise `MissingExtraError` when the packages of a built-in embedder are not installed."""
    if name == "bge":
        require("the bge embedder", "bge", "FlagEmbedding")
    if name == "openai":
        require("the openai embedder", "llm", "openai", "httpx2", "httpcore2", "tenacity")


def load_embedder(
    name: str = "bundled", *, model: str | None = None, base_url: str | None = None
) -> Embedder:
    """An embedder by name or dotted path.

    `model` (a name, or a local directory for `bge`) and `base_url` (for `openai`) go to backends
    that take them. Raises `UsageError` for an unknown name, `EmbedderError` when a backend's
    package or files are missing.
    """
    registered = {} if name in EMBEDDERS else plugins(GROUP)
    path = registered.get(name) or ":".join(EMBEDDERS.get(name, name).rsplit(".", 1))
    if ":" not in path:
        names = ", ".join([*EMBEDDERS, *registered])
        raise UsageError(f"there is no embedder {name!r}; there are {names}, or give module.Class")
    kind = load_plugin(f"the embedder {name!r}", path)
    options = {"model": model, "base_url": base_url}
    try:
        embedder: Embedder = kind(**{key: value for key, value in options.items() if value})
    except SchedmateError:
        raise
    except BaseException as error:
        raise _unusable(name, error) from error
    return embedder


def _unusable(name: str, error: BaseException) -> BaseException:
    """The error for an embedder whose code fails; for a built-in one it is a bug."""
    if name in EMBEDDERS or ends_the_program(error):
        return error
    return UsageError(
        f"the embedder {name!r} fails: {type(error).__name__}: {error}; correct it, or choose "
        "another with the setting `embedder`."
    )


# The embedder that works offline straight from the package index.
#
# WordLlama's static word vectors carry what names mean, hashed n-grams how they are spelt; the two
# stand side by side in one vector.


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
        verify_weights(folder / WEIGHTS)
        # its own folder as cache: load() looks for the tokenizer on a model hub otherwise
        return wordllama.WordLlama.load(
            config="l2_supercat", cache_dir=folder, dim=WORDS, disable_download=True
        )

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """See `Embedder.embed`."""
        import numpy as np

        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        words = unit_vectors(self._model.embed(list(texts), norm=False))
        spelling = embed_ngrams(texts, NGRAMS)
        both = np.concatenate([MEANING**0.5 * words, (1 - MEANING) ** 0.5 * spelling], axis=1)
        return unit_vectors(both)


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


def verify_weights(weights: Path) -> None:
    """Check the weights against the pinned hash; raises `EmbedderError` when they differ."""
    try:
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    except OSError as error:
        raise EmbedderError(
            f"{weights}: cannot be read ({error.strerror}); reinstall wordllama"
        ) from error
    if digest != SHA256:
        raise EmbedderError(
            f"{weights}: not the pinned weights (sha256 {digest[:12]}, expected {SHA256[:12]}); "
            "reinstall wordllama in the version schedmate asks for"
        )


# Hashed character n-grams of names: what static word vectors cannot tell apart.
#
# Word vectors put `cifar10` and `cifar100`, or `resnet18` and `resnet50`, almost in one place;
# their spelling does not. Spaces do not count, so `resnet 50` and `resnet50` still come out the
# same.


NGRAM_SIZES = (3, 4, 5)
WHOLE_WORD_WEIGHT = 2.0
"""Weight of a whole name beside its parts."""


def embed_ngrams(texts: Sequence[str], dim: int) -> NDArray[float32]:
    """Signed feature hashing of each `;`-separated field's n-grams, rows of length 1."""
    import numpy as np

    rows = np.zeros((len(texts), dim), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for feature, weight in _ngram_features(text):
            code = zlib.crc32(feature.encode())
            row[code % dim] += weight if code & 0x80000000 else -weight
    return unit_vectors(rows)


def _ngram_features(text: str) -> list[tuple[str, float]]:
    features: list[tuple[str, float]] = []
    for segment in text.split(";"):
        field, _, rest = segment.strip().partition(" ")
        name = "^" + re.sub(r"[^a-z0-9]", "", rest.lower()) + "$"
        features.append((f"{field}={name}", WHOLE_WORD_WEIGHT))
        for size in NGRAM_SIZES:
            last = max(1, len(name) - size + 1)
            features.extend((f"{field}:{name[i : i + size]}", 1.0) for i in range(last))
    return features


# FlagEmbedding models (`pip install 'schedmate[bge]'`): BAAI/bge-m3 or a local directory.


BGE_BATCH = 128
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
            self.id = f"flag-{Path(model).name}{_weights_digest(Path(model))}"
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
        batches = [
            list(texts[start : start + BGE_BATCH]) for start in range(0, len(texts), BGE_BATCH)
        ]
        return unit_vectors(np.concatenate([self._encode(batch) for batch in batches]))

    def _encode(self, texts: list[str]) -> Any:
        found = self._model.encode(texts)
        return found["dense_vecs"] if self._m3 else found


def _pooling(model: str) -> str:
    """How the model makes one vector of a text's tokens, as its files say: cls or mean."""
    config = Path(model) / "1_Pooling" / "config.json"
    if config.is_file():
        says = parse_json(read_text(config), config)
        return "mean" if says.get("pooling_mode_mean_tokens") else "cls"
    return "cls"  # what the BAAI models on the hub use


def _weights_digest(folder: Path) -> str:
    """Tells local models apart that have the same directory name; nothing for a hub name."""
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(paths_called(folder, "*")):
        if path.is_file() and path.suffix in (".json", ".safetensors", ".bin", ".pt"):
            digest.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode())
            with open_binary(path, most=ANY_SIZE) as file:
                digest.update(file.read(1 << 20))
    return f"-{digest.hexdigest()[:8]}"


# Any server with OpenAI's `/v1/embeddings`: vLLM, llama.cpp, text-embeddings-inference, hosted.


OPENAI_BATCH = 128
OPENAI_TIMEOUT_S = 20.0
"""Bounds one request with its repetitions [s]."""
OPENAI_MAX_BYTES = 32 * 2**20
"""Most bytes of a reply: `BATCH` vectors of 8,192 numbers, written out, are some 20 MB."""


class OpenAIEmbedder:
    """Embeddings from a server.

    The key is read from SCHEDMATE_EMBEDDER_API_KEY or OPENAI_API_KEY.
    """

    threshold = UNMEASURED

    def __init__(
        self, model: str = "BAAI/bge-m3", base_url: str = "http://127.0.0.1:8000/v1"
    ) -> None:
        check_embedder("openai")
        import openai

        from schedmate.base.http import base_address, open_client

        key = os.environ.get("SCHEDMATE_EMBEDDER_API_KEY") or os.environ.get("OPENAI_API_KEY")
        self._base_url = base_address(base_url)
        self._client: Any = openai.OpenAI(
            base_url=self._base_url,
            api_key=key or "none",
            max_retries=0,
            http_client=open_client(base_url, [key], limit=OPENAI_MAX_BYTES),
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

        rows = [
            self._request(list(texts[i : i + OPENAI_BATCH]))
            for i in range(0, len(texts), OPENAI_BATCH)
        ]
        return np.concatenate(rows) if rows else np.zeros((0, self.dim), dtype=np.float32)

    def _request(self, texts: list[str]) -> NDArray[float32]:
        import numpy as np
        import openai

        from schedmate.base.http import deadline
        from schedmate.llm.retries import retrying

        ends = time.monotonic() + OPENAI_TIMEOUT_S
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
        return unit_vectors(rows)


# Vector arithmetic that embedders share.


def unit_vectors(vectors: Any) -> NDArray[float32]:
    """The rows as float32 of length 1; a zero row stays zero."""
    import numpy as np

    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)
