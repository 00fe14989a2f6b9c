"""A call of something that schedmate models, as its model receives it."""

from __future__ import annotations

from dataclasses import dataclass

from schedmate.agent.interp.objects import Site
from schedmate.agent.values import Value, unknown


@dataclass(slots=True)
class Invocation:
    """A call of a third-party callable; `base` is the object whose method it is."""

    path: str
    args: list[Value]
    kwargs: dict[str, Value]
    site: Site
    base: Value | None = None

    @property
    def owner(self) -> Value:
        """The object whose method it is, unknown for a function."""
        return self.base if self.base is not None else unknown()

    @property
    def first(self) -> Value:
        """The first argument given by position, unknown without one."""
        return self.args[0] if self.args else unknown()

    def argument(self, position: int | None, *names: str) -> Value | None:
        """The argument under the first of `names` that was given, else the one at `position`."""
        return given(self.args, self.kwargs, position, names)

    def text(self, position: int | None, *names: str) -> str | None:
        """The same where it is a known text."""
        found = given(self.args, self.kwargs, position, names)
        return found.text if found is not None else None


def given(
    args: list[Value], kwargs: dict[str, Value], position: int | None, names: tuple[str, ...]
) -> Value | None:
    """The argument under the first of `names` that was given, else the one at `position`."""
    for name in names:
        if name in kwargs:
            return kwargs[name]
    if position is not None and position < len(args):
        return args[position]
    return None
