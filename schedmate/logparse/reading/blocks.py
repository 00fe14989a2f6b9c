"""Divides a log: lines into blocks, of which a Python traceback is one, and restarts into
attempts.

Tracebacks are put together also if the output of ranks interleaves. A job that was restarted and
appended to the same log is split into its attempts by the lines that begin and end one
(`attempts.yaml`), by its own first line, or by a counter of steps or epochs that falls back to
where it began after the run before has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any, Literal, NamedTuple

from schedmate.base.data import load
from schedmate.logparse.reading.lines import Line, parse_line, plain, seconds_apart
from schedmate.logparse.reading.log import LogFile

TRACEBACK_START = "Traceback (most recent call last"
MAX_TRACEBACK = 2000
"""Limit for the lines of one traceback."""
MAX_MESSAGE = 40
"""Limit for the lines of an exception's message."""

_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?P<name>_?[A-Z]\w*|(?<=\.)(?:error|timeout|gaierror|herror))(?:\(\w+\))?"
    r"(?::\s?(?P<message>.*)|)$"
)
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception): $")
# The head of IPython's traceback, and the lines of its frames that are not indented.
_IPYTHON = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*\s{2,}$")
_IPYTHON_FRAME = re.compile(r"<|/|~|-+(?:>|$)|[A-Z]:\\|File |Cell In|Input In|\.\.\.$")
# The frame that loguru points at, and what rich draws around frames.
_POINTED_FRAME = re.compile(r"> File \"")
_BOX = re.compile(r"[╭┌│|├╰└]")
# What a traceback of an exception group has before its lines.
_GROUP = re.compile(r"\s*\+ Exception Group $")
_OF_GROUP = re.compile(r"(?<!\s)\s*+[|+](?:[-+|]++| \|)*+(?: (?:\d+|\.\.\.) -+$| ?)")
# A traceback that a line holds as a string, its line feeds written as `\n`.
_LINE_FEED = re.compile(r"(?<!\\)\\++n(?:['\"],\s?['\"])?")
_FRAME = re.compile(r"( *)File \"")
DIRECT_CAUSE = "The above exception was the direct cause of the following exception"
_CHAIN = ("During handling of the above exception, another exception occurred", DIRECT_CAUSE)
_NEW_RECORD = re.compile(
    r"\[|[\w.-]+: (?:error|warning|fatal)|(?:ERROR|WARNING|INFO|DEBUG|CRITICAL|FATAL)\b|\*\*\*"
    r"|={5}|-{5}|\s*\d+%\||>+ |srun|slurmstepd|Epoch\b|wandb:"
    r"|NVRM|LNet|Lustre|nfs:|kernel\b|mlx[45]_|EXT4-fs|XFS|mmfs|libceph|INFO:|watchdog:|mce:"
    r"|terminate called|Out of memory:|Fatal Python error",
    re.IGNORECASE,
)


@dataclass
class Block:
    """One line, or all lines of a traceback with those of the exceptions before it.

    `exception` and `message` are those of the last exception, which ended the program. `inner` are
    the lines of the traceback as Python wrote them, without text that a logger put before each,
    around them or, if all of it is on one line, between them.
    """

    lines: list[Line]
    kind: Literal["line", "traceback"] = "line"
    exception: str | None = None
    message: str | None = None
    chain: list[str] = field(default_factory=list)
    """The exceptions in the order they were raised, `exception` last."""
    inner: list[Line] = field(default_factory=list)

    @property
    def first(self) -> Line:
        """The first line."""
        return self.lines[0]


