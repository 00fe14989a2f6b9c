"""The commands of docs/slurm.md and docs/start/operator.md, as they are typed, on a real Slurm."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from agents import AgentFiles
from slurm_testbed import Testbed, until
from training_jobs import TrainingJob, submit

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SAMPLES = runpy.run_path(str(ROOT / "docs" / "generate_samples.py"))
ASKS_SLURM = re.compile(r"^(sudo -u schedmate )?(sacct|schedmate slurm) ")


def commands(page: str) -> list[str]:
    """The commands of a page that ask Slurm."""
    blocks = SAMPLES["blocks"](ROOT / "docs" / page)
    found = [one for block in blocks for one in block.commands if ASKS_SLURM.match(one)]
    return [command.removeprefix("sudo -u schedmate ") for command in found]


def shape(line: str) -> str:
    """A line without its numbers, names and units of time."""
    line = re.sub(r"^\w+(?=: \d+ pending)", "CLUSTER", line)
    line = re.sub(r"[\d.,]+ (h|min|s|ms)\b( [\d.,]+ (min|s)\b)?", "TIME", line)
    return re.sub(r"\([\w-]+\)", "(NAME)", re.sub(r"\d[\d,]*", "N", line))


@pytest.fixture
def typed(slurm: Testbed, files: AgentFiles, tmp_path: Path) -> dict[str, str]:
    """The environment of an operator with a history and a home of their own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(tmp_path), "PATH": path, "SCHEDMATE_HISTORY": str(files.history)}
    return {**os.environ, **own}


def run(command: str, env: dict[str, str]) -> str:
    """The output of a command of a page, on the operator's own history."""
    command = command.replace("/var/lib/schedmate/history", env["SCHEDMATE_HISTORY"])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("page", "least"), [("slurm.md", 3), ("start/operator.md", 2)])
def test_the_commands_of_a_page_succeed(
    page: str, least: int, slurm: Testbed, repository: Path, typed: dict[str, str]
) -> None:
    job = submit(slurm, repository, TrainingJob("resnet18", 5))
    until("its end", 60, lambda: slurm.settled(job) and slurm.ended_as(job) == "COMPLETED")
    found = commands(page)
    assert len(found) >= least
    for command in found:
        run(command, typed)
    # jobs of other tests are in the accounting, too
    workloads = run("schedmate history stats", typed).splitlines()[1]
    assert re.fullmatch(r"[1-9]\d* different workloads?", workloads)


def test_a_pass_prints_what_the_page_shows(
    slurm: Testbed, files: AgentFiles, repository: Path, blocker: str, typed: dict[str, str]
) -> None:
    files.know(repository)
    submit(slurm, repository, TrainingJob("gpt2", 90))
    [sample] = [
        block.text.splitlines()
        for block in SAMPLES["blocks"](ROOT / "docs" / "slurm.md")
        if block.mark.startswith(SAMPLES["NOT_RUN"])
    ]
    [command] = [one for one in commands("slurm.md") if "agent" in one]
    printed = [shape(line) for line in run(command, typed).splitlines()]
    for line in sample:
        assert any(one.startswith(shape(line).rstrip(".").rstrip()) for one in printed), printed
