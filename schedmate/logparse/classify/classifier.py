"""Templates to categories: lexical rules first, then a linear head on their embedding.

The paper compares a line's embedding with category vectors. Here the vectors are fitted to labelled
templates by ridge regression, in milliseconds when first needed, so that the labels stay data
(examples.yaml); and where a plain rule is more reliable (rules.yaml) it decides, and says so.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from schedmate.logparse.data import load
from schedmate.logparse.templates import TemplateStore

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder

CATEGORIES = (
    "progress",
    "error",
    "warning",
    "init",
    "evaluation",
    "checkpoint",
    "system",
    "other",
)
RIDGE = 0.3
"""Weight of the penalty; chosen on the development half in benchmarks/log_classifier.py."""
SHARP = 6.0
"""Inverse temperature that turns scores into confidences; chosen there as well."""
LEAST = 0.3
"""Below this confidence a line is `other`."""


class Verdict(NamedTuple):
    """The category of a template, how sure that is (0 to 1), and what decided.

    `by` is `rule` or `embedding`; `rule` names the rule.
    """

    category: str
    confidence: float
    by: Literal["rule", "embedding"]
    rule: str | None = None


class LogClassifier:
    """The categories of templates, each asked for once.

    `embedder` is any of `schedmate.retrieval.embedders` (default: the bundled one), loaded only
    when a template comes that no rule decides. `store` keeps its verdicts between runs.
    """

    def __init__(
        self, embedder: Embedder | None = None, store: TemplateStore | None = None
    ) -> None:
        self._given = embedder
        self._store = store if store is not None else TemplateStore(None)

    def classify(self, templates: Sequence[str]) -> list[Verdict]:
        """One verdict for each template, as `schedmate.logparse.templates.mask` makes them.

        Raises `EmbedderError` when the embedder cannot be loaded.
        """
        found = [self.by_rule(template) for template in templates]
        left = sorted({t for t, verdict in zip(templates, found, strict=True) if verdict is None})
        embedded = self._embedded(left) if left else {}
        return [
            verdict if verdict is not None else embedded[template]
            for template, verdict in zip(templates, found, strict=True)
        ]

    def by_rule(self, template: str) -> Verdict | None:
        """What the first matching rule says, or None."""
        matcher, entries = _rules()
        matches = matcher.Match(template.encode("utf-8", "replace"))
        if not matches:
            return None
        entry = entries[min(matches)]
        return Verdict(entry["category"], 1.0, "rule", f"{entry['category']}: {entry['name']}")

    def _embedded(self, templates: list[str]) -> dict[str, Verdict]:
        kind = f"class/{self._embedder.id}/{_version()}"
        known = {template: self._store.get(kind, template) for template in templates}
        new = [template for template, value in known.items() if value is None]
        if new:
            fresh = dict(zip(new, self._decide(new), strict=True))
            self._store.put(kind, fresh)
            known.update(fresh)
        return {
            template: Verdict(str(category), float(confidence), "embedding")
            for template, (category, confidence) in known.items()
        }

    def _decide(self, templates: list[str]) -> list[list[Any]]:
        import numpy as np

        scores = SHARP * (_with_one(self._embedder.embed(templates)) @ self._head)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        best = shares.argmax(axis=1)
        return [
            [CATEGORIES[index] if share[index] >= LEAST else "other", round(float(share[index]), 3)]
            for index, share in zip(best, shares, strict=True)
        ]

    @cached_property
    def _embedder(self) -> Embedder:
        if self._given is not None:
            return self._given
        from schedmate.retrieval.embedders import load_embedder

        return load_embedder()

    @cached_property
    def _head(self) -> NDArray[float32]:
        """Category vectors, shape (dim + 1, categories), by ridge regression with equal weight."""
        import numpy as np

        texts, labels = zip(*_examples(), strict=True)
        vectors = _with_one(self._embedder.embed(texts))
        targets = np.array([[label == name for name in CATEGORIES] for label in labels], np.float32)
        weights = 1 / targets.sum(axis=0)[targets.argmax(axis=1)]
        weighted = vectors * (weights * len(texts) / len(CATEGORIES))[:, None]
        penalty = RIDGE * np.eye(vectors.shape[1], dtype=np.float32)
        head: NDArray[float32] = np.linalg.solve(
            weighted.T @ vectors + penalty, weighted.T @ targets
        )
        return head


def _with_one(vectors: NDArray[float32]) -> NDArray[float32]:
    import numpy as np

    ones = np.ones((len(vectors), 1), np.float32)
    both: NDArray[float32] = np.concatenate([vectors, ones], axis=1)
    return both


@cache
def _rules() -> tuple[Any, list[dict[str, str]]]:
    import re2

    entries: list[dict[str, str]] = load("classify/rules.yaml")
    matcher = re2.Set.SearchSet()
    for entry in entries:
        matcher.Add(entry["pattern"])
    matcher.Compile()
    return matcher, entries


@cache
def _examples() -> list[tuple[str, str]]:
    examples: dict[str, list[str]] = load("classify/examples.yaml")
    return [(text, category) for category, texts in examples.items() for text in texts]


@cache
def _version() -> str:
    """Verdicts are kept as long as labels and parameters stay as they are."""
    content = json.dumps([_examples(), RIDGE, SHARP, LEAST])
    return f"{zlib.crc32(content.encode()):08x}"
