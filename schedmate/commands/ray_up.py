"""`schedmate ray up` and `down`: starting and ending the queue of a Ray cluster."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands import completing
from schedmate.commands.options import HistoryOption
from schedmate.commands.ray_client import (
    DEFAULT,
    AddressOption,
    Client,
    NameOption,
    actor_name,
    address_of,
    find,
    forget,
    is_local,
    note,
)
from schedmate.errors import UsageError
from schedmate.terminal import counted, say

if TYPE_CHECKING:
    from schedmate.commands.ray_setup import Setup


LEAST_LEASE_S = 15.0
"""Three times as long as a call of the queue waits for news (`seats.WAIT_S`) [s]."""


def up(
    policy: Annotated[
        str,
        typer.Option(
            help="A policy of `schedmate policies`, with settings: lucid:profile_limit_s=100.",
            autocompletion=completing.one_policy,
        ),
    ] = "sjf+schedmate",
    local: Annotated[
        str | None,
        typer.Option(
            metavar="NODESxGPUS",
            help=(
                "For trials: start a Ray cluster with simulated GPUs on this machine, which "
                "ends with this command."
            ),
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the queue's files on this machine, kept after it ends.",
        ),
    ] = None,
    shared: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Logs and locks, on a file system that all nodes share; default: --state.",
        ),
    ] = None,
    history: HistoryOption = None,
    estimate: Annotated[
        bool,
        typer.Option(help="Estimate jobs from their code, or only use their time limits."),
    ] = True,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Restart failed jobs as the Failure Handler proposes, within recovery's limits.",
        ),
    ] = False,
    recovery: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A recovery.yaml: which actions are allowed after failures."
        ),
    ] = None,
    meter: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help=(
                "Command that measures GPUs {gpus} and prints `util,memory util,MB` for each. "
                "Default: nvidia-smi."
            ),
        ),
    ] = None,
    lease: Annotated[
        str,
        typer.Option(
            help=(
                "Time after which a job on an unreachable node ends by itself and is started "
                "elsewhere; 15s or more."
            )
        ),
    ] = "60s",
    keep: Annotated[
        str,
        typer.Option(
            help=(
                "How long a runner process keeps its GPUs for the next job of that size, "
                "since a new process takes a second or more to start."
            )
        ),
    ] = "30s",
    address: AddressOption = None,
    name: NameOption = DEFAULT,
) -> None:
    """Start the queue on a Ray cluster, or resume it after a restart.

    Ray restarts the queue when its process dies. The nodes need schedmate and the same paths.

    Examples:

      schedmate ray up --address 10.0.0.1:6379 --shared /nfs/schedmate --restart

      schedmate ray up --local 2x4 --policy lucid+schedmate
    """
    from schedmate.commands.ray_recovery import load_recovery
    from schedmate.durations import parse_duration
    from schedmate.schedulers import registry
    from schedmate.schedulers.live.ray.backend import prepare
    from schedmate.settings import data_dir

    lease_s = parse_duration(lease)
    if lease_s < LEAST_LEASE_S:
        raise UsageError(
            f"--lease {lease}: {LEAST_LEASE_S:g} s at least; the queue is heard of every few "
            "seconds, and jobs would end between two times."
        )
    prepare()
    registry.make(policy)
    if local is not None and address is not None:
        raise UsageError("--local starts a cluster, --address names one: choose.")
    if not name.replace("-", "").isalnum():
        raise UsageError(f"--name {name}: letters, digits and - only.")
    folder = (data_dir() / "ray" / name if state is None else state).absolute()
    load_recovery(None if recovery is None else str(recovery), folder, name, restart=restart)
    from schedmate.commands.ray_setup import Setup

    setup = Setup(
        name=name,
        state=str(folder),
        policy=policy,
        folder=str((shared or folder).absolute()),
        history=history,
        recovery=None if recovery is None else str(recovery.absolute()),
        restart=restart,
        estimate=estimate,
        meter=None if meter is None else tuple(shlex.split(meter)),
        lease_s=lease_s,
        keep_s=parse_duration(keep),
    )
    if local is not None:
        _local(local, setup)
        return
    where = address_of(address)
    _start(where, setup)
    note(where)
    say(f"the queue {name!r} is up; `schedmate ray submit` puts jobs into it.")


def _start(address: str, setup: Setup) -> None:
    from schedmate.schedulers.live.ray.backend import NAMESPACE, connect

    connect(address)
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from schedmate.commands.ray_service import QueueActor

    if find(setup.name) is not None:
        raise UsageError(
            f"the queue {setup.name!r} is up already; `schedmate ray down` ends it, its jobs stay "
            "in its files."
        )
    here = ray.get_runtime_context().get_node_id()
    actor = (
        ray.remote(QueueActor)
        .options(
            name=actor_name(setup.name),
            namespace=NAMESPACE,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=16,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        .remote(setup)
    )
    try:
        ray.get(actor.ping.remote(), timeout=120)
    except ray.exceptions.RayActorError as error:
        raise UsageError(f"the queue cannot be started: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _local(shape: str, setup: Setup) -> None:
    """A cluster for as long as this command runs, and its queue."""
    from schedmate.schedulers.live.ray.local import local_cluster
    from schedmate.schedulers.model import Cluster

    cluster, ends = Cluster.parse(shape), threading.Event()
    with local_cluster(shape) as made:
        try:
            _start(made.address, setup)
            note(made.address, local=True)
            for number in (signal.SIGINT, signal.SIGTERM):  # Ray has set its own by now
                signal.signal(number, lambda *_: ends.set())
            gpus = f"{counted(len(cluster.nodes), 'node')}, {counted(cluster.gpus, 'GPU')}"
            say(f"{gpus} at {made.address}; Ctrl-C ends them.")
            sys.stdout.flush()
            while not ends.wait(1.0) and made.is_there and find(setup.name) is not None:
                pass
            if ends.is_set():
                _end(setup.name)
        finally:
            forget(made.address)
            _leave()


def _leave() -> None:
    """Disconnect from the cluster while it is there: afterwards Ray looks for it for a minute."""
    import ray

    ray.shutdown()


def _end(name: str) -> None:
    """End the queue's actor and all of its runners."""
    import ray

    actor = find(name)
    if actor is None:
        return
    with suppress(ray.exceptions.RayError):  # it is killed all the same
        ray.get(actor.close.remote(), timeout=60)
    ray.kill(actor, no_restart=True)


def down(
    force: Annotated[
        bool, typer.Option("--force", help="Stop even while jobs run; they return to the queue.")
    ] = False,
    address: AddressOption = None,
    name: NameOption = DEFAULT,
) -> None:
    """End the queue; its jobs stay in its files, and `up` resumes them.

    A cluster that `up --local` has started ends with its queue; any other keeps running.
    """
    client = Client(address, name)
    running = client.ask("look", 0)["counts"].get("RUNNING", 0)
    if running and not force:
        raise UsageError(
            f"{counted(running, 'job')} would be stopped; wait, cancel them, or add --force."
        )
    local = is_local(client.address)
    _end(name)
    forget(client.address)
    _leave()
    rest = "with it ends the cluster that `ray up --local` started" if local else "Ray goes on"
    say(f"the queue {name!r} has ended; {rest}.")
