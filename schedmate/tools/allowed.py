"""What below a root may be shown: nothing that may hold a secret, nothing that git ignores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from schedmate.tools.ignore import MAX_BYTES, IgnoreRules
from schedmate.tools.locked import LockedRoot, RefusedError, read, shown

Rules = tuple[tuple[int, IgnoreRules], ...]
"""The ignore files that hold for a directory: how deep each lies, and its patterns."""


@cache
def _hidden() -> IgnoreRules:
    return IgnoreRules(Path(__file__).with_name("hidden.txt").read_bytes(), ignore_case=True)


def is_hidden(path: Sequence[str], is_dir: bool) -> bool:
    """Whether `hidden.txt` names this entry; that its parents are not named is not looked at."""
    return _hidden().decide(_raw(path), is_dir) is True


def is_ignored(rules: Rules, path: Sequence[str], is_dir: bool) -> bool:
    """Whether git's patterns leave this entry out; the deepest file that speaks of it decides."""
    raw = _raw(path)
    for level, patterns in reversed(rules):
        decision = patterns.decide(raw[level:], is_dir)
        if decision is not None:
            return decision
    return False


def rules_in(root: LockedRoot, parts: Sequence[str]) -> Rules:
    """The patterns of one directory's own .gitignore; () without a readable one."""
    try:
        with root.file((*parts, ".gitignore")) as (handle, _):
            return ((len(parts), IgnoreRules(read(handle, MAX_BYTES))),)
    except RefusedError:
        return ()


def require_allowed(
    root: LockedRoot, parts: Sequence[str], *, is_dir: bool, ignored_too: bool = False
) -> Rules:
    """Raise `RefusedError` if the entry or a directory above it is hidden or ignored.

    Gives the patterns of the directories above it. Whether there is such an entry plays no part,
    so a refusal does not tell. With `ignored_too`, what git ignores is allowed.
    """
    rules: Rules = ()
    for level, _ in enumerate(parts):
        path, directory = parts[: level + 1], is_dir or level < len(parts) - 1
        if is_hidden(path, directory):
            raise RefusedError(f"{shown(parts)} is never shown: it may hold secrets")
        rules += rules_in(root, parts[:level])
        if not ignored_too and is_ignored(rules, path, directory):
            raise RefusedError(f"{shown(parts)} is not shown: .gitignore leaves it out")
    return rules


def _raw(path: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(map(os.fsencode, path))
