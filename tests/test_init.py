"""`schedmate init`: the first settings file, from flags or answers, and the check that follows."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st

from schedmate.commands.init import _toml

SCONTROL = """#!/bin/sh
case "$1" in
ping) echo 'Slurmctld(primary) at c0 is UP'; exit {code} ;;
show) echo 'ClusterName = tiny'; echo 'SLURM_VERSION = 24.05.1' ;;
*) echo 'slurm 24.05.1' ;;
esac
"""


@pytest.fixture(autouse=True)
def no_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without Slurm and Kubernetes; gives the folder that is on it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("env", "sh"):
        (folder / program).symlink_to(f"/usr/bin/{program}")
    monkeypatch.setenv("PATH", str(folder))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def file(clean_environment: Path) -> Path:
    return clean_environment / ".config" / "schedmate" / "config.toml"


def settings(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text())


def test_the_defaults_are_enough(cli: Cli, file: Path, clean_environment: Path) -> None:
    done = cli("init", "--yes")
    assert done.code == 0, done.err
    assert settings(file) == {"history": f"{clean_environment}/.local/share/schedmate/history"}
    assert f"{file} was written" in done.out
    assert "✓ python" in done.out
    assert "schedmate history import FILE" in done.out.partition("Next:")[2]
    assert cli("config", "show", "--origin").out.count(str(file)) == 1


def test_flags_become_settings_that_hold(cli: Cli, file: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    model.write_text("replies: []\n")
    place = tmp_path / 'a "folder" of jobs'
    done = cli(
        *("init", "--yes", "--history", str(place), "--scheduler", "kubernetes"),
        *("--llm-base-url", "http://127.0.0.1:9/v1", "--model", "qwen"),
    )
    assert done.code == 1, "the check that fails shows"
    assert "✗ scheduler" in done.out
    assert "schedmate k8s doctor" in done.out.partition("Next:")[2]
    assert settings(file) == {
        "history": str(place),
        "scheduler": "kubernetes",
        "llm_base_url": "http://127.0.0.1:9/v1",
        "llm_model": "qwen",
    }
    shown = cli("config", "show", "--origin").out
    assert f'llm_model = "qwen" # {file}' in shown


def test_a_relative_history_is_that_of_the_current_directory(
    cli: Cli, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("init", "--yes", "--history", "jobs").code == 0
    assert settings(file)["history"] == str(tmp_path / "jobs")


def test_an_existing_file_is_replaced_only_when_told_to_and_kept(cli: Cli, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text('# mine\ntop_k = 7\nhistory = "/srv/jobs"\nllm_cache = false\nbudget_s = 2.5\n')
    before = file.read_text()
    done = cli("init", "--yes")
    assert done.code == 2
    assert "--replace" in done.err
    assert file.read_text() == before
    done = cli("init", "--yes", "--replace", "--scheduler", "none")
    assert settings(file) == {
        "top_k": 7,
        "history": "/srv/jobs",
        "llm_cache": False,
        "budget_s": 2.5,
    }
    assert file.with_name("config.toml.old1").read_text() == before
    assert "config.toml.old1" in done.out
    cli("init", "--yes", "--replace")
    assert file.with_name("config.toml.old2").is_file()
    assert file.with_name("config.toml.old1").read_text() == before


def test_tables_and_lists_that_are_no_settings_are_not_kept(cli: Cli, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text('embedder = {name = "bge"}\nllm_model = ["a"]\ntop_k = 7\n')
    done = cli("init", "--yes", "--replace", "--history", "/srv/jobs")
    assert settings(file) == {"history": "/srv/jobs", "top_k": 7}, done.err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--llm-base-url", "nonsense"], "it looks like http://127.0.0.1:8000/v1"),
        (["--model", "qwen"], "give --llm-base-url"),
        (["--history", "postgresql://me:secret@db/jobs"], "~/.pgpass"),
        (["--llm-base-url", "http://me:secret@127.0.0.1:9/v1"], "SCHEDMATE_LLM_API_KEY"),
    ],
)
def test_what_does_not_fit_writes_nothing(
    cli: Cli, file: Path, flags: list[str], says: str
) -> None:
    done = cli("init", "--yes", *flags)
    assert done.code == 2
    assert says in done.err
    assert not file.exists()


def test_a_history_has_a_directory_for_itself(
    cli: Cli, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example_history: Path
) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id\n1\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    for place, says in (
        (str(jobs), "is a file, and the history is a directory"),
        (str(tmp_path), f"name a directory for the history alone: {tmp_path}/history"),
        (".", "is the current directory"),
    ):
        done = cli("init", "--yes", "--history", place)
        assert done.code == 2
        assert says in done.err
        assert not file.exists()
    assert cli("init", "--yes", "--history", str(example_history)).code == 0
    assert settings(file)["history"] == str(example_history)


def test_the_file_that_is_named_is_written(
    cli: Cli, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_CONFIG", "set by --config, and to be put back")
    mine = tmp_path / "new" / "mine.toml"
    assert cli("--config", str(mine), "init", "--yes").code == 0
    assert "history" in settings(mine)
    assert not file.exists()


def test_a_variable_that_comes_before_the_file_is_told(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(tmp_path / "other"))
    done = cli("init", "--yes", "--history", str(tmp_path / "mine"))
    assert "history does not hold here: SCHEDMATE_HISTORY" in done.err
    assert "to end that: unset SCHEDMATE_HISTORY" in done.err


def test_nothing_is_asked_where_nobody_can_answer(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", "init"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "give --yes" in done.stderr
    assert not file.exists()


@pytest.mark.parametrize(("code", "found"), [(0, "slurm"), (1, None)])
def test_a_slurm_that_answers_is_found(
    cli: Cli, file: Path, no_scheduler: Path, code: int, found: str | None
) -> None:
    program = no_scheduler / "scontrol"
    program.write_text(SCONTROL.format(code=code))
    program.chmod(0o755)
    (no_scheduler / "squeue").symlink_to(program)
    done = cli("init", "--yes")
    assert settings(file).get("scheduler") == found
    assert done.code == 0, done.out
    assert ("cluster tiny" in done.out) == (found == "slurm")
    assert ("schedmate slurm import" in done.out) == (found == "slurm")


def test_a_scheduler_is_named_as_people_write_it(cli: Cli, file: Path) -> None:
    done = cli("init", "--yes", "--scheduler", "Kubernetes")
    assert done.code == 1
    assert settings(file)["scheduler"] == "kubernetes"
    assert cli("init", "--yes", "--replace", "--scheduler", "K8s").code == 1
    assert settings(file)["scheduler"] == "kubernetes"
    said = cli("init", "--scheduler", "SLRM").err
    assert "not one of slurm, kubernetes, ray, none; did you mean slurm?" in said


def answering(*lines: str) -> tuple[int, str]:
    """The exit code of `schedmate init` where these lines are typed, and what it shows."""
    ours, theirs = pty.openpty()
    os.write(ours, "".join(f"{line}\n" for line in lines).encode())
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", "init"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(ours)
    os.close(theirs)
    return done.returncode, done.stdout


def test_questions_are_asked_until_the_answers_fit(file: Path, tmp_path: Path) -> None:
    code, said = answering(
        *(f"{tmp_path}/jobs", "SLRM", "Ray", "somewhere", "http://127.0.0.1:9/v1", "")
    )
    assert "'SLRM' is not one of slurm, kubernetes, ray, none; did you mean slurm?" in said
    assert "'somewhere' is not a URL" in said
    assert code == 1, "neither Ray nor the model is there"
    assert settings(file) == {
        "history": f"{tmp_path}/jobs",
        "scheduler": "ray",
        "llm_base_url": "http://127.0.0.1:9/v1",
    }
    code, said = answering("n")
    assert code == 0
    assert "nothing was changed" in said
    code, said = answering("y", "", "none", "none")
    assert code == 0, said
    assert settings(file) == {"history": f"{tmp_path}/jobs"}


@given(st.text(st.characters(exclude_categories=("Cs",))) | st.integers() | st.booleans())
def test_any_value_is_read_back_as_it_was(value: str | float) -> None:
    assert tomllib.loads(f"key = {_toml(value)}") == {"key": value}
