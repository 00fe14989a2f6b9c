"""From a log to a diagnosis: read, locate, classify, plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from schedmate.errors import UsageError
from schedmate.jobs import Checkpoint, Diagnosis, EvidenceLine
from schedmate.logparse.failure.elastic import from_error_files
from schedmate.logparse.failure.ending import came_to_an_end, last_line
from schedmate.logparse.failure.filters import Healthy, outliers
from schedmate.logparse.failure.leads import said_before
from schedmate.logparse.failure.locate import (
    TOGETHER,
    WRAPPERS,
    Verdict,
    decide,
    first_report,
)
from schedmate.logparse.failure.plans import plan_for
from schedmate.logparse.failure.quotes import quote, quoted, quotes
from schedmate.logparse.failure.rules import Rule, load_rules
from schedmate.logparse.failure.scan import Event, FileScan, scan
from schedmate.logparse.failure.signs import last_sign
from schedmate.logparse.failure.suspect import suspect
from schedmate.logparse.failure.wording import Subsystem, about
from schedmate.logparse.reading import Attempt, Line, Log, LogFile, attempts, open_log
from schedmate.logparse.reading.prefixes import origin_of_file
from schedmate.logparse.reading.timestamps import dated

_FRAME = re.compile(r"\s|Traceback|During handling|The above exception")
Locator = Literal["auto", "scan", "binary"]
SCAN_UP_TO = 1 << 32
"""Largest log [bytes] that is read whole by default."""
MESSAGE = 4
"""Further lines of an exception's message that may say whose fault it is."""
OTHERS = 6
"""Most other events that are quoted, and most that were ruled out."""


@contextmanager
def open_job(paths: Sequence[Path | str]) -> Iterator[Log]:
    """The logs at `paths` as those of one job; each is what `open_log` takes.

    Raises `LogError` when one cannot be read.
    """
    with ExitStack() as stack:
        logs = [stack.enter_context(open_log(path)) for path in paths]
        files = [file for log in logs for file in log.files]
        _name_ranks(files)
        yield Log(
            logs[0].name,
            files,
            [error for log in logs for error in log.error_files],
            [warning for log in logs for warning in log.warnings],
        )


def _name_ranks(files: list[LogFile]) -> None:
    """Set the ranks that the files' names say, if those tell the files apart."""
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
    healthy: Sequence[Log] = (),
    locator: Locator = "auto",
) -> Diagnosis:
    """What failed first in the last attempt of a job (SchedMate paper, section 3.3).

    `node_logs` are kernel logs of its nodes (dmesg, syslog). What also stands in a `healthy` run
    of the same workload is no evidence. Raises `LogError` when a file becomes unreadable.
    """
    rules = load_rules()
    if locator == "auto":
        locator = "scan" if log.size <= SCAN_UP_TO else "binary"
    if locator not in ("scan", "binary"):
        raise UsageError(f"there is no locator {locator!r}; use scan, binary or auto.")
    usual = Healthy(healthy)
    scans: list[FileScan] = []
    tries = 1
    probes = 0
    for file in log.files:
        if locator == "binary":
            last = Attempt(1, max(1, file.line_count()), 0, file.size, "")
            from schedmate.logparse.failure.binary import probe

            last, used = probe(file, last)
            probes += used
        else:
            found = attempts(file)
            tries, last = max(tries, len(found)), found[-1]
        one = scan(file, last, rules)
        one.events = [event for event in one.events if not usual.knows(event)]
        scans.append(one)
        file.close()
    kernel = [
        event
        for node_log in node_logs
        for file in node_log.files
        for event in scan(file, attempts(file)[-1], rules).events
    ]
    elastic = from_error_files(log, rules)
    verdict = (
        Verdict(elastic, "torchelastic recorded it first") if elastic else decide(scans, kernel)
    )
    known = verdict.root
    if known is None or known.rule is None or _reported(known.rule):
        ending = suspect(scans, rules)
        unsaid = known is not None and (known.rule is None or known.rule.role == "exit")
        if unsaid and (ending is None or ending.rule is None):
            # that it failed is certain: a warning may then say of what
            ending = suspect(scans, rules, mild=True) or ending
        if ending is not None and _decides(ending, known):
            verdict = Verdict(
                ending,
                "no rule knows the line; its wording says so",
                cascade=[] if known is None else [known, *verdict.cascade],
                hints=verdict.hints,
            )
    elif known.rule.general:  # an exception's name does not say whose fault it is, its words may
        subsystem = _said_by(known)
        if subsystem is not None:
            verdict.root = replace(known, rule=subsystem)
    diagnosis = _describe(verdict, scans)
    if isinstance(verdict.root and verdict.root.rule, Subsystem):
        diagnosis.source = "wording"
    elif known is not None and diagnosis.error_type == "unknown":
        _resemble(diagnosis, known)
    diagnosis.attempt = diagnosis.attempts = tries
    diagnosis.locator = locator
    diagnosis.probes = probes if locator == "binary" else None
    diagnosis.warnings = list(log.warnings)
    if diagnosis.error_type == "unknown" or verdict.missing:
        diagnosis.warnings += outliers(log.files)
    diagnosis.plan = plan_for(diagnosis)
    return diagnosis


