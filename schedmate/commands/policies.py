"""`schedmate policies`: what there is to simulate."""

from __future__ import annotations

import sys

import typer

from schedmate.commands.options import JsonOption
from schedmate.plain import dumps


def policies(as_json: JsonOption = False) -> None:
    """List the scheduling policies and their settings."""
    from schedmate.schedulers import registry
    from schedmate.terminal.screen import Screen, Table

    rows = []
    for name in registry.names():
        found = registry.policy_class(name)
        rows.append(
            {
                "name": name,
                "what": " ".join((found.__doc__ or "").strip().partition("\n\n")[0].split()),
                "settings": {one.name: one.default for one in registry.parameters(found)},
            }
        )
    if as_json:
        typer.echo(dumps({"schema": "schedmate.policies/v1", "policies": rows}, indent=1))
        return
    table = Table("policy", "what", "settings")
    for row in rows:
        settings = row["settings"]
        assert isinstance(settings, dict)
        text = ", ".join(f"{key}={value}" for key, value in settings.items())
        table.add(row["name"], row["what"], text)
    Screen(sys.stdout).table(table)
