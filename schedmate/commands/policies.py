"""`schedmate policies`: what there is to simulate."""

from __future__ import annotations

import json
import sys

import typer

from schedmate.commands.options import JsonOption
from schedmate.terminal import clean


def policies(as_json: JsonOption = False) -> None:
    """List the scheduling policies and their settings."""
    from rich import box
    from rich.table import Table

    from schedmate.schedulers import registry
    from schedmate.terminal import console

    rows = []
    for name in registry.names():
        found = registry.policy_class(name)
        rows.append(
            {
                "name": name,
                "what": (found.__doc__ or "").strip().partition("\n")[0],
                "settings": {one.name: one.default for one in registry.parameters(found)},
            }
        )
    if as_json:
        typer.echo(json.dumps({"schema": "schedmate.policies/v1", "policies": rows}, indent=1))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("policy", "what", "settings"):
        table.add_column(column, overflow="fold")
    for row in rows:
        settings = row["settings"]
        assert isinstance(settings, dict)
        text = ", ".join(f"{key}={value}" for key, value in settings.items())
        table.add_row(clean(row["name"]), clean(row["what"]), clean(text))
    console(sys.stdout).print(table)
