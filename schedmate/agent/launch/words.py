"""Words and tokens of shell text, unexpanded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as Kind


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


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`$((...))`."""

    raw: str
    text: str
    line: int
    quoted: bool


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
