"""What one program call starts: peel launchers and wrappers off until a program is left."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from schedmate.agent.launch import condor, jobfiles, makefile, tasks
from schedmate.agent.launch.arguments import first_of_many
from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.entry import (
    PYTHON,
    console_script,
    find_file,
    is_not_followed,
    is_program_file,
    missing,
    python,
    python_file,
    python_options,
    record,
    unknown_program,
)
from schedmate.agent.launch.following import Call, Follower
from schedmate.agent.launch.launchers import Options, Table, parse_options
from schedmate.agent.launch.resources import from_options
from schedmate.agent.launch.scripts import batch, heredoc, inline, run_script, shell
from schedmate.agent.launch.state import token
from schedmate.agent.values import Origin, Unknown, Value

_COMMAND_FLAG = re.compile(r"-{1,2}(\w+[-_])?(command|cmd)")
_ENV_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ALLOCATED = ("nodes", "gpus", "gpus_per_node", "gpus_per_task")
MAX_LAYERS = 20


def start_program(follower: Follower, call: Call) -> Decision:
    """Follow a program call; the decision is its assumed exit status."""
    for _ in range(MAX_LAYERS):
        if not call.words:
            return True
        follower.tick()
        call.words = _by_flag(follower, call) or _after_dashes(follower, call)
        name = call.name
        table, skipped, called = _table(follower, call.words)
        if table is None and PYTHON.fullmatch(name):
            return python(follower, call)
        if name in follower.rules.shells:
            return shell(follower, call)
        if name in ("make", "gmake"):
            return makefile.follow(follower, call)
        if table is None or table.run is None:
            return _program(follower, call)
        options = parse_options(table, call.words[skipped:])
        _apply(follower, call, table, options)
        if not table.plain:
            call.launchers.append(called or table.name)
            call.sets |= table.sets
        started = _by_option(follower, call, table, options) or _by_file(
            follower, call, table, options
        )
        if started is not None:
            return started()
        nothing = not options.rest or (table.skip and token(options.rest[0]).startswith("-"))
        if nothing and not any(option.name in table.wrap for option in options.given):
            if table.run == "shell" and call.heredoc is not None:
                return heredoc(follower, call)
            lacks = "job description of the repository" if table.run == "jobs" else "program to run"
            follower.unread.append(f"`{name}` is given no {lacks}")
            return True
        if table.run == "python" or table.module & {option.name for option in options.given}:
            return _python_words(follower, call, table, options)
        if table.run == "shell" and not table.binary & {option.name for option in options.given}:
            return batch(follower, call, table, options)
        if table.run == "parallel":
            call.words = first_of_many(call.words)
        whole = len(call.words) == 1 or table.run == "text"
        if whole and " " in token(call.words[0]):
            return inline(follower, call, call.words[0], [])
    return None


def _after_dashes(follower: Follower, call: Call) -> list[Value]:
    """`python submit.py --gpus 8 -- torchrun train.py`: the command that a script is to run."""
    texts = [token(word) for word in call.words]
    script = texts[PYTHON.fullmatch(call.name) is not None :][:1]
    position = texts.index("--") + 1 if "--" in texts[:-1] else 0
    if not position or not script[0].endswith(".py") or not is_program(follower, texts[position]):
        return call.words
    follower.warn(f"{script[0]} is taken to run the command it is given")
    call.launchers.append(script[0])
    return call.words[position:]


def _by_flag(follower: Follower, call: Call) -> list[Value] | None:
    """`python bench.py --command "python train.py"`: the command that a script is given as text."""
    if not PYTHON.fullmatch(call.name):
        return None
    for word, text in zip(call.words, call.words[1:], strict=False):
        program = token(text).split()[:1]
        is_command = _COMMAND_FLAG.fullmatch(token(word)) and " " in token(text).strip()
        if is_command and program and is_program(follower, program[0]):
            position, _ = python_options(call.words)
            name = token(call.words[position])
            follower.warn(f"{name} is taken to run the command it is given")
            call.launchers.append(name)
            return [Value("sh"), Value("-c"), text]
    return None


def _table(follower: Follower, words: list[Value]) -> tuple[Table | None, int, str]:
    """The launcher that the first words name, how many words that takes, and its module if any."""
    name = posixpath.basename(token(words[0]))
    table = follower.rules.launchers.get(name)
    position, module = 1, ""
    if PYTHON.fullmatch(name):
        position, as_module = python_options(words)
        module = token(words[position]) if as_module and position < len(words) else ""
        in_repo = module and follower.repo.module(module, ["."]) is not None
        table = None if in_repo else follower.rules.modules.get(module)
        position += 1
    while table is not None and table.subcommands:
        rest = parse_options(table, words[position:]).rest
        inner = table.subcommands.get(token(rest[0])) if rest else None
        if inner is None:
            return (table, position, module) if table.run else (None, 0, "")
        table, position = inner, len(words) - len(rest) + 1
    return table, position, module


def _apply(follower: Follower, call: Call, table: Table, options: Options) -> None:
    """Take a launcher's options into the call and leave in `words` what it runs."""
    facts = from_options(table, options, follower.repo, call.cwd)
    if table.name == "srun":  # a step has a share of what the job was allocated
        facts = {k: v for k, v in facts.items() if k not in _ALLOCATED or k not in call.facts}
    call.facts |= facts
    stated = {table.facts.get(option.name) for option in options.given}
    for name, data in table.defaults.items():
        if name not in stated:  # what is stated but cannot be known has no default
            call.facts.setdefault(name, Value(data, Origin("library", text=table.setting(name))))
    for option in options.given:
        if option.name in table.env and option.values:
            _set_variable(call, token(option.values[0]), option.values[0])
        elif option.name in table.chdir and option.values:
            path = follower.repo.normalise(token(option.values[0]), call.cwd)
            if path is not None and follower.repo.is_dir(path):
                call.cwd = path
    rest = options.rest
    while table.assignments and rest and _set_variable(call, token(rest[0]), rest[0]):
        rest = rest[1:]
    rest = rest[table.skip :]
    if rest and token(rest[0]) == "--":
        rest = rest[1:]
    options.rest = call.words = rest


