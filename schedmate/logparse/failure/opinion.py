"""A language model's opinion on a failure that rules left open (SchedMate paper, section 3.3).

Two questions, each under a schema of closed choices: whose fault it is, and for infrastructure
which component. An opinion counts only when the line it cites is among those it was shown and holds
the words it quotes. What a rule has decided stays decided; the plan comes from the table, which has
a row of its own for what only a model says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, create_model

from schedmate.errors import ModelError
from schedmate.jobs import Diagnosis, EvidenceLine
from schedmate.llm import LLM
from schedmate.llm.fence import Fence
from schedmate.logparse.failure.plans import plan_for
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.reading import Line, Log, LogFile
from schedmate.prompts import fill, load

PURPOSE = "failure"
WINDOW = 200
"""Lines around the failure that a model is shown; the paper compares 200 and 500."""
LINE_CHARACTERS = 400
MIN_QUOTE = 6
"""A shorter quotation could be found on any line."""


class _Cited(BaseModel):
    model_config = ConfigDict(extra="forbid")

    line: int
    quote: str


def is_open(diagnosis: Diagnosis) -> bool:
    """Whether there is something about the failure that rules left open."""
    if diagnosis.error_type == "infrastructure":
        return diagnosis.faulty_component is None
    if diagnosis.error_type == "unknown" or diagnosis.source == "wording":
        return True
    rule = load_rules().by_id.get(diagnosis.rule or "")
    return rule is not None and rule.general


def consult(diagnosis: Diagnosis, log: Log, llm: LLM, *, window: int = WINDOW) -> Diagnosis:
    """`diagnosis` with what a model could settle and prove; itself where there is nothing open.

    `window` is in lines. A model that fails, or cannot prove what it says, changes nothing but
    `warnings`. Never raises for what a model or its server does.
    """
    if not is_open(diagnosis):
        return diagnosis
    try:
        return settle(diagnosis, log, llm, window=window)
    except ModelError as error:
        found = diagnosis.model_copy(deep=True)
        found.warnings.append(f"the language model did not settle it: {error}")
        found.plan = plan_for(found)
        return found


def settle(
    diagnosis: Diagnosis, log: Log, llm: LLM, *, window: int = WINDOW, job: str | None = None
) -> Diagnosis:
    """`diagnosis`, which rules left open, with what a model could prove.

    All questions of one `job` share its budget. Raises `ModelError` for a model that fails or
    cannot prove what it says.
    """
    found = diagnosis.model_copy(deep=True)
    _consult(found, log, llm, window, job)
    found.plan = plan_for(found)
    return found


def alike(diagnosis: Diagnosis, opinion: Diagnosis, of: str) -> Diagnosis:
    """`diagnosis` of another job that failed in the same way, with what a model said of job `of`.

    What it cited stays with that job.
    """
    changed = ("error_type", "faulty_component", "rule", "reference", "recoverable", "source")
    found = diagnosis.model_copy(
        update={name: getattr(opinion, name) for name in changed}, deep=True
    )
    found.error_name = diagnosis.error_name or opinion.error_name
    found.reason = f"as in job {of}, which failed in the same way: {opinion.reason}"
    found.plan = plan_for(found)
    return found


def _consult(found: Diagnosis, log: Log, llm: LLM, window: int, job: str | None) -> None:
    file = next((one for one in log.files if one.name == found.file), log.files[0])
    shown = {line.number: line for line in _window(file, found.line, window)}
    chat = llm.chat(PURPOSE, job=job)
    fence = Fence()
    if found.error_type != "infrastructure":
        opinion = _ask(chat, "failure.type.v1", _type_schema(found), found, fence, shown)
        found.error_type = opinion.error_type
        found.error_name = found.error_name or opinion.error_name
        found.rule = found.reference = found.recoverable = None
        found.faulty_component = None
        found.source = "model"
        found.reason = f"{chat.endpoint.model} read it so; no rule knows the line"
        _cite(found, file, shown[opinion.line], "the model cites this for the type")
    if found.error_type == "infrastructure":
        opinion = _ask(chat, "failure.component.v1", _component_schema(), found, fence, shown)
        if opinion.faulty_component != "unknown":
            found.faulty_component = opinion.faulty_component
            found.source = "model"
            _cite(found, file, shown[opinion.line], "the model cites this for the component")


def _window(file: LogFile, line: int | None, window: int) -> Iterator[Line]:
    if line is None:
        last = file.line_count()
        return file.lines(max(1, last - window + 1), last)
    return file.lines(max(1, line - window // 2), line + window // 2 - 1)


def _type_schema(found: Diagnosis) -> type[BaseModel]:
    """The name is only asked for when the exception does not give it."""
    kind: Any = Literal["infrastructure", "framework", "script"]
    names = {rule.name for rule in load_rules().rules if rule.name and rule.type != "none"}
    name: Any = Literal[tuple(sorted(names if found.error_name is None else {found.error_name}))]
    return create_model(
        "FailureType", __base__=_Cited, error_type=(kind, ...), error_name=(name, ...)
    )


def _component_schema() -> type[BaseModel]:
    component: Any = Literal["gpu", "nvlink", "network", "node", "storage", "unknown"]
    return create_model("FaultyComponent", __base__=_Cited, faulty_component=(component, ...))


def _ask(
    chat: Any,
    prompt: str,
    schema: type[BaseModel],
    found: Diagnosis,
    fence: Fence,
    shown: dict[int, Line],
) -> Any:
    from langchain_core.messages import HumanMessage, SystemMessage

    from schedmate.llm.structured import ask

    text = "\n".join(f"{n}| {line.text[:LINE_CHARACTERS]}" for n, line in shown.items())
    question = fill(
        prompt, nonce=fence.nonce, line=str(found.line or "?"), log=fence.wrap("log", text)
    )
    opinion: Any = ask(
        chat, [SystemMessage(load("failure.system.v1")), HumanMessage(question)], schema
    )
    line = shown.get(opinion.line)
    quote = _words(opinion.quote)
    if line is None or len(quote) < MIN_QUOTE or quote not in _words(line.text):
        raise ModelError("malformed", f"line {opinion.line} does not hold what it quotes")
    return opinion


def _words(text: str) -> str:
    return " ".join(text.split()).lower()


def _cite(found: Diagnosis, file: LogFile, line: Line, note: str) -> None:
    found.evidence.append(
        EvidenceLine(file=file.name, line=line.number, text=line.text[:500], note=note)
    )
