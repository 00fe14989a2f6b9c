"""Reasons to doubt a verdict of the rules; if there are any, a language model may be asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from schedmate.jobs import ErrorType, FaultyComponent
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.examine import Examined
from schedmate.logparse.failure.locate import WRAPPERS, Verdict, before, role_of
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.severity import is_mild
from schedmate.logparse.failure.wording import speaks_of_trouble

UNKNOWN = "nothing that the rules know says what failed"
GENERAL = "the rule knows what to call the failure and only guesses whose fault it is"
WORDING = "no rule knows the line, only its wording or a likeness says so"
SYMPTOM = "only what others noticed of the failure is known"
FAINT = "the line calls itself less than an error"
COMPONENT = "the log does not say which component failed"
OPEN_END = "no rule knows a failure, and the log ends in lines that speak of one"
BEFORE_TRAINING = (
    "GPU memory ran out before training began, and the log does not say how much was asked for: "
    "the card may have been in use, or faulty"
)
EARLIER_ATTEMPT = "an earlier attempt decided, since the ones after it show nothing"
CANCELLED_EARLY = (
    "the last attempt was cancelled before it trained, and the log does not say why it was started "
    "again"
)
UNPROVED = frozenset({UNKNOWN, GENERAL, WORDING, SYMPTOM, FAINT, OPEN_END, BEFORE_TRAINING})
"""Doubts with which the type of a verdict is no more than a guess. Where there are only others
(ranks or lines that contradict each other), a rule has proved the verdict by a line."""

_CANCELS = frozenset({"slurm-cancelled"})
_MEMORY = frozenset({"cuda-oom"})
_ASKED = re.compile(r"(?i:tried to allocate|allocat\w* [\d.]+ ?[kmgt]i?b)")
LAST = 60
"""Number of last lines that are searched for a failure without a rule."""


class Named(Protocol):
    """What a failure is classified as."""

    @property
    def error_type(self) -> ErrorType: ...
    @property
    def faulty_component(self) -> FaultyComponent | None: ...
    @property
    def rule(self) -> str | None: ...
    @property
    def source(self) -> str: ...
    @property
    def undecided(self) -> bool: ...


def doubts_of(
    cause: Named, verdict: Verdict, examined: Examined, *, finished: bool | None = None
) -> list[str]:
    """The reasons to doubt a verdict, the most serious first; none if rules have settled it.

    `finished` is whether a log without a failure shows that the job finished. What a node's own log
    or torchelastic's error file says is not in doubt.
    """
    root, scans = verdict.root, examined.scans
    if root is None:
        open_end = finished is False and _ends_in_trouble(scans)
        return [OPEN_END] if open_end else []
    if root.origin != "job_log":
        return []
    trained = any(map(_trained, scans))
    if cause.error_type == "none":
        early = cause.rule in _CANCELS and examined.attempts > 1 and not trained
        return [CANCELLED_EARLY] if early else []
    found = []
    rule = load_rules().by_id.get(cause.rule or "")
    if cause.source in ("wording", "embedding"):
        found.append(WORDING)
    elif cause.error_type == "unknown":
        found.append(UNKNOWN)
    elif cause.undecided or (rule is not None and rule.role == "symptom"):
        found.append(SYMPTOM)
    elif rule is not None and rule.general:
        found.append(GENERAL)
    if root.faint:
        found.append(FAINT)
    if cause.rule in _MEMORY and not trained and not _ASKED.search(root.text):
        found.append(BEFORE_TRAINING)
    if examined.attempt < examined.attempts:
        found.append(EARLIER_ATTEMPT)
    found += _contradictions(root, verdict.cascade)
    if cause.error_type == "infrastructure" and cause.faulty_component is None:
        found.append(COMPONENT)
    return found


def _trained(one: FileScan) -> bool:
    """Whether the attempt made a step beyond the first count of a progress bar (0 of all)."""
    return one.step is not None and re.match(r"0(?![.\d])", one.step.groups.get("at", "")) is None


def _contradictions(root: Event, others: Sequence[Event]) -> list[str]:
    """Failures of another type, on another rank or before the event that decided."""
    found = []
    for event in others:
        rule, known = event.rule, root.rule
        if rule is None or known is None or role_of(event) != "cause" or event.faint:
            continue
        if rule.type == known.type or WRAPPERS in (rule.name, known.name) or event.bare:
            continue
        elsewhere = event.rank != root.rank or event.file is not root.file
        if elsewhere or before(event, root):
            found.append(
                f"{_who(event)} reports {rule.name} ({rule.type}) in line {event.number}, "
                f"{_who(root)} {known.name} ({known.type}) in line {root.number}"
            )
    return found[:3]


def _who(event: Event) -> str:
    return "one process" if event.rank is None else f"rank {event.rank}"


def _ends_in_trouble(scans: Sequence[FileScan]) -> bool:
    """Whether one of the last lines, after the last progress, reports a failure."""
    rules = load_rules()
    for one in scans:
        last = one.attempt.last_line
        step = one.file.line_number(one.step.offset) if one.step is not None else 0
        for line in one.file.lines(max(one.attempt.first_line, step + 1, last - LAST), last):
            if speaks_of_trouble(line.text) and not is_mild(line.text):
                rule = rules.line(line.text)
                if rule is None or rule.role not in ("benign", "hint"):
                    return True
    return False
