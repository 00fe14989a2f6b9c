"""Options converted without Pydantic are what Typer makes of them; all else is Typer's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer import core
from typer.main import get_command

from schedmate.commands import plain_values


def made() -> Any:
    app = typer.Typer(add_completion=False)

    @app.command()
    def one(
        text: str = "",
        several: Annotated[list[str] | None, typer.Option()] = None,
        where: Path | None = None,
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        part: Annotated[float, typer.Option(min=0, max=1)] = 1.0,
        count: int = 1,
    ) -> tuple[Any, ...]:
        return (text, several, where, there, part, count)

    return get_command(app)


def parsed(arguments: list[str], *, plain: bool) -> Any:
    """What the command is given, or what is wrong with it."""
    usual = core._TyperParameter.get_runtime_param
    whole = getattr(usual, "whole", usual)
    core._TyperParameter.get_runtime_param = whole  # type: ignore[method-assign]
    try:
        if plain:
            plain_values.install()
        return made().main(arguments, standalone_mode=False)
    except typer._click.exceptions.ClickException as error:
        return type(error), error.format_message()
    finally:
        core._TyperParameter.get_runtime_param = usual  # type: ignore[method-assign]


WORDS = st.one_of(
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=())),
    st.sampled_from(["", "-", ".", "1", "0.5", "7", "1e3", "nan", "true", "None", "/", "a/../b"]),
    st.sampled_from([str(Path(__file__)), "/no/such/place", "\udcff"]),
)


@settings(max_examples=60, deadline=None)
@given(
    given_=st.lists(
        st.tuples(st.sampled_from(["text", "several", "where", "there", "part", "count"]), WORDS),
        max_size=4,
    )
)
def test_every_value_is_what_typer_makes_of_it(given_: list[tuple[str, str]]) -> None:
    arguments = [f"--{name}={word}" for name, word in given_]
    assert parsed(arguments, plain=True) == parsed(arguments, plain=False)


@pytest.mark.parametrize(
    "arguments", [["simulate", "nowhere.csv", "--policy", "fifo", "--cluster", "2x4"]]
)
def test_a_command_that_needs_none_of_it_does_not_load_pydantic(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from schedmate.__main__ import main\n"
        "try:\n    main()\n"
        "finally:\n    print('pydantic' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert "nowhere.csv" in done.stderr
    assert done.stdout.strip() == "False"
