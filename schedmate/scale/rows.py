"""Rows to a Parquet file (extra `parquet`), as many as there are, a group of them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from schedmate.errors import InputError, require
from schedmate.files import replaced
from schedmate.plain import encodable

GROUP = 10_000
"""Rows written together."""

Kind = Literal["string", "int64", "float64", "bool", "strings"]


@contextmanager
def parquet_rows(
    path: Path | None, columns: Mapping[str, Kind]
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Gives a function that takes a row: the values of `columns` by name, others are ignored.

    The file appears whole when the block ends well, or not at all; None: nothing is written.
    Raises `MissingExtraError` without pyarrow and `InputError` for a place that cannot be written.
    """
    if path is None:
        yield lambda _row: None
        return
    require("--parquet", "parquet", "pyarrow")
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    kinds = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "strings": pa.list_(pa.string()),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    rows: list[dict[str, Any]] = []

    def take(row: Mapping[str, Any]) -> None:
        rows.append({name: _value(row.get(name), kind) for name, kind in columns.items()})
        if len(rows) == GROUP:
            flush()

    def flush() -> None:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        rows.clear()

    try:
        # a file, as Arrow takes names in UTF-8 only
        with (
            replaced(path) as temporary,
            temporary.open("wb") as stream,
            ParquetWriter(stream, schema) as writer,
        ):
            yield take
            flush()
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; choose another place."
        ) from None


def _value(value: Any, kind: Kind) -> Any:
    """The value as its column takes it; what does not fit is null."""
    if value is None:
        return None
    if kind == "string":
        return encodable(str(value))
    if kind == "strings":
        return [encodable(str(one)) for one in value]
    if kind == "bool":
        return bool(value)
    try:
        return float(value) if kind == "float64" else _whole(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _whole(value: Any) -> int | None:
    number = int(value)
    return number if -(1 << 63) <= number < 1 << 63 else None
