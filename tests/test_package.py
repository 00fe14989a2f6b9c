"""What is built to be installed: nothing is missing, and nothing is in it that should not be."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import schedmate

ROOT = Path(__file__).parent.parent
SCHEDMATE = str(Path(sys.executable).with_name("schedmate"))


def ours() -> set[str]:
    """The files of the package that git has, through no links."""
    listed = subprocess.run(
        ["git", "ls-files", "schedmate"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a clone")
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True)
    return folder


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    [path] = built.glob("*.whl")
    assert f"-{schedmate.__version__}-py3-none-any" in path.name
    with zipfile.ZipFile(path) as wheel:
        files = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = {name.partition(".dist-info/")[2] for name in wheel.namelist()} - {""}
        entries = wheel.read(next(n for n in wheel.namelist() if n.endswith("entry_points.txt")))
    assert not ours() - files, "data or code is missing"
    assert not {name for name in files if not name.startswith("schedmate/")}
    assert not {name for name in files if "__pycache__" in name or "/tests/" in name}
    assert {"schedmate/py.typed", "schedmate/demo/history.jsonl"} <= files
    assert {"METADATA", "licenses/LICENSE"} <= metadata
    assert b"schedmate = schedmate.__main__:main" in entries


@pytest.mark.slow
def test_the_source_distribution_can_be_built_from_and_has_no_results(built: Path) -> None:
    [path] = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert not ours() - files
    assert {"examples/train_repo/train.py", "examples/history.jsonl"} <= files
    assert {"pyproject.toml", "LICENSE", "README.md", "tests/conftest.py", "Makefile"} <= files
    assert not {name for name in files if name.startswith(("benchmarks/results", ".venv", "build"))}


def test_the_module_is_the_command(tmp_path: Path) -> None:
    """`python -m schedmate` answers as `schedmate` does, and imports nothing from where it runs."""
    (tmp_path / "typer.py").write_text("raise SystemExit('imported from the current directory')")
    command = ["track", "missing.log"]
    by_module, by_script = (
        subprocess.run([*start, *command], cwd=tmp_path, capture_output=True, text=True)
        for start in ([sys.executable, "-m", "schedmate"], [SCHEDMATE])
    )
    assert by_module.returncode == by_script.returncode == 3
    assert by_module.stderr == by_script.stderr != ""


def test_every_extra_has_a_trial() -> None:
    """What the release checklist installs and tries is what pyproject.toml offers."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"].keys()
    trials = yaml.safe_load((ROOT / "benchmarks" / "extras.yaml").read_text())
    assert trials.keys() == (extras - {"dev"}) | {"base"}
    for name, trial in trials.items():
        checked = subprocess.run(["bash", "-n"], input=trial["run"], capture_output=True, text=True)
        assert (bool(trial["what"]), checked.stderr) == (True, ""), name


def test_the_version_has_one_source() -> None:
    """pyproject.toml takes it from the package, and the command prints it."""
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"schedmate {schedmate.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str) -> None:
    """What the script of a shell asks for is answered with the commands."""
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.run(
        [SCHEDMATE, "--show-completion", shell], capture_output=True, text=True, env=env
    )
    assert script.returncode == 0, script.stderr
    assert "_SCHEDMATE_COMPLETE" in script.stdout
    words = {"_SCHEDMATE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "schedmate tr"}
    words |= {"COMP_WORDS": "schedmate tr", "COMP_CWORD": "1"}
    words |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    answer = subprocess.run(
        [SCHEDMATE], capture_output=True, text=True, env={**os.environ, **words}
    )
    offered = set(answer.stdout.replace('"', " ").replace(":", " ").split())
    assert {"track", "triage", "traces"} <= offered, answer.stdout + answer.stderr
    assert "diagnose" not in answer.stdout
