"""`file_tree`, `file_read`, `file_search`: what an agent may touch, locked to one directory.

`RepoFiles` answers them within `Limits`, of which every clipping is announced; `as_langchain`
gives them to a LangChain agent. Names, descriptions and schemas never vary: they are part of the
text that starts every request.
"""

from __future__ import annotations

import codecs
import os
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError

from schedmate.base.terminal import visible
from schedmate.tools.allowed import Rules, is_hidden, is_ignored, require_allowed, rules_in
from schedmate.tools.locked import LockedRoot, RefusedError, components, kind_of, read, shown

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool


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


# `file_tree`, `file_read`, `file_search`: what an agent may touch, locked to one directory.


_NEWLINE = re.compile(r"\r\n|\r|\n")  # Python's tokenizer and YAML's marks count lines by these
_BINARY_PROBE = 8_000  # bytes looked at for a NUL, as git does


class RepoFiles:
    """The files below one directory, as a model is shown them.

    Nothing outside is ever opened, links are not followed, only regular files are read, and what
    `hidden.txt` names or git ignores does not appear. The tools return text and never raise: a
    text that starts with `error:` says why there is nothing to show. Safe to use from threads.

    Args:
        root: the directory; its path is resolved once. Raises `InputError` if it is none.
        limits: caps on what one call shows.
        redact: applied to a file's content before it is cut into lines, whose number it must
            keep; so a secret of several lines is found even if only its middle is asked for.
        run: files that the job itself runs, which are shown although git ignores them; what
            `hidden.txt` names stays hidden.
    """

    def __init__(
        self,
        root: Path,
        limits: Limits = Limits(),
        *,
        redact: Callable[[str], str] | None = None,
        run: Collection[str] = (),
    ) -> None:
        self._root = LockedRoot(root)
        self._limits = limits
        self._redact = redact
        self._run = frozenset(run)

    @property
    def root(self) -> Path:
        """The resolved directory."""
        return self._root.path

    def lines(self, path: str) -> list[str] | None:
        """The lines of a file within the limits, or None if it is not shown.

        Line n is element n - 1: what `file_read` shows as line n, without escapes.
        """
        try:
            text, _, _ = self._content(components(path))
        except RefusedError:
            return None
        return [line[: self._limits.line_chars] for line in _split_lines(text)]

    def file_tree(self, path: str = ".", depth: int = 3) -> str:
        """Paths below a directory, one a line and relative to the root, or an `error:` sentence.

        A directory ends in `/`. Where entries run out, every level is shown before the next.
        """
        try:
            return list_tree(self._root, components(path), depth, self._limits)
        except RefusedError as refusal:
            return f"error: {refusal}."

    def file_search(self, pattern: str, path: str = ".") -> str:
        """Lines that match an RE2 pattern, below a directory or of a file, or an `error:` sentence.

        Each is `path:number| line`, numbered as `file_read` does.
        """

        def lines_of(parts: tuple[str, ...]) -> list[str]:
            return _split_lines(self._content(parts)[0])

        try:
            return search_lines(self._root, components(path), pattern, self._limits, lines_of)
        except RefusedError as refusal:
            return f"error: {refusal}."

    def file_read(self, path: str, start_line: int = 1, max_lines: int = 400) -> str:
        """Numbered lines of a text file from `start_line` (1-based) on, or an `error:` sentence.

        Only lines of the file start with a number and `|`, so its content cannot pass for a note.
        """
        try:
            return self._read(components(path), max(1, start_line), max(1, max_lines))
        except RefusedError as refusal:
            return f"error: {refusal}."

    def _read(self, parts: tuple[str, ...], start: int, count: int) -> str:
        text, size, clipped = self._content(parts)
        lines = _split_lines(text)
        name = shown(parts)
        if not lines:
            return f"{name}: an empty file"
        if start > len(lines):
            raise RefusedError(f"{name} has {len(lines):,} lines that can be read, no {start:,}th")
        room, rows = self._limits.chars, list[str]()
        for number in range(start, min(len(lines), start + min(count, self._limits.lines) - 1) + 1):
            row = f"{number}| {visible(_cut_line(lines[number - 1], self._limits.line_chars))}"
            room -= len(row) + 1
            if room < 0 and rows:
                break
            rows.append(row)
        end = start + len(rows) - 1
        notes = []
        if end < len(lines):
            notes.append(f"[clipped: for more, call again with start_line={end + 1}]")
        if clipped:
            can = f"only its first {self._limits.file_bytes:,} can be read"
            notes.append(f"[clipped: the file has {size:,} bytes, {can}]")
        return "\n".join([f"{name}: lines {start}-{end} of {len(lines)}", *rows, *notes])

    def _content(self, parts: tuple[str, ...]) -> tuple[str, int, bool]:
        """Text, size in bytes, and whether the text is only the beginning."""
        if not parts:
            raise RefusedError(". is a directory, not a file; list it with file_tree")
        ignored_too = "/".join(parts) in self._run
        require_allowed(self._root, parts, is_dir=False, ignored_too=ignored_too)
        limit = self._limits.file_bytes
        with self._root.file(parts) as (handle, status):
            data = read(handle, limit + 1)
        clipped, data = len(data) > limit, data[:limit]
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            text = data.decode("utf-16", errors="replace")
        elif b"\0" in data[:_BINARY_PROBE]:
            raise RefusedError(f"{shown(parts)} is a binary file of {status.st_size:,} bytes")
        else:
            text = data.decode("utf-8-sig", errors="replace")
        if clipped and "\n" in text:
            text = text[: text.rindex("\n")]  # what follows may be half a line
        return self._redact(text) if self._redact else text, status.st_size, clipped


