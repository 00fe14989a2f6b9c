"""Commands and sample output in README.md and docs/ are those of the program as it is."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from schedmate.cli import app

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


def calls(command: str) -> list[list[str]]:
    """The calls of schedmate in a shell command, each as its arguments."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found, words = [], list[str]()
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;()<>"):
            called = re.sub(r"^(\w+=\S* |sudo (-n )?(-u \w+ )?)*", "", " ".join(words))
            if called.startswith("schedmate "):
                found.append(words[len(words) - called.count(" ") :] if words else [])
            words = []
        else:
            words.append(word.replace(" ", "_"))
    return found


@cache
def command_line() -> Any:
    return typer.main.get_command(app)


def parse(arguments: list[str]) -> None:
    """Raise an exception for a command or an option that does not exist; run and read nothing."""
    command, context = command_line(), None
    while arguments:
        context = command.context_class(command, info_name=command.name, parent=context)
        _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        if not isinstance(command, TyperGroup) or not rest:
            return
        _, command, arguments = command.resolve_command(context, rest)


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
