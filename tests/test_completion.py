"""Completion in bash, zsh and fish, by asking each shell that is installed."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schedmate.commands import options

SCHEDMATE = Path(sys.executable).with_name("schedmate")
TIME_S = 120.0

COMMANDS = [
    ("schedmate tria", "triage"),
    ("schedmate traces synth", "synthesize"),
    ("schedmate simulate t.csv --clus", "--cluster"),
    ("schedmate simulate t.csv --policy fifo,elas", "fifo,elasticflow"),
    ("schedmate init --scheduler kub", "kubernetes"),
    ("schedmate track runn", "running.log"),
]
"""What is typed before TAB, and what its last word becomes."""


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a shell in a folder with a log, where `schedmate` can be found."""
    (tmp_path / "running.log").touch()
    (tmp_path / "t.csv").touch()
    monkeypatch.chdir(tmp_path)
    path = f"{SCHEDMATE.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "dumb"}


def script(shell: str, variables: dict[str, str]) -> str:
    """What `schedmate --show-completion` gives this shell."""
    done = subprocess.run(
        [SCHEDMATE, "--show-completion", shell],
        env={**variables, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True, text=True, check=True, timeout=TIME_S,
    )  # fmt: skip
    return done.stdout


def run(command: list[str], variables: dict[str, str]) -> str:
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, check=True, timeout=TIME_S
    ).stdout


@pytest.mark.slow
def test_bash_completes(variables: dict[str, str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    asked = ""
    for typed, _ in COMMANDS:
        words = typed.split()
        # -o default: bash itself offers files where the function offers nothing
        asked += (
            f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; COMPREPLY=()\n"
            f"_schedmate_completion schedmate; "
            f'echo "${{COMPREPLY[*]:-$(compgen -f -- {words[-1]})}}"\n'
        )
    text = f"{script('bash', variables)}\n{asked}"
    offered = run(["bash", "--norc", "--noprofile", "-c", text], variables).splitlines()
    assert [line.split() for line in offered] == [[whole] for _, whole in COMMANDS]
    assert "-o default" in run(
        ["bash", "--norc", "-c", f"{script('bash', variables)}\ncomplete -p schedmate"], variables
    )


@pytest.mark.slow
@pytest.mark.shells
def test_fish_completes(variables: dict[str, str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    asked = "\n".join(f"complete -C '{typed}'; echo ." for typed, _ in COMMANDS)
    text = f"{script('fish', variables)}\n{asked}"
    offered = run(["fish", "--no-config", "-c", text], variables).split(".\n")
    first = [one.split("\t")[0].strip() for one in offered if one.strip()]
    assert first == [whole for _, whole in COMMANDS]


@pytest.mark.slow
@pytest.mark.shells
def test_zsh_completes(variables: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    home = tmp_path / "zsh"
    home.mkdir()
    (home / ".zshrc").write_text(
        f"autoload -U compinit; compinit -u -D\n{script('zsh', variables)}\n"
        "PS1='ready> '; unsetopt zle_bracketed_paste prompt_cr 2>/dev/null\nLISTMAX=0\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-d", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**variables, "ZDOTDIR": str(home)},
    ) as shell:  # fmt: skip
        os.close(theirs)
        try:
            until(ours, "ready> ")
            for typed, whole in COMMANDS:
                os.write(ours, f"{typed}\t".encode())
                until(ours, whole)
                os.write(ours, b"\x15\n")  # take the line back
                until(ours, "ready> ")
        finally:
            shell.kill()
            os.close(ours)


def test_names_are_offered() -> None:
    assert options.complete_policy("tire") == ["tiresias"]
    assert options.complete_policies("fifo,sia") == ["fifo,sia", "fifo,sia+schedmate"]
    assert set(options.complete_policies("fifo,")) > {"fifo,sjf", "fifo,lucid"}
    assert options.complete_estimators("no") == ["noisy", "none"]
    assert "best-fit" in options.complete_placements("")


def until(terminal: int, text: str) -> None:
    """Read what a terminal shows until the text is there."""
    seen, ends = "", time.monotonic() + TIME_S
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, ends - time.monotonic()))
        assert ready, f"{text!r} was not shown: {seen!r}"
        seen += os.read(terminal, 1 << 16).decode(errors="replace")
