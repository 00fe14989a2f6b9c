"""The attempts of a job that was restarted and appended to the same log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from schedmate.data import load
from schedmate.logparse.reading.file import LogFile
from schedmate.logparse.reading.lines import plain

HEAD = 1 << 14
"""Bytes in which the first significant line has to be."""
OPENING = 20
"""Lines among which it must be the only one of its form."""
LONGEST, LEAST_WORDS = 300, 3
"""A line that is recognised again has at most this many bytes and at least this many words."""
# What a library prints whenever one more process imports it is no beginning of a job.
_BY_ANY_PROCESS = re.compile(
    rb"(?i:warn|deprecat|tensorflow|cuda|\bTF_)|^\W*[DIWE]\d{4}|^\s|\.py:\d+|^wandb:"
)
_WORDS = re.compile(rb"[A-Za-z]+")
_VARIES = re.compile(
    rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|[AP]M)\b"
    rb"|[\w.:+-]*\d[\w.:+-]*"
)


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
    """All attempts in order; at least one. The last one is normally examined.

    At the start of one attempt every process and every layer of launchers prints a line of its own:
    a second one begins another attempt only if the job showed progress in between. The same applies
    if the log repeats its own beginning (`opening`).
    """
    patterns = _with_opening(_patterns(), opening(file))
    cuts: list[_Mark] = []
    seen: dict[int, _Mark] = {}
    ended = False
    begun: _Mark | None = None
    for mark in _marks(file, patterns):
        if mark.kind < patterns.endings:
            ended = True
            continue
        if mark.kind < patterns.restarts:
            if _any(file, patterns.work, begun, mark):
                cuts.append(mark)
                seen.clear()
                begun = mark
                ended = False
            continue
        before = seen.get(mark.kind)
        between = patterns.failed if mark.kind == patterns.opening else patterns.work
        if ended or (before is not None and _any(file, between, before, mark)):
            cuts.append(mark)
            seen.clear()
            begun = mark
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
    restarts: int
    work: Any
    failed: Any
    texts: tuple[str, ...] = ()
    opening: int = -1


@cache
def _patterns() -> _Patterns:
    import re2

    data = load("logparse/reading/attempts.yaml")
    ends, restarts, begins = (
        [one["pattern"] for one in data[part]] for part in ("ends", "restarts", "begins")
    )
    texts = (*ends, *restarts, *begins)
    return _Patterns(
        re2.compile(_either(texts)),
        [re2.compile(one.encode()) for one in texts],
        len(ends),
        len(ends) + len(restarts),
        re2.compile(_either([one["pattern"] for one in data["work"]])),
        re2.compile(_either([one["pattern"] for one in data["failed"]])),
        texts,
    )


def _with_opening(patterns: _Patterns, form: bytes | None) -> _Patterns:
    """The patterns, with the log's own first line as one more kind of beginning."""
    if form is None:
        return patterns
    import re2

    known = _either(patterns.texts)
    return patterns._replace(
        any=re2.compile(known + b"|" + form),
        single=[*patterns.single, re2.compile(form)],
        opening=len(patterns.single),
    )


def opening(file: LogFile) -> bytes | None:
    """The form of the first significant line, if its repetition shows a new beginning.

    Numbers, times and names of days may differ. A line that occurs several times at the beginning,
    as each rank or file prints it, shows nothing; nor does a line of progress, or a warning.
    """
    work = _patterns().work
    forms: list[bytes | None] = []
    for line in file.read(0, HEAD).split(b"\n")[:-1]:
        if work.search(line) or len(forms) == OPENING:
            break
        if line.strip():
            forms.append(_form_of(line))
    first = next((form for form in forms if form is not None), None)
    return first if forms.count(first) == 1 else None


def _form_of(line: bytes) -> bytes | None:
    """A pattern for lines like this one, or None if it is too short to be recognised."""
    text = line.rstrip(b"\r")
    if not text.isascii() or len(text) > LONGEST or _BY_ANY_PROCESS.search(text):
        return None
    if sum(len(word) > 2 for word in _WORDS.findall(text)) < LEAST_WORDS:
        return None
    parts = _VARIES.split(text)
    return b"^" + rb"[\w.:+-]+".join(re.escape(part) for part in parts) + rb"\r?$"


def _either(patterns: Sequence[str]) -> bytes:
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


def _any(file: LogFile, pattern: Any, after: _Mark | None, before: _Mark) -> bool:
    """Whether a line between two others matches."""
    start = file.line_offset(after.line + 1) if after is not None else 0
    return any(pattern.search(chunk.data) for chunk in file.chunks(start, before.offset))
