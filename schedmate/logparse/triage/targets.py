"""Finds the jobs of a batch: below a directory, by a glob, in object storage, or in a list.

A `Target` is one job: its log and what is known about it. A list is a CSV file with the path of
each job's log and its accounting data. Logs in object storage are copied to where they can be read
like files.
"""

from __future__ import annotations

import csv
import glob
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from stat import S_ISREG
from typing import Literal

from schedmate.base.data import LONGEST_S, load
from schedmate.base.errors import InputError, UsageError, did_you_mean, similar_file
from schedmate.base.inputs import expand_hostlist, parse_duration
from schedmate.base.objects import (
    Entry,
    copy_object,
    is_object,
    matching_objects,
    objects_below,
    open_object,
    url_of,
)
from schedmate.base.reading import MOST_RECORDS, bounded_rows, open_binary, open_text
from schedmate.base.terminal import clean, counted
from schedmate.logparse.experiments import wandb_output
from schedmate.logparse.numbers import bounded_time
from schedmate.logparse.reading import Log, LogFile, open_log
from schedmate.logparse.reading.folder import Folder, FolderFiles, LogError, is_of_tracker
from schedmate.logparse.reading.lines import origin_of_file
from schedmate.logparse.reading.log import is_text, open_files
from schedmate.logparse.reading.storage import store_stream
from schedmate.logparse.triage.recognise import why_no_log
from schedmate.logparse.triage.runs import ERROR_FILE, Run, find_runs

TRACKER = "wandb"
"""The directory of an experiment tracker's own records."""
DEEP = 2
"""Parts of the path of a log in a sub-directory of the directory that is triaged."""
MOST_NAMED = 5
"""Limit for the sub-directories that a note names."""

WHY_ASKED = "as --one-job-per-folder asks"

JobUnit = Literal["run", "file", "folder"]
"""The files of one job: the ranks of a run, by names and contents; a single file; a folder."""


def find_targets(
    source: str, *, job: JobUnit = "run", recursive: bool = False, follow_links: bool = False
) -> Batch:
    """The jobs of a directory, a glob or a CSV file.

    In a directory, its files and those of its sub-directories are used, with `recursive` also those
    further below; without it they are used if everything below a sub-directory is one job. Files
    are one job if they are the ranks of one run (`runs.py`), or as `job` says; in object storage
    each is one. Raises `InputError` if there is nothing to triage.
    """
    if is_object(source):
        return find_objects(source, per_folder=job == "folder", recursive=recursive)
    path = Path(source)
    try:
        if path.is_dir():
            return _batch_of_folder(path, source, job, follow_links, recursive=recursive)
        if path.exists():
            if recursive or job != "run":
                raise UsageError(
                    "--recursive, --one-job-per-file and --one-job-per-folder are for directories "
                    f"and globs; {source} is a list, in which each row is a job."
                )
            return read_job_list(path, follow_links=follow_links)
        if glob.has_magic(source):
            return _batch_of_glob(source, job, follow_links, recursive=recursive)
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}; check its rights.") from None
    what = "; give a directory of logs, a quoted glob or a CSV list of jobs."
    raise InputError(f"there is no {source}{similar_file(source) or what}")


def _batch_of_folder(
    root: Path, source: str, job: JobUnit, follow_links: bool, *, recursive: bool
) -> Batch:
    folder = Folder(root, follow_links)
    listing = folder.files()
    paths, left_out = _logs_among(listing.paths, folder)
    warnings = [*listing.notes, *left_out]
    if job == "folder":
        jobs = _folders(paths, root, recursive=recursive)
    else:
        jobs, notes = _runs_among(paths, folder, job)
        warnings += notes
        if not recursive:
            jobs, deep = _shallow(jobs, root)
            warnings += deep
    return _batch(source, folder, jobs, _count_below(paths, root), warnings, job)


