"""The loop: the model calls tools until it has read enough, then it is asked for its findings."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelCallLimitMiddleware
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.errors import GraphRecursionError

from schedmate.agent.react.citations import (
    Citations,
    Finding,
    Findings,
    Reading,
    findings_schema,
)
from schedmate.base.errors import ModelError
from schedmate.base.terminal import clean
from schedmate.jobs import LaunchConfig, WorkloadMetadata
from schedmate.llm.chat import ask, parse_answer
from schedmate.llm.redact import Fence
from schedmate.prompts import fill, load
from schedmate.tools import RepoFiles, as_langchain

if TYPE_CHECKING:
    from schedmate.llm.chat import GuardedChat


SYSTEM, QUESTION, ANSWER = "metadata.system.v3", "metadata.question.v3", "metadata.answer.v3"
TOOLS, ALONE, REFUSED = "metadata.tools.v1", "metadata.alone.v1", "metadata.refused.v1"
CORRECTING_CALLS = 4
"""Replies in which a model may look again after findings were refused."""
REPEATS = 3
"""How often an identical tool call is answered; after that the model gets a notice."""
SHARE_FOR_MATERIAL = 0.6
"""Share of the context that tool results may fill, beside prompts and replies."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one reading; at most `characters` of material are shown."""

    model_calls: int = 12
    tool_calls: int = 30
    characters: int = 60_000


def read_repository(
    chat: GuardedChat,
    files: RepoFiles,
    question: Question,
    fence: Fence,
    limits: Limits,
    citations: Citations,
    *,
    tools: bool = True,
) -> Reading:
    """Let the model read the repository and report; returns the proved findings.

    Without `tools` it answers from the first message alone. Rejected findings are put to the model
    once, with the reason and the nearest line that would prove them, and it may look again. Raises
    `ModelError` if the model, its server or its budget fails before there is an answer.
    """
    wanted = findings_schema(question.fields)
    start = messages_of(question, fence, tools=tools)
    agent = _Agent(chat, files, fence, limits, start[0]) if tools else None
    heard, findings = _answer(chat, agent, start, limits.model_calls, wanted)
    reading = citations.prove(findings)
    wrong = [one for one in reading.dropped if one.finding.field not in reading.found]
    if wrong:
        complaint = "\n".join(f"- {clean(one, 300)}" for one in wrong[:20])
        again = fill(REFUSED, findings=fence.wrap("findings", complaint))
        said = AIMessage(_as_json(findings))
        messages = [*_without_findings(heard), said, HumanMessage(again)]
        try:
            _, corrected = _answer(chat, agent, messages, CORRECTING_CALLS, wanted)
        except ModelError:
            return reading  # what was proved stands
        second = citations.prove(corrected)
        reading.found = {**second.found, **reading.found}
        reading.dropped += [one for one in second.dropped if one not in reading.dropped]
    return reading


class _Agent:
    """The model with the tools of one reading, whose limits hold for all its rounds together."""

    def __init__(
        self, chat: GuardedChat, files: RepoFiles, fence: Fence, limits: Limits, system: BaseMessage
    ) -> None:
        self._chat, self._system = chat, system
        self._tools = as_langchain(files)
        self._fenced = _FencedTools(fence, limits.characters, limits.tool_calls)

    def run(self, messages: list[BaseMessage], calls: int) -> list[BaseMessage]:
        """The messages after at most so many replies of the model."""
        limit = ModelCallLimitMiddleware(run_limit=calls, exit_behavior="end")
        # The graph's own types say little and are many: it is a dictionary in and out.
        agent: Any = create_agent(
            self._chat,
            self._tools,
            system_prompt=self._system.text,
            middleware=[limit, self._fenced],
        )
        try:
            state = agent.invoke({"messages": messages[1:]}, {"recursion_limit": 10 * calls + 10})
        except GraphRecursionError:
            raise ModelError("malformed", "the model called tools without end") from None
        return [self._system, *state["messages"]]


def _answer(
    chat: GuardedChat,
    agent: _Agent | None,
    messages: list[BaseMessage],
    calls: int,
    wanted: type[Findings],
) -> tuple[list[BaseMessage], list[Finding]]:
    """What was said in the end, and the findings in it, asked for under the schema if need be."""
    if agent is None:
        return messages, list(ask(chat, messages, wanted).findings)
    heard = agent.run(messages, calls)
    findings = _findings_at_the_end(heard[-1], wanted)
    if findings is None:
        heard = [*_without_open_calls(heard), HumanMessage(load(ANSWER))]
        findings = list(ask(chat, heard, wanted).findings)
    return heard, findings


