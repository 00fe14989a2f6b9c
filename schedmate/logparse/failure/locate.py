"""Locates the first failure of a job over all its ranks.

`decide` gives one verdict on the events of all files: which came first and caused the others, and
what only followed from it. If ranks only report that they waited, it says for which rank, and what
that one was doing (`meanwhile.yaml`). torchelastic's error.json and the launcher's summary name the
first worker that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from schedmate.base.data import load
from schedmate.jobs import ErrorType, FaultyComponent
from schedmate.logparse.failure.examine import outlived_templates
from schedmate.logparse.failure.rules import EXCEPTION, RuleSet, Severity, deciding_rule, load_rules
from schedmate.logparse.failure.scan import Event, FileScan
from schedmate.logparse.failure.side import only_waits, passes_on
from schedmate.logparse.reading import ErrorFile, Line, Log, LogFile
from schedmate.logparse.reading.lines import seconds_apart
from schedmate.logparse.reading.storage import store
from schedmate.logparse.signs import signs
from schedmate.logparse.templates import mask


def decide(scans: list[FileScan], kernel: Iterable[Event] = ()) -> Verdict:
    """The first failure among all files of a job and, if given, the kernel logs of its nodes."""
    events = in_order([event for scan in scans for event in scan.events])
    summary = launcher_summary(events)
    if summary is not None:  # the launcher saw which worker was first
        events.sort(key=lambda event: event.rank != summary.rank)
    ranks = {scan.file.rank for scan in scans} - {None}
    verdict = judge(events, list(kernel), ranks)
    verdict.elastic = summary
    if verdict.root is not None and role_of(verdict.root) == "symptom":
        _before_the_symptoms(verdict, verdict.root, scans)
    return verdict


def _before_the_symptoms(verdict: Verdict, root: Event, scans: list[FileScan]) -> None:
    """What caused the ranks to lose each other, if a log states it.

    The ranks may wait in different collectives; the job may have been asked to end earlier, even if
    training continued for a while; or the missing rank was busy with something else.
    """
    symptoms = [root, *(event for event in verdict.cascade if role_of(event) == "symptom")]
    mismatch = collective_mismatch(symptoms)
    if mismatch is not None:
        verdict.root = replace(root, rule=load_rules().by_id[MISMATCHED_COLLECTIVES], rank=None)
        verdict.reason = f"the ranks wait for each other in different collectives, {mismatch}"
        return
    stops = [event for scan in scans for event in scan.background if role_of(event) == "stop"]
    stops = [event for event in stops if event.weight >= 1 and _shortly_before(event, root)]
    if stops:
        verdict.root, verdict.missing = stops[-1], []
        verdict.cascade = [root, *verdict.cascade]
        verdict.reason = "the job was told to end before its ranks lost each other"
        return
    if root.rule is not None and (root.rule.name == "NCCL Timeout" or _TIMED_OUT.search(root.text)):
        verdict.doing = activity_of_missing_rank(symptoms, verdict.missing, scans)


def _shortly_before(event: Event, symptom: Event) -> bool:
    gap = apart_s(event, symptom)
    if gap is not None:
        return -NOTICE_S <= gap <= 0
    return event.file is symptom.file and 0 < symptom.number - event.number <= NOTICE_LINES


_TIMED_OUT = re.compile(r"(?i:time[sd]?[- ]?out|waiting)")
MISMATCHED_COLLECTIVES = "nccl-desync"
NOTICE_S, NOTICE_LINES = 3600.0, 2000
"""A stop or notice explains lost peers if it is at most this old [s], or this many lines above."""


# What the rank that the others waited for was doing, by its last lines (`meanwhile.yaml`).


ACTIVITY_REACH = 400
"""Lines read above the first timeout."""


class Activity(NamedTuple):
    """A kind of work that others may wait for, and how to classify a failure during it."""

    id: str
    type: ErrorType
    component: FaultyComponent | None
    undecided: bool
    recurs: bool
    pattern: Any


class RankActivity(NamedTuple):
    """What a rank was doing, and the line that says so."""

    activity: Activity
    file: LogFile
    line: Line


def activity_of_missing_rank(
    symptoms: Sequence[Event], missing: Sequence[int], scans: Sequence[FileScan]
) -> RankActivity | None:
    """What a rank was doing while those of `symptoms` waited, or None if no line says.

    `missing` are the ranks that did not arrive, if known; otherwise any rank counts that reports no
    timeout itself.
    """
    reporters = {event.rank for event in symptoms} - {None}
    for scan in scans:
        here = [event.number for event in symptoms if event.file is scan.file]
        if scan.file.rank is not None and not _may_be(scan.file.rank, missing, reporters):
            continue
        last = min(here) - 1 if here else scan.attempt.last_line
        first = max(scan.attempt.first_line, last - ACTIVITY_REACH)
        lines = [
            line
            for line in scan.file.lines(first, last)
            # without a rank it is the first one's, which prints for all
            if scan.file.rank is not None or _may_be(line.rank or 0, missing, reporters)
        ]
        work = _last_work(lines)
        if work is not None and not _was_outlived(*work, scan):
            return RankActivity(work[0], scan.file, work[1])
    return None


def _was_outlived(activity: Activity, line: Line, scan: FileScan) -> bool:
    """Whether training continued after a line like this one, for work that is done only once."""
    if activity.recurs or scan.step is None:
        return False
    after = scan.file.line_number(scan.step.offset)
    if after > line.number:
        return False
    before = outlived_templates(
        scan.file, scan.attempt.first_line, after, lambda text: bool(activity.pattern.search(text))
    )
    return mask(line.text) in before


def _may_be(rank: int, missing: Sequence[int], reporters: set[int | None]) -> bool:
    return rank in missing if missing else rank not in reporters


def _last_work(lines: Sequence[Line]) -> tuple[Activity, Line] | None:
    """The last work that is not finished, unless training continued after it."""
    activities, over = _activities()
    for line in reversed(lines):
        text = line.text[:500]
        for activity in activities:
            if activity.pattern.search(text) is not None:
                return None if over.search(text) is not None else (activity, line)
        if over.search(text) or signs("progress").sign(text.encode("utf-8", "replace")):
            return None
    return None


def activity_named_in(text: str) -> Activity | None:
    """The kind of work that a line mentions, finished or not, or None."""
    return next(
        (activity for activity in _activities()[0] if activity.pattern.search(text[:500])), None
    )


@cache
def _activities() -> tuple[list[Activity], Any]:
    import re2

    data = load("logparse/failure/meanwhile.yaml")
    activities = [
        Activity(
            entry["id"],
            entry["type"],
            entry.get("component"),
            entry.get("undecided", False),
            entry.get("recurs", False),
            re2.compile(entry["pattern"]),
        )
        for entry in data["activities"]
    ]
    return activities, re2.compile(data["over"])


# The first worker that failed, by torchelastic's error.json or the launcher's summary.


def event_of_error_files(log: Log, rules: RuleSet) -> Event | None:
    """The earliest recorded exception of the last attempt that is a cause, or None."""
    events: list[Event] = []
    last = max(map(_attempt_of, log.error_files), default=0)
    for error in log.error_files:
        if _attempt_of(error) < last:
            continue
        texts = [*error.traceback.splitlines(), error.message]
        candidates = []
        for text in texts:
            if not text.strip() or text[0].isspace():
                continue
            candidates.append(rules.line(text))
            match = EXCEPTION.match(text)
            if match is not None:
                candidates.append(rules.exception(match["name"]))
        rule = deciding_rule(
            candidate
            for candidate in candidates
            if candidate is not None and candidate.role == "cause"
        )
        if rule is None:
            continue
        storage, _ = store(error.path, error.folder)
        file = LogFile(str(error.path), storage, error.path, error.rank)
        line = Line(1, error.message, error.rank, None, error.time, "", b"")
        events.append(
            Event(rule, file, 1, error.message, 1, (line,), error.rank, None, error.time, True)
        )
    return min(events, key=lambda event: (event.time is None, event.time or 0.0), default=None)


def _attempt_of(error: ErrorFile) -> int:
    """The attempt's folder in torchelastic's layout, RUN_ID/attempt_1/3/error.json."""
    numbers = [int(match[1]) for part in error.path.parts if (match := _ATTEMPT.fullmatch(part))]
    return numbers[-1] if numbers else 0


class LauncherSummary(NamedTuple):
    """The launcher's "Root Cause (first observed failure)"."""

    rank: int
    host: str | None


