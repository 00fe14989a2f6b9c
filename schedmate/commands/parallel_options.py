"""Options of the commands of `schedmate parallel`, and what they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from schedmate.schedulers.parallelism.network import Network

ProfileOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help=(
            "Measured times: layers, collectives, kernels (CSV, also gzip), fitted links "
            "(network.json), or a folder with such files. Repeatable."
        ),
    ),
]
NetworkOption = Annotated[
    float | None,
    typer.Option(
        "--network",
        min=0.01,
        metavar="GB/S",
        help="Bandwidth from a node to other nodes, if no profile has it.",
    ),
]
DeviceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="NAME:memory=GB,...",
        help="A GPU type by its datasheet, such as X:memory=80,bandwidth=3350,bf16=989,link=450.",
    ),
]


def network(
    profile: list[Path] | None, between_nodes: float | None, described: list[str] | None
) -> Network:
    """The cluster that the options describe; raises `InputError` for what cannot be read."""
    from schedmate.schedulers.parallelism import devices
    from schedmate.schedulers.parallelism.network import Network
    from schedmate.schedulers.parallelism.profile import read_tables

    return Network(
        read_tables(profile or []),
        (between_nodes or 0) * 1e9,
        tuple(devices.described(text) for text in described or []),
        describing="--device",
    )


def say_which(gpu: str) -> None:
    """Say which GPU a name is taken for that several of different memory have."""
    from schedmate.schedulers.parallelism.devices import taken_for
    from schedmate.terminal import say

    meant = taken_for(gpu)
    if meant is not None:
        say(f"note: {meant}")
