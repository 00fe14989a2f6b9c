"""A place in shell text: its line, and what is quoted or bracketed there."""

from __future__ import annotations

import re
from bisect import bisect_right

from schedmate.agent.launch.words import Literal, Part

_LINE_START = re.compile(r"(?<=\n)(?!\Z)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "0": "\0"}


class Scanner:
    """Stands at `pos` in `text`, whose first line has the number `line`."""

    def __init__(self, text: str, line: int) -> None:
        self.text = text.replace("\r\n", "\n")
        self.pos = 0
        self._first_line = line
        self._newlines = [i for i, char in enumerate(self.text) if char == "\n"]

    def _line(self, pos: int | None = None) -> int:
        position = self.pos if pos is None else pos
        return self._first_line + bisect_right(self._newlines, position - 1)

    def _single_quoted(self, parts: list[Part]) -> None:
        start = self.pos + 1
        end = self.text.find("'", start)
        end = len(self.text) if end < 0 else end
        self._literal_lines(parts, self.text[start:end], start)
        self.pos = end + 1

    def _ansi_quoted(self, parts: list[Part]) -> None:
        """`$'...'`, from its opening quote."""
        line = self._line()
        self.pos += 1
        chars: list[str] = []
        while self.pos < len(self.text) and self.text[self.pos] != "'":
            if self.text[self.pos] == "\\":
                self.pos += 1
                escaped = self.text[self.pos : self.pos + 1]
                chars.append(_ESCAPES.get(escaped, escaped))
            else:
                chars.append(self.text[self.pos])
            self.pos += 1
        self.pos += 1
        parts.append(Literal("".join(chars), line, quoted=True))

    def _literal_lines(self, parts: list[Part], text: str, start: int) -> None:
        """One literal a line, so that a token split off later knows its own line."""
        line = self._line(start)
        for offset, piece in enumerate(_LINE_START.split(text)):
            parts.append(Literal(piece, line + offset, quoted=True))

    def _balanced(self, opening: str, closing: str) -> str:
        """The text inside a bracket that opens here; moves behind its end."""
        text, start = self.text, self.pos + 1
        depth, quote = 0, ""
        while self.pos < len(text):
            char = text[self.pos]
            if char == "\\" and quote != "'":
                self.pos += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"" and not (char == "'" and opening == "{"):
                quote = char
            elif char == "#" and opening == "(" and text[self.pos - 1] in " \t\n":
                end = text.find("\n", self.pos)
                self.pos = len(text) if end < 0 else end
                continue
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    self.pos += 1
                    return text[start : self.pos - 1]
            self.pos += 1
        self.pos = len(text)
        return text[start:]
