"""Which event of a failed job came first and caused the others.

A cause precedes its symptoms, whatever the order of the files. Of two causes the earlier one
counts, by timestamp if both have one, unless the later one explains the earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from schedmate.logparse.failure.elastic import Summary
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.meanwhile import Doing
from schedmate.logparse.failure.severity import Severity
from schedmate.logparse.failure.waiting import missing_ranks
from schedmate.logparse.reading.timestamps import apart

WRAPPERS = "Called Process Error"
"""The name of the error that a program raises when another program that it runs has failed."""
NO_COMMAND, NO_SUCH_COMMAND = "shell-no-command", "127"
"""The rule for a command that a shell does not find, and the exit code that says so."""
TOGETHER = 50
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
    doing: Doing | None = None
    elastic: Summary | None = None


def judge(events: list[Event], kernel: list[Event], ranks: set[int | None]) -> Verdict:
    """The verdict on events in order, with those from the kernel logs of the nodes."""
    kernel_causes = [event for event in kernel if role_of(event) == "cause" and event.weight >= 1]
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
    # nor a program that a script did without
    causes = [event for event in causes if not _did_without(event, [*causes, *exits])]
    # nor what calls itself a warning, where something louder followed
    causes, faint = _louder(causes, symptoms)
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
        if any(before(event, root) for event in symptoms):
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


def _louder(causes: list[Event], symptoms: list[Event]) -> tuple[list[Event], list[Event]]:
    """The causes, without those that are noise beside more severe reports after them."""
    loud = [event for event in causes if not event.faint]
    if not loud:
        loud = [event for event in symptoms if event.level != Severity.INFO]
        if not loud or any(event.level != Severity.INFO for event in causes):
            return causes, []
        noise = [event for event in causes if any(before(event, other) for other in loud)]
    else:
        noise = [event for event in causes if event.faint]
    return [event for event in causes if event not in noise], noise


def first_report(root: Event, cascade: Sequence[Event]) -> int:
    """The first line in the same file that reports what the root event does."""
    return min(
        event.number
        for event in [root, *cascade]
        if event is root
        or (event.file is root.file and _together(event, root) and _same_report(root, event))
    )


def _together(event: Event, root: Event) -> bool:
    if event.number > root.number:
        return False
    gap = apart_s(root, event)
    if gap is not None and abs(gap) <= TOGETHER_S:  # a dump of an allocator is long
        return True
    return root.number - event.number <= TOGETHER


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


def before(one: Event, other: Event) -> bool:
    """Whether one event is known to be earlier than the other."""
    if one.file is other.file:
        return one.number < other.number
    gap = apart_s(one, other)
    return gap is not None and gap < 0


def apart_s(one: Event, other: Event) -> float | None:
    """How much later one event is than another [s], or None without timestamps."""
    return _gap(one.time, other.time)


def _gap(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else apart(one, other)


def _of_wrapper(event: Event) -> bool:
    return event.rule is not None and event.rule.name == WRAPPERS


def _did_without(event: Event, failed: list[Event]) -> bool:
    """Whether a script continued after a command was not found, until something else crashed."""
    if event.rule is None or event.rule.id != NO_COMMAND:
        return False
    return any(
        before(event, other) and _crash(other) and NO_SUCH_COMMAND not in other.text
        for other in failed
    )


def _crash(event: Event) -> bool:
    """Whether an event is an independent failure or a signal, not only an exit code."""
    rule = event.rule
    if role_of(event) == "cause":
        return rule is not None and rule.id != NO_COMMAND and rule.name != WRAPPERS
    return rule is None or rule.id == "torchelastic-signal-abort"


def _follows_same_rank(event: Event, symptoms: list[Event]) -> bool:
    """Whether a weak cause follows the same process's report that another one ended."""
    return event.weight == 0 and any(
        before(symptom, event)
        and symptom.rank == event.rank
        and (symptom.rank is not None or symptom.traceback)
        for symptom in symptoms
    )


def _stopped_first(
    stop: Event, causes: list[Event], symptoms: list[Event], exits: list[Event]
) -> bool:
    if stop.weight == 0:  # asked to end: by the launcher too, after another process failed
        told = [one for one in exits if one.rule is None or one.rule.id not in ON_A_SIGNAL]
        noticed = all(before(stop, one) for one in symptoms)
        return not causes and noticed and not any(before(one, stop) for one in told)
    if any(before(cause, stop) or _untimed(cause, stop) for cause in causes):
        return False
    if any(cause.rule and stop.rule and stop.rule.name in cause.rule.explains for cause in causes):
        return False  # ended on purpose, and the node could not even do that
    if any(before(one, stop) for one in symptoms):
        return False
    decisive = [one for one in exits if one.rule is None or one.rule.id not in AFTER_ANY_STOP]
    return not any(before(one, stop) for one in decisive)


# Exits that a job which is ended on purpose prints as well, in whatever order.
AFTER_ANY_STOP = frozenset(
    {
        *("slurm-aborted", "slurm-task-killed", "torchelastic-closing"),
        *("deepspeed-launcher-kill", "deepspeed-launcher-ends", "spawn-terminated"),
    }
)


# What a launcher that is asked to end does before it says so.
ON_A_SIGNAL = frozenset({"deepspeed-launcher-ends"})


OF_A_LAUNCHER = frozenset(
    {"torchelastic-signal-kill", "torchelastic-signal-segv", "torchelastic-signal-bus"}
)


def _untimed(one: Event, other: Event) -> bool:
    return one.file is not other.file and apart_s(one, other) is None


def _root_of(causes: list[Event]) -> Event:
    """The earliest cause, or a stronger one that claims to have caused it."""
    root = causes[0]
    for event in causes[1:]:
        rule, known = event.rule, root.rule
        if rule is None or known is None or event.weight <= root.weight:
            continue
        same = rule.name == known.name and (
            event.rank == root.rank or None in (event.rank, root.rank)
        )
        if same or known.name in rule.explains:
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
