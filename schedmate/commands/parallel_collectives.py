"""`schedmate parallel collectives`: time collectives on one machine, and show how they scale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from schedmate.commands.options import JsonOption
from schedmate.commands.parallel_options import ProfileOption
from schedmate.errors import InputError, UsageError
from schedmate.plain import dumps
from schedmate.terminal import say

SCHEMA = "schedmate.parallel-collectives/v1"


def collectives(
    profile: ProfileOption = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=2, max=64, help="Time collectives now, between this many devices of this machine."
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="With --ranks: name of this GPU type, such as A100-40.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="With --ranks: the table to write."),
    ] = None,
    on: Annotated[str, typer.Option(help="With --ranks: cuda (NCCL) or cpu (gloo).")] = "cuda",
    repeats: Annotated[int, typer.Option(min=2, help="With --ranks: timed runs of each.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the time of collectives by volume: latency, bandwidth, error of the fit.

    Predictions interpolate between measured volumes; the last column has the error of that for
    volumes that were left out.

    Examples:
      schedmate parallel collectives --profile collectives.csv.gz
      schedmate parallel collectives --ranks 4 --gpu A100-40 -o collectives.csv
    """
    from schedmate.schedulers.parallelism.links import fits
    from schedmate.schedulers.parallelism.profile import read_tables
    from schedmate.terminal.screen import Screen, Table

    paths = list(profile or [])
    if ranks is not None:
        if gpu is None or output is None:
            raise UsageError("--ranks times collectives: say --gpu NAME and -o FILE as well")
        _time(ranks, gpu, output, on, repeats)
        paths.append(output)
    if not paths:
        raise UsageError("say what to show: --profile collectives.csv, or --ranks to time some")
    found = fits(read_tables(paths))
    if not found:
        raise InputError(
            f"{paths[0]}: no times of collectives in it; time some with --ranks, --gpu and -o"
        )
    if as_json:
        rows = [
            {**one._asdict(), "bandwidth": one.bandwidth if one.bandwidth < float("inf") else None}
            for one in found
        ]
        typer.echo(dumps({"schema": SCHEMA, "collectives": rows}, indent=1))
        return
    right = ("GPUs", "volumes", "latency", "bandwidth", "error of the line", "interpolated")
    table = Table("GPU", "precision", "primitive", *right, right=right)
    for one in found:
        table.add(
            one.gpu,
            one.precision,
            one.primitive,
            one.ranks,
            one.points,
            f"{one.latency_s * 1e6:,.0f} us",
            f"{one.bandwidth / 1e9:,.1f} GB/s",
            f"{one.error:.0%}",
            f"{one.interpolated:.0%}",
        )
    Screen(sys.stdout).table(table)


def _time(ranks: int, gpu: str, output: Path, on: str, repeats: int) -> None:
    from schedmate.files import open_output
    from schedmate.schedulers.parallelism.links import COLUMNS, row, timed_collectives

    if on.partition(":")[0] not in ("cpu", "cuda"):
        raise UsageError(f"--on {on}: say cuda or cpu")
    found = timed_collectives(ranks, on, repeats)
    with open_output(output) as stream:
        stream.write("\n".join([COLUMNS, *(row(one, gpu) for one in found)]) + "\n")
    say(f"timed {len(found)} collectives among {ranks} devices")
