"""The identity that a log states for its run, and whether two logs state the same."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from schedmate.logparse.reading import LogError, parse_line
from schedmate.logparse.reading.inside import Folder
from schedmate.logparse.reading.log import open_files
from schedmate.logparse.reading.timestamps import apart
from schedmate.logparse.templates import mask

LOOKED_AT = 1 << 13
"""Bytes that are read from either end of a log."""
LINES = 40
"""Lines that are read from either end."""
LONGEST = 2000
"""Bytes of a longer line that are used, at its end."""
SLACK = 900.0
"""Limit for the difference between the beginnings, or ends, of logs of one run [s]."""
SHARED = 0.5
"""Share of the shorter log's kinds of lines that logs of one program have in common."""
FEWEST = 3
"""Minimum number of kinds of lines for that comparison."""

_IDENTITY = {
    "job id": re.compile(r"\b(?:slurm_?)?job_?id\b\W{1,4}(\w[\w.-]{2,60})", re.IGNORECASE),
    "rendezvous": re.compile(
        r"\brdzv_?(?:id|endpoint)\b\W{1,4}(\w[\w.:-]{2,80})|\b(tcp://[\w.:-]{5,80})", re.IGNORECASE
    ),
    "master": re.compile(r"\bmaster_?addr(?:ess)?\b\W{1,4}(\w[\w.:-]{2,80})", re.IGNORECASE),
    "communicator": re.compile(r"\bcommId (0x[0-9a-f]{6,16})", re.IGNORECASE),
    "run id": re.compile(r"\brun[_ -]?id\b\W{1,4}(\w[\w.-]{4,60})", re.IGNORECASE),
}
_LOCAL = re.compile(r"(?:tcp://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|none|null)\b", re.IGNORECASE)
_RANK = re.compile(r"(?<![a-z_])(?:global[_ ])?rank\b\W{0,3}(\d{1,6})(?!\d)", re.IGNORECASE)
_WORLD = re.compile(r"\b(?:world_?size|nranks)\b\W{0,3}(\d{1,6})(?!\d)", re.IGNORECASE)


@dataclass
class Contents:
    """The writer of a log as stated at its two ends; fields are empty if not stated.

    `first` and `last` are the times of its lines [s since epoch], see `apart`. `kinds` are its
    lines without numbers and names.
    """

    ids: dict[str, set[str]] = field(default_factory=dict)
    rank: int | None = None
    worlds: set[int] = field(default_factory=set)
    first: float | None = None
    last: float | None = None
    kinds: set[str] = field(default_factory=set)


@cache
def _says_who() -> Any:
    """Whether a log states anything that identifies its run; most do not."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(
        rb"(?i)job_?id|rdzv_?|tcp://|master_?addr|commId|run[_ -]?id|rank|world_?size", options
    )


def contents_of(path: Path, folder: Folder, *, whole: bool = True) -> Contents:
    """The contents of both ends of a file; empty if it cannot be read as a log.

    Without `whole`, they are also empty if the log does not identify its run.
    """
    found = Contents()
    ranks: Counter[int] = Counter()
    try:
        log = open_files(str(path), [path], folder)
    except LogError:
        return found
    with log:
        for file in log.files:
            head = file.read(0, LOOKED_AT)
            tail = file.read(max(0, file.size - LOOKED_AT), LOOKED_AT)
            if not (whole or _says_who().search(head) or _says_who().search(tail)):
                continue
            for raw in [*head.split(b"\n")[:LINES], *tail.split(b"\n")[-LINES:]]:
                line = parse_line(raw[-LONGEST:], 0, file.layout)
                if not line.text.strip():
                    continue
                found.kinds.add(mask(line.text))
                if line.time is not None:
                    found.first = line.time if found.first is None else found.first
                    found.last = line.time
                if line.rank is not None:
                    ranks.update([line.rank])
                if not _says_who().search(raw):
                    continue
                _identify(found, line.text)
                ranks.update([] if line.rank is not None else _numbers(_RANK, line.text))
                found.worlds.update(_numbers(_WORLD, line.text))
    if len(ranks) == 1:  # several speak of each other, or are in one file
        found.rank = next(iter(ranks))
    return found


def _identify(found: Contents, text: str) -> None:
    for name, pattern in _IDENTITY.items():
        for match in pattern.finditer(text):
            value = next(group for group in match.groups() if group).rstrip(".:,")
            if not _LOCAL.match(value):
                found.ids.setdefault(name, set()).add(value)


def _numbers(pattern: re.Pattern[str], text: str) -> list[int]:
    return [int(match[1]) for match in pattern.finditer(text)]


def differ(
    one: Contents, other: Contents, *, attempts: bool = False, same_rank: bool = False
) -> str | None:
    """The reason why two logs are not of one run, or None.

    `attempts` is whether they are of different attempts, which follow one another; `same_rank`
    whether they are of one rank by their names.
    """
    for name in one.ids.keys() & other.ids.keys():
        if name == "job id" and not one.ids[name] & other.ids[name]:
            return "they name different jobs"
    if one.worlds and other.worlds and not one.worlds & other.worlds:
        return "they name different numbers of ranks"
    if not (attempts or same_rank) and one.rank is not None and one.rank == other.rank:
        return f"both are of rank {one.rank}"
    if not attempts and _overlap(one, other) is False:
        return "they were written at different times"
    return None


def agree(one: Contents, other: Contents) -> tuple[list[str], bool]:
    """What two logs of one run have in common, and whether only such logs would."""
    reasons, sure = [], False
    for name in sorted(one.ids.keys() & other.ids.keys()):
        if one.ids[name] & other.ids[name]:
            reasons.append(f"the same {name}")
            sure = True
    if one.rank is not None and other.rank is not None and one.rank != other.rank:
        reasons.append("lines that name their ranks")
        sure = sure or bool(one.worlds & other.worlds)
    if _overlap(one, other):
        reasons.append("overlapping times")
    few = min(len(one.kinds), len(other.kinds))
    if few >= FEWEST and len(one.kinds & other.kinds) >= SHARED * few:
        reasons.append("the same lines")
    return reasons, sure


def _overlap(one: Contents, other: Contents) -> bool | None:
    """Whether two logs were written at the same time; None if their times are not comparable."""
    if one.first is None or one.last is None or other.first is None or other.last is None:
        return None
    before, after = apart(one.first, other.last), apart(other.first, one.last)
    if before is None or after is None:
        return None
    return before <= SLACK and after <= SLACK
