"""`schedmate slurm plan`: what would be done about a job that failed."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from schedmate.commands.agent_plan import show_plan
from schedmate.commands.agents import BoundsOption, StateOption
from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.commands.slurm_setup import opened
from schedmate.errors import InputError

SCHEMA = "schedmate.slurm-plan/v1"
BACK_S = 14 * 86_400.0
"""How long ago the job may have failed [s]."""


def plan(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Slurm's id of the job.")],
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the log of a failed job and show a plan; change nothing.

    With recovery in the bounds, the plan is the one that the agent would propose.
    """
    with opened(bounds, state, history, dry_run=True) as setup:
        now = time.time()
        runs = [run for run in setup.adapter.ended(now - BACK_S) if run.job == job]
        if not runs:
            raise InputError(
                f"accounting knows no run of job {job} that ended in the last 14 days; "
                "`sacct -D -j` lists them."
            )
        show_plan(setup, runs[-1], now, SCHEMA, as_json=as_json)
