"""The entry point: one launch command, one plan."""

from __future__ import annotations

import re

from schedmate.agent.launch.choose import choose, score
from schedmate.agent.launch.following import Follower
from schedmate.agent.launch.plan import LaunchPlan, Run
from schedmate.agent.launch.programs import start_program
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.scripts import run_command
from schedmate.agent.launch.state import token
from schedmate.agent.launch.totals import complete, launcher_variables
from schedmate.agent.values import Unknown
from schedmate.errors import InputError
from schedmate.jobs import LaunchConfig

_POSITIONAL = re.compile(r"\$\{?[\d@*]")
MAX_COMMAND = 100_000
MAX_NAMED = 5
MAX_BEFORE = 3
"""Programs before the training that are followed for the files that they write."""


def plan_launch(command: str, repo: Repo, launch: LaunchConfig) -> LaunchPlan:
    """What `command`, typed in the root of `repo`, runs.

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
    run, others = choose(follower.runs)
    if run is None and (follower.left is not None or follower.left_out):
        file, line = follower.left or (None, 0)
        where = f"{file or 'the command'}:{line}" if line else "the command"
        follower = Follower(repo, launch, start_program, ignore_exits=True)
        run_command(follower, command)
        run, others = choose(follower.runs)
        if run is not None:
            follower.warn(
                f"{where} ends before anything is run, for want of "
                "an argument or a variable: it is read as if that was given"
            )
    if run is None:
        raise InputError(_nothing(command, follower))
    if run.problem is not None:
        raise InputError(f"{run.problem}" + ("" if run.problem.endswith("?") else "."))
    plan = run.plan
    plan.warnings = [*follower.warnings, *_about(run, others)]
    plan.before = _before(run, follower.runs)
    plan.complete = follower.complete
    plan.facts = complete(plan.facts, plan.env, launch, plan.warnings)
    if "WORLD_SIZE" in run.sets and "gpus" in plan.facts:  # without a count, one for each GPU
        plan.facts.setdefault("procs", plan.facts["gpus"])
    plan.env = launcher_variables(run.sets, plan.facts) | plan.env
    return plan


def _before(run: Run, runs: list[Run]) -> list[LaunchPlan]:
    """The programs of the repository that run before one, the last few."""
    place = next(index for index, one in enumerate(runs) if one is run)
    earlier = [one for one in runs[:place] if one.problem is None and one.plan.entry is not None]
    return [one.plan for one in earlier[-MAX_BEFORE:]]


def _nothing(command: str, follower: Follower) -> str:
    shown = command.strip() if len(command) < 80 else command.strip()[:77] + "..."
    lacks = ", ".join(sorted(follower.left_out)[:MAX_NAMED])
    reasons = [f"it needs arguments that were not given: {lacks}"] if lacks else []
    reasons += [*dict.fromkeys(follower.unread), *follower.warnings][: 3 - len(reasons)]
    hints = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"`{shown}` runs no Python program{hints}; "
        f"give the command that starts the training, such as `python train.py`."
    )


def _about(run: Run, others: list[Run]) -> list[str]:
    """Warnings on what was chosen, and on what is not known about it."""
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
        if any(other.problem is None and score(other) == score(run) for other in others):
            warnings[-1] += "; the first of equals was taken"
    if not run.certain:
        warnings.append(f"{run.where}: whether this runs depends on a test that was not decided")
    unknown = [token(value) for value in run.plan.argv if isinstance(value.data, Unknown)]
    kinds = {
        "were not given to the script": [text for text in unknown if _POSITIONAL.search(text)],
        "are placeholders": [text for text in unknown if not re.search(r"[$`]", text)],
    }
    rest = [text for text in unknown if not any(text in texts for texts in kinds.values())]
    for what, texts in (kinds | {"depend on the environment": rest}).items():
        if texts:
            shown = ", ".join(texts[:MAX_NAMED]) + (", ..." if len(texts) > MAX_NAMED else "")
            warnings.append(f"these arguments {what}: {shown}")
    return warnings
