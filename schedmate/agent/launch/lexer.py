"""Shell text -> tokens, in the grammar of POSIX sh and the common part of bash.

Nothing is expanded here: a word is a sequence of parts, each with the line it stands on, so that
every later argument can say where it was written. The lexer accepts any text: an unclosed quote
or bracket runs to the end of the text.
"""

from __future__ import annotations

import re

from schedmate.agent.launch.scanner import Scanner
from schedmate.agent.launch.words import (
    Arithmetic,
    Heredoc,
    Literal,
    Param,
    Part,
    Substitution,
    Token,
    Word,
)

MAX_TOKENS = 60_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(
    r"(?P<prefix>[#!]?)(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?(?P<op>.*)",
    re.DOTALL | re.ASCII,
)
_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|()]")
_REDIRECT = re.compile(r"\d*(?:<<<|<<-|<<|<>|<&|>>|>&|>\||[<>])|&>>|&>")
_ASSIGN = re.compile(r"[A-Za-z_]\w*+(?:\[[^\]]*+\])?\+?=$", re.ASCII)
_BRACKETED = r"\[(?:[A-Za-z][\w/-]*(?: [\w'\"/.,-]+)+|[A-Z][A-Z_]{3,})\]|\{[A-Z][A-Z0-9_]+\}"
_PLACEHOLDER = re.compile(
    rf"<[A-Za-z/](?:[^<>|&;$`\n]{{0,80}}[^<>|&;$`\s])?>(?![A-Za-z0-9])|{_BRACKETED}"
)
"""`<data dir>`, `[data dir]`, `{DATA}` where a reader is to write something."""
_LEFT_OUT = re.compile(
    r"\[(?:--?[A-Za-z][^\[\]\n]*"
    r"|[^\[\]\n]*(?<![a-z])(?:options?|arg(?:ument)?s?|flags)(?![a-z])[^\[\]\n]*)\](?=\s|$)"
    r"|\\[ \t]+(?:#[^\n]*\n?|\n)",
    re.IGNORECASE,
)
"""`[--seed SEED]` and `[options]` of a usage, and what stands behind a continuation mark."""
_PLAIN = re.compile(rf"(?:(?!{_BRACKETED})[^\s\\'\"$`|&;()<>])+")
_BEFORE_COMMAND = frozenset(
    ["if", "then", "elif", "else", "while", "until", "do", "for", "!", "{", "time"]
)