def _batch_of_glob(source: str, job: JobUnit, follow_links: bool, *, recursive: bool) -> Batch:
    """The files of a glob; a matching directory stands for the files below it."""
    fixed = source[: next(i for i, letter in enumerate(source) if letter in "*?[")]
    root = Path(fixed[: fixed.rfind("/") + 1] or ".")
    folder = Folder(root, follow_links)
    listing = FolderFiles(folder)
    matches = _matches(source, root, fixed)
    for path in matches:
        listing.take(path)
    listing.sort_out_links()
    paths, notes = _logs_among(listing.paths, folder, named=True)
    if job == "folder":
        jobs = _folders(paths, root, recursive=recursive)
    else:
        jobs, more = _runs_among(paths, folder, job)
        notes += more
    folders = {path for path in matches if path.is_dir()}
    holds = _count_below(paths, root)
    for home in list(holds):  # a file that was matched stands for itself
        if not folders.intersection([home, *home.parents]):
            del holds[home]
    return _batch(source, folder, jobs, holds, [*listing.notes, *notes], job)


def _matches(source: str, root: Path, fixed: str) -> list[Path]:
    if "**" not in source:
        return [Path(name) for name in sorted(glob.glob(source))]  # noqa: PTH207 - absolute ones
    pattern = source[fixed.rfind("/") + 1 :]
    try:  # unlike `glob` it does not go round in circles of links
        matches = sorted(root.glob(pattern))
    except (ValueError, NotImplementedError) as error:
        raise InputError(f"{source} is no glob: {error}; correct it.") from None
    hidden = "/." in f"/{pattern}"
    return [
        path
        for path in matches
        if hidden or not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]


def _logs_among(
    paths: list[Path], folder: Folder, *, named: bool = False
) -> tuple[list[Path], list[str]]:
    """The logs among files, and a note that says which others were left out, and why.

    Records of an experiment tracker are left out if the jobs' own logs are beside them, unless the
    tracker's directory was `named`; so are files that by their content are no logs (`recognise.py`)
    and, in sub-directories, binary files and files with the names of other formats.
    """
    logs = [path for path in paths if not is_of_tracker(path)]
    if not named:
        logs = [path for path in logs if TRACKER not in path.parts[:-1]] or logs
    own = {path.parent for path in logs if may_be_log(path)}
    kept: list[Path] = []
    skipped: dict[Path, str] = {}
    for path in logs:
        inside = path.parent != folder.root
        if path.name == ERROR_FILE:
            why = None
        elif inside and not may_be_log(path) and path.parent in own:
            why = "named as another format beside logs"
        else:
            why = _why_no_log(path, folder, inside=inside, named=named)
        if why is None:
            kept.append(path)
        else:
            skipped[path] = why
    if not kept and all(why in (UNREADABLE, "") for why in skipped.values()):
        return logs, []
    if not skipped:
        return kept, []
    some = [f"{path.relative_to(folder.root)} ({why})" for path, why in skipped.items()]
    names = ", ".join(some[:MOST_NAMED]) + (", ..." if len(some) > MOST_NAMED else "")
    what = "no log" if len(some) == 1 else "no logs"
    return kept, [f"{counted(len(some), 'file')} of {folder.root} left out, {what}: {names}."]


UNREADABLE = "not text"


def _why_no_log(path: Path, folder: Folder, *, inside: bool, named: bool) -> str | None:
    """Why a file is left out; None for a log, and for one whose own error is to be reported.

    Files that a glob names are what the user says they are.
    """
    try:
        with open_files(str(path), [path], folder) as log:
            if named or not log.files:
                return None
            return why_no_log(log.files[0], named_otherwise=not may_be_log(path))
    except LogError:
        return UNREADABLE if inside else None


def _runs_among(paths: list[Path], folder: Folder, job: JobUnit) -> tuple[list[Run], list[str]]:
    if job == "file":
        return [Run([path]) for path in paths], []
    return find_runs(paths, folder)


def _folders(paths: Iterable[Path], root: Path, *, recursive: bool) -> list[Run]:
    """One job for each folder; without `recursive` for everything below a sub-directory."""
    together: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        parts = path.relative_to(root).parts
        home = path.parent if recursive or len(parts) < DEEP else root / parts[0]
        together[home].append(path)
    return [Run(files, WHY_ASKED if len(files) > 1 else "") for files in together.values()]