_ATTEMPT = re.compile(r"attempt_(\d{1,6})")
_ROOT_CAUSE = "Root Cause (first observed failure)"
SUMMARY_LINES = 12
"""Limit for the lines of a launcher summary."""
_RANK = re.compile(r"\s*rank\s*: (\d{1,6}) \(local_rank: \d+\)")
_HOST = re.compile(r"\s*host\s*: (\S+)")


def launcher_summary(events: Iterable[Event]) -> LauncherSummary | None:
    """The rank and host that the first launcher summary among `events` names, or None."""
    for event in events:
        if _ROOT_CAUSE not in event.text:
            continue
        first = event.known_at
        texts = [line.text for line in event.file.lines(first, first + SUMMARY_LINES)]
        ranks = [match for text in texts if (match := _RANK.match(text))]
        hosts = [match for text in texts if (match := _HOST.match(text))]
        if ranks:
            return LauncherSummary(int(ranks[0][1]), hosts[0][1] if hosts else None)
    return None


# Which event of a failed job came first and caused the others.
#
# A cause precedes its symptoms, whatever the order of the files. Of two causes the earlier one
# counts, by timestamp if both have one, unless the later one explains the earlier.


WRAPPERS = "Called Process Error"
"""The name of the error that a program raises when another program that it runs has failed."""
NO_COMMAND, NO_SUCH_COMMAND = "shell-no-command", "127"
"""The rule for a command that a shell does not find, and the exit code that says so."""
TOGETHER_LINES = 50
"""Limit for the lines between two reports of one failure."""
TOGETHER_S = 1.0
"""Limit for the time between two reports of one failure that are further apart [s]."""