class _OpenTraceback:
    """A traceback of one stream while it is being read."""

    def __init__(self, line: Line) -> None:
        at = line.text.index(TRACEBACK_START)
        before = line.text[:at]
        self.ipython = _IPYTHON.match(before) is not None
        self.group = _GROUP.match(before) is not None
        box = re.search(r"[╭┌]", before)
        self.boxed = box is not None
        if self.ipython or _RAISED.match(before):  # its message may be a traceback
            before = ""
        if box is not None:
            before = before[: box.start()]
        self.head = _OF_GROUP if self.group else _head(before)
        self.margin = 0  # where exceptions stand, two columns left of the frames
        self.block = Block([line], "traceback", inner=[line])
        self.state: Literal["frames", "message", "after"] = "frames"
        self.message_lines = 0

    def take(self, line: Line) -> bool:
        """Add the line if it belongs to the traceback; returns whether it does."""
        if len(self.block.lines) >= MAX_TRACEBACK:
            return False
        headed = self.head.match(line.text) if self.head is not None else None
        text = line.text[headed.end() :] if headed else line.text
        bare = text.strip()
        if TRACEBACK_START in text or any(phrase in text for phrase in _CHAIN):
            again = TRACEBACK_START in text and not self.group and not bare.startswith("Original ")
            if again and self.state != "frames":
                return False  # another one, not raised from this
            self.state = "frames"
        elif self.state == "frames":
            if not self._frames(text, bare):
                return False
        elif self.state == "after":
            if bare:  # a blank line ended the message, and no chained traceback followed it
                return False
        elif not bare:
            self.state = "after"
        elif self.message_lines >= MAX_MESSAGE or line.time or _NEW_RECORD.match(bare):
            return False
        else:
            self.message_lines += 1
        self.block.lines.append(line)
        inner = text[self.margin :] if text[: self.margin].isspace() else text
        self.block.inner.append(line if inner is line.text else line._replace(text=inner))
        return True

    def _frames(self, text: str, bare: str) -> bool:
        """Whether a line belongs to the frames, or is the exception that ends them."""
        frame = _FRAME.match(text)
        if frame is not None:
            self.margin = max(0, len(frame[1]) - 2)
        if not bare or _indent(text) > self.margin:
            return True
        if (self.boxed and _BOX.match(bare)) or _POINTED_FRAME.match(bare):
            return True
        match = _EXCEPTION.match(bare)
        if match is None:
            return self.ipython and _IPYTHON_FRAME.match(bare) is not None
        self._raised(match)
        self.state, self.message_lines = "message", 0
        return True

    def _raised(self, match: re.Match[str]) -> None:
        self.block.exception, self.block.message = match["name"], match["message"] or ""
        self.block.chain.append(match["name"])

    def quoted(self) -> bool:
        """Read the traceback from the first line, if all of it is there as a string; else False."""
        line = self.block.lines[0]
        parts = _LINE_FEED.split(line.text[line.text.index(TRACEBACK_START) :])
        if len(parts) < 2:
            return False
        self.block.inner = [line._replace(text=part) for part in parts]
        for part in parts[1:]:
            match = _EXCEPTION.match(part) if part[:1].strip() else None
            if match is not None:
                self._raised(match)
        return True

    def close(self) -> Block:
        """The block, without the blank lines at its end."""
        while len(self.block.lines) > 1 and not self.block.lines[-1].text.strip():
            self.block.lines.pop()
            self.block.inner.pop()
        return self.block


def _head(before: str) -> re.Pattern[str] | None:
    """The text before each line of a traceback: as before its first, with other numbers."""
    if not before:
        return None
    parts = re.split(r"(\d+|0x[0-9a-f]+|(?<=\S) +(?=\S))", before)
    loose = (
        r"[\da-fx]+" if part[0].isdigit() else " *" if part.isspace() and n > 0 else re.escape(part)
        for n, part in enumerate(parts)
        if part
    )
    return re.compile("".join(loose))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def blocks(lines: Iterable[Line]) -> Iterator[Block]:
    """The lines grouped, each traceback in one block where it begins.

    Lines of other streams in the middle of a traceback come as blocks of their own before it.
    """
    reading: dict[str, _OpenTraceback] = {}
    for line in lines:
        current = reading.get(line.stream)
        if current is not None:
            if current.take(line):
                continue
            yield reading.pop(line.stream).close()
        if TRACEBACK_START in line.text:
            opened = _OpenTraceback(line)
            if opened.quoted():
                yield opened.block
            else:
                reading[line.stream] = opened
        else:
            yield Block([line])
    for left in reading.values():
        yield left.close()