def _as_json(findings: Sequence[Finding]) -> str:
    return json.dumps({"findings": [one.model_dump(exclude_defaults=True) for one in findings]})


def _without_findings(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The messages without the last answer, which is put there in the form that was understood."""
    last = messages[-1]
    return messages[:-1] if isinstance(last, AIMessage) else messages


@dataclass(slots=True)
class Question:
    """What to determine about a job.

    `reasons` are the reasons to ask for each field, `claims` the static values, and `opening` is
    the start of what the command runs.
    """

    command: str
    launch: LaunchConfig
    reasons: Mapping[str, str]
    claims: WorkloadMetadata
    opening: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The dotted names of the fields that are asked for, in order."""
        return tuple(self.reasons)

    def text(self, fence: Fence) -> str:
        """The first message to the model. Text of users and repositories is inside the fence."""
        launch = self.launch.model_dump(exclude_none=True)
        lines = [
            f"training command: {clean(self.command, 4000) or '(not given)'}",
            "repository path: .",
            "launch configuration: "
            + (", ".join(f"{name}={clean(value)}" for name, value in launch.items()) or "-"),
        ]
        if self.claims.evidence:
            lines.append("claims of static analysis, to be checked:")
        for name, one in sorted(self.claims.evidence.items()):
            value = clean(json.dumps(one.value, default=str), 120)
            reason = f"; asked: {self.reasons[name]}" if name in self.reasons else ""
            lines.append(f"- {name} = {value} ({clean(one.where())}{reason})")
        if self.opening:
            lines += ["", self.opening]
        return fill(
            QUESTION,
            fields=", ".join(self.fields),
            nonce=fence.nonce,
            job=fence.wrap("the job", "\n".join(lines)),
        )


class _FencedTools(AgentMiddleware[Any, Any]):
    """Fences tool results, limits their number and total size, and stops repeated calls."""

    def __init__(self, fence: Fence, characters: int, calls: int) -> None:
        super().__init__()
        self._fence = fence
        self._left = characters
        self._calls = calls
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()  # tools called in one reply run side by side

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        call = request.tool_call
        key = json.dumps([call["name"], call["args"]], sort_keys=True, default=str)
        with self._lock:
            self._seen[key] = self._seen.get(key, 0) + 1
            self._calls -= 1
            repeated, left, over = self._seen[key] > REPEATS, self._left, self._calls < 0
        if repeated:
            text = "error: this was shown before; finish with what you have read"
        elif left <= 0 or over:
            text = "error: no more material can be shown; finish with what you have read"
        else:
            answer = handler(request)
            text = answer.text if isinstance(answer, ToolMessage) else str(answer)
            with self._lock:
                if len(text) > self._left:
                    text = text[: self._left] + "\n[cut here: no more material can be shown]"
                self._left -= len(text)
        return ToolMessage(
            content=self._fence.wrap(call["name"], text),
            tool_call_id=call["id"],
            name=call["name"],
        )


def fence_of(secret: bytes, *what: str) -> Fence:
    """The fence for one job: always the same, so that caches work, but not predictable."""
    key = hmac.new(secret, "\0".join(what).encode("utf-8", "surrogateescape"), hashlib.sha256)
    return Fence(key.hexdigest())


def messages_of(question: Question, fence: Fence, *, tools: bool = True) -> list[BaseMessage]:
    """The request that starts a reading: a prefix common to all jobs, then the question."""
    system = f"{load(SYSTEM)}\n\n{load(TOOLS if tools else ALONE)}"
    return [SystemMessage(system), HumanMessage(question.text(fence))]


def _findings_at_the_end(last: BaseMessage, wanted: Any) -> list[Finding] | None:
    """The findings, if the model has ended its reading with them."""
    try:
        return list(parse_answer(last.text, wanted).findings)
    except ModelError:
        return None


def _without_open_calls(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The messages without unanswered tool calls at the end, which servers refuse."""
    while messages and getattr(messages[-1], "tool_calls", None):
        messages = messages[:-1]
    return messages
