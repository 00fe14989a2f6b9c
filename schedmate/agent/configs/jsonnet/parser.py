"""Jsonnet text to a syntax tree (the grammar of jsonnet.org's specification)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from schedmate.agent.configs.files import ConfigError, Source

MAX_DEPTH = 60

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<block>\|\|\|[ \t]*\n.*?\n[ \t]*\|\|\|)
    |(?P<verbatim>@"(?:[^"]|"")*"|@'(?:[^']|'')*')
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<mark>\+?:{1,3}|&&|\|\||==|!=|<=|>=|<<|>>|[{}\[\](),.;$=+\-*/%<>!&|^~])""",
    re.VERBOSE | re.DOTALL,
)
_BINDING = {
    operator: level
    for level, operators in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< > <= >= in", "<< >>", "+ -", "* / %")
    )
    for operator in operators.split()
}
"""How tightly each operator binds."""
_PLAIN = {"null": None, "true": True, "false": False}
_WHOLE = re.compile(r"\d{1,19}")
_COLONS = re.compile(r"\+?:{1,3}")


@dataclass(slots=True)
class Node:
    """A piece of syntax: what it is, where, and its parts (nodes, names, plain data)."""

    kind: str
    line: int
    parts: tuple[Any, ...]


@dataclass(slots=True)
class Field:
    """A field of an object: `name: value`, hidden (`::`), or laid upon what is below (`+:`)."""

    name: Node
    value: Node
    hidden: bool
    upon: bool


def parse(source: Source) -> Node:
    """The tree of a text. Raises ConfigError with the line for broken syntax."""
    reader = _Parser(source)
    node = reader.expression(0)
    if reader.kind:
        raise reader.wrong(f"unexpected {reader.text[:40]}")
    return node


