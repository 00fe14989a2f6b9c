"""A language model's opinion on a failure that rules leave open (SchedMate paper, section 3.3).

It is shown what every rank reported and did (`digest.py`), answers one question by closed choices
and cites a line for each. Citations are checked (`proof.py`); an answer with a wrong one is sent
back once. What a proved answer changes is decided in `reconcile.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, create_model, field_validator

from schedmate.errors import ModelError
from schedmate.jobs import Diagnosis
from schedmate.llm import LLM
from schedmate.llm.fence import Fence
from schedmate.logparse.failure.digest import Digest, digest
from schedmate.logparse.failure.doubts import COMPONENT
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.examine import examine
from schedmate.logparse.failure.filters import Healthy
from schedmate.logparse.failure.proof import (
    RefusedError,
    check_component,
    check_type,
    cite,
    standing,
)
from schedmate.logparse.failure.reconcile import Proved, reconciled, unsettled
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.reading import Log
from schedmate.prompts import fill, load

PURPOSE = "failure"
WINDOW = 200
"""Lines around the failure that a model is shown; the paper compares 200 and 500."""
COMPONENTS = ("gpu", "nvlink", "network", "node", "storage")
NOT_SHOWN = "unknown"
"""The answer if no line names a component."""


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
        return unsettled(diagnosis, error)


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
        return _proved(answer, diagnosis, root, scans, shown)

    proved = _ask(chat, diagnosis, shown, judge)
    if proved is None:
        return diagnosis
    return reconciled(diagnosis, proved, str(chat.endpoint.model))


def _deciding_event(found: Diagnosis, scans: Sequence[FileScan]) -> Event | None:
    """The event that decided."""
    decided = {(one.file, one.line) for one in found.evidence if one.note == "decided"}
    events = [event for one in scans for event in one.events]
    return next(
        (event for event in events if (event.file.name, event.known_at) in decided),
        next((event for event in events if event.number == found.line), None),
    )


def _proved(
    answer: Any, found: Diagnosis, root: Event | None, scans: Sequence[FileScan], shown: Digest
) -> Proved | None:
    """The answer with its lines; None if it agrees with the rules that nothing failed.

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
    return Proved(
        error_type=answer.error_type,
        error_name=answer.error_name,
        faulty_component=answer.faulty_component if part is not None else None,
        at=cited,
        component_at=part,
        standing=standing(found, root, scans, shown, cited, answer.error_type),
    )


def _schema(found: Diagnosis) -> type[BaseModel]:
    """The choices. `none` is one of them only if the rules found no failure."""
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
    chat: Any, found: Diagnosis, shown: Digest, judge: Callable[[Any], Proved | None]
) -> Proved | None:
    """A proved answer; a refused one is sent back once with the reason."""
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
