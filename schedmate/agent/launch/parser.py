"""Shell tokens -> a tree of commands.

The parser accepts any token sequence: where the grammar is broken (an `fi` without `if`, a missing
`done`) it takes what it can, for a script that is slightly off still says what it launches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from schedmate.agent.launch.lexer import Heredoc, Lexer, Literal, Token, Word

MAX_DEPTH = 60


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
    line: int
    test: list[Node]
    body: list[Node]
    until: bool


@dataclass(slots=True)
class For:
    """`for name in words`; `words` is None for the positional parameters."""

    line: int
    name: str
    words: list[Word] | None
    body: list[Node]


@dataclass(slots=True)
class CountingFor:
    """`for ((start; test; step))`."""

    line: int
    start: str
    test: str
    step: str
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


Node = (
    Simple
    | Condition
    | ArithmeticCommand
    | Pipeline
    | AndOr
    | If
    | While
    | For
    | CountingFor
    | Case
    | Function
    | Group
)

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]]*)\])?(\+?)=", re.ASCII)


def parse(text: str, line: int = 1) -> list[Node]:
    """The commands of a script whose first line has the number `line`."""
    return parse_tokens(Lexer(text, line).tokens())


def parse_tokens(tokens: list[Token]) -> list[Node]:
    """The commands that a sequence of tokens spells."""
    return _Parser(tokens).block(frozenset())


def as_assignment(word: Word) -> Assignment | None:
    """The assignment that a word spells, or None."""
    if not word.parts or not isinstance(word.parts[0], Literal) or word.parts[0].quoted:
        return None
    first = word.parts[0]
    match = _ASSIGNMENT.match(first.text)
    if match is None:
        return None
    rest = first.text[match.end() :]
    parts = ((Literal(rest, first.line, False),) if rest else ()) + word.parts[1:]
    value = Word(parts, word.line, word.array)
    return Assignment(match[1], match[2], bool(match[3]), value)


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
        while self._accept(";") or (self.at < len(self.tokens) and self._at_newline()):
            self._skip_newlines()
        if self._accept("{"):
            return self._until("}")
        self._accept("do")
        return self._until("done")

    def _at_newline(self) -> bool:
        return self.tokens[self.at].kind == "newline"

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

    def _for(self, line: int) -> For | CountingFor:
        if self.at < len(self.tokens) and self.tokens[self.at].kind == "arith":
            start, test, step = [*self.tokens[self.at].text.split(";"), "", ""][:3]
            self.at += 1
            return CountingFor(line, start, test, step, self._do_body())
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


def keyed_element(word: Word) -> tuple[str, Word] | None:
    """Key and value of `[key]=value` in an array, or None."""
    first = word.parts[0]
    if not isinstance(first, Literal) or first.quoted:
        return None
    match = re.match(r"\[([^\]]*)\]=", first.text)
    if match is None:
        return None
    rest = first.text[match.end() :]
    parts = ((Literal(rest, first.line, False),) if rest else ()) + word.parts[1:]
    return match[1], Word(parts, word.line)


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
