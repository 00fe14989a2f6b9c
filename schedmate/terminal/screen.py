"""Answers for people: paragraphs and tables that fit a terminal, or one row a line in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TextIO

from schedmate.terminal import clean
from schedmate.terminal.layout import Tone, cells, coloured, paint, width_of, wrapped

GAP = "  "
"""Between columns."""
INDENT = "    "
"""Before the second line of a row."""
NARROW = 60
"""Columns of a terminal in which each cell has a line of its own, if they do not fit."""
LONGEST = 500
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
        rows = [[clean(cell, LONGEST) for cell in row] for row in table.rows]
        widths = _fit(table.columns, rows, self.width)
        splits = table.below is not None and self.width >= NARROW
        if widths is not None and not (splits and _height(rows, widths) > 2):
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
            self._write(f"{INDENT}{table.below}", "heading")
        if self.width is not None:
            length = sum(widths) + len(GAP) * (len(widths) - 1)
            utf = (self._stream.encoding or "").lower().startswith("utf")
            self._write(("─" if utf else "-") * length)
        for row, under in zip_longest(rows, below):
            for line in _side_by_side(row, widths, right):
                self._write(line)
            for line in wrapped(under, self.width, INDENT, len(INDENT)) if under else ():
                self._write(line)

    def _in_two_lines(self, table: Table, rows: list[list[str]], at: int) -> None:
        """Each row without one cell, which follows on the next line."""
        assert self.width is not None
        columns = [*table.columns[:at], *table.columns[at + 1 :]]
        below, kept = [row[at] for row in rows], [[*row[:at], *row[at + 1 :]] for row in rows]
        widths = _fit(columns, kept, self.width)
        if widths is not None:
            self._rows(table, columns, kept, widths, below)
            return
        kept.insert(0, columns)  # a cell is longer than a line
        below.insert(0, table.columns[at])
        for row, under in zip(kept, below, strict=True):
            for text, label in ((GAP.join(filter(None, row)), ""), (under, INDENT)):
                for line in wrapped(text, self.width, label, len(INDENT)) if text else ():
                    self._write(line)

    def _stacked(self, columns: Sequence[str], rows: list[list[str]]) -> None:
        assert self.width is not None
        hang = max(map(cells, columns)) + len(GAP)
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


def _fit(columns: Sequence[str], rows: list[list[str]], width: int) -> list[int] | None:
    """Widths of the columns that fit side by side, or None when their longest words do not."""
    room = width - len(GAP) * (len(columns) - 1)
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


def _height(rows: list[list[str]], widths: list[int]) -> int:
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
        yield GAP.join(parts).rstrip()
