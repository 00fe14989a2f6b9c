"""Plans one launch command: from its text, or from the repository alone, to one `LaunchPlan`.

`plan_launch` follows the command, `start_program` peels launchers and wrappers off each program
call until a program is left, `choose_training` says which of several runs is the training (by
points kept in launchers.yaml), and `find_entry` takes the likeliest command of a repository for
which none was given.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator

from schedmate.agent.launch import scripts
from schedmate.agent.launch.launchers import (
    Options,
    Table,
    complete_facts,
    facts_from_options,
    known_program,
    launch_rules,
    launcher_variables,
    parse_options,
)
from schedmate.agent.launch.plan import (
    PYTHON,
    Call,
    Follower,
    LaunchPlan,
    Run,
    find_file,
    follow_console_script,
    follow_python,
    follow_python_file,
    imported_names,
    is_not_followed,
    is_program_file,
    note_unknown_program,
    python_options,
    record_missing,
    record_run,
)
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.scripts import (
    follow_batch,
    follow_heredoc,
    follow_inline,
    follow_make,
    follow_shell,
    make_file,
    run_command,
    run_script,
)
from schedmate.agent.launch.shell_expansion import token
from schedmate.agent.launch.shell_operators import Decision
from schedmate.agent.syntax import parse_or_none
from schedmate.agent.values import Origin, Unknown, Value
from schedmate.base.errors import InputError
from schedmate.jobs import LaunchConfig
from schedmate.jobs.metadata import JobKind

_POSITIONAL_ARGUMENT = re.compile(r"\$\{?[\d@*]")
MAX_COMMAND = 100_000
"""Longest launch command [characters]."""
MAX_NAMED = 5
"""Most programs or arguments that one warning names."""
MAX_BEFORE = 3
"""Programs before the training that are followed for the files that they write."""


def plan_launch(command: str, repo: Repo, launch: LaunchConfig) -> LaunchPlan:
    """The plan of `command`, as typed in the root of `repo`: which program it runs, and with what.

    Raises InputError when the command is empty, starts nothing that could be a training run, or
    names a file that is not in the repository.
    """
    if not command.strip():
        raise InputError("the launch command is empty; give the command that starts the training.")
    if len(command) > MAX_COMMAND:
        raise InputError(
            f"the launch command has {len(command)} characters, more than {MAX_COMMAND}; "
            f"put it into a script of the repository."
        )
    follower = Follower(repo, launch, start_program)
    run_command(follower, command)
    run, others = choose_training(follower.runs)
    if run is None and (follower.left is not None or follower.left_out):
        file, line = follower.left or (None, 0)
        where = f"{file or 'the command'}:{line}" if line else "the command"
        follower = Follower(repo, launch, start_program, ignore_exits=True)
        run_command(follower, command)
        run, others = choose_training(follower.runs)
        if run is not None:
            follower.warn(
                f"{where} ends before anything is run, for want of "
                "an argument or a variable: it is read as if that was given"
            )
    if run is None:
        raise InputError(_nothing_runs(command, follower))
    if run.problem is not None:
        raise InputError(f"{run.problem}" + ("" if run.problem.endswith("?") else "."))
    plan = run.plan
    plan.warnings = [*follower.warnings, *_warnings_about(run, others)]
    plan.before = _programs_before(run, follower.runs)
    plan.complete = follower.complete
    plan.facts = complete_facts(plan.facts, plan.env, launch, plan.warnings)
    if "WORLD_SIZE" in run.sets and "gpus" in plan.facts:  # without a count, one for each GPU
        plan.facts.setdefault("procs", plan.facts["gpus"])
    plan.env = launcher_variables(run.sets, plan.facts) | plan.env
    return plan


def _programs_before(run: Run, runs: list[Run]) -> list[LaunchPlan]:
    """Plans of the last few programs of the repository that run before `run`."""
    place = next(index for index, candidate in enumerate(runs) if candidate is run)
    earlier = [
        candidate
        for candidate in runs[:place]
        if candidate.problem is None and candidate.plan.entry is not None
    ]
    return [candidate.plan for candidate in earlier[-MAX_BEFORE:]]


def _nothing_runs(command: str, follower: Follower) -> str:
    shown = command.strip() if len(command) < 80 else command.strip()[:77] + "..."
    lacks = ", ".join(sorted(follower.left_out)[:MAX_NAMED])
    reasons = [f"it needs arguments that were not given: {lacks}"] if lacks else []
    reasons += [*dict.fromkeys(follower.unread), *follower.warnings][: 3 - len(reasons)]
    hints = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"`{shown}` runs no Python program{hints}; "
        f"give the command that starts the training, such as `python train.py`."
    )


def _warnings_about(run: Run, others: list[Run]) -> list[str]:
    """Warnings about the choice of `run` among several, and about its unknown arguments."""
    warnings: list[str] = []
    if others:
        same = [other for other in others if other.program == run.program]
        names = dict.fromkeys(
            f"{other.program} ({other.where})" for other in others if other.program != run.program
        )
        parts = [f"{len(same)} more of the same program"] if same else []
        parts += list(names)[:MAX_NAMED]
        parts += [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
        warnings.append(
            f"{run.program} ({run.where}) is taken to be the training; "
            f"the command also runs {', '.join(parts)}"
        )
        if any(
            other.problem is None and training_score(other) == training_score(run)
            for other in others
        ):
            warnings[-1] += "; the first of equals was taken"
    if not run.certain:
        warnings.append(f"{run.where}: whether this runs depends on a test that was not decided")
    unknown = [token(value) for value in run.plan.argv if isinstance(value.data, Unknown)]
    kinds = {
        "were not given to the script": [
            text for text in unknown if _POSITIONAL_ARGUMENT.search(text)
        ],
        "are placeholders": [text for text in unknown if not re.search(r"[$`]", text)],
    }
    rest = [text for text in unknown if not any(text in texts for texts in kinds.values())]
    for what, texts in (kinds | {"depend on the environment": rest}).items():
        if texts:
            shown = ", ".join(texts[:MAX_NAMED]) + (", ..." if len(texts) > MAX_NAMED else "")
            warnings.append(f"these arguments {what}: {shown}")
    return warnings


# What one program call starts: peel launchers and wrappers off until a program is left.


_COMMAND_FLAG = re.compile(r"-{1,2}(\w+[-_])?(command|cmd)")
_ENV_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ALLOCATED_FACTS = ("nodes", "gpus", "gpus_per_node", "gpus_per_task")
MAX_LAYERS = 20
"""Most launchers and wrappers around one program."""


def start_program(follower: Follower, call: Call) -> Decision:
    """Follow a program call; the decision is its assumed exit status."""
    for _ in range(MAX_LAYERS):
        if not call.words:
            return True
        follower.tick()
        call.words = _command_by_flag(follower, call) or _command_after_dashes(follower, call)
        name = call.name
        table, skipped, called = _find_launcher(follower, call.words)
        if table is None and PYTHON.fullmatch(name):
            return follow_python(follower, call)
        if name in follower.rules.shells:
            return follow_shell(follower, call)
        if name in ("make", "gmake"):
            return _follow_make(follower, call)
        if table is None or table.run is None:
            return _start_plain_program(follower, call)
        options = parse_options(table, call.words[skipped:])
        _apply_options(follower, call, table, options)
        if not table.plain:
            call.launchers.append(called or table.name)
            call.sets |= table.sets
        started = _program_by_option(follower, call, table, options) or _program_by_file(
            follower, call, table, options
        )
        if started is not None:
            return started()
        nothing = not options.rest or (table.skip and token(options.rest[0]).startswith("-"))
        if nothing and not any(option.name in table.wrap for option in options.given):
            if table.run == "shell" and call.heredoc is not None:
                return follow_heredoc(follower, call)
            lacks = "job description of the repository" if table.run == "jobs" else "program to run"
            follower.unread.append(f"`{name}` is given no {lacks}")
            return True
        if table.run == "python" or table.module & {option.name for option in options.given}:
            return _python_words(follower, call, table, options)
        if table.run == "shell" and not table.binary & {option.name for option in options.given}:
            return follow_batch(follower, call, table, options)
        if table.run == "parallel":
            call.words = first_parallel_command(call.words)
        whole = len(call.words) == 1 or table.run == "text"
        if whole and " " in token(call.words[0]):
            return follow_inline(follower, call, call.words[0], [])
    return None


def _command_after_dashes(follower: Follower, call: Call) -> list[Value]:
    """`python submit.py --gpus 8 -- torchrun train.py`: the command that a script is to run."""
    texts = [token(word) for word in call.words]
    script = texts[PYTHON.fullmatch(call.name) is not None :][:1]
    position = texts.index("--") + 1 if "--" in texts[:-1] else 0
    if not position or not script[0].endswith(".py") or not is_program(follower, texts[position]):
        return call.words
    follower.warn(f"{script[0]} is taken to run the command it is given")
    call.launchers.append(script[0])
    return call.words[position:]


def _command_by_flag(follower: Follower, call: Call) -> list[Value] | None:
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


def _find_launcher(follower: Follower, words: list[Value]) -> tuple[Table | None, int, str]:
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


def _apply_options(follower: Follower, call: Call, table: Table, options: Options) -> None:
    """Take a launcher's options into the call and leave in `words` what it runs."""
    facts = facts_from_options(table, options, follower.repo, call.cwd)
    if table.name == "srun":  # a step has a share of what the job was allocated
        facts = {k: v for k, v in facts.items() if k not in _ALLOCATED_FACTS or k not in call.facts}
    call.facts |= facts
    stated = {table.facts.get(option.name) for option in options.given}
    for name, data in table.defaults.items():
        if name not in stated:  # what is stated but cannot be known has no default
            call.facts.setdefault(name, Value(data, Origin("library", text=table.setting(name))))
    for option in options.given:
        if option.name in table.env and option.values:
            _set_variable(call, token(option.values[0]), option.values[0])
        elif option.name in table.env_list and option.values:
            for text in token(option.values[0]).split(","):
                _set_variable(call, text, option.values[0])
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
        is_known = not isinstance(value.data, Unknown) or "$" not in match[2]
        call.env[match[1]] = Value(match[2] if is_known else Unknown(match[2]), value.origin)
    return match is not None


