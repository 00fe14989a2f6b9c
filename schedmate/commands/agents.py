"""What the agents of all schedulers share: their files, their options, their output, the lease."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import typer

from schedmate.plain import dumps
from schedmate.schedulers.live.bounds import Bounds
from schedmate.terminal import counted, say

if TYPE_CHECKING:
    from schedmate.mate import SchedMate
    from schedmate.recovery.cluster import ClusterRecovery
    from schedmate.schedulers.live.adapter import ClusterAdapter
    from schedmate.schedulers.live.executor import Runner
    from schedmate.schedulers.live.loop import Agent
    from schedmate.schedulers.live.memory import Memory
    from schedmate.schedulers.live.record import Record
    from schedmate.schedulers.live.report import Pass

BoundsOption = Annotated[
    Path | None,
    typer.Option(
        "--bounds",
        metavar="FILE",
        help="File of what schedmate may do on the cluster (YAML); without it, it only observes.",
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
OnceOption = Annotated[bool, typer.Option("--once", help="Make one pass and exit.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")
]
UndoOption = Annotated[
    bool, typer.Option("--undo", help="Undo the ordering that was applied, and exit.")
]

MEMORY = "memory.db"
RECORD = "record.db"

A = TypeVar("A", bound="ClusterAdapter")


@dataclass(frozen=True, slots=True)
class Setup(Generic[A]):
    """An agent and what it works with; `record` is None in a dry run."""

    bounds: Bounds
    adapter: A
    mate: SchedMate
    memory: Memory
    record: Record | None
    agent: Agent
    recovery: ClusterRecovery | None = None
    """What carries out plans of recovery, where the bounds name a recovery.yaml."""
    lease: Callable[[], AbstractContextManager[object]] = nullcontext
    """What the agent has to hold besides the record, to be the only one."""
    pause: Callable[[float], object] = field(default=time.sleep)
    """How it waits between passes."""
    goes_on: Callable[[], bool] = lambda: True
    """Whether it is still the one that works."""


def state_dir(state: Path | None) -> Path:
    """Where an agent keeps its files."""
    from schedmate.settings import data_dir

    return data_dir() / "agent" if state is None else state


@contextmanager
def assembled(
    adapter: A,
    allowed: Bounds,
    state: Path | None,
    history: str | None,
    runner: Runner,
    *,
    dry_run: bool = False,
    mate: SchedMate | None = None,
) -> Iterator[Setup[A]]:
    """An agent with everything that it needs, closed afterwards; a `mate` of one's own is not."""
    from schedmate.mate import SchedMate
    from schedmate.recovery.cluster import ClusterRecovery, load_recovery
    from schedmate.schedulers.live.loop import Agent
    from schedmate.schedulers.live.memory import Memory
    from schedmate.schedulers.live.record import Record
    from schedmate.settings import load_settings

    # a language model takes longer than a pass may
    settings = load_settings(history=history, mode="static")
    folder = state_dir(state)
    with ExitStack() as stack:
        memory = stack.enter_context(Memory(folder / MEMORY, scratch=dry_run))
        recovery = load_recovery(allowed, adapter.cluster)
        place = folder / RECORD if recovery is None else recovery.record
        record = None if dry_run else stack.enter_context(Record(place))
        if mate is None:
            mate = stack.enter_context(SchedMate(settings))
        healer = None if recovery is None else ClusterRecovery(adapter, recovery, record, runner)
        agent = Agent(adapter, mate, memory, record, allowed, healer=healer)
        yield Setup(allowed, adapter, mate, memory, record, agent, healer)


def run_agent(
    setup: Setup[A],
    *,
    once: bool,
    undo: bool,
    as_json: bool,
    seen: Callable[[Pass], object] | None = None,
) -> None:
    """Make passes, alone on the cluster, until Ctrl-C; one in a dry run. `seen` hears of each."""
    from schedmate.schedulers.live.claims import ClaimedError
    from schedmate.schedulers.live.loop import only_agent
    from schedmate.schedulers.live.watch import watch

    def tell(found: Pass) -> None:
        if seen is not None:
            seen(found)
        if as_json:
            _print_json(found, indent=2 if once else None)
        elif once or found.eventful:
            _print(found)

    if setup.record is None:
        tell(setup.agent.once())
        return
    waits = False
    while True:
        try:
            with only_agent(setup.record, setup.adapter.cluster), setup.lease():
                if undo:
                    say(f"{counted(setup.agent.take_back_order(), 'job')} put back.")
                    return
                if once:
                    tell(setup.agent.once())
                    return
                say(f"watching cluster {setup.adapter.cluster}; Ctrl-C ends it.")
                waits = False
                watch(setup.agent, tell, say, wait=setup.pause, goes_on=setup.goes_on)
                say("another agent may work on this cluster now; waiting for its end.")
                waits = True
        except ClaimedError:
            if once or undo:
                raise
            if not waits:
                say("another agent works on this cluster; waiting for it to end.")
                waits = True
        time.sleep(min(5.0, setup.bounds.poll))


def _print_json(found: Pass, indent: int | None) -> None:
    from schedmate.schedulers.live.report import SCHEMA

    document = {"schema": SCHEMA, **found.model_dump(mode="json")}
    typer.echo(dumps(document, indent=indent))
    sys.stdout.flush()


def _print(found: Pass) -> None:
    from schedmate.commands.agent_words import lines_of
    from schedmate.terminal.screen import Screen

    screen = Screen(sys.stdout)
    for line, tone in lines_of(found):
        screen.line(line, tone)
    sys.stdout.flush()
