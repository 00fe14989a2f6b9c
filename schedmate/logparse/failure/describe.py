"""The `Diagnosis` of a verdict: cause, location, quoted lines and the last checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from schedmate.hosts import host_name
from schedmate.jobs import Diagnosis, ErrorType, EvidenceLine, FaultyComponent
from schedmate.logparse.failure.doubts import doubts_of
from schedmate.logparse.failure.ending import end_of, last_line, last_step
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.examine import Examined
from schedmate.logparse.failure.filters import outliers
from schedmate.logparse.failure.leads import said_before
from schedmate.logparse.failure.locate import TOGETHER, Verdict, first_report
from schedmate.logparse.failure.meanwhile import Doing
from schedmate.logparse.failure.plans import plan_for
from schedmate.logparse.failure.quotes import quote, quoted, quotes
from schedmate.logparse.failure.saved import checkpoint_before
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.wording import Subsystem
from schedmate.logparse.reading import Line
from schedmate.logparse.reading.timestamps import dated

OTHERS = 6
"""Limit for further events that are quoted, and for those that are listed as ruled out."""
_ONE_OF_A_LIST = re.compile(r"([\w.-]+)\[(\d+)\]")


@dataclass(frozen=True)
class Cause:
    """What failed, its type and component, as the fields of `Diagnosis` with the same names."""

    error_type: ErrorType
    reason: str
    error_name: str | None = None
    faulty_component: FaultyComponent | None = None
    recoverable: bool | None = None
    rule: str | None = None
    reference: str | None = None
    source: Literal["rules", "wording", "embedding"] = "rules"
    undecided: bool = False
    meanwhile: str | None = None


@dataclass(frozen=True)
class Place:
    """Where it failed, as the fields of `Diagnosis` with the same names."""

    file: str
    line: int
    rank: int | None
    node: str | None
    missing_ranks: list[int]


def describe(
    verdict: Verdict,
    examined: Examined,
    *,
    known: Event | None,
    nodes: Sequence[str],
    warnings: Sequence[str],
) -> Diagnosis:
    """The diagnosis of a verdict on a job's log, with a plan.

    `known` is the event that decided before the wording of lines was considered; `nodes` are the
    job's nodes as named by the caller.
    """
    root, scans = verdict.root, examined.scans
    ruled_out = [event for one in scans for event in one.background if _is_failure(event)]
    looked = {
        "job_nodes": list(dict.fromkeys(nodes)),
        "attempt": examined.attempt,
        "attempts": examined.attempts,
        "locator": examined.locator,
        "probes": examined.probes if examined.locator == "binary" else None,
        "ruled_out": [quote(event, "training went on after it") for event in ruled_out[:OTHERS]],
        "warnings": list(warnings),
    }
    found = (
        _without_failure(verdict, examined, looked)
        if root is None
        else _of_failure(verdict, root, known, examined, looked)
    )
    plan = plan_for(found, given_as=root.given_as if root is not None else None)
    return found.model_copy(update={"plan": plan})


def _without_failure(verdict: Verdict, examined: Examined, looked: dict[str, Any]) -> Diagnosis:
    """The diagnosis if nothing failed: whether the log shows that the job finished."""
    scans = examined.scans
    end = end_of(scans)
    evidence = [quote(event, "worth a look") for event in verdict.hints[:OTHERS]]
    if end is not None:
        reason = f"line {end.line.number} of {end.file.name} {end.why}"
        evidence.append(quoted(end.file, end.line, end.why))
    else:
        reason = "no failure was found, but the log does not show a successful end either"
        evidence += _last_words(scans)
    finished = end is not None
    return Diagnosis(
        error_type="none",
        finished=finished,
        reason=_of_last_attempt(examined, finished=finished) or reason,
        evidence=evidence,
        doubts=doubts_of(Cause("none", reason), verdict, examined, finished=finished),
        **looked,
    )


def _last_words(scans: Sequence[FileScan]) -> list[EvidenceLine]:
    """The last line of progress, and the last line of the first file."""
    step, line = last_step(scans), last_line(scans[0]) if scans else None
    words = []
    if step is not None and step[1] != line:
        words.append(quoted(*step, "the last progress"))
    if line is not None:
        words.append(quoted(scans[0].file, line, "the log ends here"))
    return words


def _of_last_attempt(examined: Examined, *, finished: bool | None) -> str | None:
    """The reason to give if the last of several attempts shows no failure."""
    last = max(examined.scans, key=lambda one: one.attempt.first_line, default=None)
    if last is None or examined.attempts < 2:
        return None
    came = "ended well" if finished else "shows neither a failure nor an end"
    return (
        f"the last of {examined.attempts} attempts {came}; it begins in line "
        f"{last.attempt.first_line} of {last.file.name}"
    )


def _of_failure(
    verdict: Verdict,
    root: Event,
    known: Event | None,
    examined: Examined,
    looked: dict[str, Any],
) -> Diagnosis:
    """The diagnosis of the event that decided: a failure, or another reason for the job's end."""
    scans = examined.scans
    logged = _logged_before(root, first_report(root, verdict.cascade), scans)
    cause, place = _cause(root, verdict), _place(root, verdict, logged)
    if verdict.doing is not None:
        cause, place = _waited(cause, place, verdict.doing)
    place = _by_launcher(place, root, verdict)
    nodes = looked["job_nodes"]
    if cause.error_type != "none" and place.node is None and len(nodes) == 1:
        place = replace(place, node=nodes[0])
    evidence = _evidence(verdict, root, logged)
    if cause.source == "rules" and cause.error_type == "unknown" and known is not None:
        cause, place, evidence = _resembling(cause, place, evidence, known)
    if cause.error_type == "none" and cause.error_name is None:
        cause = replace(cause, reason=_of_last_attempt(examined, finished=None) or cause.reason)
    if cause.error_type == "unknown" or verdict.missing:
        looked["warnings"] += outliers([one.file for one in scans])
    others = (event.time for one in scans for event in one.events if event.time is not None)
    return Diagnosis(
        **asdict(cause),
        **asdict(place),
        origin=root.origin,
        time=dated(root.time, others),
        evidence=evidence,
        doubts=doubts_of(cause, verdict, examined),
        checkpoint=checkpoint_before(root, scans),
        **looked,
    )


