"""JSON text to a `Value` tree with line numbers; comments and trailing commas are allowed."""

from __future__ import annotations

import json
import re

from schedmate.agent.configs.files import ConfigError, Source
from schedmate.agent.configs.trees import MAX_DEPTH, MAX_NODES
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


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.at = 0
        self.line = 1
        self.kind = ""
        self.lexeme = ""
        self._nodes = 0
        self._following = 1
        self.advance()

    def advance(self) -> None:
        """Move to the next token; at the end of the text `kind` is empty."""
        self.line = self._following
        while match := _TOKEN.match(self.source.text, self.at):
            self.at = match.end()
            self._following = self.line + match[0].count("\n")
            if match.lastgroup != "space":
                self.kind, self.lexeme = str(match.lastgroup), match[0]
                return
            self.line = self._following
        if self.at < len(self.source.text):
            raise self._wrong(f"unexpected {self.source.text[self.at]!r}")
        self.kind, self.lexeme = "", "the end of the file"

    def _wrong(self, reason: str) -> ConfigError:
        return self.source.error(f"is not valid JSON ({reason})", self.line)

    def value(self, depth: int) -> Value:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"holds more than {MAX_NODES:,} values, too many for a configuration"
            raise self.source.error(message, self.line)
        if depth > MAX_DEPTH:
            raise self.source.error(f"nests deeper than {MAX_DEPTH} levels; flatten it", self.line)
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
            raise self._wrong(f"found {self.lexeme} where a value should be")
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
                raise self._wrong(f"found {self.lexeme} where a key should be")
            self.advance()
            if self.lexeme != ":":
                raise self._wrong(f"found {self.lexeme} where ':' should be")
            self.advance()
            items[key] = self.value(depth + 1)
            self._comma("}")
        return items

    def _comma(self, close: str) -> None:
        if self.lexeme == ",":
            self.advance()
        elif self.lexeme != close:
            raise self._wrong(f"found {self.lexeme} where ',' or '{close}' should be")

    def _string(self) -> str:
        inner = self.lexeme[1:-1]
        if self.lexeme[0] == "'":
            inner = inner.replace("\\'", "'").replace('"', '\\"')
        if "\\" not in inner:
            return inner
        try:
            return str(json.loads(f'"{inner}"', strict=False))
        except ValueError as error:
            raise self._wrong(f"bad escape in {self.lexeme[:40]}") from error

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
            raise self._wrong(f"unexpected {self.lexeme[:40]}") from error


def read_json(source: Source) -> Value:
    """The value of a JSON text. Raises ConfigError with the line for broken syntax."""
    reader = _Reader(source)
    if not reader.kind:
        return Value(None, source.origin(1))
    result = reader.value(0)
    if reader.kind:
        raise source.error(f"is not valid JSON (unexpected {reader.lexeme[:40]})", reader.line)
    return result
