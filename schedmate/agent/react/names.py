"""The names that a token of a program may denote, and the domains they belong to."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath

from schedmate.agent.fields import task
from schedmate.agent.fields.candidates import rules
from schedmate.agent.fields.dataset.names import class_dataset, dataset_name
from schedmate.agent.fields.model.words import model_name


def domains(line: list[str]) -> set[str]:
    """The domains of the models and datasets named on a line."""
    vocabulary = rules("vocabulary")
    return {
        domain
        for token in line
        for table in ("models", "datasets")
        for domain in task.domains(token, vocabulary[table])
    }


@lru_cache(maxsize=65_536)  # a long-lived hook reads many repositories
def forms(token: str) -> frozenset[str]:
    """The names that a token may denote: itself, or parts of a path or dotted name."""
    file = PurePosixPath(token.replace("\\", "/"))
    parts = [token, *re.split(r"[/\\]", token), *token.split("."), file.stem]
    read = (dataset_name(token), model_name(token), class_dataset(token))
    return frozenset(form for part in (*parts, *read) if part and (form := normal(part)))


def normal(text: str) -> str:
    """A name without case and punctuation."""
    return re.sub(r"[\W_]", "", text.casefold())
