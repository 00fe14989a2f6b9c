"""Word expansion: variables, defaults, arrays, arithmetic (POSIX 2.6, bash 3.5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from schedmate.agent.launch import arith, patterns
from schedmate.agent.launch.lexer import Lexer
from schedmate.agent.launch.splitting import BREAK, as_result, split_fields, with_breaks
from schedmate.agent.launch.state import Piece, State, Text, Variable, bounded, joined, plain
from schedmate.agent.launch.words import (
    Arithmetic,
    Heredoc,
    Literal,
    Param,
    Part,
    Substitution,
    Word,
)
from schedmate.agent.values import Origin

MAX_DEPTH = 20

_OPERATION = re.compile(r"(:?[-=?+]|##?|%%?|//?|\^\^?|,,?|@|:)(.*)", re.DOTALL)


class Expander:
    """Expands words against a `State`.

    `substitute` gives the text of a command substitution. `provided` holds the variables that the
    system sets, unless the script does: known ones with their text, the others with None. A
    variable that is not set is unknown, for the user's own shell may hold it; in tests, where
    `unset_is_empty` is on, it counts as unset. The same holds for a positional parameter
    that the user left out, which with `unset_is_unknown` is unknown in tests, too; `left_out`
    collects them.
    """

    def __init__(
        self,
        state: State,
        substitute: Callable[[Substitution], Text],
        provided: Mapping[str, str | None],
        unset_is_unknown: bool = False,
        left_out: set[str] | None = None,
    ) -> None:
        self.state = state
        self.substitute = substitute
        self.provided = provided
        self.unset_is_empty = False
        self.unset_is_unknown = unset_is_unknown
        self.left_out = set() if left_out is None else left_out
        self._depth = 0

    def fields(self, word: Word) -> list[Text]:
        """The arguments that one word becomes."""
        bare = word.bare
        if bare is not None and "{" in bare:
            origin = self.state.origin(word.line)
            return [(Piece(text, origin),) for text in patterns.braces(bare)]
        return split_fields(self._pieces(word, None))

    def text(self, word: Word, variable: str | None = None) -> Text:
        """The word as one text without splitting; `variable` names what it is assigned to."""
        pieces = self._pieces(word, variable)
        space = Piece(" ", self.state.origin(word.line))
        return bounded(tuple(space if piece is BREAK else piece for piece in pieces))

    def heredoc(self, heredoc: Heredoc, variable: str | None = None) -> Text:
        """The text of a here-document."""
        if heredoc.quoted:
            origin = self.state.origin(heredoc.line, variable)
            return (Piece(heredoc.text, origin),)
        return self.text(Lexer(heredoc.text, heredoc.line).whole(quoted=True), variable)

    def pattern(self, word: Word) -> str | None:
        """The word as a shell pattern with its quoted characters escaped; None if unknown."""
        text = self.text(word)
        if plain(text) is None:
            return None
        return "".join(
            re.sub(r"([*?\[\\])", r"\\\1", piece.text) if piece.quoted else piece.text
            for piece in text
        )

    def integer(self, name: str) -> int | None:
        """A variable's integer value for arithmetic; an unset variable is unknown."""
        text = plain(self._scalar(name)) if self._depth < MAX_DEPTH else None
        if text is None or not text.strip():
            return None
        try:
            return int(text)
        except ValueError:
            self._depth += 1
            value = arith.evaluate(text, self.integer)
            self._depth -= 1
            return value

    def arithmetic(self, text: str, line: int) -> int | None:
        """The value of an arithmetic expression in which `$name` may occur."""
        expression = plain(self.text(Lexer(text, line).whole(quoted=True)))
        return None if expression is None else arith.evaluate(expression, self.integer)

    def _scalar(self, name: str) -> Text:
        values, _ = self._lookup(Param(f"${name}", name, 1, quoted=True))
        if values is None:
            return (Piece(f"${name}", self.state.origin(1), known=False),)
        return values[0] if values else ()

    def _pieces(self, word: Word, variable: str | None) -> list[Piece | None]:
        out: list[Piece | None] = []
        for part in word.parts:
            out += self._part(part, variable)
            if len(out) > 10_000:
                break
        return out

    def _part(self, part: Part, variable: str | None) -> list[Piece | None]:
        if isinstance(part, Literal):
            origin = self.state.origin(part.line, variable)
            return [Piece(part.text, origin, quoted=part.quoted)]
        if isinstance(part, Substitution):
            return [as_result(piece, part.quoted) for piece in self.substitute(part)]
        origin = self.state.origin(part.line, variable)
        if isinstance(part, Arithmetic):
            value = self.arithmetic(part.text, part.line)
            known = value is not None
            return [Piece(str(value) if known else part.raw, origin, known, quoted=part.quoted)]
        if self._depth >= MAX_DEPTH:
            return [Piece(part.raw, origin, known=False)]
        self._depth += 1
        values, many = self._param(part)
        self._depth -= 1
        if values is None:
            return [Piece(part.raw, origin, known=False, quoted=part.quoted)]
        if many and not (part.quoted and part.name == "*"):
            if not values and part.quoted:  # "$@" of nothing is no argument at all
                return [Piece("", origin, split=True)]
            return with_breaks(values, part.quoted, origin)
        separated: list[Piece | None] = []
        for number, text in enumerate(values):
            separated += [Piece(" ", origin)] if number else []
            separated += [as_result(piece, part.quoted) for piece in text]
        return separated or [Piece("", origin, split=not part.quoted, quoted=part.quoted)]

    def _param(self, part: Param) -> tuple[list[Text] | None, bool]:
        """The texts of a parameter expansion (None: unset) and whether it is a list."""
        origin = self.state.origin(part.line)
        if part.prefix == "!" and part.index in ("@", "*"):
            keys = self.state.variables.get(part.name, Variable({})).items
            return [(Piece(key, origin),) for key in keys], True
        if part.prefix == "!":
            name = plain(self._scalar(part.name))
            if not name:
                return None, False
            part = replace(part, name=name, prefix="")
        values, many = self._lookup(part)
        operated = _OPERATION.fullmatch(part.operation)
        left_out = not values and self.state.typed and (part.name.isdecimal() or part.name in "@*")
        if left_out and (operated is None or operated[1] == ":"):
            self.left_out.add(part.raw)
        placeholder = None
        if values and not many and joined(values[0]) in self.left_out:
            placeholder, values, left_out = values, None, True  # `MODE=$1` without a first argument
        if part.prefix == "#":
            if many:
                return [(Piece(str(len(values or ())), origin),)], False
            text = plain(values[0]) if values else None
            return (None, False) if text is None else ([(Piece(str(len(text)), origin),)], False)
        if operated is None:
            known = self.unset_is_empty and not (left_out and self.unset_is_unknown)
            values = placeholder if values is None else values
            return ([()] if known and (values is None or placeholder) else values), many
        return self._operate(part, values, many, operated[1], operated[2])

    def _operate(
        self, part: Param, values: list[Text] | None, many: bool, operator: str, operand: str
    ) -> tuple[list[Text] | None, bool]:
        if operator.strip(":") in ("-", "=", "+", "?") and operator != ":":
            empty = values is None or (operator[0] == ":" and not any(map(joined, values)))
            if operator[-1] == "+":
                return ([()] if empty else [self._operand(part, operand)]), False
            if not empty:
                return values, many
            if operator[-1] == "?":
                return None, many
            if operator[-1] == "-" and values == [] and many and not operand:
                return [], many
            text = self._operand(part, operand)
            if operator[-1] == "=" and not many:
                self.state.assign(part.name, text, part.index or "0")
            return [text], False
        if values is None:
            return None, many
        if operator == ":":
            return self._slice(part, values, many, operand)
        return [self._edit(part, text, operator, operand) for text in values], many

    def _operand(self, part: Param, operand: str) -> Text:
        return self.text(Lexer(operand, part.line).whole(part.quoted), variable=part.name)

    def _slice(
        self, part: Param, values: list[Text], many: bool, operand: str
    ) -> tuple[list[Text] | None, bool]:
        start, _, length = operand.partition(":")
        first = self.arithmetic(start, part.line)
        count = self.arithmetic(length, part.line) if length else None
        if first is None or (length and count is None):
            return None, many
        if many:
            first = max(first - 1, 0) if part.name in "@*" and first else first
            chosen = values[first:]
            return (chosen if count is None else chosen[: max(count, 0)]), True
        text = plain(values[0]) if values else ""
        if text is None:
            return None, False
        text = text[first:] if count is None else text[first:][:count]
        return [(Piece(text, _origin(values[0], self.state, part)),)], False

    def _edit(self, part: Param, text: Text, operator: str, operand: str) -> Text:
        before = plain(text)
        origin = _origin(text, self.state, part)
        after: str | None = before
        if before is not None and operator in ("#", "##", "%", "%%", "/", "//"):
            pattern = plain(self.text(Lexer(operand, part.line).whole(quoted=False)))
            if pattern is None or len(before) > 1_024:
                after = None
            elif operator[0] == "/":
                after = patterns.replace(before, operator + pattern)
            else:
                after = patterns.remove(before, operator, pattern)
        elif before is not None and operator[0] in "^,":
            change = str.upper if operator[0] == "^" else str.lower
            after = change(before) if len(operator) == 2 else change(before[:1]) + before[1:]
        if after is None:
            return (Piece(part.raw, origin, known=False),)
        return text if after == before else (Piece(after, origin),)

    def _lookup(self, part: Param) -> tuple[list[Text] | None, bool]:
        """The stored texts of a parameter (None: unset) and whether it is a list."""
        state, name = self.state, part.name
        origin = state.origin(part.line)
        if name in ("@", "*"):
            return list(state.positional), True
        if name.isdecimal():
            number = int(name[:9])  # nine digits are enough
            if number == 0:
                return [(Piece(state.name, origin),)], False
            if number <= len(state.positional):
                return [state.positional[number - 1]], False
            return (None if state.typed else [()]), False
        if name == "#":
            return [(Piece(str(len(state.positional)), origin),)], False
        variable = state.variables.get(name)
        if variable is not None:
            return self._items(part, variable)
        if name in self.provided:
            provided = self.provided[name]
            source = origin._replace(source="environment", text=name)
            piece = Piece(part.raw if provided is None else provided, source, provided is not None)
            return [(piece,)], False
        if part.index in ("@", "*"):
            return [], True  # the environment cannot hold an array
        return None, False

    def _items(self, part: Param, variable: Variable) -> tuple[list[Text] | None, bool]:
        if part.index in ("@", "*"):
            return list(variable.items.values()), True
        if part.index is None:
            return [variable.items.get("0", ())], False
        key = plain(self.text(Lexer(part.index, part.line).whole(quoted=True))) or ""
        if key not in variable.items:
            number = self.arithmetic(part.index, part.line)
            if number is None:
                return None, False
            if number < 0:
                number += len(variable.items)
            key = str(number)
        return [variable.items.get(key, ())], False


def _origin(text: Text, state: State, part: Param) -> Origin:
    return text[0].origin if text else state.origin(part.line)
