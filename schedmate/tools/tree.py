"""Lists what is below a directory, level by level, within limits."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence

from schedmate.tools.allowed import Rules, is_hidden, is_ignored, require_allowed, rules_in
from schedmate.tools.limits import Limits
from schedmate.tools.locked import LockedRoot, RefusedError, kind_of, shown

_BIG = 100_000  # size [bytes] from which it is worth telling

_Parts = tuple[str, ...]


def tree(root: LockedRoot, parts: _Parts, depth: int, limits: Limits) -> str:
    """Paths below a directory, one a line and relative to the root, in order of their bytes.

    Raises `RefusedError` when the directory itself cannot be listed.
    """
    rules = require_allowed(root, parts, is_dir=True)
    levels = min(max(1, depth), limits.depth)
    listing = _Listing(root, limits)
    listing.add(parts, rules)
    while listing.found:
        directory, above = listing.found.popleft()
        if len(directory) - len(parts) >= levels or listing.full():
            listing.unlisted += 1
            continue
        try:
            listing.add(directory, above)
        except RefusedError as refusal:
            listing.notes.append(str(refusal))
    rows = [row for _, row in sorted(listing.rows)]
    header = f"{shown(parts)}: {len(rows):,} entries, {levels} levels deep"
    return "\n".join([header, *rows, *(f"[{note}]" for note in listing.all_notes())])


class _Listing:
    """What has been found so far, and what was left out."""

    def __init__(self, root: LockedRoot, limits: Limits) -> None:
        self.root, self.limits = root, limits
        self.rows: list[tuple[tuple[bytes, ...], str]] = []
        self.found: deque[tuple[_Parts, Rules]] = deque()
        self.notes: list[str] = []
        self.hidden = self.ignored = self.unlisted = self.names = 0
        self.deadline = time.monotonic() + limits.seconds

    def full(self) -> bool:
        return (
            len(self.rows) >= self.limits.entries
            or self.names >= self.limits.names
            or time.monotonic() > self.deadline
        )

    def add(self, parts: _Parts, above: Rules) -> None:
        """Add a directory's entries; the directories among them wait in `found`."""
        rules = above + rules_in(self.root, parts)
        end = min(self.limits.entries, len(self.rows) + self.limits.entries_per_directory)
        with self.root.directory(parts) as handle:
            names, complete = self._names(handle)
            left = len(names)
            for name in names:
                if len(self.rows) >= end or time.monotonic() > self.deadline:
                    break
                left -= 1
                self._add_entry(handle, (*parts, os.fsdecode(name)), rules)
        if left or not complete:
            number = f"{left:,}" if complete else f"more than {left:,}"
            self.notes.append(f"clipped: {shown(parts)} has {number} more entries")

    def _add_entry(self, handle: int, path: _Parts, rules: Rules) -> None:
        try:
            status = os.stat(path[-1], dir_fd=handle, follow_symlinks=False)
        except OSError:
            return  # gone since the directory was read
        kind = kind_of(status.st_mode)
        if is_hidden(path, kind == "directory"):
            self.hidden += 1
        elif is_ignored(rules, path, kind == "directory"):
            self.ignored += 1
        else:
            row = _row(path, kind, status.st_size)
            self.rows.append((tuple(map(os.fsencode, path)), row))
            if kind == "directory":
                self.found.append((path, rules))

    def _names(self, handle: int) -> tuple[list[bytes], bool]:
        """Names in a directory in order, and whether these are all."""
        names: list[bytes] = []
        complete = True
        try:
            with os.scandir(handle) as entries:
                for entry in entries:
                    if self.names >= self.limits.names:
                        complete = False
                        break
                    self.names += 1
                    names.append(os.fsencode(entry.name))
        except OSError as error:
            raise RefusedError(f"listing failed: {error.strerror}") from None
        return sorted(names), complete

    def all_notes(self) -> list[str]:
        notes = list(self.notes)
        if self.unlisted:
            notes.append(
                f"clipped: {self.unlisted:,} directories above are not listed inside;"
                " call again with one of them as path"
            )
        if self.hidden:
            notes.append(f"never shown, since they may hold secrets: {self.hidden:,}")
        if self.ignored:
            notes.append(f"left out by .gitignore: {self.ignored:,}")
        return notes


def _row(path: Sequence[str], kind: str, size: int) -> str:
    name = shown(path)
    if kind == "directory":
        return name + "/"
    if kind == "link":
        return f"{name} -> (link, not followed)"
    if kind != "file":
        return f"{name} ({kind}, not readable)"
    return name if size < _BIG else f"{name} ({size:,} bytes)"