def _program_by_option(
    follower: Follower, call: Call, table: Table, options: Options
) -> Callable[[], Decision] | None:
    """The program that an option names: `--script train.py`, `-m pkg.train`."""
    for option in options.given:
        if option.name in table.program and option.values:
            call.words = [option.values[0], *call.words]
            return lambda: follow_python_file(follower, call, as_module=option.name in table.module)
    if table.main:
        values = {option.name: option.values[0] for option in options.given if option.values}
        stated = [values.get(o) or call.env.get(v) for o, v in table.main.items()]
        package, main = (token(value) if value is not None else None for value in stated)
        module = follower.repo.of_package(package, main or "train", call.cwd)
        if module is not None:
            call.words = [Value(module, Origin("library", text=table.name)), *call.words]
            return lambda: follow_python_file(follower, call, as_module=True)
    return None


def _program_by_file(
    follower: Follower, call: Call, table: Table, options: Options
) -> Callable[[], Decision] | None:
    """Follow the job description or task that a launcher reads from a file of the repository."""
    word = token(call.words[0]) if call.words else ""
    task = re.compile(rf'^"?{re.escape(word)}"?\s*+=', re.MULTILINE)
    if word and any(task.search(follower.repo.read(file) or "") for file in table.tasks):
        follower.unread.append(
            f"`{word}` is a task of {table.name}, which is not followed: "
            "give the command that it runs"
        )
        return lambda: None
    if table.run == "condor":
        return lambda: scripts.follow_condor(follower, call, options)
    if table.run == "jobs":
        path = scripts.find_job_file(follower, call, options, table)
        if path is not None:
            return lambda: scripts.follow_job_file(follower, call, path)
        if table.files:
            return lambda: None
    return None


