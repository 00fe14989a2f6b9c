"""Holds what reading a launch command gives: the `LaunchPlan`, its runs, and the `Follower` that
collects them; then the Python program at its end: file, module or console script.

A `Follower` follows one command through a repository: the runs it starts, warnings, its budget,
and what is known of the shell's surroundings. A `Call` is one program with its words.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from schedmate.agent.bounds import Budget
from schedmate.agent.launch.launchers import (
    Facts,
    KnownProgram,
    Rules,
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
from schedmate.agent.syntax import parse_or_none
from schedmate.agent.values import Origin, Unknown, Value
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


@dataclass
class Follower:
    """Follows one command through a repository and collects the `runs` it starts.

    `start` follows a program call. With `ignore_exits` a script goes on where it would end, and
    what it was not given is unknown. `left` is where it ended last, `left_out` what it was not
    given, `unread` what it runs that cannot be read, `scripts` those being followed, and `made` the
    files that it made so far.
    """

    repo: Repo
    launch: LaunchConfig
    start: Callable[[Follower, Call], Decision]
    budget: Budget = field(default_factory=lambda: Budget(2.0))
    ignore_exits: bool = False
    rules: Rules = field(default_factory=launch_rules)
    runs: list[Run] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    complete: bool = True
    left: tuple[str | None, int] | None = None
    left_out: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    made: dict[str, MadeFile] = field(default_factory=dict)
    _steps: int = 0
    _undecided: int = 0

    def tick(self) -> None:
        """Count a step; raises OutOfBudgetError after too many or too long."""
        self._steps += 1
        if self._steps > MAX_STEPS or len(self.runs) > MAX_RUNS:
            raise OutOfBudgetError
        if self._steps % 16 == 0 and self.budget.spent():
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


# The Python program at the end of a launch command: file, module or console script.


PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)*)?(-dbg|\.exe)?|pythonw")
_LETTERS_WITH_VALUE = "WXQ"
_LAUNCHING_MODULES = re.compile(
    r"subprocess|runpy|submitit|(torch\.distributed|deepspeed|accelerate\.commands|horovod)\."
    r"(run|launch\w*|runner)(\.|$)"
)

_PROGRAM_IMPORTS = frozenset(
    ("argparse", "absl", "click", "fire", "hydra", "typer", "tyro", "torch", "tensorflow", "keras",
     "jax", "flax", "paddle", "mindspore", "mxnet", "chainer", "transformers", "lightning",
     "pytorch_lightning", "accelerate", "deepspeed", "sklearn", "xgboost")
)  # fmt: skip
"""What a program that trains imports, and a configuration file does not."""


def python_options(words: Sequence[Value]) -> tuple[int, bool]:
    """Position of the file or module behind `python` and its options, and whether it is a module.

    The position is `len(words)` when the interpreter is given code (`-c`) or standard input.
    """
    position = 1
    while position < len(words):
        text = token(words[position])
        if text == "--":
            return position + 1, False
        if text == "-" or text in ("-V", "--version", "-h", "--help"):
            return len(words), False
        if not text.startswith("-"):
            return position, False
        position += 1
        if text.startswith("--"):
            continue
        for number, letter in enumerate(text[1:], start=1):
            if letter == "c":
                return len(words), False
            if letter == "m":
                return position, True
            if letter in _LETTERS_WITH_VALUE:
                position += number == len(text) - 1
                break
    return position, False


def follow_python(follower: Follower, call: Call) -> Decision:
    """`python [options] file args` and `python [options] -m module args`."""
    position, as_module = python_options(call.words)
    glued = re.fullmatch(r"-[A-Za-z]{0,20}m([\w.]+)", token(call.words[position - 1]))
    if as_module and glued and position > 1 and glued[1]:
        call.words = [Value(glued[1], call.words[position - 1].origin), *call.words[position:]]
    else:
        call.words = call.words[position:]
    if not call.words:
        follower.unread.append("the text of `python -c` or standard input is not read")
        return True
    return follow_python_file(follower, call, as_module)


def follow_python_file(follower: Follower, call: Call, as_module: bool) -> Decision:
    """A run of the Python file or module in the first word, with the others as arguments."""
    if as_module:
        return _follow_module(follower, call)
    word = call.words[0]
    if token(word) in ("-", "-c"):
        return True
    path = find_file(follower, call, word, directories=True)
    name = call.name
    if path is None and re.fullmatch(r"[A-Za-z][\w+-]*", name):
        # a script that an installation puts on PATH, as in `torchrun $(which fairseq-train)`
        if name in follower.repo.console_scripts:
            return follow_console_script(follower, call, follower.repo.console_scripts[name])
        if "/bin/" in token(word):
            return record_run(follower, call, console=name)
    if path is None and isinstance(word.data, Unknown):
        return note_unknown_program(follower, word)
    if path is None:
        return record_missing(follower, call, token(word))
    if follower.repo.is_dir(path):
        path = posixpath.normpath(posixpath.join(path, "__main__.py"))
    if _starts_another(follower, call, path):
        follower.warn(f"{path} starts {token(call.words[1])}, which is described")
        call.words = call.words[1:]
        call.launchers.append(path)
        return follow_python_file(follower, call, as_module=False)
    return record_run(follower, call, entry=path)


def _follow_module(follower: Follower, call: Call) -> Decision:
    name = token(call.words[0])
    path = follower.repo.module(name, [call.cwd, *_python_path(follower, call)])
    if path is not None:
        return record_run(follower, call, entry=path, module=name)
    top = name.split(".")[0]
    if known_program(list(map(token, call.words))) is not None:
        return record_run(follower, call, module=name, console=name)
    if name in follower.rules.utility_modules or top in follower.rules.utility_modules:
        return True
    if follower.repo.is_dir(top) or follower.repo.is_dir(f"src/{top}"):
        return record_missing(follower, call, name.replace(".", "/") + ".py")
    if is_not_followed(follower, call):
        return None
    return record_run(follower, call, module=name, console=name)


def _python_path(follower: Follower, call: Call) -> list[str]:
    """The directories of the repository on PYTHONPATH."""
    value = call.env.get("PYTHONPATH")
    entries = token(value).split(":") if value is not None else []
    paths = [follower.repo.normalise(entry, call.cwd) for entry in entries if entry]
    return [path for path in paths if path is not None]


def _starts_another(follower: Follower, call: Call, path: str) -> bool:
    """Whether a Python file of the repository is itself a launcher of the next argument."""
    if len(call.words) < 2 or not token(call.words[1]).endswith(".py"):
        return False
    target = follower.repo.normalise(token(call.words[1]), call.cwd)
    if target is None or target == path or not follower.repo.is_file(target):
        return False
    if not is_program_file(follower, target):
        return False  # a configuration file, given to a program that also starts others
    return any(
        _LAUNCHING_MODULES.match(name) for name in imported_names(follower.repo.read(path) or "")
    )


def is_program_file(follower: Follower, path: str) -> bool:
    """Whether a Python file is a program, rather than a configuration."""
    text = follower.repo.read(path) or ""
    imported = {name.split(".")[0] for name in imported_names(text)}
    return "__main__" in text or bool(imported & _PROGRAM_IMPORTS)


def imported_names(text: str) -> list[str]:
    """The modules that a Python text imports, and what it imports from them, by dotted names."""
    tree = parse_or_none(text)
    names: list[str] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def follow_console_script(follower: Follower, call: Call, target: str) -> Decision:
    """A console script that the repository declares as `module:function`."""
    module, _, function = target.partition(":")
    module, function = module.strip(), function.split("[")[0].strip()
    path = follower.repo.module(module, [call.cwd])
    if path is None:
        path = follower.repo.module(f"{module}.__init__", [call.cwd])
    if path is None:
        return record_run(follower, call, module=module, console=call.name)
    return record_run(follower, call, entry=path, module=module, function=function or None)


def record_run(
    follower: Follower,
    call: Call,
    entry: str | None = None,
    module: str | None = None,
    function: str | None = None,
    console: str | None = None,
) -> Decision:
    """Add a run whose program is the first word of the call."""
    plan = LaunchPlan(
        entry=entry,
        module=module,
        function=function,
        argv=call.words[1:],
        env=call.env,
        cwd=call.cwd,
        launchers=call.launchers,
        facts=call.facts,
        program=call.name,
        console=console,
        made=dict(follower.made),
    )
    run = Run(plan, call.state.file, call.line, call.sets, follower.certain)
    follower.runs.append(run)
    return True


def find_file(follower: Follower, call: Call, word: Value, directories: bool = False) -> str | None:
    """The file of the repository that a word names; moves the call to where it was found."""
    script = call.state.file
    path, call.cwd = locate_file(follower, word, call.cwd, script, directories)
    return path


def locate_file(
    follower: Follower, word: Value, cwd: str, script: str | None, directories: bool = False
) -> tuple[str | None, str]:
    """The file of the repository that a word of a command names, and the directory for it.

    Tried in order: the working directory, the directories from the calling script's own up to the
    root, the name with `.py`, and for paths of another machine (absolute, unknown prefix, the
    repository's own name, in a script a directory that is not there) the tail of the path. In a
    script the only file that ends as the path does will do. All but the first are warned about.
    `directories`: one with a `__main__.py` will do.
    """
    repo, text = follower.repo, token(word).removeprefix(f"{follower.repo.root}/")
    is_text = not isinstance(word.data, Unknown)

    def usable(path: str | None) -> bool:
        if path is None:
            return False
        runnable = directories and repo.is_file(posixpath.join(path, "__main__.py"))
        return repo.is_file(path) or runnable

    if is_text and usable(path := repo.normalise(token(word), cwd)):
        return path, cwd
    if is_text and not text.startswith("/"):
        for place in _folders_above(script) if script else ["."]:
            if usable(path := repo.normalise(text, place)):
                follower.warn(f"{text} is not in {cwd}: {path} is taken")
                return path, place
    candidates: list[str | None] = []
    foreign = not is_text or text.startswith(("/", "~", f"{repo.root.name}/"))
    if directories and is_text:
        candidates.append(repo.normalise(f"{text}.py", cwd))
    if script is not None and not foreign:
        candidates.append(repo.only_one_ending(text))
        if "/" in text:
            candidates.append(posixpath.join(posixpath.dirname(script), posixpath.basename(text)))
            foreign = not repo.is_dir(text.split("/")[0])
    if foreign:
        candidates += [repo.by_suffix(text), repo.by_tail(text)]
    for path in candidates:
        if usable(path):
            follower.warn(f"{text} is taken to be {path}")
            return path, cwd
    return None, cwd


def _folders_above(script: str) -> Iterator[str]:
    """The folders of a script, its own first: it was written to be run from one of them."""
    folder = posixpath.dirname(script)
    while folder:
        yield folder
        folder = posixpath.dirname(folder)
    yield "."


def is_not_followed(follower: Follower, call: Call) -> bool:
    """Whether the first words are a launcher whose command is not read; remembers why."""
    for count in (1, 2):
        name = " ".join(map(token, call.words[:count]))
        if name in follower.rules.not_followed:
            follower.unread.append(f"{name} {follower.rules.not_followed[name]}")
            return True
    return False


def note_unknown_program(follower: Follower, word: Value) -> Decision:
    """Remember a program that is not known, such as `$TRAIN_SCRIPT`."""
    follower.unread.append(f"it starts `{token(word)}`, whose value is not known")
    return None


def record_missing(follower: Follower, call: Call, path: str) -> Decision:
    """Add a run that cannot be described because its file is not in the repository."""
    near, lacks = follower.repo.similar(path), "is not in"
    if path in near:
        near.remove(path)
        lacks = "is a link to nothing inside"
    hint = f"did you mean {' or '.join(near)}?" if near else "is REPO where the command is typed?"
    run = Run(LaunchPlan(), call.state.file, call.line, call.sets, follower.certain)
    run.plan.module = path
    run.problem = f"{path}, started by {run.where}, {lacks} {follower.repo.root.name}; {hint}"
    follower.runs.append(run)
    return True
