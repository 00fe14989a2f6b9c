"""Whether the line that a language model cites proves its answer about a failure.

A cited line counts if it was shown, contains the quoted words, comes after the last training of its
file, reports a failure, and is not matched by a rule with another meaning. A component has to be
named by the line cited for it. How a proved answer compares with the verdict of the rules is
decided here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from schedmate.errors import ModelError
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure.digest import Digest
from schedmate.logparse.failure.doubts import UNPROVED
from schedmate.logparse.failure.events import Event, event_at
from schedmate.logparse.failure.locate import before
from schedmate.logparse.failure.meanwhile import activity
from schedmate.logparse.failure.rules import Rule, load_rules
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.severity import is_mild
from schedmate.logparse.failure.wording import about, named, speaks_of_trouble
from schedmate.logparse.reading import Line

MIN_QUOTE = 6
"""Minimum length of a quotation, since shorter ones are found on any line [characters]."""
NAMED_LINES = 12
"""Lines of one report that may name the failed component."""

Reason = Literal[
    "no such line",
    "not quoted",
    "training went on",
    "shows no failure",
    "known otherwise",
    "names nothing of it",
    "neither earlier nor contradicting",
]
Standing = Literal["agrees", "replaces", "conflicts"]


class RefusedError(ModelError):
    """An answer that its line does not prove; `reason` is the kind of refusal."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__("malformed", message)
        self.reason: Reason = reason


@dataclass(frozen=True)
class Cited:
    """A line that a model cites, in its file, and the failure whose report it belongs to."""

    one: FileScan
    line: Line
    event: Event | None

    @property
    def rule(self) -> Rule | None:
        """The rule that matches the report of the line."""
        if self.event is not None and self.event.rule is not None:
            return self.event.rule
        return load_rules().line(self.line.text)

    @property
    def texts(self) -> list[str]:
        """The text of the line and of the others of its report."""
        lines = [] if self.event is None else self.event.lines[-NAMED_LINES:]
        return [self.line.text, *(line.text for line in lines)]

    def at(self) -> Event:
        """The event of the line, to order it among others."""
        return self.event or event_at(None, self.one.file, (self.line,), self.line)


def cite(digest: Digest, name: str, quote: str) -> Cited:
    """The line that an answer cites; raises `RefusedError` if it does not contain the quotation."""
    match = re.search(r"(?:(\d+):)?(\d+)", name)
    key = f"{match[1] or 1}:{match[2]}" if match is not None else name
    if key not in digest.lines:
        raise RefusedError("no such line", f"line {name[:40]!r} is none of those shown")
    one, line = digest.lines[key]
    quoted = _words(quote)
    if len(quoted) < MIN_QUOTE or quoted not in _words(line.text):
        raise RefusedError("not quoted", f"line {key} does not hold what it quotes")
    if one.horizon > one.attempt.offset and line.number < one.file.line_number(one.horizon):
        raise RefusedError("training went on", f"training went on after line {key}")
    event = next(
        (
            event
            for event in one.events
            if any(part.number == line.number for part in event.lines)
            or event.known_at == line.number
        ),
        None,
    )
    return Cited(one, line, event)


def check_type(cited: Cited, kind: str, component: Cited | None) -> None:
    """Raise `RefusedError` unless the line reports a failure that may have this type.

    `component` is the line that was cited, and checked, for the component.
    """
    rule = cited.rule
    where = f"line {cited.line.number}"
    doing = activity(cited.line.text)
    speaks = cited.event is not None or speaks_of_trouble(cited.line.text) or doing is not None
    if not speaks or (rule is not None and rule.role in ("benign", "hint")):
        raise RefusedError("shows no failure", f"{where} reports no failure")
    if rule is not None and not rule.general and rule.type not in (kind, "unknown"):
        if rule.role in ("cause", "stop"):
            raise RefusedError("known otherwise", f"{where} is known as {rule.name} ({rule.type})")
        if rule.role == "symptom":
            raise RefusedError(
                "known otherwise", f"{where} is what others noticed; it shows no {kind} failure"
            )
    if kind == "infrastructure" and component is None and not _infrastructure(cited):
        raise RefusedError(
            "names nothing of it", f"{where} names no device, link, machine, service or file system"
        )


def check_component(cited: Cited, component: str) -> None:
    """Raise `RefusedError` unless the line reports a failure and names the component."""
    rule = cited.rule
    if cited.event is None and not speaks_of_trouble(cited.line.text):
        raise RefusedError("shows no failure", f"line {cited.line.number} reports no failure")
    parts = {one.component for text in cited.texts for one in named(text)}
    if rule is not None and rule.type == "infrastructure":
        parts.add(rule.component)
        if not rule.general and rule.role == "cause" and rule.component not in (component, None):
            raise RefusedError(
                "known otherwise",
                f"line {cited.line.number} is known as {rule.name} ({rule.component})",
            )
    if component not in parts:
        raise RefusedError(
            "names nothing of it",
            f"line {cited.line.number} names no {component}"
            + (f", it names {', '.join(sorted(filter(None, parts)))}" if any(parts) else ""),
        )


def _infrastructure(cited: Cited) -> bool:
    rule = cited.rule
    if rule is not None and rule.type == "infrastructure":
        return True
    return any(one.type == "infrastructure" for text in cited.texts for one in named(text))


def standing(
    found: Diagnosis,
    root: Event | None,
    scans: Sequence[FileScan],
    shown: Digest,
    cited: Cited,
    kind: str,
) -> Standing:
    """How a proved answer compares with the verdict of the rules, whose event is `root`.

    A guess of the rules gives way, unless another line of the failure contradicts the answer or the
    log addresses its reader: then a model does not decide alone. A verdict proved by a rule gives
    way to an earlier failure that also matches a rule. If neither is known to be earlier, or the
    earlier one has only its wording, both stand as a conflict. Raises `RefusedError` for a later
    line that contradicts nothing.
    """
    if kind == found.error_type:
        return "agrees"
    at = cited.at()
    if found.error_type != "none" and not UNPROVED & set(found.doubts) and root is not None:
        rule = cited.rule
        known = rule is not None and not rule.general and rule.role == "cause"
        earlier = before(at, root)
        if earlier and known:
            return "conflicts" if shown.withheld else "replaces"
        apart = at.file is not root.file or at.rank != root.rank
        if earlier or (known and apart):
            return "conflicts"
        raise RefusedError(
            "neither earlier nor contradicting",
            f"line {cited.line.number} is neither earlier than line {root.number}, which a rule "
            f"knows, nor a failure of another process",
        )
    contrary = any(one != kind for one in _types_before(at, scans, shown))
    return "conflicts" if contrary or shown.withheld else "replaces"


def _types_before(at: Event, scans: Sequence[FileScan], shown: Digest) -> Iterator[str]:
    """The types of failures, by rule or by wording, up to a line."""
    for one in scans:
        for event in one.events:
            if event is at or event.rule is None or event.rule.role != "cause" or event.faint:
                continue
            if before(at, event) and event.file is at.file:
                continue
            if not event.rule.general and not event.bare:
                yield event.rule.type
    for one, line in shown.lines.values():
        after = one.file is at.file and line.number > at.known_at
        if after or line.number < one.file.line_number(one.horizon) or is_mild(line.text):
            continue
        rule = load_rules().line(line.text)
        subsystem = about(line.text) if rule is None else None
        if subsystem is not None:
            yield subsystem.type


def _words(text: str) -> str:
    return " ".join(text.split()).lower()
