"""Diagnoses a job from its log: read, locate, classify, plan.

`diagnose` scans all files, lets the rules decide what failed first, and corrects their verdict
where other evidence says more: the wording of the trouble in which a log ends, the numbers in a
message about GPU memory, a loss that is NaN or infinite up to the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.base.errors import UsageError
from schedmate.base.inputs import host_name
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure.describe import describe
from schedmate.logparse.failure.examine import (
    Examined,
    Healthy,
    Locator,
    examine,
    outlived_templates,
)
from schedmate.logparse.failure.locate import WRAPPERS, Verdict, decide, event_of_error_files
from schedmate.logparse.failure.node_side import node_events, warn_of_misplaced, warn_of_unheeded
from schedmate.logparse.failure.rules import (
    Rule,
    RuleSet,
    Subsystem,
    failed_subsystem,
    has_letter_level,
    is_grave,
    is_mild,
    load_rules,
    speaks_of_trouble,
)
from schedmate.logparse.failure.runs import incidents, outcomes, set_aside_handled
from schedmate.logparse.failure.scan import Event, FileScan, event_at
from schedmate.logparse.failure.side import only_waits
from schedmate.logparse.reading import Attempt, Line, Log, LogFile, open_log
from schedmate.logparse.reading.lines import origin_of_file, plain, split_prefix
from schedmate.logparse.signs import last_sign, signs
from schedmate.logparse.templates import mask

_NON_FINITE = re.compile(r"(?i:\b(?:nans?|infs?|infinit(?:y|e)|non-finite|not finite)\b)")
_NO_MESSAGE = re.compile(r"\s|Traceback|During handling|The above exception")
VAGUE_ERRORS = frozenset({"Value Error", "Assertion Error"})
"""Exceptions that programs also raise after a failed connection or file system."""
MESSAGE_LINES = 4
"""Further lines of an exception's message that may name the cause."""


@contextmanager
def open_job(paths: Sequence[Path | str], *, follow_links: bool = False) -> Iterator[Log]:
    """The logs at `paths` as those of one job; each is what `open_log` takes.

    Raises `LogError` when one cannot be read.
    """
    with ExitStack() as stack:
        logs = [stack.enter_context(open_log(path, follow_links=follow_links)) for path in paths]
        files = [file for log in logs for file in log.files]
        _name_ranks(files)
        yield Log(
            logs[0].name,
            files,
            [error for log in logs for error in log.error_files],
            [warning for log in logs for warning in log.warnings],
        )


def _name_ranks(files: list[LogFile]) -> None:
    """Set ranks from the names of the files, if those are distinct."""
    named = {
        file.name: origin_of_file(file.path, file.path.parent).rank
        for file in files
        if file.path is not None and file.rank is None
    }
    ranks = set(named.values())
    if len(files) > 1 and len(ranks) == len(files) and None not in ranks:
        for file in files:
            file.rank = named[file.name]


def diagnose(
    log: Log,
    *,
    node_logs: Sequence[Log] = (),
    nodes: Sequence[str] = (),
    healthy: Sequence[Log] = (),
    locator: Locator = "auto",
) -> Diagnosis:
    """The first failure in the last attempt of a job (SchedMate paper, section 3.3).

    `node_logs` are kernel logs of its nodes (dmesg, syslog); `nodes` are the names of the job's
    nodes, as far as the caller knows them. Only evidence from a node's own log can take a node out
    of service. Lines that also appear in a `healthy` run of the same workload are no evidence.
    Raises `LogError` if a file becomes unreadable, `UsageError` for an invalid host name.
    """
    for node in nodes:
        if host_name(node) is None:
            raise UsageError(
                f"{node!r} is not the name of a node; give names as the scheduler has."
            )
    rules = load_rules()
    kernel = node_events(node_logs, nodes, rules)
    judged = judge_job(log, kernel=kernel, healthy=healthy, locator=locator)
    verdict, examined = judged.verdict, judged.examined
    warnings = [*log.warnings, *warn_of_misplaced(kernel), *warn_of_unheeded(kernel, verdict.root)]
    found = describe(
        verdict, examined, root_by_rules=judged.by_rules, nodes=nodes, warnings=warnings
    )
    parts = {"runs": outcomes(examined, rules), "incidents": incidents(examined.scans)}
    return found.model_copy(update=parts)


class Judged(NamedTuple):
    """What a job's log shows: the verdict, what was examined, and the event by the rules alone."""

    verdict: Verdict
    examined: Examined
    by_rules: Event | None


