"""Parses shell text into a tree of commands, in the grammar of POSIX sh and the common part of
bash.

First the tree and its unexpanded words, then the parser and the lexer.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Literal as Kind
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """Plain characters; `quoted` ones are neither split nor treated as patterns."""

    text: str
    line: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Param:
    """`$name` or `${...}`: prefix (`#`, `!`), name, subscript and the operator with its operand."""

    raw: str
    name: str
    line: int
    quoted: bool
    prefix: str = ""
    index: str | None = None
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Substitution:
    """Command or process substitution; `text` is the inner script, `raw` the whole of it."""

    raw: str
    text: str
    line: int
    quoted: bool


class Arithmetic(Substitution):
    """`$((...))`."""

    __slots__ = ()


Part = Literal | Param | Substitution | Arithmetic


@dataclass(frozen=True, slots=True)
class Word:
    """One shell word. `array` holds the elements of `name=(...)`, whose `parts` are `name=`."""

    parts: tuple[Part, ...]
    line: int
    array: tuple[Word, ...] | None = None

    @property
    def bare(self) -> str | None:
        """The text when the word is wholly unquoted literal (a possible reserved word)."""
        if self.array is None and all(isinstance(p, Literal) and not p.quoted for p in self.parts):
            return "".join(part.text for part in self.parts if isinstance(part, Literal))
        return None


@dataclass(frozen=True, slots=True)
class Heredoc:
    """Body of a here-document and the line it starts on; `quoted`: nothing in it expands."""

    text: str
    line: int
    quoted: bool


@dataclass(slots=True)
class Token:
    """A word, an operator, a redirection operator, a newline or the text within `((...))`."""

    kind: Kind["word", "op", "redirect", "newline", "arith"]
    text: str
    line: int
    word: Word | None = None
    heredoc: Heredoc | None = None


# The tree of commands that a script is parsed into.


@dataclass(slots=True)
class Assignment:
    """`name=value`, `name+=value`, `name[index]=value`, `name=(...)`."""

    name: str
    index: str | None
    append: bool
    value: Word


@dataclass(slots=True)
class Simple:
    """Assignments, then a command word with its arguments; text given to it is kept."""

    line: int
    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    heredoc: Heredoc | None = None
    herestring: Word | None = None


@dataclass(slots=True)
class Condition:
    """`[[ ... ]]`: its words, operators included as text."""

    line: int
    words: list[Word | str]


@dataclass(slots=True)
class ArithmeticCommand:
    """`(( ... ))`."""

    line: int
    text: str


@dataclass(slots=True)
class Pipeline:
    """Commands joined by `|`; `negated` for a leading `!`."""

    commands: list[Node]
    negated: bool


@dataclass(slots=True)
class AndOr:
    """Pipelines joined by `&&` and `||`; the first operator is always `&&`."""

    items: list[tuple[str, Node]]


@dataclass(slots=True)
class If:
    line: int
    branches: list[tuple[list[Node], list[Node]]]
    otherwise: list[Node]


@dataclass(slots=True)
class While:
    """`while`, `until`; `step` is the arithmetic after each turn of a `for ((...))`."""

    line: int
    test: list[Node]
    body: list[Node]
    until: bool
    step: str = ""


@dataclass(slots=True)
class For:
    """`for name in words`; `words` is None for the positional parameters."""

    line: int
    name: str
    words: list[Word] | None
    body: list[Node]


@dataclass(slots=True)
class Case:
    line: int
    subject: Word
    branches: list[tuple[list[Word], list[Node]]]


@dataclass(slots=True)
class Function:
    name: str
    body: list[Node]


@dataclass(slots=True)
class Group:
    """`{ ...; }` or `( ... )`."""

    body: list[Node]
    subshell: bool


Node: TypeAlias = (
    "Simple | Condition | ArithmeticCommand | Pipeline | AndOr | If | While | For | Case | Function"
    " | Group"
)

_ASSIGNMENT_START = re.compile(r"([A-Za-z_]\w*+)(?:\[([^\]]*+)\])?(\+?)=", re.ASCII)


def as_assignment(word: Word) -> Assignment | None:
    """The assignment that a word spells, or None."""
    if not word.parts or not isinstance(word.parts[0], Literal) or word.parts[0].quoted:
        return None
    match = _ASSIGNMENT_START.match(word.parts[0].text)
    if match is None:
        return None
    return Assignment(match[1], match[2], bool(match[3]), _word_after(word, match.end()))


def keyed_element(word: Word) -> tuple[str, Word] | None:
    """Key and value of `[key]=value` in an array, or None."""
    if not word.parts or not isinstance(word.parts[0], Literal) or word.parts[0].quoted:
        return None
    match = re.match(r"\[([^\]]*)\]=", word.parts[0].text)
    return None if match is None else (match[1], _word_after(word, match.end()))


def _word_after(word: Word, length: int) -> Word:
    """A word without the first characters of its first literal."""
    first = word.parts[0]
    rest = first.text[length:] if isinstance(first, Literal) else ""
    parts = ((Literal(rest, first.line, False),) if rest else ()) + word.parts[1:]
    return Word(parts, word.line, word.array)


def line_of(node: Node) -> int:
    """The line a command starts on."""
    match node:
        case Pipeline():
            return line_of(node.commands[0])
        case AndOr():
            return line_of(node.items[0][1])
        case Group() | Function():
            return line_of(node.body[0]) if node.body else 1
        case _:
            return node.line


# Shell tokens -> a tree of commands.
#
# The parser accepts any token sequence: where the grammar is broken (an `fi` without `if`, a
# missing `done`) it takes what it can, for a script that is slightly off still says what it
# launches.


MAX_DEPTH = 60


def parse_script(text: str, line: int = 1) -> list[Node]:
    """The commands of a script whose first line has the number `line`."""
    return parse_tokens(Lexer(text, line).tokens())


def parse_tokens(tokens: list[Token]) -> list[Node]:
    """The commands that a sequence of tokens spells."""
    return _Parser(tokens).block(frozenset())


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def block(self, stops: frozenset[str]) -> list[Node]:
        """Commands up to a reserved word or operator in `stops`, which is left in place."""
        nodes: list[Node] = []
        if self.depth >= MAX_DEPTH:
            self.at = len(self.tokens)
            return nodes
        self.depth += 1
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if self._text(token) in stops:
                break
            if token.kind == "newline" or (token.kind == "op" and token.text != "("):
                self.at += 1
                continue
            start = self.at
            nodes.append(self._and_or())
            self.at += self.at == start
        self.depth -= 1
        return nodes

    @staticmethod
    def _text(token: Token) -> str | None:
        """Operator or unquoted word, as the grammar compares it."""
        if token.kind == "op":
            return token.text
        return token.word.bare if token.word is not None else None

    def _peek(self) -> str | None:
        return self._text(self.tokens[self.at]) if self.at < len(self.tokens) else None

    def _accept(self, *texts: str) -> bool:
        if self.at < len(self.tokens) and self._peek() in texts:
            self.at += 1
            return True
        return False

    def _skip_newlines(self) -> None:
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "newline":
            self.at += 1

    def _and_or(self) -> Node:
        items: list[tuple[str, Node]] = [("&&", self._pipeline())]
        while self._peek() in ("&&", "||"):
            operator = self.tokens[self.at].text
            self.at += 1
            self._skip_newlines()
            items.append((operator, self._pipeline()))
        return items[0][1] if len(items) == 1 else AndOr(items)

    def _pipeline(self) -> Node:
        negated = False
        while self._peek() in ("!", "time"):
            negated ^= self._peek() == "!"
            self.at += 1
            self._accept("-p")
        commands = [self._command()]
        while self._accept("|", "|&"):
            self._skip_newlines()
            commands.append(self._command())
        return commands[0] if len(commands) == 1 and not negated else Pipeline(commands, negated)

    def _command(self) -> Node:
        if self.at >= len(self.tokens):
            return Simple(self.tokens[-1].line if self.tokens else 1)
        token = self.tokens[self.at]
        if token.kind == "arith":
            self.at += 1
            return ArithmeticCommand(token.line, token.text)
        node = self._compound(token, self._text(token))
        if node is None:
            return self._simple()
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "redirect":
            self._redirection(None)
        return node

    def _compound(self, token: Token, text: str | None) -> Node | None:
        start, line = self.at, token.line
        self.at += 1
        if text == "if":
            return self._if(line)
        if text in ("while", "until"):
            test = self.block(frozenset({"do"}))
            return While(line, test, self._do_body(), text == "until")
        if text in ("for", "select"):
            return self._for(line)
        if text == "case":
            return self._case(line)
        if text == "[[":
            return self._condition(line)
        if text == "{":
            return Group(self._until("}"), subshell=False)
        if text == "(":
            return Group(self._until(")"), subshell=True)
        if text == "function" and self.at < len(self.tokens):
            name = self._peek() or ""
            self.at += 1
            if self._accept("("):
                self._accept(")")
            return self._function(name)
        if token.kind == "word" and text and self._accept("(") and self._accept(")"):
            return self._function(text)
        self.at = start
        return None

    def _function(self, name: str) -> Function:
        self._skip_newlines()
        body = self._command()
        return Function(name, body.body if isinstance(body, Group) else [body])

    def _until(self, end: str) -> list[Node]:
        body = self.block(frozenset({end}))
        self._accept(end)
        return body

    def _do_body(self) -> list[Node]:
        self._skip_newlines()
        while self._accept(";"):
            self._skip_newlines()
        if self._accept("{"):
            return self._until("}")
        self._accept("do")
        return self._until("done")

    def _if(self, line: int) -> If:
        branches: list[tuple[list[Node], list[Node]]] = []
        otherwise: list[Node] = []
        inner = frozenset({"elif", "else", "fi"})
        while True:
            test = self.block(frozenset({"then", "fi"}))
            self._accept("then")
            branches.append((test, self.block(inner)))
            if not self._accept("elif"):
                break
        if self._accept("else"):
            otherwise = self.block(frozenset({"fi"}))
        self._accept("fi")
        return If(line, branches, otherwise)

    def _for(self, line: int) -> For | Group:
        if self.at < len(self.tokens) and self.tokens[self.at].kind == "arith":
            start, test, step = [*self.tokens[self.at].text.split(";"), "", ""][:3]
            self.at += 1
            loop = While(line, [ArithmeticCommand(line, test)], self._do_body(), False, step)
            return Group([ArithmeticCommand(line, start), loop], subshell=False)
        name = self._peek() or ""
        self.at += self.at < len(self.tokens)
        self._skip_newlines()
        words: list[Word] | None = None
        if self._accept("in"):
            words = []
            while self.at < len(self.tokens):
                word = self.tokens[self.at].word
                if word is None:
                    break
                words.append(word)
                self.at += 1
        return For(line, name, words, self._do_body())

    def _case(self, line: int) -> Case:
        subject = self.tokens[self.at].word if self.at < len(self.tokens) else None
        self.at += 1
        self._skip_newlines()
        self._accept("in")
        branches: list[tuple[list[Word], list[Node]]] = []
        while self.at < len(self.tokens):
            self._skip_newlines()
            if self._accept("esac"):
                break
            self._accept("(")
            patterns: list[Word] = []
            while self.at < len(self.tokens) and not self._accept(")"):
                word = self.tokens[self.at].word
                if word is not None:
                    patterns.append(word)
                self.at += 1
            branches.append((patterns, self.block(frozenset({";;", ";&", ";;&", "esac"}))))
            self._accept(";;", ";&", ";;&")
        return Case(line, subject or Word((), line), branches)

    def _condition(self, line: int) -> Condition:
        words: list[Word | str] = []
        while self.at < len(self.tokens) and not self._accept("]]"):
            token = self.tokens[self.at]
            if token.kind != "newline":
                words.append(token.word if token.word is not None else token.text)
            self.at += 1
        return Condition(line, words)

    def _simple(self) -> Simple:
        node = Simple(self.tokens[self.at].line)
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.kind == "redirect":
                self._redirection(node)
            elif token.word is not None:
                self.at += 1
                assignment = None if node.words else as_assignment(token.word)
                if assignment is not None:
                    node.assignments.append(assignment)
                else:
                    node.words.append(token.word)
            else:
                break
        return node

    def _redirection(self, node: Simple | None) -> None:
        token = self.tokens[self.at]
        self.at += 1
        if token.heredoc is not None:
            if node is not None:
                node.heredoc = token.heredoc
        elif token.text.lstrip("0123456789") not in ("<<", "<<-") and self.at < len(self.tokens):
            word = self.tokens[self.at].word
            self.at += word is not None
            if token.text == "<<<" and node is not None:
                node.herestring = word


# Shell text -> tokens, in the grammar of POSIX sh and the common part of bash.
#
# Nothing is expanded here: a word is a sequence of parts, each with the line it stands on, so that
# every later argument can say where it was written. The lexer accepts any text: an unclosed quote
# or bracket runs to the end of the text.


MAX_TOKENS = 60_000
_LINE_START = re.compile(r"(?<=\n)(?!\Z)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "0": "\0"}
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


class Lexer:
    """Reads `text`, whose first line has the number `line`; `in_array`: the elements of one.

    It stands at `pos`, knows the line there, and what is quoted or bracketed.
    """

    def __init__(self, text: str, line: int = 1, *, in_array: bool = False) -> None:
        self.text = text.replace("\r\n", "\n")
        self.pos = 0
        self.truncated = False
        self._first_line = line
        self._newlines = [i for i, char in enumerate(self.text) if char == "\n"]
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
