"""Snapshots of fleets from files: `read_snapshot` recognises the format.

Formats of schedmate's own, and folders of exports of any kind of cluster that has a reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schedmate.base.errors import InputError, similar_file
from schedmate.base.reading import open_binary, parse_json, read_text
from schedmate.cluster import clusters
from schedmate.cluster.kubernetes.snapshot import read_kubernetes
from schedmate.schedulers.fleet import document, openb
from schedmate.schedulers.fleet.snapshot import FleetSnapshot

_MAGIC = b"PAR1"


def read_snapshot(path: Path) -> FleetSnapshot:
    """The snapshot in a file, or in a folder of Kubernetes or Slurm exports.

    Files: `schedmate.fleet/v1` as JSON, JSON lines or Parquet, or a list of `kubectl get -o json`.
    Raises `InputError` if there is none.
    """
    try:
        if path.is_dir():
            return _read_folder(path)
        with open_binary(path) as stream:
            if stream.read(4) == _MAGIC:
                return document.read_parquet(path)
        text = read_text(path)
    except FileNotFoundError:
        raise InputError(
            f"there is no snapshot {path}"
            f"{similar_file(path) or '; give the path of a file, or of a folder of exports.'}"
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            f"{path} is not text; a snapshot is JSON, JSON lines or Parquet."
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; check its name and rights."
        ) from None
    if path.suffix == ".jsonl" or _is_lines(text):
        return document.read_lines(path, text.splitlines())
    head = text[:4096]
    if '"schedmate.fleet/' in head or '"items"' not in text:
        return document.read_json(path, text)
    return read_kubernetes(_kubernetes_items([(path, text)]), path.name)


def _read_folder(path: Path) -> FleetSnapshot:
    if openb.is_openb(path):
        raise InputError(
            f"{path} is the trace openb, which is many snapshots; choose one with `schedmate fleet "
            "convert --at TIME`, or with --fill."
        )
    files = [(file, read_text(file)) for file in sorted(path.glob("*.json"))]
    if not files:
        raise InputError(
            f"{path} has no JSON files; put the exports of kubectl or scontrol there (see "
            "docs/fleet.md)."
        )
    loaded = [_json_object(file, text) for file, text in files]
    for kind in clusters():
        snapshot = kind.read_export(loaded, path)
        if snapshot is not None:
            return snapshot
    raise InputError(f"{path}: none of its files has nodes; see docs/fleet.md for what to export.")


def _kubernetes_items(files: list[tuple[Path, str]]) -> Iterator[Any]:
    for path, text in files:
        yield from _json_object(path, text).get("items", ())


def _json_object(path: Path, text: str) -> dict[str, Any]:
    fields = parse_json(text, path)
    if not isinstance(fields, dict):
        raise InputError(f"{path} is not an object; see docs/fleet.md for what to export.")
    return fields


def _is_lines(text: str) -> bool:
    """Whether the first line is an object by itself and another follows."""
    first, _, rest = text.lstrip().partition("\n")
    if not rest.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False
