"""Which of several runs is the training: plain evidence, kept as data in launchers.yaml."""

from __future__ import annotations

import posixpath
import re

from schedmate.agent.launch.launchers import rules
from schedmate.agent.launch.plan import Run
from schedmate.agent.launch.state import token


def score(run: Run) -> int:
    """Points for being a training run."""
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
    total = sum(item.points for item in rules().evidence if item.pattern.search(texts[item.where]))
    return total + (2 if run.plan.entry is not None else 0)


def choose(runs: list[Run]) -> tuple[Run | None, list[Run]]:
    """The run that is the training, the first of the best, and the others.

    A run whose file is missing is chosen only when there is no other. A program from outside that
    a script calls, and for which nothing speaks, is none of them.
    """
    runs = [run for run in runs if run.plan.console is None or run.file is None or score(run) > 0]
    if not runs:
        return None, []
    best = max(runs, key=lambda run: (run.problem is None, score(run)))
    return best, [run for run in runs if run is not best]
