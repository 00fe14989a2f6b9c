"""Tables, columns of equal length by name, as CSV and Parquet.

Files hold every digit, so a table that is read back is the table that was written.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.files import open_output, replaced

Table = Mapping[str, NDArray[Any]]


class Later(Table):
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
    """Write the columns as CSV, completely or not at all; None: to standard output."""
    columns: list[Sequence[Any]] = [values.tolist() for values in table.values()]
    with open_output(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*columns, strict=True))


def read_csv(path: Path, kinds: Mapping[str, type]) -> Table:
    """A table with these columns; raises `OSError`, `ValueError` or `csv.Error` if there is
    none."""
    columns: list[list[str]] = [[] for _ in kinds]
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.reader(stream)
        if next(reader, None) != list(kinds):
            raise ValueError(f"{path} has other columns")
        while rows := list(islice(reader, 10_000)):
            for column, values in zip(columns, zip(*rows, strict=True), strict=True):
                column.extend(values)
    return {
        name: np.array(values if kind is str else list(map(kind, values)), dtype=kind)
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
