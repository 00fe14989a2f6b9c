"""What following one command collects and knows: the runs it starts, warnings, the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from schedmate.agent.budget import Budget
from schedmate.agent.launch import tree
from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.expand import Expander
from schedmate.agent.launch.launchers import rules
from schedmate.agent.launch.plan import Run
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.resources import Facts
from schedmate.agent.launch.state import Piece, State, Text, joined, plain, token
from schedmate.agent.launch.totals import product
from schedmate.agent.launch.words import Heredoc
from schedmate.agent.values import Value
from schedmate.errors import InputError
from schedmate.jobs import LaunchConfig

MAX_STEPS = 20_000
MAX_RUNS = 200
MAX_SCRIPTS = 12
"""Most scripts, and shells, one within the other."""


class OutOfBudgetError(Exception):
    """The script does more than will be followed."""


@dataclass(slots=True)
class Call:
    """A program with its arguments, environment and what outer launchers said.

    `state` is the shell that it is called in, `depth` how many shells are around that.
    """

    words: list[Value]
    env: dict[str, Value]
    cwd: str
    facts: Facts
    launchers: list[str]
    sets: dict[str, str]
    state: State
    depth: int
    line: int
    heredoc: Heredoc | None = None

    @property
    def name(self) -> str:
        """The program's base name."""
        return posixpath.basename(token(self.words[0]))


class Follower:
    """Follows one command through a repository and collects the `runs` it starts.

    `start` follows a program call. With `ignore_exits` a script goes on where it would end, and
    what it was not given is unknown. `left` is where it ended last, `left_out` what it was not
    given, `unread` what it runs that cannot be read, and `scripts` those being followed.
    """

    def __init__(
        self,
        repo: Repo,
        launch: LaunchConfig,
        start: Callable[[Follower, Call], Decision],
        budget_s: float = 2.0,
        ignore_exits: bool = False,
    ) -> None:
        self.repo = repo
        self.launch = launch
        self.start = start
        self.rules = rules()
        self.runs: list[Run] = []
        self.warnings: list[str] = []
        self.complete = True
        self.left: tuple[str | None, int] | None = None
        self.left_out: set[str] = set()
        self.unread: list[str] = []
        self.ignore_exits = ignore_exits
        self.scripts: list[str] = []
        self._budget = Budget(budget_s)
        self._steps = 0
        self._undecided = 0

    def tick(self) -> None:
        """Count a step; raises OutOfBudgetError after too many or too long."""
        self._steps += 1
        if self._steps > MAX_STEPS or len(self.runs) > MAX_RUNS:
            raise OutOfBudgetError
        if self._steps % 16 == 0 and self._budget.spent():
            raise OutOfBudgetError

    def warn(self, message: str) -> None:
        """Add a warning once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def config(self, path: str) -> Value | None:
        """A configuration file of the repository; warns of one that cannot be read."""
        try:
            return self.repo.config(path)
        except InputError as error:
            self.warn(str(error))
            return None

    @contextmanager
    def undecided(self) -> Iterator[None]:
        """While inside, runs may or may not happen."""
        self._undecided += 1
        try:
            yield
        finally:
            self._undecided -= 1

    @property
    def certain(self) -> bool:
        """Whether what is being followed surely runs."""
        return self._undecided == 0

    def provided(self, state: State) -> dict[str, str | None]:
        """The variables that the system sets for a shell in this state."""
        known = dict(self.rules.provided)
        for name, fact in self.rules.allocation.items():
            if fact in state.facts:
                known[name] = str(state.facts[fact].data)
            elif fact == "gpus_per_node" and state.facts:
                count = self.gpus_per_node(state)
                known[name] = None if count is None else str(count)
            elif name not in known:
                known[name] = None
        return known

    def gpus_per_node(self, state: State) -> int | None:
        """GPUs that `nvidia-smi` would show on one node."""
        facts = state.facts
        if (count := product(facts, "gpus_per_node")) is not None:
            return count
        nodes = self.launch.nodes or product(facts, "nodes") or 1
        total = self.launch.gpus if self.launch.gpus is not None else product(facts, "gpus")
        return None if total is None or total % nodes else total // nodes

    def absolute(self, cwd: str) -> str:
        """A directory of the repository as the shell's `pwd` prints it."""
        return posixpath.normpath(posixpath.join(str(self.repo.root), cwd))

    def change_directory(self, state: State, target: Text) -> None:
        """`cd target`. A directory that is not in the repository leaves the old one in place."""
        text = joined(target)
        path = self.repo.normalise(text, state.cwd) if plain(target) is not None else None
        if path is None or not self.repo.is_dir(path):
            tail = text.rstrip("/").rsplit("/", 1)[-1]
            if tail == self.repo.root.name:
                path = "."
            elif text.startswith(("/", "~", "$")):
                path = self.repo.by_suffix(text)
            elif path is None and re.fullmatch(r"[./]+", text):
                path = "."
            else:
                path = None
        if path is not None and self.repo.is_dir(path):
            self.enter(state, path)

    def enter(self, state: State, path: str) -> None:
        """Make a directory of the repository the working directory."""
        origin = state.origin(1)
        state.assign("OLDPWD", (Piece(self.absolute(state.cwd), origin),))
        state.cwd = path
        state.assign("PWD", (Piece(self.absolute(path), origin),))

    def exists(self, operator: str, path: str, cwd: str) -> Decision:
        """A file test: what the repository holds is there, of the rest nothing is known."""
        inside = self.repo.normalise(path, cwd) if path else None
        if inside is None:
            return None
        if operator == "-d":
            return self.repo.is_dir(inside) or None
        return self.repo.is_file(inside) or (self.repo.is_dir(inside) and operator == "-e") or None


class Shell(Protocol):
    """One shell process, as control flow, builtins and substitutions use it (see shell.py)."""

    follower: Follower
    state: State
    expander: Expander

    def run(self, nodes: Sequence[tree.Node]) -> Decision:
        """Follow commands in order; the decision is the last one's exit status."""

    def node(self, node: tree.Node) -> Decision:
        """Follow one command."""

    def fork(self) -> Shell:
        """A subshell."""

    def assign(self, item: tree.Assignment) -> None:
        """Carry out one assignment."""

    def command(
        self, arguments: list[Text], prefix: dict[str, Text], line: int, node: tree.Simple
    ) -> Decision:
        """A command whose words are expanded: function, builtin or program."""

    def arithmetic(self, text: str, line: int) -> Decision:
        """`((text))`: its effect, and whether it is not zero."""

    def where(self, line: int) -> str:
        """The line as warnings name it."""
