"""A language model's opinion on a failure that rules left open (SchedMate paper, section 3.3).

It is shown what every rank reported and did (`digest.py`) and answers one question by closed
choices, citing a line for each; a citation is checked (`proof.py`), and one that fails is sent back
once. What a rule has proved gives way only to an earlier failure that is known as well; proof that
is equal is reported as a conflict. The plan comes from the table, and a model's reading never gives
it more rights than what rules said did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, create_model, field_validator

from schedmate.errors import ModelError
from schedmate.jobs import Diagnosis, EvidenceLine, Reading
from schedmate.llm import LLM
from schedmate.llm.fence import Fence
from schedmate.logparse.failure.digest import Digest, digest
from schedmate.logparse.failure.doubts import COMPONENT, UNKNOWN
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.examine import examine
from schedmate.logparse.failure.filters import Healthy
from schedmate.logparse.failure.plans import limited, plan_for
from schedmate.logparse.failure.proof import (
    Cited,
    RefusedError,
    Standing,
    check_component,
    check_type,
    cite,
    standing,
)
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.reading import Log
from schedmate.prompts import fill, load

PURPOSE = "failure"
WINDOW = 200
"""Lines around the failure that a model is shown; the paper compares 200 and 500."""
COMPONENTS = ("gpu", "nvlink", "network", "node", "storage")
NOT_SHOWN = "unknown"
"""The answer for a component that no line names."""
DISPUTED = "a language model reads it otherwise, with equal proof"


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
    """Whether there is something about the failure that rules left open."""
    return bool(diagnosis.doubts) and diagnosis.source != "model" and not diagnosis.conflict


def consult(
    diagnosis: Diagnosis,
    log: Log,
    llm: LLM,
    *,
    window: int = WINDOW,
    healthy: Sequence[Log] = (),
) -> Diagnosis:
    """`diagnosis` with what a model could settle and prove; itself where there is nothing open.

    `window` is in lines; `healthy` are the logs that `diagnose` was given as such. A model that
    fails, or cannot prove what it says, changes nothing but `warnings`. Never raises for what a
    model or its server does.
    """
    if not is_open(diagnosis):
        return diagnosis
    try:
        return settle(diagnosis, log, llm, window=window, healthy=healthy)
    except ModelError as error:
        found = diagnosis.model_copy(deep=True)
        found.warnings.append(f"the language model did not settle it: {error}")
        return found


def settle(
    diagnosis: Diagnosis,
    log: Log,
    llm: LLM,
    *,
    window: int = WINDOW,
    job: str | None = None,
    healthy: Sequence[Log] = (),
) -> Diagnosis:
    """`diagnosis`, which rules left open, with what a model could prove.

    All questions of one `job` share its budget. Raises `ModelError` for a model that fails, and
    `RefusedError`, which is one, where it cannot prove what it says.
    """
    scans = examine(log, load_rules(), Healthy(healthy), diagnosis.locator).scans
    found = diagnosis.model_copy(deep=True)
    shown = digest(found, scans, window)
    chat = llm.chat(PURPOSE, job=job)
    root = _root(found, scans)

    def judge(answer: Any) -> _Proved | None:
        return _proved(answer, found, root, scans, shown)

    proved = _ask(chat, found, shown, judge)
    if proved is not None:
        _merge(found, proved, str(chat.endpoint.model))
    if found.source == "model":
        assert diagnosis.plan is not None
        found.plan = limited(plan_for(found), diagnosis.plan)
    return found


def alike(diagnosis: Diagnosis, opinion: Diagnosis, of: str) -> Diagnosis:
    """`diagnosis` of another job that failed in the same way, with what a model said of job `of`.

    What it cited stays with that job.
    """
    changed = ("error_type", "faulty_component", "rule", "reference", "recoverable", "source")
    found = diagnosis.model_copy(
        update={name: getattr(opinion, name) for name in changed}, deep=True
    )
    found.by_rules = reading(diagnosis)
    found.error_name = diagnosis.error_name or opinion.error_name
    found.doubts = []
    found.reason = f"as in job {of}, which failed in the same way: {opinion.reason}"
    assert diagnosis.plan is not None
    found.plan = limited(plan_for(found), diagnosis.plan)
    return found


def reading(diagnosis: Diagnosis) -> Reading:
    """What a diagnosis takes the failure for, and the line that decided."""
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


class _Proved:
    """An answer whose citations hold."""

    def __init__(self, answer: Any, cited: Cited, part: Cited | None, how: Standing) -> None:
        self.kind: str = answer.error_type
        self.name: str = answer.error_name
        self.cited, self.part, self.how = cited, part, how
        self.component: Any = answer.faulty_component if part is not None else None


def _root(found: Diagnosis, scans: Sequence[FileScan]) -> Event | None:
    """The event that decided."""
    decided = {(one.file, one.line) for one in found.evidence if one.note == "decided"}
    events = [event for one in scans for event in one.events]
    return next(
        (event for event in events if (event.file.name, event.known_at) in decided),
        next((event for event in events if event.number == found.line), None),
    )


def _proved(
    answer: Any, found: Diagnosis, root: Event | None, scans: Sequence[FileScan], shown: Digest
) -> _Proved | None:
    """The answer with its lines; None where it says that nothing failed, as the rules do.

    Raises `RefusedError`.
    """
    if answer.error_type == "none":
        return None
    cited = cite(shown, answer.line, answer.quote)
    part = None
    if answer.error_type == "infrastructure" and answer.faulty_component != NOT_SHOWN:
        part = cite(shown, answer.component_line, answer.component_quote)
        check_component(part, answer.faulty_component)
    check_type(cited, answer.error_type, part)
    return _Proved(
        answer, cited, part, standing(found, root, scans, shown, cited, answer.error_type)
    )


def _schema(found: Diagnosis) -> type[BaseModel]:
    """The choices. Where nothing failed so far, that may be so; else it is none of them."""
    types: tuple[str, ...] = ("infrastructure", "framework", "script")
    if found.error_type == "none":
        types = ("none", *types)
    elif found.doubts == [COMPONENT]:
        types = ("infrastructure",)
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
    chat: Any, found: Diagnosis, shown: Digest, judge: Callable[[Any], _Proved | None]
) -> _Proved | None:
    """A proved answer; one that is refused is sent back once with the reason."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    from schedmate.llm.structured import ask

    fence = Fence()
    schema = _schema(found)
    question = fill(
        "failure.question.v2",
        nonce=fence.nonce,
        verdict=_said(found),
        doubts=_listed(found.doubts, fence),
        log=fence.wrap("log", shown.text),
    )
    messages: list[Any] = [SystemMessage(load("failure.system.v2")), HumanMessage(question)]
    answer = ask(chat, messages, schema)
    try:
        return judge(answer)
    except RefusedError as refused:
        messages += [
            AIMessage(json.dumps(answer.model_dump())),
            HumanMessage(fill("failure.refused.v1", reason=str(refused))),
        ]
        return judge(ask(chat, messages, schema))


