"""Limits for one tool call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of one call; every clipping is announced in the text."""

    depth: int = 8
    """Most levels of directories that a `file_tree` descends."""
    entries: int = 400
    """Most entries in a `file_tree`."""
    entries_per_directory: int = 100
    """Most entries of one directory in a `file_tree`."""
    names: int = 200_000
    """Most names that a `file_tree` reads, shown or not."""
    seconds: float = 5.0
    """Time [s] after which a `file_tree` on a slow file system gives what it has."""
    file_bytes: int = 2_000_000
    """Bytes at the start of a file that can be read."""
    lines: int = 400
    """Most lines in a `file_read`."""
    line_chars: int = 500
    """Most characters of a line."""
    chars: int = 40_000
    """Most characters in a `file_read`."""
    found: int = 60
    """Most lines in a `file_search`."""
    found_chars: int = 200
    """Most characters of a line in a `file_search`."""
    searched_files: int = 5_000
    """Most files that a `file_search` looks into."""
    searched_bytes: int = 50_000_000
    """Most bytes that a `file_search` reads."""
