"""Small repositories for launch commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.planning import plan_launch
from schedmate.agent.launch.repo import Repo
from schedmate.jobs import LaunchConfig

Plan = Callable[..., LaunchPlan]

TRAINING = "import argparse\nimport torch\nif __name__ == '__main__':\n    pass\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """An empty repository called `project`."""
    root = tmp_path / "project"
    root.mkdir()
    return root


@pytest.fixture
def write(repo: Path) -> Callable[[dict[str, str]], Path]:
    """Write files into the repository."""

    def write_files(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return repo

    return write_files


@pytest.fixture
def plan(repo: Path, write: Callable[[dict[str, str]], Path]) -> Plan:
    """Plan a command in a repository that holds `train.py` and the given files."""

    def plan_command(
        command: str, files: dict[str, str] | None = None, **launch: object
    ) -> LaunchPlan:
        write({"train.py": TRAINING} | (files or {}))
        return plan_launch(command, Repo(repo), LaunchConfig.model_validate(launch))

    return plan_command