def _said(found: Diagnosis) -> str:
    if found.error_type == "none":
        return "no failure"
    parts = (found.error_name, found.error_type, found.faulty_component)
    return ", ".join(part for part in parts if part)


def _listed(doubts: Sequence[str], fence: Fence) -> str:
    return fence.wrap("doubts", "\n".join(f"- {one}" for one in doubts))


def _merge(found: Diagnosis, proved: _Proved, model: str) -> None:
    """What a proved answer changes."""
    cited, rule = proved.cited, proved.cited.rule
    name = rule.name if rule is not None and rule.name and not rule.general else None
    said = Reading(
        error_type=proved.kind,
        error_name=name or proved.name,
        faulty_component=proved.component,
        file=cited.one.file.name,
        line=cited.line.number,
        text=cited.line.text[:500],
    )
    _quote(found, cited, "the model cites this for the type")
    if proved.part is not None:
        _quote(found, proved.part, "the model cites this for the component")
    if proved.how == "conflicts":
        found.conflict = [reading(found), said]
        found.doubts.append(DISPUTED)
        found.reason = f"{found.reason} {model} reads line {said.line} otherwise."
        return
    if proved.how == "agrees":
        if found.faulty_component is None and proved.component is not None:
            found.by_rules = reading(found)
            found.faulty_component, found.source = proved.component, "model"
            found.doubts = []
        else:
            found.doubts = [one for one in found.doubts if one == COMPONENT]
        return
    found.by_rules = reading(found)
    moved = found.error_type == "none" or UNKNOWN in found.doubts or found.undecided
    if moved or (found.by_rules.rule is not None and name is not None):
        found.file, found.line = said.file, said.line
        found.rank, found.node, found.undecided = cited.at().rank, None, False
        found.time = None
        found.error_name = said.error_name
    found.error_type = said.error_type
    found.error_name = found.error_name or said.error_name
    found.rule = found.reference = found.recoverable = found.finished = found.meanwhile = None
    found.faulty_component, found.source = proved.component, "model"
    found.doubts = []
    found.reason = f"{model} read it so; rules alone say {_ruled(found.by_rules)}"


def _ruled(ruled: Reading) -> str:
    if ruled.error_type == "none":
        return "that nothing failed"
    return f"{ruled.error_name or 'that it failed'} ({ruled.error_type})"


def _quote(found: Diagnosis, cited: Cited, note: str) -> None:
    found.evidence.append(
        EvidenceLine(
            file=cited.one.file.name, line=cited.line.number, text=cited.line.text[:500], note=note
        )
    )
