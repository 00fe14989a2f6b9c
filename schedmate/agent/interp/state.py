"""The state of following one program: names, attributes, calls, and the budget.

`State` is a partial evaluator. It runs the parts of Python that decide what a training job is
(assignments, argument parsing, config merging, factory functions) on data from the command and the
repository's files, and leaves everything else unknown. It performs no I/O but reading files inside
the repository, and stops at its step and time limits with what it has seen so far.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import splitext
from typing import TYPE_CHECKING, Any, TypeVar

from schedmate.agent.budget import Budget
from schedmate.agent.interp import (
    assignment,
    attributes,
    calls,
    expressions,
    items,
    modules,
    statements,
)
from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.flow import ANY_ERROR, BudgetSpent, Frame, lineage
from schedmate.agent.interp.objects import Call, Instance, Module, Scope, Symbol
from schedmate.agent.interp.source import Sources
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Unknown, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.libs.library import Library

N = TypeVar("N", bound=ast.AST)
A = TypeVar("A")

LOOK = 10_000
"""Size of an operation after which the time is looked at."""
TRY_REACH = 3
"""Calls between a `raise` and the `try` that is still taken to be meant for it."""


@dataclass(slots=True)
class Limits:
    """How far to follow: evaluation steps, work by its size, and time.

    `work` counts items and eighths of characters that are gone through or made, which bounds the
    memory that a program's values take together.
    """

    steps: int = 220_000
    work: int = 40_000_000
    network_steps: int = 4_000
    time: Budget = field(default_factory=lambda: Budget(5.0))


class State:
    """Follows one program from its entry.

    What it does with each construct of Python is a function of its own, bound here as a method.
    """

    evaluate = expressions.evaluate
    follow = statements.execute

    bind = assignment.bind
    assign = assignment.assign
    getattr = attributes.get_attribute
    setattr = assignment.set_attribute
    getitem = items.get_item
    setitem = assignment.set_item

    call = calls.call
    call_function = calls.call_function
    external = calls.external
    record = calls.record
    use = calls.use

    import_module = modules.import_module
    search_path = modules.search_path
    load = modules.load
    run_module = modules.run_module
    module_attr = modules.module_attr

    def __init__(
        self,
        sources: Sources,
        library: Library,
        argv: list[Value],
        environ: dict[str, Value],
        limits: Limits | None = None,
    ) -> None:
        self.sources = sources
        self.library = library
        self.argv = argv
        self.environ = environ
        self.limits = limits or Limits()
        self.trace = Trace()
        self.frames: list[Frame] = []
        self.steps = 0
        self.work = 0
        self.step_limit = self.limits.steps
        self.doubt = 0
        self.trying: list[tuple[int, set[str], bool]] = []
        self.networks: list[str] = []
        self.events: dict[int, CallEvent] = {}
        self.active: dict[int, int] = {}
        # of functions by their node: calls, steps so far, the step at which one that runs began
        self.spent: dict[int, tuple[int, int, int]] = {}
        self.blind: dict[int, Value] = {}  # of long functions followed in doubt, by their node
        self.shared: dict[str, Any] = {}
        self.texts: dict[str, Path] = {}
        self.gathered: dict[int, list[Value]] = {}  # in loops followed once: of unknown length
        self.configs: list[tuple[str, Value]] = []
        self._answers: dict[tuple[Any, ast.AST], Any] = {}

    def tick(self) -> None:
        self.steps += 1
        if self.steps > self.step_limit:
            raise BudgetSpent
        if not self.steps & 15:
            self.look()

    def look(self) -> None:
        """Stop where the time is over: between steps, and before one that may take long."""
        if self.limits.time.spent():
            raise BudgetSpent

    def charge(self, size: int) -> None:
        """Count work by what it goes through or makes, beyond the step that it is."""
        self.work += size
        if self.work > self.limits.work:
            raise BudgetSpent
        if size > LOOK:
            self.look()

    def made(self, value: Value) -> Value:
        """`value`, its container or text newly made and charged for."""
        data = value.data
        if isinstance(data, str | bytes):
            self.charge(len(data) // 8)
        elif isinstance(data, list | tuple | dict):
            self.charge(len(data))
        return value

    def once(self, question: Callable[[N], A], node: N) -> A:
        """What `question` answers of a node of the program, worked out the first time."""
        key = question, node
        if key not in self._answers:
            self._answers[key] = question(node)
        answer: A = self._answers[key]
        return answer

    def out_of_time(self) -> bool:
        return self.limits.time.spent()

    @property
    def certain(self) -> bool:
        return self.doubt == 0

    def catches(self, *names: str) -> bool:
        """Whether a `try` close by in the program handles one of these exceptions."""
        wanted = ANY_ERROR.union(*map(lineage, names))
        return any(
            caught & wanted and len(self.frames) - depth <= TRY_REACH
            for depth, caught, _ in self.trying
        )

    def expects(self, *names: str) -> bool:
        """Whether a `try` here is meant for one of these errors: it names it or is short."""
        wanted = frozenset[str]().union(*map(lineage, names))
        return any(
            (caught & wanted or (short and caught & ANY_ERROR)) and len(self.frames) - depth <= 1
            for depth, caught, short in self.trying
        )

    @contextmanager
    def uncertain(self) -> Iterator[None]:
        self.doubt += 1
        try:
            yield
        finally:
            self.doubt -= 1

    def join(self, first: Value, second: Value) -> Value:
        """One value for two ways the program may have gone."""
        a, b = first.data, second.data
        if a is b:
            return first
        if isinstance(a, Unknown):
            return second if not _scalar(second) else unknown(origin=first.origin)
        if isinstance(b, Unknown):
            return first if not _scalar(first) else unknown(origin=second.origin)
        if a is None or b is None:
            return second if a is None else first
        if first.known and second.known and _scalar(first) and _scalar(second):
            return first if a == b else self._at_hand(first, second)
        return first

    def _at_hand(self, first: Value, second: Value) -> Value:
        """Of two paths to one kind of file the one that is in the repository, else unknown."""
        paths = [value for value in (first, second) if isinstance(value.data, str)]
        kinds = {splitext(value.data)[1] for value in paths}
        if len(paths) == 2 and len(kinds) == 1 and "" not in kinds:
            held = [value for value in paths if self.sources.locate(value.data) is not None]
            if len(held) == 1:
                return held[0]
        return unknown(origin=first.origin)

    def lookup(self, name: str, scope: Scope) -> Value:
        current: Scope | None = scope
        while current is not None:
            if name in current.names and name not in current.globals_:
                return current.names[name]
            current = current.parent
        module_scope = scope.module.scope
        if name in module_scope.names:
            return module_scope.names[name]
        for star in module_scope.stars:
            found = self.module_attr(star, name)
            if found is not None:
                return found
        builtin = BUILTINS.get(name)
        if builtin is not None:
            return builtin
        return unknown(name)

    def element(self, container: Value) -> Value:
        """An item of something whose items are not known."""
        data = container.data
        if isinstance(data, Call):
            return Value(Symbol(f"{data.path}()[]", container), container.origin)
        return unknown(origin=container.origin)

    def mapping(self, value: Value) -> dict[Any, Value] | None:
        """The items of a mapping-like value, None when they are not known."""
        data = value.data
        if isinstance(data, dict):
            return data
        if isinstance(data, Instance):
            if data.items is not None and isinstance(data.items.data, dict):
                return data.items.data
            return None
        if isinstance(data, Module):
            self.load(data)
            return data.scope.names
        return None


def _scalar(value: Value) -> bool:
    return value.data is None or isinstance(value.data, bool | int | float | str | bytes)
