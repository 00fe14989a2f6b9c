"""A verdict on a log as a `Diagnosis`: names, places, quoted lines, the checkpoint before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schedmate.hosts import host_name
from schedmate.jobs import Diagnosis, EvidenceLine
from schedmate.logparse.failure.ending import came_to_an_end, last_line
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.leads import said_before
from schedmate.logparse.failure.locate import TOGETHER, Verdict, first_report
from schedmate.logparse.failure.meanwhile import Doing
from schedmate.logparse.failure.quotes import quote, quoted, quotes
from schedmate.logparse.failure.saved import checkpoint_before
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.reading import Line
from schedmate.logparse.reading.timestamps import dated

OTHERS = 6
"""Most other events that are quoted, and most that were ruled out."""
_ONE_OF_A_LIST = re.compile(r"([\w.-]+)\[(\d+)\]")


def describe(verdict: Verdict, scans: list[FileScan]) -> Diagnosis:
    """What `verdict` comes to."""
    root = verdict.root
    ruled_out = [event for one in scans for event in one.background if _failure(event)]
    diagnosis = Diagnosis(
        error_type="none",
        reason=verdict.reason,
        ruled_out=[quote(event, "training went on after it") for event in ruled_out[:OTHERS]],
    )
    if root is None:
        diagnosis.evidence = [quote(event, "worth a look") for event in verdict.hints[:OTHERS]]
        _open_end(diagnosis, scans)
        return diagnosis
    rule = root.rule
    undecided = rule is None or rule.role == "exit"
    diagnosis.error_type = "unknown" if rule is None or undecided else rule.type
    if rule is not None and not undecided:
        diagnosis.error_name = rule.name
        diagnosis.faulty_component = rule.component
        diagnosis.recoverable = rule.recoverable
        diagnosis.rule = rule.id
        diagnosis.reference = rule.source
        diagnosis.reason = f"{rule.why} ({_capital(verdict.reason)}.)"
    diagnosis.file, diagnosis.line = root.file.name, first_report(verdict)
    logged = _logged_before(root, diagnosis.line or root.number, scans)
    if logged is not None:
        diagnosis.line = logged.number
    diagnosis.undecided = rule is not None and rule.role == "symptom"
    diagnosis.rank, diagnosis.node = root.rank, _node(root.node)
    if diagnosis.undecided:  # who reports it waited for another one, and is not the culprit
        diagnosis.rank = verdict.missing[0] if len(verdict.missing) == 1 else None
        diagnosis.node = None
    diagnosis.missing_ranks = verdict.missing
    if verdict.doing is not None:
        _waited_for(diagnosis, verdict.doing)
    diagnosis.origin = root.origin
    first = verdict.elastic
    if first is not None and diagnosis.rank in (None, first.rank) and not verdict.missing:
        diagnosis.rank, diagnosis.node = first.rank, diagnosis.node or _node(first.host)
    others = (event.time for one in scans for event in one.events if event.time is not None)
    diagnosis.time = dated(root.time, others)
    place = (root.file, root.known_at)
    cascade = [event for event in verdict.cascade if (event.file, event.known_at) != place]
    diagnosis.evidence = [
        *([quoted(root.file, logged)] if logged is not None else []),
        *quotes(root),
        *([_work(verdict.doing)] if verdict.doing is not None else []),
        *(quote(event, "followed") for event in cascade[:OTHERS]),
        *(quote(event, "worth a look") for event in verdict.hints[:OTHERS]),
    ]
    diagnosis.checkpoint = checkpoint_before(root, scans)
    return diagnosis


def _waited_for(diagnosis: Diagnosis, doing: Doing) -> None:
    """What the ranks in wait report is of what the one that they waited for was doing."""
    activity, rank = doing.activity, doing.line.rank
    rank = doing.file.rank if rank is None else rank
    diagnosis.meanwhile = activity.id
    diagnosis.error_type, diagnosis.faulty_component = activity.type, activity.component
    diagnosis.undecided = activity.undecided
    diagnosis.recoverable = activity.undecided
    if rank is not None:
        diagnosis.rank, diagnosis.missing_ranks = rank, diagnosis.missing_ranks or [rank]
    who = "another one" if diagnosis.rank is None else f"rank {diagnosis.rank}"
    diagnosis.reason = (
        f"The ranks that report it waited while {who} was {activity.id} (line {doing.line.number})."
    )


def _work(doing: Doing) -> EvidenceLine:
    return quoted(doing.file, doing.line).model_copy(update={"note": "what the others waited for"})


def _logged_before(root: Event, number: int, scans: list[FileScan]) -> Line | None:
    """The line not far above an exception in which a library logged what it then raised."""
    if not root.traceback:
        return None
    one = next((one for one in scans if one.file is root.file), None)
    if one is None:
        return None
    first = max(root.file.line_number(one.horizon), number - TOGETHER, one.attempt.first_line)
    return said_before(root.file, first, number, root.text)


def among_attempts(diagnosis: Diagnosis, scans: Sequence[FileScan]) -> None:
    """Say which of several attempts it was in which nothing failed, and where it begins."""
    if diagnosis.error_type != "none" or diagnosis.error_name is not None:
        return
    last = max(scans, key=lambda one: one.attempt.first_line, default=None)
    if last is not None and diagnosis.attempts > 1:
        came = "ended well" if diagnosis.finished else "shows neither a failure nor an end"
        diagnosis.reason = (
            f"the last of {diagnosis.attempts} attempts {came}; it begins in line "
            f"{last.attempt.first_line} of {last.file.name}"
        )


def _open_end(diagnosis: Diagnosis, scans: Sequence[FileScan]) -> None:
    """Say whether a log in which nothing failed shows that the job was through."""
    diagnosis.finished = came_to_an_end(scans)
    if diagnosis.finished:
        return
    diagnosis.reason = "no failure was found, but the log does not show a successful end either"
    for one in scans[:1]:
        line = last_line(one)
        if line is not None:
            diagnosis.evidence.append(
                EvidenceLine(
                    file=one.file.name,
                    line=line.number,
                    text=line.text[:500],
                    note="the log ends here",
                )
            )


def resemble(diagnosis: Diagnosis, root: Event) -> None:
    """Name a failure that no rule knows after the labelled example that it is nearest to."""
    from schedmate.logparse.failure.nearest import nearest

    found = nearest(root)
    if found is None:
        return
    rule = found.rule
    diagnosis.error_type, diagnosis.error_name = rule.type, rule.name
    diagnosis.faulty_component, diagnosis.recoverable = rule.component, rule.recoverable
    diagnosis.rule, diagnosis.reference, diagnosis.source = rule.id, rule.source, "embedding"
    diagnosis.line = min(found.line.number, root.number)
    diagnosis.reason = (
        f"{rule.why} (No rule knows the line; it resembles an example of {rule.id}, "
        f"similarity {found.similarity:.2f}.)"
    )
    quoted = EvidenceLine(
        file=root.file.name, line=found.line.number, text=found.line.text[:500], note="decided"
    )
    diagnosis.evidence = [
        quoted,
        *(one.model_copy(update={"note": "followed"}) for one in diagnosis.evidence),
    ]


def _node(text: str | None) -> str | None:
    """A name of one machine; Slurm writes one of a row as `gpu[07]`."""
    match = _ONE_OF_A_LIST.fullmatch(text or "")
    return host_name(match[1] + match[2] if match else text)


def _failure(event: Event) -> bool:
    return event.rule is None or event.rule.role in ("cause", "symptom")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
