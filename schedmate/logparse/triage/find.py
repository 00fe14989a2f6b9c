"""Finds the jobs of a batch: below a directory, by a glob, or in a list."""

from __future__ import annotations

import glob
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from schedmate.errors import InputError, UsageError, similar_file
from schedmate.logparse.reading.inside import Folder, Found, LogError
from schedmate.logparse.reading.log import open_files
from schedmate.logparse.reading.trackers import of_tracker
from schedmate.logparse.triage.runs import ERRORS, Run, runs
from schedmate.logparse.triage.targets import Batch, Target, listed, may_be_log
from schedmate.scale.objects import is_object
from schedmate.terminal import counted

TRACKER = "wandb"
"""The directory of an experiment tracker's own records."""
DEEP = 2
"""Parts of the path of a log in a sub-directory of the directory that is triaged."""
NAMED = 5
"""Limit for the sub-directories that a note names."""

ASKED = "as --one-job-per-folder asks"

Job = Literal["run", "file", "folder"]
"""The files of one job: the ranks of a run, by names and contents; a single file; a folder."""


def find_targets(
    source: str, *, job: Job = "run", recursive: bool = False, follow_links: bool = False
) -> Batch:
    """The jobs of a directory, a glob or a CSV file.

    In a directory, its files and those of its sub-directories are used, with `recursive` also those
    further below; without it they are used if everything below a sub-directory is one job. Files
    are one job if they are the ranks of one run (`runs.py`), or as `job` says; in object storage
    each is one. Raises `InputError` if there is nothing to triage.
    """
    if is_object(source):
        from schedmate.logparse.triage.bucket import find_objects

        return find_objects(source, per_folder=job == "folder", recursive=recursive)
    path = Path(source)
    try:
        if path.is_dir():
            return _below(path, source, job, follow_links, recursive=recursive)
        if path.exists():
            if recursive or job != "run":
                raise UsageError(
                    "--recursive, --one-job-per-file and --one-job-per-folder are for directories "
                    f"and globs; {source} is a list, in which each row is a job."
                )
            return listed(path, follow_links=follow_links)
        if glob.has_magic(source):
            return _matching(source, job, follow_links, recursive=recursive)
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}; check its rights.") from None
    what = "; give a directory of logs, a quoted glob or a CSV list of jobs."
    raise InputError(f"there is no {source}{similar_file(source) or what}")


def _below(root: Path, source: str, job: Job, follow_links: bool, *, recursive: bool) -> Batch:
    folder = Folder(root, follow_links)
    found = folder.files()
    paths, left_out = _logs(found.paths, folder)
    warnings = [*found.notes, *left_out]
    if job == "folder":
        jobs = _folders(paths, root, recursive=recursive)
    else:
        jobs, notes = _runs(paths, folder, job)
        warnings += notes
        if not recursive:
            jobs, deep = _shallow(jobs, root)
            warnings += deep
    return _batch(source, folder, jobs, _count_below(paths, root), warnings, job)


def _matching(source: str, job: Job, follow_links: bool, *, recursive: bool) -> Batch:
    """The files of a glob; a matching directory stands for the files below it."""
    fixed = source[: next(i for i, letter in enumerate(source) if letter in "*?[")]
    root = Path(fixed[: fixed.rfind("/") + 1] or ".")
    folder = Folder(root, follow_links)
    found = Found(folder)
    matches = _matches(source, root, fixed)
    for path in matches:
        found.take(path)
    found.sort_out_links()
    paths, notes = _logs(found.paths, folder, named=True)
    if job == "folder":
        jobs = _folders(paths, root, recursive=recursive)
    else:
        jobs, more = _runs(paths, folder, job)
        notes += more
    folders = {path for path in matches if path.is_dir()}
    holds = _count_below(paths, root)
    for home in list(holds):  # a file that was matched stands for itself
        if not folders.intersection([home, *home.parents]):
            del holds[home]
    return _batch(source, folder, jobs, holds, [*found.notes, *notes], job)


