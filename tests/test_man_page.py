"""The manual page has every command and option, and roff finds nothing wrong with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("man") / "man1" / "schedmate.1"
    script = ROOT / "docs" / "generate_man.py"
    subprocess.run([sys.executable, script, path], check=True)
    return path


def test_every_command_and_option_of_the_reference_is_there(page: Path) -> None:
    text = page.read_text().replace("\\-", "-")
    reference = (ROOT / "docs" / "cli.md").read_text()
    commands = re.findall(r"^## `(.+)`$", reference, re.MULTILINE)
    assert len(commands) > 60
    assert re.findall(r'^\.SS "(.+)"$', text, re.MULTILINE) == commands
    options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", reference, re.MULTILINE)) - {"--help"}
    named = set(re.findall(r"--[\w-]+", "\n".join(re.findall(r"^\.B (.+)$", text, re.MULTILINE))))
    assert len(options) > 100
    assert options <= named


def test_no_line_is_taken_as_a_request_by_chance(page: Path) -> None:
    requests = {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I"}
    found = {line.split()[0] for line in page.read_text().splitlines() if line[:1] in ".'"}
    assert found == requests


def test_roff_finds_nothing_wrong(page: Path) -> None:
    man, mandoc = shutil.which("man"), shutil.which("mandoc")
    if man and shutil.which("groff"):
        command = [man, "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(page)]
    elif mandoc:
        command = [mandoc, "-T", "utf8", "-W", "warning", str(page)]
    else:
        pytest.skip("needs man with groff, or mandoc")
    done = subprocess.run(
        command,
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "Estimate a job's run time from its code and from past jobs." in done.stdout
