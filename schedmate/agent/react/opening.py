"""The part of a repository in the first message: what a model needs to check the claims about it.

Around every claim that is asked about some lines are shown, with the class or function that holds
them; then, as far as there is room, what the command runs: its scripts, its program, its
configuration. Comments, licences, documentation and imports are left out, and of a long program
the functions that its top level does not use. With that most jobs need no call to look further.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from schedmate.agent.react.sources import is_readable, is_script, syntax_tree
from schedmate.base.terminal import visible
from schedmate.tools import RepoFiles

MAX_CHARACTERS = 12_000
"""Limit for all files together; about 3,500 tokens."""
MAX_OF_A_FILE = 8_000
AROUND = 4
"""Lines shown before a claim and after it, where there is no room for the whole file."""
LONG_FILE = 120
"""A file of fewer lines is shown whole."""
MAX_CLAIMED = 6_000
"""Characters that the surroundings of claims may take; the rest is for what the command runs."""
_PATH_WORD = re.compile(r"[\w./-]+")
_COMMENT = re.compile(r"\s*(#(?!!|\s*(SBATCH|PBS|BSUB|COBALT|FLUX|\$|@))|//|;)", re.IGNORECASE)
"""A comment, which is not an option of a batch system."""
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(slots=True)
class _File:
    path: str
    lines: list[str]
    tree: ast.Module | None
    left_out: dict[int, str] = field(default_factory=dict)
    """Lines that are not worth reading, with what they are for those worth a word."""
    shown: set[int] = field(default_factory=set)


def opening(
    files: RepoFiles,
    entry: str | None,
    command: str,
    cited: Iterable[str],
    claims: Sequence[tuple[str, int]] = (),
    most: int = MAX_CHARACTERS,
) -> str:
    """Numbered lines of what the command runs and names, and of files that are `cited`.

    `claims` are the files and lines of the values that are asked about, which are shown first.
    `most` is a limit for all files together [characters].
    """
    named = [word.removeprefix("./") for word in _PATH_WORD.findall(command)]
    paths = dict.fromkeys([*named, *([entry] if entry else []), *cited])
    opened = [one for path in paths if (one := _open(files, path, entry)) is not None]
    # A script says which of the program's defaults count.
    opened.sort(key=lambda one: not is_script(one.path, one.lines))
    room = min(most, MAX_CHARACTERS) - sum(len(one.path) + 20 for one in opened)
    room -= _take(opened, claims, min(max(0, room), MAX_CLAIMED))
    for one in opened:
        room -= _fill(one, min(room, MAX_OF_A_FILE))
    return "\n\n".join(
        f"{one.path} ({len(one.lines)} lines):\n" + "\n".join(_numbered(one))
        for one in opened
        if one.shown
    )


def _open(files: RepoFiles, path: str, entry: str | None) -> _File | None:
    lines = files.lines(path)
    if lines is None or not (is_readable(path) or path == entry or is_script(path, lines)):
        return None
    opened = _File(path, lines, syntax_tree(lines) if path.endswith(".py") else None)
    for number, line in enumerate(lines, 1):
        if not line.strip() or (_COMMENT.match(line) and not line.lstrip().startswith("#!")):
            opened.left_out[number] = ""
    if opened.tree is not None:
        opened.left_out |= _texts_and_imports(opened.tree)
        if len(lines) > LONG_FILE:
            opened.left_out |= _unused_definitions(opened.tree)
    return opened


def _texts_and_imports(tree: ast.Module) -> dict[int, str]:
    """The lines of docstrings and of imports at the top level."""
    spans = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    texts = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return {
        number: ""
        for node in (*spans, *texts)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _unused_definitions(tree: ast.Module) -> dict[int, str]:
    """The lines of top-level functions and classes that the rest does not use by name."""
    parts = {one.name: one for one in tree.body if isinstance(one, _DEFINITIONS)}
    waiting = [one for one in tree.body if not isinstance(one, _DEFINITIONS)]
    reached: set[str] = set()
    while waiting:
        names = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)}
        for name in sorted(names & parts.keys() - reached):
            reached.add(name)
            if not isinstance(parts[name], ast.ClassDef):
                waiting.append(parts[name])
    return {
        number: f"{'class' if isinstance(one, ast.ClassDef) else 'function'} {name}"
        for name, one in parts.items()
        if name not in reached or isinstance(one, ast.ClassDef)
        for number in range(
            min(one.lineno, *(d.lineno for d in one.decorator_list), one.lineno),
            (one.end_lineno or one.lineno) + 1,
        )
    }


def _take(opened: Sequence[_File], claims: Sequence[tuple[str, int]], room: int) -> int:
    """Choose the surroundings of the claims; returns the characters that they take."""
    by_path = {one.path: one for one in opened}
    taken = 0
    for path, line in dict.fromkeys(claims):
        one = by_path.get(path)
        if one is None or not 0 < line <= len(one.lines):
            continue
        around = {
            number
            for number in range(line - AROUND, line + AROUND + 1)
            if 0 < number <= len(one.lines) and one.left_out.get(number) != ""
        }
        around |= {line, *_holders(one.tree, line)}
        cost = sum(_cost(one, number) for number in around - one.shown)
        if taken + cost <= room:
            taken += cost
            one.shown |= around
    return taken


def _holders(tree: ast.Module | None, line: int) -> Iterator[int]:
    """The first lines of the classes and functions that hold a line."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _DEFINITIONS) and node.lineno <= line <= (node.end_lineno or 0):
            yield node.lineno


def _fill(one: _File, room: int) -> int:
    """Choose lines from the top while there is room; returns the characters that they take."""
    taken = 0
    for number in range(1, len(one.lines) + 1):
        if number in one.left_out or number in one.shown:
            continue
        cost = _cost(one, number)
        if taken + cost > room:
            break
        taken += cost
        one.shown.add(number)
    return taken


def _cost(one: _File, number: int) -> int:
    return len(one.lines[number - 1]) + len(str(number)) + 3


def _numbered(one: _File) -> Iterator[str]:
    """The chosen lines with their numbers; what lies between is named, if it holds any code."""
    for before, number in pairwise([0, *sorted(one.shown), len(one.lines) + 1]):
        between = [line for line in range(before + 1, number) if one.left_out.get(line) != ""]
        if between:
            what = {one.left_out.get(line, "") for line in between} - {""}
            names = ", ".join(sorted(what)) + ", " if what else ""
            ending = "not shown" if number <= len(one.lines) else "not shown, see file_read"
            yield f"[lines {between[0]}-{between[-1]}: {names}{ending}]"
        if number <= len(one.lines):
            yield f"{number}| {visible(one.lines[number - 1])}"
