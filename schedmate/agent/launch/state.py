"""What a shell knows while a script is followed: text with origins, variables, directory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from schedmate.agent.launch.tree import Node
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


def joined(text: Text) -> str:
    """The characters; unknown pieces show the expression they stand for."""
    return "".join(piece.text for piece in text)


def plain(text: Text) -> str | None:
    """The characters, or None when a piece is unknown."""
    return joined(text) if all(piece.known for piece in text) else None


def bounded(text: Text) -> Text:
    """The text, or one unknown piece when it has grown beyond reason."""
    if len(text) > MAX_PIECES or sum(len(piece.text) for piece in text) > MAX_TEXT:
        return (Piece("...", text[0].origin, known=False),)
    return text


def to_value(text: Text) -> Value:
    """A token as a Value. A token put together from several places names the place of the whole."""
    whole = joined(text)
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
        items[index] = bounded(items.get(index, ()) + stored if append else stored)
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
            stored[place] = bounded(tuple(replace(p, split=False, quoted=False) for p in text))
        self.variables[name] = Variable(stored, array=True)

    def environment(self) -> dict[str, Value]:
        """The exported variables."""
        return {
            name: to_value(self.variables[name].items.get("0", ()))
            for name in sorted(self.exported)
            if name in self.variables
        }


def merge(before: State, branches: list[State]) -> None:
    """Make `before` what is known after one of several branches, of which any may have run.

    A variable takes the value that all branches which set it agree on: so a branch that fills in
    a default counts. Where they differ, what they have in common at the start stays (a list of
    arguments to which a branch adds some), and if that is nothing the variable is unknown.
    """
    for name in {name for branch in branches for name in branch.variables}:
        values = [branch.variables[name] for branch in branches if name in branch.variables]
        known = [value for value in values if _readable(value)] or values
        shortest = min(known, key=lambda value: len(_flat(value)))
        if all(_flat(value).startswith(_flat(shortest)) for value in known):
            before.variables[name] = shortest
        else:
            origin = Origin("script" if before.file else "command", before.file)
            before.variables[name] = Variable({"0": (Piece(f"${name}", origin, known=False),)})
    for branch in branches:
        before.exported |= branch.exported
        before.functions |= branch.functions
        before.facts |= {k: v for k, v in branch.facts.items() if k not in before.facts}


def _flat(variable: Variable) -> str:
    """The whole value as text, items closed by a mark, so that a prefix is a prefix of items."""
    if not variable.array:
        return joined(variable.items.get("0", ()))
    return "".join(f"{key}={joined(text)}\0" for key, text in variable.items.items())


def _readable(variable: Variable) -> bool:
    return all(piece.known for text in variable.items.values() for piece in text)
