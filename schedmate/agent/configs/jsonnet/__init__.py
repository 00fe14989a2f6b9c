"""Jsonnet, the language of AllenNLP's configurations, to `Value` trees.

It is read lazily and within bounds, as a pure language can be: no file outside the repository is
imported, no native function exists, and what is not understood becomes unknown with its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from schedmate.agent.configs.files import Source, load
from schedmate.agent.configs.trees import ensure_bounded
from schedmate.agent.values import Value

if TYPE_CHECKING:
    from schedmate.agent.configs.jsonnet.parser import Node

MAX_IMPORTS = 50

_ONLY_JSONNET = re.compile(
    r"^[ \t]*+local\s++\w++\s*+[=(]|\bstd\.\w++\(|^[ \t]*+import\s", re.MULTILINE
)


def is_jsonnet(source: Source) -> bool:
    """Whether a text says what JSON cannot: definitions, imports, calls of the library."""
    return _ONLY_JSONNET.search(source.text) is not None


def read_jsonnet(source: Source, root: Path, variables: Mapping[str, Value] | None = None) -> Value:
    """The value of a Jsonnet text; `variables` are what `std.extVar` finds.

    Raises ConfigError, with file and line, for broken syntax and for what is too large.
    """
    from schedmate.agent.configs.jsonnet.evaluate import Evaluator
    from schedmate.agent.configs.jsonnet.parser import parse

    parsed: dict[Path, Node] = {}

    def imported(importer: Path, name: str) -> tuple[Node, Source] | None:
        path = (importer.parent / name).resolve()
        if len(parsed) > MAX_IMPORTS:
            return None
        found = load(path, root)
        if path not in parsed:
            parsed[path] = parse(found)
        return parsed[path], found

    evaluator = Evaluator(imported, variables or {})
    return ensure_bounded(evaluator.document(parse(source), source), source.name or "the text")
