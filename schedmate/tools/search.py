"""Searches lines of the repository by a regular expression, within limits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from schedmate.tools.allowed import Rules, is_hidden, is_ignored, require_allowed, rules_in
from schedmate.tools.limits import Limits
from schedmate.tools.locked import LockedRoot, RefusedError, kind_of, shown
from schedmate.visible import visible

_Parts = tuple[str, ...]
MAX_PATTERN = 400
MAX_MEMORY = 8 << 20
"""Limit for the memory of a compiled pattern [bytes]; larger ones are refused."""


def search(
    root: LockedRoot,
    parts: _Parts,
    pattern: str,
    limits: Limits,
    lines_of: Callable[[_Parts], list[str]],
) -> str:
    """The lines below a directory, or of a file, that match: `path:number| line`.

    `pattern` is RE2's, matched without regard to case anywhere in a line. `lines_of` reads a file;
    a `RefusedError` of it passes over the file. Raises `RefusedError` for a pattern or a place that
    cannot be used.
    """
    matches = _compiled(pattern)
    rows: list[str] = []
    files = read = 0
    clipped = False
    until = time.monotonic() + limits.seconds
    for path in _files(root, parts, limits):
        full = files >= limits.searched_files or read >= limits.searched_bytes
        if full or time.monotonic() > until or len(rows) > limits.found:
            clipped = True
            break
        try:
            lines = lines_of(path)
        except RefusedError:
            continue
        files += 1
        read += sum(map(len, lines))
        for number, line in enumerate(lines, 1):
            if len(rows) <= limits.found and matches(line):
                text = line.strip()[: limits.found_chars]
                rows.append(f"{shown(path)}:{number}| {visible(text)}")
    notes = [] if rows else ["[no line matches]"]
    if clipped or len(rows) > limits.found:
        rows = rows[: limits.found]
        notes = [f"[clipped: {files:,} files were searched; give a narrower pattern or a path]"]
    return "\n".join([f"{shown(parts)}: {len(rows)} lines in {files:,} files", *rows, *notes])


def _compiled(pattern: str) -> Callable[[str], Any]:
    import re2

    if len(pattern) > MAX_PATTERN:
        raise RefusedError(f"a pattern has at most {MAX_PATTERN} characters")
    options = re2.Options()
    options.case_sensitive = False
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeError:
        raise RefusedError("the pattern holds half a character") from None
    except re2.error as error:
        raise RefusedError(f"the pattern is no RE2 expression: {error}") from None
    found: Callable[[str], Any] = compiled.search
    return found


def _files(root: LockedRoot, parts: _Parts, limits: Limits) -> Iterator[_Parts]:
    """The files that may be shown below a place, or the one that it is, in the order of names."""
    rules = require_allowed(root, parts, is_dir=True)
    waiting: list[tuple[_Parts, Rules]] = [(parts, rules)]
    names = 0
    while waiting and names < limits.names:
        directory, above = waiting.pop()
        try:
            below = above + rules_in(root, directory)
            with root.directory(directory) as handle:
                with os.scandir(handle) as entries:
                    listed = sorted(one.name for one in islice(entries, limits.names - names))
                kinds = [(name, _kind(name, handle)) for name in listed]
        except RefusedError:
            if directory == parts and parts:
                yield parts  # a file, or nothing, as its reader will say
                return
            if directory == parts:
                raise
            continue
        except OSError:
            continue
        names += len(kinds)
        folders: list[tuple[_Parts, Rules]] = []
        for name, kind in kinds:
            path, folder = (*directory, name), kind == "directory"
            if is_hidden(path, folder) or is_ignored(below, path, folder):
                continue
            if folder:
                folders.append((path, below))
            elif kind == "file":
                yield path
        waiting.extend(reversed(folders))


def _kind(name: str, handle: int) -> str:
    try:
        return kind_of(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)
    except OSError:
        return "gone"