def _matches(source: str, root: Path, fixed: str) -> list[Path]:
    if "**" not in source:
        return [Path(name) for name in sorted(glob.glob(source))]  # noqa: PTH207 - absolute ones
    pattern = source[fixed.rfind("/") + 1 :]
    try:  # unlike `glob` it does not go round in circles of links
        found = sorted(root.glob(pattern))
    except (ValueError, NotImplementedError) as error:
        raise InputError(f"{source} is no glob: {error}; correct it.") from None
    hidden = "/." in f"/{pattern}"
    return [
        path
        for path in found
        if hidden or not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]


def _logs(
    paths: list[Path], folder: Folder, *, named: bool = False
) -> tuple[list[Path], list[str]]:
    """The logs among files, and a note on other files in sub-directories.

    Records of an experiment tracker are left out if the jobs' own logs are beside them, unless the
    tracker's directory was `named`; so are, in sub-directories, binary files and files with the
    names of other formats.
    """
    logs = [path for path in paths if not of_tracker(path)]
    if not named:
        logs = [path for path in logs if TRACKER not in path.parts[:-1]] or logs
    own = {path.parent for path in logs if may_be_log(path)}
    kept, other = [], 0
    for path in logs:
        inside = path.parent != folder.root and path.name != ERRORS
        beside = inside and not may_be_log(path) and path.parent in own
        if beside or (inside and not _is_readable(path, folder)):
            other += 1
        else:
            kept.append(path)
    if not kept:
        return logs, []
    note = (
        f"{counted(other, 'file')} in sub-directories of {folder.root} left out: "
        f"{'not a log' if other == 1 else 'not logs'}."
    )
    return kept, [note] if other else []


def _is_readable(path: Path, folder: Folder) -> bool:
    try:
        open_files(str(path), [path], folder).close()
    except LogError:
        return False
    return True


def _runs(paths: list[Path], folder: Folder, job: Job) -> tuple[list[Run], list[str]]:
    if job == "file":
        return [Run([path]) for path in paths], []
    return runs(paths, folder)


def _folders(paths: Iterable[Path], root: Path, *, recursive: bool) -> list[Run]:
    """One job for each folder; without `recursive` for everything below a sub-directory."""
    together: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        parts = path.relative_to(root).parts
        home = path.parent if recursive or len(parts) < DEEP else root / parts[0]
        together[home].append(path)
    return [Run(files, ASKED if len(files) > 1 else "") for files in together.values()]


def _shallow(jobs: list[Run], root: Path) -> tuple[list[Run], list[str]]:
    """The jobs without those deep below a sub-directory that contains several of them."""
    homes: defaultdict[str, list[Run]] = defaultdict(list)
    for run in jobs:
        homes[run.files[0].relative_to(root).parts[0]].append(run)
    kept: list[Run] = []
    deep: dict[str, int] = {}
    for home, its in homes.items():
        near = [run for run in its if len(run.files[0].relative_to(root).parts) <= DEEP]
        kept += its if len(its) == 1 else near
        if len(its) > 1 and len(its) > len(near):
            deep[home] = sum(len(run.files) for run in its if run not in near)
    if not deep:
        return kept, []
    names = ", ".join(list(deep)[:NAMED]) + (", ..." if len(deep) > NAMED else "")
    return kept, [
        f"{counted(sum(deep.values()), 'log')} further below ({names}) not read; give --recursive."
    ]


def _batch(
    source: str,
    folder: Folder,
    jobs: list[Run],
    holds: Counter[Path],
    warnings: list[str],
    job: Job,
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
    split = _split(ordered, folder.root) if job == "run" else []
    return Batch(source, targets, [*warnings, *split])


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
    names = ", ".join(f"{home} ({count})" for home, count in list(several.items())[:NAMED])
    names += ", ..." if len(several) > NAMED else ""
    if len(several) > 1:
        many = f"by their names and contents, these sub-directories each hold several runs: {names}"
        return [f"{many}; --one-job-per-folder makes each of them one job."]
    many = f"by their names and contents, the logs of a sub-directory are several runs: {names}"
    return [f"{many}; --one-job-per-folder makes them one job."]
