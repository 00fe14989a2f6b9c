"""Text embedders: names to classes, and the protocol they share."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from schedmate.errors import InputError, SchedmateError, UsageError, ends_the_program, require

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

EMBEDDERS: dict[str, str] = {
    "bundled": "schedmate.retrieval.embedders.bundled.BundledEmbedder",
    "bge": "schedmate.retrieval.embedders.bge.BgeEmbedder",
    "openai": "schedmate.retrieval.embedders.openai.OpenAIEmbedder",
}
"""Backends by name; any other dotted path of a class with the same shape works as well."""


UNMEASURED = 0.99
"""The threshold of a backend that can hold any model: models differ too much for one number, so it
lets through hardly more than equal renderings. `schedmate history calibrate` measures a better one;
for all-MiniLM-L6-v2 it is 0.995 (benchmarks/results/embedding_peers_threshold.json)."""


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


def load_embedder(
    name: str = "bundled", *, model: str | None = None, base_url: str | None = None
) -> Embedder:
    """An embedder by name or dotted path.

    `model` (a name, or a local directory for `bge`) and `base_url` (for `openai`) go to backends
    that take them. Raises `UsageError` for an unknown name, `EmbedderError` when a backend's
    package or files are missing.
    """
    path = EMBEDDERS.get(name, name)
    module_name, _, attribute = path.rpartition(".")
    if not module_name:
        known = ", ".join(EMBEDDERS)
        raise UsageError(f"there is no embedder {name!r}; there are {known}, or give module.Class")
    try:
        kind = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"the embedder {name!r} cannot be imported: {error}; install its package, or say in "
            "PYTHONPATH where it is"
        ) from error
    except BaseException as error:
        raise _unusable(name, error) from error
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
