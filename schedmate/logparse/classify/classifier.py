"""Classifies templates of log lines: lexical rules first, then a linear head on their embedding.

The head also sees a template's spelling, cue words and layout (`cues.yaml`); it is fitted to
`examples.yaml`. `LineKinds` gives the category of each line of a log, by rules alone.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from schedmate.base.data import load
from schedmate.logparse.templates import Templates, TemplateStore

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
SHARPNESS = 6.0
"""Inverse temperature that turns scores into confidences; at this one they are about how often a
verdict is right."""
LEAST_CONFIDENCE = 0.3
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
        self._own_embedder = embedder
        self._store = store if store is not None else TemplateStore(None)

    def classify(self, templates: Sequence[str]) -> list[Verdict]:
        """One verdict for each template, as `schedmate.logparse.templates.mask` makes them.

        Raises `EmbedderError` when the embedder cannot be loaded.
        """
        by_rules = [self.by_rule(template) for template in templates]
        left = sorted(
            {t for t, verdict in zip(templates, by_rules, strict=True) if verdict is None}
        )
        embedded = self._embedded(left) if left else {}
        return [
            verdict if verdict is not None else embedded[template]
            for template, verdict in zip(templates, by_rules, strict=True)
        ]

    def by_rule(self, template: str) -> Verdict | None:
        """The verdict of the first matching rule, or None."""
        matcher, entries = _rules()
        matches = matcher.Match(template.encode("utf-8", "replace")) or []
        message = message_of(template)
        if message != template:
            matches += matcher.Match(message.encode("utf-8", "replace")) or []
        if not matches:
            return None
        entry = entries[min(matches)]
        return Verdict(entry["category"], 1.0, "rule", f"{entry['category']}: {entry['name']}")

    def _embedded(self, templates: list[str]) -> dict[str, Verdict]:
        kind = f"class/{self._embedder.id}/{_version()}"
        cached = {template: self._store.get(kind, template) for template in templates}
        new = [template for template, value in cached.items() if value is None]
        if new:
            fresh = dict(zip(new, self._decide(new), strict=True))
            self._store.put(kind, fresh)
            cached.update(fresh)
        return {
            template: Verdict(str(category), float(confidence), "embedding")
            for template, (category, confidence) in cached.items()
        }

    def _decide(self, templates: list[str]) -> list[list[Any]]:
        import numpy as np

        scores = SHARPNESS * (self._features(templates) @ self._head)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        best = shares.argmax(axis=1)
        return [
            [
                CATEGORIES[index] if share[index] >= LEAST_CONFIDENCE else "other",
                round(float(share[index]), 3),
            ]
            for index, share in zip(best, shares, strict=True)
        ]

    def _features(self, templates: Sequence[str]) -> NDArray[float32]:
        """One row for each template: meaning, spelling, form and a constant."""
        import numpy as np

        messages = [message_of(template) for template in templates]
        parts = [
            self._embedder.embed(messages),
            SPELLING * spelling_features(messages),
            FORM * form_features(messages),
        ]
        return np.concatenate([*parts, np.ones((len(messages), 1), np.float32)], axis=1)

    @cached_property
    def _embedder(self) -> Embedder:
        if self._own_embedder is not None:
            return self._own_embedder
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


def message_of(template: str) -> str:
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
    content = json.dumps([_examples(), cues, RIDGE, SPELLING, FORM, SHARPNESS, LEAST_CONFIDENCE])
    return f"{zlib.crc32(content.encode()):08x}"


# Features of texts beside their embedding: spelling, cue words and layout.


PIECES = 2048
"""Dimensions of the hashed spelling of a line."""
LOOKED_AT = 160
"""Characters of a line whose spelling is used."""

_MARK = re.compile(r"<\w+>")
_WORD = re.compile(r"[a-z]+")
# Words of running text, which logs of programs have few of.
_RUNNING = re.compile(
    r"(?:the|of|and|a|to|in|is|that|for|it|with|as|was|on|be|by|this|are|at|from|or|an|you|not|i|he"
    r"|she|they|we|his|her|will|can|have|has)"
)


def spelling_features(texts: Sequence[str]) -> NDArray[float32]:
    """Unit vectors of the hashed 3- and 4-grams of characters: (texts, `PIECES`)."""
    import numpy as np

    rows = np.zeros((len(texts), PIECES), np.float32)
    for row, text in zip(rows, texts, strict=True):
        padded = f"\x02{text[:LOOKED_AT].lower()}\x03".encode()
        for size in (3, 4):
            for at in range(len(padded) - size + 1):
                row[zlib.crc32(padded[at : at + size]) % PIECES] = 1
    lengths: NDArray[float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.maximum(lengths, 1)).astype(np.float32)


def form_features(texts: Sequence[str]) -> NDArray[float32]:
    """The cues of `cues.yaml` in each text, and the shares of kinds of characters, 0 to 1."""
    import numpy as np

    matcher, count = _cues()
    rows = []
    for text in texts:
        cues = [0.0] * count
        for number in matcher.Match(text.encode("utf-8", "replace")) or ():
            cues[number] = 1.0
        rows.append(cues + _shares(text))
    return np.array(rows, np.float32)


def _shares(text: str) -> list[float]:
    length, tokens = max(1, len(text)), max(1, len(text.split()))
    bare = _MARK.sub(" ", text)
    words = _WORD.findall(bare.lower())
    running = sum(_RUNNING.fullmatch(word) is not None for word in words)
    letters, numbers = sum(map(str.isalpha, bare)), text.count("<num>")
    return [
        min(tokens, 30) / 30,
        min(length, 200) / 200,
        min(1.0, numbers / tokens),
        min(numbers, 6) / 6,
        min(1.0, text.count("=") / tokens),
        min(1.0, text.count(":") / tokens),
        running / max(1, len(words)),
        min(running, 6) / 6,
        sum(ord(one) > 127 for one in text) / length,
        letters / length,
        sum(map(str.isupper, bare)) / max(1, letters),
        float(not letters),
        *(float(least <= len(words) <= most) for least, most in ((0, 1), (2, 2), (3, 6), (13, 99))),
    ]


@cache
def _cues() -> tuple[Any, int]:
    import re2

    patterns: dict[str, str] = load("logparse/classify/cues.yaml")
    matcher = re2.Set.SearchSet()
    for pattern in patterns.values():
        matcher.Add(f"(?i){pattern}")
    matcher.Compile()
    return matcher, len(patterns)


# The categories of a log's lines, by rules alone.


class LineKinds:
    """The category of each line of a log, computed once for each template.

    By rules alone: for a single line without a rule, the embedding is wrong too often.
    """

    def __init__(self) -> None:
        self._templates = Templates()
        self._classifier = LogClassifier()
        self._categories: list[str] = []

    def of(self, data: bytes) -> list[str]:
        """The categories of the lines in a part of the log; `other` if no rule matches."""
        return [self._category(number) for number in self._templates.numbers(data)]

    def _category(self, number: int) -> str:
        categories, texts = self._categories, self._templates.texts
        while len(categories) < len(texts):
            verdict = self._classifier.by_rule(texts[len(categories)])
            categories.append(verdict.category if verdict is not None else "other")
        return categories[number] if number < len(categories) else "other"