def judge_job(
    log: Log,
    *,
    kernel: Sequence[Event] = (),
    healthy: Sequence[Log] = (),
    locator: Locator = "auto",
    only: Attempt | None = None,
) -> Judged:
    """The one reading of a job's log, or of a part, that diagnosis and progress both follow."""
    rules = load_rules()
    examined = examine(log, rules, Healthy(healthy), locator, only)
    scans = examined.scans
    elastic = event_of_error_files(log, rules)
    verdict = (
        Verdict(elastic, "torchelastic recorded it first") if elastic else decide(scans, kernel)
    )
    root_by_rules = verdict.root
    if not kernel:
        verdict = set_aside_handled(verdict, scans)
    if verdict.root is root_by_rules:  # else what failed was caught
        verdict = _by_wording(verdict, scans, rules)
    if verdict.root is not None:
        at = next((scan for scan in scans if scan.file is verdict.root.file), None)
        verdict.root = replace(verdict.root, rule=rule_by_memory_use(verdict.root, at, rules))
    return Judged(_of_the_loss(verdict, scans, rules), examined, root_by_rules)


def _of_the_loss(verdict: Verdict, scans: list[FileScan], rules: RuleSet) -> Verdict:
    """`verdict`, corrected if the training loss was NaN or infinite up to the end of the log."""
    root = verdict.root
    for scan in scans:
        line = non_finite_loss_from(scan)
        if line is None:
            continue
        rule = rules.by_id[DIVERGED]
        event = event_at(rule, scan.file, (line,), line)
        if root is None or (root.file is scan.file and _NON_FINITE.search(root.text)):
            reason = "from this line to the end the loss is NaN or infinite"
            return Verdict(event, reason, [] if root is None else [root, *verdict.cascade])
        verdict.hints.insert(0, event)
        verdict.reason += f"; the loss is NaN or infinite from line {line.number} on"
        return verdict
    return verdict


def _by_wording(verdict: Verdict, scans: list[FileScan], rules: RuleSet) -> Verdict:
    """`verdict`, corrected by the wording of lines if no rule says more than that it failed."""
    root = verdict.root
    if root is None or root.rule is None or root.faint or _only_reports(root.rule):
        ending = find_suspect(scans, rules)
        unsaid = root is not None and (root.rule is None or root.rule.role == "exit")
        if unsaid and (ending is None or ending.rule is None):
            # that it failed is certain: a warning may then say of what
            ending = find_suspect(scans, rules, mild=True) or ending
        if ending is not None and _outweighs(ending, root):
            verdict = Verdict(
                ending,
                "no rule knows the line; its wording says so",
                cascade=[] if root is None else [root, *verdict.cascade],
                hints=verdict.hints,
            )
    elif root.rule.general or _is_vague(root.rule):
        # an exception's name does not say whose fault it is, its words may
        subsystem = _infrastructure_named_by(root)
        if subsystem is not None and (
            root.rule.general or subsystem.component in ("network", "storage")
        ):
            verdict.root = replace(root, rule=subsystem)
    return verdict


def _infrastructure_named_by(event: Event) -> Subsystem | None:
    """The infrastructure component that an exception's message reports as failed."""
    message = [event.text]
    if event.traceback:
        after = (line.text for line in event.lines if line.number > event.known_at)
        message += [text for text in after if not _NO_MESSAGE.match(text)][:MESSAGE_LINES]
    subsystems = (failed_subsystem(text) for text in message)
    return next(
        (subsystem for subsystem in subsystems if subsystem and subsystem.type == "infrastructure"),
        None,
    )


def _is_vague(rule: Rule) -> bool:
    return rule.exception is not None and rule.name in VAGUE_ERRORS


def _only_reports(rule: Rule) -> bool:
    """Whether a rule's line only reports that something else failed."""
    return rule.role in ("exit", "symptom") or rule.name == WRAPPERS


def _outweighs(ending: Event, root: Event | None) -> bool:
    """Whether trouble without a rule takes precedence over the event of a rule."""
    if root is None:
        return True
    if root.faint or (root.rule is not None and root.rule.name == WRAPPERS):
        # that something ended is known already
        return is_grave(ending.text) and (ending.rule is not None or has_letter_level(ending.text))
    if root.rule is not None and root.rule.role != "exit":  # noticed by others, later
        earlier = ending.file is root.file and ending.number < root.number
        return earlier and ending.rule is not None
    return ending.rule is not None


