"""Expands words as a shell does, from what it knows: text with origins, variables, directory.

A `State` is what a shell knows while a script is followed; an `Expander` puts variables, defaults,
arrays and arithmetic in (POSIX 2.6, bash 3.5) and splits the result at white space into fields
(POSIX 2.6.5). Every piece of text remembers where it came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from schedmate.agent.launch import shell_operators
from schedmate.agent.launch.shell_grammar import (
    Arithmetic,
    Heredoc,
    Lexer,
    Literal,
    Node,
    Param,
    Part,
    Substitution,
    Word,
)
from schedmate.agent.values import Origin, Unknown, Value
from schedmate.jobs import Source

MAX_TEXT = 100_000
MAX_PIECES = 4_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of characters from one place. `split`: subject to word splitting."""

    text: str
    origin: Origin
    known: bool = True
    split: bool = False
    quoted: bool = False


Text = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A shell variable: a scalar is the item "0", arrays and maps are keyed by their subscripts."""

    items: dict[str, Text]
    array: bool = False


def joined_text(text: Text) -> str:
    """The characters; unknown pieces show the expression they stand for."""
    return "".join(piece.text for piece in text)


def known_text(text: Text) -> str | None:
    """The characters, or None when a piece is unknown."""
    return joined_text(text) if all(piece.known for piece in text) else None


def bounded_text(text: Text) -> Text:
    """The text, or one unknown piece when it has grown beyond reason."""
    if len(text) > MAX_PIECES or sum(len(piece.text) for piece in text) > MAX_TEXT:
        return (Piece("...", text[0].origin, known=False),)
    return text


def to_value(text: Text) -> Value:
    """A token as a Value. A token put together from several places names the place of the whole."""
    whole = joined_text(text)
    pieces = [piece for piece in text if piece.text] or list(text)
    if not pieces:
        return Value(whole)
    origins = {piece.origin for piece in pieces}
    literal = next((p.origin for p in pieces if p.origin.source in ("command", "script")), None)
    origin = pieces[0].origin if literal is None else literal
    if len(origins) > 1 or origin.text is None:
        origin = origin._replace(text=whole)
    known = all(piece.known for piece in pieces)
    return Value(whole if known else Unknown(whole), origin)


def from_value(value: Value, origin: Origin) -> Text:
    """The inverse of `to_value`, for a value that re-enters a shell; `origin` where it has none."""
    known = not isinstance(value.data, Unknown)
    text = value.data.text or "" if isinstance(value.data, Unknown) else str(value.data)
    return (Piece(text, value.origin or origin, known),)


def token(value: Value) -> str:
    """The characters of an argv token, known or not."""
    return (value.data.text or "") if isinstance(value.data, Unknown) else str(value.data)


@dataclass(slots=True)
class State:
    """A shell's state. `file` is the script being followed, None for the typed command.

    `typed`: the user gave `positional`, and one that is missing is not empty but left out.
    """

    cwd: str = "."
    file: str | None = None
    name: str = "bash"
    positional: list[Text] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, list[Node]] = field(default_factory=dict)
    facts: dict[str, Value] = field(default_factory=dict)
    launchers: tuple[str, ...] = ()
    sets: dict[str, str] = field(default_factory=dict)
    typed: bool = True

    def copy(self) -> State:
        """An independent state that starts from this one."""
        return replace(
            self,
            positional=list(self.positional),
            variables=dict(self.variables),
            exported=set(self.exported),
            functions=dict(self.functions),
            facts=dict(self.facts),
            sets=dict(self.sets),
        )

    def origin(self, line: int, variable: str | None = None) -> Origin:
        """The origin of a literal on `line`, or of the literal value of `variable`."""
        source: Source = "command" if self.file is None else "script"
        return Origin(
            source if variable is None else "environment",
            self.file,
            line if self.file is not None else None,
            variable,
        )

    def assign(self, name: str, text: Text, index: str = "0", append: bool = False) -> None:
        """`name[index]=text` or `+=`."""
        before = self.variables.get(name)
        items = dict(before.items) if before is not None else {}
        stored = tuple(replace(p, split=False, quoted=False) for p in text)
        items[index] = bounded_text(items.get(index, ()) + stored if append else stored)
        array = index != "0" or (before is not None and before.array)
        self.variables[name] = Variable(items, array)

    def assign_array(
        self, name: str, items: Iterable[tuple[str | None, Text]], append: bool
    ) -> None:
        """`name=(...)` or `+=(...)`; an item without a key follows the last one."""
        before = self.variables.get(name)
        stored = dict(before.items) if append and before is not None else {}
        following = 1 + max(
            (int(key) for key in stored if re.fullmatch(r"\d{1,9}", key)), default=-1
        )
        for key, text in items:
            if len(stored) >= MAX_PIECES:
                break
            place = str(following) if key is None else key
            following += key is None
            stored[place] = bounded_text(tuple(replace(p, split=False, quoted=False) for p in text))
        self.variables[name] = Variable(stored, array=True)

    def environment(self) -> dict[str, Value]:
        """The exported variables."""
        return {
            name: to_value(self.variables[name].items.get("0", ()))
            for name in sorted(self.exported)
            if name in self.variables
        }


def merge_states(before: State, branches: list[State]) -> None:
    """Make `before` what is known after one of several branches, of which any may have run.

    A variable takes the value that all branches which set it agree on: so a branch that fills in
    a default counts. Where they differ, what they have in common at the start stays (a list of
    arguments to which a branch adds some), and if that is nothing the variable is unknown.
    """
    for name in {name for branch in branches for name in branch.variables}:
        values = [branch.variables[name] for branch in branches if name in branch.variables]
        known = [value for value in values if _is_known(value)] or values
        shortest = min(known, key=lambda value: len(_variable_text(value)))
        if all(_variable_text(value).startswith(_variable_text(shortest)) for value in known):
            before.variables[name] = shortest
        else:
            origin = Origin("script" if before.file else "command", before.file)
            before.variables[name] = Variable({"0": (Piece(f"${name}", origin, known=False),)})
    for branch in branches:
        before.exported |= branch.exported
        before.functions |= branch.functions
        before.facts |= {k: v for k, v in branch.facts.items() if k not in before.facts}


def _variable_text(variable: Variable) -> str:
    """The whole value as text, items closed by a mark, so that a prefix is a prefix of items."""
    if not variable.array:
        return joined_text(variable.items.get("0", ()))
    return "".join(f"{key}={joined_text(text)}\0" for key, text in variable.items.items())


def _is_known(variable: Variable) -> bool:
    return all(piece.known for text in variable.items.values() for piece in text)


# Word expansion: variables, defaults, arrays, arithmetic (POSIX 2.6, bash 3.5).


MAX_DEPTH = 20

_OPERATION = re.compile(r"(:?[-=?+]|##?|%%?|//?|\^\^?|,,?|@|:)(.*)", re.DOTALL)


@dataclass
class Expander:
    """Expands words against a `State`.

    `substitute` gives the text of a command substitution. `provided` holds the variables that the
    system sets, unless the script does: known ones with their text, the others with None. A
    variable that is not set is unknown, for the user's own shell may hold it; in tests, where
    `unset_is_empty` is on, it counts as unset. The same holds for a positional parameter
    that the user left out, which with `unset_is_unknown` is unknown in tests, too; `left_out`
    collects them.
    """

    state: State
    substitute: Callable[[Substitution], Text]
    provided: Mapping[str, str | None]
    unset_is_unknown: bool = False
    left_out: set[str] = field(default_factory=set)
    unset_is_empty: bool = False
    _depth: int = 0

    def fields(self, word: Word) -> list[Text]:
        """The arguments that one word becomes."""
        bare = word.bare
        if bare is not None and "{" in bare:
            origin = self.state.origin(word.line)
            return [(Piece(text, origin),) for text in shell_operators.expand_braces(bare)]
        return split_fields(self._pieces(word, None))

    def text(self, word: Word, variable: str | None = None) -> Text:
        """The word as one text without splitting; `variable` names what it is assigned to."""
        pieces = self._pieces(word, variable)
        space = Piece(" ", self.state.origin(word.line))
        return bounded_text(tuple(space if piece is FIELD_BREAK else piece for piece in pieces))

    def heredoc(self, heredoc: Heredoc, variable: str | None = None) -> Text:
        """The text of a here-document."""
        if heredoc.quoted:
            origin = self.state.origin(heredoc.line, variable)
            return (Piece(heredoc.text, origin),)
        return self.text(Lexer(heredoc.text, heredoc.line).whole(quoted=True), variable)

    def pattern(self, word: Word) -> str | None:
        """The word as a shell pattern with its quoted characters escaped; None if unknown."""
        text = self.text(word)
        if known_text(text) is None:
            return None
        return "".join(
            re.sub(r"([*?\[\\])", r"\\\1", piece.text) if piece.quoted else piece.text
            for piece in text
        )

    def integer(self, name: str) -> int | None:
        """A variable's integer value for arithmetic; an unset variable is unknown."""
        text = known_text(self._scalar(name)) if self._depth < MAX_DEPTH else None
        if text is None or not text.strip():
            return None
        try:
            return int(text)
        except ValueError:
            self._depth += 1
            value = shell_operators.evaluate_arithmetic(text, self.integer)
            self._depth -= 1
            return value

    def arithmetic(self, text: str, line: int) -> int | None:
        """The value of an arithmetic expression in which `$name` may occur."""
        expression = known_text(self.text(Lexer(text, line).whole(quoted=True)))
        return (
            None
            if expression is None
            else shell_operators.evaluate_arithmetic(expression, self.integer)
        )

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
        origin = self.state.origin(part.line, variable)
        if isinstance(part, Arithmetic):
            value = self.arithmetic(part.text, part.line)
            known = value is not None
            return [Piece(str(value) if known else part.raw, origin, known, quoted=part.quoted)]
        if isinstance(part, Substitution):
            return [as_expanded(piece, part.quoted) for piece in self.substitute(part)]
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
            return with_field_breaks(values, part.quoted, origin)
        separated: list[Piece | None] = []
        for number, text in enumerate(values):
            separated += [Piece(" ", origin)] if number else []
            separated += [as_expanded(piece, part.quoted) for piece in text]
        return separated or [Piece("", origin, split=not part.quoted, quoted=part.quoted)]

    def _param(self, part: Param) -> tuple[list[Text] | None, bool]:
        """The texts of a parameter expansion (None: unset) and whether it is a list."""
        origin = self.state.origin(part.line)
        if part.prefix == "!" and part.index in ("@", "*"):
            keys = self.state.variables.get(part.name, Variable({})).items
            return [(Piece(key, origin),) for key in keys], True
        if part.prefix == "!":
            name = known_text(self._scalar(part.name))
            if not name:
                return None, False
            part = replace(part, name=name, prefix="")
        values, many = self._lookup(part)
        operated = _OPERATION.fullmatch(part.operation)
        left_out = not values and self.state.typed and (part.name.isdecimal() or part.name in "@*")
        if left_out and (operated is None or operated[1] == ":"):
            self.left_out.add(part.raw)
        placeholder = None
        if values and not many and joined_text(values[0]) in self.left_out:
            placeholder, values, left_out = values, None, True  # `MODE=$1` without a first argument
        if part.prefix == "#":
            if many:
                return [(Piece(str(len(values or ())), origin),)], False
            text = known_text(values[0]) if values else None
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
            empty = values is None or (operator[0] == ":" and not any(map(joined_text, values)))
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
        text = known_text(values[0]) if values else ""
        if text is None:
            return None, False
        text = text[first:] if count is None else text[first:][:count]
        return [(Piece(text, _origin_of_text(values[0], self.state, part)),)], False

    def _edit(self, part: Param, text: Text, operator: str, operand: str) -> Text:
        before = known_text(text)
        origin = _origin_of_text(text, self.state, part)
        after: str | None = before
        if before is not None and operator in ("#", "##", "%", "%%", "/", "//"):
            pattern = known_text(self.text(Lexer(operand, part.line).whole(quoted=False)))
            if pattern is None or len(before) > 1_024:
                after = None
            elif operator[0] == "/":
                after = shell_operators.replace_pattern(before, operator + pattern)
            else:
                after = shell_operators.remove_pattern(before, operator, pattern)
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
        key = known_text(self.text(Lexer(part.index, part.line).whole(quoted=True))) or ""
        if key not in variable.items:
            number = self.arithmetic(part.index, part.line)
            if number is None:
                return None, False
            if number < 0:
                number += len(variable.items)
            key = str(number)
        return [variable.items.get(key, ())], False


