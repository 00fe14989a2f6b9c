"""The source of a batch: a directory, a glob, or a list of jobs with their accounting data."""

from __future__ import annotations

import csv
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path, PurePath
from stat import S_ISREG

from schedmate.data import load
from schedmate.durations import parse_duration
from schedmate.errors import InputError, UsageError, did_you_mean
from schedmate.hosts import expand_hostlist
from schedmate.logparse.reading import Log, open_log
from schedmate.logparse.reading.inside import Folder
from schedmate.logparse.reading.log import open_files
from schedmate.plain import LONGEST_S
from schedmate.scale.objects import is_object, url_of
from schedmate.terminal import clean

FIRST = 4_096
"""Bytes at the beginning of a list that show whether it is text."""
MAX_NODES = 20_000
"""Limit for the nodes of one job."""

LARGEST = 10**9
"""Limit for the nodes of one name with brackets; the first `MAX_NODES` are used."""

_LISTED = re.compile(r"(?:[^,;\s\[\]]++|\[[^\[\]]*+\])++")


@dataclass(frozen=True)
class Target:
    """One job: its log (a file or a directory of rank files), and what is known about it.

    `duration_s` [s] and `gpus` are of the whole job. For a job found in a directory, `files` are
    those of the log, `folder` is the directory outside of which they are not read, and `merged` is
    the reason to take several files as one job. In object storage `objects` are the URLs of its
    files, and `stamps` the version of each when it was listed.
    """

    index: int
    job_id: str
    log: Path
    files: tuple[Path, ...] = ()
    folder: Folder | None = None
    merged: str | None = None
    follow_links: bool = False
    objects: tuple[str, ...] = ()
    stamps: tuple[str, ...] = ()
    duration_s: float | None = None
    gpus: float | None = None
    nodes: tuple[str, ...] = ()
    workload: str | None = None
    state: str | None = None
    user: str | None = None

    @property
    def name(self) -> str:
        """The log as a user would name it."""
        if len(self.objects) > 1:
            return url_of(os.path.commonpath(self.objects))
        return self.objects[0] if self.objects else str(self.log)

    @property
    def key(self) -> str | None:
        """A stamp that changes when a file of the log is rewritten; None if unknown."""
        if self.objects:
            stamps = [*self.objects, *self.stamps]
            return "\0".join(stamps) if len(self.stamps) == len(self.objects) else None
        try:
            found = [(path, path.stat()) for path in self.files or [self.log]]
        except OSError:
            return None
        if not all(S_ISREG(status.st_mode) for _, status in found):
            return None
        return "\0".join(f"{p}\0{s.st_size} {s.st_mtime_ns} {s.st_ino}" for p, s in found)

    @property
    def base(self) -> str:
        """The common beginning of the names of the log's files."""
        if self.objects:
            return self.name
        within = all(one.is_relative_to(self.log) for one in self.files)
        return str(self.log) if within else os.path.commonpath(self.files)

    def open(self) -> Log:
        """The log. Raises `LogError` when it cannot be read."""
        if self.objects:
            from schedmate.logparse.triage.objects import open_objects

            return open_objects(self.name, self.objects)
        if self.folder is None:
            return open_log(self.log, follow_links=self.follow_links)
        name = str(self.files[0] if len(self.files) == 1 else self.log)
        return open_files(name, self.files, self.folder)

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of the job, None if its duration or its GPUs are unknown."""
        if self.duration_s is None or self.gpus is None:
            return None
        return self.duration_s * self.gpus / 3600


@dataclass
class Batch:
    """The jobs of one triage, and notes on irregularities in their list."""

    source: str
    targets: list[Target]
    warnings: list[str] = field(default_factory=list)

    def opened(self, index: int) -> Log:
        """The log of the target of this index. Raises `LogError` when it cannot be read."""
        return self.targets[index].open()


def listed(path: Path, *, follow_links: bool = False, at: str | None = None) -> Batch:
    """The jobs of a CSV file with a header and at least the column `log`.

    See `columns.yaml` for the other columns. `at` is the URL that the file was copied from. Raises
    `InputError` if it lists no jobs.
    """
    batch = Batch(at or str(path), [])
    with path.open("rb") as raw:
        if b"\0" in raw.read(FIRST):
            raise InputError(
                f"{batch.source} is not text; a job list is a CSV file, which is not packed. "
                "For one log use `schedmate diagnose`."
            )
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        try:
            header = stream.readline()
            stream.seek(0)
            rows = csv.DictReader(stream, delimiter=max(",;\t|", key=header.count))
            names = list(rows.fieldnames or ())
            columns = _columns(names, path)
            batch.warnings += _mistyped(names, columns, batch.source)
            for row in rows:
                values = {name: (row.get(column) or "").strip() for name, column in columns.items()}
                if values["log"]:
                    batch.targets.append(
                        replace(
                            _target(
                                len(batch.targets),
                                values,
                                at or str(path),
                                rows.line_num,
                                batch.warnings,
                            ),
                            follow_links=follow_links,
                        )
                    )
                elif any(values.values()):
                    batch.warnings.append(f"line {rows.line_num} of {path} names no log.")
        except csv.Error as error:
            raise InputError(f"{path} is not CSV: {error}; correct it.") from None
    if not batch.targets:
        raise InputError(f"{batch.source} lists no jobs; give a header and a row a job.")
    return batch


def may_be_log(path: PurePath) -> bool:
    """Whether a file name is not that of another format."""
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    return PurePath(name).suffix.lower() not in _no_logs()


@cache
def _no_logs() -> frozenset[str]:
    return frozenset(load("logparse/triage/no_logs.yaml"))


def _columns(header: list[str], path: Path) -> dict[str, str]:
    known = load("logparse/triage/columns.yaml")
    found: dict[str, str] = {}
    for name, spellings in known.items():
        for column in header:
            if name not in found and re.sub(r"[^a-z]", "", (column or "").lower()) in spellings:
                found[name] = column
    if "log" not in found:
        shown = clean(", ".join(map(str, header)), 200) or "none"
        raise InputError(
            f"{path} has no column `log` (it has: {shown}); a job list is a CSV file with a header "
            "and a column with the path of each job's log. For one log use `schedmate diagnose`."
        )
    return found


def _mistyped(header: list[str], columns: dict[str, str], source: str) -> list[str]:
    """Columns that are not read, and are called almost like one that is missing."""
    missing = [name for name in load("logparse/triage/columns.yaml") if name not in columns]
    return [
        f"column {clean(column, 40)!r} of {source} is not read{hint}"
        for column in header
        if column and column not in columns.values() and (hint := did_you_mean(column, missing))
    ]


def _target(
    index: int, values: dict[str, str], source: str, line: int, warnings: list[str]
) -> Target:
    def amount(name: str, parse: type[float] | None) -> float | None:
        text = values.get(name, "")
        if not text:
            return None
        try:
            number = parse_duration(text) if parse is None else parse(text)
            if 0 <= number <= LONGEST_S:
                return number
        except (ValueError, UsageError):
            pass
        warnings.append(f"line {line} of {source}: {name} {clean(text, 40)!r} is not understood.")
        return None

    name = values["log"]
    if is_object(source) and not is_object(name):  # relative to the list
        name = f"{source.rpartition('/')[0]}/{name}"
    objects = (name,) if is_object(name) else ()
    return Target(
        index,
        values.get("job_id") or values["log"],
        Path(name) if objects else Path(source).parent / name,
        objects=objects,
        duration_s=amount("duration", None),
        gpus=amount("gpus", float),
        nodes=expand_hosts(values.get("nodes", "")),
        workload=values.get("workload") or None,
        state=values.get("state") or None,
        user=values.get("user") or None,
    )


def expand_hosts(text: str) -> tuple[str, ...]:
    """Slurm's `gpu[01-03,07],login1` as names; a plain number of nodes names none.

    Parts that are not names are left out; semicolons and spaces separate names, too.
    """
    if text.strip().isdigit():
        return ()
    names: dict[str, None] = {}
    for part in _LISTED.findall(text):
        with suppress(ValueError):  # one that makes no sense; the others do
            names |= dict.fromkeys(islice(expand_hostlist(part, LARGEST), MAX_NODES))
    return tuple(names)[:MAX_NODES]
