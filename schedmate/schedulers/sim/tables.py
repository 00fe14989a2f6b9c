"""Tables as CSV and Parquet: columns that are written and read back, and text read in blocks of
rows.

Files hold every digit, so a table that is read back is the table that was written.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import InputError, reason_of, unreadable
from schedmate.base.files import open_output, replaced
from schedmate.base.reading import (
    LONGEST_LINE,
    MOST_ROWS,
    ParquetFile,
    bounded_rows,
    open_binary,
    open_parquet,
    open_text,
)
from schedmate.base.terminal import from_cell, no_formula

Table = Mapping[str, NDArray[Any]]


class LazyTable(Table):
    """A table whose columns are computed on first use, and kept."""

    def __init__(self, columns: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        self._columns = columns
        self._made: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._made:
            self._made[name] = self._columns[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __reduce__(self) -> tuple[type[dict[str, NDArray[Any]]], tuple[dict[str, NDArray[Any]]]]:
        return dict, (dict(self),)  # other processes get numbers that JSON can represent


def parquet_is_there() -> bool:
    """Whether Parquet files can be written (extra `parquet`)."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def write_csv(path: Path | None, table: Table) -> None:
    """Write the columns as CSV, completely or not at all; None: to standard output.

    What a user has named is no formula in a spreadsheet: `base.terminal.no_formula`.
    """
    columns: list[Sequence[Any]] = [
        [no_formula(one) if isinstance(one, str) else one for one in values.tolist()]
        if values.dtype.kind in "OU"
        else values.tolist()
        for values in table.values()
    ]
    with open_output(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*columns, strict=True))


def read_csv(path: Path, kinds: Mapping[str, type]) -> Table:
    """A table with these columns; raises `OSError`, `ValueError` or `csv.Error` if there is
    none."""
    columns: list[list[str]] = [[] for _ in kinds]
    with open_text(path, newline="") as stream:
        reader = csv.reader(stream)
        if next(reader, None) != list(kinds):
            raise ValueError(f"{path} has other columns")
        while rows := list(islice(reader, 10_000)):
            for column, values in zip(columns, zip(*rows, strict=True), strict=True):
                column.extend(values)
    return {
        name: np.array(list(map(from_cell if kind is str else kind, values)), dtype=kind)
        for (name, kind), values in zip(kinds.items(), columns, strict=True)
    }


def write_parquet(path: Path, table: Table) -> None:
    """Write the columns as Parquet, completely or not at all."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    with replaced(path) as temporary:
        columns = {
            name: values.tolist() if values.dtype.kind == "U" else values
            for name, values in table.items()
        }
        # a file, as Arrow takes names in UTF-8 only
        with temporary.open("wb") as stream:
            write_table(pa.table(columns), stream)


# Some rows of a table of text, column by column.


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
        return code_cells(self._columns[column])


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
        cells: list[str] = self._batch.column(column).to_pylist()
        return cells

    def coded(self, column: int) -> tuple[Ints, list[str]]:
        """See `Block.coded`."""
        cells = self._batch.column(column)
        if not hasattr(cells, "dictionary"):
            return code_cells(cells.to_pylist())
        codes = cells.indices
        start = codes.offset * np.dtype(np.int32).itemsize
        numbers = np.frombuffer(codes.buffers()[1], np.int32, len(codes), start)
        return numbers.astype(np.int64), cells.dictionary.to_pylist()


def code_cells(cells: Sequence[str]) -> tuple[Ints, list[str]]:
    """Which of the distinct cells each one is, and these."""
    number = {cell: code for code, cell in enumerate(dict.fromkeys(cells))}
    return np.fromiter(map(number.__getitem__, cells), np.int64, len(cells)), list(number)


def numbers(cells: Sequence[str]) -> Floats | None:
    """The cells as `float` reads them; None when one of them is not a number."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None


def seconds_since_epoch(cells: Sequence[str]) -> Floats | None:
    """The cells as dates in UTC [s since 1970]; None when one is none, or names a zone."""
    read = map(datetime.fromisoformat, map(str.strip, cells))
    try:
        return np.array([(moment - _EPOCH).total_seconds() for moment in read], np.float64)
    except (
        ValueError,
        TypeError,
    ):  # with a time zone, which cannot be subtracted from a time without
        return None


# A CSV, .csv.gz or Parquet file as rows of text with their lines, many at a time.


Rows = Iterator[tuple[int, list[str]]]
"""Each row with its line, from 1."""

_ROWS = 1 << 16
_BYTES = 1 << 24
"""Bytes read at once."""
_SMALL = 1 << 18
"""Files that Python has read before Arrow is imported [bytes]."""
_LONGEST_END = 1 << 16
"""Empty lines at the end of a file, at most, for Arrow to read it [bytes]."""
_ODD = (b'"', b"\0", b"\n\n", b"\n\r", rb"\r(?!\n)")
"""Characters of rows that are not one line each, or that Python and Arrow read differently."""


