"""`schedmate demo`: files to try schedmate with, and its main commands run on them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from schedmate.base.errors import SchedmateError

TRAIN = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"
STEPS: list[tuple[str, list[str]]] = [
    ("Forty finished jobs become the history.", ["history", "import", "{}/history.jsonl"]),
    (
        "How long will this job run? Its code and command are read, not run.",
        ["analyze", "{}/train_repo", "--command", TRAIN],
    ),
    ("When will a running job end?", ["track", "{}/running.log"]),
    ("Why did a job fail, and what now?", ["diagnose", "{}/failed.log"]),
    ("Which causes cost most, over sixty jobs?", ["triage", "{}/jobs.csv"]),
    (
        "How would other policies have scheduled a day of jobs on 4 nodes of 8 GPUs?",
        ["simulate", "{}/trace.csv", "--policy", "fifo,sjf,tiresias", "--cluster", "4x8"],
    ),
]
"""The question that each step answers, and its command; {} is the folder of the demo."""
NEXT: list[tuple[str, list[str]]] = [
    (
        "another model and length of training",
        [
            *("analyze", "{}/train_repo", "--command"),
            TRAIN.replace("resnet50", "resnet18").replace("60", "30"),
        ],
    ),
    ("the failures as a web page", ["triage", "{}/jobs.csv", "--out", "triage.html"]),
    (
        "policies with a report",
        [
            *("simulate", "{}/trace.csv", "--policy", "fifo,sjf", "--cluster", "4x8"),
            *("--out", "runs"),
        ],
    ),
    ("your own code", ["analyze", "REPO", "--command", "LAUNCH COMMAND"]),
    ("set up with your own history", ["init"]),
]
"""What to try after the demo, and the command."""


def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the files.")] = Path(
        "demo"
    ),
) -> None:
    """Try the main commands on synthetic files.

    Writes a repository, a history, logs and a trace to FOLDER, runs the
    commands on them and shows their output. Needs no network, reads none of your settings, and
    writes nowhere else. The folder stays, with its history, until you delete it.
    """
    from schedmate.demo import prepare

    prepare(folder)
    typer.echo(f"Files to try schedmate with are in {folder}/: {folder}/README.txt lists them.")
    with tempfile.TemporaryDirectory() as elsewhere:
        environment = _environment(folder, Path(elsewhere))
        for what, template in STEPS:
            words = _filled(template, folder)
            typer.echo(f"\n# {what}\n$ schedmate {shlex.join(words)}")
            # -P: no module is taken from the current directory
            done = subprocess.run(
                [sys.executable, "-P", "-m", "schedmate", *words], env=environment, check=False
            )
            if done.returncode:
                raise SchedmateError(
                    f"`schedmate {shlex.join(words)}` ended with exit code {done.returncode}; what "
                    "it says is above. `schedmate doctor` checks the installation."
                )
    typer.echo("\nTo go on in this shell, with the history of the demonstration:\n")
    typer.echo(f"export {_exports(folder)}\n")
    for what, words in NEXT:
        typer.echo(f"schedmate {shlex.join(_filled(words, folder))}    # {what}")


def _filled(words: list[str], folder: Path) -> list[str]:
    return [word.replace("{}", str(folder)) for word in words]


def _environment(folder: Path, elsewhere: Path) -> dict[str, str]:
    """Variables that keep the user's own settings and data out of it."""
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith("SCHEDMATE_")
    }
    return {
        **inherited,
        "SCHEDMATE_HISTORY": str(folder / "history"),
        "SCHEDMATE_SITE": str(elsewhere),
        "XDG_CONFIG_HOME": str(elsewhere),
        "XDG_DATA_HOME": str(elsewhere),
    }


def _exports(folder: Path) -> str:
    """What a shell needs to go on: the history, and the command where it is not found yet."""
    own = Path(sys.executable).parent
    installed = shutil.which("schedmate")
    history = f"SCHEDMATE_HISTORY={shlex.quote(str((folder / 'history').resolve()))}"
    if installed is not None and Path(installed).parent == own:
        return history
    return f'PATH={shlex.quote(str(own))}:"$PATH" {history}'