def _said_by(event: Event) -> Subsystem | None:
    """The part of the infrastructure of which an exception's message says that it failed."""
    message = [event.text]
    if event.traceback:
        after = (line.text for line in event.lines if line.number > event.known_at)
        message += [text for text in after if not _FRAME.match(text)][:MESSAGE]
    found = (about(text) for text in message)
    return next((one for one in found if one and one.type == "infrastructure"), None)


def _reported(rule: Rule) -> bool:
    """Whether a line only says that something else failed."""
    return rule.role in ("exit", "symptom") or rule.name == WRAPPERS


def _decides(ending: Event, known: Event | None) -> bool:
    """Whether trouble that no rule knows counts before what a rule does know."""
    if known is None:
        return True
    if known.rule is not None and known.rule.role != "exit":  # noticed by others, later
        earlier = ending.file is known.file and ending.number < known.number
        return earlier and ending.rule is not None
    return ending.rule is not None


def _describe(verdict: Verdict, scans: list[FileScan]) -> Diagnosis:
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
    diagnosis.rank = verdict.missing[0] if len(verdict.missing) == 1 else root.rank
    diagnosis.missing_ranks = verdict.missing
    diagnosis.node = root.node
    first = verdict.elastic
    if first is not None and diagnosis.rank in (None, first.rank) and not verdict.missing:
        diagnosis.rank, diagnosis.node = first.rank, diagnosis.node or first.host
    others = (event.time for one in scans for event in one.events if event.time is not None)
    diagnosis.time = dated(root.time, others)
    cascade = [event for event in verdict.cascade if event is not root]
    diagnosis.evidence = [
        *([quoted(root.file, logged)] if logged is not None else []),
        *quotes(root),
        *(quote(event, "followed") for event in cascade[:OTHERS]),
        *(quote(event, "worth a look") for event in verdict.hints[:OTHERS]),
    ]
    diagnosis.checkpoint = _checkpoint(root, scans)
    return diagnosis


def _logged_before(root: Event, number: int, scans: list[FileScan]) -> Line | None:
    """The line not far above an exception in which a library logged what it then raised."""
    if not root.traceback:
        return None
    one = next((one for one in scans if one.file is root.file), None)
    if one is None:
        return None
    first = max(root.file.line_number(one.horizon), number - TOGETHER, one.attempt.first_line)
    return said_before(root.file, first, number, root.text)


def _open_end(diagnosis: Diagnosis, scans: Sequence[FileScan]) -> None:
    """Say whether a log in which nothing failed shows that the job was through."""
    diagnosis.finished = came_to_an_end(scans)
    if diagnosis.finished:
        return
    diagnosis.reason = "no failure was found, and the log ends without a sign of success"
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


def _resemble(diagnosis: Diagnosis, root: Event) -> None:
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


def _failure(event: Event) -> bool:
    return event.rule is None or event.rule.role in ("cause", "symptom")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _checkpoint(root: Event, scans: Iterable[FileScan]) -> Checkpoint | None:
    """The last checkpoint reported in the file of the failure, else in any other."""
    ordered = sorted(scans, key=lambda one: one.file is not root.file)
    for one in ordered:
        end = one.attempt.end
        if one.file is root.file:
            end = min(end, one.file.line_offset(root.number))
        sign = last_sign("checkpoint", one.file, 0, end)
        if sign is not None:
            step = sign.groups.get("step", "")
            return Checkpoint(
                path=sign.groups.get("path") or None,
                step=int(step) if step.isdigit() and len(step) < 12 else None,
                file=one.file.name,
                line=one.file.line_number(sign.offset),
            )
    return None