# The attempts of a job that was restarted and appended to the same log.


OPENING_WITHIN = 1 << 14
"""Bytes in which the first significant line has to be."""
OPENING = 20
"""Lines among which it must be the only one of its form."""
LONGEST, LEAST_WORDS = 300, 3
"""A line that is recognised again has at most this many bytes and at least this many words."""
COUNTED_WITHIN = 1 << 18
"""Bytes in which the first counter of steps or epochs has to be."""
BETWEEN = 1 << 18
"""Bytes before a counter that fell back in which the end of the run before is looked for."""
PAUSE_S, PAUSES = 300.0, 5.0
"""A pause between two runs is at least this long, and so many times the longest before it."""
REPEATED, RARELY = 5, 8
"""Lines of the beginning that show a new process without a pause when they come again, and how
often fewer of them may come for a pause to show one."""
# What a library prints whenever one more process imports it is no beginning of a job.
_BY_ANY_PROCESS = re.compile(
    rb"(?i:warn|deprecat|tensorflow|cuda|\bTF_)|^\W*[DIWE]\d{4}|^\s|\.py:\d+|^wandb:"
)
_WORDS = re.compile(rb"[A-Za-z]+")
_VARIES = re.compile(
    rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|[AP]M)\b"
    rb"|[\w.:+-]{0,40}\d[\w.:+-]*"
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


ENDED = -2
"""The kind of a mark that an attempt may end in."""


class _Mark(NamedTuple):
    line: int
    offset: int
    kind: int
    text: str


def attempts(file: LogFile) -> list[Attempt]:
    """All attempts in order; at least one. The last one is normally examined.

    At the start of one attempt every process and every layer of launchers prints a line of its own:
    a second one begins another attempt only if the job showed progress in between. The same applies
    if the log repeats its own beginning (`opening`). A counter that falls back begins a run only
    right after an end (`_after_ends`) or before lines with which the log began (`_told_again`):
    inner loops fall back, too.
    """
    patterns = _with_opening(_patterns(), opening_form(file))
    cuts: list[_Mark] = []
    seen: dict[int, _Mark] = {}
    ended = False
    begun: _Mark | None = None
    ended_at: list[_Mark] = []
    for mark in _marks(file, patterns):
        if mark.kind == ENDED:
            ended_at.append(mark)
            continue
        if mark.kind < patterns.endings:
            ended = True
            continue
        if mark.kind < patterns.restarts:
            if _matches_between(file, patterns.work, begun, mark):
                cuts.append(mark)
                seen.clear()
                begun = mark
                ended = False
            continue
        before = seen.get(mark.kind)
        between = patterns.failed if mark.kind == patterns.opening else patterns.work
        if ended or (before is not None and _matches_between(file, between, before, mark)):
            cuts.append(mark)
            seen.clear()
            begun = mark
        ended = False
        seen[mark.kind] = mark
    ended_at = sorted([*ended_at, *_told_again(file)], key=lambda mark: mark.offset)
    for start, restart, stop in _after_ends(file, ended_at):
        if not any(start < cut.offset <= stop for cut in cuts):
            cuts.append(restart)
    return _between_cuts(file, sorted(cuts, key=lambda cut: cut.offset))


def _between_cuts(file: LogFile, cuts: list[_Mark]) -> list[Attempt]:
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
    finished: Any
    part: Any
    opening: int = -1


