"""The extra `llm` is not installed: all that asks no model works, what asks one says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REPO = ROOT / "examples" / "train_repo"
COMMAND = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"
ABSENT = """
import sys

NAMES = {"langchain", "langchain_core", "langchain_openai", "openai", "httpx2", "httpcore2",
         "tenacity"}


class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent)
"""
NEEDS = "needs langchain, langchain_openai, openai, httpx2, httpcore2, tenacity: "


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder whose `sitecustomize.py` hides the packages from every process that has it."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ABSENT)
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "job.log"
    path.parent.mkdir()
    path.write_text("step 1 loss 2.0\nstep 2 loss 1.9\nValueError: bad value in the data\n")
    return path


def run(bare: Path, *words: str | Path, code: int = 0, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(bare), **more},
    )
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    assert "Traceback" not in text
    return text


def test_the_packages_are_hidden(bare: Path) -> None:
    program = "import importlib\ntry: import openai\nexcept ImportError as e: print(e)"
    assert run(bare, "-c", program) == "No module named 'openai'\n"


def test_the_library(bare: Path, log: Path) -> None:
    program = (
        "import sys; from schedmate import JobSpec, SchedMate\n"
        "with SchedMate() as mate:\n"
        "    spec = JobSpec(repo=sys.argv[1], command=sys.argv[2])\n"
        "    mate.analyze(spec)\n"
        "    print(mate.on_failure(spec, sys.argv[3], deadline_s=60).error_name)\n"
    )
    assert run(bare, "-c", program, REPO, COMMAND, log).endswith("Value Error\n")


def test_static_commands(bare: Path, log: Path, tmp_path: Path) -> None:
    history = ["--history", tmp_path / "history"]
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job,submit,duration,gpus\n1,0,100,1\n2,5,50,1\n")
    columns = ["--map", "submit=submit,duration=duration,gpus=gpus"]
    for words in (
        ["history", "import", ROOT / "examples" / "history.jsonl", *history],
        ["analyze", REPO, "--command", COMMAND, *history],
        ["track", log],
        ["diagnose", log],
        ["triage", log.parent, "--ledger", tmp_path / "ledger"],
        ["simulate", jobs, "--cluster", "1x4", "--policy", "fifo", *columns],
        ["llm", "serve-command", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "H100"],
        ["--help"],
    ):
        run(bare, "-m", "schedmate", *words)


@pytest.mark.parametrize("command", ["analyze", "diagnose", "triage", "track"])
def test_a_command_with_a_model(bare: Path, log: Path, tmp_path: Path, command: str) -> None:
    more = {"SCHEDMATE_LLM_BASE_URL": "http://127.0.0.1:9/v1"}
    what = {"analyze": REPO, "triage": log.parent}.get(command, log)
    words = [what, *(["--ask", "1"] if command == "triage" else [])]
    text = run(bare, "-m", "schedmate", command, *words, code=2, **more)
    assert f"error: a language model {NEEDS}" in text
    assert "[llm]'" in text


def test_the_embedder_of_a_server(bare: Path, tmp_path: Path) -> None:
    jobs = ROOT / "examples" / "history.jsonl"
    words = ["history", "import", jobs, "--history", tmp_path / "history"]
    text = run(bare, "-m", "schedmate", *words, code=2, SCHEDMATE_EMBEDDER="openai")
    assert "the openai embedder needs openai, httpx2, httpcore2, tenacity: " in text
    assert "[llm]'" in text


def test_doctor_says_what_to_install(bare: Path) -> None:
    more = {"SCHEDMATE_LLM_BASE_URL": "http://127.0.0.1:9/v1"}
    text = run(bare, "-m", "schedmate", "doctor", code=1, **more)
    assert f"model: a language model {NEEDS}" in text
    assert text.count("[llm]'") == 2  # in the sentence, and as what to do
