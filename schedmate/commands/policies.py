"""`schedmate policies`: what there is to simulate."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from schedmate.commands import completing
from schedmate.commands.options import JsonOption
from schedmate.plain import dumps


def policies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Show the settings of this policy, with their defaults.",
            show_default=False,
            autocompletion=completing.one_policy,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the scheduling policies, or the settings of one.

    Example: schedmate policies tiresias
    """
    from schedmate.schedulers import registry
    from schedmate.terminal.screen import Screen, Table

    screen = Screen(sys.stdout)
    rows = []
    if name is not None:
        name = registry.PolicySpec.parse(name).name  # as `--policy` takes it, settings and all
    for one in registry.names() if name is None else [name]:
        found = registry.policy_class(one)
        what = " ".join((found.__doc__ or "").strip().partition("\n\n")[0].split())
        settings = {known.name: known.default for known in registry.parameters(found)}
        rows.append({"name": one, "what": what, "settings": settings})
    if as_json:
        typer.echo(dumps({"schema": "schedmate.policies/v1", "policies": rows}, indent=1))
        return
    if name is None:
        table = Table("policy", "what")
        for row in rows:
            table.add(row["name"], row["what"])
        screen.table(table)
        return
    screen.line(what)
    screen.line()
    table = Table("setting", "default")
    for key, default in settings.items():
        table.add(key, default)
    screen.table(table)
    screen.line()
    screen.line(
        f"to change one: --policy {name}:{next(iter(settings))}=VALUE"
        if settings
        else f"{name} has no settings"
    )
