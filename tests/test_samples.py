"""Commands and sample output in README.md and docs/ are those of the program as it is."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from command_calls import calls, parse

ROOT = Path(__file__).parent.parent
SAMPLES = runpy.run_path(str(ROOT / "docs" / "generate_samples.py"))
PAGES: list[Path] = SAMPLES["pages"]()


def test_pages_show_what_their_commands_print() -> None:
    marked = [page for page in PAGES if SAMPLES["MARK"] in page.read_text()]
    assert len(marked) >= 2
    subprocess.run([sys.executable, ROOT / "docs" / "generate_samples.py", "--check"], check=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_output_is_run_or_says_why_not(page: Path) -> None:
    for block in SAMPLES["blocks"](page):
        if block.shows_output:
            assert block.runs or block.mark.startswith(SAMPLES["NOT_RUN"]), block.text


ALL = [
    pytest.param(call, id=f"{page.name}: {' '.join(call)}"[:90])
    for page in PAGES
    for block in SAMPLES["blocks"](page)
    for command in block.commands
    for call in calls(command)
    if call
]


@pytest.mark.parametrize("call", ALL)
def test_every_command_exists_with_its_options(call: list[str]) -> None:
    parse(call)


@pytest.mark.parametrize("call", [["analyse", "."], ["analyze", ".", "--comand", "x"]])
def test_one_that_does_not_exist_would_be_found(call: list[str]) -> None:
    with pytest.raises(Exception, match=re.compile("no such|does not", re.IGNORECASE)):
        parse(call)