class _Parser:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.at, self.line, self._next = 0, 1, 1
        self.kind = self.text = ""
        self.advance()

    def wrong(self, reason: str) -> ConfigError:
        return self.source.error(f"is not Jsonnet that can be read ({reason})", self.line)

    def advance(self) -> str:
        """Move to the next token and return the one left behind; `kind` is empty at the end."""
        left = self.text
        self.line = self._next
        while match := _TOKEN.match(self.source.text, self.at):
            self.at = match.end()
            self._next = self.line + match[0].count("\n")
            if match.lastgroup != "space":
                self.kind, self.text = str(match.lastgroup), match[0]
                return left
            self.line = self._next
        if self.at < len(self.source.text):
            raise self.wrong(f"unexpected {self.source.text[self.at]!r}")
        self.kind, self.text = "", ""
        return left

    def taken(self, *texts: str) -> bool:
        """Whether the token is one of these (and no text of a string); it is then passed."""
        if self.kind in ("word", "mark") and self.text in texts:
            self.advance()
            return True
        return False

    def need(self, text: str) -> None:
        if not self.taken(text):
            raise self.wrong(f"found {self.text[:40] or 'the end'} where '{text}' should be")

    def name(self) -> str:
        if self.kind != "word":
            raise self.wrong(f"found {self.text[:40] or 'the end'} where a name should be")
        return self.advance()

    def expression(self, depth: int, level: int = 0) -> Node:
        """What comes up to an operator that binds less tightly than `level`."""
        if depth > MAX_DEPTH:
            raise self.source.error(f"nests deeper than {MAX_DEPTH} levels; flatten it", self.line)
        left = self._unary(depth)
        while self.kind in ("mark", "word") and _BINDING.get(self.text, -1) >= level:
            line, operator = self.line, self.advance()
            right = self.expression(depth + 1, _BINDING[operator] + 1)
            left = Node("binary", line, (operator, left, right))
        return left

    def _unary(self, depth: int) -> Node:
        line = self.line
        if depth > MAX_DEPTH:
            raise self.source.error(f"nests deeper than {MAX_DEPTH} levels; flatten it", line)
        if self.kind == "mark" and self.text in ("-", "+", "!", "~"):
            operator = self.advance()
            return Node("unary", line, (operator, self._unary(depth + 1)))
        node = self._primary(depth)
        while True:
            line = self.line
            if self.taken("."):
                node = Node("index", line, (node, Node("plain", line, (self.name(),))))
            elif self.taken("["):
                parts = [self._or_none(depth)]
                while self.taken(":", "::"):
                    parts.append(self._or_none(depth))
                self.need("]")
                sliced = len(parts) > 1 or parts[0] is None
                node = Node("unread", line, ()) if sliced else Node("index", line, (node, parts[0]))
            elif self.taken("("):
                node = Node("call", line, (node, *self._arguments(depth)))
                self.taken("tailstrict")
            elif self.kind == "mark" and self.text == "{":
                node = Node("binary", line, ("+", node, self._primary(depth)))
            else:
                return node

    def _or_none(self, depth: int) -> Node | None:
        return None if self.text in (":", "::", "]") else self.expression(depth + 1)

    def _arguments(self, depth: int) -> tuple[list[Node], dict[str, Node]]:
        given: list[Node] = []
        named: dict[str, Node] = {}
        while not self.taken(")"):
            value = self.expression(depth + 1)
            if value.kind == "variable" and self.taken("="):
                named[value.parts[0]] = self.expression(depth + 1)
            else:
                given.append(value)
            if not self.taken(","):
                self.need(")")
                break
        return given, named

    def _primary(self, depth: int) -> Node:
        line, kind = self.line, self.kind
        if kind in ("string", "block", "verbatim"):
            return Node("plain", line, (self._string(),))
        if kind == "number":
            text = self.advance()
            return Node("plain", line, (int(text) if _WHOLE.fullmatch(text) else float(text),))
        if self.taken("("):
            inside = self.expression(depth + 1)
            self.need(")")
            return inside
        if self.taken("["):
            return self._array(line, depth)
        if self.taken("{"):
            return self._object(line, depth)
        if self.taken("$"):
            return Node("root", line, ())
        return self._word(line, depth)

    def _word(self, line: int, depth: int) -> Node:
        word = self.name()
        if word in _PLAIN:
            return Node("plain", line, (_PLAIN[word],))
        if word in ("self", "super"):
            return Node(word, line, ())
        if word == "local":
            bound = self._bindings(depth)
            self.need(";")
            return Node("local", line, (bound, self.expression(depth + 1)))
        if word == "if":
            test = self.expression(depth + 1)
            self.need("then")
            then = self.expression(depth + 1)
            other = self.expression(depth + 1) if self.taken("else") else None
            return Node("if", line, (test, then, other or Node("plain", line, (None,))))
        if word == "function":
            self.need("(")
            parameters = self._parameters(depth)
            return Node("function", line, (parameters, self.expression(depth + 1)))
        if word in ("import", "importstr"):
            return Node(word, line, (self._string(),))
        if word == "error":
            return Node("unread", line, (self.expression(depth + 1),))
        if word == "assert":
            self._assertion(depth)
            self.need(";")
            return self.expression(depth + 1)
        return Node("variable", line, (word,))

    def _assertion(self, depth: int) -> None:
        self.expression(depth + 1)
        if self.taken(":"):
            self.expression(depth + 1)

    def _string(self) -> str:
        kind, text = self.kind, self.advance()
        if kind == "verbatim":
            return text[2:-1].replace(text[1] * 2, text[1])
        if kind == "block":
            lines = text.split("\n")[1:-1]
            indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
            return "".join(f"{line[indent:]}\n" for line in lines)
        if kind != "string":
            raise self.wrong(f"found {text[:40] or 'the end'} where text should be")
        inner = re.sub(r"\\'|(?<!\\)\"", lambda m: "'" if m[0] == "\\'" else '\\"', text[1:-1])
        try:
            return str(json.loads(f'"{inner if text[0] == chr(39) else text[1:-1]}"', strict=False))
        except ValueError:
            return text[1:-1]

    def _bindings(self, depth: int, several: bool = True) -> dict[str, Node]:
        bound: dict[str, Node] = {}
        while True:
            line, name = self.line, self.name()
            parameters = self._parameters(depth) if self.taken("(") else None
            self.need("=")
            value = self.expression(depth + 1)
            bound[name] = (
                value if parameters is None else Node("function", line, (parameters, value))
            )
            if not several or not self.taken(","):
                return bound

    def _parameters(self, depth: int) -> dict[str, Node | None]:
        named: dict[str, Node | None] = {}
        while not self.taken(")"):
            name = self.name()
            named[name] = self.expression(depth + 1) if self.taken("=") else None
            if not self.taken(","):
                self.need(")")
                break
        return named

    def _loops(self, depth: int) -> list[tuple[str | None, Node]]:
        """`for x in e if e ...`; a condition is a loop without a name."""
        loops: list[tuple[str | None, Node]] = []
        while True:
            if self.taken("for"):
                name = self.name()
                self.need("in")
                loops.append((name, self.expression(depth + 1)))
            elif self.taken("if"):
                loops.append((None, self.expression(depth + 1)))
            else:
                return loops

    def _array(self, line: int, depth: int) -> Node:
        items: list[Node] = []
        while not self.taken("]"):
            items.append(self.expression(depth + 1))
            comma = self.taken(",")
            if loops := self._loops(depth):
                self.need("]")
                return Node("each", line, (items[0], loops))
            if not comma:
                self.need("]")
                break
        return Node("array", line, tuple(items))

    def _object(self, line: int, depth: int) -> Node:
        fields: list[Field] = []
        bound: dict[str, Node] = {}
        while not self.taken("}"):
            if self.taken("local"):
                bound |= self._bindings(depth, several=False)
            elif self.taken("assert"):
                self._assertion(depth)
            else:
                fields.append(self._field(depth))
            comma = self.taken(",")
            if loops := self._loops(depth):
                self.need("}")
                return Node("object", line, (fields, bound, loops))
            if not comma:
                self.need("}")
                break
        return Node("object", line, (fields, bound, []))

    def _field(self, depth: int) -> Field:
        line = self.line
        if self.taken("["):
            name = self.expression(depth + 1)
            self.need("]")
        elif self.kind == "word":
            name = Node("plain", line, (self.name(),))
        else:
            name = Node("plain", line, (self._string(),))
        parameters = self._parameters(depth) if self.taken("(") else None
        upon = self.taken("+")  # `model +: {}`, with the sign apart from its colon
        mark = self.text
        if not _COLONS.fullmatch(mark):
            raise self.wrong(f"found {mark[:40] or 'the end'} where ':' should be")
        self.advance()
        value = self.expression(depth + 1)
        if parameters is not None:
            value = Node("function", line, (parameters, value))
        return Field(name, value, "::" in mark, upon or mark.startswith("+"))
