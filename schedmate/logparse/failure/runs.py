"""A log as a sequence of runs, each with its outcome; what a run caught is an incident.

Sweeps, restarts, requeues and retries write several runs into one file (`reading/blocks.py` finds
where each begins). A failure that a program caught, and that further work or a successful end
followed, is no verdict on the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from schedmate.jobs import Incident, RunOutcome
from schedmate.logparse.failure.examine import Examined, end_of
from schedmate.logparse.failure.locate import Verdict, decide, role_of
from schedmate.logparse.failure.rules import RuleSet
from schedmate.logparse.failure.scan import Event, FileScan, scan
from schedmate.logparse.failure.side import says_handled
from schedmate.logparse.reading import Attempt, LogFile
from schedmate.logparse.templates import mask

MOST_RUNS = 200
"""Runs of one log whose outcomes are read, the last ones."""
MOST_INCIDENTS = 10
"""Kinds of incidents that are listed, the most frequent ones."""
OFTEN = 3
"""Failures of one wording from which on the program is taken to go on after each."""


def outcomes(examined: Examined, rules: RuleSet) -> list[RunOutcome]:
    """The outcome of each run of a log that holds several; empty for a single one."""
    if examined.sequence is None:
        return []
    file, attempts = examined.sequence
    found = [_outcome(file, attempt, rules) for attempt in attempts[-MOST_RUNS:]]
    file.close()
    return found


def _outcome(file: LogFile, attempt: Attempt, rules: RuleSet) -> RunOutcome:
    scanned = scan(file, attempt, rules)
    root = set_aside_handled(decide([scanned]), [scanned]).root
    part = {"first_line": attempt.first_line, "last_line": max(attempt.last_line, 0)}
    if root is None:
        finished = end_of([scanned]) is not None
        return RunOutcome(**part, outcome="finished" if finished else "open")
    stopped = role_of(root) == "stop"
    name = root.rule.name if root.rule is not None else None
    return RunOutcome(
        **part, outcome="stopped" if stopped else "failed", error_name=name, line=root.number
    )


def set_aside_handled(verdict: Verdict, scans: Sequence[FileScan]) -> Verdict:
    """`verdict`, unless all that failed was caught and the program then ended well."""
    root = verdict.root
    if root is None or not _may_be_handled(root):
        return verdict
    failed = [root, *verdict.cascade]
    said = Counter(_wording(event) for one in scans for event in (*one.events, *one.background))
    if not all(_is_handled(event, said) for event in failed):
        return verdict
    end = end_of(scans)
    if end is None or any(event.file is end.file and event.known_at >= end.line.number
                          for event in failed):  # fmt: skip
        return verdict
    for one in scans:
        one.background += [event for event in one.events if event in failed]
        one.events = [event for event in one.events if event not in failed]
    return Verdict(None, "what failed was caught, and the program ended well", hints=verdict.hints)


def _is_handled(event: Event, said: Counter[str]) -> bool:
    """Whether the program itself reported a failure and went on, by its words or by habit."""
    if not _may_be_handled(event):
        return False
    return says_handled(event.text) or said[_wording(event)] >= OFTEN


def _may_be_handled(event: Event) -> bool:
    return not event.traceback and role_of(event) == "cause"


def _wording(event: Event) -> str:
    return mask(event.text)


def incidents(scans: Sequence[FileScan]) -> list[Incident]:
    """The failures that work went on after, by name, the most frequent first."""
    together: dict[str | None, list[Event]] = {}
    for one in scans:
        for event in one.background:
            if role_of(event) == "cause" and event.rule is not None:
                together.setdefault(event.rule.name, []).append(event)
    ordered = sorted(together.items(), key=lambda item: -len(item[1]))
    return [
        Incident(
            error_name=name,
            count=len(events),
            line=min(event.number for event in events),
            text=events[0].text[:500],
        )
        for name, events in ordered[:MOST_INCIDENTS]
    ]
