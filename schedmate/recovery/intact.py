"""Whether the files of a checkpoint are complete, checked without loading them.

Nothing is unpickled: a checkpoint can be a program. `torch.save` writes a ZIP archive, whose
directory is at its end; safetensors states its own length. Other files are only checked to be not
empty and not growing.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

DEEPEST = 4
MOST_FILES = 20_000
LONGEST_HEADER = 100 << 20
"""Bytes of a safetensors header, which its format limits to 100 MB."""


def files_of(place: Path) -> Iterator[Path]:
    """The regular files of a checkpoint, which is one file or a directory; links lead nowhere."""
    if place.is_file():
        yield place
        return
    count = 0
    for folder, folders, names in os.walk(place):
        here = Path(folder)
        if len(here.relative_to(place).parts) >= DEEPEST:
            folders.clear()
        for name in names:
            count += 1
            if count > MOST_FILES:
                return
            if (here / name).is_file():
                yield here / name


def what_is_wrong(place: Path) -> str | None:
    """Why a file cannot be a complete checkpoint; None: no reason found."""
    try:
        size = place.stat().st_size
        if size == 0:
            return f"{place.name} is empty"
        if place.suffix == ".safetensors":
            return _safetensors(place, size)
        with place.open("rb") as stream:
            start = stream.read(4)
        if start == b"PK\x03\x04":
            return None if _has_directory(place) else f"{place.name} is cut off"
    except OSError as error:
        return f"{place.name} cannot be read ({error.strerror})"
    return None


def _has_directory(place: Path) -> bool:
    try:
        with zipfile.ZipFile(place) as archive:
            return bool(archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return False


def _safetensors(place: Path, size: int) -> str | None:
    cut = f"{place.name} is cut off"
    with place.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            return cut
        try:
            header = json.loads(stream.read(length))
        except (ValueError, RecursionError):
            return f"{place.name} has no header"
    if not isinstance(header, dict):
        return f"{place.name} has no header"
    ends = [
        one["data_offsets"][1]
        for one in header.values()
        if isinstance(one, dict)
        and isinstance(one.get("data_offsets"), list)
        and len(one["data_offsets"]) == 2
        and isinstance(one["data_offsets"][1], int)
    ]
    return None if size >= 8 + length + max(ends, default=0) else cut


def missing_of_index(index: Path) -> str | None:
    """The first missing file of an index of shards, if any."""
    try:
        document = json.loads(index.read_bytes()[:LONGEST_HEADER])
        names = set(document["weight_map"].values())
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return f"{index.name} cannot be read"
    for name in sorted(map(str, names)):
        # an index names only files beside it
        if Path(name).name != name or not (index.parent / name).is_file():
            return f"{name} of {index.name} is not there"
    return None
