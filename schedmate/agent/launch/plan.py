"""Holds what reading a launch command gives: the `LaunchPlan`, its runs, and the `Follower` that
collects them.

A `Follower` follows one command through a repository: the runs it starts, warnings, its budget,
and what is known of the shell's surroundings. A `Call` is one program with its words.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from schedmate.agent.bounds import Budget
from schedmate.agent.launch.launchers import (
    Facts,
    KnownProgram,
    fact_product,
    known_program,
    launch_rules,
)
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.shell_expansion import (
    Piece,
    State,
    Text,
    joined_text,
    known_text,
    token,
)
from schedmate.agent.launch.shell_grammar import Heredoc
from schedmate.agent.launch.shell_operators import Decision
from schedmate.agent.values import Origin, Value
from schedmate.base.errors import InputError
from schedmate.jobs import LaunchConfig


@dataclass(slots=True)
class LaunchPlan:
    """What a launch command runs, and with what.

    - `entry`: the Python file that runs, relative to the repository root; None when nothing in
      the repository does.
    - `module`: its dotted name when it is run with `-m` or as a console script.
    - `function`: the function a console script calls; None for a file run as `__main__`.
    - `argv`: the arguments after the entry; a token that cannot be known holds an `Unknown` whose
      text is the token with the unknown parts left as written (`--lr=$LR`).
    - `env`: variables set by prefixes, `export` and launchers.
    - `cwd`: the working directory relative to the repository root.
    - `launchers`: the programs between the command and the entry, outermost first.
    - `facts`: what launchers, `#SBATCH` lines and the launch configuration say. Counts: `gpus`
      and `procs` (totals), `nodes`, `procs_per_node`, `gpus_per_node`, `gpus_per_task`,
      `tasks`, `tasks_per_node` (Slurm),
      `cpus_per_task`, `zero_stage`, `gradient_accumulation_steps`. `time_limit_s` [s]. Text:
      `gpu_type`, `job_name`, `partition`, `precision`, `deepspeed_config`, `accelerate_config`.
    - `program`: the program as it was called: a console script, a module or a file's base name.
    - `console`: the third-party program that runs when it is not one the repository declares.
    - `complete`: whether the command and its scripts were followed to their end.
    - `before`: the programs of the repository that the same command runs first, in order.
    - `made`: files that the command's own `cp` and `sed` make before that, by their path.
    """

    entry: str | None = None
    module: str | None = None
    function: str | None = None
    argv: list[Value] = field(default_factory=list)
    env: dict[str, Value] = field(default_factory=dict)
    cwd: str = "."
    launchers: list[str] = field(default_factory=list)
    facts: dict[str, Value] = field(default_factory=dict)
    program: str = ""
    console: str | None = None
    warnings: list[str] = field(default_factory=list)
    complete: bool = True
    before: list[LaunchPlan] = field(default_factory=list)
    made: dict[str, MadeFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MadeFile:
    """What a shell command makes of a file of the repository.

    `template` is the path of that file, and `versions` the texts that commands made of it in turn,
    with each command's place.
    """

    template: str
    versions: tuple[tuple[str, Origin], ...] = ()


@dataclass(slots=True)
class Run:
    """One Python program or console script that a command starts.

    `sets`: variables its launchers set, to a text or to the fact named after a `$`.
    `problem` says why it cannot be described (its file is missing); `certain` is False in a branch
    of which it is not known whether it is taken.
    """

    plan: LaunchPlan
    file: str | None
    line: int
    sets: dict[str, str] = field(default_factory=dict)
    certain: bool = True
    problem: str | None = None

    @property
    def program(self) -> str:
        """What runs, for messages: its file, module or console script."""
        return self.plan.entry or self.plan.console or self.plan.module or "?"

    @property
    def known(self) -> KnownProgram | None:
        """What is known of the program by its name and first words."""
        return known_program([self.plan.program, *map(token, self.plan.argv)])

    @property
    def where(self) -> str:
        """The place of the command that starts it, for messages."""
        return f"{self.file}:{self.line}" if self.file else "the command"


# What following one command collects and knows: the runs it starts, warnings, the repository.


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
    given, `unread` what it runs that cannot be read, `scripts` those being followed, and `made` the
    files that it made so far.
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
        self.rules = launch_rules()
        self.runs: list[Run] = []
        self.warnings: list[str] = []
        self.complete = True
        self.left: tuple[str | None, int] | None = None
        self.left_out: set[str] = set()
        self.unread: list[str] = []
        self.ignore_exits = ignore_exits
        self.scripts: list[str] = []
        self.made: dict[str, MadeFile] = {}
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
        variables = dict(self.rules.provided)
        for name, fact in self.rules.allocation.items():
            if fact in state.facts:
                variables[name] = str(state.facts[fact].data)
            elif fact == "gpus_per_node" and state.facts:
                count = self.gpus_per_node(state)
                variables[name] = None if count is None else str(count)
            elif name not in variables:
                variables[name] = None
        return variables

    def gpus_per_node(self, state: State) -> int | None:
        """GPUs that `nvidia-smi` would show on one node."""
        facts = state.facts
        if (count := fact_product(facts, "gpus_per_node")) is not None:
            return count
        nodes = self.launch.nodes or fact_product(facts, "nodes") or 1
        total = self.launch.gpus if self.launch.gpus is not None else fact_product(facts, "gpus")
        return None if total is None or total % nodes else total // nodes

    def absolute(self, cwd: str) -> str:
        """A directory of the repository as the shell's `pwd` prints it."""
        return posixpath.normpath(posixpath.join(str(self.repo.root), cwd))

    def change_directory(self, state: State, target: Text) -> None:
        """`cd target`. A directory that is not in the repository leaves the old one in place."""
        text = joined_text(target)
        path = self.repo.normalise(text, state.cwd) if known_text(target) is not None else None
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