@cache
def _patterns() -> _Patterns:
    import re2

    data = load("logparse/reading/attempts.yaml")
    ends, restarts, begins = (
        [one["pattern"] for one in data[part]] for part in ("ends", "restarts", "begins")
    )
    texts, said = (*ends, *restarts, *begins), (*data["failed"], *data["finished"])
    return _Patterns(
        re2.compile(_any_of([*texts, *(one["pattern"] for one in said)])),
        [re2.compile(one.encode()) for one in texts],
        len(ends),
        len(ends) + len(restarts),
        re2.compile(_any_of([one["pattern"] for one in data["work"]])),
        re2.compile(_any_of([one["pattern"] for one in data["failed"]])),
        re2.compile(_any_of([one["pattern"] for one in data["finished"]])),
        re2.compile(_any_of([one["pattern"] for one in load("logparse/denied.yaml")["part"]])),
    )


def _with_opening(patterns: _Patterns, form: bytes | None) -> _Patterns:
    """The patterns, with the log's own first line as one more kind of beginning."""
    if form is None:
        return patterns
    import re2

    return patterns._replace(
        any=re2.compile(b"(?m)(?:%s)|%s" % (patterns.any.pattern, form)),
        single=[*patterns.single, re2.compile(form)],
        opening=len(patterns.single),
    )


_COUNT = (
    rb"(?im)(?:^|[^\w-])(?:(?:global|train)[ _])?"
    rb"(%s)\b[^\w\n]{1,8}(\d{1,9})\b"
)


@cache
def _count(words: bytes = rb"epoch|iter(?:ation)?|step") -> Any:
    import re2

    return re2.compile(_COUNT % words)


def _counts(data: bytes) -> Iterator[re.Match[bytes]]:
    """What counts steps or epochs, but for the source that a traceback quotes below a frame."""
    for match in _count().finditer(data):
        start = data.rfind(b"\n", 0, match.start(1))
        if not _ABOVE_SOURCE.match(data[data.rfind(b"\n", 0, max(0, start)) + 1 : max(0, start)]):
            yield match


_ABOVE_SOURCE = re.compile(rb"""[^\n"]{0,200}File "[^"\n]{1,4000}", line \d""")
MOST_ENDS = 500
"""Limit for the ends, the last ones, after which a new run is looked for."""


