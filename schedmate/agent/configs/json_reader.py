"""JSON text to a `Value` tree with line numbers; comments and trailing commas are allowed."""

from __future__ import annotations

import json
import re

from schedmate.agent.configs.files import Source
from schedmate.agent.configs.tokens import TokenReader
from schedmate.agent.values import Value

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    |(?P<mark>[\[\]{},:])
    |(?P<word>[^\s\[\]{},:"'\#/]+)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: dict[str, bool | float | None] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_KEY = re.compile(r"[A-Za-z_$][\w$-]*")


class _Reader(TokenReader):
    def value(self, depth: int) -> Value:
        self.count(depth)
        result = Value(None, self.source.origin(self.line))
        if self.lexeme == "{":
            result.data = self._object(depth)
        elif self.lexeme == "[":
            result.data = self._array(depth)
        elif self.kind == "string":
            result.data = self._string()
        elif self.kind == "word":
            result.data = self._word()
        else:
            raise self.wrong(f"found {self.lexeme} where a value should be")
        self.advance()
        return result

    def _array(self, depth: int) -> list[Value]:
        items: list[Value] = []
        self.advance()
        while self.lexeme != "]":
            items.append(self.value(depth + 1))
            self._comma("]")
        return items

    def _object(self, depth: int) -> dict[str, Value]:
        items: dict[str, Value] = {}
        self.advance()
        while self.lexeme != "}":
            if self.kind == "string":
                key = self._string()
            elif self.kind == "word" and _KEY.fullmatch(self.lexeme):
                key = self.lexeme
            else:
                raise self.wrong(f"found {self.lexeme} where a key should be")
            self.advance()
            if self.lexeme != ":":
                raise self.wrong(f"found {self.lexeme} where ':' should be")
            self.advance()
            items[key] = self.value(depth + 1)
            self._comma("}")
        return items

    def _comma(self, close: str) -> None:
        if self.lexeme == ",":
            self.advance()
        elif self.lexeme != close:
            raise self.wrong(f"found {self.lexeme} where ',' or '{close}' should be")

    def _string(self) -> str:
        inner = self.lexeme[1:-1]
        if self.lexeme[0] == "'":
            inner = inner.replace("\\'", "'").replace('"', '\\"')
        if "\\" not in inner:
            return inner
        try:
            return str(json.loads(f'"{inner}"', strict=False))
        except ValueError as error:
            raise self.wrong(f"bad escape in {self.lexeme[:40]}") from error

    def _word(self) -> bool | int | float | str | None:
        if self.lexeme in _WORDS:
            return _WORDS[self.lexeme]
        try:
            return int(self.lexeme)
        except ValueError:
            pass
        try:
            return float(self.lexeme)
        except ValueError as error:
            raise self.wrong(f"unexpected {self.lexeme[:40]}") from error


def read_json(source: Source) -> Value:
    """The value of a JSON text. Raises ConfigError with the line for broken syntax."""
    reader = _Reader(source, _TOKEN, "JSON")
    if not reader.kind:
        return Value(None, source.origin(1))
    result = reader.value(0)
    if reader.kind:
        raise reader.wrong(f"unexpected {reader.lexeme[:40]}")
    return result
