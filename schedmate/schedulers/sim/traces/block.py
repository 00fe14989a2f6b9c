"""Some rows of a table of text, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what names no zone is in UTC


class Block(Protocol):
    """Rows with the same number of cells as the header; columns are given by position."""

    lines: Ints
    """The line of each row, from 1."""
    ragged: Sequence[tuple[int, int]]
    """The line and the number of cells of each row that has more or fewer."""

    def __len__(self) -> int: ...

    def row(self, at: int) -> list[str]:
        """The cells of one row."""
        ...

    def text(self, column: int) -> Sequence[str]:
        """The cells of one column."""
        ...

    def coded(self, column: int) -> tuple[Ints, list[str]]:
        """The distinct cells of one column, and which of them each row has."""
        ...


class PythonBlock:
    """Rows that were read one by one."""

    def __init__(self, rows: Sequence[tuple[int, list[str]]], width: int) -> None:
        self.ragged: Sequence[tuple[int, int]] = [
            (line, len(cells)) for line, cells in rows if len(cells) != width
        ]
        if self.ragged:
            rows = [(line, cells) for line, cells in rows if len(cells) == width]
        self.lines = np.array([line for line, _ in rows], np.int64)
        self._columns = list(zip(*(cells for _, cells in rows), strict=True)) or [()] * width

    def __len__(self) -> int:
        return len(self.lines)

    def row(self, at: int) -> list[str]:
        """See `Block.row`."""
        return [column[at] for column in self._columns]

    def text(self, column: int) -> Sequence[str]:
        """See `Block.text`."""
        return self._columns[column]

    def coded(self, column: int) -> tuple[Ints, list[str]]:
        """See `Block.coded`."""
        return coded(self._columns[column])


class ArrowBlock:
    """A batch of text that Arrow has parsed, of rows that are one line each.

    The meaning of cells is up to Python. It uses neither `pyarrow.compute` nor pandas, whose import
    takes longer than reading 100,000 rows.
    """

    ragged: Sequence[tuple[int, int]] = ()

    def __init__(self, batch: Any, first_line: int) -> None:
        self._batch = batch
        self.lines = np.arange(first_line, first_line + batch.num_rows, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.lines)

    def row(self, at: int) -> list[str]:
        """See `Block.row`."""
        return [column[at].as_py() for column in self._batch.columns]

    def text(self, column: int) -> Sequence[str]:
        """See `Block.text`."""
        found: list[str] = self._batch.column(column).to_pylist()
        return found

    def coded(self, column: int) -> tuple[Ints, list[str]]:
        """See `Block.coded`."""
        found = self._batch.column(column)
        if not hasattr(found, "dictionary"):
            return coded(found.to_pylist())
        codes = found.indices
        start = codes.offset * np.dtype(np.int32).itemsize
        numbers = np.frombuffer(codes.buffers()[1], np.int32, len(codes), start)
        return numbers.astype(np.int64), found.dictionary.to_pylist()


def coded(cells: Sequence[str]) -> tuple[Ints, list[str]]:
    """Which of the distinct cells each one is, and these."""
    number = {cell: code for code, cell in enumerate(dict.fromkeys(cells))}
    return np.fromiter(map(number.__getitem__, cells), np.int64, len(cells)), list(number)


def numbers(cells: Sequence[str]) -> Floats | None:
    """The cells as `float` reads them; None when one of them is not a number."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None


def moments(cells: Sequence[str]) -> Floats | None:
    """The cells as dates in UTC [s since 1970]; None when one is none, or names a zone."""
    read = map(datetime.fromisoformat, map(str.strip, cells))
    try:
        return np.array([(moment - _EPOCH).total_seconds() for moment in read], np.float64)
    except (
        ValueError,
        TypeError,
    ):  # with a time zone, which cannot be subtracted from a time without
        return None