def _python_words(follower: Follower, call: Call, table: Table, options: Options) -> Decision:
    """Follow the words after a launcher of Python programs: a file, a module or a command."""
    names = {option.name for option in options.given}
    if names & table.command:
        return start_program(follower, call)
    return follow_python_file(follower, call, as_module=bool(names & table.module))


def _follow_make(follower: Follower, call: Call) -> Decision:
    """Follow `make`; where its recipes start no job, the job is the build."""
    runs, words = len(follower.runs), call.words
    decision = follow_make(follower, call)
    if decision and len(follower.runs) == runs:
        call.words = words
        record_run(follower, call, console="make")
    return decision


def _start_plain_program(follower: Follower, call: Call) -> Decision:
    """Follow a program that is not a launcher: a file, a console script or a utility."""
    name, text = call.name, token(call.words[0])
    repo, rules = follower.repo, follower.rules
    scripts = (".sh", ".bash", ".slurm", ".sbatch")
    path = find_file(follower, call, call.words[0]) if "/" in text or "." in name else None
    if path is not None:
        shebang = (repo.read(path) or "").split("\n", 1)[0]
        if path.endswith(".py") or (shebang.startswith("#!") and "python" in shebang):
            return follow_python_file(follower, call, as_module=False)
        if path.endswith(scripts) or re.match(r"#!.*sh\b", shebang):
            return run_script(follower, path, text, call.words[1:], call)
        return True
    if name.endswith(".py"):
        return follow_python_file(follower, call, as_module=False)
    if name in repo.console_scripts:
        return follow_console_script(follower, call, repo.console_scripts[name])
    if known_program(list(map(token, call.words))) is not None:
        return record_run(follower, call, console=name)
    if is_not_followed(follower, call):
        return None
    if name in ("cp", "sed"):
        return make_file(follower, call)
    if name in rules.utilities or name in rules.launchers:
        return None if name in rules.uncertain else True
    if isinstance(call.words[0].data, Unknown):
        return _start_after_unknown(follower, call)
    if name.endswith(scripts):
        return record_missing(follower, call, text)
    if re.fullmatch(r"[A-Za-z][\w.+-]*", name):
        installed = repo.only_one_ending(name)
        first = (repo.read(installed) or "").split("\n", 1)[0] if installed is not None else ""
        if installed is not None and first.startswith("#!") and "python" in first:
            # a script that packaging installs as it is, `scripts=[...]` or `script-files`
            call.words = [Value(f"{call.cwd}/{installed}", call.words[0].origin), *call.words[1:]]
            return record_run(follower, call, entry=installed)
        wrapped = _wrapped_command(follower, call)
        return record_run(follower, call, console=name) if wrapped is None else wrapped()
    return None


