"""A call of something that schedmate models, as its model receives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schedmate.agent.interp.objects import Native, Site
from schedmate.agent.interp.trace import given
from schedmate.agent.values import Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


@dataclass(slots=True)
class Invocation:
    """A call of a third-party callable; `base` is the object whose method it is."""

    path: str
    args: list[Value]
    kwargs: dict[str, Value]
    site: Site
    base: Value | None = None

    @property
    def first(self) -> Value:
        """The first argument given by position, unknown without one."""
        return self.args[0] if self.args else unknown()

    def argument(self, position: int | None, *names: str) -> Value | None:
        """The argument under the first of `names` that was given, else the one at `position`."""
        return given(self.args, self.kwargs, position, names)


Handler = Callable[["State", Invocation], Value | None]
"""A model of a callable; None says that it has nothing to add to the recorded call."""
Method = Callable[["State", Value, Invocation], Value]
"""A model of a method of the object given second."""


def bound(base: Value, name: str, method: Method) -> Value:
    """`base.name`, to be called."""

    def call(state: State, args: list[Value], kwargs: dict[str, Value], site: Site) -> Value:
        return method(state, base, Invocation(name, args, kwargs, site, base))

    return Value(Native(name, call))


def identity(state: State, call: Invocation) -> Value:
    """A callable that gives back what it is given first."""
    return call.first