def _split_lines(text: str) -> list[str]:
    lines = _NEWLINE.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def _cut_line(line: str, limit: int) -> str:
    return line if len(line) <= limit else f"{line[:limit]}… [+{len(line) - limit:,} characters]"


# The tools as LangChain tools. Names, descriptions and schemas never vary: they are part of the
# prompt's prefix, which servers cache by its bytes.


_TREE = "List the files of the repository. Directories end in /. Links are not followed."
_READ = "Read numbered lines of one text file of the repository."
_SEARCH = "Find lines of the repository that match a regular expression (RE2, any case)."


# Without a bound, a server that writes by grammar may never end a string.


class _TreeArguments(BaseModel):
    path: str = Field(".", max_length=400, description="directory, relative to the repository root")
    depth: int = Field(3, description="levels to descend")


class _ReadArguments(BaseModel):
    path: str = Field(max_length=400, description="file, relative to the repository root")
    start_line: int = Field(1, description="first line, counted from 1")
    max_lines: int = Field(400, description="number of lines")


class _SearchArguments(BaseModel):
    pattern: str = Field(max_length=400, description="regular expression, matched within a line")
    path: str = Field(".", max_length=400, description="directory or file to search")


def as_langchain(files: RepoFiles) -> list[BaseTool]:
    """The tools over `files`; arguments that do not fit give an `error:` text."""
    from langchain_core.tools import StructuredTool

    return [
        StructuredTool.from_function(
            function,
            name=name,
            description=description,
            args_schema=schema,
            handle_validation_error=_wrong_arguments,
        )
        for function, name, description, schema in (
            (files.file_tree, "file_tree", _TREE, _TreeArguments),
            (files.file_read, "file_read", _READ, _ReadArguments),
            (files.file_search, "file_search", _SEARCH, _SearchArguments),
        )
    ]


def _wrong_arguments(error: object) -> str:
    if not isinstance(error, ValidationError):
        return "error: the arguments do not fit the tool's schema."
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"error: argument {where}: {first['msg']}."


# Lists what is below a directory, level by level, within limits.


_BIG_FILE = 100_000  # size [bytes] from which it is worth telling

_Parts = tuple[str, ...]


def list_tree(root: LockedRoot, parts: _Parts, depth: int, limits: Limits) -> str:
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
            row = _entry_row(path, kind, status.st_size)
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


def _entry_row(path: Sequence[str], kind: str, size: int) -> str:
    name = shown(path)
    if kind == "directory":
        return name + "/"
    if kind == "link":
        return f"{name} -> (link, not followed)"
    if kind != "file":
        return f"{name} ({kind}, not readable)"
    return name if size < _BIG_FILE else f"{name} ({size:,} bytes)"


# Searches lines of the repository by a regular expression, within limits.


MAX_PATTERN = 400
MAX_MEMORY = 8 << 20
"""Limit for the memory of a compiled pattern [bytes]; larger ones are refused."""


def search_lines(
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
    matches = _compile_pattern(pattern)
    rows: list[str] = []
    files = read = 0
    clipped = False
    until = time.monotonic() + limits.seconds
    for path in _files_to_search(root, parts, limits):
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


def _compile_pattern(pattern: str) -> Callable[[str], Any]:
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


def _files_to_search(root: LockedRoot, parts: _Parts, limits: Limits) -> Iterator[_Parts]:
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
                kinds = [(name, _entry_kind(name, handle)) for name in listed]
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


def _entry_kind(name: str, handle: int) -> str:
    try:
        return kind_of(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)
    except OSError:
        return "gone"