class TextTable:
    """An open file of rows, which are read once."""

    def __init__(self, path: Path, names: list[str], rows: Rows, delimiter: str = "") -> None:
        self.names = names
        """The header."""
        self.rows = rows
        self._path = path
        self._delimiter = delimiter

    def blocks(self, varied: Collection[int] = ()) -> Iterator[Block]:
        """The rows, many at a time; the cells of `varied` columns hardly repeat."""
        width = len(self.names)
        if self._delimiter and width and _is_plain(self._path) and _arrow_is_there():
            return self._by_arrow(varied)
        return _by_python(self.rows, width)

    def _by_arrow(self, varied: Collection[int]) -> Iterator[Block]:
        """From the first batch on that Arrow cannot read, by Python."""
        from pyarrow import ArrowInvalid, dictionary, int32, string
        from pyarrow import csv as arrow

        coded, width, line = dictionary(int32(), string()), len(self.names), 2
        kinds = {str(at): string() if at in varied else coded for at in range(width)}
        try:
            with (
                open_binary(self._path) as stream,
                arrow.open_csv(
                    stream,
                    arrow.ReadOptions(block_size=_BYTES, skip_rows=1, column_names=list(kinds)),
                    arrow.ParseOptions(delimiter=self._delimiter, quote_char=False),
                    arrow.ConvertOptions(column_types=kinds),
                ) as batches,
            ):
                for batch in batches:
                    yield ArrowBlock(batch, line)
                    line += batch.num_rows
                    if line > MOST_ROWS:
                        raise InputError(
                            f"{self._path} has more than {MOST_ROWS:,} rows; split it."
                        )
        except ArrowInvalid:
            yield from _by_python((row for row in self.rows if row[0] >= line), width)


@contextmanager
def open_table(path: Path) -> Iterator[TextTable]:
    """The table in a file.

    Raises `InputError` when the file cannot be read, on opening it or later, and `csv.Error`,
    later, when it is not CSV.
    """
    if path.suffix == ".parquet":
        try:
            with open_parquet(path) as file:
                yield _parquet_table(file, path)
        except OSError as error:
            raise unreadable(path, error) from None
        return
    packed = path.suffix == ".gz"
    try:
        # read once from its beginning to its end: it may be a pipe
        with open_text(path, pipe=True, unpack=True, encoding="utf-8-sig") as stream:
            header = stream.readline()
            delimiter = max(",|\t;", key=header.count)
            reader = csv.reader(chain([header], stream), delimiter=delimiter)
            try:
                names = next(reader, [])
            except csv.Error as error:
                raise InputError(f"{path}, line 1: {error}; a trace has a header there.") from None
            rows = ((reader.line_num, row) for row in bounded_rows(reader, path) if row)
            names = [name.strip() for name in names]
            yield TextTable(path, names, rows, "" if packed else delimiter)
    except UnicodeDecodeError:
        raise InputError(
            f"{path} is not text in UTF-8; a trace is a CSV file, which may be packed as "
            ".csv.gz, or a .parquet file."
        ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged: {reason_of(error)}; pack it again.") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _is_plain(path: Path) -> bool:
    """Whether Arrow and Python read the file alike: each row is a line, without quotes."""
    if not path.is_file() or path.stat().st_size < _SMALL:
        return False
    # in pieces that overlap by a byte: two line ends may stand on both sides of a border
    odd = [re.compile(one) for one in _ODD]
    last = b""
    with open_binary(path, longest_line=LONGEST_LINE) as stream:
        while block := stream.read(_BYTES):
            content = last + block
            end = len(content.rstrip(b"\r\n"))
            # what ends a piece is looked at with the next one; what ends the file is no empty row
            if any(one.search(content, 0, end) for one in odd):
                return False
            last = content[end and end - 1 :]
            if len(last) > _LONGEST_END:
                return False
    return True


def _by_python(rows: Rows, width: int) -> Iterator[Block]:
    some: list[tuple[int, list[str]]] = []
    try:
        while True:
            some.extend(islice(rows, _ROWS))
            if not some:
                return
            yield PythonBlock(some, width)
            some = []
    except csv.Error:
        yield PythonBlock(some, width)  # what came before the error
        raise


def _arrow_is_there() -> bool:
    """Whether Arrow can read CSV here (extra `parquet`)."""
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True


def _parquet_table(file: ParquetFile, path: Path) -> TextTable:
    rows = (
        ["" if value is None else str(value) for value in row]
        for batch in file.batches
        for row in zip(*batch, strict=True)
    )
    return TextTable(path, file.names, enumerate(rows, 1))