@dataclass
class Verdict:
    """The event that decided (None if nothing failed), and the role of all others."""

    root: Event | None
    reason: str
    cascade: list[Event] = field(default_factory=list)
    hints: list[Event] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    doing: RankActivity | None = None
    elastic: LauncherSummary | None = None


def judge(events: list[Event], kernel: list[Event], ranks: set[int | None]) -> Verdict:
    """The verdict on the events of a job in order of time.

    `kernel` are those from the kernel logs of its nodes, `ranks` the ranks with files of their own.
    """
    kernel_causes = [event for event in kernel if role_of(event) == "cause" and event.weight >= 1]
    waits = [event for event in events if _only_waits(event)]
    ends = [event for event in events if _ends_waiting(event)]
    if not ends or any(role_of(event) == "cause" for event in ends):
        events = [event for event in events if event not in waits]
    hints = [event for event in [*events, *kernel] if role_of(event) == "hint"]
    causes = [event for event in events if role_of(event) == "cause"]
    symptoms = [event for event in events if role_of(event) == "symptom"]
    stops = [event for event in events if role_of(event) == "stop"]
    exits = [event for event in events if role_of(event) == "exit"]
    strong_causes = [event for event in causes if not event.bare]
    causes = strong_causes or causes
    # what a rank that had been waiting raised afterwards is no cause of its own
    causes = [event for event in causes if not _follows_same_rank(event, symptoms)] or (
        [] if symptoms else causes
    )
    # nor is what a wrapper raised because the program in it failed
    causes = [event for event in causes if not _of_wrapper(event)] or ([] if symptoms else causes)
    causes = [event for event in causes if not _passes_on(event)] or causes
    # nor a program that a script did without
    causes = [event for event in causes if not _did_without(event, [*causes, *exits])]
    # nor what calls itself a warning, where something louder followed
    causes, faint = _without_noise(causes, symptoms)
    failed = [*causes, *symptoms, *exits, *faint]
    stop = _earliest([event for event in stops if event.weight >= 1]) or _earliest(stops)
    if stop is not None and _stopped_first(stop, causes, symptoms, exits):
        return Verdict(
            stop, "the job was ended before anything failed", in_order([*failed, *stops]), hints
        )
    if kernel_causes and (causes or symptoms or exits):
        root = _explaining(kernel_causes, causes or symptoms or exits)
        if root is not None:
            return Verdict(root, "the kernel of the node reports it", cascade=failed, hints=hints)
    if causes:
        root = _root_of(causes)
        reason = "it is the first failure after which training did not continue"
        if any(is_before(event, root) for event in symptoms):
            reason = "it is a fault of its own; what stands before it was noticed by ranks in wait"
        others = [event for event in failed if event is not root]
        return Verdict(root, reason, cascade=others, hints=hints)
    if symptoms:
        root = symptoms[0]
        missing = missing_ranks(symptoms, ranks)
        reason = "nothing in the log says what brought it about"
        return Verdict(root, reason, cascade=[*symptoms[1:], *exits], hints=hints, missing=missing)
    if exits:
        return Verdict(
            exits[0],
            "the job ended with an error that the log does not show",
            cascade=exits[1:],
            hints=hints,
        )
    return Verdict(None, "no failure was found", hints=hints)


