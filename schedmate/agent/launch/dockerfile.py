"""What a container starts by itself: ENTRYPOINT and CMD of the repository's Dockerfile."""

from __future__ import annotations

import json
import re
import shlex

from schedmate.agent.launch.files import Files
from schedmate.agent.values import Origin, Value

_INSTRUCTION = re.compile(r"^(ENTRYPOINT|CMD)\s++(.*\S)", re.MULTILINE | re.IGNORECASE)


def entrypoint(repo: Files, arguments: list[Value]) -> list[Value]:
    """The words that a container of the repository's image runs, `arguments` in place of CMD.

    Empty where the only Dockerfile says nothing, or there are several.
    """
    files = [file for file in repo.files if file.rsplit("/", 1)[-1] == "Dockerfile"]
    path = "Dockerfile" if "Dockerfile" in files else files[0] if len(files) == 1 else None
    text = repo.read(path) if path is not None else None
    if text is None:
        return []
    said: dict[str, list[Value]] = {}
    for match in _INSTRUCTION.finditer(re.sub(r"\\\n", "  ", text)):
        origin = Origin("script", path, text[: match.start()].count("\n") + 1)
        said[match[1].upper()] = [Value(word, origin) for word in _words(match[2])]
    first = said.get("ENTRYPOINT", [])
    return [*first, *(arguments or said.get("CMD", []))] if first or not arguments else []


def _words(text: str) -> list[str]:
    try:
        listed = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        listed = None
    if isinstance(listed, list):
        return [str(word) for word in listed]
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
