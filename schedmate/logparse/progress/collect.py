"""Collects what a log states about progress: samples from its end, facts from its beginning.

Lines are read from the end until there are enough samples. Counters and times on separate lines are
joined; logs that are tables are read by the names of their columns. What a log states once, at its
beginning, are the `Facts` of a run: its length, and the samples and tokens of a step.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from schedmate.base.data import load
from schedmate.logparse.numbers import LARGEST
from schedmate.logparse.progress.line import EPOCH_ONLY, Sample, is_about_something_else, read_line
from schedmate.logparse.progress.series import counter_rises
from schedmate.logparse.progress.words import DATE, labelled_numbers, meaning
from schedmate.logparse.reading import Line, LogFile, parse_line

ENOUGH = 60
"""Readings of one kind of line after which the tracker stops (N in the paper)."""
MOST_READINGS = 1500
"""Lines and redraws with readings after which it stops in any case."""
LOOKED_AT = 10_000
"""Limit for the lines that look like progress, whether they have readings or not."""
REACH = 1 << 26
"""Bytes read at most from the end of the log (64 MiB)."""
FURTHER = 1 << 20
"""Further range in which a kind of line that is certainly training is searched [bytes]."""
ABOVE = 1 << 18
"""Further range in which a line that names the epoch is searched if steps do not [bytes]."""
LONG_LINE = 4000
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
    file: LogFile,
    *,
    since: int = 0,
    reader: Reader = read_line,
    every_line: bool = False,
    enough: int = ENOUGH,
) -> list[Sample]:
    """The samples of the lines, the newest first, until there are enough.

    Of each kind of line only the latest `enough` of each rank count, so that the bar of an
    evaluation at the end of a log does not hide the training before it. A bar that may be about
    anything does not end the search at once. Bytes before `since` are left out; with `every_line`,
    `reader` also gets lines that do not look like progress.
    """
    samples: list[Sample] = []
    parts: list[LoneTime] = []
    counts: dict[tuple[str, str], int] = {}
    kinds: dict[tuple[str, str], tuple[Sample, Sample]] = {}
    read, drawn, within = 0, (0, 0, 0), None
    limit = max(since, file.size - REACH)
    most = max(MOST_READINGS, 2 * enough)
    lines = file.pieces_reversed() if every_line else file.matching_reversed(_candidate())
    for looked, (offset, data) in enumerate(lines):
        if offset < limit or read >= most or looked >= LOOKED_AT:
            break
        if within is not None and not _names_epoch(data) and samples[-1].group != EPOCH_ONLY:
            continue
        if alone := _COUNTER.fullmatch(data):
            drawn = offset, int(alone[1]), int(alone[2])
            continue
        for text, line in _redraws(data, file, enough):
            sample = reader(text)
            if 0 < drawn[0] - offset - len(data) < APART and sample is not None and sample.timed:
                _count_apart(sample, *drawn[1:])
            if sample is None:
                if reader is read_line and len(parts) < most and (part := read_lone_time(text)):
                    parts.append(part._replace(offset=offset))
                continue
            read += 1
            kind = sample.group, line.stream  # each rank writes the same
            count = counts[kind] = counts.get(kind, 0) + 1
            newest, later = kinds.get(kind, (sample, sample))
            newest.again += (sample.iteration or 0) > (later.iteration or 0)
            kinds[kind] = newest, sample
            if count > enough and not (within == kind and samples[-1].group == EPOCH_ONLY):
                continue
            sample.offset, sample.time, sample.stream = offset, line.time, line.stream
            sample.wording = hash(_NO_WORD.sub("", text[:WORDED]))
            samples.append(sample)
            if within == kind:
                return samples  # where the epoch before it had ended
            if count == enough:
                clocked = sample.timed or line.time is not None or sample.elapsed_s is not None
                if clocked and (sample.surely_training or (sample.named and sample.timed)):
                    if sample.total is None or any(s.epoch is not None for s in samples):
                        return samples
                    within = kind  # of which epoch it says nothing: a line above may
                limit = max(limit, offset - (FURTHER if within is None else ABOVE))
    if parts:
        join_lone_times(samples, parts)
    return samples


def _names_epoch(data: bytes) -> bool:
    low = data.lower()
    return any(word in low for word in _EPOCH)


def _redraws(data: bytes, file: LogFile, most: int) -> Iterator[tuple[str, Line]]:
    """What a line displayed, the last of at most so many redraws of a bar first."""
    redrawn = b"\r" in data.rstrip(b"\r")
    reach = REDRAWN if redrawn else LONG_LINE // 2
    data = (
        data
        if len(data) <= LONG_LINE // 2 + reach
        else data[: LONG_LINE // 2] + b" " + data[-reach:]
    )
    line = parse_line(data, 0, file.layout)
    yield line.text, line
    if redrawn:
        for text in line.refreshes[-2 : -most - 1 : -1]:
            yield text, line


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


# Logs that print the counter and its time on separate lines: the two are joined.


SHORT_LINE = 160
"""Limit for the characters of a line with a single time."""
TIME_DISTANCE = 2000
"""Limit for the distance between a counter and its time [bytes]."""
PAIRED_SHARE = 0.8
"""Share of the counters that must have a time of their own."""
FEWEST_PAIRS = 3


class LoneTime(NamedTuple):
    """A time alone on its line: its kind, value [s], and whether the line states the unit.

    `eta` [s] is the remaining time of the run if the same line states it.
    """

    quantity: str
    value: float
    stated: bool
    key: str
    eta: float | None = None
    offset: int = 0


def read_lone_time(text: str) -> LoneTime | None:
    """The time on a line that states nothing else, except the remaining time, or None."""
    if len(text) > SHORT_LINE or is_about_something_else(text):
        return None
    numbers = labelled_numbers(text)
    if not 1 <= len(numbers) <= 2 or numbers[0].bracketed:
        return None
    number, *more = numbers
    time_meaning = meaning(number.key, number.unit)
    if time_meaning is None or time_meaning[0] not in ("step_time", "time", "rate", "elapsed"):
        return None
    eta = None
    for second in more:
        left = meaning(second.key, second.unit)
        if left is None or left[0] != "eta":
            return None
        eta = second.value * left[1] if 0 <= second.value <= LARGEST else None
    value = number.value * time_meaning[1]
    if not 1 / LARGEST < value <= LARGEST:
        return None
    return LoneTime(
        time_meaning[0], value, time_meaning[2] or number.clock, number.key.lower(), eta
    )


def join_lone_times(samples: list[Sample], parts: list[LoneTime]) -> None:
    """Give samples with a counter, the newest first, the times on lines near them.

    Only if the samples of one kind have no time, and nearly each has one of the same name, on the
    same side and before the next counter.
    """
    kinds: dict[str, list[LoneTime]] = {}
    for part in sorted(parts, key=lambda part: part.offset):
        kinds.setdefault(part.key, []).append(part)
    groups: dict[str, list[Sample]] = {}
    for sample in reversed(samples):
        if sample.iteration is not None:
            groups.setdefault(sample.group, []).append(sample)
    for group in groups.values():
        if len(group) < FEWEST_PAIRS or any(s.timed or s.elapsed_s is not None for s in group):
            continue
        if not counter_rises(group):
            continue
        for times in sorted(kinds.values(), key=lambda kind: kind[0].quantity != "step_time"):
            pairs = _pair_times(group, times)
            if pairs is not None:
                for sample, part in pairs:
                    _give_time(sample, part)
                break


def _pair_times(group: list[Sample], parts: list[LoneTime]) -> list[tuple[Sample, LoneTime]] | None:
    """Each sample with the part after it, or each with the one before it; None if neither fits."""
    places = [part.offset for part in parts]
    starts = [sample.offset for sample in group]
    after: list[tuple[Sample, LoneTime]] = []
    before: list[tuple[Sample, LoneTime]] = []
    for index, sample in enumerate(group):
        at = bisect_left(places, sample.offset)
        following = starts[index + 1] if index + 1 < len(starts) else sample.offset + TIME_DISTANCE
        preceding = starts[index - 1] if index else sample.offset - TIME_DISTANCE
        if at < len(parts) and places[at] < min(following, sample.offset + TIME_DISTANCE):
            after.append((sample, parts[at]))
        if at and places[at - 1] > max(preceding, sample.offset - TIME_DISTANCE):
            before.append((sample, parts[at - 1]))
    fitting = [
        pairs
        for pairs in (after, before)
        if len(pairs) >= max(FEWEST_PAIRS, PAIRED_SHARE * len(group))
    ]
    if not fitting:
        return None
    # where they alternate, one of both sides leaves the last or the first counter without a time
    return max(
        fitting, key=lambda pairs: (len(pairs), -median(abs(s.offset - p.offset) for s, p in pairs))
    )


def _give_time(sample: Sample, part: LoneTime) -> None:
    sample.eta_s = part.eta if sample.eta_s is None else sample.eta_s
    if part.quantity == "elapsed":
        sample.elapsed_s = part.value
        return
    sample.step_time_s = 1 / part.value if part.quantity == "rate" else part.value
    sample.bare, sample.unit = part.quantity == "time", part.stated or part.quantity == "rate"


# Logs that are tables: one line names the columns, and the lines below have only cells.


WIDEST = 200
"""A line with more columns is data, not the head of a table."""
_SPLITS: dict[str, Callable[[str], list[str]]] = {
    ",": lambda text: text.split(","),
    "\t": lambda text: text.split("\t"),
    ";": lambda text: text.split(";"),
    "|": lambda text: text.strip("| \t│┃").replace("│", "|").replace("┃", "|").split("|"),
    "  ": lambda text: re.split(r"\s{2,}", text.strip()),
    " ": lambda text: text.split(),
}
_COUNTS = re.compile(r"(?i)\b(?:epoch|step|iter|iteration|batch|update|ep|it)s?\b|_step|step_")
_CELL = re.compile(r"[-+]?[\d.,:/]+(?:[eE][-+]?\d+)?\s?(?:%|\w{1,4})?|nan|inf|-?")
_LEVEL = re.compile(r"^\W*(?:INFO|DEBUG)\W+")
_PREFIX = 60
"""Characters in which the time and the level of a line have to be."""
_NAME = re.compile(r"[^\W\d_].{0,40}|#", re.DOTALL)


class Table(NamedTuple):
    """The columns of a table, and the separator of its cells."""

    names: tuple[str, ...]
    split: str

    def read(self, text: str) -> Sample | None:
        """The sample stated by a row; None for any other line."""
        cells = _cells(_without_stamp(text), " " if self.split == "  " else self.split)
        if len(cells) != len(self.names):
            return None
        filled = [(name, cell) for name, cell in zip(self.names, cells, strict=True) if cell]
        if sum(_CELL.fullmatch(cell) is not None for _, cell in filled) <= len(filled) / 2:
            return None
        sample = read_line("; ".join(f"{name}: {cell}" for name, cell in filled))
        if sample is not None:
            sample.group = f"table {sample.group}"
        return sample


def find_table(file: LogFile) -> Table | None:
    """The last table head near the beginning of a log, with a column that counts."""
    last_table = None
    lines = [
        _without_stamp(parse_line(raw, 0, file.layout).text)
        for raw in file.read(0, HEAD).splitlines()
        if raw.strip()
    ]
    for line, below in pairwise([*lines, ""]):
        if _COUNTS.search(line) is None:
            continue
        for split in _SPLITS:
            names = _cells(line, split)
            if 2 <= len(names) <= WIDEST and all(map(_NAME.fullmatch, names)) and _is_head(names):
                table = Table(tuple(names), split)
                if table.read(below) is not None or _is_ruling(below):
                    last_table = table
                    break
    return last_table


def _without_stamp(text: str) -> str:
    """A line without its timestamp and level."""
    return _LEVEL.sub("", DATE.sub("", text[:_PREFIX])) + text[_PREFIX:]


def _cells(text: str, split: str) -> list[str]:
    return [cell.strip().strip("\"'") for cell in _SPLITS[split](text)]


def _is_head(names: list[str]) -> bool:
    """Whether one column counts and another one is a quantity of training."""
    quantities = {known[0] for name in names if (known := meaning(name, "")) is not None}
    return bool(quantities & {"iteration", "epoch"}) and len(quantities) > 1


def _is_ruling(text: str) -> bool:
    return bool(text) and not set(text) - set("-=+|: ─━═┼╪│┃+")


# Facts that a log states once at its beginning: run length, samples and tokens of a step.


HEAD = 1 << 18
"""Bytes of the beginning that are searched (256 KiB)."""

ENDLESS = 1 << 40
"""A number at least this large means that there is no limit."""
SILENT = 10
"""Fewer words than this mean that a log has only bars, as the standard error of a job."""
_UNANIMOUS = frozenset(["plain_batch", "devices", "accumulation", "length"])
"""Facts that count only if all statements of them agree."""
_WORD = re.compile(rb"[A-Za-z]{4,}")


@dataclass
class Facts:
    """Facts about a whole run; None if the log does not state them."""

    total_iterations: int | None = None
    total_epochs: int | None = None
    batch: int | None = None
    """Samples of a step, over all devices."""
    device_batch: int | None = None
    devices: int | None = None
    accumulation: int | None = None
    """Micro-batches of a step."""
    plain_batch: int | None = None
    """A batch size that may be that of a step, as nothing indicates several devices."""
    parallel: int | None = None
    """Devices that share one copy of the model."""
    distributed: bool = False
    """Whether anything at its beginning indicates several processes."""
    length: int | None = None
    """Tokens of a sample, if all samples have the same number."""
    tokens: int | None = None
    first_epoch: int = 1
    speaks: bool = False
    """Whether the log's beginning or end mentions training, or the log has no words at all."""