def _without_noise(causes: list[Event], symptoms: list[Event]) -> tuple[list[Event], list[Event]]:
    """The causes, without those that are noise beside more severe reports after them."""
    loud = [event for event in causes if not event.faint]
    if not loud:
        loud = [event for event in symptoms if event.level != Severity.INFO]
        if not loud or any(event.level != Severity.INFO for event in causes):
            return causes, []
        noise = [event for event in causes if any(is_before(event, other) for other in loud)]
    else:
        noise = [event for event in causes if event.faint]
    return [event for event in causes if event not in noise], noise


def first_report(root: Event, cascade: Sequence[Event]) -> int:
    """The first line in the same file that reports what the root event does."""
    return min(
        event.number
        for event in [root, *cascade]
        if event is root
        or (event.file is root.file and _are_together(event, root) and _same_report(root, event))
    )


def _are_together(event: Event, root: Event) -> bool:
    if event.number > root.number:
        return False
    gap = apart_s(root, event)
    if gap is not None and abs(gap) <= TOGETHER_S:  # a dump of an allocator is long
        return True
    return root.number - event.number <= TOGETHER_LINES


def _same_report(root: Event, event: Event) -> bool:
    if root.rule is None or event.rule is None:
        return False
    if root.rule.role == "stop":
        return event.rule.role == "stop" or event.rule.id in AFTER_ANY_STOP
    if root.rule.id in OF_A_LAUNCHER:  # it notices a death after the other ranks have
        return event.rule.role == "symptom"
    ranks = {root.rank, event.rank} - {None}
    return root.rule.name == event.rule.name and len(ranks) < 2


def in_order(events: list[Event]) -> list[Event]:
    """Earliest first: by timestamp if every file of the events has them, else by position."""
    files = {id(event.file): n for n, event in reversed(list(enumerate(events)))}
    if len(files) > 1:
        times = [event.time for event in events if event.time is not None]
        # from the latest, which has a year if any has
        gaps = {id(event): _gap(event.time, max(times, default=None)) for event in events}
        if None not in gaps.values():
            return sorted(
                events,
                key=lambda event: (gaps[id(event)] or 0.0, files[id(event.file)], event.number),
            )
    return sorted(events, key=lambda event: (files[id(event.file)], event.number))


def role_of(event: Event) -> str:
    """The role of an event's rule."""
    # a traceback whose exception no rule knows, or that is cut off, is a failure all the same
    return event.rule.role if event.rule is not None else "exit"


def _earliest(events: list[Event]) -> Event | None:
    return events[0] if events else None


def is_before(one: Event, other: Event) -> bool:
    """Whether one event is known to be earlier than the other."""
    if one.file is other.file:
        return one.number < other.number
    gap = apart_s(one, other)
    return gap is not None and gap < 0