def _origin_of_text(text: Text, state: State, part: Param) -> Origin:
    return text[0].origin if text else state.origin(part.line)


# Fields: what expansion gave, split at white space (POSIX 2.6.5).


FIELD_BREAK = None
"""Stands between the items of `"$@"` in a sequence of pieces."""


def as_expanded(piece: Piece, quoted: bool) -> Piece:
    return replace(piece, split=not quoted, quoted=quoted)


def with_field_breaks(values: list[Text], quoted: bool, origin: Origin) -> list[Piece | None]:
    out: list[Piece | None] = []
    for number, text in enumerate(values):
        out += [FIELD_BREAK] if number else []
        out += [as_expanded(piece, quoted) for piece in text]
        if quoted and not text:
            out.append(Piece("", origin, quoted=True))
    return out


def split_fields(pieces: Sequence[Piece | None]) -> list[Text]:
    """Fields from pieces: at breaks, and at white space in what an unquoted expansion gave."""
    none_given = any(p is not None and p.split and not p.text for p in pieces)
    fields: list[Text] = []
    current: list[Piece] = []

    def close() -> None:
        quoted_empty = any(p.quoted for p in current) and not none_given
        if any(p.text for p in current) or quoted_empty:
            fields.append(tuple(current))
        current.clear()

    for piece in pieces:
        if piece is FIELD_BREAK:
            close()
        elif piece.split and piece.known and (not piece.text or not piece.text.strip(" \t\n")):
            if piece.text:
                close()
        elif piece.split and piece.known:
            for number, text in enumerate(re.split(r"[ \t\n]+", piece.text)):
                if number:
                    close()
                if text:
                    current.append(replace(piece, text=text, split=False))
        else:
            current.append(piece)
    close()
    return fields