def _shallow(jobs: list[Run], root: Path) -> tuple[list[Run], list[str]]:
    """The jobs without those deep below a sub-directory that contains several of them."""
    homes: defaultdict[str, list[Run]] = defaultdict(list)
    for run in jobs:
        homes[run.files[0].relative_to(root).parts[0]].append(run)
    shallow: list[Run] = []
    deep: dict[str, int] = {}
    for home, its in homes.items():
        near = [run for run in its if len(run.files[0].relative_to(root).parts) <= DEEP]
        shallow += its if len(its) == 1 else near
        if len(its) > 1 and len(its) > len(near):
            deep[home] = sum(len(run.files) for run in its if run not in near)
    if not deep:
        return shallow, []
    names = ", ".join(list(deep)[:MOST_NAMED]) + (", ..." if len(deep) > MOST_NAMED else "")
    return shallow, [
        f"{counted(sum(deep.values()), 'log')} further below ({names}) not read; give --recursive."
    ]


def _batch(
    source: str,
    folder: Folder,
    jobs: list[Run],
    holds: Counter[Path],
    warnings: list[str],
    job: JobUnit,
) -> Batch:
    """The jobs with their names. `holds` is the number of logs below each folder."""
    if not jobs:
        left = f" ({warnings[0]})" if warnings else ""
        raise InputError(
            f"{source} holds no logs; each file or sub-directory there is one job.{left}"
        )
    logs = [_log_of(run, folder.root, holds) for run in jobs]
    ordered = sorted(zip(logs, jobs, strict=True), key=lambda pair: pair[0])
    logs = [log for log, _ in ordered]
    names = [path.name.removesuffix(".gz").removesuffix(".zst") for path in logs]
    stems = [Path(name).stem or name for name in names]
    ids = stems if len(set(stems)) == len(stems) else [str(path) for path in logs]
    if job == "folder":
        homes = [_home(run) for _, run in ordered]
        names = [home.resolve().name for home in homes]
        ids = names if len(set(names)) == len(names) else [str(home) for home in homes]
    targets = [
        Target(i, ids[i], log, tuple(run.files), folder, run.why or None)
        for i, (log, run) in enumerate(ordered)
    ]
    named = [_named(target) for target in targets]
    if len({target.job_id for target in named}) == len(named):
        targets = named
    split = _split(ordered, folder.root) if job == "run" else []
    return Batch(source, targets, [*warnings, *split])


_RAY_JOB = re.compile(r"(?:^|/)job-driver-(\w+)\.log$")


def _named(target: Target) -> Target:
    """A job by the name that a tracker or launcher gave it in the layout of its files.

    W&B's run also says whose it is and on how many GPUs it ran.
    """
    ray = _RAY_JOB.search(target.files[0].as_posix())
    if ray is not None:  # below /tmp/ray/session_*/logs
        return replace(target, job_id=ray[1])
    tracked = wandb_output(target.files[0])
    if tracked is None:
        return target
    return replace(
        target,
        job_id=tracked.name,
        gpus=tracked.gpus,
        user=tracked.user,
        workload=PurePath(tracked.command.split()[1]).name if tracked.command else None,
    )


def _home(run: Run) -> Path:
    """The folder that contains all files of a job."""
    return Path(os.path.commonpath([path.parent for path in run.files]))


def _log_of(run: Run, root: Path, holds: Counter[Path]) -> Path:
    """The path of a job: the largest folder with only its files, else its first file.

    `holds` is the number of logs below each folder.
    """
    whole = run.files[0]
    below = _count_below(run.files, root)
    for home in run.files[0].parents:
        if home == root or home not in holds or holds[home] != below[home]:
            break
        whole = home
    return whole if below[whole] == len(run.files) or whole == run.files[0] else run.files[0]


def _count_below(paths: Iterable[Path], root: Path) -> Counter[Path]:
    return Counter(
        home for path in paths for home in path.parents if home != root and root in home.parents
    )


