"""Whether a finding is so: the cited line exists, takes part in the job, and holds the value.

A model proposes, this decides. A value counts only as a name, number or string of code or
configuration (`tokens`), in a file the launch command leads to (`reach`), on the line cited or, as
models count badly, at most `SLACK` lines from it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from schedmate.agent.fields import task
from schedmate.agent.fields.candidates import rules
from schedmate.agent.fields.dataset.names import class_dataset, dataset_name
from schedmate.agent.fields.model.words import model_name
from schedmate.agent.react.answer import Finding
from schedmate.agent.react.tokens import readable, tokens
from schedmate.jobs import Evidence, TaskType
from schedmate.llm.redact import PLACEHOLDER
from schedmate.tools import RepoFiles

COMMAND = "command"
SLACK = 2
SURE = 0.7
"""Confidence of a value found by a model and proved by its line."""
LIKELY = 0.5
"""Confidence of a class (task or unit) that its line does not name but does not contradict."""

_NUMERIC = frozenset(
    {
        "training_config.iters",
        "training_config.batch_size",
        "training_config.lr",
        "model_config.d_model",
        "model_config.n_layer",
        "dataset_config.num_workers",
    }
)
_UNITS = {
    "epoch": re.compile(r"epoch", re.IGNORECASE),
    "step": re.compile(r"step|iter|update|batch|round|episode|token|sample|frame", re.IGNORECASE),
}
_LENGTH = re.compile(
    r"epoch|step|iter|update|round|episode|token|sample|frame|duration|budget|cycle|sweep|pass",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A finding that was thrown away, and why."""

    finding: Finding
    reason: str

    def __str__(self) -> str:
        one = self.finding
        return f"{one.field} = {one.value!r} at {one.file}:{one.line}: {self.reason}"


class Citations:
    """Checks findings against one repository; `taking_part` comes from `reach.reached`.

    The launch command is a file of one line, `COMMAND`.
    """

    def __init__(self, files: RepoFiles, taking_part: set[str], command: str = "") -> None:
        self._files = files
        self._taking_part = taking_part
        words = re.split(r"[\s=]+", command)
        self._tokens: dict[str, dict[int, list[str]] | None] = {COMMAND: {1: words}}

    def check(self, finding: Finding) -> Evidence | Rejection:
        """The finding as evidence, or why it is none."""
        path = finding.file.removeprefix("./")
        if path != COMMAND and not readable(path):
            return Rejection(finding, "the file is neither code nor configuration")
        lines = self._lines(path)
        if lines is None:
            return Rejection(finding, "there is no such file, or it may not be read")
        if path != COMMAND and path not in self._taking_part:
            return Rejection(finding, "the launch command does not lead to this file")
        value = _typed(finding)
        if value is None:
            return Rejection(finding, "the value is not one this field can have")
        for distance in range(SLACK + 1):
            for line in dict.fromkeys((finding.line - distance, finding.line + distance)):
                confidence = self._holds(finding.field, value, path, lines.get(line, []))
                if confidence and (confidence == SURE or distance == 0):
                    place = (None, None) if path == COMMAND else (path, line)
                    return Evidence(
                        value=value,
                        source="model",
                        file=place[0],
                        line=place[1],
                        text="the launch command" if path == COMMAND else None,
                        confidence=confidence,
                    )
        return Rejection(finding, "the line does not hold the value")

    def _holds(self, field: str, value: str | float, path: str, line: list[str]) -> float:
        """How sure it is that a line with these tokens says so; 0 when it does not."""
        if not line:
            return 0.0
        if field == "model_config.task_type":
            found = _domains(line)
            if found:
                return SURE if value in found else 0.0
            return LIKELY
        if field == "training_config.iter_type":
            return SURE if any(_UNITS[str(value)].search(token) for token in line) else 0.0
        if field in _NUMERIC:
            # On the command line a flag may be as short as -e; elsewhere a number has a name.
            named = path == COMMAND or any(_LENGTH.search(one) for one in line)
            if field == "training_config.iters" and not named:
                return 0.0
            numbers = (_number(token) for token in line)
            wanted = float(value)
            return SURE if any(n is not None and math.isclose(n, wanted) for n in numbers) else 0.0
        if any(_normal(str(value)) in _forms(token) for token in line):
            return SURE
        # `wikitext/wikitext-103-raw-v1`: a part of a name may stand elsewhere in the file.
        *others, last = (_normal(part) for part in str(value).split("/"))
        if others and any(last in _forms(token) for token in line):
            whole = self._forms_in(path) | self._forms_in(COMMAND)
            return SURE if whole.issuperset(others) else 0.0
        return 0.0

    def _forms_in(self, path: str) -> set[str]:
        lines = self._lines(path) or {}
        return {form for line in lines.values() for token in line for form in _forms(token)}

    def _lines(self, path: str) -> dict[int, list[str]] | None:
        if path not in self._tokens:
            lines = self._files.lines(path)
            self._tokens[path] = None if lines is None else tokens(path, lines)
        return self._tokens[path]


def _typed(finding: Finding) -> str | int | float | None:
    """The value in the type its field has; None when it has none of it."""
    value = finding.value
    if finding.field in _NUMERIC:
        number = _number(str(value))
        if number is None or number <= 0:
            return None
        return (
            int(number) if number.is_integer() and finding.field != "training_config.lr" else number
        )
    text = str(value).strip()
    if finding.field == "model_config.task_type":
        return next((one for one in get_args(TaskType) if one.lower() == text.lower()), None)
    if finding.field == "training_config.iter_type":
        unit = text.lower().rstrip("s")
        return unit if unit in _UNITS else None
    if not text or len(text) > 200 or "\n" in text or PLACEHOLDER.search(text):
        return None
    return text


def _domains(line: list[str]) -> set[str]:
    vocabulary = rules("vocabulary")
    return {
        domain
        for token in line
        for table in ("models", "datasets")
        for domain in task.domains(token, vocabulary[table])
    }


@lru_cache(maxsize=65_536)  # a long-lived hook reads many repositories
def _forms(token: str) -> frozenset[str]:
    """The names a token may stand for: itself, parts of a path or dotted name, what it names."""
    parts = [token, *re.split(r"[/\\]", token), *token.split(".")]
    read = (dataset_name(token), model_name(token), class_dataset(token))
    return frozenset(_normal(part) for part in (*parts, *read) if part)


def _normal(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