def _wrapped_command(follower: Follower, call: Call) -> Callable[[], Decision] | None:
    """The command in the words of an unknown program: `tsp python train.py`, or None."""
    for position, word in enumerate(call.words[1:], start=1):
        text = token(word)
        quoted = " " in text.strip() and text.split()[0]
        file = find_file(follower, call, word) if text.endswith(".py") and not quoted else None
        if file is not None and is_program_file(follower, file):
            call.launchers.append(call.name)
            call.words = call.words[position:]
            return lambda: follow_python_file(follower, call, as_module=False)
        if not is_program(follower, quoted or text) or text.startswith("-"):
            continue
        follower.warn(f"{call.name} is taken to run the command it is given")
        call.launchers.append(call.name)
        if quoted:
            return lambda: follow_inline(follower, call, word, [])
        call.words = call.words[position:]
        return lambda: start_program(follower, call)
    return None


def is_program(follower: Follower, text: str) -> bool:
    """Whether a word is by itself a program that runs others."""
    name = posixpath.basename(text)
    rules = follower.rules
    return PYTHON.fullmatch(name) is not None or name in rules.launchers or name in rules.shells


def _start_after_unknown(follower: Follower, call: Call) -> Decision:
    """`$LAUNCHER train.py ...`: go on at the first word that is a program by itself."""
    for position, word in enumerate(call.words[1:], start=1):
        text = token(word)
        if is_program(follower, text) or (text.endswith(".py") and isinstance(word.data, str)):
            follower.warn(f"{token(call.words[0])} is not set: it is taken to be a launcher")
            call.words = call.words[position:]
            return start_program(follower, call)
    return note_unknown_program(follower, call.words[0])


# The command that GNU parallel runs first.


def first_parallel_command(words: list[Value]) -> list[Value]:
    """The first command of `parallel command {} ::: a b c`."""
    texts = [token(word) for word in words]
    ends = [n for n, text in enumerate(texts) if re.fullmatch(r":{3,4}\+?", text)]
    if not ends:
        return words
    inputs = [words[n + 1] for n in ends if n + 1 < len(words) and texts[n] != "::::"]
    command = words[: ends[0]]
    filled = [_fill_inputs(word, inputs) for word in command]
    has_placeholder = [token(word) for word in filled] != texts[: ends[0]]
    return filled if has_placeholder else [*command, *inputs]