# If no rule matches the failure: the first line of the trouble in which a log ends, and the
# subsystem that this line names.


LAST_LINES = 15
"""Trouble counts if it is among this number of last lines."""
LINES_ABOVE = 200
"""Lines above the end of the log that are read for the beginning of such trouble."""
LINES_BETWEEN = 15
"""Limit for other lines between two that report the same trouble."""
OUTRIGHT_LINES = 4
"""Number of last lines that may report a failure without a level, in a log without training."""
LONGEST_REPORT = 500
"""Longer lines are prose, configurations or data [characters]."""
NEAR_LINES = 3
"""Limit for the lines between the first line of a report and the one that names the subsystem."""

# A frame of a stack trace or other decoration: not text that a log ends in.
_STACK_FRAME = re.compile(
    r"\s|#?\d+:? |\[?(?:0x)?[0-9a-f]{8,}|@ |File \"|at \w|={3,}|-{3,}|\*{3}|[^\s(]++\(.*\[0x"
)
# An exception; its traceback is reported separately.
_RAISED = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception): ")
_FENCE = re.compile(r"(?<!-)-{40,}+\s*+$")
_SENTENCE = re.compile(r"\. |: |\.$")
_SUCCESS = re.compile(r"\bsuccess(?:ful|fully)?\b", re.IGNORECASE)


def find_suspect(scans: list[FileScan], rules: RuleSet, *, mild: bool = False) -> Event | None:
    """The first line of the trouble in which any of the files ends.

    Its rule is the subsystem that it names, or None. With `mild`, lines of a level below error
    count if they concern infrastructure. Lines before the last progress do not count, nor do those
    of a log whose job completed, those that match a rule (such as noise) and, if there are others,
    those like one that training continued after.
    """
    suspects = [
        event for scan in scans if (event := _suspect_of_file(scan, rules, mild)) is not None
    ]
    return min(
        suspects,
        key=lambda event: (event.rule is None, event.time is None, event.time or 0.0),
        default=None,
    )


def _suspect_of_file(scan: FileScan, rules: RuleSet, mild: bool) -> Event | None:
    """The first line of the trouble in which one file ends, or None; see `find_suspect`."""
    file, attempt = scan.file, scan.attempt
    if scan.finished:
        return None
    first = max(attempt.first_line, attempt.last_line - LINES_ABOVE)
    start = file.line_offset(first)
    step = last_sign("progress", file, start, attempt.end)
    after = file.line_number(step.offset) if step is not None else 0
    lines = list(file.lines(max(first, after + 1), attempt.last_line))
    report = _fenced(lines)
    trouble = _burst(lines, rules, mild)
    if report and (is_mild(report[0].text) or not speaks_of_trouble(_joined(report))):
        trouble = [line for line in trouble if line.number < report[0].number]
        report = []
    if not trouble:
        return None
    if any(_SUCCESS.search(line.text) for line in lines if line.number > trouble[-1].number):
        return None
    if after:
        usual = outlived_templates(file, attempt.first_line, after, speaks_of_trouble)
        trouble = [line for line in trouble if mask(line.text) not in usual] or trouble
    for line in trouble:
        rule = failed_subsystem(line.text) if rules.line(line.text) is None else None
        loud = _states_trouble(line) or (
            is_grave(line.text) if after else _states_failure(line, attempt.last_line)
        )
        if rule is not None and (rule.type == "infrastructure" or loud):
            near = [
                up
                for up in trouble
                if up is line
                or (0 <= line.number - up.number <= NEAR_LINES and not _RAISED.match(up.text))
            ]
            if line in report:
                near = report[: report.index(line) + 1]
            return event_at(rule, file, tuple(near), line)
    ends = [
        line
        for line in trouble
        if _states_trouble(line) and line.number >= attempt.last_line - LAST_LINES
    ]
    if ends or after:
        return event_at(None, file, (ends[0],), ends[0]) if ends else None
    # without any training, what the very last lines say is the result
    if report:
        if any(rules.line(line.text) is not None for line in report):
            return None  # a rule has judged it
        return event_at(
            failed_subsystem(_SENTENCE.split(_joined(report))[0]), file, (report[0],), report[0]
        )
    ends = [line for line in trouble if _states_failure(line, attempt.last_line)]
    return event_at(None, file, (ends[0],), ends[0]) if ends else None


