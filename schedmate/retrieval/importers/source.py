"""One file, or standard input, in any of the formats."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from schedmate.errors import InputError, unreadable
from schedmate.jobs import JobRecord
from schedmate.retrieval.importers.detect import Format, detect_format
from schedmate.retrieval.importers.report import Analyse, ImportReport
from schedmate.retrieval.importers.sacct_json import import_sacct_json
from schedmate.retrieval.importers.sacct_table import import_sacct_parsable
from schedmate.retrieval.importers.tables import Column, import_csv, import_jsonl

_HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Source:
    """Text to import. `size` [bytes] is None where it is not known beforehand."""

    stream: IO[str]
    head: str
    size: int | None
    _raw: IO[bytes]

    def position(self) -> int:
        """Bytes read so far."""
        return self._raw.tell() if self.size is not None else 0

    def records(
        self,
        wanted: Format | None = None,
        mapping: Mapping[str, Column] | None = None,
        report: ImportReport | None = None,
        analyse: Analyse | None = None,
    ) -> Iterator[JobRecord]:
        """The records in the text; without a wanted format, in the one its beginning shows."""
        match "csv" if mapping and wanted is None else wanted or detect_format(self.head):
            case "sacct-json":
                return import_sacct_json(self.stream, report, analyse)
            case "sacct":
                return import_sacct_parsable(self.stream, report, analyse)
            case "jsonl":
                return import_jsonl(self.stream, report, analyse)
            case _:
                return import_csv(self.stream, mapping, report, analyse)


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """The text of a file, unpacked when it ends in .gz; `-` is standard input.

    Bytes that are not UTF-8 become replacement characters. Raises `InputError` when the file
    cannot be opened, and for a damaged .gz while it is read.
    """
    with ExitStack() as stack:
        try:
            raw, size = _open(path, stack)
            packed = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            head = cast("io.BufferedReader", packed).peek(_HEAD)
        except OSError as error:
            raise unreadable(path, error) from None
        # newline="" leaves line ends inside quoted CSV fields as they are.
        stream = io.TextIOWrapper(packed, encoding="utf-8", errors="replace", newline="")
        try:
            yield Source(stream, head.decode("utf-8", errors="replace"), size, raw)
        except (EOFError, gzip.BadGzipFile) as error:
            raise InputError(f"{path} is damaged: {error}; export it again.") from None
        finally:
            stream.detach()


def _open(path: Path, stack: ExitStack) -> tuple[IO[bytes], int | None]:
    if str(path) == "-":
        unbuffered = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        reader = io.BufferedReader(cast("io.RawIOBase", unbuffered), _HEAD)
        stack.callback(reader.detach)  # standard input stays open
        return reader, None
    raw = stack.enter_context(path.open("rb", buffering=_HEAD))
    return raw, path.stat().st_size if path.is_file() else None
