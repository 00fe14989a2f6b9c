"""Examines all files of a job's log: the last attempt of each, its events, and whether it
finished.

Lines that healthy runs print as well are no evidence, and a rank with unique lines is suspect;
these two filters follow L4 (FSE 2025, section 4): cross-job and spatial. A third works within a
log: lines that training continued after do not explain the end.

Very large files are not scanned whole but searched as in the paper: a binary search for the first
chunk without training, whose lines the Log Classifier classifies (SchedMate paper, section 3.3).
The search assumes that no training follows the failure. Chunks that show neither training nor a
failure are skipped, at most `EXTRA_PROBES` of them, so a search takes at most ceil(log2(chunks)) +
`EXTRA_PROBES` probes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from schedmate.base.errors import UsageError
from schedmate.logparse.classify import LineKinds
from schedmate.logparse.failure.rules import RuleSet
from schedmate.logparse.failure.scan import NEAR_STEP, Event, FileScan, scan
from schedmate.logparse.reading import Attempt, Line, Log, LogError, LogFile
from schedmate.logparse.reading.blocks import attempts
from schedmate.logparse.reading.lines import parse_line
from schedmate.logparse.reading.storage import BLOCK, Memory
from schedmate.logparse.signs import (
    NEARLY_ENDED,
    Sign,
    goes_on,
    is_short,
    last_sign,
    line_of,
    part_ends,
    signs,
)
from schedmate.logparse.templates import Templates, mask

Locator = Literal["auto", "scan", "binary"]
SCAN_UP_TO = 1 << 32
"""Size of the largest log that is read whole by default [bytes]."""


@dataclass
class Examined:
    """The scans of all files, and which attempt of how many they show (counted from 1)."""

    locator: Literal["scan", "binary"]
    scans: list[FileScan] = field(default_factory=list)
    attempt: int = 1
    attempts: int = 1
    probes: int = 0
    sequence: tuple[LogFile, Sequence[Attempt]] | None = None
    """The file with several attempts, and these."""


def examine(
    log: Log,
    rules: RuleSet,
    usual: Healthy,
    locator: Locator = "auto",
    only: Attempt | None = None,
) -> Examined:
    """Scan each file of `log` once, or `only` this part; events that `usual` knows are left out.

    Raises `UsageError` for an unknown locator.
    """
    if locator == "auto":
        locator = "scan" if log.size <= SCAN_UP_TO else "binary"
    if locator not in ("scan", "binary"):
        raise UsageError(f"there is no locator {locator!r}; use scan, binary or auto.")
    result = Examined(locator)
    for file in log.files:
        if only is not None:
            scanned = scan(file, only, rules)
        elif locator == "binary":
            last = Attempt(1, max(1, file.line_count()), 0, file.size, "")
            last, probes = bisect_to_failure(file, last)
            result.probes += probes
            scanned = scan(file, last, rules)
        else:
            file_attempts = attempts(file)
            last, scanned = _last_telling_attempt(file, file_attempts, rules)
            if len(file_attempts) > result.attempts:
                result.attempts, result.attempt = len(file_attempts), file_attempts.index(last) + 1
                result.sequence = file, file_attempts
        scanned.events = [event for event in scanned.events if not usual.knows(event)]
        result.scans.append(scanned)
        file.close()
    return result


def _last_telling_attempt(
    file: LogFile, file_attempts: Sequence[Attempt], rules: RuleSet
) -> tuple[Attempt, FileScan]:
    """The last attempt, or the last failed one if those after it show nothing, and its scan.

    An attempt supersedes earlier ones if it trains, ends well or fails itself. Lines that only look
    like the beginning of an attempt do not count.
    """
    newest: FileScan | None = None
    for attempt in reversed(file_attempts):
        scanned = scan(file, attempt, rules)
        newest = newest or scanned
        if scanned.events:
            return attempt, scanned
        trained = last_sign("progress", file, attempt.offset, attempt.end)
        if trained is not None or end_of([scanned]) is not None:
            break
    assert newest is not None  # there is one attempt at least
    return file_attempts[-1], newest


# Whether a log without a failure shows that its job finished, and on which line.


LAST_LINES = 60
"""Number of last lines whose wording may show that the job finished."""
_FULL_COUNT = re.compile(
    r"\b(\d+) ?(?:/|of) ?\1\b|\b100(?:\.0+)? ?%|(?i:percent\w{0,20})\W{1,4}100\b"
)
_EPOCH = re.compile(r"(?i:\bepochs?)\W{0,3}(\d+) ?(?:/|of) ?(\d+)")


SAYS_SO = "says that the job finished"
"""Why a line shows an end if a job that goes on would not write it."""


class End(NamedTuple):
    """The line that shows that a job finished, and in which way it shows it."""

    file: LogFile
    line: Line
    why: str


def end_of(scans: Sequence[FileScan]) -> End | None:
    """The line of the first file that states the job's end or counts up to the total, if any."""
    return next((end for scanned in scans if (end := _end_of_file(scanned)) is not None), None)