def _set_variable(call: Call, text: str, value: Value) -> bool:
    match = _ENV_ASSIGNMENT.fullmatch(text)
    if match is not None:
        known = not isinstance(value.data, Unknown) or "$" not in match[2]
        call.env[match[1]] = Value(match[2] if known else Unknown(match[2]), value.origin)
    return match is not None


def _by_option(
    follower: Follower, call: Call, table: Table, options: Options
) -> Callable[[], Decision] | None:
    """The program that an option names: `--script train.py`, `-m pkg.train`."""
    for option in options.given:
        if option.name in table.program and option.values:
            call.words = [option.values[0], *call.words]
            return lambda: python_file(follower, call, as_module=option.name in table.module)
    if table.main:
        values = {option.name: option.values[0] for option in options.given if option.values}
        stated = [values.get(o) or call.env.get(v) for o, v in table.main.items()]
        package, main = (token(value) if value is not None else None for value in stated)
        module = follower.repo.of_package(package, main or "train", call.cwd)
        if module is not None:
            call.words = [Value(module, Origin("library", text=table.name)), *call.words]
            return lambda: python_file(follower, call, as_module=True)
    return None


def _by_file(
    follower: Follower, call: Call, table: Table, options: Options
) -> Callable[[], Decision] | None:
    """What the project keeps in a file: a task by its name, or the description of a job."""
    if table.tasks is not None:
        if table.run == "tasks" or (call.words and tasks.is_task(follower, call, table.tasks)):
            return lambda: tasks.follow(follower, call, table.tasks or "")
    if table.run == "condor":
        return lambda: condor.follow(follower, call, options)
    if table.run == "jobs":
        path = jobfiles.file_of(follower, call, options, table)
        if path is not None:
            return lambda: jobfiles.follow(follower, call, path)
        if table.files:
            return lambda: None
    return None


