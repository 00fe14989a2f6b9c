"""Text that people see: cleaned, so that no repository, log or file controls a terminal, and
laid out.

`clean` and `say` make lines, `progress` shows how far long work is, `Screen` and `Table` show
answers that fit a terminal, or one row a line in a pipe. Below them is how wide text is, where
lines break and whether there is colour. `visible` writes characters that nobody can see as
escapes, for pages and prompts.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from time import monotonic
from typing import Literal, TextIO

# Escape sequences (CSI, OSC and other strings, two-character ones), then what is left of the
# C0 and C1 controls, then the invisible characters that reorder or hide text (Unicode TR 36).
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+"
)


PROGRESS_EVERY_S = 60.0
"""How often long work says how far it is where no terminal shows a bar [s]."""


def strip_escapes(text: str) -> str:
    """The text without terminal escape sequences."""
    return _SEQUENCE.sub("", text)


def clean(text: object, limit: int | None = 2000) -> str:
    """One line of printable text without control sequences, cut off after `limit` characters."""
    line = _CONTROL.sub(" ", strip_escapes(str(text)))
    line = " ".join(line.split())
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def counted(number: float, thing: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,.12g} {thing}{'s' * (number != 1)}"


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int, str], None]]:
    """A bar on standard error while a terminal is there to show it; else a line every minute.

    Gives a function that is told how much is done and a few words beside it. Without `total` the
    bar only shows that something happens.
    """
    if not sys.stderr.isatty():
        yield _progress_lines(what, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
    )
    console = Console(
        file=sys.stderr,
        markup=False,
        emoji=False,
        highlight=False,
        color_system="auto" if coloured(sys.stderr) else None,
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=clean(text))


def _progress_lines(what: str, total: int | None) -> Callable[[int, str], None]:
    """A function that reports progress on standard error every `PROGRESS_EVERY_S` seconds."""
    began = reported = monotonic()

    def advance(done: int, text: str) -> None:
        nonlocal reported
        now = monotonic()
        if now - reported < PROGRESS_EVERY_S:
            return
        reported = now
        share = f"{min(1.0, done / total):.0%}" if total else f"{done:,} done"
        words = f", {text}" if text else ""
        say(f"{what}: {share}{words}, for {(now - began) / 60:.0f} min")

    return advance


def say(message: str) -> None:
    """One line to standard error, where talk belongs, cleaned; data goes to standard output.

    Talk that nobody reads any more ends no work.
    """
    try:
        for line in wrapped(clean(message), width_of(sys.stderr), hang=2):
            print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@contextmanager
def outlasting(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Gives a function that writes a line at once, and goes on without its reader.

    For work that also stores something: when the reader leaves, as `head` does, or the disk is
    full, what follows is dropped, and the `OSError` is raised when the block has ended well.
    """
    failure: OSError | None = None

    def write(line: str) -> None:
        nonlocal failure
        if failure is None:
            try:
                stream.write(line + "\n")
                stream.flush()
            except OSError as error:
                failure = error

    yield write
    if failure is not None:
        raise failure


# How wide text is, where lines break, and whether there is colour.


Tone = Literal["good", "doubtful", "bad", "heading"]
_TONE_CODES: dict[Tone, str] = {"good": "1;32", "doubtful": "1;33", "bad": "1;31", "heading": "1"}