def _fill_inputs(word: Value, inputs: list[Value]) -> Value:
    text = token(word)
    for number, item in enumerate(inputs, start=1):
        text = text.replace(f"{{{number}}}", token(item))
    if inputs:
        text = text.replace("{}", token(inputs[0]))
    same = text == token(word) or isinstance(word.data, Unknown)
    return word if same else Value(text, word.origin)


# Which of several runs is the training: plain evidence, kept as data in launchers.yaml.


def training_score(run: Run) -> int:
    """Points by the patterns of launchers.yaml for a run being the training; more is likelier."""
    program = run.program
    if run.plan.module and run.plan.entry is None:
        program = run.plan.module.replace(".", "/")
    stem = re.sub(r"\.py$", "", posixpath.basename(program))
    if stem == "__main__":
        stem = posixpath.basename(posixpath.dirname(program))
    texts = {
        "stem": stem,
        "folder": posixpath.dirname(program),
        "arguments": " ".join(token(value) for value in run.plan.argv),
        "launchers": " ".join(run.plan.launchers),
    }
    total = sum(
        item.points for item in launch_rules().evidence if item.pattern.search(texts[item.where])
    )
    return total + (2 if run.plan.entry is not None else 0)


_BESIDE: tuple[JobKind, ...] = ("compile or test", "data processing", "serving")
"""Kinds of known programs that run beside a job or before it, the least likely to be it first."""


def choose_training(runs: list[Run]) -> tuple[Run | None, list[Run]]:
    """The run that is the training, the first of the best, and the others.

    A run whose file is missing is chosen only when there is no other. A program from outside that
    a script calls, and for which nothing speaks, is none of them. Servers, builds and tests are
    what the job is about only where nothing else runs.
    """
    runs = [
        run
        for run in runs
        if run.plan.console is None
        or run.file is None
        or run.known is not None
        or training_score(run) > 0
    ]
    if not runs:
        return None, []
    for beside in _BESIDE:
        others = [run for run in runs if run.known is None or run.known.kind != beside]
        runs = others or runs
    best = max(runs, key=lambda run: (run.problem is None, training_score(run)))
    return best, [run for run in runs if run is not best]


# No command given: the most plausible training entry of a repository.


