"""Answers of a language model for the baselines of the public benchmark, one request each."""

from __future__ import annotations

import json
from typing import Any

SHOWN = 6000
"""Characters that a model is shown, for one with a context of 4,096 tokens."""


class Model:
    """A model behind an OpenAI-compatible server that constrains answers to a JSON schema."""

    def __init__(self, base_url: str) -> None:
        from openai import OpenAI

        self._client = OpenAI(base_url=base_url, api_key="none", timeout=300)
        self.name = self._client.models.list().data[0].id

    def answer(self, task: str, shown: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Its answer with these fields (JSON schemas by name); {} where it gave none in time."""
        from openai import OpenAIError

        schema = {
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        }
        try:
            reply = self._client.chat.completions.create(
                model=self.name,
                messages=[
                    {"role": "system", "content": task},
                    {"role": "user", "content": shown[:SHOWN]},
                ],
                temperature=0,
                max_tokens=200,
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": schema},
                },
            )
            said = json.loads(reply.choices[0].message.content or "")
        except (OpenAIError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}


def words(longest: int) -> dict[str, Any]:
    """The schema of a text, or null."""
    return {"anyOf": [{"type": "string", "maxLength": longest}, {"type": "null"}]}


def number() -> dict[str, Any]:
    """The schema of a whole number of at most nine digits, or null."""
    return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 999_999_999}, {"type": "null"}]}


def choice(*options: str, null: bool = False) -> dict[str, Any]:
    """The schema of one of some texts, or null."""
    listed: dict[str, Any] = {"enum": list(options)}
    return {"anyOf": [listed, {"type": "null"}]} if null else listed
