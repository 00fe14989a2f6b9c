"""Shell tokens -> a tree of commands.

The parser accepts any token sequence: where the grammar is broken (an `fi` without `if`, a missing
`done`) it takes what it can, for a script that is slightly off still says what it launches.
"""

from __future__ import annotations

from schedmate.agent.launch.lexer import Lexer
from schedmate.agent.launch.tree import (
    AndOr,
    ArithmeticCommand,
    Case,
    Condition,
    CountingFor,
    For,
    Function,
    Group,
    If,
    Node,
    Pipeline,
    Simple,
    While,
    as_assignment,
)
from schedmate.agent.launch.words import Token, Word

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
