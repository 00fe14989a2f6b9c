"""The categories of a log's lines, by rules alone."""

from __future__ import annotations

from schedmate.logparse.classify.classifier import LogClassifier
from schedmate.logparse.templates import Templates


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
        known, texts = self._categories, self._templates.texts
        while len(known) < len(texts):
            verdict = self._classifier.by_rule(texts[len(known)])
            known.append(verdict.category if verdict is not None else "other")
        return known[number] if number < len(known) else "other"
