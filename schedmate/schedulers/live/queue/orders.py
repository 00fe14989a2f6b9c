"""The commands of a run, with their nodes and environment."""

from __future__ import annotations

import shlex
from pathlib import Path

from schedmate.schedulers.live.queue.options import Options
from schedmate.schedulers.live.queue.requests import StoredJob, StoredRun
from schedmate.schedulers.live.queue.runner import Order

FIRST_PORT, PORTS = 20_000, 10_000


def orders_of(stored: StoredJob, run: StoredRun, options: Options) -> list[Order]:
    """One command for each node, by rank; all the same but for `SCHEDMATE_NODE_RANK`."""
    spec = stored.request.spec
    assert spec.command is not None
    assert spec.repo is not None
    command = options.resume(stored) if run.number else spec.command
    count = len(run.places)
    gpus = sum(place.gpus for place in run.places)
    names = ",".join(place.name for place in run.places)
    common = {
        **stored.request.env,
        "SCHEDMATE_JOB": str(stored.id),
        "SCHEDMATE_RUN": str(run.number),
        "SCHEDMATE_GPUS": f"{gpus:g}",
        "SCHEDMATE_NODES": names,
        "SCHEDMATE_NNODES": str(count),
        "PYTHONUNBUFFERED": "1",
    }
    if count > 1:
        common |= {
            "MASTER_ADDR": run.places[0].name,
            "MASTER_PORT": str(FIRST_PORT + run.id % PORTS),
        }
    return [
        Order(
            run=run.id,
            rank=rank,
            job=stored.mark,
            command=command,
            cwd=spec.repo,
            env={**common, "SCHEDMATE_NODE_RANK": str(rank)},
            log=str(log_of(run, rank)),
            report=str(report_of(run, rank)),
            claims=str(options.claims),
            lease_s=options.lease_s,
        )
        for rank in range(count)
    ]


def log_of(run: StoredRun, rank: int = 0) -> Path:
    """The log of one node of a run."""
    return Path(run.folder) / f"rank{rank}.log"


def report_of(run: StoredRun, rank: int) -> Path:
    """The file that records how a command of a run ended."""
    return Path(f"{run.folder}.rank{rank}.json")


def shell_words(command: list[str]) -> str:
    """A command line of words that were split already."""
    return command[0] if len(command) == 1 else shlex.join(command)
