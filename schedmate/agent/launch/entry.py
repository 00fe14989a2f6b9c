"""The Python program at the end of a launch command: file, module or console script."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Sequence

from schedmate.agent.launch.launchers import known_program
from schedmate.agent.launch.plan import Call, Follower, LaunchPlan, Run
from schedmate.agent.launch.shell_expansion import token
from schedmate.agent.launch.shell_operators import Decision
from schedmate.agent.syntax import parse_or_none
from schedmate.agent.values import Unknown, Value

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
