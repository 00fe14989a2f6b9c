"""Commands and sample output in README.md and docs/ are those of the program as it is."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from command_calls import calls, parse

ROOT = Path(__file__).parent.parent
SAMPLES = runpy.run_path(str(ROOT / "docs" / "generate_samples.py"))
PAGES: list[Path] = SAMPLES["pages"]()


RUN = [
    page
    for page in PAGES
    if any(
        block.runs or any(SAMPLES["excused"](one) is None for one in block.commands)
        for block in SAMPLES["blocks"](page)
    )
]
"""Pages with commands that can be run here."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `schedmate demo` leaves."""
    made: Path = SAMPLES["demo"](tmp_path_factory.mktemp("demo"))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_succeed_and_print_what_it_shows(page: Path, made: Path) -> None:
    if missing := SAMPLES["Stage"].of(page).missing():
        pytest.skip(f"needs {', '.join(missing)}")
    _, changes = SAMPLES["differences"](page, made)
    assert not changes, "run `make docs` and commit the result"


def test_what_is_not_run_is_still_on_a_page() -> None:
    shown = [
        SAMPLES["Stage"].of(page).meant(command)
        for page in PAGES
        for block in SAMPLES["blocks"](page)
        for command in block.commands
    ]
    for pattern in SAMPLES["SAMPLES"]["not_run"]:
        assert any(re.search(pattern, command) for command in shown), pattern
    pages = {str(page.relative_to(ROOT)) for page in PAGES}
    assert set(SAMPLES["SAMPLES"]["pages"]) <= pages


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