DEFAULT_WIDTH = 80
"""Columns of a terminal that does not say how many it has."""


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal behind a stream; None where none is: lines there have no end.

    The variable COLUMNS comes before what the terminal says.
    """
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):
        return DEFAULT_WIDTH


def coloured(stream: TextIO, *, plain: bool = False) -> bool:
    """Whether a stream gets colour: a terminal does that is not `dumb`.

    Never with `plain` or the variable NO_COLOR, else always with FORCE_COLOR (but 0).
    """
    if plain or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, tone: Tone) -> str:
    """The text in the colour of a tone, and back."""
    return f"\x1b[{_TONE_CODES[tone]}m{text}\x1b[0m"


def cells(text: str) -> int:
    """How many columns a text takes: ideographs two, what combines with others none."""
    if text.isascii():
        return len(text)
    return sum(_cells_of_character(character) for character in text)


def _cells_of_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def wrapped(text: str, width: int | None, label: str = "", hang: int = 0) -> Iterator[str]:
    """The lines of one paragraph, broken between words only; without `width` it is one line.

    `label` comes first; lines after the first are indented by `hang` columns. A word that is
    longer than a line has one to itself.
    """
    if width is None or cells(label) + cells(text) <= width:
        yield label + text
        return
    line = label
    for word in text.split():
        gap = "" if line.endswith(" ") or not line else " "
        if not line.strip() or cells(line + gap + word) <= width:
            line += gap + word
        else:
            yield line.rstrip()
            line = " " * hang + word
    yield line


# Answers for people: paragraphs and tables that fit a terminal, or one row a line in a pipe.


COLUMN_GAP = "  "
"""Between columns."""
ROW_INDENT = "    "
"""Before the second line of a row."""
NARROW_WIDTH = 60
"""Columns of a terminal in which each cell has a line of its own, if they do not fit."""
LONGEST_CELL = 500
"""Characters of a cell that a terminal shows; a pipe gets all of them."""


class Table:
    """Rows under headings. `right` names the columns whose cells end at the right edge.

    `below` is the column that gives way first: where a row does not fit a line, its cell has a line
    of its own under the others.
    """

    def __init__(self, *columns: str, right: Sequence[str] = (), below: str | None = None) -> None:
        self.columns = columns
        self.right = frozenset(right)
        self.below = below
        self.rows: list[list[str]] = []

    def add(self, *row: object) -> None:
        """Add a row with a cell for each column; nothing in it can control the terminal."""
        assert len(row) == len(self.columns)
        self.rows.append([clean(cell, None) for cell in row])


class Screen:
    """Where a command shows its answer.

    On a terminal lines break between words, and a table whose longest words do not fit side by
    side has a second line for each row (`Table.below`), or a line for each cell. Anywhere else a
    paragraph and a row are one line, whatever their length, with columns aligned by spaces.
    """

    def __init__(self, stream: TextIO, *, plain: bool = False) -> None:
        self._stream = stream
        self.width = width_of(stream)
        self._coloured = coloured(stream, plain=plain)

    def line(self, text: object = "", tone: Tone | None = None, *, label: str = "") -> None:
        """Print a paragraph; nothing in it can control the terminal.

        What follows its first line is indented, up to below the end of `label`, which comes first.
        """
        hang = len(label) or 2
        if self.width is not None:
            hang = min(hang, self.width // 3)
        for line in wrapped(clean(text, None), self.width, label, hang):
            self._write(line, tone)

    def table(self, table: Table) -> None:
        """Print a table."""
        if self.width is None:
            self._rows(table, table.columns, table.rows, _widths(table.columns, table.rows))
            return
        rows = [[clean(cell, LONGEST_CELL) for cell in row] for row in table.rows]
        widths = _fitting_widths(table.columns, rows, self.width)
        splits = table.below is not None and self.width >= NARROW_WIDTH
        if widths is not None and not (splits and _most_lines(rows, widths) > 2):
            self._rows(table, table.columns, rows, widths)
        elif splits and table.below is not None:
            self._in_two_lines(table, rows, table.columns.index(table.below))
        else:
            self._stacked(table.columns, rows)

    def _write(self, line: str, tone: Tone | None = None) -> None:
        self._stream.write((paint(line, tone) if tone and self._coloured else line) + "\n")

    def _rows(
        self,
        table: Table,
        columns: Sequence[str],
        rows: list[list[str]],
        widths: list[int],
        below: Sequence[str] = (),
    ) -> None:
        right = [name in table.right for name in columns]
        for line in _side_by_side(columns, widths, right):
            self._write(line, "heading")
        if below:
            self._write(f"{ROW_INDENT}{table.below}", "heading")
        if self.width is not None:
            length = sum(widths) + len(COLUMN_GAP) * (len(widths) - 1)
            utf = (self._stream.encoding or "").lower().startswith("utf")
            self._write(("─" if utf else "-") * length)
        for row, under in zip_longest(rows, below):
            for line in _side_by_side(row, widths, right):
                self._write(line)
            for line in wrapped(under, self.width, ROW_INDENT, len(ROW_INDENT)) if under else ():
                self._write(line)

    def _in_two_lines(self, table: Table, rows: list[list[str]], at: int) -> None:
        """Each row without one cell, which follows on the next line."""
        assert self.width is not None
        columns = [*table.columns[:at], *table.columns[at + 1 :]]
        below, upper = [row[at] for row in rows], [[*row[:at], *row[at + 1 :]] for row in rows]
        widths = _fitting_widths(columns, upper, self.width)
        if widths is not None:
            self._rows(table, columns, upper, widths, below)
            return
        upper.insert(0, columns)  # a cell is longer than a line
        below.insert(0, table.columns[at])
        for row, under in zip(upper, below, strict=True):
            for text, label in ((COLUMN_GAP.join(filter(None, row)), ""), (under, ROW_INDENT)):
                for line in wrapped(text, self.width, label, len(ROW_INDENT)) if text else ():
                    self._write(line)

    def _stacked(self, columns: Sequence[str], rows: list[list[str]]) -> None:
        assert self.width is not None
        hang = max(map(cells, columns)) + len(COLUMN_GAP)
        for number, row in enumerate(rows):
            if number:
                self._write("")
            for name, cell in zip(columns, row, strict=True):
                if cell:
                    label = name + " " * (hang - cells(name))
                    for line in wrapped(cell, self.width, label, hang):
                        self._write(line)


def _widths(columns: Sequence[str], rows: list[list[str]]) -> list[int]:
    return [max(map(cells, column)) for column in zip(columns, *rows, strict=True)]


def _fitting_widths(columns: Sequence[str], rows: list[list[str]], width: int) -> list[int] | None:
    """Widths of the columns that fit side by side, or None when their longest words do not."""
    room = width - len(COLUMN_GAP) * (len(columns) - 1)
    widths = _widths(columns, rows)
    least = [
        max(cells(word) for text in column for word in text.split() or [""])
        for column in zip(columns, *rows, strict=True)
    ]
    if sum(least) > room:
        return None
    while sum(widths) > room:  # the widest one that can gives way
        able = [number for number, size in enumerate(widths) if size > least[number]]
        widths[max(able, key=lambda number: widths[number])] -= 1
    return widths


def _most_lines(rows: list[list[str]], widths: list[int]) -> int:
    """Lines of the row that takes most."""
    return max(
        (
            sum(1 for _ in wrapped(cell, size))
            for row in rows
            for cell, size in zip(row, widths, strict=True)
        ),
        default=0,
    )


def _side_by_side(
    row: Sequence[str], widths: Sequence[int], right: Sequence[bool]
) -> Iterator[str]:
    """The lines of one row: each cell within its column."""
    columns = [list(wrapped(text, size)) for text, size in zip(row, widths, strict=True)]
    for number in range(max(map(len, columns))):
        parts = []
        for lines, size, ends in zip(columns, widths, right, strict=True):
            text = lines[number] if number < len(lines) else ""
            pad = " " * (size - cells(text))
            parts.append(pad + text if ends else text + pad)
        yield COLUMN_GAP.join(parts).rstrip()


# Text from a repository or log, with the characters that a reader cannot see made visible.


# Printable by Unicode's book, yet without any ink: fillers, joiners and variation selectors, in
# which text can be hidden from a person and shown to a model (Unicode TR 36 and 39).
_INKLESS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)


def is_visible(character: str) -> bool:
    """Whether a character shows: no control, format, surrogate, tag or unassigned one."""
    return character.isprintable() and character not in _INKLESS


def visible(text: str) -> str:
    r"""The text with every invisible character, but tab and newline, written as an escape.

    Escapes are Python's: `\x1b`, `\u202e`, `\U000e0041`. The result holds no control characters,
    bidirectional overrides, zero-width characters, tags or lone surrogates.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\t\n" or is_visible(c) else _escape(c) for c in text)


_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def no_formula(text: str) -> str:
    """A text as a cell of CSV: one that a spreadsheet would take as a formula begins with an
    apostrophe (CWE-1236)."""
    return f"'{text}" if _FORMULA.match(text) else text


def from_cell(text: str) -> str:
    """The text that `no_formula` made a cell of."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def quoted_name(name: str) -> str:
    r"""A file name as one word: itself if it is plain, else a JSON string with escapes.

    JSON because a model that copies the word into its arguments then names the very same file.
    """
    if name and all(is_visible(c) and c not in ' "\\' for c in name):
        return name
    return '"' + "".join(_json_escape(c) for c in name) + '"'


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    plain = is_visible(character) and character not in '"\\'
    return character if plain else json.dumps(character)[1:-1]
