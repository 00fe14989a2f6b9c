"""The attempts of a job that was started again and appended to the same log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from schedmate.data import load
from schedmate.logparse.reading.file import LogFile
from schedmate.logparse.reading.lines import plain


class Attempt(NamedTuple):
    """One run of the job: lines `first_line` to `last_line`, bytes `offset` to before `end`.

    `reason` is the line that shows where it begins, empty for the first one.
    """

    first_line: int
    last_line: int
    offset: int
    end: int
    reason: str


class _Mark(NamedTuple):
    line: int
    offset: int
    kind: int
    text: str


def attempts(file: LogFile) -> list[Attempt]:
    """All attempts in the order they ran; at least one. The last is the one to look at.

    At the start of one attempt every process and every layer of launchers prints a line of its
    own: a second one begins another attempt only when the job had work to show in between.
    """
    patterns = _patterns()
    cuts: list[_Mark] = []
    seen: dict[int, _Mark] = {}
    ended = False
    for mark in _marks(file, patterns):
        if mark.kind < patterns.endings:
            ended = True
            continue
        before = seen.get(mark.kind)
        if ended or (before is not None and _worked(file, patterns, before.offset, mark.offset)):
            cuts.append(mark)
            seen.clear()
        ended = False
        seen[mark.kind] = mark
    return _between(file, cuts)


def _between(file: LogFile, cuts: list[_Mark]) -> list[Attempt]:
    starts = [_Mark(1, 0, 0, ""), *cuts]
    ends = [*((cut.line - 1, cut.offset) for cut in cuts), (file.line_count(), file.size)]
    return [
        Attempt(start.line, last, start.offset, end, start.text)
        for start, (last, end) in zip(starts, ends, strict=True)
    ]


class _Patterns(NamedTuple):
    any: Any
    single: list[re.Pattern[bytes]]
    endings: int
    work: Any


@cache
def _patterns() -> _Patterns:
    import re2

    data = load("logparse/reading/attempts.yaml")
    ends, begins = ([one["pattern"] for one in data[part]] for part in ("ends", "begins"))
    return _Patterns(
        re2.compile(_either([*ends, *begins])),
        [re2.compile(one.encode()) for one in [*ends, *begins]],
        len(ends),
        re2.compile(_either([one["pattern"] for one in data["work"]])),
    )


def _either(patterns: list[str]) -> bytes:
    return ("(?m)" + "|".join(f"(?:{one})" for one in patterns)).encode()


def _marks(file: LogFile, patterns: _Patterns) -> Iterator[_Mark]:
    for chunk in file.chunks():
        line, counted = chunk.first_line, 0
        stop = -1
        for match in patterns.any.finditer(chunk.data):
            at = match.start()
            if at < stop:
                continue
            start = chunk.data.rfind(b"\n", 0, at) + 1
            stop = chunk.data.find(b"\n", at)
            stop = stop if stop >= 0 else len(chunk.data)
            line += chunk.data.count(b"\n", counted, at)
            counted = at
            raw = chunk.data[start:stop]
            kind = next((i for i, one in enumerate(patterns.single) if one.search(raw)), None)
            if kind is not None:
                yield _Mark(line, chunk.offset_of(start), kind, plain(raw)[:500])


def _worked(file: LogFile, patterns: _Patterns, start: int, end: int) -> bool:
    return any(patterns.work.search(chunk.data) for chunk in file.chunks(start, end))