def _fenced(lines: Sequence[Line]) -> list[Line]:
    """The lines between two rows of dashes at the end of a log, if it ends so.

    Open MPI writes such reports: sentences over several lines that only together state what
    happened.
    """
    fences = [n for n, line in enumerate(lines) if _FENCE.match(line.text)]
    if len(fences) < 2 or any(_has_text(line) for line in lines[fences[-1] :]):
        return []
    return [line for line in lines[fences[-2] : fences[-1]] if _has_text(line)]


def _joined(report: Sequence[Line]) -> str:
    return " ".join(line.text.strip() for line in report)


def _states_failure(line: Line, last: int) -> bool:
    """Whether one of the very last lines states outright that something failed."""
    if line.number <= last - OUTRIGHT_LINES or len(line.text) > LONGEST_REPORT:
        return False
    return signs("failed").sign(line.text.encode("utf-8", "replace")) is not None


def _states_trouble(line: Line) -> bool:
    return signs("trouble").sign(line.text.encode("utf-8", "replace")) is not None


def _has_text(line: Line) -> bool:
    return bool(line.text.strip()) and _STACK_FRAME.match(line.text) is None


def _burst(lines: Sequence[Line], rules: RuleSet, mild: bool) -> list[Line]:
    """The last lines that report trouble, with few others in between.

    Read from the end, since most logs do not end in trouble.
    """
    trouble: list[Line] = []
    quiet = 0
    for line in reversed(lines):
        if trouble and trouble[-1].number - line.number > LINES_BETWEEN:
            break
        if _reports_trouble(line, rules, mild):
            trouble.append(line)
        elif not trouble:
            quiet += _has_text(line)
            if quiet > LAST_LINES:
                break
    return trouble[::-1]


def _reports_trouble(line: Line, rules: RuleSet, mild: bool) -> bool:
    if not speaks_of_trouble(line.text) or only_waits(line.text):
        return False
    if is_mild(line.text):
        named = failed_subsystem(line.text) if mild else None
        if named is None or named.type != "infrastructure":
            return False
    rule = rules.line(line.text)
    return rule is None or rule.role not in ("benign", "hint")


# Which processes hold the memory of a full GPU, by the numbers in the error message.


