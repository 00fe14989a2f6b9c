"""From a log to a diagnosis: read, locate, classify, plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from schedmate.errors import UsageError
from schedmate.hosts import host_name
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure.decide import decide
from schedmate.logparse.failure.describe import describe
from schedmate.logparse.failure.elastic import from_error_files
from schedmate.logparse.failure.events import Event, event_at
from schedmate.logparse.failure.examine import Locator, examine
from schedmate.logparse.failure.filters import Healthy
from schedmate.logparse.failure.gpu_memory import judged
from schedmate.logparse.failure.locate import WRAPPERS, Verdict
from schedmate.logparse.failure.node_side import misplaced, node_events, unheeded
from schedmate.logparse.failure.not_a_number import no_number_from
from schedmate.logparse.failure.rules import Rule, RuleSet, load_rules
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.severity import by_letter, is_grave
from schedmate.logparse.failure.suspect import suspect
from schedmate.logparse.failure.wording import Subsystem, about
from schedmate.logparse.reading import Log, LogFile, open_log
from schedmate.logparse.reading.prefixes import origin_of_file

_NO_NUMBER = re.compile(r"(?i:\b(?:nans?|infs?|infinit(?:y|e)|non-finite|not finite)\b)")
_FRAME = re.compile(r"\s|Traceback|During handling|The above exception")
VAGUE = frozenset({"Value Error", "Assertion Error"})
"""Exceptions that programs also raise after a failed connection or file system."""
MESSAGE = 4
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
    examined = examine(log, rules, Healthy(healthy), locator)
    scans = examined.scans
    kernel = node_events(node_logs, nodes, rules)
    elastic = from_error_files(log, rules)
    verdict = (
        Verdict(elastic, "torchelastic recorded it first") if elastic else decide(scans, kernel)
    )
    known = verdict.root
    verdict = _by_wording(verdict, scans, rules)
    if verdict.root is not None:
        at = next((one for one in scans if one.file is verdict.root.file), None)
        verdict.root = replace(verdict.root, rule=judged(verdict.root, at, rules))
    verdict = _of_the_loss(verdict, scans, rules)
    warnings = [*log.warnings, *misplaced(kernel), *unheeded(kernel, verdict.root)]
    return describe(verdict, examined, known=known, nodes=nodes, warnings=warnings)


def _of_the_loss(verdict: Verdict, scans: list[FileScan], rules: RuleSet) -> Verdict:
    """The verdict if the loss was NaN or infinite up to the end."""
    root = verdict.root
    for one in scans:
        line = no_number_from(one)
        if line is None:
            continue
        rule = rules.by_id["anomaly-nan"]
        event = event_at(rule, one.file, (line,), line)
        if root is None or (root.file is one.file and _NO_NUMBER.search(root.text)):
            reason = "from this line to the end the loss is NaN or infinite"
            return Verdict(event, reason, [] if root is None else [root, *verdict.cascade])
        verdict.hints.insert(0, event)
        verdict.reason += f"; the loss is NaN or infinite from line {line.number} on"
        return verdict
    return verdict


def _by_wording(verdict: Verdict, scans: list[FileScan], rules: RuleSet) -> Verdict:
    """The verdict if no rule matches the failure, so that the wording of lines decides."""
    known = verdict.root
    if known is None or known.rule is None or known.faint or _reported(known.rule):
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
    elif known.rule.general or _vague(known.rule):
        # an exception's name does not say whose fault it is, its words may
        subsystem = _said_by(known)
        if subsystem is not None and (
            known.rule.general or subsystem.component in ("network", "storage")
        ):
            verdict.root = replace(known, rule=subsystem)
    return verdict


def _said_by(event: Event) -> Subsystem | None:
    """The infrastructure component that an exception's message reports as failed."""
    message = [event.text]
    if event.traceback:
        after = (line.text for line in event.lines if line.number > event.known_at)
        message += [text for text in after if not _FRAME.match(text)][:MESSAGE]
    found = (about(text) for text in message)
    return next((one for one in found if one and one.type == "infrastructure"), None)


def _vague(rule: Rule) -> bool:
    return rule.exception is not None and rule.name in VAGUE


def _reported(rule: Rule) -> bool:
    """Whether a rule's line only reports that something else failed."""
    return rule.role in ("exit", "symptom") or rule.name == WRAPPERS


def _decides(ending: Event, known: Event | None) -> bool:
    """Whether trouble without a rule takes precedence over the event of a rule."""
    if known is None:
        return True
    if known.faint or (known.rule is not None and known.rule.name == WRAPPERS):
        # that something ended is known already
        return is_grave(ending.text) and (ending.rule is not None or by_letter(ending.text))
    if known.rule is not None and known.rule.role != "exit":  # noticed by others, later
        earlier = ending.file is known.file and ending.number < known.number
        return earlier and ending.rule is not None
    return ending.rule is not None