def apart_s(one: Event, other: Event) -> float | None:
    """How much later one event is than another [s], or None without timestamps."""
    return _gap(one.time, other.time)


def _gap(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else seconds_apart(one, other)


def _only_waits(event: Event) -> bool:
    """Whether an event is a line that waits or tries again, which alone is no failure."""
    if event.traceback or role_of(event) not in ("cause", "symptom"):
        return False
    # a rank that names whom it waited for has given up
    return (role_of(event) == "cause" or not event.weight) and only_waits(event.text)


def _ends_waiting(event: Event) -> bool:
    """Whether an event shows that what others waited for failed, rather than goes on."""
    return role_of(event) not in ("hint", "benign") and not _only_waits(event)


def _of_wrapper(event: Event) -> bool:
    return event.rule is not None and event.rule.name == WRAPPERS


def _passes_on(event: Event) -> bool:
    """Whether an event, by its words, only passes on a failure that another one states."""
    if event.rule is None or not (event.rule.general or event.weight == 0):
        return False
    return passes_on(event.text)


def _did_without(event: Event, failed: list[Event]) -> bool:
    """Whether a script continued after a command was not found, until something else crashed."""
    if event.rule is None or event.rule.id != NO_COMMAND:
        return False
    return any(
        is_before(event, other) and _is_crash(other) and NO_SUCH_COMMAND not in other.text
        for other in failed
    )


def _is_crash(event: Event) -> bool:
    """Whether an event is an independent failure or a signal, not only an exit code."""
    rule = event.rule
    if role_of(event) == "cause":
        return rule is not None and rule.id != NO_COMMAND and rule.name != WRAPPERS
    return rule is None or rule.id == "torchelastic-signal-abort"


def _follows_same_rank(event: Event, symptoms: list[Event]) -> bool:
    """Whether a weak cause follows the same process's report that another one ended."""
    return event.weight == 0 and any(
        is_before(symptom, event)
        and symptom.rank == event.rank
        and (symptom.rank is not None or symptom.traceback)
        for symptom in symptoms
    )


def _stopped_first(
    stop: Event, causes: list[Event], symptoms: list[Event], exits: list[Event]
) -> bool:
    if stop.weight == 0:  # asked to end: by the launcher too, after another process failed
        own_exits = [
            event for event in exits if event.rule is None or event.rule.id not in ON_A_SIGNAL
        ]
        noticed = all(is_before(stop, event) for event in symptoms)
        return not causes and noticed and not any(is_before(event, stop) for event in own_exits)
    if any(is_before(cause, stop) or _untimed(cause, stop) for cause in causes):
        return False
    if any(cause.rule and stop.rule and stop.rule.name in cause.rule.explains for cause in causes):
        return False  # ended on purpose, and the node could not even do that
    if any(is_before(event, stop) for event in symptoms):
        return False
    decisive = [
        event for event in exits if event.rule is None or event.rule.id not in AFTER_ANY_STOP
    ]
    return not any(is_before(event, stop) for event in decisive)


# Exits that a job which is ended on purpose prints as well, in whatever order.
AFTER_ANY_STOP = frozenset(
    {
        *("slurm-aborted", "slurm-task-killed", "torchelastic-closing"),
        *("deepspeed-launcher-kill", "deepspeed-launcher-ends", "spawn-terminated"),
    }
)


# What a launcher that is asked to end does before it says so.
ON_A_SIGNAL = frozenset({"deepspeed-launcher-ends"})
# Reports of a launcher that one of its processes was killed or crashed.
OF_A_LAUNCHER = frozenset(
    {"torchelastic-signal-kill", "torchelastic-signal-segv", "torchelastic-signal-bus"}
)


def _untimed(one: Event, other: Event) -> bool:
    return one.file is not other.file and apart_s(one, other) is None


def _root_of(causes: list[Event]) -> Event:
    """The earliest cause, or a stronger one that claims to have caused it."""
    root = causes[0]
    for event in causes[1:]:
        rule, root_rule = event.rule, root.rule
        if rule is None or root_rule is None or event.weight <= root.weight:
            continue
        same = rule.name == root_rule.name and (
            event.rank == root.rank or None in (event.rank, root.rank)
        )
        if same or root_rule.name in rule.explains:
            root = event
    return root


def _explaining(kernel: list[Event], failed: list[Event]) -> Event | None:
    """The strongest fault in the kernel log that explains the job's first report."""
    first = failed[0]
    # one of a machine that the caller did not mean counts last
    for event in sorted(kernel, key=lambda event: (event.given_as is not None, -event.weight)):
        if event.rule is None or first.rule is None:
            continue
        gap = apart_s(event, first)
        if gap is not None and abs(gap) > AT_ONCE_S:
            continue
        if first.rule.role != "cause" or first.rule.id in OF_A_LAUNCHER:
            return event
        vague = first.weight == 0 and first.rule.name == "Runtime Error"
        if vague or first.rule.name in (event.rule.name, *event.rule.explains):
            return event
    return None


AT_ONCE_S = 3600.0
"""Events of the kernel log and the job log belong together within this time [s]."""


# Which rank others waited for: the one that reports no timeout.


_LAGGING = re.compile(
    r"\[(\d{1,6})\] (?:finished collective #\d+, but didn't join|joined but didn't)"
)
_NOT_PASSED = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")
_TASKS = re.compile(r"[Tt]imed out tasks?[^\n]{0,400}?task:(\d{1,6})\b")
_COLLECTIVE_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)")
_GROUP = re.compile(r"PG (?:ID|GUID) (\w+)")
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (\d{1,18})\b")
_SEQUENCE = re.compile(r"timeout: WorkNCCL\(SeqNum=(\d{1,18}), OpType=")


