"""Reads a log from its end until there are enough samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from schedmate.logparse.progress.general import EPOCH_ONLY
from schedmate.logparse.progress.parts import Part, join, read_part
from schedmate.logparse.progress.registry import read_line
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.reading import Line, LogFile, parse_line

ENOUGH = 60
"""Readings of one kind of line after which the tracker stops (N in the paper)."""
MOST = 1500
"""Lines and redraws with readings after which it stops in any case."""
LOOKED_AT = 10_000
"""Limit for the lines that look like progress, whether they have readings or not."""
REACH = 1 << 26
"""Bytes read at most from the end of the log (64 MiB)."""
FURTHER = 1 << 20
"""Further range in which a kind of line that is certainly training is searched [bytes]."""
ABOVE = 1 << 18
"""Further range in which a line that names the epoch is searched if steps do not [bytes]."""
LONG = 4000
"""Bytes examined of a longer line, at either end."""
REDRAWN = 1 << 15
"""Bytes examined at the end of a line with redraws."""

WORDED = 120
"""Characters at the start of a line whose words distinguish kinds of lines."""

_NO_WORD = re.compile(r"[\W\d_]+")
APART = 200
"""Range behind a bar in which its counter may be drawn [bytes]."""
_COUNTER = re.compile(rb" ?(\d{1,9})/(\d{1,9}) ?")
_EPOCH = [
    word.encode()
    for word in ("epoch", "époque", "época", "轮", "エポック", "에포크", "эпох", "Эпох")
]
Reader = Callable[[str], Sample | None]


def collect(
    file: LogFile, *, since: int = 0, reader: Reader = read_line, every_line: bool = False
) -> list[Sample]:
    """The samples of the lines, the newest first, until there are enough.

    Of each kind of line only the latest `ENOUGH` of each rank count, so that the bar of an
    evaluation at the end of a log does not hide the training before it. A bar that may be about
    anything does not end the search at once. Bytes before `since` are left out; with `every_line`,
    `reader` also gets lines that do not look like progress.
    """
    samples: list[Sample] = []
    parts: list[Part] = []
    counts: dict[tuple[str, str], int] = {}
    kinds: dict[tuple[str, str], tuple[Sample, Sample]] = {}
    read, drawn, within = 0, (0, 0, 0), None
    limit = max(since, file.size - REACH)
    lines = file.pieces_reversed() if every_line else file.matching_reversed(_candidate())
    for looked, (offset, data) in enumerate(lines):
        if offset < limit or read >= MOST or looked >= LOOKED_AT:
            break
        if within is not None and not _names_epoch(data) and samples[-1].group != EPOCH_ONLY:
            continue
        if alone := _COUNTER.fullmatch(data):
            drawn = offset, int(alone[1]), int(alone[2])
            continue
        for text, line in _shown(data, file):
            sample = reader(text)
            if 0 < drawn[0] - offset - len(data) < APART and sample is not None and sample.timed:
                _count_apart(sample, *drawn[1:])
            if sample is None:
                if reader is read_line and len(parts) < MOST and (part := read_part(text)):
                    parts.append(part._replace(offset=offset))
                continue
            read += 1
            kind = sample.group, line.stream  # each rank writes the same
            count = counts[kind] = counts.get(kind, 0) + 1
            newest, later = kinds.get(kind, (sample, sample))
            newest.again += (sample.iteration or 0) > (later.iteration or 0)
            kinds[kind] = newest, sample
            if count > ENOUGH and not (within == kind and samples[-1].group == EPOCH_ONLY):
                continue
            sample.offset, sample.time, sample.stream = offset, line.time, line.stream
            sample.wording = hash(_NO_WORD.sub("", text[:WORDED]))
            samples.append(sample)
            if within == kind:
                return samples  # where the epoch before it had ended
            if count == ENOUGH:
                clocked = sample.timed or line.time is not None or sample.elapsed_s is not None
                if clocked and (sample.surely_training or (sample.named and sample.timed)):
                    if sample.total is None or any(s.epoch is not None for s in samples):
                        return samples
                    within = kind  # of which epoch it says nothing: a line above may
                limit = max(limit, offset - (FURTHER if within is None else ABOVE))
    if parts:
        join(samples, parts)
    return samples


def _names_epoch(data: bytes) -> bool:
    low = data.lower()
    return any(word in low for word in _EPOCH)


def _shown(data: bytes, file: LogFile) -> Iterator[tuple[str, Line]]:
    """What a line displayed, the last redraw of a bar first."""
    redrawn = b"\r" in data.rstrip(b"\r")
    reach = REDRAWN if redrawn else LONG // 2
    data = data if len(data) <= LONG // 2 + reach else data[: LONG // 2] + b" " + data[-reach:]
    line = parse_line(data, 0, file.layout)
    yield line.text, line
    if redrawn:
        for text in line.refreshes[-2 : -ENOUGH - 1 : -1]:
            yield text[-LONG:], line


def _count_apart(sample: Sample, count: int, total: int) -> None:
    """Set the counter of a sample whose bar is followed by a counter of its own."""
    sample.iteration, sample.total = count, total
    sample.group = f"{sample.group.split(' of ')[0]} of {total}"


@cache
def _candidate() -> Any:
    """Whether a line may state progress; most lines of a log do not."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # any bytes, not only UTF-8
    return re2.compile(
        rb"(?im)\d\s?(?:it|iter|iters|step|steps|batch|s|sec) ?/|\d/\d+ ?[\])[(]|\d of \d"
        rb"|\b(?:loss|step|steps|iter|iters|iteration|iterations|epoch|batch|update|updates|trl"
        rb"|runtime|per_second|fps|timesteps|objective|s)\b(?: is)?\W{1,40}[-+]?[.\d]"
        rb"|(?:loss|step|iteration|iter|epoch|sec)[\"'_a-z)]{0,8}\s?[:=(\[|]\W{0,8}[-+]?[.\d]"
        rb"|\d\s?(?:ms|s|secs?|seconds?|iters?|iterations?|steps?|batches) per [ibs]"
        rb"|checkpoint-\d\d|global_step\d|\btimer?\b[a-z ()]{0,20}\s?[:=]\s?\d"
        rb"|\blr\W{1,4}\d|learning.rate\W{1,4}\d"
        rb"|\bup\. \d|train_(?:runtime|steps_per_second)\W|\d avg(?: loss)?,"
        rb"|\[\d{1,9}\]\s{1,4}[^\s:]{1,40}(?:'s [^\s:]{1,40})?: ?-?\d+\.\d|\d:\s{1,4}learn: \d"
        rb"|[\x80-\xff][^\d\n]{0,8}\d|^ ?\d{1,9}/\d{1,9} ?$",
        options,
    )