def last_step(scans: Sequence[FileScan]) -> tuple[LogFile, Line] | None:
    """The last line of progress in the first file that has one."""
    for scanned in scans:
        if scanned.step is not None:
            return scanned.file, line_of(scanned.file, scanned.step)
    return None


def _end_of_file(scanned: FileScan) -> End | None:
    whole = scanned.finished is not None and not _of_part(scanned, scanned.finished)
    if scanned.finished is not None and whole:
        return End(scanned.file, line_of(scanned.file, scanned.finished), SAYS_SO)
    tail = _last_lines(scanned)
    line = _line_of_success(scanned, tail)
    if line is not None:
        return End(scanned.file, line, "reads like a successful end")
    line = _line_of_full_count(scanned, tail)
    return None if line is None else End(scanned.file, line, "counts to the end of the run")


def _of_part(scanned: FileScan, sign: Sign) -> bool:
    """Whether a sign of the end is about a part of the run only."""
    start = scanned.file.align(max(scanned.attempt.offset, sign.offset - NEAR_STEP))
    step = last_sign("progress", scanned.file, start, sign.offset)
    short = step is not None and is_short(step.groups.get("at", "").encode(), NEARLY_ENDED)
    return goes_on(scanned.file, sign, scanned.attempt.end, short=short)


def _last_lines(scanned: FileScan) -> list[Line]:
    """The last lines of an attempt, at most `LAST_LINES` + 1."""
    attempt = scanned.attempt
    first = max(attempt.first_line, attempt.last_line - LAST_LINES)
    return list(scanned.file.lines(first, attempt.last_line))


def _line_of_success(scanned: FileScan, tail: list[Line]) -> Line | None:
    """The last line that states success, unless training continued after lines like it."""
    file, attempt = scanned.file, scanned.attempt
    start = file.line_offset(tail[0].number) if tail else attempt.offset
    step = last_sign("progress", file, start, attempt.end) or scanned.step
    after = file.line_number(step.offset) if step is not None else 0
    if scanned.finished is not None:  # that was of a part
        after = max(after, line_of(file, scanned.finished).number + 1)
    starts = signs("starts")  # what was said before the next part started is of one as well
    after = max([after, *(line.number for line in tail if starts.on(_encoded(line.text)))])
    successes = [line for line in tail if line.number >= after and _succeeded(line.text)]
    if not successes:
        return None
    usual = outlived_templates(file, attempt.first_line, after, _succeeded) if after else set()
    return next((line for line in reversed(successes) if mask(line.text) not in usual), None)


def _succeeded(text: str) -> bool:
    return signs("success").on(_encoded(text)) and not part_ends(_encoded(text))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _line_of_full_count(scanned: FileScan, tail: list[Line]) -> Line | None:
    """The line by which the Metric Tracker takes a run as finished, or counts to its total."""
    from schedmate.logparse.progress.tracker import track

    file, attempt = scanned.file, scanned.attempt
    part, since, above = file, attempt.offset, 0
    if attempt.end < file.size:  # of several runs not the last: its part alone
        start = file.align(max(attempt.offset, attempt.end - BLOCK))
        part = LogFile(file.name, Memory(file.read(start, attempt.end - start)))
        since, above = 0, file.line_number(start) - 1
    try:
        progress = track(part, since=since)
    except LogError:
        return None
    if progress.ended == "finished" and progress.ended_line is not None:
        number = above + progress.ended_line
        return next(file.lines(number, number), None)
    done, total = progress.iteration, progress.total_iterations
    if total is None:
        done, total = int(progress.epoch or 0), progress.total_epochs
    elif progress.total_epochs is not None and (progress.epoch or 0) < progress.total_epochs - 1:
        return None
    epochs = [match for line in tail for match in _EPOCH.finditer(line.text)]
    in_the_midst = bool(epochs) and int(epochs[-1][1]) < int(epochs[-1][2])
    if total is None or done is None or done < total or in_the_midst:
        return None
    return next((line for line in reversed(tail) if _FULL_COUNT.search(line.text)), None)


def last_line(scanned: FileScan) -> Line | None:
    """The last line of a file that is not blank."""
    return next((line for line in reversed(_last_lines(scanned)) if line.text.strip()), None)


# Filters: lines of healthy runs, lines that training continued after, ranks with unique lines.


