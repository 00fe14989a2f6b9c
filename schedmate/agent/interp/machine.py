"""The machine that everything which follows a program talks to: its store, and what it can do.

`Machine` keeps the bookkeeping of one run (frames, doubt, budget) and names the operations of
Python; what they do is added by `interpreter.py`. It imports no evaluator, no operation of values
and no model of a library, all of which import it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from schedmate.agent.budget import Budget
from schedmate.agent.interp.companions import Observer, Plugins
from schedmate.agent.interp.flow import ANY_ERROR, BudgetSpent, Flow, Frame, lineage
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.objects import Function, Module, Scope, Site
from schedmate.agent.interp.source import Sources
from schedmate.agent.values import Data, Items, Value, stated, unknown

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


class Operations(Protocol):
    """What a machine does with the constructs of Python; `interpreter.py` binds it."""

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """The value of an expression."""

    def follow(self, body: Sequence[ast.stmt], scope: Scope) -> Flow | None:
        """Run statements in order; the flow that ended the block early."""

    def lookup(self, name: str, scope: Scope) -> Value:
        """What a name means in a scope."""

    def builtin(self, name: str) -> Value | None:
        """What a name means to Python itself."""

    def bind(self, name: str, value: Value, scope: Scope) -> None:
        """Give a name in a scope its value."""

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Bind a value to an assignment target."""

    def join(self, first: Value, second: Value) -> Value:
        """One value for two ways the program may have gone."""

    def getattr(self, base: Value, name: str) -> Value:
        """`base.name`."""

    def setattr(self, base: Value, name: str, value: Value) -> None:
        """`base.name = value`."""

    def getitem(self, base: Value, index: Value) -> Value:
        """`base[index]`."""

    def setitem(self, base: Value, index: Value, value: Value) -> None:
        """`base[index] = value`."""

    def mapping(self, value: Value | None) -> Items | None:
        """The items of a mapping-like value, None when they are not known."""

    def element(self, container: Value) -> Value:
        """An item of something whose items are not known."""

    def call(self, func: Value, args: list[Value], kwargs: dict[str, Value], site: Site) -> Value:
        """Call a value; what cannot be called yields an unknown or a `Call`."""

    def call_function(
        self, function: Function, args: list[Value], kwargs: dict[str, Value], site: Site
    ) -> Value:
        """Follow a function of the repository."""

    def external(self, invocation: Invocation) -> Value:
        """A call that leaves the repository."""

    def import_module(self, name: str, importer: Module | None = None) -> Value:
        """`import name`."""

    def search_path(self) -> list[str]:
        """Import roots that the program added to `sys.path`."""

    def load(self, module: Module) -> None:
        """Follow a module's top level, once."""

    def run_module(self, module: Module, tree: ast.Module) -> None:
        """Follow a module's top level."""

    def module_attr(self, module: Module, name: str) -> Value | None:
        """`module.name`."""


class Machine(Operations):
    """One run of a partial evaluator over a program.

    It runs the parts of Python that decide what a training job is (assignments, argument parsing,
    config merging, factory functions) on data from the command and the repository's files, and
    leaves everything else unknown. It performs no I/O but reading files inside the repository, and
    stops at its step and time limits with what it has seen so far.
    """

    def __init__(
        self,
        sources: Sources,
        plugins: Plugins[Machine],
        facts: Mapping[str, Data],
        observer: Observer[Machine],
        argv: list[Value],
        environ: dict[str, Value],
        limits: Limits | None = None,
    ) -> None:
        self.sources = sources
        self.plugins = plugins
        self.observer = observer
        self.facts = {
            name: unknown() if fact is None else Value(fact, stated(name, fact))
            for name, fact in facts.items()
        }
        self.argv = argv
        self.environ = environ
        self.limits = limits or Limits()
        self.frames: list[Frame] = []
        self.steps = 0
        self.work = 0
        self.step_limit = self.limits.steps
        self.doubt = 0
        self.trying: list[tuple[int, set[str], bool]] = []
        self.networks: list[str] = []
        self.active: dict[int, int] = {}
        # of functions by their node: calls, steps so far, the step at which one that runs began
        self.spent: dict[int, tuple[int, int, int]] = {}
        self.blind: dict[int, Value] = {}  # of long functions followed in doubt, by their node
        self.shared: dict[str, Any] = {}
        self.written: dict[
            str, Value
        ] = {}  # files, by their place, of programs before this one too
        self.texts: dict[str, Path] = {}
        self.gathered: dict[int, list[Value]] = {}  # in loops followed once: of unknown length
        self._answers: dict[tuple[Any, ast.AST], Any] = {}

    # -- what a run may take ---------------------------------------------------

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

    def out_of_time(self) -> bool:
        return self.limits.time.spent()

    def once(self, question: Callable[[N], A], node: N) -> A:
        """What `question` answers of a node of the program, worked out the first time."""
        key = question, node
        if key not in self._answers:
            self._answers[key] = question(node)
        answer: A = self._answers[key]
        return answer

    # -- doubt and errors ------------------------------------------------------

    @property
    def certain(self) -> bool:
        return self.doubt == 0

    @contextmanager
    def uncertain(self) -> Iterator[None]:
        self.doubt += 1
        try:
            yield
        finally:
            self.doubt -= 1

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

    # -- calls -----------------------------------------------------------------

    def record(
        self,
        path: str,
        args: list[Value],
        kwargs: dict[str, Value],
        site: Site,
        result: Value | None = None,
    ) -> None:
        """Tell the observer of a call that a library makes or that stands for one."""
        self.observer.called(self, Invocation(path, args, kwargs, site), result)

    # -- modules ---------------------------------------------------------------

    def parse(self, path: Path) -> ast.Module | None:
        """The syntax tree of a file of the repository."""
        return self.sources.parse(path, self.observer)


Handler = Callable[[Machine, Invocation], Value | None]
"""A model of something that is called: a function, or a method of the call's `base`.

None says that it has nothing to add to the recorded call.
"""