def _python_words(follower: Follower, call: Call, table: Table, options: Options) -> Decision:
    """The words after a launcher of Python programs."""
    names = {option.name for option in options.given}
    if names & table.command:
        return start_program(follower, call)
    return python_file(follower, call, as_module=bool(names & table.module))


def _program(follower: Follower, call: Call) -> Decision:
    """A program that launches nothing by the tables: a file, a console script, a utility."""
    name, text = call.name, token(call.words[0])
    repo, rules = follower.repo, follower.rules
    scripts = (".sh", ".bash", ".slurm", ".sbatch")
    path = find_file(follower, call, call.words[0]) if "/" in text or "." in name else None
    if path is not None:
        shebang = (repo.read(path) or "").split("\n", 1)[0]
        if path.endswith(".py") or (shebang.startswith("#!") and "python" in shebang):
            return python_file(follower, call, as_module=False)
        if path.endswith(scripts) or re.match(r"#!.*sh\b", shebang):
            return run_script(follower, path, text, call.words[1:], call)
        return True
    if name.endswith(".py"):
        return python_file(follower, call, as_module=False)
    if name in repo.console_scripts:
        return console_script(follower, call, repo.console_scripts[name])
    if is_not_followed(follower, call):
        return None
    if name in rules.utilities or name in rules.launchers:
        return None if name in rules.uncertain else True
    if isinstance(call.words[0].data, Unknown):
        return _unknown_program(follower, call)
    if name.endswith(scripts):
        return missing(follower, call, text)
    if re.fullmatch(r"[A-Za-z][\w.+-]*", name):
        installed = repo.only_one_ending(name)
        first = (repo.read(installed) or "").split("\n", 1)[0] if installed is not None else ""
        if installed is not None and first.startswith("#!") and "python" in first:
            # a script that packaging installs as it is, `scripts=[...]` or `script-files`
            call.words = [Value(f"{call.cwd}/{installed}", call.words[0].origin), *call.words[1:]]
            return record(follower, call, entry=installed)
        wrapped = _wrapped(follower, call)
        return record(follower, call, console=name) if wrapped is None else wrapped()
    return None


def _wrapped(follower: Follower, call: Call) -> Callable[[], Decision] | None:
    """What an unknown program runs where its words go on with a command: `tsp python train.py`."""
    for position, word in enumerate(call.words[1:], start=1):
        text = token(word)
        quoted = " " in text.strip() and text.split()[0]
        file = find_file(follower, call, word) if text.endswith(".py") and not quoted else None
        if file is not None and is_program_file(follower, file):
            call.launchers.append(call.name)
            call.words = call.words[position:]
            return lambda: python_file(follower, call, as_module=False)
        if not is_program(follower, quoted or text) or text.startswith("-"):
            continue
        follower.warn(f"{call.name} is taken to run the command it is given")
        call.launchers.append(call.name)
        if quoted:
            return lambda: inline(follower, call, word, [])
        call.words = call.words[position:]
        return lambda: start_program(follower, call)
    return None


def is_program(follower: Follower, text: str) -> bool:
    """Whether a word is by itself a program that runs others."""
    name = posixpath.basename(text)
    rules = follower.rules
    return PYTHON.fullmatch(name) is not None or name in rules.launchers or name in rules.shells


def _unknown_program(follower: Follower, call: Call) -> Decision:
    """`$LAUNCHER train.py ...`: go on at the first word that is a program by itself."""
    for position, word in enumerate(call.words[1:], start=1):
        text = token(word)
        if is_program(follower, text) or (text.endswith(".py") and isinstance(word.data, str)):
            follower.warn(f"{token(call.words[0])} is not set: it is taken to be a launcher")
            call.words = call.words[position:]
            return start_program(follower, call)
    return unknown_program(follower, call.words[0])
