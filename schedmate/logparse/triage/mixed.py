"""Whether the logs of a directory that is read as one job look like those of several."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from schedmate.logparse.reading import Log
from schedmate.logparse.reading.inside import Folder
from schedmate.logparse.triage.contents import Contents, agree, contents_of, differ
from schedmate.logparse.triage.names import Name, name_of
from schedmate.logparse.triage.runs import Run, runs
from schedmate.terminal import counted

COMPARED = 50
"""Most runs that are compared with each other."""


def mixed(path: Path, log: Log, *, follow_links: bool = False) -> str | None:
    """A warning that the files of a directory are hardly the ranks of one run, or None.

    They are not where two of them contradict each other, or where neither names nor what they say
    has them belong together.
    """
    folder = Folder(path, follow_links)
    paths = [file.path for file in log.files if file.path is not None]
    found, _ = runs(paths, folder) if len(paths) > 1 else ([], [])
    if len(found) < 2:
        return None
    why = _why_several(found[:COMPARED], folder)
    if why is None:
        return None
    return (
        f"{counted(len(paths), 'log')} of {path} do not look like the ranks of one run ({why}), "
        f"and are read as one job all the same; schedmate triage {path} reads each job for itself."
    )


def _why_several(found: list[Run], folder: Folder) -> str | None:
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
    for path, _, contents in others:
        if not agree(first[2], contents)[0]:
            return f"{first[0].name} and {path.name} have nothing in common"
    return None