def _cause(root: Event, verdict: Verdict) -> Cause:
    """The cause according to the rule of the event that decided."""
    rule = root.rule
    if rule is None or rule.role == "exit":
        return Cause("unknown", verdict.reason)
    return Cause(
        rule.type,
        f"{rule.why} ({_capital(verdict.reason)}.)",
        error_name=rule.name,
        faulty_component=rule.component,
        recoverable=rule.recoverable,
        rule=rule.id,
        reference=rule.source,
        source="wording" if isinstance(rule, Subsystem) else "rules",
        undecided=rule.role == "symptom",
    )


def _place(root: Event, verdict: Verdict, logged: Line | None) -> Place:
    """Where the event that decided is; `logged` is a line above that reports the same first."""
    line = first_report(root, verdict.cascade) if logged is None else logged.number
    rank, node = root.rank, _node(root.node)
    if root.rule is not None and root.rule.role == "symptom":
        # who reports it waited for another one, and is not the culprit
        rank, node = verdict.missing[0] if len(verdict.missing) == 1 else None, None
    return Place(root.file.name, line, rank, node, list(verdict.missing))


def _waited(cause: Cause, place: Place, doing: Doing) -> tuple[Cause, Place]:
    """Cause and place if waiting ranks are the symptom and another rank's activity is known."""
    activity, rank = doing.activity, doing.line.rank
    rank = doing.file.rank if rank is None else rank
    if rank is not None:
        place = replace(place, rank=rank, missing_ranks=place.missing_ranks or [rank])
    who = "another one" if place.rank is None else f"rank {place.rank}"
    cause = replace(
        cause,
        meanwhile=activity.id,
        error_type=activity.type,
        faulty_component=activity.component,
        undecided=activity.undecided,
        recoverable=activity.undecided,
        reason="The ranks that report it waited while "
        f"{who} was {activity.id} (line {doing.line.number}).",
    )
    return cause, place


def _by_launcher(place: Place, root: Event, verdict: Verdict) -> Place:
    """The place, with rank and host from torchelastic's summary if nothing else names them."""
    first = verdict.elastic
    if first is None or place.rank not in (None, first.rank) or verdict.missing:
        return place
    return replace(place, rank=first.rank, node=place.node or _node(first.host))


def _evidence(verdict: Verdict, root: Event, logged: Line | None) -> list[EvidenceLine]:
    """The quoted lines: the first failure, its consequences, and other relevant lines."""
    at, doing = (root.file, root.known_at), verdict.doing
    followed = [event for event in verdict.cascade if (event.file, event.known_at) != at]
    return [
        *([quoted(root.file, logged, "said first")] if logged is not None else []),
        *quotes(root),
        *([quoted(doing.file, doing.line, "what the others waited for")] if doing else []),
        *(quote(event, "followed") for event in followed[:OTHERS]),
        *(quote(event, "worth a look") for event in verdict.hints[:OTHERS]),
    ]


def _logged_before(root: Event, number: int, scans: Sequence[FileScan]) -> Line | None:
    """The line shortly above an exception in which a library logged the same error."""
    if not root.traceback:
        return None
    one = next((one for one in scans if one.file is root.file), None)
    if one is None:
        return None
    first = max(root.file.line_number(one.horizon), number - TOGETHER, one.attempt.first_line)
    return said_before(root.file, first, number, root.text)


def _resembling(
    cause: Cause, place: Place, evidence: list[EvidenceLine], root: Event
) -> tuple[Cause, Place, list[EvidenceLine]]:
    """A failure without a rule, named after the most similar labelled example."""
    from schedmate.logparse.failure.nearest import nearest

    found = nearest(root)
    if found is None:
        return cause, place, evidence
    rule = found.rule
    cause = replace(
        cause,
        error_type=rule.type,
        error_name=rule.name,
        faulty_component=rule.component,
        recoverable=rule.recoverable,
        rule=rule.id,
        reference=rule.source,
        source="embedding",
        reason=f"{rule.why} (No rule knows the line; it resembles an example of {rule.id}, "
        f"similarity {found.similarity:.2f}.)",
    )
    return (
        cause,
        replace(place, line=min(found.line.number, root.number)),
        [
            quoted(root.file, found.line, "decided"),
            *(one.model_copy(update={"note": "followed"}) for one in evidence),
        ],
    )


def _node(text: str | None) -> str | None:
    """The name of a single machine; Slurm writes one of a range as `gpu[07]`."""
    match = _ONE_OF_A_LIST.fullmatch(text or "")
    return host_name(match[1] + match[2] if match else text)


def _is_failure(event: Event) -> bool:
    return event.rule is None or event.rule.role in ("cause", "symptom")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
