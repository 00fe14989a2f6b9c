"""Templates to categories: lexical rules first, then a linear head on their embedding.

The paper compares a line's embedding with category vectors. Here the vectors are fitted to labelled
templates by ridge regression, in milliseconds at the first use, so that labels stay data
(examples.yaml). Where a plain rule is more reliable (rules.yaml), it decides, and the verdict names
it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from schedmate.data import load
from schedmate.logparse.classify.features import form, spelling
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
RIDGE = 3.0
"""Weight of the penalty. This and the weights below were chosen by cross-validation on templates of
175 logs labelled by hand, no log on both sides; each counts alike, so that how often a category is
among lines that no rule decides is learnt with them."""
SPELLING, FORM = 1.5, 0.5
"""Weights of the spelling and of the form of a line, relative to its embedding."""
SHARP = 6.0
"""Inverse temperature that turns scores into confidences; at this one they are about how often a
verdict is right."""
LEAST = 0.3
"""A line with a lower confidence is `other`."""
_HEAD = re.compile(
    r"^(?>\[?(?:<num>[-/. ])*<time>[\])]?|\[?\b(?:INFO|DEBUG|I|root|__main__|main)\b\]?|[IWEF]<num>"
    r"|<num>/<num>/<num>|<num>|\[[\w.:<> -]{1,48}\]|\w++(?:\.\w++)++(?::(?:<num>|\w++))*+"
    r"|[\w-]++:<num>|\S+\.(?:py|cc|cpp):<num>\]?|[-|:,;>*]|\s)*(?:\s|(?<=[\]:]))(?=\S)"
)


class Verdict(NamedTuple):
    """The category of a template, its confidence (0 to 1), and what decided.

    `by` is `rule` or `embedding`; `rule` names the rule.
    """

    category: str
    confidence: float
    by: Literal["rule", "embedding"]
    rule: str | None = None


class LogClassifier:
    """The categories of templates, each computed once.

    `embedder` is any of `schedmate.retrieval.embedders` (default: the bundled one), loaded only for
    a template that matches no rule. `store` keeps verdicts between runs.
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
        """The verdict of the first matching rule, or None."""
        matcher, entries = _rules()
        matches = matcher.Match(template.encode("utf-8", "replace")) or []
        said = message(template)
        if said != template:
            matches += matcher.Match(said.encode("utf-8", "replace")) or []
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

        scores = SHARP * (self._features(templates) @ self._head)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        best = shares.argmax(axis=1)
        return [
            [CATEGORIES[index] if share[index] >= LEAST else "other", round(float(share[index]), 3)]
            for index, share in zip(best, shares, strict=True)
        ]

    def _features(self, templates: Sequence[str]) -> NDArray[float32]:
        """One row for each template: meaning, spelling, form and a constant."""
        import numpy as np

        said = [message(template) for template in templates]
        parts = [self._embedder.embed(said), SPELLING * spelling(said), FORM * form(said)]
        return np.concatenate([*parts, np.ones((len(said), 1), np.float32)], axis=1)

    @cached_property
    def _embedder(self) -> Embedder:
        if self._given is not None:
            return self._given
        from schedmate.retrieval.embedders import load_embedder

        return load_embedder()

    @cached_property
    def _head(self) -> NDArray[float32]:
        """Category vectors, shape (features, categories), by ridge regression.

        Solved in the examples' space, as there are fewer examples than features.
        """
        import numpy as np

        texts, labels = zip(*_examples(), strict=True)
        vectors = self._features(texts)
        targets = np.array([[label == name for name in CATEGORIES] for label in labels], np.float32)
        penalty = RIDGE * np.eye(len(texts), dtype=np.float32)
        shares = np.linalg.solve(vectors @ vectors.T + penalty, targets)
        head: NDArray[float32] = (vectors.T @ shares).astype(np.float32)
        return head


def message(template: str) -> str:
    """The message of a line, without the time, level and logger before it."""
    return _HEAD.sub("", template, count=1) or template


@cache
def _rules() -> tuple[Any, list[dict[str, str]]]:
    import re2

    entries: list[dict[str, str]] = load("logparse/classify/rules.yaml")
    matcher = re2.Set.SearchSet()
    for entry in entries:
        matcher.Add(entry["pattern"])
    matcher.Compile()
    return matcher, entries


@cache
def _examples() -> list[tuple[str, str]]:
    examples: dict[str, list[str]] = load("logparse/classify/examples.yaml")
    return [(text, category) for category, texts in examples.items() for text in texts]


@cache
def _version() -> str:
    """The key of stored verdicts: it changes with labels and parameters."""
    cues = load("logparse/classify/cues.yaml")
    content = json.dumps([_examples(), cues, RIDGE, SPELLING, FORM, SHARP, LEAST])
    return f"{zlib.crc32(content.encode()):08x}"