class Lexer(Scanner):
    """Reads `text`, whose first line has the number `line`; `in_array`: the elements of one."""

    def __init__(self, text: str, line: int = 1, *, in_array: bool = False) -> None:
        super().__init__(text, line)
        self.truncated = False
        self._in_array = in_array
        self._heredocs: list[tuple[Token, Word]] = []

    def tokens(self) -> list[Token]:
        """All tokens of the text, up to `MAX_TOKENS`; then `truncated` is set."""
        out: list[Token] = []
        while (token := self._next(out)) is not None:
            if len(out) >= MAX_TOKENS:
                self.truncated = True
                break
            out.append(token)
        return out

    def whole(self, quoted: bool) -> Word:
        """The whole text as one word, as the operand of `${name:-operand}` is read."""
        parts: list[Part] = []
        while self.pos < len(self.text):
            if quoted:
                self._double_quoted(parts, closing=None)
            else:
                self._word_parts(parts)
                if self.pos < len(self.text):
                    parts.append(Literal(self.text[self.pos], self._line(), quoted=False))
                    self.pos += 1
        return Word(tuple(parts), self._first_line)

    def _next(self, before: list[Token]) -> Token | None:
        text = self.text
        while self.pos < len(text):
            char = text[self.pos]
            if text.startswith("\\\n", self.pos):
                self.pos += 2
            elif char == "#":
                end = text.find("\n", self.pos)
                self.pos = len(text) if end < 0 else end
            elif char == "\n":
                token = Token("newline", "\n", self._line())
                self.pos += 1
                self._read_heredocs()
                return token
            elif char.isspace():
                self.pos += 1
            elif char in "[\\" and (left_out := _LEFT_OUT.match(text, self.pos)):
                self.pos = left_out.end()
            else:
                return self._token(before)
        return None

    def _token(self, before: list[Token]) -> Token:
        line = self._line()
        text = self.text
        if text.startswith("((", self.pos) and _starts_command(before):
            self.pos += 1
            inner = self._balanced("(", ")")
            self.pos += text.startswith(")", self.pos)
            return Token("arith", inner, line)
        angled = text[self.pos] in "<>"
        part = angled and (text.startswith("(", self.pos + 1) or _PLACEHOLDER.match(text, self.pos))
        if not part and (match := _REDIRECT.match(text, self.pos)):
            self.pos = match.end()
            token = Token("redirect", match.group(), line)
            if match.group().lstrip("0123456789") in ("<<", "<<-"):
                self._announce_heredoc(token)
            return token
        if not part and (match := _OPERATOR.match(text, self.pos)):
            self.pos = match.end()
            return Token("op", match.group(), line)
        return Token("word", "", line, self.word())

    def word(self) -> Word:
        """One word from the current position, which must not be white space."""
        line = self._line()
        parts: list[Part] = []
        array: tuple[Word, ...] | None = None
        self._word_parts(parts)
        if self.text.startswith("(", self.pos) and all(isinstance(p, Literal) for p in parts):
            head = "".join(part.text for part in parts if isinstance(part, Literal))
            if _ASSIGN.match(head) and not self._in_array:  # an array holds no array
                start = self._line()
                elements = Lexer(self._balanced("(", ")"), start, in_array=True).tokens()
                array = tuple(token.word for token in elements if token.word is not None)
        if not parts and self.pos < len(self.text):  # a character no rule starts with
            parts.append(Literal(self.text[self.pos], line, quoted=False))
            self.pos += 1
        return Word(tuple(parts), line, array)

    def _word_parts(self, parts: list[Part]) -> None:
        text = self.text
        while self.pos < len(text):
            char = text[self.pos]
            line = self._line()
            if match := _PLAIN.match(text, self.pos):
                parts.append(Literal(match.group(), line, quoted=False))
                self.pos = match.end()
            elif match := _PLACEHOLDER.match(text, self.pos):
                parts.append(Param(match.group(), "", line, quoted=True))
                self.pos = match.end()
            elif char == "\\":
                if not text.startswith("\\\n", self.pos):
                    parts.append(Literal(text[self.pos + 1 : self.pos + 2], line, quoted=True))
                self.pos += 2
            elif char == "'":
                self._single_quoted(parts)
            elif char == '"':
                self.pos += 1
                parts.append(Literal("", line, quoted=True))
                self._double_quoted(parts, closing='"')
            elif char == "$" or char == "`":
                self._dollar(parts, quoted=False)
            elif char in "<>" and text.startswith("(", self.pos + 1):
                start = self.pos
                self.pos += 1
                inner = self._balanced("(", ")")
                parts.append(Substitution(text[start : self.pos], inner, line, quoted=True))
            else:
                return

    def _double_quoted(self, parts: list[Part], closing: str | None) -> None:
        """The inside of double quotes, up to and with `closing` (None: the end of the text)."""
        text = self.text
        start = self.pos
        chars: list[str] = []

        def flush() -> None:
            if chars:
                self._literal_lines(parts, "".join(chars), start)
                chars.clear()

        while self.pos < len(text):
            char = text[self.pos]
            if char == closing:
                flush()
                self.pos += 1
                return
            if char == "\\" and text[self.pos + 1 : self.pos + 2] in ("\n", "$", "`", '"', "\\"):
                if text[self.pos + 1] == "\n":  # removed, but the line number moves on
                    flush()
                    start = self.pos + 2
                else:
                    chars.append(text[self.pos + 1])
                self.pos += 2
            elif char in "$`":
                flush()
                self._dollar(parts, quoted=True)
                start = self.pos
            else:
                chars.append(char)
                self.pos += 1
        flush()

    def _dollar(self, parts: list[Part], quoted: bool) -> None:
        text, start, line = self.text, self.pos, self._line()
        if text[start] == "`":
            end = start + 1
            while end < len(text) and text[end] != "`":
                end += 2 if text[end] == "\\" else 1
            self.pos = min(end, len(text)) + 1
            inner = text[start + 1 : end].replace("\\`", "`").replace("\\$", "$")
            parts.append(Substitution(text[start : self.pos], inner, line, quoted))
            return
        self.pos += 1
        if text.startswith("((", self.pos):
            self.pos += 1
            inner = self._balanced("(", ")")
            if text.startswith(")", self.pos):
                self.pos += 1
                parts.append(Arithmetic(text[start : self.pos], inner, line, quoted))
                return
            self.pos = start + 1  # `$((a) | b)`: a substitution that opens with a subshell
        if text.startswith("(", self.pos):
            inner = self._balanced("(", ")")
            parts.append(Substitution(text[start : self.pos], inner, line, quoted))
        elif text.startswith("{", self.pos):
            inner = self._balanced("{", "}")
            parts.append(_braced(inner, text[start : self.pos], line, quoted))
        elif match := _NAME.match(text, self.pos):
            self.pos = match.end()
            parts.append(Param(text[start : self.pos], match.group(), line, quoted))
        elif self.pos < len(text) and text[self.pos] in "0123456789@*#?$!-":
            self.pos += 1
            parts.append(Param(text[start : self.pos], text[self.pos - 1], line, quoted))
        elif not quoted and text.startswith("'", self.pos):
            self._ansi_quoted(parts)
        elif not (not quoted and text.startswith('"', self.pos)):  # $"..." is a plain "..."
            parts.append(Literal("$", line, quoted))

    def _announce_heredoc(self, token: Token) -> None:
        while self.pos < len(self.text) and self.text[self.pos] in " \t":
            self.pos += 1
        delimiter = self.word() if self.pos < len(self.text) else Word((), token.line)
        self._heredocs.append((token, delimiter))

    def _read_heredocs(self) -> None:
        for token, word in self._heredocs:
            start = self.pos
            stripped = token.text.endswith("-")
            delimiter = "".join(part.text for part in word.parts if isinstance(part, Literal))
            while self.pos < len(self.text):
                end = self.text.find("\n", self.pos)
                end = len(self.text) if end < 0 else end
                line = self.text[self.pos : end]
                body_end, self.pos = self.pos, min(end + 1, len(self.text))
                if (line.lstrip("\t") if stripped else line) == delimiter:
                    break
            else:
                body_end = len(self.text)
            token.heredoc = Heredoc(self.text[start:body_end], self._line(start), word.bare is None)
        self._heredocs.clear()


def _braced(inner: str, raw: str, line: int, quoted: bool) -> Param:
    match = _BRACED.fullmatch(inner)
    if match is None:
        return Param(raw, "", line, quoted)
    if match["prefix"] == "#" and match["op"]:  # `${#name}` takes no operator
        return Param(raw, "#", line, quoted, operation=inner[1:])
    return Param(raw, match["name"], line, quoted, match["prefix"], match["index"], match["op"])


def _starts_command(before: list[Token]) -> bool:
    if not before or before[-1].kind in ("newline", "op"):
        return True
    last = before[-1].word
    return last is not None and last.bare in _BEFORE_COMMAND
