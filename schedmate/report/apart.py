"""Details that distinguish failures with the same name: the decisive line, its place in the
program, amounts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from schedmate.jobs import Diagnosis
from schedmate.logparse.failure.frames import FRAME, LIBRARY
from schedmate.logparse.triage import JobVerdict
from schedmate.logparse.triage.groups import deciding_line

_ASKED = re.compile(r"Tried to allocate ([\d.]+ ?[KMGT]?i?B)")
_CAPACITY = re.compile(
    r"(?<![\d.])([\d.]{1,20}+ ?[KMGT]i?B) total capacity|total capacity of ([\d.]+ ?[KMGT]i?B)"
)
_CODE = re.compile(
    r'\s*(?:File "|(?:return|raise|yield|await|with|for|if|from|import)\b[^:]*[(.]|'
    r"[\w.\[\]]+(?:, [\w.]+)* = |[\w.]+\(.*\)?$|[~^]+$)"
)
"""Lines of source code, as tracebacks quote them."""
_GROUPS = {
    "error": "errors",
    "warning": "warnings",
    "system": "system",
    "progress": "training",
    "evaluation": "training",
    "checkpoint": "training",
    "init": "training",
}


@dataclass(frozen=True)
class Telling:
    """Of one failure: the line that decided, and facts in a few words each."""

    line: str
    facts: Sequence[str]


def telling(job: JobVerdict) -> Telling:
    """Details shown beside the error name of a failed job."""
    found = job.diagnosis
    if found is None or not job.failed:
        return Telling("", ())
    facts = [*_memory(found), *_frames(found)]
    if job.workload:
        facts.append(job.workload)
    if found.node:
        facts.append(f"node {found.node}")
    if found.rank is not None:
        facts.append(f"rank {found.rank}")
    if found.conflict:
        facts.append("in doubt")
    return Telling(deciding_line(found).strip(), facts)


def _memory(found: Diagnosis) -> Iterator[str]:
    text = deciding_line(found)
    if asked := _ASKED.search(text):
        capacity = _CAPACITY.search(text)
        of = f" of {capacity[1] or capacity[2]}" if capacity else ""
        yield f"{asked[1]}{of}"


def _frames(found: Diagnosis) -> Iterator[str]:
    """The program's entry point and the innermost line of its own code, if a traceback is
    quoted."""
    lines = (one.text for one in found.evidence if one.note in (None, "decided"))
    frames = [one for text in lines if (one := FRAME.search(text))]
    own = [one for one in frames if not LIBRARY.search(one[1])]
    if not own:
        return
    last = own[-1]
    name = PurePosixPath(last[1]).name
    script = PurePosixPath(own[0][1]).name
    if own[0][3] == "<module>" and script != name:
        yield script
    yield f"{name}:{last[2]}" + (f" in {last[3]}" if last[3] and last[3] != "<module>" else "")


def short_names(jobs: Iterable[JobVerdict]) -> tuple[str, dict[int, str]]:
    """The folder that all jobs named by a path share, and each job's name without it."""
    names = {job.index: job.job_id for job in jobs}
    folder = ""
    if len(names) > 1 and all(name.startswith("/") for name in names.values()):
        folder = os.path.commonpath([os.path.dirname(name) for name in names.values()])  # noqa: PTH120
    if len(folder) < 2:
        return "", names
    return folder, {index: name[len(folder) + 1 :] for index, name in names.items()}


def line_group(template: str, category: str) -> str:
    """Which box of a filter a line belongs to, by its category of the Log Classifier."""
    if category in ("error", "other") and _CODE.match(template):
        return "traceback"
    return _GROUPS.get(category, "other")
