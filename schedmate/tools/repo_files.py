"""`file_tree`, `file_read`, `file_search`: what an agent may touch, locked to one directory."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection
from pathlib import Path

from schedmate.tools.allowed import require_allowed
from schedmate.tools.limits import Limits
from schedmate.tools.locked import LockedRoot, RefusedError, components, read, shown
from schedmate.tools.search import search
from schedmate.tools.tree import tree
from schedmate.visible import visible

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
        limits: Limits = Limits(),  # noqa: B008 - frozen
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
        return [line[: self._limits.line_chars] for line in _split(text)]

    def file_tree(self, path: str = ".", depth: int = 3) -> str:
        """Paths below a directory, one a line and relative to the root, or an `error:` sentence.

        A directory ends in `/`. Where entries run out, every level is shown before the next.
        """
        try:
            return tree(self._root, components(path), depth, self._limits)
        except RefusedError as refusal:
            return f"error: {refusal}."

    def file_search(self, pattern: str, path: str = ".") -> str:
        """Lines that match an RE2 pattern, below a directory or of a file, or an `error:` sentence.

        Each is `path:number| line`, numbered as `file_read` does.
        """

        def lines_of(parts: tuple[str, ...]) -> list[str]:
            return _split(self._content(parts)[0])

        try:
            return search(self._root, components(path), pattern, self._limits, lines_of)
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
        lines = _split(text)
        name = shown(parts)
        if not lines:
            return f"{name}: an empty file"
        if start > len(lines):
            raise RefusedError(f"{name} has {len(lines):,} lines that can be read, no {start:,}th")
        room, rows = self._limits.chars, list[str]()
        for number in range(start, min(len(lines), start + min(count, self._limits.lines) - 1) + 1):
            row = f"{number}| {visible(_cut(lines[number - 1], self._limits.line_chars))}"
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


def _split(text: str) -> list[str]:
    lines = _NEWLINE.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else f"{line[:limit]}… [+{len(line) - limit:,} characters]"