TAKEN, FITS = "gpu-memory-taken", "cuda-oom"
SHARE_OF_OTHERS = 0.1
"""Share of a GPU's memory that a driver, a display and other contexts may take."""
LINES_AT_START = 2000
"""Lines at the beginning of an attempt that may state how full the GPU was then."""
_UNITS = {"": 1.0, "B": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_SIZE = r"(\d+(?:\.\d+)?) ?([KMGT]?)i?B?"
_ASKED_SIZE = re.compile(rf"(?i:tried to allocate|trying to allocate|allocate request for) {_SIZE}")
_TOTAL_SIZE = re.compile(rf"total capacity of {_SIZE}|; {_SIZE} total capacity")
_FREE_SIZE = re.compile(rf"of which {_SIZE} is free|; {_SIZE} free")
_OWN_SIZE = re.compile(rf"this process has {_SIZE}|; {_SIZE} reserved in total")
_ALLOCATED_SIZE = re.compile(rf"; {_SIZE} already allocated")
_OTHERS_SIZE = re.compile(rf"Process \d+ has {_SIZE} memory in use")
# TensorFlow when it opens the card, and the table of nvidia-smi
_AT_FIRST = re.compile(rf"(?i)total_?memory: {_SIZE},? free_?memory: {_SIZE}")
_TABLE = re.compile(r"\| +(\d+)MiB +/ +(\d+)MiB +\|")


class MemoryUse(NamedTuple):
    """Memory of one GPU [bytes]; `others` is the memory of processes besides this one."""

    total: float
    others: float
    lacking: float

    @property
    def taken(self) -> bool:
        """Whether the job would have fitted without the other processes."""
        return self.others > SHARE_OF_OTHERS * self.total and self.lacking <= self.others


def rule_by_memory_use(event: Event, scan: FileScan | None, rules: RuleSet) -> Rule | None:
    """The rule for a GPU memory error, according to which process holds the memory."""
    rule = event.rule
    if rule is None or rule.name != "Out of Memory":
        return rule
    use = stated_use(" ".join(line.text for line in event.lines))
    if use is None and scan is not None and "alloc" in event.text.lower():
        last = min(scan.attempt.first_line + LINES_AT_START, event.number)
        start = scan.file.chunks(scan.attempt.offset, scan.file.line_offset(last + 1))
        use = initial_use(plain(raw) for chunk in start for raw in chunk.data.split(b"\n"))
    if use is None:
        return rule
    if use.taken:
        return rules.by_id[TAKEN]
    return rules.by_id[FITS] if rule.id == TAKEN else rule


def stated_use(text: str) -> MemoryUse | None:
    """The numbers in a message of PyTorch, or None if some are missing."""
    total, free, asked = (
        _first_size(_TOTAL_SIZE, text),
        _first_size(_FREE_SIZE, text),
        _first_size(_ASKED_SIZE, text),
    )
    if total is None or free is None:
        return None
    others = sum(_in_bytes(*sizes) for sizes in _OTHERS_SIZE.findall(text))
    if not others:
        own = _first_size(_OWN_SIZE, text)
        own = own if own is not None else _first_size(_ALLOCATED_SIZE, text)
        others = max(0.0, total - free - own) if own is not None else 0.0
    return MemoryUse(total, others, max(0.0, (asked or 0.0) - free))


def initial_use(texts: Iterable[str]) -> MemoryUse | None:
    """How full the GPU was when the program opened it, or None if unknown."""
    for text in texts:
        match = _AT_FIRST.search(text)
        if match is not None:
            total, free = _in_bytes(match[1], match[2]), _in_bytes(match[3], match[4])
            return MemoryUse(total, total - free, 0.0)
        match = _TABLE.search(text)
        if match is not None:
            used, total = float(match[1]), float(match[2])
            return MemoryUse(total, used, 0.0) if used > total / 2 else None
    return None


def _first_size(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None][:2]
    return _in_bytes(number, unit)


def _in_bytes(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit.upper()]


# The line from which on the training loss is NaN or infinite, up to the end of the log.


DIVERGED = "anomaly-nan"
"""The id of the rule for such a loss."""
FEWEST_READINGS = 2
"""Minimum number of readings that are NaN or infinite, with no finite one after them."""
MOST_READINGS = 200_000
"""Limit for the readings examined, from the end."""
LAST_READINGS = 64
"""Number of last readings among which each rank is taken to have one."""
_VALUE = r"(?:tensor\()?['\"]?(?:[-+]?(?:nan|inf(?:inity)?)\b|-?\d)"
# The loss that is trained on: neither a validation's nor one of several parts.
_LOSS = re.compile(
    r"(?i)(?<![\w/])(?:(?:train|training|lm|total|avg|mean|batch|step)[ _/-]?)?loss['\"]?"
    r"(?: \([\w ]+\))?\s?[:=|]?\s{0,12}(?:tensor\()?['\"]?"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?)\b|-?\d)"
)


def non_finite_loss_from(scan: FileScan) -> Line | None:
    """The first line from which on every training loss of a rank is NaN or infinite, or None."""
    readings = _loss_readings(scan)
    latest = list(islice(readings, LAST_READINGS))
    if _loss_patterns()[1].search(b"\n".join(data for _, data in latest)) is None:
        return None
    lost: dict[int | None, int] = {}
    counts: Counter[int | None] = Counter()
    well: set[int | None] = set()
    for n, (offset, data) in enumerate(chain(latest, readings)):
        if n >= MOST_READINGS or (n >= LAST_READINGS and not lost.keys() - well):
            break
        text = plain(data)
        match = _LOSS.search(text)
        if match is None:
            continue
        rank = split_prefix(text, scan.file.layout)[0].rank
        if rank in well:
            continue
        if match["value"].lstrip("-").isdigit():
            well.add(rank)
        else:
            lost[rank] = offset
            counts[rank] += 1
    firsts = [offset for rank, offset in lost.items() if counts[rank] >= FEWEST_READINGS]
    if not firsts:
        return None
    number = scan.file.line_number(min(firsts))
    return next(scan.file.lines(number, number), None)


def _loss_readings(scan: FileScan) -> Iterator[tuple[int, bytes]]:
    """Position and text of the lines that state a loss in the attempt, from its end."""
    for piece in scan.file.matching_reversed(_loss_patterns()[0]):
        if piece.offset < scan.attempt.offset:
            return
        if piece.offset < scan.attempt.end:
            yield piece.offset, piece.data


@cache
def _loss_patterns() -> tuple[Any, Any]:
    """What a line that states a loss has, and one whose loss may be no number."""
    import re2

    stated = rf"(?i)loss['\"]?(?: \([\w ]+\))?\s?[:=|]?\s{{0,12}}{_VALUE}"
    return re2.compile(stated.encode()), re2.compile(rb"(?i)(?:nan|inf|infinity)\b")
