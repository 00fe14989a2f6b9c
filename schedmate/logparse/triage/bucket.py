"""The jobs of a batch in object storage, and their logs."""

from __future__ import annotations

import glob
import tempfile
from collections import defaultdict
from pathlib import Path, PurePosixPath

from schedmate.errors import InputError, UsageError
from schedmate.logparse.triage.targets import Batch, Target, listed, may_be_log
from schedmate.scale.objects import Entry, copy, find, matching
from schedmate.terminal import counted

DEEP = 2
"""Parts of a log's name that may follow the prefix: a folder and the file."""


def find_objects(source: str, *, per_folder: bool, recursive: bool) -> Batch:
    """The jobs below a prefix, of a glob, or of a CSV file in object storage.

    Each object is a job, or with `per_folder` each folder. Without `recursive`, only logs directly
    below the prefix and in its folders count. Raises `InputError` if there are none.
    """
    if glob.has_magic(source):
        entries: list[Entry] | None = matching(source)
        root = source[: next(i for i, letter in enumerate(source) if letter in "*?[")]
        root = root[: root.rfind("/") + 1]
        recursive = True
    else:
        entries = find(source)
        root = source.rstrip("/") + "/"
    if entries is None:
        if recursive or per_folder:
            raise UsageError(
                "--recursive and --one-job-per-folder are for prefixes and globs; "
                f"{source} is a list, in which each row is a job."
            )
        with tempfile.TemporaryDirectory(prefix="schedmate-") as folder:
            copied = Path(folder) / "jobs.csv"
            copy(source, copied)
            return listed(copied, at=source)
    logs, warnings = _logs(entries, root, recursive=recursive)
    if not logs:
        raise InputError(f"{source} holds no logs; each object there is one job.")
    return Batch(source, _targets(logs, root, per_folder=per_folder, deep=recursive), warnings)


def _logs(entries: list[Entry], root: str, *, recursive: bool) -> tuple[list[Entry], list[str]]:
    logs, other, deep = [], 0, 0
    for one in entries:
        parts = PurePosixPath(one.url.removeprefix(root)).parts
        if any(part.startswith(".") for part in parts):
            continue
        if not may_be_log(PurePosixPath(one.url)):
            other += 1
        elif len(parts) > DEEP and not recursive:
            deep += 1
        else:
            logs.append(one)
    notes = []
    if other:
        notes.append(f"{counted(other, 'object')} of {root} left out: by their names not logs.")
    if deep:
        notes.append(f"{counted(deep, 'log')} further below not read; give --recursive.")
    return logs, notes


def _targets(logs: list[Entry], root: str, *, per_folder: bool, deep: bool) -> list[Target]:
    jobs: defaultdict[str, list[Entry]] = defaultdict(list)
    for one in logs:
        name = one.url
        if per_folder:
            parts = PurePosixPath(one.url.removeprefix(root)).parts
            home = parts[:-1] if deep else parts[:1][: len(parts) - 1]
            name = root + "/".join(home)
        jobs[name].append(one)
    names = [name.removeprefix(root).strip("/") or PurePosixPath(root).name for name in jobs]
    stems = names
    if not per_folder:
        bare = [name.removesuffix(".gz").removesuffix(".zst") for name in names]
        stems = [PurePosixPath(name).stem or name for name in bare]
    ids = stems if len(set(stems)) == len(stems) else names
    return [
        Target(
            index,
            ids[index],
            Path(name),
            objects=tuple(one.url for one in entries),
            stamps=tuple(f"{one.size} {one.stamp}" for one in entries if one.stamp is not None),
            merged="as --one-job-per-folder asks" if len(entries) > 1 else None,
        )
        for index, (name, entries) in enumerate(jobs.items())
    ]
