"""A chat model that follows a script: for documents, tests and replays, without any server.

A script is a YAML file:

    schema: schedmate.scripted/v1
    replies:
      - tool_calls: [{name: file_read, args: {path: train.py}}]
      - when: "num_epochs"          # only after a message that contains this
        content: '{"findings": []}'
      - error: timeout              # or unavailable, rejected, length, malformed

Each request takes the first reply not yet used whose `when` fits the last message. `repeat: true`
keeps a reply for use again. A script that has no fitting reply left answers like a server that is
gone.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Literal

import yaml
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from schedmate.base.errors import InputError, ModelError, Verdict
from schedmate.base.reading import parse_document, read_text


class ToolCall(BaseModel):
    """One call of a tool that the script makes."""

    model_config = ConfigDict(extra="forbid")

    name: str
    args: dict[str, Any] = Field(default_factory=dict)


class Reply(BaseModel):
    """One reply of the script."""

    model_config = ConfigDict(extra="forbid")

    when: str | None = None
    content: str = ""
    tool_calls: list[ToolCall] = Field(default_factory=list)
    error: Verdict | None = None
    repeat: bool = False


class Script(BaseModel):
    """A whole script; see the module's text."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_name: Literal["schedmate.scripted/v1"] = Field("schedmate.scripted/v1", alias="schema")
    replies: list[Reply]


class ScriptedChat(BaseChatModel):
    """A LangChain chat model whose replies come from a `Script`.

    It counts a token for every four characters, so that budgets have something to count.
    """

    script: Script
    _used: set[int] = PrivateAttr(default_factory=set)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @classmethod
    def load(cls, path: Path) -> ScriptedChat:
        """The model of a script file; raises `InputError` when it is none."""
        try:
            document = parse_document(read_text(path), path)
            return cls(script=Script.model_validate(document))
        except OSError as error:
            raise InputError(
                f"cannot read the scripted model {path}: {error.strerror}; "
                "--model scripted:FILE takes a YAML file of replies."
            ) from None
        except (ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
            first = str(error).splitlines()[0]
            raise InputError(
                f"the scripted model {path} does not parse ({first}); "
                "see the reference of scripted models in docs/llm.md."
            ) from None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self._next(messages[-1].text if messages else "")
        if reply.error is not None:
            raise ModelError(reply.error, f"the scripted model says {reply.error}")
        calls = [
            {"name": call.name, "args": call.args, "id": f"call-{len(messages)}-{index}"}
            for index, call in enumerate(reply.tool_calls)
        ]
        written = len(reply.content) + len(json.dumps(calls)) * bool(calls)
        read = sum(len(message.text) for message in messages)
        message = AIMessage(
            content=reply.content,
            tool_calls=calls,
            usage_metadata={
                "input_tokens": read // 4,
                "output_tokens": written // 4,
                "total_tokens": read // 4 + written // 4,
            },
            response_metadata={"finish_reason": "tool_calls" if calls else "stop"},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _next(self, last: str) -> Reply:
        with self._lock:
            for index, reply in enumerate(self.script.replies):
                if index not in self._used and (reply.when is None or reply.when in last):
                    if not reply.repeat:
                        self._used.add(index)
                    return reply
        return Reply(error="unavailable")
