"""From a command to the programs it starts: scripts, launchers, wrappers, entry points."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager

from schedmate.agent.budget import Budget
from schedmate.agent.launch import following, tree
from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.entry import locate
from schedmate.agent.launch.files import MAX_BYTES
from schedmate.agent.launch.following import Call
from schedmate.agent.launch.launchers import rules
from schedmate.agent.launch.parser import parse_script
from schedmate.agent.launch.plan import Run
from schedmate.agent.launch.programs import start_program
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.resources import from_batch_lines
from schedmate.agent.launch.shell import Shell
from schedmate.agent.launch.state import Piece, State, Text, from_value, joined, plain, to_value
from schedmate.agent.launch.totals import product
from schedmate.agent.launch.words import Heredoc
from schedmate.agent.values import Origin, Value
from schedmate.jobs import LaunchConfig

MAX_STEPS = 20_000
MAX_SCRIPTS = 12
MAX_RUNS = 200


class OutOfBudgetError(Exception):
    """The script does more than will be followed."""


class Follower:
    """Follows one command through a repository and collects the `runs` it starts.

    With `ignore_exits` a script goes on where it would end, and what it was not given is unknown.
    `left` is where it ended last, `left_out` what it was not given, and `unread` what it runs that
    cannot be read.
    """

    def __init__(
        self, repo: Repo, launch: LaunchConfig, budget_s: float = 2.0, ignore_exits: bool = False
    ) -> None:
        self.repo = repo
        self.launch = launch
        self.rules = rules()
        self.runs: list[Run] = []
        self.warnings: list[str] = []
        self.complete = True
        self.left: tuple[str | None, int] | None = None
        self.left_out: set[str] = set()
        self.unread: list[str] = []
        self.ignore_exits = ignore_exits
        self._budget = Budget(budget_s)
        self._steps = 0
        self._undecided = 0
        self._scripts: list[str] = []

    def follow(self, command: str) -> None:
        """Follow a command as typed in the root of the repository."""
        state = State()
        self._enter(state, ".")
        try:
            Shell(self, state).script(command)
        except OutOfBudgetError:
            self.complete = False
            self.warn("the scripts do more than is followed: what comes later was not read")
        except RecursionError:
            self.complete = False
            self.warn("the scripts are nested too deeply: what comes later was not read")

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

    # What a shell asks

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
            if tail == self.repo.root.name and not (path and self.repo.is_dir(path)):
                path = "."
            elif text.startswith(("/", "~", "$")):
                found = self.repo.by_suffix(text)
                path = found if found is not None and self.repo.is_dir(found) else None
            elif path is None and self.repo.is_dir("."):
                path = "." if re.fullmatch(r"[./]+", text) else None
            else:
                path = None
        if path is not None:
            self._enter(state, path)

    def _enter(self, state: State, path: str) -> None:
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

    def status_of_pipeline(self, node: tree.Pipeline) -> Decision:
        """Whether the last program of a pipeline surely succeeds."""
        last = node.commands[-1]
        name = last.words[0].bare if isinstance(last, tree.Simple) and last.words else None
        return None if name in self.rules.uncertain else True

    def source(self, shell: following.Shell, arguments: list[Text]) -> None:
        """`source file args`: a script of the repository read into the same shell."""
        state = shell.state
        path, _ = locate(self, to_value(arguments[0]), state.cwd, state.file)
        text = self.repo.read(path) if path else None
        if path is None or text is None or len(self._scripts) >= MAX_SCRIPTS:
            return
        outer = shell.state.file, shell.state.positional
        shell.state.file = path
        shell.state.positional = arguments[1:] or shell.state.positional
        self._scripts.append(path)
        try:
            shell.run(parse_script(text))
        finally:
            self._scripts.pop()
            shell.state.file, shell.state.positional = outer

    def command(
        self,
        shell: following.Shell,
        arguments: list[Text],
        prefix: dict[str, Text],
        line: int,
        heredoc: Heredoc | None,
    ) -> Decision:
        """A program that is neither a function nor a builtin."""
        state = shell.state
        call = Call(
            words=[to_value(text) for text in arguments],
            env=state.environment() | {name: to_value(text) for name, text in prefix.items()},
            cwd=state.cwd,
            facts=dict(state.facts),
            launchers=list(state.launchers),
            sets=dict(state.sets),
            shell=shell,
            line=line,
            heredoc=heredoc,
        )
        return start_program(self, call)

    # Scripts

    def run_script(self, path: str, name: str, arguments: list[Value], call: Call) -> Decision:
        """Follow a shell script of the repository in a shell of its own."""
        text = self.repo.read(path)
        if text is None:
            self.warn(f"{path} is larger than {MAX_BYTES // 1_000_000} MB and was not read")
            return None
        if len(self._scripts) >= MAX_SCRIPTS or self._scripts.count(path) > 1:
            self.warn(f"{path} starts itself again and again: it was followed twice")
            return None
        call.facts = from_batch_lines(text, path, self.repo) | call.facts
        self._scripts.append(path)
        try:
            return self.run_text(text, 1, path, name, arguments, call)
        finally:
            self._scripts.pop()

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
        if call.shell.depth >= MAX_SCRIPTS:
            return None
        here = call.shell.state.origin(call.line)
        state = State(file=file, name=name, facts=dict(call.facts))
        state.typed = call.shell.state.file is None
        state.launchers, state.sets = tuple(call.launchers), dict(call.sets)
        state.positional = [from_value(value, here) for value in arguments]
        for variable, value in call.env.items():
            state.assign(variable, from_value(value, here))
            state.exported.add(variable)
        self._enter(state, call.cwd)
        state.variables.pop("OLDPWD", None)
        if file is not None:
            state.assign("BASH_SOURCE", (Piece(name, Origin("script", file)),))
        return Shell(self, state, call.shell.depth + 1).script(text, line)
