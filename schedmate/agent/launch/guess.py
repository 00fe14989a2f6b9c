"""No command given: the most plausible training entry of a repository."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from schedmate.agent.launch.choose import score
from schedmate.agent.launch.entry import PYTHON, imported_names
from schedmate.agent.launch.launchers import rules
from schedmate.agent.launch.plan import LaunchPlan, Run
from schedmate.agent.launch.planning import plan_launch
from schedmate.agent.launch.repo import Repo
from schedmate.agent.syntax import parse_or_none
from schedmate.errors import InputError
from schedmate.jobs import LaunchConfig

MAX_READMES = 8
MAX_COMMANDS = 60
MAX_LENGTH = 4_000
ENOUGH = 5
ENOUGH_SHOWN = 3
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
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
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
    shown = _from_documents(repo)
    if shown is not None:
        return shown
    ranked = sorted(_candidates(repo), key=lambda item: (-item[0], item[1].count("/"), item[1]))
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


def _from_documents(repo: Repo) -> LaunchPlan | None:
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
            points = score(Run(plan, None, 1)) - 4 * document.count("/")
            points -= bool(_PLACEHOLDER.search(command))
            if points < ENOUGH_SHOWN:
                continue
            seen.add(plan.entry)  # of several commands for one program the first is the plain one
            if best is None or points > best[0]:
                plan.warnings.insert(
                    0, f"no command was given: `{_short(command)}` of {document} was taken"
                )
                best = (points, command, plan)
    return best[2] if best is not None else None


def _short(command: str) -> str:
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
            if len(command) <= MAX_LENGTH and _starts_a_program(command):
                yield command.rstrip().replace("\0", "\\\n")


def _starts_a_program(command: str) -> bool:
    """Whether the first word that is no assignment is an interpreter, a launcher or a script."""
    words = [word for word in command.replace("\0", " ").split() if not _ASSIGNMENT.match(word)]
    if not words or command.startswith("#"):
        return False
    name = words[0].rsplit("/", 1)[-1]
    known = rules()
    return (
        PYTHON.fullmatch(name) is not None
        or name in known.launchers
        or name in known.shells
        or name == "make"
        or name.endswith((".py", ".sh", ".slurm", ".sbatch"))
    )


def _candidates(repo: Repo) -> Iterator[tuple[int, str]]:
    """Python files that could start a training, with points."""
    for path in [file for file in repo.files if file.endswith(".py")][:2_000]:
        stem_points = score(Run(LaunchPlan(entry=path), None, 1))
        if stem_points < 0:
            continue
        text = repo.read(path)
        if text is None or not re.search(
            r"__main__|argparse|add_argument|^\w+\(", text, re.MULTILINE
        ):
            continue
        points = stem_points - 2 * path.count("/") + _content(text)
        if points >= ENOUGH:
            yield points, path


def _content(text: str) -> int:
    """Points for what a file holds: a main guard, arguments, a training framework, a loop."""
    if parse_or_none(text) is None:
        return 0
    points = 2 * ("__main__" in text)
    points += 2 * any(_ENTRY_IMPORTS.match(name) for name in imported_names(text))
    points += 3 * bool(_TRAINING_NAMES.search(text))
    return points + bool(re.search(r"add_argument|ArgumentParser|HfArgumentParser|click", text))
