"""What a program call, the shell it stands in and the follower of all of them are to each other.

`shell.py` and `follow.py` are the shell and the follower; what they start (`programs.py`,
`scripts.py`, `tasks.py` ...) knows them as described here only.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from schedmate.agent.launch import tree
from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.expand import Expander
from schedmate.agent.launch.launchers import Rules
from schedmate.agent.launch.plan import Run
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.resources import Facts
from schedmate.agent.launch.state import State, Text, token
from schedmate.agent.launch.words import Heredoc
from schedmate.agent.values import Value


class Shell(Protocol):
    """One shell process."""

    follower: Follower
    state: State
    depth: int
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


@dataclass(slots=True)
class Call:
    """A program with its arguments, environment and what outer launchers said."""

    words: list[Value]
    env: dict[str, Value]
    cwd: str
    facts: Facts
    launchers: list[str]
    sets: dict[str, str]
    shell: Shell
    line: int
    heredoc: Heredoc | None = None

    @property
    def name(self) -> str:
        """The program's base name."""
        return posixpath.basename(token(self.words[0]))


class Follower(Protocol):
    """Follows one command through a repository and collects the `runs` it starts."""

    repo: Repo
    rules: Rules
    runs: list[Run]
    warnings: list[str]
    left: tuple[str | None, int] | None
    left_out: set[str]
    unread: list[str]
    ignore_exits: bool

    @property
    def certain(self) -> bool:
        """Whether what is being followed surely runs."""

    def tick(self) -> None:
        """Count a step; raises OutOfBudgetError after too many or too long."""

    def warn(self, message: str) -> None:
        """Add a warning once."""

    def undecided(self) -> AbstractContextManager[None]:
        """While inside, runs may or may not happen."""

    def provided(self, state: State) -> dict[str, str | None]:
        """The variables that the system sets for a shell in this state."""

    def gpus_per_node(self, state: State) -> int | None:
        """GPUs that `nvidia-smi` would show on one node."""

    def absolute(self, cwd: str) -> str:
        """A directory of the repository as the shell's `pwd` prints it."""

    def change_directory(self, state: State, target: Text) -> None:
        """`cd target`."""

    def exists(self, operator: str, path: str, cwd: str) -> Decision:
        """A file test: what the repository holds is there, of the rest nothing is known."""

    def status_of_pipeline(self, node: tree.Pipeline) -> Decision:
        """Whether the last program of a pipeline surely succeeds."""

    def source(self, shell: Shell, arguments: list[Text]) -> None:
        """`source file args`: a script of the repository read into the same shell."""

    def command(
        self,
        shell: Shell,
        arguments: list[Text],
        prefix: dict[str, Text],
        line: int,
        heredoc: Heredoc | None,
    ) -> Decision:
        """A program that is neither a function nor a builtin."""

    def run_script(self, path: str, name: str, arguments: list[Value], call: Call) -> Decision:
        """Follow a shell script of the repository in a shell of its own."""

    def run_text(
        self,
        text: str,
        line: int,
        file: str | None,
        name: str,
        arguments: list[Value],
        call: Call,
    ) -> Decision:
        """Follow shell text in a new shell that inherits what the call exports."""
