"""File names in one directory that differ only by the numbers of ranks."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple

# Words before the number of a process of one run. Of a GPU, a node, a task or a pod there may be
# several, each with a run of its own: those are numbers like any other.
_RANK = re.compile(
    r"(?<![a-z])((?:local|global|node|world)?[-_. ]?(?:rank|worker|process|proc|replica|trainer))"
    r"([-_. =]?)(\d{1,6})(?!\d)",
    re.IGNORECASE,
)
_ATTEMPT = re.compile(r"(?<![a-z])(attempt|restart|try)([-_.]?)(\d{1,4})(?!\d)", re.IGNORECASE)
_STREAM = re.compile(
    r"(?<![a-z])std(?:out|err)(?![a-z])|(?<=[._-])(?:out|err)(?=$|[._-])", re.IGNORECASE
)
_NUMBER = re.compile(r"\d+")
_PACKED = re.compile(r"\.(?:gz|zst)$")


class Name(NamedTuple):
    """A path without the parts that may distinguish ranks.

    `numbers` are those parts, `attempts` those of attempts. `sure` is whether words before the
    numbers identify them as ranks; `stream` is the output stream of the process.
    """

    shape: str
    numbers: tuple[int, ...]
    attempts: tuple[int, ...]
    stream: str
    sure: bool


def name_of(path: PurePath) -> Name:
    """The parts of a file's path, relative to the examined directory, that name its rank."""
    text = _PACKED.sub("", path.as_posix())
    attempts = tuple(int(match[3]) for match in _ATTEMPT.finditer(text))
    text = _ATTEMPT.sub("{attempt}", text)
    streams = _STREAM.findall(text)
    text = _STREAM.sub("{stream}", text)
    ranks = [int(match[3]) for match in _RANK.finditer(text)]
    text = _RANK.sub(lambda match: match[1].lower() + "{rank}", text)
    parts = text.split("/")
    if streams and len(parts) > 1 and attempts and parts[-2].isdigit() and len(parts[-2]) < 7:
        # as torchelastic names them, RUN_ID/attempt_0/3/stderr.log
        ranks.append(int(parts[-2]))
        parts[-2] = "{rank}"
        text = "/".join(parts)
    sure = bool(ranks)
    if not sure:
        numbers = _NUMBER.findall(text)
        if any(len(number) > 15 for number in numbers):
            numbers = []
        elif numbers:
            ranks = [int(number) for number in numbers]
            text = _NUMBER.sub("{number}", text)
    stream = streams[0].lower() if streams else ""
    return Name(text, tuple(ranks), attempts, stream, sure)