MAX_READMES = 8
"""Documents whose commands are looked at."""
MAX_COMMANDS = 60
"""Commands of all documents that are planned."""
MAX_COMMAND_SHOWN = 4_000
"""Longest command of a document that is planned [characters]."""
ENOUGH_POINTS = 5
"""Least points of a Python file that is taken for the entry."""
ENOUGH_POINTS_SHOWN = 3
"""Least points of a command that a document shows."""
_README = re.compile(
    r"(readme|(pre|fine[_-]?)?(train|tun)(e|ing)?|get(ting)?_?started|usage|quick_?start)"
    r"[\w.-]*\.(md|rst|txt)|readme",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^ {0,3}(```|~~~)[^\n]*\n(.*?)^ {0,3}\1", re.DOTALL | re.MULTILINE)
_LITERAL = re.compile(
    r"(?:^\.\. code[^\n]*|::)\n(?:[ \t]*+\n|[ \t]++:[^\n]*+\n)*+((?:(?:[ \t]++[^\n]*+)?\n)++)",
    re.MULTILINE,
)
_PROMPT = re.compile(r"\s*(?:[$>%]\s+)?")
_SHELL_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLACEHOLDER = re.compile(
    r"<[^<>|&;\n]*>|\[[A-Z_ ]+\]|\.\.\.|/path/to|path_to|PATH_TO|\{[A-Z_ ]+\}|your_"
)
_TRAINING_NAMES = re.compile(
    r"Trainer|optimizer|\.backward|\.fit|optim|GradientTape|train_step|training_step|TrainingArguments",
)
_ENTRY_IMPORTS = re.compile(
    r"(torch|tensorflow|keras|jax|flax|optax|lightning|pytorch_lightning|transformers|mxnet|paddle|"
    r"accelerate|deepspeed|mmengine|mmcv|detectron2|fastai|sklearn|xgboost|lightgbm)(\.|$)"
)


def find_entry(repo: Repo) -> LaunchPlan:
    """The most plausible training run of a repository, with a warning that it was guessed.

    First the commands its README shows (the training one that can be planned), then its Python
    files by name, place and content. Raises InputError when nothing looks like training.
    """
    shown = _entry_from_documents(repo)
    if shown is not None:
        return shown
    ranked = sorted(
        _entry_candidates(repo), key=lambda item: (-item[0], item[1].count("/"), item[1])
    )
    if not ranked:
        raise InputError(
            f"no Python file of {repo.root.name} looks like a training entry point; "
            f"give the command that starts the training."
        )
    points, best = ranked[0]
    plan = plan_launch(f"python {shlex.quote(best)}", repo, LaunchConfig())
    equals = [path for other, path in ranked[1:] if other == points][:3]
    also = f" ({', '.join(equals)} look as plausible)" if equals else ""
    plan.warnings.insert(0, f"no command was given: `python {best}` was guessed{also}")
    return plan


def _entry_from_documents(repo: Repo) -> LaunchPlan | None:
    """The best command of the README; of equals the first."""
    best: tuple[int, str, LaunchPlan] | None = None
    seen: set[str] = set()
    documents = [file for file in repo.files if _README.fullmatch(file.rsplit("/", 1)[-1])]
    commands = 0
    for document in documents[:MAX_READMES]:
        for command in shown_commands(repo.read(document) or ""):
            commands += 1
            if commands > MAX_COMMANDS:
                break
            try:
                plan = plan_launch(command, repo, LaunchConfig())
            except InputError:
                continue
            if plan.entry is None or plan.entry in seen:
                continue
            points = training_score(Run(plan, None, 1)) - 4 * document.count("/")
            points -= bool(_PLACEHOLDER.search(command))
            if points < ENOUGH_POINTS_SHOWN:
                continue
            seen.add(plan.entry)  # of several commands for one program the first is the plain one
            if best is None or points > best[0]:
                plan.warnings.insert(
                    0, f"no command was given: `{_shorten(command)}` of {document} was taken"
                )
                best = (points, command, plan)
    return best[2] if best is not None else None


def _shorten(command: str) -> str:
    line = " ".join(command.replace("\\\n", " ").split())
    return line if len(line) <= 120 else line[:117] + "..."


def shown_commands(text: str) -> Iterator[str]:
    """The launch commands in the code blocks of a document (Markdown or reStructuredText).

    A leading `$`, `>` or `%` prompt is dropped, continued lines stay together.
    """
    blocks = [(match.start(), match[2]) for match in _FENCE.finditer(text)]
    blocks += [(match.start(), match[1]) for match in _LITERAL.finditer(text)]
    for _, block in sorted(blocks):
        for line in re.sub(r"\\[ \t]*\n", "\0", block).split("\n"):
            command = _PROMPT.sub("", line, count=1)
            if len(command) <= MAX_COMMAND_SHOWN and _starts_a_program(command):
                yield command.rstrip().replace("\0", "\\\n")


def _starts_a_program(command: str) -> bool:
    """Whether the first word that is no assignment is an interpreter, a launcher or a script."""
    words = [
        word for word in command.replace("\0", " ").split() if not _SHELL_ASSIGNMENT.match(word)
    ]
    if not words or command.startswith("#"):
        return False
    name = words[0].rsplit("/", 1)[-1]
    rules = launch_rules()
    return (
        PYTHON.fullmatch(name) is not None
        or name in rules.launchers
        or name in rules.shells
        or name == "make"
        or name.endswith((".py", ".sh", ".slurm", ".sbatch"))
    )


def _entry_candidates(repo: Repo) -> Iterator[tuple[int, str]]:
    """Python files that could start a training, with points."""
    for path in [file for file in repo.files if file.endswith(".py")][:2_000]:
        stem_points = training_score(Run(LaunchPlan(entry=path), None, 1))
        if stem_points < 0:
            continue
        text = repo.read(path)
        if text is None or not re.search(
            r"__main__|argparse|add_argument|^\w+\(", text, re.MULTILINE
        ):
            continue
        points = stem_points - 2 * path.count("/") + _content_points(text)
        if points >= ENOUGH_POINTS:
            yield points, path


def _content_points(text: str) -> int:
    """Points for what a file holds: a main guard, arguments, a training framework, a loop."""
    if parse_or_none(text) is None:
        return 0
    points = 2 * ("__main__" in text)
    points += 2 * any(_ENTRY_IMPORTS.match(name) for name in imported_names(text))
    points += 3 * bool(_TRAINING_NAMES.search(text))
    return points + bool(re.search(r"add_argument|ArgumentParser|HfArgumentParser|click", text))
