"""`schedmate config`: which settings hold, and why."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from schedmate.base.data import dumps
from schedmate.base.files import without_password
from schedmate.base.terminal import Screen
from schedmate.commands.options import JsonOption

SCHEMA = "schedmate.config/v1"

app = typer.Typer(no_args_is_help=True, help="Show the settings in force.")


@app.callback()
def _group() -> None:
    """Keep `show` a subcommand although it is the only one."""


@app.command()
def show(
    origin: Annotated[
        bool, typer.Option("--origin", help="Also print where each value comes from.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every setting and, on request, where it comes from.

    Passwords in addresses are shown as `***`.
    """
    from schedmate.settings import ADDRESSES, explain_settings

    settings, origins = explain_settings()
    values = {
        name: without_password(value) if name in ADDRESSES and value else value
        for name, value in settings.model_dump(mode="json").items()
    }
    if as_json:
        shown = {
            name: {"value": value, "origin": origins[name]} if origin else value
            for name, value in values.items()
        }
        typer.echo(dumps({"schema": SCHEMA, "settings": shown}, indent=2))
        return
    screen = Screen(sys.stdout)
    for name, value in values.items():
        text = dumps(value)
        screen.line(f"{text} # {origins[name]}" if origin else text, label=f"{name} = ")