def _split(jobs: list[tuple[Path, Run]], root: Path) -> list[str]:
    """A note on sub-directories whose logs are not taken as one job."""
    homes: defaultdict[str, int] = defaultdict(int)
    for _, run in jobs:
        parts = run.files[0].relative_to(root).parts
        if len(parts) > 1:
            homes[parts[0]] += 1
    several = {home: count for home, count in homes.items() if count > 1}
    if not several:
        return []
    names = ", ".join(f"{home} ({count})" for home, count in list(several.items())[:MOST_NAMED])
    names += ", ..." if len(several) > MOST_NAMED else ""
    if len(several) > 1:
        many = f"by their names and contents, these sub-directories each hold several runs: {names}"
        return [f"{many}; --one-job-per-folder makes each of them one job."]
    many = f"by their names and contents, the logs of a sub-directory are several runs: {names}"
    return [f"{many}; --one-job-per-folder makes them one job."]


# The log of a job in object storage, copied to where it can be read like a file.


def open_objects(name: str, urls: Sequence[str]) -> Log:
    """The log of one job in these objects. Raises `LogError` when none can be read as text."""
    log = Log(name, [])
    reasons = []
    try:
        for url in urls:
            try:
                with open_object(url) as stream:
                    storage, warning = store_stream(stream, url)
            except InputError as error:
                reasons.append(str(error))
                continue
            key = Path(url.partition("://")[2])
            origin = origin_of_file(key, key.parent.parent)
            file = LogFile(url, storage, None, origin.rank, origin.node)
            if not file.size or not is_text(file):
                why = "it is not text" if file.size else "it is empty"
                file.close()
                reasons.append(f"{url} cannot be read as a log: {warning or why}.")
                continue
            log.files.append(file)
            log.warnings += [warning] if warning else []
    except BaseException:
        log.close()
        raise
    if not log.files:
        raise LogError(reasons[0])
    log.warnings += reasons
    log.files.sort(key=lambda file: (file.rank is None, file.rank or 0, file.name))
    return log


# The source of a batch: a directory, a glob, or a list of jobs with their accounting data.


LIST_HEAD = 4_096
"""Bytes at the beginning of a list that show whether it is text."""
MAX_NODES = 20_000
"""Limit for the nodes of one job."""

LARGEST_HOSTLIST = 10**9
"""Limit for the nodes of one name with brackets; the first `MAX_NODES` are used."""

_HOST_NAMES = re.compile(r"(?:[^,;\s\[\]]++|\[[^\[\]]*+\])++")


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
    ends_at: float | None = None
    """When the scheduler ends a job that runs [s since epoch], as `schedmate watch` needs."""

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
            statuses = [(path, path.stat()) for path in self.files or [self.log]]
        except OSError:
            return None
        if not all(S_ISREG(status.st_mode) for _, status in statuses):
            return None
        return "\0".join(f"{p}\0{s.st_size} {s.st_mtime_ns} {s.st_ino}" for p, s in statuses)

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


def read_job_list(path: Path, *, follow_links: bool = False, at: str | None = None) -> Batch:
    """The jobs of a CSV file with a header and at least the column `log`.

    See `columns.yaml` for the other columns. `at` is the URL that the file was copied from. Raises
    `InputError` if it lists no jobs.
    """
    batch = Batch(at or str(path), [])
    with open_binary(path) as raw:
        if b"\0" in raw.read(LIST_HEAD):
            raise InputError(
                f"{batch.source} is not text; a job list is a CSV file, which is not packed. "
                "For one log use `schedmate diagnose`."
            )
    with open_text(path, encoding="utf-8-sig", errors="replace", newline="") as stream:
        try:
            header = stream.readline()
            stream.seek(0)
            rows = csv.DictReader(stream, delimiter=max(",;\t|", key=header.count))
            names = list(rows.fieldnames or ())
            columns = _columns(names, path)
            batch.warnings += _mistyped(names, columns, batch.source)
            for row in bounded_rows(rows, path, MOST_RECORDS):
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
    spellings_of = load("logparse/triage/columns.yaml")
    columns: dict[str, str] = {}
    for name, spellings in spellings_of.items():
        for column in header:
            if name not in columns and re.sub(r"[^a-z]", "", (column or "").lower()) in spellings:
                columns[name] = column
    if "log" not in columns:
        shown = clean(", ".join(map(str, header)), 200) or "none"
        raise InputError(
            f"{path} has no column `log` (it has: {shown}); a job list is a CSV file with a header "
            "and a column with the path of each job's log. For one log use `schedmate diagnose`."
        )
    return columns


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
        ends_at=_moment(values.get("ends", "")),
    )


