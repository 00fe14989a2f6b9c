"""A model that obeys: it reads whatever it is told to read and says what it is told to say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai_server import Raw, Request, completion

Calls = list[tuple[str, Any]]


@dataclass
class Obedient:
    """Answers requests of one reading: all `turns` of tool calls in order, then the findings.

    `answer` makes something else of the request instead of findings, given what would be said.
    """

    turns: Sequence[Calls]
    findings: list[dict[str, Any]]
    answer: Callable[[Request], str] | None = None
    requests: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> dict[str, Any] | Raw:
        self.requests.append(request)
        messages = request["messages"]
        turn = sum(message["role"] == "assistant" for message in messages)
        if "tools" in request and request.get("tool_choice", "auto") == "auto":
            if turn < len(self.turns):
                return completion(tool_calls=self.turns[turn])
            return completion("I have finished.")
        if self.answer is not None:
            return completion(self.answer(request))
        return completion(json.dumps({"findings": self.findings}))

    def material(self) -> str:
        """All that was ever sent, as one text."""
        return "\n".join(
            json.dumps(request, ensure_ascii=False, sort_keys=True) for request in self.requests
        )

    def tool_messages(self) -> list[str]:
        """What the tools showed, in order."""
        last = max(self.requests, key=lambda request: len(request["messages"]))
        return [one["content"] for one in last["messages"] if one["role"] == "tool"]
