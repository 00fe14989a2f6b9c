"""What the readers of JSON and HOCON share: the token they stand at, its line, and limits."""

from __future__ import annotations

import re

from schedmate.agent.configs.files import ConfigError, Source
from schedmate.agent.configs.trees import MAX_DEPTH, MAX_NODES


class TokenReader:
    """Stands at one token of `source`: its `kind` (a group of `pattern`), `lexeme` and `line`.

    Tokens of the kind `space` are passed over; at the end of the text the kind is empty.
    """

    def __init__(self, source: Source, pattern: re.Pattern[str], language: str) -> None:
        self.source = source
        self.line = 1
        self.kind = ""
        self.lexeme = ""
        self._pattern = pattern
        self._language = language
        self._at = 0
        self._next_line = 1
        self._nodes = 0
        self.advance()

    def advance(self) -> None:
        """Move to the next token."""
        while match := self._pattern.match(self.source.text, self._at):
            self._at = match.end()
            self.line = self._next_line
            self._next_line += match[0].count("\n")
            if match.lastgroup != "space":
                self.kind, self.lexeme = str(match.lastgroup), match[0]
                return
        self.line = self._next_line
        if self._at < len(self.source.text):
            raise self.wrong(f"unexpected {self.source.text[self._at]!r}")
        self.kind, self.lexeme = "", "the end of the file"

    def wrong(self, reason: str) -> ConfigError:
        """The error that the text breaks the rules of its language here."""
        return self.source.error(f"is not valid {self._language} ({reason})", self.line)

    def count(self, depth: int) -> None:
        """Count a value; raises ConfigError for too many, and for one that lies too deep."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"holds more than {MAX_NODES:,} values, too many for a configuration"
            raise self.source.error(message, self.line)
        if depth > MAX_DEPTH:
            raise self.source.error(f"nests deeper than {MAX_DEPTH} levels; flatten it", self.line)
