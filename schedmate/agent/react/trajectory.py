"""The record of a reading: the requests to the model, as sent, and its replies.

Records are files that only their owner can read. One can be replayed: the tools run again over the
current repository, and the model's replies come from the record.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schedmate import __version__
from schedmate.base.errors import InputError, ModelError
from schedmate.base.files import open_output
from schedmate.base.reading import read_bytes
from schedmate.jobs import JobSpec, ModelUse
from schedmate.llm.scripted import Reply, Script, ToolCall

SCHEMA = "schedmate.trajectory/v1"
MAX_RECORDS = 500
"""Limit for the records in a directory; the oldest are deleted first."""
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}\.json", re.ASCII)


@dataclass(slots=True)
class Recorder:
    """Collects the exchanges of one reading; `watch` is for `GuardedChat.watch`."""

    exchanges: list[dict[str, Any]] = field(default_factory=list)
    _last: list[dict[str, Any]] = field(default_factory=list)

    def watch(self, sent: list[BaseMessage], came: AIMessage | ModelError) -> None:
        """Record one request and its reply or failure."""
        messages = [dict(one) for one in convert_to_openai_messages(sent)]
        same = 0
        for before, now in zip(self._last, messages, strict=False):
            if before != now:
                break
            same += 1
        self._last = messages
        exchange: dict[str, Any] = {"kept_messages": same, "new_messages": messages[same:]}
        if isinstance(came, ModelError):
            exchange["error"] = {"verdict": came.verdict, "reason": str(came)}
        else:
            calls = [{"name": one["name"], "args": one["args"]} for one in came.tool_calls]
            exchange["reply"] = {"content": came.text, "tool_calls": calls}
        self.exchanges.append(exchange)

    def save(
        self, directory: Path, spec: JobSpec, use: ModelUse, redact: Callable[[str], str]
    ) -> Path:
        """Write the record as a new file of `directory`, mode 0600; raises `InputError`.

        `redact` removes the secrets from parts that were not sent, such as the job's command.
        """
        document = {
            "schema": SCHEMA,
            "schedmate": __version__,
            "time": time.time(),
            "job": spec.model_dump(mode="json"),
            "result": use.model_dump(mode="json", exclude={"trajectory"}),
            "exchanges": self.exchanges,
        }
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        path = directory / f"{stamp}-{uuid.uuid4().hex[:8]}.json"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise InputError(
                f"cannot write the record of the model's reading to {directory}: "
                f"{error.strerror}; set `trajectories` to a directory that can be written."
            ) from None
        # Replaced as a whole by a file that takes over its mode.
        with open_output(path) as stream:
            json.dump(_map_texts(document, redact), stream, indent=1)
        for old in sorted(one for one in directory.iterdir() if _NAME.fullmatch(one.name))[
            :-MAX_RECORDS
        ]:
            old.unlink(missing_ok=True)
        return path


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Plain data with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_texts(item, change) for key, item in value.items()}
    return [_map_texts(item, change) for item in value] if isinstance(value, list) else value


class _RecordedReply(BaseModel):
    content: str = ""
    tool_calls: list[ToolCall] = Field(default_factory=list)


class _Exchange(BaseModel):
    model_config = ConfigDict(extra="ignore")

    reply: _RecordedReply | None = None
    error: dict[str, Any] | None = None


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore")

    schema_name: str = Field(alias="schema", pattern=r"^schedmate\.trajectory/v1$")
    job: JobSpec
    result: ModelUse
    exchanges: list[_Exchange]


def load_trajectory(path: Path) -> tuple[JobSpec, ModelUse, Script]:
    """The job of a record, the mode of the reading, and the model's replies as a script.

    Raises `InputError` if the file is not a record of a reading.
    """
    try:
        record = _Record.model_validate_json(read_bytes(path))
        replies = [
            Reply(content=one.reply.content, tool_calls=one.reply.tool_calls)
            if one.reply is not None
            else Reply(error=(one.error or {}).get("verdict", "unavailable"))
            for one in record.exchanges
        ]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{path} is no record of a model's reading ({first['msg']}); "
            "--replay takes a file that `schedmate analyze` has written."
        ) from None
    return record.job, record.result, Script(replies=replies)
