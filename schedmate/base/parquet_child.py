"""Reads one Parquet file from standard input, in a process with limits; see `base/reading.py`.

Prints a line of JSON with the names, metadata and number of rows, a line for each batch (a list of
columns) and `[]` at the end, or `{"error": ...}`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from schedmate.base.confine.limits import Limits, end_with_parent, keep_limits, leave_network

BATCH_ROWS = 10_000
LONGEST = 16 << 20
"""Characters of a line; a batch that has more is halved."""
MOST_COLUMNS = 2_000


def main() -> None:
    """Read, print, and end."""
    end_with_parent(os.getppid())
    leave_network()
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile as ArrowFile

    pa.set_cpu_count(1)
    keep_limits(Limits(cpu_s=float(sys.argv[3]), memory_mb=int(sys.argv[2])), None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    try:
        with open(0, "rb", closefd=False) as stream, ArrowFile(stream, pre_buffer=False) as table:
            names = list(table.schema_arrow.names)
            if len(names) > MOST_COLUMNS:
                _print({"error": f"it has {len(names):,} columns, of at most {MOST_COLUMNS:,}."})
                return
            about = table.schema_arrow.metadata or {}
            metadata = {
                key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
                for key, value in about.items()
                if not key.startswith((b"ARROW:", b"pandas"))
            }
            rows = table.metadata.num_rows
            _print({"names": names, "metadata": metadata, "rows": rows})
            for batch in table.iter_batches(BATCH_ROWS, use_threads=False):
                _print_batch(batch)
            print("[]", flush=True)
    except MemoryError:
        _print({"error": "it takes more memory than a reader has; write smaller groups of rows."})
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")[:500]
        _print({"error": f"{reason}; write it again."})


def _print_batch(batch: Any) -> None:
    if not batch.num_rows or not batch.num_columns:
        return
    if batch.nbytes > LONGEST and batch.num_rows > 1:
        half = batch.num_rows // 2
        _print_batch(batch.slice(0, half))
        _print_batch(batch.slice(half))
        return
    if batch.nbytes > LONGEST:
        raise ValueError("a row has more than 16 MiB")
    _print([column.to_pylist() for column in batch.columns])


def _print(document: Any) -> None:
    print(json.dumps(document, default=_as_text), flush=True)


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    main()
