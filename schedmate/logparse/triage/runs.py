"""Which files of a directory are the ranks of one run, by names and contents.

Names alone are not enough: a folder of collected logs has numbers in all of its names. Files are
taken as one run only if their names differ by ranks alone and their contents agree. The reason is
recorded, as is the reason for files that are not taken as one run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from schedmate.logparse.reading.inside import Folder
from schedmate.logparse.triage.contents import Contents, agree, contents_of, differ
from schedmate.logparse.triage.names import Name, name_of

ERRORS = "error.json"
"""The file that torchelastic writes beside the logs of a rank."""
TRIED = 50
"""Limit for the runs with similar names that a log is compared with."""


@dataclass
class Run:
    """The files of one job. `why` is the reason to take them as one; empty for a single file."""

    files: list[Path]
    why: str = ""
    name: Name | None = None
    contents: Contents | None = None
    members: set[tuple[object, ...]] = field(default_factory=set)


def runs(paths: Iterable[Path], folder: Folder) -> tuple[list[Run], list[str]]:
    """The jobs of the files in a directory, and notes on likely ranks that do not agree."""
    alike: dict[str, list[tuple[Path, Name]]] = {}
    errors: list[Path] = []
    for path in paths:
        if path.name == ERRORS:
            errors.append(path)
            continue
        name = name_of(path.relative_to(folder.root))
        alike.setdefault(name.shape, []).append((path, name))
    found: list[Run] = []
    notes: list[str] = []
    for shape, members in alike.items():
        if len(members) == 1:
            found.append(Run([members[0][0]], name=members[0][1]))
            continue
        jobs = _grouped(members, folder)
        found += jobs
        if len(jobs) > 1 and members[0][1].sure:
            notes.append(
                f"{len(members):,} files of {folder.root} named like {shape} have the names of "
                f"ranks; what they say makes them {len(jobs):,} jobs."
            )
    _add_errors(found, errors)
    return sorted(found, key=lambda run: run.files[0]), notes


def _grouped(members: list[tuple[Path, Name]], folder: Folder) -> list[Run]:
    """Files whose names differ by numbers alone, grouped into runs by their contents."""
    jobs: list[Run] = []
    members.sort(key=lambda member: (member[1].numbers, member[1].attempts, member[1].stream))
    for path, name in members:
        contents = contents_of(path, folder, whole=name.sure or bool(name.stream))
        for run in jobs[-TRIED:]:
            why = _why_one(run, name, contents)
            if why is not None:
                run.files.append(path)
                run.members.add(_key(name))
                run.why = run.why or why
                break
        else:
            jobs.append(Run([path], "", name, contents, {_key(name)}))
    return jobs


def _key(name: Name) -> tuple[object, ...]:
    return name.numbers, name.attempts, name.stream


def _why_one(run: Run, name: Name, contents: Contents) -> str | None:
    """The reason why a file belongs to a run, or None."""
    assert run.name is not None
    assert run.contents is not None
    if _key(name) in run.members:
        return None
    same_rank = name.numbers == run.name.numbers
    attempts = name.attempts != run.name.attempts
    if differ(run.contents, contents, attempts=attempts, same_rank=same_rank) is not None:
        return None
    if same_rank and not attempts:
        return "the two outputs of one process"
    reasons, sure = agree(run.contents, contents)
    if not (sure or (name.sure and reasons)):
        return None
    what = "names that differ by rank" if name.sure else "names that differ by number"
    return f"{what}, {' and '.join(reasons)}"


def _add_errors(found: list[Run], errors: list[Path]) -> None:
    """Add the error file of a rank to the files beside it, if those are of one run."""
    for path in errors:
        beside = [run for run in found if any(file.parent == path.parent for file in run.files)]
        if len(beside) == 1:
            beside[0].files.append(path)
        else:
            found.append(Run([path]))
