"""The part of a repository in the first message: what the command runs and its configuration.

With these a model needs no call to find them. Functions that the shown file does not use are left
out, with their lines named, to keep the message short.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from schedmate.agent.react.tokens import CONFIG, SCRIPT, syntax_tree
from schedmate.tools import RepoFiles
from schedmate.visible import visible

MAX_CHARACTERS = 12_000
"""Limit for all files together; about 3,500 tokens."""
MAX_OF_A_FILE = 8_000
LONG = 120
"""A file of fewer lines is shown whole."""
_WORD = re.compile(r"[\w./-]+")


def opening(files: RepoFiles, entry: str | None, command: str, cited: Iterable[str]) -> str:
    """Numbered lines of the entry, of files that the command names, and of those `cited`."""
    named = [path for word in _WORD.findall(command) for path in _readable(files, word)]
    room, shown = MAX_CHARACTERS, list[str]()
    for path in dict.fromkeys([*([entry] if entry else []), *named, *cited]):
        lines = files.lines(path)
        if lines is None or room <= 200:
            continue
        text = _cut("\n".join(_rows(path, lines)), min(room, MAX_OF_A_FILE))
        shown.append(f"{path} ({len(lines)} lines):\n{text}")
        room -= len(shown[-1])
    return "\n\n".join(shown)


def _readable(files: RepoFiles, word: str) -> Iterator[str]:
    path = word.removeprefix("./")
    suffix = PurePosixPath(path).suffix.lower()
    if (suffix in CONFIG or suffix in SCRIPT or suffix == ".py") and files.lines(path) is not None:
        yield path


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return text[: text.rfind("\n", 0, room)] + "\n[cut here: read the rest with file_read]"


def _rows(path: str, lines: list[str]) -> Iterator[str]:
    """The numbered lines of a file; of a long program only what its top level uses."""
    left_out = _aside(lines) if path.endswith(".py") and len(lines) > LONG else {}
    number = 1
    while number <= len(lines):
        if number in left_out:
            last, what = left_out[number]
            yield f"[lines {number}-{last}: {what}, not shown]"
            number = last + 1
            continue
        if lines[number - 1].strip():
            yield f"{number}| {visible(lines[number - 1])}"
        number += 1


def _aside(lines: list[str]) -> dict[int, tuple[int, str]]:
    """First lines of top-level functions and classes that the rest does not use by name."""
    tree = syntax_tree(lines)
    if tree is None:
        return {}
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    parts = {one.name: one for one in tree.body if isinstance(one, kinds)}
    waiting = [one for one in tree.body if not isinstance(one, kinds)]
    reached: set[str] = set()
    while waiting:
        names = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)}
        for name in sorted(names & parts.keys() - reached):
            reached.add(name)
            if not isinstance(parts[name], ast.ClassDef):
                waiting.append(parts[name])
    return {
        min(one.lineno, *(d.lineno for d in one.decorator_list), one.lineno): (
            one.end_lineno or one.lineno,
            f"{'class' if isinstance(one, ast.ClassDef) else 'function'} {name}",
        )
        for name, one in parts.items()
        if name not in reached or isinstance(one, ast.ClassDef)
    }
