"""A command imports what it uses: the rest would be waited for each time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REPO = str(ROOT / "examples" / "train_repo")
KNOWN = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"
# what the example history has no like of
NEW = "torchrun --nproc_per_node=4 train.py model=vit_small trainer.epochs=7"
HEAVY = {"FlagEmbedding", "faiss", "httpx", "jinja2", "langchain_core", "numpy", "openai", "re2",
         "requests", "rich", "scipy", "sklearn", "torch", "wordllama", "yaml"}  # fmt: skip
REPORT = """
import sys
from schedmate.__main__ import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """The modules that a run of `schedmate` has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "job.log"
    path.write_text("step 1 loss 2.0\nRuntimeError: CUDA error: device-side assert triggered\n")
    return str(path)


def test_diagnose_imports_the_rules_and_no_more(log: str) -> None:
    imported("diagnose", log)  # reads the rules' YAML, and keeps what it says
    found = imported("diagnose", log)
    assert found & HEAVY == {"re2"}
    others = ("schedmate.agent", "schedmate.retrieval", "schedmate.schedulers")
    assert not [name for name in found if name.startswith(others)]
    assert {name for name in found if name.startswith("schedmate.report.")} == {
        "schedmate.report.jobs"
    }
    assert "schedmate.commands.simulate" not in found


def test_track_imports_nothing_heavier(log: str) -> None:
    imported("track", log)  # it asks the rules whether the job has failed
    assert imported("track", log) & HEAVY == {"re2"}


def test_analyze_without_a_history_makes_no_vectors() -> None:
    assert not imported("analyze", REPO, "--command", KNOWN) & HEAVY


def test_the_vectors_of_known_work_are_not_made_again(example_history: Path) -> None:
    place = ["--history", str(example_history)]
    assert "wordllama" not in imported("analyze", REPO, "--command", KNOWN, *place)
    assert "wordllama" in imported("analyze", REPO, "--command", NEW, *place)


@pytest.mark.parametrize(
    "arguments", [["history", "--help"], ["config", "show"], ["policies"], ["llm", "ledger"]]
)
def test_a_command_imports_no_other(arguments: list[str]) -> None:
    found = {name for name in imported(*arguments) if name.startswith("schedmate.commands.")}
    assert f"schedmate.commands.{arguments[0]}" in found
    assert not found & {"schedmate.commands.doctor", "schedmate.commands.triage"}


def test_all_commands_are_offered() -> None:
    folder = ROOT / "schedmate" / "commands"
    text = subprocess.run(
        [sys.executable, "-m", "schedmate", "--help"], capture_output=True, text=True, check=True
    ).stdout
    named = {path.stem for path in folder.glob("*.py")}
    listed = set(re.findall(r"^  ([a-z][a-z0-9-]*)  ", text, re.MULTILINE))
    assert {"analyze", "triage", "config"} <= listed & named
