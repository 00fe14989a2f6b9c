"""A CSV or Parquet file as rows of text with their lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from schedmate.errors import InputError, require, similar_file


def rows_of(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The header, and each row with its line."""
    if path.suffix == ".parquet":
        return _parquet(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is no text in UTF-8; a trace is a CSV file.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}{similar_file(path)}") from None
    header, _, _ = text.partition("\n")
    delimiter = max(",|\t;", key=header.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        names = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise InputError(f"{path}, line 1: {error}.") from None
    return names, ((reader.line_num, row) for row in reader if row)


def _parquet(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    require(str(path), "parquet", "pyarrow")
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import read_table

    try:
        with path.open("rb") as stream:
            table = read_table(stream)
    except (OSError, ArrowInvalid) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"cannot read {path} as Parquet: {reason}.") from None
    columns = [column.to_pylist() for column in table.columns]
    rows = (
        ["" if value is None else str(value) for value in row] for row in zip(*columns, strict=True)
    )
    return list(table.column_names), enumerate(rows, 1)
