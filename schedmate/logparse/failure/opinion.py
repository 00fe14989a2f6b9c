"""Asks a language model about a failure that rules leave open (SchedMate paper, section 3.3).

It is shown what every rank reported and did (`digest.py`), answers one question by closed choices
and cites a line for each; an answer with a wrong citation is sent back once. A cited line counts if
it was shown, contains the quoted words, comes after the last training of its file, reports a
failure, and is not matched by a rule with another meaning. A component has to be named by the line
cited for it.

What a proved answer changes is decided here too. The plan comes from the table, and an answer never
gives it more rights than the verdict of the rules. If both are proved equally well, a conflict is
reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, create_model, field_validator

from schedmate.base.errors import ModelError
from schedmate.jobs import Diagnosis, ErrorType, EvidenceLine, FaultyComponent, Reading
from schedmate.llm import LLM
from schedmate.llm.redact import Fence
from schedmate.logparse.failure.describe import OPEN_COMPONENT, UNKNOWN_FAILURE, UNPROVED
from schedmate.logparse.failure.digest import Digest, digest
from schedmate.logparse.failure.examine import Healthy, examine
from schedmate.logparse.failure.locate import activity_named_in, is_before
from schedmate.logparse.failure.plans import limit_plan, plan_for
from schedmate.logparse.failure.rules import (
    Rule,
    failed_subsystem,
    is_mild,
    load_rules,
    named_subsystems,
    speaks_of_trouble,
)
from schedmate.logparse.failure.scan import Event, FileScan, event_at
from schedmate.logparse.reading import Line, Log
from schedmate.prompts import fill, load

PURPOSE = "failure"
WINDOW = 200
"""Lines around the failure that a model is shown; the paper compares 200 and 500."""
COMPONENTS = ("gpu", "nvlink", "network", "node", "storage")
NOT_SHOWN = UNKNOWN_TYPE = "unknown"
"""The answers if no line names a component, and if none shows whose fault it is."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    line: str
    quote: str
    component_line: str
    component_quote: str

    @field_validator("line", "component_line", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        return str(value) if isinstance(value, int) else value


def is_open(diagnosis: Diagnosis) -> bool:
    """Whether the rules leave anything about the failure open."""
    return bool(diagnosis.doubts) and diagnosis.source != "model" and not diagnosis.conflict


def consult(
    diagnosis: Diagnosis,
    log: Log,
    llm: LLM,
    *,
    window: int = WINDOW,
    healthy: Sequence[Log] = (),
) -> Diagnosis:
    """`diagnosis` with what a model could prove; unchanged if the rules leave nothing open.

    `window` is in lines; `healthy` are the logs that `diagnose` was given as such. A model that
    fails, or cannot prove its answer, changes nothing but `warnings`. Never raises for what a model
    or its server does.
    """
    if not is_open(diagnosis):
        return diagnosis
    try:
        return settle(diagnosis, log, llm, window=window, healthy=healthy)
    except ModelError as error:
        return note_unsettled(diagnosis, error)


def settle(
    diagnosis: Diagnosis,
    log: Log,
    llm: LLM,
    *,
    window: int = WINDOW,
    job: str | None = None,
    healthy: Sequence[Log] = (),
) -> Diagnosis:
    """`diagnosis`, which the rules left open, with what a model could prove.

    All questions about one `job` share its budget. Raises `ModelError` if the model fails, and its
    subclass `RefusedError` if the model cannot prove its answer.
    """
    scans = examine(log, load_rules(), Healthy(healthy), diagnosis.locator).scans
    shown = digest(diagnosis, scans, window)
    chat = llm.chat(PURPOSE, job=job)
    root = _deciding_event(diagnosis, scans)

    def judge(answer: Any) -> Proved | None:
        return _prove(answer, diagnosis, root, scans, shown)

    proved = _ask(chat, diagnosis, shown, judge)
    if proved is None:
        return diagnosis
    return reconcile(diagnosis, proved, str(chat.endpoint.model))


def _deciding_event(diagnosis: Diagnosis, scans: Sequence[FileScan]) -> Event | None:
    """The event of the line that the diagnosis marks as decided, else one of its first line."""
    decided = {(line.file, line.line) for line in diagnosis.evidence if line.note == "decided"}
    events = [event for scan in scans for event in scan.events]
    return next(
        (event for event in events if (event.file.name, event.known_at) in decided),
        next((event for event in events if event.number == diagnosis.line), None),
    )


def _prove(
    answer: Any, diagnosis: Diagnosis, root: Event | None, scans: Sequence[FileScan], shown: Digest
) -> Proved | None:
    """The answer with its lines; None if it changes nothing: nothing failed, or none can tell.

    Raises `RefusedError`.
    """
    if answer.error_type in ("none", UNKNOWN_TYPE):
        return None
    cited = cite(shown, answer.line, answer.quote)
    part = None
    if answer.error_type == "infrastructure" and answer.faulty_component != NOT_SHOWN:
        part = cite(shown, answer.component_line, answer.component_quote)
        check_component(part, answer.faulty_component)
    check_type(cited, answer.error_type, part)
    return Proved(
        error_type=answer.error_type,
        error_name=answer.error_name,
        faulty_component=answer.faulty_component if part is not None else None,
        at=cited,
        component_at=part,
        standing=compare_with_rules(diagnosis, root, scans, shown, cited, answer.error_type),
    )


def _schema(diagnosis: Diagnosis) -> type[BaseModel]:
    """The schema of an answer; `none` is a choice only if the rules found no failure."""
    types: tuple[str, ...] = ("infrastructure", "framework", "script", UNKNOWN_TYPE)
    if diagnosis.error_type == "none":
        types = ("none", *types)
    elif diagnosis.doubts == [OPEN_COMPONENT]:
        types = ("infrastructure", UNKNOWN_TYPE)
    names = {rule.name for rule in load_rules().rules if rule.name and rule.type != "none"}
    kind: Any = Literal[types]
    name: Any = Literal[tuple(sorted(names))]
    component: Any = Literal[(*COMPONENTS, NOT_SHOWN)]
    return create_model(
        "Failure",
        __base__=_Answer,
        error_type=(kind, ...),
        error_name=(name, ...),
        faulty_component=(component, ...),
    )


def _ask(
    chat: Any, diagnosis: Diagnosis, shown: Digest, judge: Callable[[Any], Proved | None]
) -> Proved | None:
    """A proved answer; a refused one is sent back once with the reason."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    from schedmate.llm.chat import ask

    fence = Fence()
    schema = _schema(diagnosis)
    question = fill(
        "failure.question.v2",
        nonce=fence.nonce,
        verdict=_verdict_in_words(diagnosis),
        doubts=_fenced_doubts(diagnosis.doubts, fence),
        log=fence.wrap("log", shown.text),
    )
    messages: list[Any] = [SystemMessage(load("failure.system.v3")), HumanMessage(question)]
    answer = ask(chat, messages, schema)
    try:
        return judge(answer)
    except RefusedError as refused:
        messages += [
            AIMessage(json.dumps(answer.model_dump())),
            HumanMessage(fill("failure.refused.v1", reason=str(refused))),
        ]
        return judge(ask(chat, messages, schema))


def _verdict_in_words(diagnosis: Diagnosis) -> str:
    if diagnosis.error_type == "none":
        return "no failure"
    parts = (diagnosis.error_name, diagnosis.error_type, diagnosis.faulty_component)
    return ", ".join(part for part in parts if part)


def _fenced_doubts(doubts: Sequence[str], fence: Fence) -> str:
    return fence.wrap("doubts", "\n".join(f"- {one}" for one in doubts))


# Whether the line that a language model cites proves its answer about a failure.
#
# A cited line counts if it was shown, contains the quoted words, comes after the last training of
# its file, reports a failure, and is not matched by a rule with another meaning. A component has
# to be named by the line cited for it. How a proved answer compares with the verdict of the rules
# is decided here too.


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

    scan: FileScan
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
        return self.event or event_at(None, self.scan.file, (self.line,), self.line)


def cite(digest: Digest, name: str, quote: str) -> Cited:
    """The line that an answer cites; raises `RefusedError` if it does not contain the quotation."""
    match = re.search(r"(?:(\d+):)?(\d+)", name)
    key = f"{match[1] or 1}:{match[2]}" if match is not None else name
    if key not in digest.lines:
        raise RefusedError("no such line", f"line {name[:40]!r} is none of those shown")
    scan, line = digest.lines[key]
    quoted = _normalised(quote)
    if len(quoted) < MIN_QUOTE or quoted not in _normalised(line.text):
        raise RefusedError("not quoted", f"line {key} does not hold what it quotes")
    if scan.horizon > scan.attempt.offset and line.number < scan.file.line_number(scan.horizon):
        raise RefusedError("training went on", f"training went on after line {key}")
    event = next(
        (
            event
            for event in scan.events
            if any(part.number == line.number for part in event.lines)
            or event.known_at == line.number
        ),
        None,
    )
    return Cited(scan, line, event)


def check_type(cited: Cited, kind: str, component: Cited | None) -> None:
    """Raise `RefusedError` unless the line reports a failure that may have this type.

    `component` is the line that was cited, and checked, for the component.
    """
    rule = cited.rule
    where = f"line {cited.line.number}"
    doing = activity_named_in(cited.line.text)
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
    if kind == "infrastructure" and component is None and not _names_infrastructure(cited):
        raise RefusedError(
            "names nothing of it", f"{where} names no device, link, machine, service or file system"
        )


def check_component(cited: Cited, component: str) -> None:
    """Raise `RefusedError` unless the line reports a failure and names the component."""
    rule = cited.rule
    if cited.event is None and not speaks_of_trouble(cited.line.text):
        raise RefusedError("shows no failure", f"line {cited.line.number} reports no failure")
    parts = {one.component for text in cited.texts for one in named_subsystems(text)}
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


def _names_infrastructure(cited: Cited) -> bool:
    rule = cited.rule
    if rule is not None and rule.type == "infrastructure":
        return True
    return any(
        one.type == "infrastructure" for text in cited.texts for one in named_subsystems(text)
    )


def compare_with_rules(
    diagnosis: Diagnosis,
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
    if kind == diagnosis.error_type:
        return "agrees"
    at = cited.at()
    if diagnosis.error_type != "none" and not UNPROVED & set(diagnosis.doubts) and root is not None:
        rule = cited.rule
        names_cause = rule is not None and not rule.general and rule.role == "cause"
        earlier = is_before(at, root)
        if earlier and names_cause:
            return "conflicts" if shown.withheld else "replaces"
        apart = at.file is not root.file or at.rank != root.rank
        if earlier or (names_cause and apart):
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
    for scan in scans:
        for event in scan.events:
            if event is at or event.rule is None or event.rule.role != "cause" or event.faint:
                continue
            if is_before(at, event) and event.file is at.file:
                continue
            if not event.rule.general and not event.bare:
                yield event.rule.type
    for scan, line in shown.lines.values():
        after = scan.file is at.file and line.number > at.known_at
        if after or line.number < scan.file.line_number(scan.horizon) or is_mild(line.text):
            continue
        rule = load_rules().line(line.text)
        subsystem = failed_subsystem(line.text) if rule is None else None
        if subsystem is not None:
            yield subsystem.type


def _normalised(text: str) -> str:
    return " ".join(text.split()).lower()


# How a proved answer of a language model changes the diagnosis by rules.
#
# The plan comes from the table, and an answer never gives it more rights than the verdict of the
# rules. If both are proved equally well, a conflict is reported.


DISPUTED = "a language model reads it otherwise, with equal proof"


@dataclass(frozen=True)
class Proved:
    """A model's answer with valid citations, and how it compares with the verdict of the rules.

    `component_at` is the line cited for the component, None if the answer names none.
    """

    error_type: ErrorType
    error_name: str
    faulty_component: FaultyComponent | None
    at: Cited
    component_at: Cited | None
    standing: Standing


def reading_of(diagnosis: Diagnosis) -> Reading:
    """The classification of a failure in a diagnosis, and the line that decided."""
    decided = next((one for one in diagnosis.evidence if one.note == "decided"), None)
    return Reading(
        error_type=diagnosis.error_type,
        error_name=diagnosis.error_name,
        faulty_component=diagnosis.faulty_component,
        rule=diagnosis.rule,
        file=diagnosis.file,
        line=diagnosis.line,
        text=decided.text if decided is not None else "",
    )


def reconcile(diagnosis: Diagnosis, proved: Proved, model: str) -> Diagnosis:
    """The `diagnosis` by rules with what an answer of `model` proves."""
    model_reading = _reading_of_answer(proved)
    cited = [_quote_citation(proved.at, "the model cites this for the type")]
    if proved.component_at is not None:
        cited.append(_quote_citation(proved.component_at, "the model cites this for the component"))
    diagnosis = diagnosis.model_copy(update={"evidence": [*diagnosis.evidence, *cited]})
    if proved.standing == "conflicts":
        return diagnosis.model_copy(
            update={
                "conflict": [reading_of(diagnosis), model_reading],
                "doubts": [*diagnosis.doubts, DISPUTED],
                "reason": f"{diagnosis.reason} {model} reads line {model_reading.line} otherwise.",
            }
        )
    if proved.standing == "agrees":
        return _with_agreement(diagnosis, proved, model_reading, model)
    return _with_replacement(diagnosis, proved, model_reading, model)


def _reading_of_answer(proved: Proved) -> Reading:
    """An answer as a reading; a rule that matches the line says what the error is called."""
    rule, at = proved.at.rule, proved.at
    name = rule.name if rule is not None and not rule.general else None
    return Reading(
        error_type=proved.error_type,
        error_name=name or proved.error_name,
        faulty_component=proved.faulty_component,
        file=at.scan.file.name,
        line=at.line.number,
        text=at.line.text[:500],
    )


def _with_agreement(
    diagnosis: Diagnosis, proved: Proved, model_reading: Reading, model: str
) -> Diagnosis:
    """The verdict of the rules, with the component, or the name and line, that they lacked.

    Both agree whose fault it is. What the failure is called, and where it began, is the model's if
    a rule knows its line and what the rules say is a guess. Where neither is proved they differ,
    and the doubts stay.
    """
    ruled = reading_of(diagnosis)
    same = (model_reading.file, model_reading.line) == (ruled.file, ruled.line)
    rule = proved.at.rule
    named = rule is not None and bool(rule.name) and not rule.general and rule.role == "cause"
    guessed = bool(UNPROVED & set(diagnosis.doubts))
    component = proved.faulty_component or diagnosis.faulty_component
    if not same and named and guessed:
        return _with_plan(
            diagnosis,
            {
                "by_rules": ruled,
                "error_name": model_reading.error_name,
                "faulty_component": component,
                "file": model_reading.file,
                "line": model_reading.line,
                "rank": proved.at.at().rank,
                "time": None,
                "undecided": False,
                "source": "model",
                "doubts": [],
                "reason": f"{model} read it so; rules alone say {_reading_in_words(ruled)}",
                **dict.fromkeys(("node", "rule", "reference", "meanwhile")),
            },
        )
    if diagnosis.faulty_component is None and proved.faulty_component is not None:
        return _with_plan(
            diagnosis,
            {
                "by_rules": reading_of(diagnosis),
                "faulty_component": proved.faulty_component,
                "source": "model",
                "doubts": [],
            },
        )
    if not same and guessed and model_reading.error_name != ruled.error_name:
        return diagnosis
    left = [one for one in diagnosis.doubts if one == OPEN_COMPONENT]
    return diagnosis.model_copy(update={"doubts": left})


def _with_replacement(
    diagnosis: Diagnosis, proved: Proved, model_reading: Reading, model: str
) -> Diagnosis:
    """The verdict of the model; that of the rules is kept in `by_rules`."""
    ruled = reading_of(diagnosis)
    changed: dict[str, Any] = {
        "by_rules": ruled,
        "error_type": model_reading.error_type,
        "error_name": diagnosis.error_name or model_reading.error_name,
        "faulty_component": model_reading.faulty_component,
        "source": "model",
        "doubts": [],
        "reason": f"{model} read it so; rules alone say {_reading_in_words(ruled)}",
        **dict.fromkeys(("rule", "reference", "recoverable", "finished", "meanwhile", "likely")),
    }
    nothing_known = (
        diagnosis.error_type == "none" or UNKNOWN_FAILURE in diagnosis.doubts or diagnosis.undecided
    )
    rule = proved.at.rule
    named = rule is not None and bool(rule.name) and not rule.general
    if nothing_known or (ruled.rule is not None and named):
        changed |= {
            "file": model_reading.file,
            "line": model_reading.line,
            "rank": proved.at.at().rank,
            "node": None,
            "undecided": False,
            "time": None,
            "error_name": model_reading.error_name,
        }
    return _with_plan(diagnosis, changed)


def settle_alike(diagnosis: Diagnosis, opinion: Diagnosis, of: str) -> Diagnosis:
    """`diagnosis` of another job with the same failure, with a model's answer about job `of`.

    Citations stay with job `of`.
    """
    names = ("error_type", "faulty_component", "rule", "reference", "recoverable", "source")
    return _with_plan(
        diagnosis,
        {
            **{name: getattr(opinion, name) for name in names},
            "by_rules": reading_of(diagnosis),
            "error_name": diagnosis.error_name or opinion.error_name,
            "doubts": [],
            "reason": f"as in job {of}, which failed in the same way: {opinion.reason}",
        },
    )


def note_unsettled(diagnosis: Diagnosis, error: ModelError) -> Diagnosis:
    """`diagnosis` with a warning that the model could not settle it."""
    warning = f"the language model did not settle it: {error}"
    return diagnosis.model_copy(update={"warnings": [*diagnosis.warnings, warning]})


def _with_plan(diagnosis: Diagnosis, changed: dict[str, Any]) -> Diagnosis:
    """The changed diagnosis, with a plan that has no more rights than the one before."""
    assert diagnosis.plan is not None
    updated = diagnosis.model_copy(update=changed)
    return updated.model_copy(update={"plan": limit_plan(plan_for(updated), diagnosis.plan)})


def _reading_in_words(ruled: Reading) -> str:
    if ruled.error_type == "none":
        return "that nothing failed"
    return f"{ruled.error_name or 'that it failed'} ({ruled.error_type})"


def _quote_citation(cited: Cited, note: str) -> EvidenceLine:
    return EvidenceLine(
        file=cited.scan.file.name, line=cited.line.number, text=cited.line.text[:500], note=note
    )
