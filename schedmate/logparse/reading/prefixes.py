"""The rank, node or process that wrote a line, by its prefix or the file's name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from schedmate.data import load

COMMON = 0.5
"""Share of the lines that must have an ambiguous prefix for it to count."""
NESTED = 3
"""Limit for the prefixes removed from one line (`0: [rank0]: ...`)."""


class Form(NamedTuple):
    """One format of a prefix."""

    name: str
    pattern: re.Pattern[str]
    sniff: bool


class Origin(NamedTuple):
    """The writer of a line. `stream` is equal for all lines of one process, or empty."""

    rank: int | None = None
    node: str | None = None
    stream: str = ""


Layout = tuple[Form, ...]
"""The prefix forms that count in one file."""


@cache
def forms() -> Layout:
    """All known forms, from prefixes.yaml."""
    return tuple(
        Form(entry["name"], re.compile(entry["pattern"]), entry.get("sniff", False))
        for entry in load("logparse/reading/prefixes.yaml")
    )


@cache
def unambiguous() -> Layout:
    """The forms that are recognised from a single line."""
    return tuple(form for form in forms() if not form.sniff)


def layout_of(lines: list[str]) -> Layout:
    """The forms that count among these lines of one file."""
    lines = [line for line in lines if line.strip()]
    common = []
    for form in forms():
        if form.sniff:
            matches = [form.pattern.match(line) for line in lines]
            found = [match[0] for match in matches if match]
            # a timestamp or a counter would be different on every line
            if len(found) > COMMON * len(lines) and len(set(found)) <= len(found) // 2:
                common.append(form)
    return (*unambiguous(), *common)


_STAMP = re.compile(
    r"[\[(]?"
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ]|\d\d[-/]\d\d(?:[-/]\d{2,4})? |[A-Z][a-z]{2} {1,2}\d{1,2} )?"
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|UTC| ?[+-]\d\d:?\d\d)?[\])]?:?[ \t]+(?:[-|][ \t]+)?"
)
_LEVEL = re.compile(
    r"[\[(]?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)[\])]?[ \t]*[-:|]?[ \t]+", re.IGNORECASE
)


def split_prefix(text: str, layout: Layout) -> tuple[Origin, str]:
    """The writer of a line, and the line without the prefix that named it.

    A timestamp before a rank or a host is removed with it; a level between the two stays.
    """
    origin, rest = _split(text, layout)
    if len(rest) < len(text) or not (stamp := _STAMP.match(text)):
        return origin, rest
    level = _LEVEL.match(text, stamp.end())
    start = level.end() if level else stamp.end()
    origin, rest = _split(text[start:], layout)
    if not origin.stream:
        return Origin(), text
    return origin, (level[0] if level else "") + rest


def _split(text: str, layout: Layout) -> tuple[Origin, str]:
    """The writer of a line by the prefixes at its beginning, and the rest of it."""
    rank, node, streams = None, None, []
    for _ in range(NESTED):
        if not text or (text[0] not in _FIRST and not text[0].isalnum()):
            break
        match = next((m for form in layout if (m := form.pattern.match(text))), None)
        if match is None:
            break
        groups = match.groupdict()
        found = groups.get("rank") or groups.get("rank2")
        rank = rank if found is None else int(found)
        node = groups.get("node") or node
        if found or groups.get("node") or groups.get("pid"):
            streams.append(match[0].strip())
        text = text[match.end() :]
    return Origin(rank, node, " ".join(streams)), text


_FIRST = frozenset("[( ")

_RANK_IN_NAME = re.compile(
    r"(?:rank|worker|task|proc|process|local_rank|replica|pod|gpu)[-_. ]?(\d{1,6})(?!\d)",
    re.IGNORECASE,
)
_NUMBER_AT_END = re.compile(
    r"^(?!.*(?:job|slurm|run|exp|version|seed|epoch|attempt|v)[-_.]?\d+$)(?:.*[-_.])?(\d{1,5})$",
    re.IGNORECASE,
)
_TASK_OF_JOB = re.compile(r"[^\d.][^.]{0,80}-(\d{1,12})\.(\d{1,5})\.(?:out|err)")
"""NAME-JOB.TASK.out"""
_NODE_IN_NAME = re.compile(r"(?:node|host)[-_]?[A-Za-z]*\d+[\w-]*")
_STANDARD = re.compile(r"std(?:out|err)(?:\.log|\.txt)?", re.IGNORECASE)


def origin_of_file(path: Path, root: Path) -> Origin:
    """Rank and node in the name of a file in the log directory `root`."""
    relative = path.relative_to(root)
    name = relative.name
    stem = name.split(".")[0]
    parents = list(relative.parts[:-1])
    rank: int | None = None
    if match := _RANK_IN_NAME.search(name):
        rank = int(match[1])
    elif match := _TASK_OF_JOB.fullmatch(name):
        rank = int(match[2])
    elif match := _NUMBER_AT_END.search(stem):
        rank = int(match[1])
    elif _STANDARD.fullmatch(name) or stem in ("error", "stdout", "stderr"):
        # as torchelastic names them, RUN_ID/attempt_0/3/stderr.log
        if parents and (match := re.fullmatch(r"(?:rank[-_]?)?(\d{1,6})", parents[-1])):
            rank = int(match[1])
    elif named := [one for part in parents if (one := _RANK_IN_NAME.fullmatch(part))]:
        rank = int(named[-1][1])
    node = _NODE_IN_NAME.search(stem)
    return Origin(rank, node[0] if node else None, str(relative))
