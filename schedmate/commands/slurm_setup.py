"""What the commands of `schedmate slurm` share: the cluster, and an agent on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from schedmate.commands.agents import Setup, assembled
from schedmate.schedulers.live.bounds import Bounds, load_bounds

if TYPE_CHECKING:
    from schedmate.schedulers.live.slurm.adapter import SlurmAdapter


def connect(bounds: Bounds) -> SlurmAdapter:
    """The cluster that Slurm's commands on this machine belong to.

    Raises `OutageError` when its controller does not answer.
    """
    from schedmate.schedulers.live.slurm.adapter import SlurmAdapter
    from schedmate.schedulers.live.slurm.commands import Commands
    from schedmate.schedulers.live.slurm.reading.config import parse_config

    commands = Commands(bounds.slurm.through)
    config = parse_config(commands.run("scontrol", "show", "config"))
    return SlurmAdapter(
        commands,
        cluster=config.get("ClusterName", "slurm"),
        drain=bounds.slurm.drain,
        annotate=bounds.annotate.where,
    )


def reached(bounds: Bounds) -> SlurmAdapter:
    """The same, with what to do in the message of the `OutageError`."""
    from schedmate.schedulers.live.slurm.reading.shapes import OutageError

    try:
        return connect(bounds)
    except OutageError as error:
        raise OutageError(
            f"{str(error).rstrip('.')}. Run this where `scontrol ping` finds the controller; "
            "`schedmate slurm doctor` checks the rest."
        ) from None


@contextmanager
def opened(
    bounds: Path | None, state: Path | None, history: str | None, *, dry_run: bool = False
) -> Iterator[Setup[SlurmAdapter]]:
    """An agent with everything that it needs, closed afterwards.

    Raises `OutageError` when the cluster does not answer.
    """
    from schedmate.commands.slurm_recovery import SlurmRunner

    allowed = load_bounds(bounds)
    adapter = reached(allowed)
    runner = SlurmRunner(adapter.commands)
    with assembled(adapter, allowed, state, history, runner, dry_run=dry_run) as setup:
        yield setup
