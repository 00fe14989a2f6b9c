"""`schedmate fleet`: clusters that are full yet idle; the commands are in `fleet_*.py`."""

from __future__ import annotations

import typer

from schedmate.commands.fleet_defrag import defrag, verify
from schedmate.commands.fleet_diagnose import diagnose
from schedmate.commands.fleet_place import place
from schedmate.commands.fleet_snapshots import check, convert, synthesize

app = typer.Typer(
    no_args_is_help=True,
    help="Find out why idle GPUs cannot be used, and plan migrations.",
)
for command in (check, convert, diagnose, defrag, verify, place, synthesize):
    app.command()(command)
