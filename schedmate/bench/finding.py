"""Labelled logs in files that the user saved, found by their checksums.

The benchmark holds no log, only where each one is and its SHA-256. A log is a whole file, or what
a notebook's cell printed, or lines of a public page: of the page saved as text or Markdown, or of
the answer of an API in JSON, whose texts are looked through one by one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from schedmate.bench.documents import LogLabel
from schedmate.errors import InputError
from schedmate.files import replaced

PAGE_BYTES = 1 << 20
PAGE_LINES = 3000
"""The largest text of which all runs of lines are tried: work grows with the square of them."""
JSON_BYTES = 64 << 20


def find_logs(
    folder: Path, labels: Mapping[str, LogLabel], out: Path, each: Callable[[Path], None]
) -> list[str]:
    """Write each labelled log that a file below `folder` holds to `out`/ID.log.

    `each` is called with each file before it is read. Gives the ids that were found, in the order
    of the labels. Raises `InputError` where `folder` is none or `out` cannot be written.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no directory; name the one with the pages and files.")
    wanted: dict[str, list[str]] = {}
    for label in labels.values():
        wanted.setdefault(label.sha256, []).append(label.id)
    found: set[str] = set()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            each(path)
            for checksum, text in logs_in(path, wanted.keys()):
                for name in wanted[checksum]:
                    with replaced(out / f"{name}.log") as target:
                        target.write_bytes(text)
                    found.add(name)
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: {error.strerror}; check its rights."
        ) from None
    return [name for name in labels if name in found]


def logs_in(path: Path, wanted: AbstractSet[str]) -> Iterator[tuple[str, bytes]]:
    """The wanted logs that a file holds: their SHA-256 and text."""
    with path.open("rb") as file:
        whole = hashlib.file_digest(file, "sha256").hexdigest()
    if whole in wanted:
        yield whole, path.read_bytes()
        return
    length = path.stat().st_size
    if path.suffix in (".json", ".ipynb") and length <= JSON_BYTES:
        try:
            document = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return
        for text in _texts(document):
            yield from _lines_in(text, wanted)
    elif length <= PAGE_BYTES:
        yield from _lines_in(path.read_bytes().decode(errors="replace"), wanted)


def _texts(document: Any) -> Iterator[str]:
    """The texts of a JSON document; a list of nothing but lines is one, as in notebooks."""
    open_ones = [document]
    while open_ones:
        one = open_ones.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            open_ones += one.values()
        elif isinstance(one, list) and all(isinstance(part, str) for part in one):
            yield "".join(one)
        elif isinstance(one, list):
            open_ones += one


def _lines_in(text: str, wanted: AbstractSet[str]) -> Iterator[tuple[str, bytes]]:
    """Runs of lines with a wanted checksum, with and without the last line's end."""
    lines = [line.encode(errors="surrogatepass") for line in text.replace("\r\n", "\n").split("\n")]
    if len(text) > PAGE_BYTES or len(lines) > PAGE_LINES:
        return
    for first in range(len(lines)):
        so_far = hashlib.sha256()
        for last in range(first, len(lines)):
            so_far.update(lines[last])
            bare = so_far.hexdigest()
            so_far.update(b"\n")
            for checksum, end in ((bare, b""), (so_far.hexdigest(), b"\n")):
                if checksum in wanted:
                    yield checksum, b"\n".join(lines[first : last + 1]) + end