@cache
def _fact_patterns() -> dict[str, Any]:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = False
    joined = {
        name: "|".join(f"(?:{one['pattern']})" for one in entries)
        for name, entries in load("logparse/progress/facts.yaml").items()
    }
    return {
        name: re2.compile(f"(?m){pattern}".encode(), options) for name, pattern in joined.items()
    }


def read_facts(file: LogFile) -> Facts:
    """The facts that the beginning of a log states; the first statement counts."""
    head = file.read(0, HEAD)
    facts = Facts()
    for name, pattern in _fact_patterns().items():
        if name == "speaks":
            tail = file.read(max(0, file.size - HEAD), HEAD)
            silent = len(_WORD.findall(head)) < SILENT
            facts.speaks = silent or bool(pattern.search(head) or pattern.search(tail))
        elif name == "distributed":
            facts.distributed = pattern.search(head) is not None
        elif name in _UNANIMOUS:
            numbers = {_stated_number(match) for match in pattern.finditer(head)}
            setattr(facts, name, numbers.pop() if len(numbers) == 1 else None)
        elif match := pattern.search(head):
            setattr(facts, name, _stated_number(match))
    _work_out_batch(facts)
    return facts


def _stated_number(match: Any) -> int | None:
    digits = next(group for group in match.groups() if group).replace(b",", b"")
    return int(digits) if len(digits) < len(str(ENDLESS)) else None


def _work_out_batch(facts: Facts) -> None:
    """The batch of a step from that of each device; None if the number of devices is unknown."""
    one = facts.devices in (None, 1) and (facts.devices == 1 or not facts.distributed)
    if not one or (facts.accumulation or 1) > 1:
        facts.plain_batch = None
    if facts.batch is None and facts.device_batch and facts.devices and not facts.parallel:
        facts.batch = facts.device_batch * facts.devices * (facts.accumulation or 1)
    samples = facts.batch or facts.plain_batch
    if facts.tokens is None and samples and facts.length:
        facts.tokens = samples * facts.length
