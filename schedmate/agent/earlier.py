"""Programs that a command runs before the training, for the configurations that they write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from schedmate.agent.budget import Budget
from schedmate.agent.interp.machine import Limits
from schedmate.agent.interp.program import follow
from schedmate.agent.interp.trace import Settings, Trace
from schedmate.agent.interp.values.written import place_in
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import Data, Value
from schedmate.paths import exists

Facts: TypeAlias = dict[str, Data]

_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini")


def written_before(
    repo: Repo, plan: LaunchPlan, facts_of: Callable[[LaunchPlan], Facts], budget: Budget
) -> dict[str, Value]:
    """The files that the programs before a training write, where it names one that is not there.

    Args:
        repo: the repository.
        plan: the training, with the programs before it.
        facts_of: what the launch says to a program.
        budget: the time for all of them and the training.
    """
    files: dict[str, Value] = {}
    words = [str(word.data).rpartition("=")[2] for word in plan.argv]
    named = [word for word in words if word.endswith(_CONFIGURATIONS)]
    if all(exists(repo.root / plan.cwd / word) for word in named):
        return files
    for earlier in plan.before:
        follow(repo, earlier, facts_of(earlier), Limits(time=budget), files)
    return files


def add_written(root: Path, trace: Trace, plan: LaunchPlan, written: dict[str, Value]) -> None:
    """The written files that the command names to a program that was not seen to read them."""
    read = {settings.name for settings in trace.settings}
    for word in plan.argv:
        place = place_in(str(root), str(root / plan.cwd), str(word.data).rpartition("=")[2])
        if place in written and place not in read:
            trace.settings.append(Settings(place, written[place], "config"))