COMPARED_TAIL = 1 << 20
"""Bytes compared at the end of each rank's file."""
FEWEST_RANKS = 4
"""Minimum number of ranks for one of them to stand out."""
LINES_BEFORE_PROGRESS = 2000
"""Lines before the last progress that are taken as harmless, since training continued."""


class Healthy:
    """The templates of runs that ended well."""

    def __init__(self, logs: Sequence[Log]) -> None:
        templates = Templates()
        for log in logs:
            for file in log.files:
                for chunk in file.chunks():
                    templates.numbers(chunk.data)
                file.close()
        self._texts = set(templates.texts)

    def knows(self, event: Event) -> bool:
        """Whether a healthy run printed the same line; a traceback is compared by its exception."""
        return bool(self._texts) and mask(event.text) in self._texts


def outlived_templates(
    file: LogFile, first: int, after: int, is_significant: Callable[[str], bool]
) -> set[str]:
    """The templates of significant lines after which training continued.

    `first` is the first line of the attempt, `after` that of the last progress.
    """
    templates, examples = Templates(), dict[int, bytes]()
    start, end = (
        file.line_offset(max(first, after - LINES_BEFORE_PROGRESS)),
        file.line_offset(after),
    )
    for chunk in file.chunks(start, end):
        lines = chunk.data.removesuffix(b"\n").split(b"\n")
        for number, raw in zip(templates.numbers(chunk.data), lines, strict=True):
            examples.setdefault(number, raw)  # one line of each template is read closely
    texts = [parse_line(raw, 0, file.layout).text for raw in examples.values()]
    return {mask(text) for text in texts if is_significant(text)}


def describe_outliers(files: Sequence[LogFile]) -> list[str]:
    """A sentence for each rank whose last lines have templates that no other rank's have."""
    ranked = [file for file in files if file.rank is not None]
    if len(ranked) < FEWEST_RANKS:
        return []
    seen: Counter[str] = Counter()
    texts: dict[int, set[str]] = {}
    for file in ranked:
        templates = Templates()
        start = file.align(max(0, file.size - COMPARED_TAIL))
        for chunk in file.chunks(start):
            templates.numbers(chunk.data)
        file.close()
        assert file.rank is not None
        texts[file.rank] = set(templates.texts)
        seen.update(texts[file.rank])
    sentences = []
    for rank, own in sorted(texts.items()):
        alone = [text for text in own if seen[text] == 1]
        absent = [
            text for text, count in seen.items() if count == len(ranked) - 1 and text not in own
        ]
        if alone and len(alone) + len(absent) > 0:
            sentences.append(f"rank {rank} differs from the others: {min(alone, key=len)[:120]}")
        elif absent:
            sentences.append(f"rank {rank} lacks what all others print: {absent[0][:120]}")
    return sentences if len(sentences) < len(ranked) // 2 else []


# The paper's locator: a binary search for the first chunk of a log without training.


PROBED_CHUNK = 1 << 18
"""Size of the chunks that the search classifies [bytes]."""
EXTRA_PROBES = 4
"""Limit for the probes spent on skipping chunks that show neither training nor a failure."""
MARGIN_CHUNKS = 1
"""Chunks before the located one that are read with it."""


def bisect_to_failure(
    file: LogFile, attempt: Attempt, *, chunk: int = PROBED_CHUNK
) -> tuple[Attempt, int]:
    """The part of a file from the located chunk on, as an attempt, and the number of probes."""
    count = -(-(attempt.end - attempt.offset) // chunk)
    low, high, used, extra = 0, count - 1, 0, 0
    kinds = LineKinds()
    while low < high:
        middle = (low + high) // 2
        at, state = middle, classify_chunk(file, attempt, kinds, middle, chunk)
        used += 1
        while state == "neither" and at < high and extra < EXTRA_PROBES:
            at, extra, used = at + 1, extra + 1, used + 1
            state = classify_chunk(file, attempt, kinds, at, chunk)
        if state == "training":
            low = at + 1
        else:
            high = middle
    first = max(0, min(low, count - 1) - MARGIN_CHUNKS)
    offset = max(attempt.offset, file.align(attempt.offset + first * chunk, 16 * chunk))
    line = file.line_number(offset)
    return attempt._replace(first_line=line, offset=offset), used


def classify_chunk(
    file: LogFile, attempt: Attempt, kinds: LineKinds, number: int, chunk: int
) -> Literal["training", "failed", "neither"]:
    """What a chunk shows last: continuing training, a failure, or neither."""
    start = attempt.offset + number * chunk
    categories = kinds.of(file.read(start, min(chunk, attempt.end - start)))
    for kind in reversed(categories):
        if kind == "error":
            return "failed"
        if kind == "progress":
            return "training"
    return "neither"
