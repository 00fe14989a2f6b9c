"""The tree of commands that a script is parsed into."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from schedmate.agent.launch.words import Heredoc, Literal, Word


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

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*+)(?:\[([^\]]*+)\])?(\+?)=", re.ASCII)


def as_assignment(word: Word) -> Assignment | None:
    """The assignment that a word spells, or None."""
    if not word.parts or not isinstance(word.parts[0], Literal) or word.parts[0].quoted:
        return None
    match = _ASSIGNMENT.match(word.parts[0].text)
    if match is None:
        return None
    return Assignment(match[1], match[2], bool(match[3]), _after(word, match.end()))


def keyed_element(word: Word) -> tuple[str, Word] | None:
    """Key and value of `[key]=value` in an array, or None."""
    if not word.parts or not isinstance(word.parts[0], Literal) or word.parts[0].quoted:
        return None
    match = re.match(r"\[([^\]]*)\]=", word.parts[0].text)
    return None if match is None else (match[1], _after(word, match.end()))


def _after(word: Word, length: int) -> Word:
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
