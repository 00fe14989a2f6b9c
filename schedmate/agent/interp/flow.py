"""Where control is in the followed program, and how it leaves a block."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field

from schedmate.agent.interp.objects import Class, Scope
from schedmate.agent.values import Value


@dataclass(slots=True)
class Frame:
    """One active call."""

    scope: Scope
    function: str
    cls: Class | None = None
    self: Value | None = None
    loops: int = 0
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] | None = field(default_factory=list)


class BudgetSpent(Exception):
    """The step or time limit is reached; what was traced so far stands."""


class Raised(Exception):
    """The followed program raises; `name` is the exception's class name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


ANY_ERROR = frozenset(["Exception", "BaseException"])


def lineage(error: str) -> frozenset[str]:
    """An exception's name and those of the classes it is derived from, but for `ANY_ERROR`."""
    found = getattr(builtins, error, None)
    classes = found.__mro__[:-1] if isinstance(found, type) else ()
    return frozenset([error, *(cls.__name__ for cls in classes)]) - ANY_ERROR


@dataclass(frozen=True, slots=True)
class Flow:
    """A block that did not fall through: return, break or continue."""

    kind: str
    value: Value | None = None


BREAK = Flow("break")
CONTINUE = Flow("continue")
