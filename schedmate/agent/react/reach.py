"""Which files belong to a job: those that its command leads to, file by file, by name.

Nothing is run and no import is resolved as Python would; a file belongs to the job if its name
occurs, as code, in the command or in a file that does. That is generous on purpose: it only has to
separate the job's own files from unrelated ones.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from schedmate.agent.react.tokens import READABLE, named, readable
from schedmate.tools import RepoFiles

MAX_LISTED = 50_000
MAX_READ = 800
_HIDDEN = frozenset({"node_modules", "__pycache__", "site-packages"})
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./\-]*")


def reached(files: RepoFiles, command: str, start: Iterable[str]) -> set[str]:
    """Repository-relative paths of the job's files.

    `start` are known ones: the entry point, and those that static analysis took values from.
    """
    listed = _listed(files.root)
    by_stem: dict[str, list[str]] = {}
    for path in listed:
        by_stem.setdefault(_stem(path), []).append(path)
    found: set[str] = set()
    queue: deque[str] = deque()

    def add(path: str) -> None:
        if path not in found:
            found.add(path)
            queue.append(path)

    for path in start:
        if path in listed:
            add(path)
    for path in _named(_WORD.findall(command), by_stem):
        add(path)
    read = 0
    while queue and read < MAX_READ:
        path = queue.popleft()
        lines = files.lines(path)
        if lines is None:
            continue
        read += 1
        words = {word for value in named(path, lines) for word in _WORD.findall(value)}
        for other in _named(words, by_stem):
            add(other)
        if path.endswith(".py"):
            package = str(PurePosixPath(path).parent / "__init__.py")
            if package in listed:
                add(package)
    return found


def _listed(root: Path) -> set[str]:
    out: set[str] = set()
    for directory, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _HIDDEN
        )
        for name in sorted(names):
            if readable(name):
                out.add(Path(directory, name).relative_to(root).as_posix())
                if len(out) >= MAX_LISTED:
                    return out
    return out


def _stem(path: str) -> str:
    name = PurePosixPath(path)
    return name.parent.name if name.name == "__init__.py" else name.stem


def _named(words: Iterable[str], by_stem: dict[str, list[str]]) -> list[str]:
    """Files that a word may name: `train`, `configs/gpt.yaml`, `pkg.data.text`, `pile/gpt`."""
    out = []
    for word in words:
        parts = [part for part in re.split(r"[/.]", word) if part]
        suffixes: frozenset[str] = READABLE
        if len(parts) > 1 and "." + parts[-1].lower() in READABLE:
            last = "." + parts.pop().lower()
            suffixes = frozenset({".yaml", ".yml"} if last in (".yaml", ".yml") else {last})
        for end in range(len(parts), max(0, len(parts) - 2), -1):
            for path in by_stem.get(parts[end - 1], ()):
                place = PurePosixPath(path)
                if suffixes is not READABLE and place.suffix.lower() not in suffixes:
                    continue
                if end < 2 or parts[end - 2] in place.parent.parts:
                    out.append(path)
    return out
