"""A CSV, .csv.gz or Parquet file as rows of text with their lines, many at a time."""

from __future__ import annotations

import csv
import gzip
import mmap
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from schedmate.errors import InputError, reason_of, require, unreadable
from schedmate.schedulers.sim.traces.block import ArrowBlock, Block, PythonBlock

Rows = Iterator[tuple[int, list[str]]]
"""Each row with its line, from 1."""

_ROWS = 1 << 16
_BYTES = 1 << 24
"""Bytes read at once."""
_SMALL = 1 << 18
"""Files that Python has read before Arrow is imported [bytes]."""
_ODD = (b'"', b"\0", b"\n\n", b"\n\r", rb"\r(?!\n)")
"""Characters of rows that are not one line each, or that Python and Arrow read differently."""


class Table:
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
            with arrow.open_csv(
                self._path,
                arrow.ReadOptions(block_size=_BYTES, skip_rows=1, column_names=list(kinds)),
                arrow.ParseOptions(delimiter=self._delimiter, quote_char=False),
                arrow.ConvertOptions(column_types=kinds),
            ) as batches:
                for batch in batches:
                    yield ArrowBlock(batch, line)
                    line += batch.num_rows
        except ArrowInvalid:
            yield from _by_python((row for row in self.rows if row[0] >= line), width)


@contextmanager
def opened(path: Path) -> Iterator[Table]:
    """The table in a file.

    Raises `InputError` when the file cannot be read, on opening it or later, and `csv.Error`,
    later, when it is not CSV.
    """
    if path.suffix == ".parquet":
        yield _parquet(path)
        return
    packed = path.suffix == ".gz"
    try:
        # read once from its beginning to its end: it may be a pipe
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if packed
            else path.open(encoding="utf-8-sig")
        ) as stream:
            header = stream.readline()
            delimiter = max(",|\t;", key=header.count)
            reader = csv.reader(chain([header], stream), delimiter=delimiter)
            try:
                names = next(reader, [])
            except csv.Error as error:
                raise InputError(f"{path}, line 1: {error}; a trace has a header there.") from None
            rows = ((reader.line_num, row) for row in reader if row)
            names = [name.strip() for name in names]
            yield Table(path, names, rows, "" if packed else delimiter)
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
    with (
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        end = len(content)
        while end and content[end - 1] in b"\r\n":
            end -= 1
        return not any(re.compile(one).search(content, 0, end) for one in _ODD)


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


def _parquet(path: Path) -> Table:
    require(str(path), "parquet", "pyarrow")
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import read_table

    try:
        with path.open("rb") as stream:
            table = read_table(stream)
    except (OSError, ArrowInvalid) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"cannot read {path} as Parquet: {reason.rstrip('.')}; a CSV file has another suffix."
        ) from None
    columns = [column.to_pylist() for column in table.columns]
    rows = (
        ["" if value is None else str(value) for value in row] for row in zip(*columns, strict=True)
    )
    return Table(path, list(table.column_names), enumerate(rows, 1))
