"""What the lines of a log are, by rule alone."""

from __future__ import annotations

from schedmate.logparse.classify.classifier import LogClassifier
from schedmate.logparse.templates import Templates


class LineKinds:
    """The category of each line of a log; a template is looked at once.

    By rule alone: of a single template that no rule knows, an embedding is too often wrong.
    """

    def __init__(self) -> None:
        self._templates = Templates()
        self._classifier = LogClassifier()
        self._categories: list[str] = []

    def of(self, data: bytes) -> list[str]:
        """The categories of the lines of a part of the log; `other` where no rule knows one."""
        return [self._category(number) for number in self._templates.numbers(data)]

    def _category(self, number: int) -> str:
        known, texts = self._categories, self._templates.texts
        while len(known) < len(texts):
            verdict = self._classifier.by_rule(texts[len(known)])
            known.append(verdict.category if verdict is not None else "other")
        return known[number] if number < len(known) else "other"
