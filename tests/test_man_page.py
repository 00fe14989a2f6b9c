"""The manual page has every command and option, and roff finds nothing wrong with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schedmate.cli import COMMANDS

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("man") / "man1" / "schedmate.1"
    script = ROOT / "docs" / "generate_man.py"
    subprocess.run([sys.executable, script, path], check=True)
    return path


def test_every_command_and_option_of_the_reference_is_there(page: Path) -> None:
    text = page.read_text().replace("\\-", "-")
    pages = ["cli", *(f"cli/{name}" for name in COMMANDS)]
    reference = "".join((ROOT / "docs" / f"{name}.md").read_text() for name in pages)
    commands = re.findall(r"^##? `(.+)`$", reference, re.MULTILINE)
    assert len(commands) > 60
    assert sorted(re.findall(r'^\.SS "(.+)"$', text, re.MULTILINE)) == sorted(commands)
    options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", reference, re.MULTILINE)) - {"--help"}
    named = set(re.findall(r"--[\w-]+", "\n".join(re.findall(r"^\.B (.+)$", text, re.MULTILINE))))
    assert len(options) > 100
    assert options <= named


def test_no_line_is_taken_as_a_request_by_chance(page: Path) -> None:
    requests = {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I"}
    found = {line.split()[0] for line in page.read_text().splitlines() if line[:1] in ".'"}
    assert found == requests


TOOLS = {
    "man": ["--warnings", "-l", "-Tutf8"],
    "groff": ["-man", "-Tutf8", "-ww"],
    "mandoc": ["-T", "utf8", "-W", "warning"],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_roff_finds_nothing_wrong(page: Path, tool: str) -> None:
    if not shutil.which(tool) or (tool == "man" and not shutil.which("groff")):
        pytest.skip(f"needs {tool}")
    done = subprocess.run(
        [tool, *TOOLS[tool], str(page)],
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "GROFF_NO_SGR": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    text = re.sub(".\b", "", done.stdout)
    assert "Estimate a job's run time from its code and from past jobs." in text
    assert "a check failed (✗)" in " ".join(text.split())
