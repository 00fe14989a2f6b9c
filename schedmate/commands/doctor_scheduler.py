"""`schedmate doctor` on the cluster's scheduler: does it answer at all."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from schedmate.commands.checks import Check

if TYPE_CHECKING:
    from schedmate.settings import Settings

REACH = (
    "run schedmate where that scheduler's commands work, or choose another one: "
    "schedmate init --replace"
)


def examine_scheduler(settings: Settings) -> Generator[Check, None, None]:
    """Whether the scheduler of the settings can be reached from here; nothing is changed."""
    from schedmate.schedulers.live.bounds import load_bounds

    if settings.scheduler is None:
        return
    if settings.scheduler == "slurm":
        from schedmate.commands.slurm_setup import connect

        adapter = connect(load_bounds(None))
        major, minor = adapter.version()
        fact = f"Slurm {major}.{minor:02d}, cluster {adapter.cluster}"
        yield Check("scheduler", "ok", f"{fact}; `schedmate slurm doctor` checks each right")
    elif settings.scheduler == "kubernetes":
        from contextlib import closing

        from schedmate.commands.k8s_setup import reach

        with closing(reach(load_bounds(None), None, None)) as api:
            fact = f"{api.server}, {api.get('/version').get('gitVersion')}"
        yield Check("scheduler", "ok", f"{fact}; `schedmate k8s doctor` checks each right")
    else:
        from schedmate.commands.ray_client import address_of
        from schedmate.errors import require

        require("a Ray cluster", "ray", "ray")
        fact = f"Ray at {address_of(None)}; `schedmate ray queue` shows its jobs"
        yield Check("scheduler", "ok", fact)
