"""`schedmate parallel devices` and `models`: the GPU types and models that are known by name."""

from __future__ import annotations

import sys

import typer

from schedmate.commands.options import JsonOption
from schedmate.plain import dumps


def devices(as_json: JsonOption = False) -> None:
    """List the known GPU types with their datasheet numbers."""
    from schedmate.schedulers.parallelism import devices as known
    from schedmate.terminal.screen import Screen, Table

    found = known.devices().values()
    if as_json:
        rows = [
            {
                "name": one.name,
                "memory_bytes": one.memory_bytes,
                "bandwidth": one.bandwidth,
                "peaks": dict(one.peaks),
                "link": one.link,
                "source": one.source,
            }
            for one in found
        ]
        typer.echo(dumps({"schema": "schedmate.parallel-devices/v1", "devices": rows}, indent=1))
        return
    table = Table("GPU", "memory", "bandwidth", "fp32", "bf16/fp16", "source")
    for one in found:
        table.add(
            one.name,
            f"{one.memory_bytes / 1e9:.0f} GB",
            f"{one.bandwidth / 1e9:,.0f} GB/s",
            f"{one.peak('fp32') / 1e12:.1f} TFLOP/s",
            f"{one.peak('fp16') / 1e12:.0f} TFLOP/s",
            one.source,
        )
    Screen(sys.stdout).table(table)


def models(as_json: JsonOption = False) -> None:
    """List the known models with their sizes."""
    from schedmate.schedulers.parallelism import models as known
    from schedmate.terminal.screen import Screen, Table

    found = known.models().values()
    if as_json:
        rows = [
            {
                "name": one.name,
                "parameters": one.parameters(),
                "hidden": one.hidden,
                "layers": one.layers,
            }
            for one in found
        ]
        typer.echo(dumps({"schema": "schedmate.parallel-models/v1", "models": rows}, indent=1))
        return
    table = Table("model", "parameters", "hidden", "layers", "heads")
    for one in found:
        table.add(
            one.name,
            f"{one.parameters() / 1e9:.2f} billion",
            str(one.hidden or "-"),
            str(one.layers),
            str(one.heads if one.hidden else "-"),
        )
    Screen(sys.stdout).table(table)