def missing_ranks(symptoms: list[Event], ranks: Iterable[int | None] = ()) -> list[int]:
    """The ranks that the others waited for, lowest first; none if unknown.

    They are those that the message names; else, if they are few, those below the highest rank that
    reported no timeout, or those of `ranks` (ranks with files of their own) that noticed nothing;
    else those whose count of collectives is behind.
    """
    named: set[int] = set()
    waiting: dict[int, int] = {}
    for event in symptoms:
        for line in event.lines:
            named.update(int(digits) for digits in _LAGGING.findall(line.text))
            named.update(int(digits) for digits in _TASKS.findall(line.text))
            for group in _NOT_PASSED.findall(line.text):
                named.update(int(digits) for digits in re.findall(r"\b\d{1,6}\b", group))
            match = _ENQUEUED.search(line.text) or _SEQUENCE.search(line.text)
            if match is not None and event.rank is not None:
                rank, sequence = event.rank, int(match[1])
                waiting[rank] = min(sequence, waiting.get(rank, sequence))
    if named:
        return sorted(named)
    if len(waiting) < 2:
        noticed = {event.rank for event in symptoms}
        silent = sorted(rank for rank in ranks if rank is not None and rank not in noticed)
        return silent if len(noticed) > 1 and len(silent) <= len(noticed) // 2 else []
    absent = sorted(set(range(max(waiting) + 1)) - set(waiting))
    if absent and len(absent) <= len(waiting) // 2:
        return absent
    behind = min(waiting.values())
    late = sorted(rank for rank, sequence in waiting.items() if sequence == behind)
    return late if behind != max(waiting.values()) and len(late) <= len(waiting) // 2 else []


def collective_mismatch(symptoms: list[Event]) -> str | None:
    """How ranks wait in different collectives under one sequence number, or None if they do not."""
    waiting: dict[tuple[str, str], dict[str, int]] = {}
    for event in symptoms:
        if event.rank is None:
            continue
        for line in event.lines:
            match = _COLLECTIVE_WORK.search(line.text)
            if match is not None:
                group = _GROUP.search(line.text)
                key = (group[1] if group else "", match[1])
                waiting.setdefault(key, {}).setdefault(match[2], event.rank)
    for (_, number), kinds in waiting.items():
        if len(kinds) > 1:
            who = " and ".join(f"rank {rank} in {kind}" for kind, rank in sorted(kinds.items()))
            return f"under number {number}, {who}"
    return None
