"""Values that remember where they came from.

Everything that static extraction reads, whether a token of the command, a leaf of a config file or
the result of following the code, is a `Value`: plain data plus an `Origin`. Containers hold
`Value`s, so every leaf keeps its own origin through merging, overriding and passing about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from schedmate.agent.bounds import is_plain, measure
from schedmate.jobs import Source


class Place(NamedTuple):
    """A 1-based line of a file of the repository."""

    file: str
    line: int


class Origin(NamedTuple):
    """Where a value was read: the kind of place, and the file and 1-based line where known.

    `computed` is set where that place holds an operand rather than the value: the line of the
    program that computes the value, or the computation itself, `2 nodes x 8 processes`.
    """

    source: Source
    file: str | None = None
    line: int | None = None
    text: str | None = None
    computed: Place | str | None = None

    def operand(self) -> Origin:
        """Where it was read, whatever the program computes of it."""
        return self if self.computed is None else self._replace(computed=None)


def stated(name: str, fact: object) -> Origin:
    """The origin of what the launch configuration says: `gpus=8`."""
    return Origin("launch", text=f"{name}={fact}")


class StandIn:
    """What stands in a value for a thing that is not plain data: a function, a class, unknown."""

    __slots__ = ()


@dataclass(slots=True)
class Value:
    """`data` and where it came from.

    `data` is None, bool, int, float, str, bytes; a `dict` with plain hashable keys and `Value`
    items; a `list` or `tuple` of `Value`s; or a stand-in (`Unknown` here, and the interpreter's
    functions, classes and objects). The properties below give the data where it is of one kind,
    else None.
    """

    data: Data
    origin: Origin | None = None

    @property
    def text(self) -> str | None:
        """The data where it is a text."""
        return self.data if isinstance(self.data, str) else None

    @property
    def mapping(self) -> Items | None:
        """The data where it is a mapping."""
        return self.data if isinstance(self.data, dict) else None

    @property
    def sequence(self) -> list[Value] | tuple[Value, ...] | None:
        """The data where it is a list or a tuple."""
        return self.data if isinstance(self.data, list | tuple) else None

    @property
    def elements(self) -> list[Value] | None:
        """The data where it is a list, which the program may change."""
        return self.data if isinstance(self.data, list) else None

    @property
    def number(self) -> int | float | None:
        """The data where it is a number; truth values are none."""
        data = self.data
        return data if isinstance(data, int | float) and not isinstance(data, bool) else None

    @property
    def integer(self) -> int | None:
        """The data where it is a whole number; truth values are such numbers, as in Python."""
        return self.data if isinstance(self.data, int) else None

    @property
    def unknown(self) -> Unknown | None:
        """The data where it is not known."""
        return self.data if isinstance(self.data, Unknown) else None

    @property
    def known(self) -> bool:
        """Whether this is plain data all the way down, of a size that can be written out."""
        return is_plain(self.data)

    def plain(self) -> Any:
        """The data without origins; what is not known, or expands too far, is None."""
        return _plain(self.data) if _bounded(self.data) else None


def _bounded(data: Any) -> bool:
    """Whether `data` does not expand too far, whatever kinds of values it holds."""
    return not isinstance(data, dict | list | tuple) or measure(data) is not None


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(item.data) for key, item in data.items()}
    if isinstance(data, list):
        return [_plain(item.data) for item in data]
    if isinstance(data, tuple):
        return tuple(_plain(item.data) for item in data)
    return data if data is None or isinstance(data, bool | int | float | str | bytes) else None


class NumberValue(Value):
    """A value that a test has found to be a number; only its type differs."""

    data: int | float


Items: TypeAlias = dict[Any, Value]
"""Values by key: any hashable plain data, or a thing of the program that is itself and no other."""
Data: TypeAlias = (
    bool | int | float | str | bytes | Items | list[Value] | tuple[Value, ...] | StandIn | None
)
"""What a `Value` can hold."""


@dataclass(slots=True)
class Unknown(StandIn):
    """A value static analysis cannot know; `text` is the expression it stands for.

    An interpolation by a custom resolver (`${eval:...}`, `${now:...}`) is an `Unknown` with its
    text: it is reported, never evaluated.
    """

    text: str | None = None
    hints: tuple[str, ...] = field(default=())


UNSET = ("unset",)
"""Hint of a variable of the environment that the launch does not set."""

UNSAID = "…"
"""Stands in the text of an unknown for what follows a beginning that is known."""


def begun(start: Value | str, origin: Origin | None = None, joint: str = "") -> Value:
    """A text of which no more than the beginning is known: `data/coco/…`.

    Unknown altogether where `start` is neither a text nor such a beginning.
    """
    data = start.data if isinstance(start, Value) else start
    if isinstance(data, Unknown) and data.text is not None and data.text.endswith(UNSAID):
        return Value(Unknown(data.text), origin)
    if isinstance(data, str) and data:
        return Value(Unknown(f"{data}{joint}{UNSAID}"), origin)
    return unknown(origin=origin)


def lifted(data: Any, origin: Origin | None = None) -> Value:
    """Plain data as a `Value` with `Value`s inside."""
    if isinstance(data, dict):
        return Value({key: lifted(item, origin) for key, item in data.items()}, origin)
    if isinstance(data, list):
        return Value([lifted(item, origin) for item in data], origin)
    if isinstance(data, tuple):
        return Value(tuple(lifted(item, origin) for item in data), origin)
    return Value(data, origin)


def unknown(text: str | None = None, origin: Origin | None = None) -> Value:
    """An unknown value."""
    return Value(Unknown(text), origin)
