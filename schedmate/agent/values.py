"""Values that remember where they came from.

Everything that static extraction reads, whether a token of the command, a leaf of a config file or
the result of following the code, is a `Value`: plain data plus an `Origin`. Containers hold
`Value`s, so every leaf keeps its own origin through merging, overriding and passing about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schedmate.jobs import Source


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was read: the kind of place, and the file and 1-based line where known."""

    source: Source
    file: str | None = None
    line: int | None = None
    text: str | None = None


@dataclass(slots=True)
class Value:
    """`data` and where it came from.

    `data` is None, bool, int, float, str, bytes; a `dict` with plain hashable keys and `Value`
    items; a `list` or `tuple` of `Value`s; or one of the symbolic kinds (`Unknown` here, and the
    interpreter's own functions, classes and objects).
    """

    data: Any
    origin: Origin | None = None

    @property
    def known(self) -> bool:
        """Whether this is plain data all the way down."""
        if isinstance(self.data, dict):
            return all(item.known for item in self.data.values())
        if isinstance(self.data, list | tuple):
            return all(item.known for item in self.data)
        return self.data is None or isinstance(self.data, bool | int | float | str | bytes)

    def plain(self) -> Any:
        """The data without origins; what is not known becomes None."""
        if isinstance(self.data, dict):
            return {key: item.plain() for key, item in self.data.items()}
        if isinstance(self.data, list):
            return [item.plain() for item in self.data]
        if isinstance(self.data, tuple):
            return tuple(item.plain() for item in self.data)
        return self.data if self.known else None

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Value]]:
        """Every scalar below this value with its dotted path, in order."""
        if isinstance(self.data, dict):
            for key, item in self.data.items():
                yield from item.leaves(f"{prefix}.{key}" if prefix else str(key))
        elif isinstance(self.data, list | tuple):
            for index, item in enumerate(self.data):
                yield from item.leaves(f"{prefix}.{index}" if prefix else str(index))
        else:
            yield prefix, self


@dataclass(slots=True)
class Unknown:
    """A value static analysis cannot know; `text` is the expression it stands for.

    An interpolation by a custom resolver (`${eval:...}`, `${now:...}`) is an `Unknown` with its
    text: it is reported, never evaluated.
    """

    text: str | None = None
    hints: tuple[str, ...] = field(default=())


def unknown(text: str | None = None, origin: Origin | None = None) -> Value:
    """An unknown value."""
    return Value(Unknown(text), origin)
