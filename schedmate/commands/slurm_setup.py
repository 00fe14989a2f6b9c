"""What the commands of `schedmate slurm` share: the cluster, the agent and their files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.schedulers.live.bounds import Bounds, load_bounds

if TYPE_CHECKING:
    from schedmate.mate import SchedMate
    from schedmate.schedulers.live.loop import Agent
    from schedmate.schedulers.live.memory import Memory
    from schedmate.schedulers.live.record import Record
    from schedmate.schedulers.live.slurm.adapter import SlurmAdapter

BoundsOption = Annotated[
    Path | None,
    typer.Option(
        "--bounds",
        metavar="FILE",
        help="What schedmate may do on the cluster (YAML); without it, nothing but look.",
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Directory of the agent's memory and its record of actions.",
    ),
]

MEMORY = "memory.db"
RECORD = "record.db"


@dataclass(frozen=True, slots=True)
class Setup:
    """An agent and what it works with; `record` is None in a dry run."""

    bounds: Bounds
    adapter: SlurmAdapter
    mate: SchedMate
    memory: Memory
    record: Record | None
    agent: Agent

    def wait(self) -> None:
        """Wait before the lease is tried again."""
        time.sleep(min(5.0, self.bounds.poll))


def state_dir(state: Path | None) -> Path:
    """Where an agent keeps its files."""
    from schedmate.settings import data_dir

    return data_dir() / "agent" if state is None else state


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


@contextmanager
def opened(
    bounds: Path | None, state: Path | None, history: str | None, *, dry_run: bool = False
) -> Iterator[Setup]:
    """An agent with everything that it needs, closed afterwards."""
    from schedmate.commands.slurm_recovery import SlurmRecovery, load_recovery
    from schedmate.mate import SchedMate
    from schedmate.schedulers.live.loop import Agent
    from schedmate.schedulers.live.memory import Memory
    from schedmate.schedulers.live.record import Record
    from schedmate.settings import load_settings

    allowed = load_bounds(bounds)
    # a language model takes longer than a pass may
    settings = load_settings(history=history, mode="static")
    folder = state_dir(state)
    with ExitStack() as stack:
        adapter = connect(allowed)
        memory = stack.enter_context(Memory(folder / MEMORY, scratch=dry_run))
        recovery = load_recovery(allowed, adapter)
        place = folder / RECORD if recovery is None else recovery.record
        record = None if dry_run else stack.enter_context(Record(place))
        mate = stack.enter_context(SchedMate(settings))
        healer = None if recovery is None else SlurmRecovery(adapter, recovery, record)
        agent = Agent(adapter, mate, memory, record, allowed, healer=healer)
        yield Setup(allowed, adapter, mate, memory, record, agent)