def _moment(text: str) -> float | None:
    """A time in ISO 8601, local without a zone, or in seconds since the epoch."""
    with suppress(ValueError):
        return bounded_time(float(text))
    with suppress(ValueError, OverflowError):
        return bounded_time(datetime.fromisoformat(text).timestamp())
    return None


def expand_hosts(text: str) -> tuple[str, ...]:
    """Slurm's `gpu[01-03,07],login1` as names; a plain number of nodes names none.

    Parts that are not names are left out; semicolons and spaces separate names, too.
    """
    if text.strip().isdigit():
        return ()
    names: dict[str, None] = {}
    for part in _HOST_NAMES.findall(text):
        with suppress(ValueError):  # one that makes no sense; the others do
            names |= dict.fromkeys(islice(expand_hostlist(part, LARGEST_HOSTLIST), MAX_NODES))
    return tuple(names)[:MAX_NODES]


# The jobs of a batch in object storage, and their logs.


DEEP_OBJECT = 2
"""Parts of a log's name that may follow the prefix: a folder and the file."""


def find_objects(source: str, *, per_folder: bool, recursive: bool) -> Batch:
    """The jobs below a prefix, of a glob, or of a CSV file in object storage.

    Each object is a job, or with `per_folder` each folder. Without `recursive`, only logs directly
    below the prefix and in its folders count. Raises `InputError` if there are none.
    """
    if glob.has_magic(source):
        entries: list[Entry] | None = matching_objects(source)
        root = source[: next(i for i, letter in enumerate(source) if letter in "*?[")]
        root = root[: root.rfind("/") + 1]
        recursive = True
    else:
        entries = objects_below(source)
        root = source.rstrip("/") + "/"
    if entries is None:
        if recursive or per_folder:
            raise UsageError(
                "--recursive and --one-job-per-folder are for prefixes and globs; "
                f"{source} is a list, in which each row is a job."
            )
        with tempfile.TemporaryDirectory(prefix="schedmate-") as folder:
            copied = Path(folder) / "jobs.csv"
            copy_object(source, copied)
            return read_job_list(copied, at=source)
    logs, warnings = _object_logs(entries, root, recursive=recursive)
    if not logs:
        raise InputError(f"{source} holds no logs; each object there is one job.")
    return Batch(
        source, _object_targets(logs, root, per_folder=per_folder, deep=recursive), warnings
    )


def _object_logs(
    entries: list[Entry], root: str, *, recursive: bool
) -> tuple[list[Entry], list[str]]:
    logs, skipped, deep = [], 0, 0
    for entry in entries:
        parts = PurePosixPath(entry.url.removeprefix(root)).parts
        if any(part.startswith(".") for part in parts):
            continue
        if not may_be_log(PurePosixPath(entry.url)):
            skipped += 1
        elif len(parts) > DEEP_OBJECT and not recursive:
            deep += 1
        else:
            logs.append(entry)
    notes = []
    if skipped:
        notes.append(f"{counted(skipped, 'object')} of {root} left out: by their names not logs.")
    if deep:
        notes.append(f"{counted(deep, 'log')} further below not read; give --recursive.")
    return logs, notes


def _object_targets(logs: list[Entry], root: str, *, per_folder: bool, deep: bool) -> list[Target]:
    jobs: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in logs:
        name = entry.url
        if per_folder:
            parts = PurePosixPath(entry.url.removeprefix(root)).parts
            home = parts[:-1] if deep else parts[:1][: len(parts) - 1]
            name = root + "/".join(home)
        jobs[name].append(entry)
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
            objects=tuple(entry.url for entry in entries),
            stamps=tuple(
                f"{entry.size} {entry.stamp}" for entry in entries if entry.stamp is not None
            ),
            merged="as --one-job-per-folder asks" if len(entries) > 1 else None,
        )
        for index, (name, entries) in enumerate(jobs.items())
    ]
