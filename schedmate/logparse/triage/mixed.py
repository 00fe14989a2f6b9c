"""Whether the logs of a directory that is read as one job belong to several.

Logs of one program share their lines whether they are of sixty ranks or of sixty runs, so
similarity alone shows nothing. Without ranks in their names or an identifier that both logs state,
job numbers in their names and different last steps indicate several jobs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.inside import Folder
from schedmate.logparse.signs import last_sign
from schedmate.logparse.triage.contents import Contents, agree, contents_of, differ
from schedmate.logparse.triage.names import Name, name_of
from schedmate.logparse.triage.runs import Run, runs
from schedmate.terminal import counted

COMPARED = 50
"""Limit for the runs that are compared with each other."""
TAIL = 1 << 16
"""Range above the end of a log in which its last step is searched [bytes]."""
STEPS, SHARE = 10, 0.1
"""The last steps of one run's ranks differ by less than this, or by less than this share."""

_JOB = re.compile(
    r"(?<![a-z])(?:job|slurm|run|exp(?:eriment)?|trial|sweep|seed)[-_.]?(\d+(?:_\d+)?)",
    re.IGNORECASE,
)
_JOB_ID = re.compile(r"(?!(?:nid|node|host))(?:\D*[-_.])?(\d{4,12}(?:_\d+)?)\.\D+$", re.IGNORECASE)
_COUNT = re.compile(r"(\d{1,12})(?:\s?/\s?\d+)?")


def mixed(path: Path, log: Log, *, follow_links: bool = False) -> str | None:
    """A warning that the files of a directory are probably of several jobs, or None.

    They are if two of them contradict each other, or if neither names nor contents connect them.
    """
    folder = Folder(path, follow_links)
    paths = [file.path for file in log.files if file.path is not None]
    found, _ = runs(paths, folder) if len(paths) > 1 else ([], [])
    if len(found) < 2:
        return None
    why = _why_several(found[:COMPARED], folder, log.files)
    if why is None:
        return None
    return (
        f"the {counted(len(paths), 'log')} of {path} look like those of separate jobs, not the "
        f"ranks of one ({why}), and are read as one job all the same; `schedmate triage {path}` "
        "diagnoses each job by itself."
    )


def _why_several(found: list[Run], folder: Folder, files: Sequence[LogFile]) -> str | None:
    every: list[tuple[Path, Name, Contents]] = [
        (path, name_of(path.relative_to(folder.root)), contents_of(path, folder))
        for path in (run.files[0] for run in found)
    ]
    for (path, name, contents), (other, its_name, its_contents) in combinations(every, 2):
        attempts = name.attempts != its_name.attempts
        # beside the logs of ranks may lie one of the launcher, which speaks of a rank too
        same_rank = name.shape != its_name.shape or name.numbers == its_name.numbers
        why = differ(contents, its_contents, attempts=attempts, same_rank=same_rank)
        if why is not None:
            return f"of {path.name} and {other.name}: {why}"
    first, *others = every
    if any(name.sure for _, name, _ in every):
        return None
    sure = True
    for path, _, contents in others:
        reasons, same = agree(first[2], contents)
        sure = sure and same
        if not reasons:
            return f"{first[0].name} and {path.name} have nothing in common"
    if sure:
        return None
    paths = [path for path, _, _ in every]
    if _by_rank(every):
        return None
    return _by_numbers(paths) or _by_steps(paths, files)


def _by_rank(every: Sequence[tuple[Path, Name, Contents]]) -> bool:
    """Whether the names differ only by their last number, the rank that each log states."""
    names = [name for _, name, _ in every]
    return (
        len({(name.shape, name.numbers[:-1]) for name in names}) == 1
        and len({name.numbers for name in names}) == len(names)
        and all(name.numbers and name.numbers[-1] == contents.rank for _, name, contents in every)
    )


def _by_numbers(paths: Sequence[Path]) -> str | None:
    """The reason to see several jobs, by the job numbers in file names, or None."""
    numbers = []
    for path in paths:
        match = _JOB.search(path.name) or _JOB_ID.match(path.name)
        if match is None:
            return None
        numbers.append(match[1])
    if len({*numbers}) < len(numbers):
        return None
    return f"their names are those of jobs, such as {paths[0].name} and {paths[-1].name}"


def _by_steps(paths: Sequence[Path], files: Sequence[LogFile]) -> str | None:
    """The reason to see several jobs, by the steps at which the files end, or None."""
    by_path = {file.path: file for file in files}
    last = {path.name: count for path in paths if (count := _last_count(by_path.get(path)))}
    if len(last) < 2:
        return None
    least, most = min(last, key=last.__getitem__), max(last, key=last.__getitem__)
    if last[most] - last[least] <= max(STEPS, SHARE * last[most]):
        return None
    return f"{least} ends at step {last[least]:,}, {most} at step {last[most]:,}"


def _last_count(file: LogFile | None) -> int | None:
    """The count of the last step in a log; None without one, or if counts are within epochs."""
    if file is None:
        return None
    sign = last_sign("progress", file, file.align(max(0, file.size - TAIL)), file.size)
    file.close()
    match = _COUNT.fullmatch(sign.groups.get("at", "")) if sign is not None else None
    return int(match[1]) if match is not None else None
