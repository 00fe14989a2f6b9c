"""Lines to templates: variable parts are masked, fixed text remains.

Expensive results (an embedding, a model's answer) are computed once for each template and stored.
"""

from __future__ import annotations

import json
import re
import sqlite3
from array import array
from pathlib import Path
from typing import Any

from schedmate.base.journal import Connection
from schedmate.logparse.reading.lines import refreshes, split_prefix, unambiguous_prefixes

LONGEST = 400
"""Characters of a line that are used for its template."""
MAX_TEMPLATES = 20_000
"""Limit for one `Templates`; further lines of a noisy log are no longer masked."""
MAX_SHAPES = 50_000
"""Limit for the shapes in memory."""
OTHER = "<other>"

# The order matters: what holds numbers inside goes before numbers.
_MASKS = re.compile(
    r"(?P<time>\d{4}[-/.]\d\d[-/.]\d\d[ T_,-]?\s?(?:\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    r" +\d{1,2},? \d\d:\d\d:\d\d(?: \d{4})?|\b\d{1,3}:\d\d:\d\d(?:[.,]\d+)?\b)"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{1,9}://[^\s'\"<>)\]]+)"
    r"|(?P<id>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)"
    r"|(?P<host>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\b(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2,4}:[0-9a-fA-F]{2}"
    r"(?:[:.][0-9a-fA-F]{1,2})+\b|\b[A-Za-z][A-Za-z-]*\d[\w-]*(?:\.[a-z][\w-]*){2,}\b)"
    r"|(?P<path>(?<![\w<])(?:~|\.{1,2})?(?:/[\w.@+=~%-]+){2,}/?)"
    r"|(?P<bar>\|[\s#=>█▏▎▍▌▋▊▉.·-]{4,}\||\[[=>.\s#-]{6,}\])"
    r"|(?P<hex>\b0[xX][0-9a-fA-F]+\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b)"
    r"|(?P<num>[-+]?(?<![A-Za-z_])(?:\d+(?:,\d+)*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+|\bnan\b"
    r"|(?<=[ :=])-?inf\b)",
    re.IGNORECASE,
)
_ANY = re.compile(r"[\d/|\[]|nan|inf", re.IGNORECASE)
_MARKS = {name: f"<{name}>" for name in _MASKS.groupindex}


def mask(text: str) -> str:
    """The template of a line: numbers, times, hosts, paths, ids and bars become placeholders.

    `text` has no escape sequences and rank prefixes (`Line.text`).
    """
    text = text[:LONGEST]
    if _ANY.search(text):  # a line of words is passed over at once
        text = _MASKS.sub(lambda match: _MARKS[str(match.lastgroup)], text)
    return " ".join(text.split())


class Templates:
    """The templates of one or more logs, numbered in order of appearance.

    `texts[i]` is template i, `examples[i]` the first line that had it, as it stands in the log.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.examples: list[bytes] = []
        self._numbers: dict[str, int] = {}
        self._shapes = _Shapes(self)

    def __len__(self) -> int:
        return len(self.texts)

    def number(self, raw: bytes) -> int:
        """The number of the template of one raw line."""
        if len(self.texts) >= MAX_TEMPLATES:
            return self._numbers.setdefault(OTHER, MAX_TEMPLATES - 1)
        # of a line with redraws the last one counts, and that stands at its end
        shown = refreshes(raw if len(raw) <= 4 * LONGEST else raw[:LONGEST] + raw[-LONGEST:])
        text = split_prefix(shown[-1], unambiguous_prefixes())[1] if shown else ""
        template = mask(text)
        number = self._numbers.get(template)
        if number is None:
            number = self._numbers[template] = len(self.texts)
            self.texts.append(template)
            self.examples.append(raw[: 4 * LONGEST])
        return number

    def numbers(self, data: bytes) -> array[int]:
        """The number of the template of each line of a chunk.

        Lines that differ only in digits share one look-up, and only new shapes are masked.
        """
        lines = data.removesuffix(b"\n").split(b"\n")
        shapes = data.removesuffix(b"\n").translate(_DIGITS).split(b"\n")
        numbers = array("I")
        self._shapes.lines, self._shapes.numbers = lines, numbers
        numbers.extend(map(self._shapes.__getitem__, shapes))
        return numbers


_DIGITS = bytes.maketrans(b"123456789", b"000000000")


class _Shapes(dict[bytes, int]):
    """Numbers of templates by lines whose digits are all replaced by 0."""

    def __init__(self, templates: Templates) -> None:
        super().__init__()
        self._templates = templates
        self.lines: list[bytes] = []
        self.numbers = array("I")

    def __missing__(self, shape: bytes) -> int:
        # `numbers` grows by one for each line, so its length is the index of this one
        number = self._templates.number(self.lines[len(self.numbers)])
        if len(self) >= MAX_SHAPES:
            self.clear()
        if len(shape) <= 4 * LONGEST:
            self[shape] = number
        return number


class TemplateStore:
    """Results for templates, kept in a SQLite file between runs.

    A value is stored under `kind`, which names its producer and version (`class/2`). Any number of
    processes may use one file. With `path=None`, or if the file cannot be used, values are kept in
    memory: losing the cache never causes a failure.
    """

    def __init__(self, path: Path | None) -> None:
        self._values: dict[tuple[str, str], Any] = {}
        self._database: sqlite3.Connection | None = None
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                path, timeout=5, isolation_level=None, factory=Connection
            )
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS template_value (kind TEXT NOT NULL, "
                "template TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, template)) "
                "WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error):
            self.close()

    def get(self, kind: str, template: str) -> Any:
        """The JSON value stored for a template, or None."""
        key = kind, template
        if key not in self._values and self._database is not None:
            try:
                row = self._database.execute(
                    "SELECT value FROM template_value WHERE kind = ? AND template = ?", key
                ).fetchone()
                self._values[key] = json.loads(row[0]) if row else None
            except (sqlite3.Error, ValueError):
                self.close()
        return self._values.get(key)

    def put(self, kind: str, values: dict[str, Any]) -> None:
        """Store a JSON value for each template."""
        self._values.update({(kind, template): value for template, value in values.items()})
        if self._database is None:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT OR REPLACE INTO template_value VALUES (?, ?, ?)",
                [(kind, template, json.dumps(value)) for template, value in values.items()],
            )
            self._database.execute("COMMIT")
        except sqlite3.Error:
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None