def _after_ends(file: LogFile, ends: Sequence[_Mark]) -> Iterator[tuple[int, _Mark, int]]:
    """The runs after an end by a counter that falls back, each between the counts around it.

    Without a counter in common, one that begins at 0 or 1 shows the same.
    """
    last = ends[-MOST_ENDS:]
    for one_end, following in zip_longest(last, last[1:]):
        end = file.line_offset(one_end.line + 1)
        until = min(file.size, end + BETWEEN) if following is None else following.offset
        after = file.read(end, min(until - end, BETWEEN))
        found = next(_counts(after), None)
        if found is None:
            continue
        start = file.align(max(0, one_end.offset - BETWEEN // 4))
        counts = list(_counts(file.read(start, one_end.offset - start)))
        before = {one[1].lower(): int(one[2]) for one in counts}
        line = _line_at(after, found.start(1))
        if _patterns().finished.search(line):
            continue  # it names what ended
        first = {one[1].lower(): int(one[2]) for one in reversed(list(_count().finditer(line)))}
        shared = sorted(before.keys() & first.keys())  # the epoch, where both count it
        if shared and b"epoch" in before and b"epoch" not in first:
            continue  # the steps of another epoch
        fell = shared and first[shared[0]] < before[shared[0]]
        anew = not shared and bool(before) and max(first.values()) <= 1
        if fell or anew:
            at = start + counts[-1].end()
            begin = after.partition(b"\n")[0]
            mark = _Mark(one_end.line + 1, end, -1, plain(begin)[:500])
            yield at, mark, end + found.start()


def _told_again(file: LogFile) -> list[_Mark]:
    """The places right before lines with which the log began, where they come again.

    Several have to, or one after a pause.
    """
    import re2

    head = file.read(0, COUNTED_WITHIN)
    count = next(_counts(head), None)
    if count is None:
        return []
    told = [
        line.strip()
        for line in head[: count.start(1)].split(b"\n")[:-1][:OPENING]
        if len(line) <= LONGEST and len(_WORDS.findall(line)) >= 2
    ]
    parts = [max(_VARIES.split(line), key=len) for line in told]
    after = file.align(_bounds(head, count.start(1))[1] + 1)
    if not parts or not any(part in chunk.data for chunk in file.chunks(after) for part in parts):
        return []
    again = (rb"[\w.:+-]+".join(map(re.escape, _VARIES.split(line))) for line in told)
    pattern = re2.compile(b"(?m)" + b"|".join(rb"(?:^\s*%s\s*$)" % one for one in again), _latin())
    found, few = list[int](), list[int]()
    upto = 0  # where the counts go on after the place found last
    for chunk in file.chunks(after):
        for match in pattern.finditer(chunk.data):
            at = file.align(chunk.offset_of(match.end() - len(match[0].lstrip())))
            if at >= upto:
                following = _before_count(file.read(at, BETWEEN))
                upto = at + len(following)
                lines = {_masked(one[0]) for one in pattern.finditer(following)}
                (found if len(lines) >= REPEATED else few).append(at)
    if len(few) <= RARELY:  # a line that comes again and again shows nothing
        found += [at for at in few if _paused(file, at)]
    return [_Mark(file.line_number(at) - 1, at, ENDED, "") for at in found]


def _before_count(data: bytes) -> bytes:
    count = next(_counts(data), None)
    return data[: count.start(1)] if count is not None else data


def _masked(line: bytes) -> bytes:
    return _VARIES.sub(b"0", line.strip())


def _bounds(data: bytes, at: int) -> tuple[int, int]:
    """Where the line of a byte begins, and where its line feed is."""
    end = data.find(b"\n", at)
    return data.rfind(b"\n", 0, at) + 1, end if end >= 0 else len(data)


def _line_at(data: bytes, at: int) -> bytes:
    start, end = _bounds(data, at)
    return data[start:end]


@cache
def _latin() -> Any:
    """Options of RE2 for bytes that need not be UTF-8."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return options


def _paused(file: LogFile, at: int) -> bool:
    """Whether the log paused after its last count before a byte for much longer than before it."""
    start = file.align(max(0, at - BETWEEN // 4))
    before = file.read(start, at - start)
    last = max((one.end() for one in _counts(before)), default=0)
    rest = before.find(b"\n", last) + 1
    data = before + _before_count(file.read(at, BETWEEN))
    times = [(0 if n < rest else 1, parse_line(line, 1).time) for n, line in _offsets(data)]
    known = [(after, time) for after, time in times if time is not None]
    gaps: list[list[float]] = [[], []]
    for (_, one), (after, other) in pairwise(known):
        gaps[after].append(seconds_apart(other, one) or 0.0)
    return max(gaps[1], default=0.0) >= max(PAUSE_S, PAUSES * max(gaps[0], default=0.0))


def _offsets(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    for line in data.split(b"\n")[:-1]:
        yield at, line
        at += len(line) + 1


def opening_form(file: LogFile) -> bytes | None:
    """The form of the first significant line, if its repetition shows a new beginning.

    Numbers, times and names of days may differ. A line that occurs several times at the beginning,
    as each rank or file prints it, shows nothing; nor does a line of progress, or a warning.
    """
    work = _patterns().work
    forms: list[bytes | None] = []
    for line in file.read(0, OPENING_WITHIN).split(b"\n")[:-1]:
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


def _any_of(patterns: Sequence[str]) -> bytes:
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
            if kind is None and (
                patterns.failed.search(raw)
                or (patterns.finished.search(raw) and not patterns.part.search(raw))
            ):
                kind = ENDED
            if kind is not None:
                yield _Mark(line, chunk.offset_of(start), kind, plain(raw)[:500])


def _matches_between(file: LogFile, pattern: Any, after: _Mark | None, before: _Mark) -> bool:
    """Whether a line between two others matches."""
    start = file.line_offset(after.line + 1) if after is not None else 0
    return any(pattern.search(chunk.data) for chunk in file.chunks(start, before.offset))
